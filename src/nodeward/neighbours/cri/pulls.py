"""Hears which pod each PullImage is for, and which sandbox that pod has.

Kubelet makes the sandbox first and names the same namespace, name, UID and attempt with each pull. Promises: no call is
delayed; a bounded number of rows, the oldest go first; of a request only names are kept, never its AuthConfig, nor an
annotation, nor the text of an error. What cannot be read is counted and tells nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.errors import WireError
from nodeward.core.pulls import PullRow, SandboxKey
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Ended, Interest, Message
from nodeward.neighbours.cri.counts import NO_STATUS, RESULTS, UNKNOWN
from nodeward.neighbours.cri.methods import BY_PATH
from nodeward.neighbours.formats.grpc_messages import STATUSES
from nodeward.neighbours.formats.protobuf import read

LISTS_NS: Final = 60_000_000_000
"""How often lists are read that pass, once one has been: calls tell of what changes in between."""
LIST_LATER_S: Final = 0.01
"""So much later a list is read than it has passed: to read 500 containers takes some 5 ms, and the last bytes of so
long an answer would wait for it where the client was slower to take them than the relay."""
MOST_KEPT: Final = 1 << 20
"""Bytes that are kept of a call which tells of one sandbox or pull."""
MOST_OF_LIST: Final = 16 << 20
"""The same of a list, in one answer or in many; one is read at a time."""
EACH: Final = 64
"""What a message takes beside its bytes: a stream of empty ones has no end either."""
Soon = Callable[[Callable[[], None], float], object]
"""Has something done once the bytes that pass now have gone on, and so many seconds later."""

MOST_PULLS: Final = 1000
MOST_SANDBOXES: Final = 2000
MOST_TEXT: Final = 512
"""Characters of a name; an image's reference is shorter."""
_LISTS: Final = ("ListPodSandbox", "StreamPodSandboxes")
_SHOWN: Final = {
    "PullImage": Interest.ALL,
    "RunPodSandbox": Interest.ALL,
    "StopPodSandbox": Interest.CALL | Interest.REQUEST,
    "RemovePodSandbox": Interest.CALL | Interest.REQUEST,
}
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Heard:
    """What is kept of a call until it ends. `as_of`: how many sandboxes had been told of when it began."""

    name: str
    as_of: int
    request: bytes = b""
    answers: list[bytes] = field(default_factory=list)
    kept_bytes: int = 0
    unfit: bool = False


class PullBook:
    """A Watcher. Belongs to the loop's thread."""

    def __init__(self, now_ns: Callable[[], int], wall_ns: Callable[[], int], soon: Soon) -> None:
        self._now_ns, self._wall_ns, self._soon = now_ns, wall_ns, soon
        self._heard: dict[int, _Heard] = {}
        self._pulls: dict[int, PullRow] = {}
        """By the call's number, oldest first."""
        self._sandboxes: dict[str, tuple[int, SandboxKey]] = {}
        """By id, oldest first: the how many-th that was told of, and whose it is."""
        self._owed: list[Callable[[], None]] = []
        self._told = 0
        self._list_due_ns = 0
        self.listed = False
        """Whether a list of all sandboxes has passed."""
        self.forgotten = 0
        """Pulls that had no room any more."""
        self.unread = 0
        """Messages that were no CRI, too long, cut or compressed."""

    @property
    def pulls(self) -> tuple[PullRow, ...]:
        """Oldest first."""
        return tuple(self._pulls.values())

    @property
    def sandboxes(self) -> tuple[SandboxKey, ...]:
        """Oldest first."""
        return tuple(key for _, key in self._sandboxes.values())

    # ---- Watcher

    def interest(self, path: str) -> Interest:
        """Pulls, new sandboxes and removed ones; a list now and then, which tells of those from before."""
        method = BY_PATH.get(path)
        if method is None:
            return Interest.NONE
        if method.name in _LISTS:
            return Interest.ALL if self._now_ns() >= self._list_due_ns else Interest.NONE
        return _SHOWN.get(method.name, Interest.NONE)

    def began(self, call: Call) -> None:
        self._heard[call.number] = _Heard(BY_PATH[call.path].name, self._told)

    def request(self, call: Call, message: Message) -> None:
        heard = self._heard[call.number]
        if self._is_fit(heard, message):
            if heard.name == "PullImage":  # what it carries besides is not kept until it ends
                self._later(partial(self._pull_began, call.number, message.payload, self._wall_ns()))
            else:
                heard.request = message.payload

    def response(self, call: Call, message: Message) -> None:
        heard = self._heard[call.number]
        if self._is_fit(heard, message):
            heard.answers.append(message.payload)

    def ended(self, call: Call, end: Ended) -> None:
        heard = self._heard.pop(call.number)
        if heard.name == "PullImage":
            self._later(partial(self._pull_ended, call.number, heard, end, self._wall_ns()))
        elif end.status == 0 and not end.refused:
            self._later(partial(self._happened, heard), LIST_LATER_S if heard.name in _LISTS else 0.0)

    def unseen(self, connection: int, why: str) -> None:
        """Nothing: its calls have ended, and what comes is told to nobody."""

    # ---- inside

    def _is_fit(self, heard: _Heard, message: Message) -> bool:
        heard.kept_bytes += message.size_bytes + EACH
        most = MOST_OF_LIST if heard.name in _LISTS else MOST_KEPT
        if heard.kept_bytes > most or message.compressed or message.cut:
            heard.unfit, heard.answers = True, []
        return not heard.unfit

    def _later(self, take: Callable[[], None], after_s: float = 0.0) -> None:
        self._owed.append(take)
        self._soon(self.catch_up, after_s)

    def catch_up(self) -> None:
        """Takes in what has passed, in order; also before somebody is told."""
        owed, self._owed = self._owed, []
        for take in owed:
            try:
                take()
            except WireError as error:
                self.unread += 1
                if self.unread == 1:
                    _log.warning("pulls=not-taken-in error=%s (the first; later ones are only counted)", error)

    def _pull_began(self, number: int, payload: bytes, at: int) -> None:
        asked = read("cri", cri.PullImageRequest, payload)
        of = asked.sandbox_config.metadata
        names = (of.namespace[:MOST_TEXT], of.name[:MOST_TEXT], of.uid[:MOST_TEXT], of.attempt)
        self._pulls[number] = PullRow(
            *names, asked.image.image[:MOST_TEXT], asked.image.runtime_handler[:MOST_TEXT], at
        )
        while len(self._pulls) > MOST_PULLS:
            del self._pulls[next(iter(self._pulls))]
            self.forgotten += 1

    def _pull_ended(self, number: int, heard: _Heard, end: Ended, at: int) -> None:
        row = self._pulls.get(number)
        if row is None:
            if heard.unfit:
                raise WireError("cri", "PullImage: a message was too long, cut or compressed")
            return
        status = NO_STATUS if end.status is None else end.status if end.status < len(STATUSES) else UNKNOWN
        self._pulls[number] = row = replace(row, ended=at, status=RESULTS[status])
        if end.status == 0 and heard.answers:
            ref = read("cri", cri.PullImageResponse, heard.answers[0]).image_ref
            self._pulls[number] = replace(row, image_ref=ref[:MOST_TEXT])

    def _happened(self, heard: _Heard) -> None:
        if heard.unfit:
            raise WireError("cri", f"{heard.name}: a message was too long, cut or compressed")
        if heard.name == "RunPodSandbox":
            asked = read("cri", cri.RunPodSandboxRequest, heard.request)
            made = read("cri", cri.RunPodSandboxResponse, b"".join(heard.answers)).pod_sandbox_id
            self._add(_key(made, asked.config.metadata, asked.runtime_handler))
        elif heard.name == "StopPodSandbox":
            which = read("cri", cri.StopPodSandboxRequest, heard.request).pod_sandbox_id[:MOST_TEXT]
            if which in self._sandboxes:
                told, key = self._sandboxes[which]
                self._sandboxes[which] = told, replace(key, stopped=True)
        elif heard.name == "RemovePodSandbox":
            gone = read("cri", cri.RemovePodSandboxRequest, heard.request).pod_sandbox_id
            self._sandboxes.pop(gone[:MOST_TEXT], None)
        elif mapping.is_unfiltered(heard.request):
            listed = [
                _key(one.id, one.metadata, one.runtime_handler)
                for answer in heard.answers  # both kinds of answer have the same one field
                for one in read("cri", cri.ListPodSandboxResponse, answer).items[:MOST_SANDBOXES]
            ]
            ended = [id_ for id_, (_, key) in self._sandboxes.items() if key.stopped]
            self._sandboxes = {id_: one for id_, one in self._sandboxes.items() if one[0] > heard.as_of}
            for key in listed:
                self._add(replace(key, stopped=key.id in ended))
            self.listed, self._list_due_ns = True, self._now_ns() + LISTS_NS

    def _add(self, key: SandboxKey) -> None:
        if key.id:
            self._told += 1
            self._sandboxes[key.id] = (self._told, key)
            while len(self._sandboxes) > MOST_SANDBOXES:
                del self._sandboxes[next(iter(self._sandboxes))]


def _key(sandbox_id: str, named: cri.PodSandboxMetadata, handler: str) -> SandboxKey:
    texts = (sandbox_id[:MOST_TEXT], named.namespace[:MOST_TEXT], named.name[:MOST_TEXT], named.uid[:MOST_TEXT])
    return SandboxKey(*texts, named.attempt, handler[:MOST_TEXT])
