"""CRI-O with the hook of the bundle: the file of `hooks.d` is the one that podman's cases have put there. It runs from
the first case to the last, and in between the daemon is killed."""

import os

from nodeward.model.settings import LimitsSettings, OnError, UnknownPod
from tests.vm.crio import NEW, OLD
from tests.vm.hook_node import LEFT, HookNode, rule_of
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limit, refused, until

_LATER = "crio-later"


def crio_by_the_daemon(node: HookNode) -> list[str]:
    """The daemon's answer is there when the program starts, by both runcs; the sandbox has none."""
    node.crio.start()
    _known(node, _LATER)
    lines = list[str]()
    for runtime in (OLD, NEW):
        pod = f"crio-{runtime}"
        _known(node, pod)
        made = node.crio.make(pod, runtime)
        assert made.first == f"{RESOURCE} {8 * KIB}", (made, node.log())
        os.close(charge(made.cgroup, 8 * KIB))
        why = refused(made.cgroup, 9 * KIB)
        node.daemon.enforced(pod, "app", "")
        assert limit(made.cgroup.parent) == str(8 * KIB), "the pod's budget"
        assert limit(made.sandbox) == "max", "what holds the sandbox"
        lines.append(
            f"{node.crio.named(runtime)}, hooks.d, daemon: first line of the container's log {made.first!r}; a charge "
            f"of 9 KiB is refused: {why}; {pod}/app {node.daemon.state(pod, 'app')}"
        )
    return lines


def _known(node: HookNode, pod: str) -> None:
    node.api.add(pod, {"app": {EPC: "8Ki"}})
    until((LEFT / f"pods/uid-{pod}.json").exists, "the daemon has left the pod's file")


def crio_by_the_file(node: HookNode) -> list[str]:
    """The daemon was killed before this pod had a container; what it left for the pod counts."""
    made = node.crio.make(_LATER, NEW)
    assert made.first == f"{RESOURCE} {8 * KIB}", made
    return [f"{node.crio.named(NEW)}, daemon killed, pod's file: first line of the container's log {made.first!r}"]


def crio_by_annotation(node: HookNode) -> list[str]:
    """No daemon, and nothing was left of the pod."""
    made = node.crio.make("crio-noted", OLD, {"epc-limit.nri.io/container.app": str(4 * KIB)})
    assert made.first == f"{RESOURCE} {4 * KIB}", made
    return [f"{node.crio.named(OLD)}, no daemon, no file, annotation: first line of the container's log {made.first!r}"]


def crio_refuses(node: HookNode) -> list[str]:
    """What the rule that the daemon left refuses; the hook's text is whole in the error of CreateContainer."""
    with rule_of(LimitsSettings(unknown_pod=UnknownPod.REFUSE, on_error=OnError.REFUSE)):
        made = node.crio.make("unknown", NEW)
    assert "nodeward: default/unknown, container app: nobody knows this pod" in made.error, made
    assert made.error.rstrip('\\n"').endswith("or set limits.unknown_pod to unlimited or zero."), made
    said = f"{node.crio.named(NEW)}, limits.unknown_pod refuse: {made.error}"
    node.crio.end()
    return [said]
