"""What the whole chain has to do, one function a case, in the order in which they run on the one node.

Later cases use the pods of earlier ones, as a node's life goes. A case returns the lines that it wants to be seen.
"""

import errno
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from nodeward.model.view import NodeView, ResourceRow
from tests.vm.chain_node import RESOURCE, Node, charge, limit, until

ANNOTATION: Final = "epc-limit.nri.io/container.app"


def _resource(node: Node, view: NodeView, pod: str, container: str = "") -> ResourceRow:
    row = node.row(pod, container, view)
    assert row is not None, f"no row of {pod}/{container}"
    return next(one for one in row.resources if one.resource == RESOURCE)


def _enforced(node: Node, pod: str, container: str) -> None:
    until(lambda: node.state(pod, container) == "enforced", f"{pod}/{container or '(pod)'} is shown as enforced")


def _refused(cgroup: Path, amount: int) -> str:
    try:
        charge(cgroup, amount)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return f"EBUSY ({error.strerror})"
    raise AssertionError(f"the kernel let {cgroup} take {amount}")


def declared_in_the_api_server(node: Node) -> list[str]:
    """No annotation: container, undeclared neighbour and pod have their limits; the containers' from birth."""
    node.api.add("web", {"app": 3, "side": None})
    pod = node.run_pod("web", ("app", "side"))
    app, side = limit(pod.containers["app"]), limit(pod.containers["side"])
    assert (app, side) == ("3", "0")
    until(lambda: limit(pod.cgroup) == "3", "the pod's budget in the kernel")
    for container in ("", "app", "side"):
        _enforced(node, "web", container)
    return [f"limit in the kernel, as started: web/app sev {app}, web/side sev {side}, pod web sev {limit(pod.cgroup)}"]


def annotation_only(node: Node) -> list[str]:
    """An upstream annotation means sgx_epc, which this kernel lacks: the container starts and is `unsupported`."""
    pod = node.run_pod("noted", ("app",), {ANNOTATION: "4096"})
    until(lambda: node.state("noted", "app") == "unsupported", "noted/app is shown as unsupported")
    row = node.row("noted", "app")
    assert row is not None
    assert row.source == f"annotation {ANNOTATION}"
    assert [one.wanted for one in row.resources if one.resource == "sgx_epc"] == [4096]
    assert limit(pod.containers["app"]) == "max"
    assert (pod.containers["app"] / "cgroup.procs").read_text().split(), "the container does not run"
    return [f"annotation only: noted/app runs, state {row.state}, {row.source}, sev max in the kernel"]


def refusals(node: Node) -> list[str]:
    """Above the container's limit and above the pod's budget the kernel refuses; `nodeward status` counts both."""
    pod = node.pods["web"]
    held = charge(pod.containers["app"], 3)
    assert held > 0
    at_container = _refused(pod.containers["app"], 1)
    assert limit(pod.sandbox) == "max", "the sandbox has no limit of its own, so only the pod's can refuse"
    at_pod = _refused(pod.sandbox, 1)

    def counted() -> bool:
        view = node.daemon.view()
        return view is not None and _resource(node, view, "web").refusals == 2

    until(counted, "the refusals are shown")
    view = msgspec.json.decode(node.daemon.ask("status", "-o", "json"), type=NodeView)
    app, whole = _resource(node, view, "web", "app"), _resource(node, view, "web")
    assert (app.usage, app.refusals, app.refusals_here) == (3, 1, 1)
    assert (whole.usage, whole.refusals, whole.refusals_here) == (3, 2, 1)
    return [
        f"refused by the container's limit: web/app holds 3 of 3, 1 more: {at_container}",
        f"refused by the pod's budget: sandbox of web (no limit of its own) takes 1: {at_pod}",
        f"nodeward status: web/app refusals {app.refusals}, here {app.refusals_here}; "
        f"pod web refusals {whole.refusals}, here {whole.refusals_here}",
    ]


def drift_is_repaired(node: Node) -> list[str]:
    """Someone writes misc.max by hand; the daemon writes it back and says so."""
    app = node.pods["web"].containers["app"]
    (app / "misc.max").write_text(f"{RESOURCE} 7")
    until(lambda: limit(app) == "3", "the limit is repaired")
    until(lambda: (row := node.row("web", "app")) is not None and row.repairs > 0, "the repair is shown")
    _enforced(node, "web", "app")
    return [f"repair: web/app written to sev 7 by hand, sev {limit(app)} again"]


def adopted_after_a_kill(node: Node) -> list[str]:
    """What was started while the daemon was dead gets its limits when it is back; what was there keeps its own."""
    killed = node.daemon.pid
    assert node.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert node.daemon.view() is None
    node.daemon.record.rename(node.daemon.killed_record)  # the next one begins its own there
    node.api.add("orphan", {"app": 2, "side": None})
    pod = node.run_pod("orphan", ("app", "side"))
    cgroups = (pod.containers["app"], pod.containers["side"], pod.cgroup)
    before = [limit(cgroup) for cgroup in cgroups]
    assert not {"2", "0"} & set(before), before
    web = node.pods["web"]
    assert limit(web.containers["app"]) == "3", "a limit outlives the daemon"
    node.daemon.start()
    until(lambda: [limit(cgroup) for cgroup in cgroups] == ["2", "0", "2"], "the orphans are adopted")
    for name in ("web", "orphan"):
        _enforced(node, name, "app")
    assert limit(web.containers["app"]) == "3"
    after = [limit(cgroup) for cgroup in cgroups]
    return [
        f"restart: daemon {killed} killed by SIGKILL, daemon {node.daemon.pid} connected, web/app sev 3 throughout",
        f"adoption: orphan/app, orphan/side, pod orphan: sev {before} while it was dead, sev {after} now",
    ]


def explained(node: Node) -> list[str]:
    """`nodeward explain` says how a container stands and why."""
    for name in ("web", "orphan"):
        _enforced(node, name, "app")
    lines = node.daemon.ask("explain", "default/orphan/app").splitlines()
    assert lines[0] == "container default/orphan/app: enforced", lines
    assert any("2 is wanted, the kernel's limit is 2" in line for line in lines), lines
    assert any("The container declares this limit." in line for line in lines), lines
    return [f"explain: {line}" for line in lines]


def replayed(node: Node) -> list[str]:
    """The records of both daemons, the killed one and the one that ended well, are decided again, byte for byte."""
    status = node.daemon.end(signal.SIGTERM)
    assert status == 0, f"status {status} at SIGTERM"
    lines: list[str] = []
    for record in (node.daemon.killed_record, node.daemon.record):
        said = node.daemon.ask("replay", str(record)).splitlines()
        assert said[-1] == "every decision is the same, byte for byte", said
        assert " 0 event(s)" not in said[0], said
        lines += [f"replay: {line}" for line in said]
    return lines


CASES: Final[Mapping[str, Callable[[Node], list[str]]]] = {
    case.__name__: case
    for case in (
        declared_in_the_api_server,
        annotation_only,
        refusals,
        drift_is_repaired,
        adopted_after_a_kill,
        explained,
        replayed,
    )
}
