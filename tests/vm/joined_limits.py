"""Limits on a node with a real kubelet, one function a case, in the order in which they run.

Later cases use the pods of earlier ones, as a node's life goes. A case returns the lines that it wants to be seen. The
daemon is not there at first, and is killed twice.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.peers.nriside import Json
from tests.vm.chart_cases import chart_to_misc_max
from tests.vm.deployment_cases import (
    deployment_to_misc_max,
    pod_of_intel,
    policies_are_installed,
    webhook_is_installed,
)
from tests.vm.inside import CGROUPS, KIB, RESOURCE, charge, limit, refused, until
from tests.vm.joined_node import BOX, HEAVY, HEAVY_OVERHEAD, NAME, UNTIL_TERM, Node, container, manifest

_EARLY: Final = 12 * KIB
_WEB: Final = 12 * KIB
_SETUP, _PROXY, _SERVER = 16 * KIB, 4 * KIB, 8 * KIB
_BOXED: Final = 4 * KIB
_FIXED: Final = 4 * KIB


def _limits(*cgroups: Path) -> list[str]:
    return [limit(cgroup) for cgroup in cgroups]


def _shown(*amounts: int) -> list[str]:
    return [str(amount) for amount in amounts]


def _new(parent: Path, known: set[Path]) -> Path:
    """The one cgroup that comes up below the parent."""
    found: list[Path] = []

    def there() -> bool:
        found[:] = [path for path in parent.iterdir() if path.is_dir() and path not in known]
        return bool(found)

    until(there, f"a new cgroup in {parent}", 12.0)
    assert len(found) == 1, found
    return found[0]


def _kill(node: Node) -> int:
    """A real SIGKILL; the process id that the daemon had."""
    killed = node.daemon.pid
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert node.daemon.view() is None
    return killed


def adopted_at_the_first_start(node: Node) -> list[str]:
    """A pod that ran before anybody had started the daemon gets its limits when it starts."""
    pod = node.run("early", [container("app", "12Ki"), container("side")])
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    before, wanted = _limits(*cgroups), _shown(_EARLY, 0, _EARLY)
    assert not set(before) & set(wanted), before
    assert node.born_with(pod.containers["app"]) == ""
    node.daemon.start()
    until(lambda: _limits(*cgroups) == wanted, "the pod from before is adopted")
    node.daemon.enforced("early", "", "app", "side")
    return [f"adoption: early/app, early/side, pod early: {before} before the daemon's first start, {wanted} after it"]


def declared_by_the_spec_alone(node: Node) -> list[str]:
    """No annotation, no webhook: the containers have their limits from birth by NRI, the pod soon after."""
    resources: Json = {"limits": {"sgx.intel.com/epc": "12Ki"}, "requests": {"cpu": "10m"}}
    pod = node.run("web", [container("app", resources=resources), container("side")])
    assert node.annotations("web") is None, node.annotations("web")
    app, side = pod.containers["app"], pod.containers["side"]
    assert "burstable" in str(pod.cgroup)
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_WEB}", f"{RESOURCE} 0")
    assert _limits(app, side) == _shown(_WEB, 0)
    until(lambda: limit(pod.cgroup) == str(_WEB), "the pod's budget in the kernel")
    node.daemon.enforced("web", "", "app", "side")
    row = node.daemon.row("web", "app")
    assert row is not None
    born = [node.born_with(one) for one in (app, side)]
    return [
        f"spec alone, no annotation: {pod.cgroup} {RESOURCE} {limit(pod.cgroup)}, "
        f"web/app {limit(app)}, web/side {limit(side)}; source {row.source}",
        f"from birth: runc was given misc.max '{born[0]}' for web/app, '{born[1]}' for web/side",
    ]


def refused_at_container_and_at_pod(node: Node) -> list[str]:
    """Above the container's limit and above the pod's budget the kernel refuses; the daemon shows both."""
    pod = node.pods["web"]
    held = charge(pod.containers["app"], _WEB)
    assert held > 0
    at_container = refused(pod.containers["app"], 1)
    at_side = refused(pod.containers["side"], 1)
    assert limit(pod.sandbox) == "max", "the sandbox has no limit of its own, so only the pod's can refuse"
    at_pod = refused(pod.sandbox, 1)
    until(lambda: node.daemon.resource("web").refusals == 3, "the refusals are shown")
    app, side, whole = (node.daemon.resource("web", one) for one in ("app", "side", ""))
    assert (app.usage, app.refusals_here, side.refusals_here, whole.refusals_here) == (_WEB, 1, 1, 1)
    os.close(held)
    return [
        f"refused by the container's limit: web/app holds {_WEB}, 1 more: {at_container}; web/side 1: {at_side}",
        f"refused by the pod's budget: sandbox of web takes 1: {at_pod}",
        f"shown: pod web refusals {whole.refusals}, by its own limit {whole.refusals_here}, "
        f"by web/app's {app.refusals_here}, by web/side's {side.refusals_here}",
    ]


def init_and_sidecar(node: Node) -> list[str]:
    """Two containers of a pod that run before the others: the budget is what the pod needs at its worst moment."""
    proxy = container("proxy", "4Ki", restartPolicy="Always")
    setup = container("setup", "16Ki", image=BOX, command=["/busybox", "sh", "-c", UNTIL_TERM])
    node.create("shaped", [container("server", "8Ki")], initContainers=[proxy, setup])
    pod = node.running("shaped", ["proxy", "setup"])
    budget = _SETUP + _PROXY
    until(lambda: limit(pod.cgroup) == str(budget), "the pod's budget while its init container runs")
    during = _limits(pod.containers["proxy"], pod.containers["setup"])
    assert during == _shown(_PROXY, _SETUP)
    held = [charge(pod.containers["setup"], _SETUP), charge(pod.containers["proxy"], _PROXY)]
    at_pod = refused(pod.sandbox, 1)
    for fd in held:
        os.close(fd)
    os.kill(int((pod.containers["setup"] / "cgroup.procs").read_text().split()[0]), signal.SIGTERM)
    pod = node.running("shaped", ["proxy", "server"])
    assert _limits(pod.containers["proxy"], pod.containers["server"]) == _shown(_PROXY, _SERVER)
    node.daemon.enforced("shaped", "", "proxy", "server")
    assert limit(pod.cgroup) == str(budget)
    return [
        f"init and sidecar: shaped/proxy {during[0]}, shaped/setup {during[1]}, pod shaped {budget}; both hold all of "
        f"it, 1 more in the pod: {at_pod}",
        f"after the init container: shaped/proxy {_PROXY}, shaped/server {_SERVER}, pod shaped {limit(pod.cgroup)}",
    ]


def overhead_of_a_runtime_class(node: Node) -> list[str]:
    """What the RuntimeClass asks for the sandbox is the pod's on top, and no container's."""
    pod = node.run("boxed", [container("app", "4Ki")], runtimeClassName=HEAVY)
    budget = _BOXED + HEAVY_OVERHEAD
    until(lambda: limit(pod.cgroup) == str(budget), "the pod's budget with its overhead")
    assert limit(pod.containers["app"]) == str(_BOXED)
    held = [charge(pod.containers["app"], _BOXED)]
    at_container = refused(pod.containers["app"], 1)
    held.append(charge(pod.sandbox, HEAVY_OVERHEAD))
    at_pod = refused(pod.sandbox, 1)
    for fd in held:
        os.close(fd)
    node.daemon.enforced("boxed", "", "app")
    return [
        f"overhead: boxed/app {_BOXED}, 1 more: {at_container}; its sandbox holds the overhead's {HEAVY_OVERHEAD} and "
        f"the pod {budget}, 1 more: {at_pod}"
    ]


def ephemeral_container(node: Node) -> list[str]:
    """A container that nobody could declare anything for may take nothing of its pod's share."""
    debug = node.debug("boxed", "debug")
    assert (node.born_with(debug), limit(debug)) == (f"{RESOURCE} 0", "0")
    at_container = refused(debug, 1)
    node.daemon.enforced("boxed", "debug")
    return [f"ephemeral: boxed/debug {RESOURCE} {limit(debug)}, from birth; 1: {at_container}"]


def killed_while_a_container_restarts(node: Node) -> list[str]:
    """First SIGKILL: the kubelet restarts a container meanwhile. It has no limit, and its pod's budget holds it."""
    killed = _kill(node)
    old = node.pods["web"].containers["app"]
    right_after = _limits(old, node.pods["web"].cgroup)
    assert right_after == _shown(_WEB, _WEB)
    os.kill(int((old / "cgroup.procs").read_text().split()[0]), signal.SIGKILL)
    until(lambda: node.container_ids("web").get("app", old.name) != old.name, "the kubelet restarts web/app", 12.0)
    pod = node.running("web", ["app", "side"])
    app = pod.containers["app"]
    before = _limits(app, pod.cgroup)
    assert before == ["max", str(_WEB)]
    at_pod = refused(app, _WEB + 1)
    node.daemon.start()
    until(lambda: limit(app) == str(_WEB), "the restarted container is adopted")
    node.daemon.enforced("web", "", "app", "side")
    assert limit(pod.cgroup) == str(_WEB)
    return [
        f"first kill: daemon {killed} by SIGKILL, web/app and pod web {right_after} right after",
        f"restarted meanwhile: web/app and pod web {before}, {_WEB + 1} refused by the pod: {at_pod}; "
        f"daemon {node.daemon.pid} connected, {_limits(app, pod.cgroup)} now",
    ]


def api_server_away(node: Node) -> list[str]:
    """Second SIGKILL, with the control plane away: what was last known holds; the unknown is said, then mended."""
    early = node.pods["early"]
    before_static = set(early.cgroup.parent.iterdir())
    node.relay.cut()
    until(lambda: (view := node.daemon.view()) is not None and view.api == "stale", "the API server is shown as away")
    killed = _kill(node)
    known = set(early.cgroup.iterdir())
    os.kill(int((early.containers["app"] / "cgroup.procs").read_text().split()[0]), signal.SIGKILL)
    app = _new(early.cgroup, known)
    node.kubelet.add_static("alone", json.dumps(manifest("alone", [container("app", "4Ki")])))
    alone = _new(early.cgroup.parent, before_static)
    until(lambda: len([one for one in alone.iterdir() if one.is_dir()]) == 2, "the static pod runs", 12.0)
    while_dead = limit(app)
    node.daemon.start("stale")
    until(lambda: limit(app) == str(_EARLY), "the restarted container is adopted by what was last known")
    until(lambda: node.daemon.state(f"alone-{NAME}", "app") == "unknown", "alone/app is shown as unknown")
    stranger = [
        CGROUPS / row.cgroup.lstrip("/") for row in [node.daemon.row(f"alone-{NAME}", "app")] if row is not None
    ]
    unknown = _limits(*stranger, alone)
    node.relay.mend()
    until(lambda: _limits(*stranger, alone) == _shown(_FIXED, _FIXED), "the static pod is held to its mirror's spec")
    node.daemon.enforced(f"alone-{NAME}", "", "app")
    return [
        f"API server away: daemon {killed} killed by SIGKILL, {node.daemon.pid} started without it; early/app, which "
        f"the kubelet restarted: {while_dead} while it was dead, {limit(app)} by what was last known",
        f"static pod without a mirror: alone/app and pod alone {unknown}, state unknown; with the API server back: "
        f"{_limits(*stranger, alone)}",
    ]


CASES: Final[Mapping[str, Callable[[Node], list[str]]]] = {
    case.__name__: case
    for case in (
        adopted_at_the_first_start,
        declared_by_the_spec_alone,
        refused_at_container_and_at_pod,
        init_and_sidecar,
        overhead_of_a_runtime_class,
        ephemeral_container,
        killed_while_a_container_restarts,
        api_server_away,
        webhook_is_installed,
        pod_of_intel,
        policies_are_installed,
        deployment_to_misc_max,
        chart_to_misc_max,
    )
}
