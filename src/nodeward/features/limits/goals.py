"""Goals for cgroups: the controller switched on from the root down, then each limit written.

Slots that run a goal read first and write only what
differs, so a repeated goal costs one read.
"""

from collections.abc import Iterable

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.modes import Mode
from nodeward.core.refusal import Reason
from nodeward.features.limits.state import Wanted
from nodeward.features.root import State


def subtree_goals(state: State, pod_paths: Iterable[str]) -> list[Goal]:
    """`+misc` in the pods' cgroups and before in every ancestor, once. Ancestors outlive pods: they have undo. With
    cgroup v1 there is no such thing: every cgroup of the misc hierarchy has the controller."""
    if not (state.limits.controller and state.limits.capacity) or state.limits.tree.version == 1:
        return []
    above: dict[str, str] = {}
    pods = [path for path in pod_paths if path]
    for path in pods:
        parts = path.strip("/").split("/")
        for depth in range(len(parts)):
            above.setdefault("/" + "/".join(parts[:depth]), path)
    perform = state.settings.limits.mode is Mode.ENFORCE
    goals = [
        Goal(Target("subtree", path), "+misc", Reason("controller", (pod,)), undo=True, perform=perform)
        for path, pod in above.items()
    ]
    goals += [Goal(Target("subtree", pod), "+misc", Reason("controller", (pod,)), perform=perform) for pod in pods]
    return goals


def limit_goals(state: State, path: str, wanted: Wanted) -> list[Goal]:
    """A goal for each value that this kernel can hold, and ABSENT for each one to take back.

    ABSENT whether the kernel still has the resource or not: it also ends a goal that is being tried again.
    """
    perform = state.settings.limits.mode is Mode.ENFORCE
    goals = [
        Goal(Target("misc.max", path, resource), str(value), wanted.reason, perform=perform)
        for resource, value in wanted.values.items()
        if state.limits.capacity.get(resource, 0) > 0
    ]
    goals += [
        Goal(Target("misc.max", path, name), Special.ABSENT, wanted.reason, perform=perform, ours=name in wanted.given)
        for name in wanted.released
    ]
    return goals


def forget(wanted: Wanted, path: str) -> tuple[Target, ...]:
    """The targets of a cgroup that is gone."""
    targets = tuple(Target("misc.max", path, resource) for resource in (*wanted.values, *wanted.released))
    return (*targets, Target("subtree", path)) if wanted.container_id is None else targets
