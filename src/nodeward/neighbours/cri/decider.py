"""Decides the creation, the update and the start of containers that a relay holds, and hears of what the runtime has.

Promises: a question is asked as NRI asks it, and the answer is appended to the client's own request. Calls of one pod
are asked about in the order in which they came, also where one waits for a fact; none before it is known what the
runtime has. What cannot be read raises, so that it counts as undecided. RestorePod tells of a sandbox with the new
pod's UID and cgroup, and of containers, which are not asked for one by one. Must not decide anything itself, and keeps
nothing of a call.

A container has no id while it is being created: it is known by a tentative one until the runtime's answer names it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final as Constant
from typing import Protocol

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.decision import Adjustment, Final
from nodeward.core.errors import WireError
from nodeward.core.events import (
    Created,
    CreateFailed,
    Creating,
    Removed,
    SandboxRemoved,
    SandboxStarted,
    SandboxStopped,
    Started,
    Stopped,
    Updated,
    Updating,
)
from nodeward.core.hints import Hints
from nodeward.core.ports import Ask, ReadHints, Tell
from nodeward.core.refusal import Refusal, Refused
from nodeward.core.workload import Container, ContainerId, Keys, Phase, Sandbox, SandboxId
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.door_frames import Passed
from nodeward.neighbours.cri.methods import HELD, STARTS, TOLD
from nodeward.neighbours.formats.protobuf import read

STATUSES: Constant = {
    Refused.BAD_VALUE: 3,  # INVALID_ARGUMENT
    Refused.NO_CAPACITY: 8,  # RESOURCE_EXHAUSTED
    Refused.FAULT: 13,  # INTERNAL
    Refused.FOR_NOW: 14,  # UNAVAILABLE
}
"""gRPC's status of each refusal. Kubelet tries again after each of them; they tell a person where to look."""
HINTS_SHARE: Constant = 0.25
"""Of that time, so much for where the things lie that a new container uses."""
START_SHARE: Constant = 0.8
"""Of the time that a hold has, so much for a start: what is left is for the verdict's way back."""
MOST_RESTORED: Constant = 1000
"""Containers of one pod that are believed to have been restored; a pod has some tens."""
_log = logging.getLogger(__name__)

Asked = Creating | Updating
Change = Callable[[Adjustment], bytes]
"""The request with an adjustment appended."""


class Known(Protocol):
    """What is known of what the runtime has."""

    @property
    def listed(self) -> bool:
        """Whether all of it was told since the relay connected."""

    async def until_listed(self) -> None:
        """Returns once it was."""

    def list_soon(self) -> None:
        """Has it told again: something passed that could not be read."""

    def container(self, container_id: ContainerId) -> tuple[Sandbox, Container] | None:
        """The container and its sandbox, also while it is only being created."""

    def sandbox(self, sandbox_id: SandboxId) -> Sandbox | None:
        """The sandbox."""


class Starts(Protocol):
    """The wait before a container's program begins."""

    def hold(self) -> bool:
        """Whether starts wait now."""

    async def may_begin(self, number: int, container_id: ContainerId, within_s: float) -> str:
        """Returns within that time: empty where the runtime may be given the start, else why it must not."""

    def ended(self, number: int) -> None:
        """The start's call is over."""


class ContainersDecider:
    """A Decides, which hears of what passes too. Belongs to the loop's thread."""

    def __init__(
        self,
        ask: Ask,
        tell: Tell,
        known: Known,
        starts: Starts,
        labels: Callable[[], Keys],
        now_ns: Callable[[], int],
        read_hints: ReadHints | None = None,
    ) -> None:
        """`labels`: the keys of labels that are copied (`nodeward.core.workload`). `read_hints` tells before a question
        about a create where the things lie that the container uses."""
        self._ask, self._tell, self._known, self._starts = ask, tell, known, starts
        self._labels, self._now_ns, self._read_hints = labels, now_ns, read_hints
        self._turns: dict[str, asyncio.Future[Verdict]] = {}
        """Of each pod for which a verdict is awaited the last one."""
        self.unread = 0
        """Messages that were no CRI, or too long to be told: what they told of is not known until the next list."""

    # ---- Decider

    def holds(self, path: str) -> bool:
        """The creation, the update and the start of a container."""
        return path in HELD or path in STARTS

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """The verdict, later where the engine waits for a fact."""
        if not self._known.listed:
            return self._once_listed(call, message, within_ns)
        if call.path in STARTS:
            return self._start(call, message, within_ns) if self._starts.hold() else Pass()
        if HELD[call.path] == "CreateContainer":
            question = Creating(*self._described(call.number, message))
            hints = None
            if self._read_hints is not None:
                within_s = within_ns / 1e9 * HINTS_SHARE
                hints = self._read_hints(question, partial(mapping.used, message), within_s)
            return self._in_turn(call, question, within_ns, partial(mapping.changed_create, message), hints)
        known = self._known.container(_updated(message))
        if known is None:  # nobody has told of it
            return Pass()
        home, before = known
        update = Updating(home, mapping.updating(message, before))
        return self._in_turn(call, update, within_ns, partial(mapping.changed_update, message))

    async def _once_listed(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        """The verdict once it is known what the runtime has: CPUs that a container has from before are not free."""
        end_ns = self._now_ns() + within_ns
        await self._known.until_listed()
        found = self.decide(call, message, max(0, end_ns - self._now_ns()))
        return await found if isinstance(found, Awaitable) else found

    async def _start(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        container_id = ContainerId(read("cri", cri.StartContainerRequest, message).container_id)
        why = await self._starts.may_begin(call.number, container_id, within_ns / 1e9 * START_SHARE)
        return Refuse(STATUSES[Refused.FOR_NOW], why) if why else Pass()

    def _described(self, number: int, message: bytes) -> tuple[Sandbox, Container]:
        """The container that a create is about. What is known of its sandbox says more than a create does; it also
        stands where the client describes no pod, since the runtime goes by its own record as well."""
        home, made = mapping.creating(message, _tentative(number), self._labels())
        known = self._known.sandbox(home.id)
        if known is not None and home.pod_uid in ("", known.pod_uid):
            home = replace(known, cgroup_parent=known.cgroup_parent or home.cgroup_parent)
        return home, made

    def _in_turn(
        self, call: Call, question: Asked, within_ns: int, change: Change, hints: Awaitable[Hints] | None = None
    ) -> Verdict | Awaitable[Verdict]:
        """Asks at once, or once the hints are there and after the calls of the same pod that still wait."""
        pod = question.sandbox.pod_uid or question.sandbox.id
        before = self._turns.get(pod)
        if before is None and hints is None:
            final = self._ask(question, within_ns)
            if isinstance(final, Final):
                return _verdict(final, change)
            asked = asyncio.ensure_future(final)
            turn = asyncio.ensure_future(_later(asked, change))
            turn.add_done_callback(lambda _: asked.cancel())  # also where nothing of it has run
        else:
            turn = asyncio.ensure_future(self._after(before, question, within_ns, change, hints))
        self._turns[pod] = turn
        turn.add_done_callback(partial(self._turned, pod))
        return turn

    async def _after(
        self,
        before: asyncio.Future[Verdict] | None,
        question: Asked,
        within_ns: int,
        change: Change,
        hints: Awaitable[Hints] | None,
    ) -> Verdict:
        end_ns = self._now_ns() + within_ns
        if hints is not None and isinstance(question, Creating):
            question = replace(question, hints=await hints)
        if before is not None:
            await asyncio.wait((before,))
        final = self._ask(question, max(0, end_ns - self._now_ns()))
        return _verdict(final if isinstance(final, Final) else await final, change)

    def _turned(self, pod: str, turn: asyncio.Future[Verdict]) -> None:
        if self._turns.get(pod) is turn:
            del self._turns[pod]

    # ---- what passes

    def passed(self, number: int, passed: Passed) -> None:
        """A call has ended. What cannot be read of it is listed soon."""
        name = TOLD.get(passed.path)
        try:
            if name == "CreateContainer":
                self._create_ended(number, passed)
            elif name == "UpdateContainerResources":
                if passed.ok and not passed.decided:
                    self._was_updated(passed)
            elif name is not None and passed.ok:
                self._happened(name, passed)
        except WireError as error:
            self.unread += 1
            self._known.list_soon()
            if self.unread == 1:
                _log.warning("cri message not taken in error=%s (the first; later ones are only counted)", error)
        finally:
            if name == "StartContainer":  # after the start itself is taken in
                self._starts.ended(number)

    def _create_ended(self, number: int, passed: Passed) -> None:
        tentative = _tentative(number)
        asked = self._known.container(tentative)
        if asked is not None and not passed.decided:  # what it was given has never reached the runtime
            self._tell(CreateFailed(tentative))
            asked = None
        try:
            if passed.ok:
                home, made = asked or self._described(number, _whole(passed))
                own_id = mapping.created_id(_whole(passed, answer=True))
                self._tell(Created(home, replace(made, id=own_id, phase=Phase.CREATED)))
        finally:
            if asked is not None:  # what it was given passes to the container before
                self._tell(CreateFailed(tentative))

    def _was_updated(self, passed: Passed) -> None:
        """An update that nobody decided: it may have brought a value of its own."""
        request = _whole(passed)
        known = self._known.container(_updated(request))
        if known is not None:
            self._tell(Updated(known[0], mapping.updating(request, known[1])))

    def _happened(self, name: str, passed: Passed) -> None:
        request = _whole(passed)
        if name == "RunPodSandbox":
            asked = read("cri", cri.RunPodSandboxRequest, request)
            made_id = read("cri", cri.RunPodSandboxResponse, passed.answer).pod_sandbox_id
            home = mapping.sandbox(made_id, asked.config, self._labels())
            self._tell(SandboxStarted(replace(home, handler=asked.runtime_handler)))
        elif name == "RestorePod":
            self._restored(*mapping.restored(request, passed.answer, MOST_RESTORED, self._labels()))
        elif name in ("StopPodSandbox", "RemovePodSandbox"):
            sandbox_id = read("cri", cri.StopPodSandboxRequest, request).pod_sandbox_id  # field 1 of both
            known = self._known.sandbox(SandboxId(sandbox_id))
            if known is not None:
                self._tell(SandboxStopped(known) if name == "StopPodSandbox" else SandboxRemoved(known))
        else:
            container_id = ContainerId(read("cri", cri.StartContainerRequest, request).container_id)
            found = self._known.container(container_id)  # the id is field 1 of all three
            if found is None:
                return
            home, made = found
            if name == "StartContainer":
                self._tell(Started(home, made.in_phase(Phase.RUNNING)))
            elif name == "StopContainer":
                self._tell(Stopped(home, made.in_phase(Phase.STOPPED)))
            else:
                self._tell(Removed(home.id, made.id))

    def _restored(self, home: Sandbox, ones: tuple[Container, ...]) -> None:
        if not home.pod_uid:
            raise WireError("cri", "RestorePod describes no pod")
        self._tell(SandboxStarted(home))
        for one in ones:
            self._tell(Created(home, one))


def _tentative(number: int) -> ContainerId:
    return ContainerId(f"create-{number}")


def _updated(message: bytes) -> ContainerId:
    """Which container the update is about."""
    return ContainerId(read("cri", cri.UpdateContainerResourcesRequest, message).container_id)


def _whole(passed: Passed, answer: bool = False) -> bytes:
    if passed.cut:
        raise WireError("cri", f"{TOLD[passed.path]}: a message was too long, cut or compressed")
    return passed.answer if answer else passed.request


async def _later(final: Awaitable[Final], change: Change) -> Verdict:
    return _verdict(await final, change)


def _verdict(final: Final, change: Change) -> Verdict:
    """The engine's answer to a request, in the relay's words."""
    value = final.value
    if isinstance(value, Refusal):
        return Refuse(STATUSES[value.kind], value.message)
    return Replace(change(value)) if value.sets() else Pass()
