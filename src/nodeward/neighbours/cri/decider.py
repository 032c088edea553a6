"""Decides the creation and the update of containers in the relay, and hears of what the runtime has.

Promises: only these two calls are held; everything else is heard of and not delayed: what a message says is taken in
once the bytes have gone on. A question is asked as NRI asks it, and the answer is appended to the client's own request.
Calls of one pod are asked about in the order in which they came, also where one waits for a fact. What cannot be read
raises, so that `limits.on_error` or `cpus.on_error` answers. RestorePod tells of a sandbox with the new pod's UID and
cgroup, and of containers, which are owed a decision each: they are not asked for one by one. Must not decide anything
itself, and keeps of a call only what its end needs.

A container has no id while it is being created: it is known by a tentative one until the runtime's answer names it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
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
    Listed,
    Removed,
    SandboxRemoved,
    SandboxStarted,
    SandboxStopped,
    Started,
    Stopped,
    Updating,
)
from nodeward.core.ports import Ask, Sequence, Tell
from nodeward.core.refusal import Refusal, Refused
from nodeward.core.workload import Container, ContainerId, Keys, Phase, Sandbox, SandboxId
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Ended, Interest, Message, Pass, Refuse, Replace, Verdict
from nodeward.neighbours.cri.methods import VERSIONS
from nodeward.neighbours.formats.protobuf import read

STATUSES: Constant = {
    Refused.BAD_VALUE: 3,  # INVALID_ARGUMENT
    Refused.NO_CAPACITY: 8,  # RESOURCE_EXHAUSTED
    Refused.FAULT: 13,  # INTERNAL
    Refused.FOR_NOW: 14,  # UNAVAILABLE, also where the relay ends
}
"""gRPC's status of each refusal. Kubelet tries again after each of them; they tell a person where to look."""

LISTS_NS: Constant = 60_000_000_000
"""How often lists are read that pass, once one has been: calls tell of what changes in between."""
LIST_READ_NS: Constant = 10_000_000_000
"""After so long another list is read beside one whose client does not read its answer."""
LIST_LATER_S: Constant = 0.01
"""So much later a list is read than it has passed: to read 500 containers takes some 5 ms, and the last bytes of so
long an answer would wait for it where the client was slower to take them than the relay."""

START_SHARE: Constant = 0.8
"""Of the time that a hold has, so much for a start: what is left is for the verdict's way back."""
MOST_KEPT: Constant = 1 << 20
"""Bytes that are kept of a call which tells of one container or sandbox."""
MOST_RESTORED: Constant = 1000
"""Containers of one pod that are believed to have been restored; a pod has some tens."""
MOST_OF_LIST: Constant = 16 << 20
"""The same of a list, in one answer or in many; one of each kind is read at a time."""
EACH: Constant = 64
"""What a message takes beside its bytes: a stream of empty ones has no end either."""

_HELD: Constant = ("CreateContainer", "UpdateContainerResources")
_ABOUT: Constant = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "RestorePod",
)
"""Calls whose request and success say what the runtime has."""
_REQUEST: Constant = Interest.CALL | Interest.REQUEST
_SHOWN: Constant = {"RunPodSandbox": Interest.ALL, "RestorePod": Interest.ALL}
"""What is to be seen of them; of the others the request."""
_SANDBOXES: Constant = ("ListPodSandbox", "StreamPodSandboxes")
_CONTAINERS: Constant = ("ListContainers", "StreamContainers")
_log = logging.getLogger(__name__)

Find = Callable[[ContainerId], tuple[Sandbox, Container] | None]
"""The container and its sandbox, as far as they are known."""
Asked = Creating | Updating
Change = Callable[[Adjustment], bytes]
"""The request with an adjustment appended."""
FindSandbox = Callable[[SandboxId], Sandbox | None]
Soon = Callable[[Callable[[], None], float], object]
"""Has something done once the bytes that pass now have gone on, and so many seconds later."""
Declares = Callable[[Sandbox, str], str]
"""What is declared for the sandbox's container of this name, in words."""


class Starts(Protocol):
    """The wait before a container's program begins."""

    def hold(self) -> bool:
        """Whether starts wait now."""

    async def may_begin(self, number: int, container_id: ContainerId, within_s: float) -> str:
        """Returns within that time: empty where the runtime may be given the start, else why it must not."""

    def ended(self, number: int) -> None:
        """The start's call is over."""


def _updated(message: bytes) -> ContainerId:
    """Which container the update is about."""
    return ContainerId(read("cri", cri.UpdateContainerResourcesRequest, message).container_id)


def _paths(names: tuple[str, ...]) -> dict[str, str]:
    return {f"/runtime.{version}.RuntimeService/{name}": name for version in VERSIONS for name in names}


@dataclass(slots=True)
class _Heard:
    """What is kept of a call until it ends."""

    as_of: int
    request: bytes = b""
    answers: list[bytes] = field(default_factory=list)
    kept_bytes: int = 0
    unfit: bool = False
    """It was too long, or a message of it cut or compressed, so that it says nothing."""
    made: tuple[Sandbox, Container] | None = None
    """What the engine was asked about, of a create."""
    updated: ContainerId | None = None
    """Which container an update is about."""
    let_go: bool = False
    """A create or an update that goes on undecided."""


class LimitsDecider:
    """A Decider and a Watcher. Belongs to the loop's thread."""

    def __init__(
        self,
        ask: Ask,
        tell: Tell,
        sequence: Sequence,
        find: Find,
        find_sandbox: FindSandbox,
        declares: Declares,
        ahead: Callable[[Sandbox], None],
        refuses: Callable[[], str],
        owe: Callable[[ContainerId], None],
        now_ns: Callable[[], int],
        soon: Soon,
        takes_part: bool = True,
        starts: Starts | None = None,
        labels: Callable[[], Keys] = tuple[str, ...],
    ) -> None:
        """`ahead` hears of a sandbox that is being made, as its client describes it. `refuses` names the setting by
        which calls that cannot be decided are refused; where it names none, `owe` hears of each container that was so
        created or updated, and in any case of those that RestorePod has made. `labels`: the keys of labels that are
        copied (`nodeward.core.workload`)."""
        self.takes_part = takes_part
        """Whether calls that begin now are held and heard of; it may be set while calls pass, and stays so then."""
        self._ask, self._tell, self._sequence, self._find, self._find_sandbox = ask, tell, sequence, find, find_sandbox
        self._ahead, self._refuses, self._now_ns, self._soon = ahead, refuses, now_ns, soon
        self._owe, self._declares, self._labels = owe, declares, labels
        self._held, self._about, lists = _paths(_HELD), _paths(_ABOUT), _paths((*_SANDBOXES, *_CONTAINERS))
        self._lists = lists
        self._names = {**self._held, **self._about, **lists}
        self._starts, self._start_paths = starts, _paths(("StartContainer",))
        self._under_way: dict[int, _Heard] = {}
        self._being_read: dict[str, tuple[int, int]] = {}
        self._sandboxes: tuple[int, tuple[Sandbox, ...]] | None = None
        self._containers: tuple[int, tuple[Container, ...]] | None = None
        self._lists_due_ns = 0
        self._lists_known = asyncio.Event()
        self._turns: dict[str, asyncio.Future[Verdict]] = {}
        """Of each pod for which a verdict is awaited the last one."""
        self._owed: list[tuple[str, _Heard, Ended]] = []
        self.lists = 0
        """How often everything that the runtime has was told."""
        self.unread = 0
        """Messages that were no CRI, or were cut or compressed: what they told of is not known."""
        self.unknown = 0
        """Updates of containers that nobody has told of: they went on as they came."""

    @property
    def listed(self) -> bool:
        """Whether all that the runtime has was listed once."""
        return self.lists > 0

    @property
    def overdue(self) -> bool:
        """Whether that is to be asked for: it was never told, or not for twice as long as lists that pass are left."""
        return not self.listed or self._now_ns() >= self._lists_due_ns + LISTS_NS

    def asked(
        self,
        sandboxes: bytes,
        containers: bytes,
        as_of: int,
        placed: Mapping[ContainerId, mapping.Placed] | None = None,
    ) -> None:
        """What the runtime answered to ListPodSandbox and ListContainers, unfiltered and requested after `as_of`.
        `placed`: what else was found out of the containers."""
        labels = self._labels()
        listed = mapping.sandboxes((sandboxes,), labels), mapping.containers((containers,), labels)
        self._take_lists(*listed, as_of, placed or {})

    # ---- Decider

    def holds(self, path: str) -> bool:
        """The creation and the update of a container, and its start where programs wait."""
        if not self.takes_part:
            return False
        return path in self._held or (path in self._start_paths and self._starts is not None and self._starts.hold())

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """The verdict, later where the engine waits for a fact."""
        self._catch_up()
        if call.path in self._start_paths:
            return self._start(call, message, within_ns)
        if self._starts is not None and self._starts.hold() and not self.listed:
            return self._once_listed(call, message, within_ns)
        if self._held[call.path] == "CreateContainer":
            question = Creating(*self._described(call, message))
            return self._in_turn(call, question, within_ns, partial(mapping.changed_create, message))
        container_id = _updated(message)
        if heard := self._under_way.get(call.number):
            heard.updated = container_id
        known = self._find(container_id)
        if known is None:
            self.unknown += 1
            return Pass()
        home, before = known
        update = Updating(home, mapping.updating(message, before))
        return self._in_turn(call, update, within_ns, partial(mapping.changed_update, message))

    async def _once_listed(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        """The verdict once it is known what the runtime has: CPUs that a container has from before are not free."""
        end_ns = self._now_ns() + within_ns
        await self._lists_known.wait()
        found = self.decide(call, message, max(0, end_ns - self._now_ns()))
        return await found if isinstance(found, Awaitable) else found

    async def _start(self, call: Call, message: bytes, within_ns: int) -> Verdict:
        container_id = ContainerId(read("cri", cri.StartContainerRequest, message).container_id)
        assert self._starts is not None
        why = await self._starts.may_begin(call.number, container_id, within_ns / 1e9 * START_SHARE)
        return Refuse(STATUSES[Refused.FOR_NOW], why) if why else Pass()

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """Answers by each feature's `on_error`; refused for now where the relay ends. A start goes on: its container
        exists."""
        if call.path in self._start_paths:
            return Pass()
        if ending:
            what = "Nodeward's relay ends before this request is decided. Try again: the next relay decides"
            return Refuse(STATUSES[Refused.FOR_NOW], f"{self._who(call, message)}: {what}")
        rule = self._refuses()
        if not rule:
            self._let_go(call, message)
            return Pass()
        what = f"Nodeward's relay could not decide this request ({why}), and {rule} is refuse"
        return Refuse(STATUSES[Refused.FAULT], f"{self._who(call, message)}: {what}")

    def _described(self, call: Call, message: bytes) -> tuple[Sandbox, Container]:
        """The container that a create is about."""
        home, made = mapping.creating(message, f"create-{call.number}", self._labels())
        if not home.pod_uid:  # a client that describes no pod; the runtime goes by its own record as well
            home = self._find_sandbox(home.id) or home
        return home, made

    def _let_go(self, call: Call, message: bytes | None) -> None:
        """What goes on undecided is owed its decision, as far as it can be read what it is about. An update too: it may
        bring a value of its own."""
        heard = self._under_way.get(call.number)
        if heard is None:
            return
        heard.let_go = True
        with contextlib.suppress(WireError):  # the runtime will find the same
            if message is None:
                return
            if self._held[call.path] != "CreateContainer":
                heard.updated = _updated(message)
            elif heard.made is None:
                heard.made = self._described(call, message)

    def _who(self, call: Call, message: bytes | None) -> str:
        """Which container it is about and what is declared for it, as far as that can be read."""
        name = self._held[call.path]
        with contextlib.suppress(WireError):
            if message is not None and name == "CreateContainer":
                return self._named(*self._described(call, message))
            if message is not None:
                container_id = _updated(message)
                known = self._find(container_id)
                return self._named(*known) if known is not None else f"container {container_id[:64]}"
        return name

    def _named(self, home: Sandbox, one: Container) -> str:
        declared = self._declares(home, one.name)
        return f"{home.namespace}/{home.name}, container {one.name}, which declares {declared}"

    def _in_turn(self, call: Call, question: Asked, within_ns: int, change: Change) -> Verdict | Awaitable[Verdict]:
        """Asks at once, or after the calls of the same pod that still wait."""
        pod = question.sandbox.pod_uid or question.sandbox.id
        before = self._turns.get(pod)
        if before is None:
            final = self._ask_now(call, question, within_ns)
            if isinstance(final, Final):
                return self._verdict(call, final, change)
            asked = asyncio.ensure_future(final)
            turn = asyncio.ensure_future(self._later(call, asked, change))
            turn.add_done_callback(lambda _: asked.cancel())  # also where nothing of it has run
        else:
            turn = asyncio.ensure_future(self._after(before, call, question, within_ns, change))
        self._turns[pod] = turn
        turn.add_done_callback(partial(self._turned, pod))
        return turn

    async def _after(
        self, before: asyncio.Future[Verdict], call: Call, question: Asked, within_ns: int, change: Change
    ) -> Verdict:
        end_ns = self._now_ns() + within_ns
        await asyncio.wait((before,))
        self._catch_up()
        final = self._ask_now(call, question, max(0, end_ns - self._now_ns()))
        return self._verdict(call, final if isinstance(final, Final) else await final, change)

    async def _later(self, call: Call, final: Awaitable[Final], change: Change) -> Verdict:
        return self._verdict(call, await final, change)

    def _verdict(self, call: Call, final: Final, change: Change) -> Verdict:
        """The engine's answer to a request, in the relay's words."""
        value = final.value
        if isinstance(value, Refusal):
            return Refuse(STATUSES[value.kind], value.message)
        if final.reason.code == "fault":
            self._let_go(call, None)
        return Replace(change(value)) if value.sets() else Pass()

    def _ask_now(self, call: Call, question: Asked, within_ns: int) -> Final | Awaitable[Final]:
        heard = self._under_way.get(call.number)
        if heard is not None and isinstance(question, Creating):
            heard.made = (question.sandbox, question.container)
        return self._ask(question, within_ns)

    def _turned(self, pod: str, turn: asyncio.Future[Verdict]) -> None:
        if self._turns.get(pod) is turn:
            del self._turns[pod]

    # ---- Watcher

    def interest(self, path: str) -> Interest:
        """Creates to their answer, updates to their end; what the other calls ask for; lists whole, while they are to
        be read."""
        if not self.takes_part:
            return Interest.NONE
        if path in self._held and path not in self._about:
            return Interest.CALL | Interest.RESPONSE if self._held[path] == "CreateContainer" else Interest.CALL
        if path in self._about:
            return _SHOWN.get(self._about[path], _REQUEST)
        name = self._lists.get(path)
        now_ns = self._now_ns()
        if name is None or now_ns < self._lists_due_ns:
            return Interest.NONE
        _, began_ns = self._being_read.get(name, (0, now_ns - LIST_READ_NS))
        return Interest.ALL if began_ns + LIST_READ_NS <= now_ns else Interest.NONE

    def began(self, call: Call) -> None:
        self._under_way[call.number] = _Heard(self._sequence())
        if call.path in self._lists:
            self._being_read[self._lists[call.path]] = call.number, self._now_ns()

    def request(self, call: Call, message: Message) -> None:
        heard, name = self._under_way[call.number], self._names[call.path]
        if name == "RestorePod" and (message.compressed or message.cut or message.size_bytes > MOST_KEPT // 2):
            return  # the answer names the containers all the same, and the runtime's lists whose they are
        if self._is_fit(call, heard, message):
            heard.request = message.payload
            if name in ("RunPodSandbox", "RestorePod"):
                self._soon(partial(self._made_ready, name, message.payload), 0.0)

    def response(self, call: Call, message: Message) -> None:
        heard = self._under_way[call.number]
        if self._is_fit(call, heard, message):
            heard.answers.append(message.payload)

    def ended(self, call: Call, end: Ended) -> None:
        heard = self._under_way.pop(call.number)
        if call.path in self._start_paths and self._starts is not None:
            self._soon(partial(self._starts.ended, call.number), 0.0)  # after the start itself is taken in
        name = self._names[call.path]
        being_read = self._being_read.get(name)
        if being_read is not None and being_read[0] == call.number:
            del self._being_read[name]
        if name == "UpdateContainerResources" and not heard.let_go:
            return
        if heard.made is not None or (end.status == 0 and not end.refused):
            self._owed.append((name, heard, end))
            self._soon(self._catch_up, LIST_LATER_S if call.path in self._lists else 0.0)

    def unseen(self, connection: int, why: str) -> None:
        """Nothing: where calls are decided, such a connection is closed."""

    def _is_fit(self, call: Call, heard: _Heard, message: Message) -> bool:
        heard.kept_bytes += message.size_bytes + EACH
        long = heard.kept_bytes > (MOST_OF_LIST if call.path in self._lists else MOST_KEPT)
        heard.unfit = heard.unfit or long or message.compressed or message.cut
        if heard.unfit:
            heard.answers.clear()
        return not heard.unfit

    def _catch_up(self) -> None:
        """Takes in what has passed, in order. Before a decision too: a client may ask for more of what it was just
        answered before the loop has had its next turn."""
        owed, self._owed = self._owed, []
        for one in owed:
            self._take_in(*one)

    def _take_in(self, name: str, heard: _Heard, end: Ended) -> None:
        try:
            if name == "CreateContainer":
                self._create_ended(heard, end)
            elif name == "UpdateContainerResources":
                if heard.updated is not None:
                    self._owe(heard.updated)
            elif heard.unfit:
                raise WireError("cri", f"{name}: a message was too long, cut or compressed")
            elif name in _SANDBOXES or name in _CONTAINERS:
                self._list_passed(name, heard)
            else:
                self._happened(name, heard)
        except WireError as error:
            self.unread += 1
            if self.unread == 1:
                _log.warning("cri message not taken in error=%s (the first; later ones are only counted)", error)

    # ---- inside

    def _made_ready(self, name: str, request: bytes) -> None:
        with contextlib.suppress(WireError):  # it is counted when the call has ended
            if name == "RestorePod":
                self._ahead(mapping.sandbox("", read("cri", cri.RestorePodRequest, request).config))
            else:
                self._ahead(mapping.sandbox("", read("cri", cri.RunPodSandboxRequest, request).config))

    def _create_ended(self, heard: _Heard, end: Ended) -> None:
        try:
            self._create_succeeded(heard, end)
        finally:
            if heard.made is not None:  # what it was given passes to the container before
                self._tell(CreateFailed(heard.made[1].id))

    def _create_succeeded(self, heard: _Heard, end: Ended) -> None:
        if end.status != 0 or end.refused or not (heard.made is not None or heard.let_go):
            return
        if heard.unfit or not heard.answers:
            raise WireError("cri", "the answer to CreateContainer was too long, cut, compressed or empty")
        own_id = mapping.created_id(heard.answers[0])
        if heard.made is not None:
            home, made = heard.made
            self._tell(Created(home, replace(made, id=own_id, phase=Phase.CREATED)))
        if heard.let_go:
            self._owe(own_id)

    def _happened(self, name: str, heard: _Heard) -> None:
        if name == "RunPodSandbox":
            asked = read("cri", cri.RunPodSandboxRequest, heard.request)
            made_id = read("cri", cri.RunPodSandboxResponse, b"".join(heard.answers)).pod_sandbox_id
            self._tell(SandboxStarted(mapping.sandbox(made_id, asked.config, self._labels())))
        elif name == "RestorePod":
            answer = b"".join(heard.answers)
            self._restored(*mapping.restored(heard.request, answer, MOST_RESTORED, self._labels()))
        elif name in ("StopPodSandbox", "RemovePodSandbox"):
            home = self._find_sandbox(
                SandboxId(read("cri", cri.StopPodSandboxRequest, heard.request).pod_sandbox_id)
            )  # both requests have the same one field
            if home is not None:
                self._tell(SandboxStopped(home) if name == "StopPodSandbox" else SandboxRemoved(home))
        else:
            container_id = ContainerId(read("cri", cri.StartContainerRequest, heard.request).container_id)
            known = self._find(container_id)  # the id is field 1 of all three
            if known is None:
                return
            home, made = known
            if name == "StartContainer":
                self._tell(Started(home, made.in_phase(Phase.RUNNING)))
            elif name == "StopContainer":
                self._tell(Stopped(home, made.in_phase(Phase.STOPPED)))
            else:
                self._tell(Removed(home.id, made.id))

    def _restored(self, home: Sandbox, ones: tuple[Container, ...]) -> None:
        if home.pod_uid:  # else its request was not kept, or describes no pod
            self._tell(SandboxStarted(home))
            for one in ones:
                self._tell(Created(home, one))
        for one in ones:
            self._owe(one.id)

    def _list_passed(self, name: str, heard: _Heard) -> None:
        """One list of sandboxes and one of containers make one that proves absence of what is older than both. Where
        CPUs are given the first one is the relay's own: these tell nothing of the CPUs that containers have."""
        if not mapping.is_unfiltered(heard.request) or (self._starts is not None and not self.listed):
            return
        if name in _SANDBOXES:
            self._sandboxes = (heard.as_of, mapping.sandboxes(heard.answers, self._labels()))
        else:
            self._containers = (heard.as_of, mapping.containers(heard.answers, self._labels()))
        if self._sandboxes is None or self._containers is None:
            return
        as_of = min(self._sandboxes[0], self._containers[0])
        self._take_lists(self._sandboxes[1], self._containers[1], as_of)

    def _take_lists(
        self,
        sandboxes: tuple[Sandbox, ...],
        containers: tuple[Container, ...],
        as_of: int,
        placed: Mapping[ContainerId, mapping.Placed] | None = None,
    ) -> None:
        homes, ones = mapping.still_known(sandboxes, containers, self._find_sandbox, self._find)
        if placed:
            homes, ones = mapping.placed(homes, ones, placed)
        self._tell(Listed(homes, ones, as_of))
        self.lists += 1
        self._lists_known.set()
        self._sandboxes = self._containers = None
        self._lists_due_ns = self._now_ns() + LISTS_NS
