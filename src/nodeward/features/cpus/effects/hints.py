"""Finds out where the things lie that a container uses, before the policy is asked: its devices and mounts by sysfs,
and what kubelet has given it.

Promises: asks for nothing that the policy in force does not go by; ends in time, with a fault for each source that did
not tell; what it reads of paths and devices leaves it as CPUs and memory nodes only. Must not decide.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from nodeward.core import annotations as keys
from nodeward.core.events import Creating
from nodeward.core.hints import MOST_HINTS, Hint, HintKind, Hints, Used
from nodeward.core.workload import Sandbox
from nodeward.features.cpus.hint_words import PathRule, kinds_of, path_rule
from nodeward.features.cpus.match import globs
from nodeward.features.cpus.policies.table import policy_of
from nodeward.features.cpus.requested import scoped
from nodeward.features.cpus.state import is_active
from nodeward.features.root import State
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane, done_on
from nodeward.neighbours.formats import cgroup_mounts
from nodeward.neighbours.sysfs import devices

MOUNTS = "/proc/1/mountinfo"
"""The host's own, where the daemon has the host's process ids; of another's mounts none has a container's path."""
QUIET_S = 5.0
"""So long kubelet is not asked again after it did not answer in time: the next containers wait for it no more."""
POD_RESOURCE = "podresapi:"
"""Before a resource's name where annotations allow or deny it."""
_NOT_BELOW = ("/etc/", "/lib/", "/lib32/", "/lib64/", "/usr/lib/", "/usr/lib32/", "/usr/lib64/", "/dev/termination-log")
"""Mounts with small files of the system, which are no reason to be near the disk that has them."""
_KUBELETS = ("/kubernetes.io~configmap/", "/kubernetes.io~secret/", "/kubernetes.io~projected/")
_KUBELET_SHARE = 0.8
"""Of the time: what kubelet leaves is for the answer's way back."""
log = logging.getLogger(__name__)
OfKubelet = Callable[[Sandbox, str], Awaitable[Sequence[Hint]]]
"""What kubelet's PodResources tells of a container; NodewardError says why it does not."""


class HintReader:
    """A ReadHints. Belongs to the loop's thread; files are read on `lane`."""

    def __init__(self, state: Callable[[], State], files: HostFiles, lane: Lane, of_kubelet: OfKubelet) -> None:
        self._state, self._files, self._lane, self._of_kubelet = state, files, lane, of_kubelet
        self._quiet_until_s = 0.0

    def __call__(self, question: Creating, used: Callable[[], list[Used]], within_s: float) -> Awaitable[Hints] | None:
        cpus = self._state().cpus
        if not is_active(cpus):
            return None
        wanted = [kind for kind in policy_of(cpus.rules.active).hints(cpus.rules) if kind in _asked(question)]
        things = [one for one in used() if one.kind in wanted] if wanted else []
        if not things and HintKind.POD_RESOURCE not in wanted:
            return None
        return self._read(question, things, HintKind.POD_RESOURCE in wanted, within_s * _KUBELET_SHARE)

    async def _read(self, question: Creating, things: Sequence[Used], asks_kubelet: bool, within_s: float) -> Hints:
        rules = _Rules(question)
        found, faults = list[Hint](), list[str]()
        jobs = [(partial(self._of_files, things, rules), "the host's /sys")] if things else []
        jobs += [(partial(self._of_pod, question, rules), "kubelet's PodResources")] if asks_kubelet else []
        for told in await asyncio.gather(*(_in_time(job(), whose, within_s) for job, whose in jobs)):
            if isinstance(told, str):
                faults.append(f"{told}; that counts as near to everything")
            else:
                found += told
        if len(found) > MOST_HINTS or len(things) > MOST_HINTS:
            faults.append(f"it uses more than {MOST_HINTS} things, and no more are looked at")
        return Hints(tuple(dict.fromkeys(found))[:MOST_HINTS], tuple(faults))

    async def _of_files(self, things: Sequence[Used], rules: "_Rules") -> list[Hint]:
        return await done_on(self._lane, "hints", partial(_by_sysfs, self._files, things, rules))

    async def _of_pod(self, question: Creating, rules: "_Rules") -> list[Hint]:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._quiet_until_s:
            raise TimeoutError
        self._quiet_until_s = now_s + QUIET_S  # unless it answers: those that come meanwhile do not wait for it too
        told = await self._of_kubelet(question.sandbox, question.container.name)
        self._quiet_until_s = 0.0
        return [one for one in told if rules.allow(f"{POD_RESOURCE}{one.resource}")]


async def _in_time(job: Awaitable[list[Hint]], whose: str, within_s: float) -> list[Hint] | str:
    try:
        async with asyncio.timeout(within_s):
            return await job
    except Exception as error:  # what it says may name paths and devices, which stay here
        log.warning("hints=unread of=%r error=%r", whose, str(error) or "not in time")
        return (
            f"{whose} did not tell in time what the container uses, or what it told cannot be read (log: hints=unread)"
        )


def _asked(question: Creating) -> tuple[HintKind, ...]:
    """The kinds that the pod's annotation leaves; all without one, or with one that cannot be read."""
    said = _said(question, keys.HINTS)
    found = kinds_of(said) if said is not None else None
    return found if found is not None else tuple(HintKind)  # the step says what is wrong with it


def _said(question: Creating, word: str) -> str | None:
    for key in keys.OF_TREE[word]:
        found = scoped(question.sandbox.annotations, key, question.container.name)
        if found is not None:
            return found[0]
    return None


class _Rules:
    """Which paths count, by the pod's annotations: those that one denies only where another allows them."""

    def __init__(self, question: Creating) -> None:
        self._deny, self._allow = (
            path_rule(_said(question, keys.DENY_HINTS)),
            path_rule(_said(question, keys.ALLOW_HINTS)),
        )

    def allow(self, *paths: str) -> bool:
        """Whether none of these names of one thing is denied, or one is allowed."""
        return not _matches(self._deny, paths) or _matches(self._allow, paths)


def _matches(rule: PathRule | None, paths: Sequence[str]) -> bool:
    if rule is None:
        return False
    are_globs, patterns = rule
    return any(globs(one, path) if are_globs else path.startswith(one) for path in paths for one in patterns)


def _by_sysfs(files: HostFiles, things: Sequence[Used], rules: _Rules) -> list[Hint]:
    """Each place once, whatever is there."""
    found, mounts = dict[str, Hint](), dict[str, tuple[int, int]]()
    if any(one.kind is HintKind.MOUNT for one in things):
        data = files.read(MOUNTS, cgroup_mounts.MAX_BYTES)
        mounts = {one.place: one.device for one in cgroup_mounts.mounts(data) if one.device is not None}
    for one in things[:MOST_HINTS]:
        number = _disk(mounts, one) if one.kind is HintKind.MOUNT else one.number
        if number is not None:
            places = devices.of_number(files, number, is_block=one.is_block or one.kind is HintKind.MOUNT)
        else:
            places = devices.of_named(files, one.path) if one.kind is HintKind.DEVICE else {}
        for folder, (cpus, nodes) in places.items():
            if rules.allow(one.path or one.inside, folder):
                found.setdefault(folder, Hint(one.kind, cpus, nodes))
    return list(found.values())


def _disk(mounts: Mapping[str, tuple[int, int]], one: Used) -> tuple[int, int] | None:
    """The block device with the file system that a mount is of. Asked of the list of mounts: a stat of it may hang."""
    if one.inside.startswith(_NOT_BELOW) or one.path.startswith(_NOT_BELOW) or any(x in one.path for x in _KUBELETS):
        return None
    return next((mounts[place] for place in _above(one.path) if place in mounts), None)


def _above(path: str) -> Iterator[str]:
    while path and path != "/":
        yield path
        path = path.rpartition("/")[0]
    yield "/"
