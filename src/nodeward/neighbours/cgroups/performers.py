"""Performs the goals that are cgroup files: `subtree` (the misc controller switched on) and `misc.max` (a limit).

Synchronous; run by the slots on the cgroup lane. What outlives pods is remembered before it is first changed.
"""

import errno
from collections.abc import Callable, Mapping

from nodeward.core.decision import Goal, Special, Target
from nodeward.core.ports import Perform, Written
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cgroups import writer
from nodeward.neighbours.cgroups.hierarchy import Tree

Remember = Callable[[str, str], None]
"""Keeps on disk what is about to be changed, and its value before."""


def performers(files: HostFiles, tree: Tree, remember: Remember) -> Mapping[str, Perform]:
    """By the kind of goal."""

    def subtree(target: Target, goal: Goal, _: bool) -> Written:
        now, path = tree.now, target.where
        if now.version == 1:
            return Written(wrote=False, old="no such thing in cgroup v1")
        if writer.subtree_has_misc(files, now.root, path):
            return Written(wrote=False, old="present")
        if goal.undo:
            remember(str(target), "absent")
        return writer.enable_misc(files, now.root, path)

    def limit(target: Target, goal: Goal, may_take_back: bool) -> Written:
        _, path, resource = target
        if goal.value is not Special.ABSENT:
            remember(f"limits:/{path.split('/', 2)[1]}", "max")
            return writer.set_limit(files, tree.now, path, resource, str(goal.value))
        if not may_take_back:
            return Written(wrote=False, old="not ours")
        try:
            return writer.set_limit(files, tree.now, path, resource, "max")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                return Written(wrote=False, old="gone")  # the limit went with its cgroup, or the controller
            raise

    return {"subtree": subtree, "misc.max": limit}
