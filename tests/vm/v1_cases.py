"""What the daemon has to do on a hybrid node whose misc controller is mounted as cgroup v1; one node for all cases.

The guest is made such a node: a tmpfs at /sys/fs/cgroup, v1 hierarchies below it, cgroup v2 in `unified`. The guest's
kernel has no memory controller and no cpuset for cgroup v1. containerd and runc are those of the other chain.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.pages import of_page
from tests.vm import chain_node
from tests.vm.chain_node import Node
from tests.vm.inside import CGROUPS, EPC, KIB, RESOURCE, charge, limit, limits, named, refused, until

MISC: Final = CGROUPS / "misc"
PIDS: Final = CGROUPS / "pids"
_HIERARCHIES: Final = ("cpu,cpuacct", "pids", "devices", "freezer", "blkio")
_WEB: Final = 12 * KIB


def make_hybrid() -> None:
    """Cgroups as a hybrid host mounts them; before anything else runs."""
    _run("umount", str(CGROUPS))
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CGROUPS))
    for command in (of_page("limits.md", "mkdir -p /sys/fs/cgroup/misc"), of_page("limits.md", "mount -t cgroup")):
        _run(*shlex.split(command))
    for name in _HIERARCHIES:
        (CGROUPS / name).mkdir()
        _run("mount", "-t", "cgroup", "-o", name, "none", str(CGROUPS / name))
    for name, kind, options in (("systemd", "cgroup", "none,name=systemd"), ("unified", "cgroup2", "rw")):
        (CGROUPS / name).mkdir()
        _run("mount", "-t", kind, "-o", options, "none", str(CGROUPS / name))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def in_misc(cgroup: Path) -> Path:
    return MISC / cgroup.relative_to(CGROUPS)


def limits_in_the_v1_hierarchy(node: Node) -> None:
    """A pod known by its spec: containers start, though runc refuses unified values here, and their programs find their
    limits."""
    node.api.add("web", {"app": {EPC: "12Ki"}, "side": {}})
    own = "/host/misc$(/busybox sed -n 's/.*:misc://p' /proc/self/cgroup)/misc.max"
    pod = node.run_pod("web", ("app", "side"), first=f"/busybox cat {own}; echo read")
    app, side, whole = (in_misc(one) for one in (pod.containers["app"], pod.containers["side"], pod.cgroup))
    until(lambda: limits(app, side, whole) == [_WEB, 0, _WEB], "limits of web")
    node.daemon.enforced("web", "", "app", "side")
    assert (app / "cgroup.procs").read_text().split(), "runc has not joined the misc hierarchy"
    for name, amount in (("app", _WEB), ("side", 0)):
        assert f"{RESOURCE} {amount}" in node.read("web", name)
    view = node.daemon.view()
    assert view is not None
    assert (view.tree.version, view.tree.root, view.tree.members) == (1, str(MISC), str(PIDS))
    assert "cgroup v1" in node.daemon.ask("status")


def counts_and_refuses(node: Node) -> None:
    app = in_misc(node.pods["web"].containers["app"])
    held = charge(app, _WEB, root=MISC)
    refused(app, 1, root=MISC)
    until(lambda: node.daemon.resource("web", "app").refusals == 1, "the refusal is shown")
    until(lambda: node.daemon.resource("web", "app").usage == _WEB, "the use is shown")
    os.close(held)


def drift_is_repaired(node: Node) -> None:
    app = in_misc(node.pods["web"].containers["app"])
    (app / "misc.max").write_text(f"{RESOURCE} max")
    until(lambda: limit(app) == str(_WEB), "the limit is written again")
    node.daemon.enforced("web", "app")


def outside_is_told(node: Node) -> None:
    """A container whose process is taken out, as with a runtime that does not join misc, is not called enforced."""
    app = in_misc(node.pods["web"].containers["app"])
    pids = (app / "cgroup.procs").read_text().split()
    for pid in pids:
        (MISC / "cgroup.procs").write_text(pid)
    until(lambda: node.daemon.state("web", "app") == "outside", "web/app is shown as outside")
    for pid in pids:
        (app / "cgroup.procs").write_text(pid)
    node.daemon.enforced("web", "app")


def pod_without_a_cgroup_here(node: Node) -> None:
    """A pod that is in the other hierarchies only: its cgroups are made here, and go with it."""
    node.api.add("old", {"app": {EPC: "8Ki"}}, ids={"app": "c" * 64})
    places = [PIDS / node.containerd.cgroup_parent.lstrip("/") / "poduid-old"]
    places.append(places[0] / ("c" * 64))
    places[1].mkdir(parents=True)
    process = subprocess.Popen(["sleep", "1000"])
    (places[1] / "cgroup.procs").write_text(str(process.pid))
    app = MISC / places[1].relative_to(PIDS)
    until(lambda: limit(app) == str(8 * KIB), "old/app is found, and its cgroup made")
    until(lambda: node.daemon.state("old", "app") == "outside", "old/app is shown as outside")
    process.kill()
    process.wait()
    for place in reversed(places):
        place.rmdir()
    until(lambda: not app.parent.exists(), "what was made is removed", 10.0)


def uninstall_takes_back(node: Node) -> None:
    app = in_misc(node.pods["web"].containers["app"])
    node.daemon.replayed()
    node.daemon.uninstall()
    node.daemon.uninstall("--yes")
    assert limit(app) == limit(app.parent) == "max"


@contextmanager
def running_node() -> Iterator[Node]:
    make_hybrid()
    with chain_node.running_node() as node:
        node.memory_bytes = 0
        yield node


CASES: Final = named(
    limits_in_the_v1_hierarchy,
    counts_and_refuses,
    drift_is_repaired,
    outside_is_told,
    pod_without_a_cgroup_here,
    uninstall_takes_back,
)
