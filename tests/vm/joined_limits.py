"""Limits on a node with a real kubelet, one function a case, in the order in which they run.

Later cases use the pods of earlier ones, as a node's life goes. The daemon is not there at first, and is killed once.
"""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.peers.nriside import Json
from tests.vm.claim_cases import claim_to_misc_max
from tests.vm.deployment_cases import admission_is_installed, deployment_to_misc_max
from tests.vm.inside import CGROUPS, KIB, RESOURCE, charge, limit, limits, named, refused, until, without
from tests.vm.joined_node import BOX, HEAVY, HEAVY_OVERHEAD, NAME, UNTIL_TERM, Node, Pod, container, manifest

_WEB: Final = 12 * KIB
_FIXED: Final = 4 * KIB
_SETUP, _PROXY, _SERVER = 16 * KIB, 4 * KIB, 8 * KIB
_BOXED: Final = 4 * KIB


def _new(parent: Path, known: set[Path]) -> Path:
    found: list[Path] = []

    def there() -> bool:
        found[:] = [path for path in parent.iterdir() if path.is_dir() and path not in known]
        return bool(found)

    until(there, f"a new cgroup in {parent}", 12.0)
    assert len(found) == 1, found
    return found[0]


def _asked_to_end(node: Node, pod: Pod, name: str) -> bool:
    """Whether the container runs no more; asks it to end where it does. One that is asked before its shell listens ends
    with an error, and is started again."""
    there = node.container_ids(pod.name).get(name)
    if there is not None:
        with suppress(FileNotFoundError, IndexError, ProcessLookupError):
            os.kill(int((pod.cgroup / there / "cgroup.procs").read_text().split()[0]), signal.SIGTERM)
    return there is None and "server" in node.container_ids(pod.name)


def adopted_at_the_first_start(node: Node) -> None:
    """A pod that ran before anybody had started the daemon gets its limits when it starts."""
    pod = node.run("early", [container("app", "12Ki"), container("side")])
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    before, wanted = limits(*cgroups), [_WEB, 0, _WEB]
    assert not set(before) & set(wanted), before
    assert node.born_with(pod.containers["app"]) == ""
    node.daemon.start()
    until(lambda: limits(*cgroups) == wanted, "the pod from before is adopted")
    node.daemon.enforced("early", "", "app", "side")


def declared_by_the_spec_alone(node: Node) -> None:
    """No annotation, no webhook: the containers have their limits from birth by NRI, the pod soon after."""
    resources: Json = {"limits": {"sgx.intel.com/epc": "12Ki"}, "requests": {"cpu": "10m"}}
    pod = node.run("web", [container("app", resources=resources), container("side")])
    assert node.annotations("web") is None, node.annotations("web")
    app, side = pod.containers["app"], pod.containers["side"]
    assert "burstable" in str(pod.cgroup)
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_WEB}", f"{RESOURCE} 0")
    assert limits(app, side) == [_WEB, 0]
    until(lambda: limit(pod.cgroup) == str(_WEB), "the pod's budget in the kernel")
    node.daemon.enforced("web", "", "app", "side")


def init_and_sidecar(node: Node) -> None:
    """Two containers of a pod that run before the others: the budget is what the pod needs at its worst moment."""
    proxy = container("proxy", "4Ki", restartPolicy="Always")
    setup = container("setup", "16Ki", image=BOX, command=["/busybox", "sh", "-c", UNTIL_TERM])
    node.create("shaped", [container("server", "8Ki")], initContainers=[proxy, setup])
    pod = node.running("shaped", ["proxy", "setup"])
    budget = _SETUP + _PROXY
    until(lambda: limit(pod.cgroup) == str(budget), "the pod's budget while its init container runs")
    assert limits(pod.containers["proxy"], pod.containers["setup"]) == [_PROXY, _SETUP]
    held = [charge(pod.containers["setup"], _SETUP), charge(pod.containers["proxy"], _PROXY)]
    refused(pod.sandbox, 1)
    for fd in held:
        os.close(fd)
    until(lambda: _asked_to_end(node, pod, "setup"), "the init container has ended", 30.0)
    pod = node.running("shaped", ["proxy", "server"])
    assert limits(pod.containers["proxy"], pod.containers["server"]) == [_PROXY, _SERVER]
    node.daemon.enforced("shaped", "", "proxy", "server")
    assert limit(pod.cgroup) == str(budget)


def overhead_of_a_runtime_class(node: Node) -> None:
    """What the RuntimeClass asks for the sandbox is the pod's on top, and no container's."""
    pod = node.run("boxed", [container("app", "4Ki")], runtimeClassName=HEAVY)
    budget = _BOXED + HEAVY_OVERHEAD
    until(lambda: limit(pod.cgroup) == str(budget), "the pod's budget with its overhead")
    assert limit(pod.containers["app"]) == str(_BOXED)
    held = [charge(pod.containers["app"], _BOXED)]
    refused(pod.containers["app"], 1)
    held.append(charge(pod.sandbox, HEAVY_OVERHEAD))
    refused(pod.sandbox, 1)
    for fd in held:
        os.close(fd)
    node.daemon.enforced("boxed", "", "app")


def ephemeral_container(node: Node) -> None:
    """A container that nobody could declare anything for may take nothing of its pod's share."""
    debug = node.debug("boxed", "debug")
    assert (node.born_with(debug), limit(debug)) == (f"{RESOURCE} 0", "0")
    refused(debug, 1)
    node.daemon.enforced("boxed", "debug")


def api_server_away(node: Node) -> None:
    """SIGKILL, with the control plane away: what was last known holds; the unknown is said, then mended."""
    early = node.pods["early"]
    before_static = set(early.cgroup.parent.iterdir())
    node.relay.cut()
    until(lambda: (view := node.daemon.view()) is not None and view.api == "stale", "the API server is shown as away")
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert node.daemon.view() is None
    known = set(early.cgroup.iterdir())
    os.kill(int((early.containers["app"] / "cgroup.procs").read_text().split()[0]), signal.SIGKILL)
    app = _new(early.cgroup, known)
    node.kubelet.add_static("alone", json.dumps(manifest("alone", [container("app", "4Ki")])))
    alone = _new(early.cgroup.parent, before_static)
    until(lambda: len([one for one in alone.iterdir() if one.is_dir()]) == 2, "the static pod runs", 12.0)
    node.daemon.start("stale")
    until(lambda: limit(app) == str(_WEB), "the restarted container is adopted by what was last known")
    until(lambda: node.daemon.state(f"alone-{NAME}", "app") == "unknown", "alone/app is shown as unknown")
    row = node.daemon.row(f"alone-{NAME}", "app")
    assert row is not None
    stranger = CGROUPS / row.cgroup.lstrip("/")
    node.relay.mend()
    until(lambda: limits(stranger, alone) == [_FIXED, _FIXED], "the static pod is held to its mirror's spec")
    node.daemon.enforced(f"alone-{NAME}", "", "app")


MORE: Final = named(
    adopted_at_the_first_start,
    declared_by_the_spec_alone,
    init_and_sidecar,
    overhead_of_a_runtime_class,
    ephemeral_container,
    api_server_away,
    claim_to_misc_max,
    admission_is_installed,
    deployment_to_misc_max,
)
CASES: Final = without(MORE, overhead_of_a_runtime_class, ephemeral_container)
