"""What the whole chain has to do, one function a case, in the order in which they run on the one node.

Later cases use the pods of earlier ones, as a node's life goes. Those of `limits.strict` and `limits.unknown_pod`, and
the steps of docs/webhook.md where two could own `misc.max`, have pods of their own and leave the settings as
they found them.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import grpc
import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nodeward.people.rows import NodeView
from tests.vm.chain_node import ANNOTATION, Node
from tests.vm.forked import NODEWARD
from tests.vm.guest import REPOSITORY
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, amount, charge, limit, limits, named, refused, until, without

_WEB: Final = 12 * KIB
_ORPHAN: Final = 8 * KIB
_LATER: Final = 4 * KIB
_WRITTEN: Final = ("misc.max", "cgroup.subtree_control")


def declared_in_the_api_server(node: Node) -> None:
    """No annotation: container, undeclared neighbour and pod have their limits; the containers' from birth."""
    node.api.add("web", {"app": {EPC: "12Ki"}, "side": {}})
    pod = node.run_pod("web", ("app", "side"))
    app, side = limit(pod.containers["app"]), limit(pod.containers["side"])
    assert (app, side) == (str(_WEB), "0")
    until(lambda: limit(pod.cgroup) == str(_WEB), "the pod's budget in the kernel")
    node.daemon.enforced("web", "", "app", "side")


def refusals(node: Node) -> None:
    """Above the container's limit and above the pod's budget the kernel refuses; `nodeward status` counts both."""
    pod = node.pods["web"]
    assert charge(pod.containers["app"], _WEB) > 0
    refused(pod.containers["app"], 1)
    until(lambda: node.daemon.resource("web", "app").refusals == 1, "the refusal is shown")
    assert limit(pod.sandbox) == "max", "the sandbox has no limit of its own, so only the pod's can refuse"
    refused(pod.sandbox, 1)
    until(lambda: node.daemon.resource("web").refusals == 2, "the refusals are shown")
    view = msgspec.json.decode(node.daemon.ask("status", "-o", "json"), type=NodeView)
    app, whole = node.daemon.resource("web", "app", view), node.daemon.resource("web", view=view)
    assert (app.usage, app.refusals, app.refusals_here) == (_WEB, 1, 1)
    assert (whole.usage, whole.refusals, whole.refusals_here) == (_WEB, 2, 1)


def _figures(pod: str) -> dict[str, float]:
    """What /metrics says of the pod's container, by name and scope; nothing while nobody answers. The parser calls
    every counter `..._total`."""
    try:
        with urlopen("http://127.0.0.1:9743/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
    except (URLError, ConnectionError):
        return {}
    named = {"pod": pod, "container": "app", "resource": RESOURCE}
    samples = [one for family in families for one in family.samples if named.items() <= one.labels.items()]
    return {f"{one.name.removesuffix('_total')} {one.labels.get('scope', '')}".strip(): one.value for one in samples}


def _by_the_kernel(app: Path) -> dict[str, float]:
    held, most, peak = (amount(app / f"misc.{name}", RESOURCE) for name in ("current", "max", "peak"))
    below, here = (amount(app / f"misc.{name}", f"{RESOURCE}.max") for name in ("events", "events.local"))
    return {
        "nodeward_misc_usage": held,
        "nodeward_misc_limit": most,
        "nodeward_misc_limited": 1,
        "nodeward_misc_peak": peak,
        "nodeward_misc_refusals subtree": below,
        "nodeward_misc_refusals local": here,
        "container_misc_usage": held,
        "container_misc_events": below,
    }


def exporter_alone(node: Node) -> None:
    """With the settings that ship, and no capability, it shows what the kernel's files say; a limit that somebody has
    changed it shows too, and writes nothing, though these files are its user's."""
    node.api.add("shown", {"app": {EPC: "8Ki"}})
    app = replace(node, parent="/kubepods").run_pod("shown", ("app",)).containers["app"]
    charge(app, _ORPHAN)
    refused(app, 1)
    assert node.daemon.end(signal.SIGTERM) == 0
    node.api.add("shown", {"app": {EPC: "8Ki"}}, ids={"app": app.name})
    with _exporter(node.api.url) as exporter:
        until(lambda: _by_the_kernel(app).items() <= _figures("shown").items(), "it says what the kernel says")
        (app / "misc.max").write_text(f"{RESOURCE} {_LATER}")
        written = {path: path.read_text() for name in _WRITTEN for path in CGROUPS.rglob(name)}
        until(lambda: _figures("shown")["nodeward_misc_limit"] == _LATER, "it shows what somebody wrote")
        assert {path: path.read_text() for path in written} == written
    assert exporter.returncode == 0
    node.daemon.start()
    until(lambda: limit(app) == str(_ORPHAN), "the daemon repairs it")


@contextmanager
def _exporter(url: str) -> Iterator[subprocess.Popen[bytes]]:
    settings = yaml.safe_load((REPOSITORY / "deploy/exporter/settings.yaml").read_text())["data"]["nodeward.yaml"]
    Path("/run/exporter.yaml").write_text(settings)
    tree = Path("/host/sys/fs/cgroup")
    tree.mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(CGROUPS), str(tree)], check=True, timeout=60)
    command = ["setpriv", "--pdeathsig", "KILL", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", NODEWARD]
    command += ["node", "--config", "/run/exporter.yaml", "--set", f"kube.url={url}"]
    process = subprocess.Popen(command, env={**os.environ, "NODE_NAME": "guest"})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run(["umount", str(tree)], check=True, timeout=60)


def lost_by_the_runtime(node: Node) -> None:
    """A pod of which no event tells: its cgroups and its status are enough for `+misc`, its limit and its budget."""
    app_id, pause_id = "a" * 64, "b" * 64
    pod = CGROUPS / node.containerd.cgroup_parent.lstrip("/") / "poduid-lost"
    app, pause = pod / app_id, pod / pause_id
    for cgroup in (app, pause):
        cgroup.mkdir(parents=True)
    held = limit(app)
    assert held == "", "nobody has switched the controller on here"
    until(lambda: node.daemon.view() is not None and limit(app) == "max", "+misc, though the pod is not known yet")
    node.api.add("lost", {"app": {EPC: "8Ki"}}, ids={"app": app_id})
    until(lambda: limits(app, pod) == [_ORPHAN, _ORPHAN], "limit and budget of the lost container")
    node.daemon.enforced("lost", "", "app")
    until(lambda: limit(pause) == "max", "what holds the sandbox has no limit")
    refused(app, _ORPHAN + 1)
    found = node.daemon.row("lost", "app")
    assert found is not None
    assert found.id == app_id
    for cgroup in (app, pause, pod):
        cgroup.rmdir()
    until(lambda: node.daemon.row("lost") is None, "the lost pod has ended with its cgroup")


def drift_is_repaired(node: Node) -> None:
    """Someone writes misc.max by hand; the daemon writes it back and says so, `nodeward explain` too."""
    app = node.pods["web"].containers["app"]
    (app / "misc.max").write_text(f"{RESOURCE} 99999")
    until(lambda: limit(app) == str(_WEB), "the limit is repaired")
    until(lambda: (row := node.daemon.row("web", "app")) is not None and row.repairs > 0, "the repair is shown")
    node.daemon.enforced("web", "app")
    lines = node.daemon.ask("explain", "default/web/app").splitlines()
    assert any(line.startswith("  Repaired ") for line in lines), lines


def controller_is_switched_on_again(node: Node) -> None:
    """Someone takes the controller from the whole tree, and all limits with it; the daemon brings both back."""
    pod = node.pods["web"]
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    with node.daemon.stopped():  # it would be faster
        _switch_off()
        assert limits(*cgroups) == ["", "", ""]
    until(lambda: limits(*cgroups) == [_WEB, 0, _WEB], "controller and limits are back")
    node.daemon.enforced("web", "", "app", "side")


def _switch_off() -> None:
    """Takes misc from every cgroup that gives it to those below, from the bottom up."""
    files = [*CGROUPS.rglob("cgroup.subtree_control"), CGROUPS / "cgroup.subtree_control"]
    giving = [path for path in files if "misc" in path.read_text().split()]
    for path in sorted(giving, key=lambda one: len(one.parts), reverse=True):
        path.write_text("-misc")


def adopted_after_a_kill(node: Node) -> None:
    """What was started while the daemon was dead gets its limits when it is back; what was there keeps its own."""
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert node.daemon.view() is None
    node.api.add("orphan", {"app": {EPC: "8Ki"}, "side": {}})
    pod = node.run_pod("orphan", ("app", "side"))
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    wanted = [_ORPHAN, 0, _ORPHAN]
    before = limits(*cgroups)
    assert not set(wanted) & set(before), before
    web = node.pods["web"]
    assert limit(web.containers["app"]) == str(_WEB), "a limit outlives the daemon"
    node.daemon.start()
    until(lambda: limits(*cgroups) == wanted, "the orphans are adopted")
    for name in ("web", "orphan"):
        node.daemon.enforced(name, "app")
    assert limit(web.containers["app"]) == str(_WEB)


def updated_by_the_runtime(node: Node) -> None:
    """The kubelet changes a container's CPU: the runtime writes the cgroup anew, and the limit is as it was at once."""
    for name, epc in (("web", _WEB), ("orphan", _ORPHAN)):
        app = node.pods[name].containers["app"]
        before = (app / "cpu.weight").read_text()
        node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": {"cpu_shares": 512}})
        assert (app / "cpu.weight").read_text() != before
        assert limit(app) == str(epc)


def runtime_restarted(node: Node) -> None:
    """containerd ends and comes back: containers keep their limits, and the next one has its own from birth."""
    web = node.pods["web"]
    node.containerd.stop()
    until(lambda: node.daemon.runtime() == "", "the runtime is shown as away")
    away = limit(web.containers["app"])
    node.containerd.start()
    until(lambda: node.daemon.runtime().startswith("containerd"), "the daemon has found the runtime again")
    assert [away, *limits(web.containers["app"], web.cgroup)] == [str(_WEB), _WEB, _WEB]
    node.api.add("later", {"app": {EPC: "4Ki"}})
    later = node.run_pod("later", ("app",)).containers["app"]
    assert limit(later) == str(_LATER)
    node.daemon.enforced("web", "", "app", "side")


def replayed(node: Node) -> None:
    """The records of both daemons, the killed one and the one that ended well, are decided again, byte for byte."""
    node.daemon.replayed()


def uninstalled(node: Node) -> None:
    """`nodeward uninstall` takes back what the daemon has changed for good: it had switched the controller on."""
    app = node.pods["web"].containers["app"]
    would = node.daemon.uninstall()
    assert "would switch the misc controller off again below /" in would, would
    assert limit(app) == str(_WEB), "to ask changes nothing"
    node.daemon.uninstall("--yes")
    assert not list(CGROUPS.rglob("misc.max"))
    assert "misc" not in (CGROUPS / "cgroup.subtree_control").read_text().split()
    assert (app / "cgroup.procs").read_text().split(), "the container does not run any more"
    (after,) = node.daemon.uninstall()
    assert after.startswith("nothing to take back"), after


_KNOWN = 4 * KIB


def strict_denies_the_undeclared(node: Node) -> None:
    """A pod that declares nothing gets 0 from birth under `strict`, and is let go when strictness ends."""
    node.daemon.settle(strict="true")
    node.api.add("plain", {"app": {}})
    pod = node.run_pod("plain", ("app",))
    app = pod.containers["app"]
    assert limit(app) == "0"
    refused(app, 1)
    until(lambda: limit(pod.cgroup) == "0", "the pod's budget is 0 too")
    node.daemon.enforced("plain", "", "app")
    assert "limits.strict is on" in node.daemon.ask("explain", "default/plain/app")
    web = limit(node.pods["web"].containers["app"])
    assert web not in ("0", "max"), "what was declared stays"
    node.daemon.settle(strict="false")
    until(lambda: (limit(app), limit(pod.cgroup)) == ("max", "max"), "plain is let go")
    os.close(charge(app, 1))


def unknown_gets_zero_until_it_is_known(node: Node) -> None:
    """No annotation, and an API server that knows no such pod: 0 from birth, mended when the pod arrives there."""
    node.daemon.settle(unknown_pod="zero")
    pod = node.run_pod("stranger", ("app",))
    app = pod.containers["app"]
    assert limit(app) == "0"
    refused(app, 1)
    until(lambda: node.daemon.state("stranger", "app") == "unknown", "stranger/app is shown as unknown")
    assert "limits.unknown_pod is zero" in node.daemon.ask("explain", "default/stranger/app")
    node.api.add("stranger", {"app": {EPC: "4Ki"}})
    until(lambda: limits(app, pod.cgroup) == [_KNOWN] * 2, "its own limit and its pod's budget")
    node.daemon.enforced("stranger", "", "app")
    os.close(charge(app, _KNOWN))
    refused(app, _KNOWN + 1)


def unknown_is_refused_until_it_is_known(node: Node) -> None:
    """The runtime says why, nothing of the container is left, and once the pod is known the same create succeeds."""
    node.daemon.settle(unknown_pod="refuse")
    pod = node.run_pod("foreign", ())
    words = "default/foreign, container app: nobody knows this pod, and limits.unknown_pod is refuse."
    with pytest.raises(grpc.RpcError, match=re.escape(words)):
        node.add_container(pod, "app")
    left = [one.name for one in pod.cgroup.iterdir() if one.is_dir()]
    assert left == [pod.sandbox.name], left
    until(lambda: node.daemon.row("foreign", "app") is None, "no row of it is left")
    node.api.add("foreign", {"app": {EPC: "4Ki"}})
    until(lambda: limit(pod.cgroup) == str(_KNOWN), "the pod is known")
    app = node.add_container(pod, "app")
    assert limit(app) == str(_KNOWN)
    node.daemon.settle(unknown_pod="unlimited")


_OWNED: Final = 8 * KIB


def _start_sgx_epc(node: Node) -> None:
    """The other plugin, registered, in a process of its own."""
    before = node.containerd.synchronized("40-sgx-epc")
    line = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.vm.sgx_epc", str(node.containerd.nri_socket)]
    node.other = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert node.other.stdout is not None
    assert node.other.stdout.readline() == "ready\n"
    until(lambda: node.containerd.synchronized("40-sgx-epc") > before, "containerd calls sgx-epc")


def _end_sgx_epc(node: Node) -> None:
    assert node.other is not None
    node.other.kill()
    node.other.wait(60)
    node.other = None


def two_owners_fail_every_create(node: Node) -> None:
    """Both set misc.max for one container: NRI refuses it. doctor finds the other one."""
    node.api.add("owned", {"app": {EPC: "8Ki"}})
    _start_sgx_epc(node)
    words = 'plugins "90-nodeward" and "40-sgx-epc" both tried to set CgroupsUnified misc.max'
    with pytest.raises(grpc.RpcError, match=words):
        node.run_pod("owned", ("app",), {ANNOTATION: str(_OWNED)})
    found = [one for one in node.daemon.findings() if one.code == "sgx-epc"]
    assert [one.severity for one in found] == ["error"], found


def over_to_nodeward(node: Node) -> None:
    """From sgx-epc: look in observe beside it, end it, enforce. The pod that runs is adopted, with its budget."""
    node.daemon.settle(mode="observe")
    node.api.add("moved", {"app": {EPC: "8Ki"}, "later": {EPC: "4Ki"}})
    pod = node.run_pod("moved", ("app", "later"), {ANNOTATION: str(_OWNED)})
    app, later = pod.containers["app"], pod.containers["later"]
    until(lambda: node.daemon.state("moved", "app") == "unmanaged", "moved/app is looked at only")
    assert limits(app, later, pod.cgroup) == [_OWNED, "max", "max"]
    _end_sgx_epc(node)
    assert limits(app) == [_OWNED], "the limit stays when its writer ends"
    node.daemon.settle(mode="enforce")
    until(lambda: limits(app, later, pod.cgroup) == [_OWNED, 4 * KIB, 12 * KIB], "moved is adopted")
    node.daemon.enforced("moved", "", "app", "later")


def and_back(node: Node) -> None:
    """To sgx-epc: observe, then start it. What runs keeps its limits; what comes has its annotation's."""
    pod = node.pods["moved"]
    cgroups = (*pod.containers.values(), pod.cgroup)
    kept = limits(*cgroups)
    node.daemon.settle(mode="observe")
    _start_sgx_epc(node)
    node.api.add("returned", {"app": {EPC: "8Ki"}})
    app = node.run_pod("returned", ("app",), {ANNOTATION: str(_OWNED)}).containers["app"]
    assert (limits(*cgroups), limits(app)) == (kept, [_OWNED])
    _end_sgx_epc(node)
    node.daemon.settle(mode="enforce")


_RARE: Final = (
    runtime_restarted,
    strict_denies_the_undeclared,
    unknown_gets_zero_until_it_is_known,
    unknown_is_refused_until_it_is_known,
    two_owners_fail_every_create,
    over_to_nodeward,
    and_back,
    exporter_alone,
)
MORE: Final = named(
    declared_in_the_api_server,
    refusals,
    lost_by_the_runtime,
    drift_is_repaired,
    controller_is_switched_on_again,
    adopted_after_a_kill,
    updated_by_the_runtime,
    *_RARE,
    replayed,
    uninstalled,
)
CASES: Final = without(MORE, *_RARE)
