"""What the whole chain has to do, one function a case, in the order in which they run on the one node.

Later cases use the pods of earlier ones, as a node's life goes. A case returns the lines that it wants to be seen.
"""

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from nodeward.model.view import NodeView
from nodeward.wire import misc_files
from tests.peers.containerd import IMAGE
from tests.vm.chain_node import KEYS, Node
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, charge, limit, refused, until
from tests.vm.migration_cases import and_back, over_to_nodeward, two_owners_fail_every_create
from tests.vm.undeclared_cases import (
    strict_denies_the_undeclared,
    unknown_gets_zero_until_it_is_known,
    unknown_is_refused_until_it_is_known,
)

ANNOTATION: Final = "epc-limit.nri.io/container.app"
_WEB: Final = 12 * KIB
_ORPHAN: Final = 8 * KIB
_LATER: Final = 4 * KIB


def declared_in_the_api_server(node: Node) -> list[str]:
    """No annotation: container, undeclared neighbour and pod have their limits; the containers' from birth."""
    node.api.add("web", {"app": {EPC: "12Ki"}, "side": {}})
    pod = node.run_pod("web", ("app", "side"))
    app, side = limit(pod.containers["app"]), limit(pod.containers["side"])
    assert (app, side) == (str(_WEB), "0")
    until(lambda: limit(pod.cgroup) == str(_WEB), "the pod's budget in the kernel")
    node.daemon.enforced("web", "", "app", "side")
    return [
        f"limit in the kernel, as started: web/app {RESOURCE} {app}, web/side {RESOURCE} {side}, "
        f"pod web {RESOURCE} {limit(pod.cgroup)}"
    ]


def annotation_only(node: Node) -> list[str]:
    """The API server knows no such pod: upstream's annotation is what the container is held to, and is said so."""
    pod = node.run_pod("noted", ("app",), {ANNOTATION: "4096"})
    app = pod.containers["app"]
    until(lambda: limit(app) == "4096", "noted/app is held to its annotation")
    node.daemon.enforced("noted", "app")
    row = node.daemon.row("noted", "app")
    assert row is not None
    assert row.source == f"annotation {ANNOTATION}"
    held = charge(app, 4096)
    assert held > 0
    return [f"annotation only: noted/app {row.state}, {row.source}, {RESOURCE} {limit(app)}, more: {refused(app, 1)}"]


def kernel_lacks_the_resource(node: Node) -> list[str]:
    """A declared resource that this kernel does not have: the container starts, is `unsupported`, and `nodeward
    explain` says why."""
    node.api.add("keyed", {"app": {KEYS: "1"}})
    pod = node.run_pod("keyed", ("app",))
    until(lambda: node.daemon.state("keyed", "app") == "unsupported", "keyed/app is shown as unsupported")
    row = node.daemon.row("keyed", "app")
    assert row is not None
    assert [one.wanted for one in row.resources if one.resource == "tdx"] == [1]
    assert (pod.containers["app"] / "cgroup.procs").read_text().split(), "the container does not run"
    lines = node.daemon.ask("explain", "default/keyed/app").splitlines()
    assert lines[0] == "container default/keyed/app: unsupported", lines
    assert any("tdx: 1 is wanted" in line for line in lines), lines
    assert any("State: This kernel has no such resource" in line for line in lines), lines
    return [
        f"no such resource in this kernel: keyed/app wants 1 tdx, runs, state {row.state}",
        *(f"explain: {line}" for line in lines),
    ]


def refusals(node: Node) -> list[str]:
    """Above the container's limit and above the pod's budget the kernel refuses; `nodeward status` counts both."""
    pod = node.pods["web"]
    held = charge(pod.containers["app"], _WEB)
    assert held > 0
    at_container = refused(pod.containers["app"], 1)
    took_ms = _until_shown(node, "web", "app")
    assert limit(pod.sandbox) == "max", "the sandbox has no limit of its own, so only the pod's can refuse"
    at_pod = refused(pod.sandbox, 1)
    until(lambda: node.daemon.resource("web").refusals == 2, "the refusals are shown")
    view = msgspec.json.decode(node.daemon.ask("status", "-o", "json"), type=NodeView)
    app, whole = node.daemon.resource("web", "app", view), node.daemon.resource("web", view=view)
    assert (app.usage, app.refusals, app.refusals_here) == (_WEB, 1, 1)
    assert (whole.usage, whole.refusals, whole.refusals_here) == (_WEB, 2, 1)
    return [
        f"refused by the container's limit: web/app holds {_WEB} of {_WEB}, 1 more: {at_container}",
        f"refused by the pod's budget: sandbox of web (no limit of its own) takes 1: {at_pod}",
        f"the daemon's socket tells of the first refusal {took_ms} ms later, with a reading once a second",
        f"nodeward status: web/app refusals {app.refusals}, here {app.refusals_here}; "
        f"pod web refusals {whole.refusals}, here {whole.refusals_here}",
    ]


def scraped(node: Node) -> list[str]:
    """What /metrics says of that container is what the kernel's files say."""
    with urlopen("http://127.0.0.1:9743/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    whose = {"pod": "web", "container": "app", "resource": RESOURCE}
    found = {  # the parser calls every counter `..._total`
        one.name.removesuffix("_total"): one.value for one in samples if whose.items() <= one.labels.items()
    }
    app = node.pods["web"].containers["app"]
    held = misc_files.parse((app / "misc.current").read_bytes())[RESOURCE]
    shown = {
        "nodeward_misc_usage": held,
        "nodeward_misc_limit": float(limit(app)),
        "nodeward_misc_refusals": 1.0,
        "container_misc_usage": held,
        "container_misc_events": 1.0,
    }
    assert shown.items() <= found.items(), found
    alike = [one for one in samples if one.name.startswith("container_misc_") and whose.items() <= one.labels.items()]
    named = {"id": f"/{app.relative_to(CGROUPS)}", "image": IMAGE, "name": app.name}
    assert [one.labels for one in alike] == [{**whose, **named, "namespace": "default"}] * 2, alike
    return [f"/metrics of web/app: {shown}; misc.current of its cgroup: {held}; cAdvisor's labels: {named}"]


def _until_shown(node: Node, pod: str, container: str) -> int:
    """How long it takes until the daemon shows a refusal, in milliseconds; the daemon's own answer is part of it."""
    begin = time.monotonic()
    until(lambda: node.daemon.resource(pod, container).refusals == 1, "the refusal is shown")
    return round((time.monotonic() - begin) * 1000)


def lost_by_the_runtime(node: Node) -> list[str]:
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
    until(lambda: _limits(app, pod) == [str(_ORPHAN), str(_ORPHAN)], "limit and budget of the lost container")
    node.daemon.enforced("lost", "", "app")
    until(lambda: limit(pause) == "max", "what holds the sandbox has no limit")
    above = refused(app, _ORPHAN + 1)
    found = node.daemon.row("lost", "app")
    assert found is not None
    assert found.id == app_id
    for cgroup in (app, pause, pod):
        cgroup.rmdir()
    until(lambda: node.daemon.row("lost") is None, "the lost pod has ended with its cgroup")
    return [f"lost: lost/app known by cgroup and status, {RESOURCE} {_ORPHAN} and refused above it: {above}"]


def drift_is_repaired(node: Node) -> list[str]:
    """Someone writes misc.max by hand; the daemon writes it back and says so, `nodeward explain` too."""
    app = node.pods["web"].containers["app"]
    (app / "misc.max").write_text(f"{RESOURCE} 99999")
    until(lambda: limit(app) == str(_WEB), "the limit is repaired")
    until(lambda: (row := node.daemon.row("web", "app")) is not None and row.repairs > 0, "the repair is shown")
    node.daemon.enforced("web", "app")
    lines = node.daemon.ask("explain", "default/web/app").splitlines()
    assert any(line.startswith("  Repaired ") for line in lines), lines
    return [
        f"repair: web/app written to {RESOURCE} 99999 by hand, {RESOURCE} {limit(app)} again",
        *(f"explain: {line}" for line in lines),
    ]


def controller_is_switched_on_again(node: Node) -> list[str]:
    """Someone takes the controller from the whole tree, and all limits with it; the daemon brings both back."""
    pod = node.pods["web"]
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    with node.daemon.stopped():  # it would be faster
        switched_off = _switch_off()
        assert _limits(*cgroups) == ["", "", ""]
    until(lambda: _limits(*cgroups) == _shown(_WEB, 0, _WEB), "controller and limits are back")
    node.daemon.enforced("web", "", "app", "side")
    return [f"controller: misc switched off by hand in {switched_off} cgroups, web {_limits(*cgroups)} again"]


def _switch_off() -> int:
    """Takes misc from every cgroup that gives it to those below, from the bottom up; how many they were."""
    files = [*CGROUPS.rglob("cgroup.subtree_control"), CGROUPS / "cgroup.subtree_control"]
    giving = [path for path in files if "misc" in path.read_text().split()]
    for path in sorted(giving, key=lambda one: len(one.parts), reverse=True):
        path.write_text("-misc")
    return len(giving)


def adopted_after_a_kill(node: Node) -> list[str]:
    """What was started while the daemon was dead gets its limits when it is back; what was there keeps its own."""
    killed = node.daemon.pid
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert node.daemon.view() is None
    node.api.add("orphan", {"app": {EPC: "8Ki"}, "side": {}})
    pod = node.run_pod("orphan", ("app", "side"))
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    wanted = [str(_ORPHAN), "0", str(_ORPHAN)]
    before = _limits(*cgroups)
    assert not set(wanted) & set(before), before
    web = node.pods["web"]
    assert limit(web.containers["app"]) == str(_WEB), "a limit outlives the daemon"
    took = node.daemon.start()
    until(lambda: _limits(*cgroups) == wanted, "the orphans are adopted")
    for name in ("web", "orphan"):
        node.daemon.enforced(name, "app")
    assert limit(web.containers["app"]) == str(_WEB)
    return [
        f"restart: daemon {killed} killed by SIGKILL, daemon {node.daemon.pid} connected after {took}, "
        f"web/app {_WEB} throughout",
        f"adoption: orphan/app, orphan/side, pod orphan: {before} while it was dead, {_limits(*cgroups)} now",
    ]


def updated_by_the_runtime(node: Node) -> list[str]:
    """The kubelet changes a container's CPU: the runtime writes the cgroup anew, and the limit is as it was at once."""
    said: list[str] = []
    for name, epc in (("web", _WEB), ("orphan", _ORPHAN)):
        app = node.pods[name].containers["app"]
        before = (app / "cpu.weight").read_text()
        node.cri.call("UpdateContainerResources", {"container_id": app.name, "linux": {"cpu_shares": 512}})
        weight = (app / "cpu.weight").read_text()
        assert weight != before
        assert limit(app) == str(epc)
        said.append(f"{name}/app cpu.weight {before.strip()} to {weight.strip()}, {RESOURCE} {limit(app)}")
    return [f"updated by CRI: {line}" for line in said]


def runtime_restarted(node: Node) -> list[str]:
    """containerd ends and comes back: containers keep their limits, and the next one has its own from birth."""
    web = node.pods["web"]
    node.containerd.stop()
    until(lambda: node.daemon.runtime() == "", "the runtime is shown as away")
    away = limit(web.containers["app"])
    node.containerd.start()
    until(lambda: node.daemon.runtime().startswith("containerd"), "the daemon has found the runtime again")
    assert (away, limit(web.containers["app"]), limit(web.cgroup)) == tuple(_shown(_WEB, _WEB, _WEB))
    node.api.add("later", {"app": {EPC: "4Ki"}})
    later = node.run_pod("later", ("app",)).containers["app"]
    assert limit(later) == str(_LATER)
    node.daemon.enforced("web", "", "app", "side")
    return [
        f"containerd restarted: web/app {away} meanwhile, {limit(web.containers['app'])} now; later/app {limit(later)}"
    ]


def explained(node: Node) -> list[str]:
    """`nodeward explain` says how a container stands and why."""
    for name in ("web", "orphan"):
        node.daemon.enforced(name, "app")
    lines = node.daemon.ask("explain", "default/orphan/app").splitlines()
    assert lines[0] == "container default/orphan/app: enforced", lines
    assert any(f"{_ORPHAN} is wanted, the kernel's limit is {_ORPHAN}" in line for line in lines), lines
    assert any("The container declares this limit." in line for line in lines), lines
    return [f"explain: {line}" for line in lines]


def replayed(node: Node) -> list[str]:
    """The records of both daemons, the killed one and the one that ended well, are decided again, byte for byte."""
    return node.daemon.replayed()


def uninstalled(node: Node) -> list[str]:
    """`nodeward uninstall` takes back what the daemon has changed for good: it had switched the controller on."""
    app = node.pods["web"].containers["app"]
    would = node.daemon.uninstall()
    assert "would switch the misc controller off again below /" in would, would
    assert limit(app) == str(_WEB), "to ask changes nothing"
    done = node.daemon.uninstall("--yes")
    assert not list(CGROUPS.rglob("misc.max"))
    assert "misc" not in (CGROUPS / "cgroup.subtree_control").read_text().split()
    assert (app / "cgroup.procs").read_text().split(), "the container does not run any more"
    (after,) = node.daemon.uninstall()
    assert after.startswith("nothing to take back"), after
    return [f"uninstall: {line}" for line in (*would, *done)]


def _shown(*amounts: int) -> list[str]:
    return [str(amount) for amount in amounts]


def _limits(*cgroups: Path) -> list[str]:
    return [limit(cgroup) for cgroup in cgroups]


CASES: Final[Mapping[str, Callable[[Node], list[str]]]] = {
    case.__name__: case
    for case in (
        declared_in_the_api_server,
        annotation_only,
        kernel_lacks_the_resource,
        refusals,
        scraped,
        lost_by_the_runtime,
        drift_is_repaired,
        controller_is_switched_on_again,
        adopted_after_a_kill,
        updated_by_the_runtime,
        runtime_restarted,
        explained,
        strict_denies_the_undeclared,
        unknown_gets_zero_until_it_is_known,
        unknown_is_refused_until_it_is_known,
        two_owners_fail_every_create,
        over_to_nodeward,
        and_back,
        replayed,
        uninstalled,
    )
}
