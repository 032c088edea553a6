"""The daemon's gates: sets verdicts, keeps them on disk, and lets the relay wait for them.

Promises: a verdict is on disk before SetGate is answered and before any gate opens by it, so it holds after a kill -9;
a wait ends within its bound; whatever cannot be read leaves gates shut. Must not decide: `features.gate` does.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from nodeward.core.errors import AnswerError, Failure
from nodeward.core.events import GateAsked, GateRecalled, GateSet
from nodeward.core.gating import Gated, Verdict, gated, refusal
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid, Sandbox
from nodeward.features.gate.rows import DENIED, PASSED, GateRow, SetGateRequest, SetGateResponse
from nodeward.features.gate.rule import is_denied, shut
from nodeward.features.gate.settings import GateSettings
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import Node, Wired, Wiring
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import GivenUpError, Lane, done_on
from nodeward.host.runner import Core
from nodeward.host.state_file import MIB, StateFile

FILE: Final = StateFile("gate.json", dict[PodUid, Verdict], "gate", 8 * MIB)
MOST_VERDICTS: Final = 4096
MOST_REASON, MOST_DIGEST = 256, 256
MOST_EXPIRES_S: Final = 366 * 86400
MOST_WAITING: Final = 1024
"""Pods that wait at a time; a node has some hundreds."""
ANSWER_S: Final = 0.5
"""Of the time that a call may be held, so much is for the answer's way back and for who decides next."""
MOST_TEXT: Final = 1000
LOOK_S: Final = 0.1
"""How often a shut gate is looked at while a pod waits."""
READ_S: Final = 1.0
"""How long the API server may take for the spec of a pod that waits."""
KEEP_S: Final = 5.0
"""So late at most an ended pod's verdict leaves the file."""
log = logging.getLogger(__name__)


class SetGateError(AnswerError):
    """A verdict that is not set. `status` is HTTP's: 400 for a request that makes no sense, 403 for a user who may set
    none, 404 for a pod that is not known, 409 where DENIED stands, 503 where it could not be kept."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(Failure(status), why)
        self.status = status


def unread() -> GateRecalled:
    """The event for verdicts that the disk does not return in time."""
    return GateRecalled(fault="the disk did not tell in time at the daemon's start")


def read(files: HostFiles, settings: Settings) -> GateRecalled:
    """The verdicts on disk; none, and why, where they cannot be read: then every pod waits for a new one. May sleep."""
    if settings.gate.mode is Mode.OFF:
        return GateRecalled()
    path = FILE.path_in(settings.state_dir)
    try:
        return GateRecalled(FILE.read(files, settings.state_dir) or {})
    except (OSError, ValueError) as error:
        log.error("gate=unread path=%s error=%s: pods wait for new verdicts", path, error)
        return GateRecalled(fault=f"{path} cannot be read: {error}")


class Gates:
    """The gates of one daemon. Belongs to the loop's thread."""

    def __init__(self, core: Core[State], files: HostFiles, lane: Lane, settings: Settings, clock: Clock) -> None:
        self._core, self._lane, self._clock = core, lane, clock
        self._file = FILE.writer(files, settings.state_dir)
        self._one = asyncio.Lock()
        self._there: Mapping[PodUid, Verdict] | None = self._verdicts()
        """What the file has; None where a write failed, and may have been done all the same."""
        self.waiting = 0
        self._counts, self._last = Counter[str](), ""

    # ---- verdicts

    async def set_gate(self, request: SetGateRequest, by: int = 0) -> SetGateResponse:
        """Sets the verdict on a pod; `by` is the user whose process asks. SetGateError where it is not set. Goes on to
        its end if the caller leaves, so that disk and state agree."""
        if by not in self._core.state.settings.gate.uids:
            raise SetGateError(403, "this user may not set verdicts: gate.uids in the settings names those who may")
        _check(request)
        return await asyncio.shield(asyncio.ensure_future(self._set(request, by)))

    async def _set(self, request: SetGateRequest, by: int) -> SetGateResponse:
        async with self._one:
            if self._core.state.settings.gate.mode is Mode.OFF:
                raise SetGateError(503, "gate.mode is off: set it to observe or enforce, and restart the daemon")
            uid, namespace, name = self._pod(request)
            before, passed, at_ns = self._verdicts().get(uid), request.verdict == PASSED, self._clock.wall_ns()
            if before is not None and not before.passed:
                if passed:
                    raise SetGateError(409, f"pod {uid} is DENIED, which is final: make another pod")
                return _answer(uid, namespace, name, before)
            expires_ns = at_ns + request.expires_s * 1_000_000_000 if passed and request.expires_s else 0
            verdict = Verdict(passed, request.reason, request.evidence_digest, by, at_ns, expires_ns)
            verdicts = {**self._verdicts(), uid: verdict}
            if len(verdicts) > MOST_VERDICTS:
                raise SetGateError(503, f"{MOST_VERDICTS} verdicts are kept, which is the most: delete pods that ended")
            await self._write(verdicts)
            self._core.tell(GateSet(uid, verdict))
            log.info("gate=%s pod=%s/%s uid=%s by=%d", request.verdict, namespace, name, uid, by)
            return _answer(uid, namespace, name, verdict)

    def _verdicts(self) -> Mapping[PodUid, Verdict]:
        return {uid: said.verdict for uid, said in self._core.state.gate.verdicts.items()}

    def _pod(self, request: SetGateRequest) -> tuple[PodUid, str, str]:
        """UID, namespace and name of the pod that is meant."""
        state = self._core.state
        known = {uid: (one.pod.namespace, one.pod.name) for uid, one in state.gate.pods.items()}
        known |= {
            PodUid(one.sandbox.pod_uid): (one.sandbox.namespace, one.sandbox.name)
            for one in state.pods.sandboxes.values()
        }
        known |= {uid: (one.spec.namespace, one.spec.name) for uid, one in state.pods.specs.items() if not one.gone}
        named = (request.namespace, request.name)
        found = [
            uid for uid, one in known.items() if (request.uid in ("", uid)) and (named == ("", "") or named == one)
        ]
        if not found:
            raise SetGateError(
                404, "this node knows no such pod: it is known once its start is asked for; ask again then"
            )
        if len(found) > 1:
            raise SetGateError(
                400, f"{len(found)} pods have this name, one of them an ended one: name the pod by its uid"
            )
        return found[0], *known[found[0]]

    async def _write(self, verdicts: Mapping[PodUid, Verdict]) -> None:
        try:
            await done_on(self._lane, "gate", partial(self._file.replace, dict(verdicts)))
        except (OSError, GivenUpError) as error:
            self._there = None
            raise SetGateError(503, f"{self._file.path} cannot be written: {error}") from error
        self._there = dict(verdicts)

    async def keep(self) -> None:
        """Removes the verdicts of ended pods, and those whose answer said not to keep them, from the file, until
        cancelled."""
        while True:
            await self._clock.sleep(KEEP_S)
            async with self._one:
                if self._verdicts() != self._there:
                    try:
                        await self._write(self._verdicts())
                    except SetGateError as error:
                        log.warning("gate=not-kept error=%s", error)

    # ---- who waits

    def row(self) -> GateRow:
        """What became of the calls that waited."""
        return GateRow(self._core.state.settings.gate.mode.value, dict(self._counts), self._last)

    def holds(self, read: Callable[[str], Awaitable[str]], home: Sandbox, within_s: float) -> Awaitable[str] | None:
        """Why the start of this pod is refused, within so many seconds; None, at once, for a pod without a gate. `read`
        has the pod NAMESPACE/NAME/UID told to the core."""
        rule = self._core.state.settings.gate
        pod = gated(rule.handlers, home.handler, home.annotations, (home.pod_uid, home.namespace, home.name))
        return None if pod is None or rule.mode is Mode.OFF else self._held(read, pod, within_s)

    async def _held(self, read: Callable[[str], Awaitable[str]], pod: Gated, within_s: float) -> str:
        """Who observes does not wait for a gate to open."""
        rule = self._core.state.settings.gate
        patience_s = max(0.0, min(rule.wait_s, within_s - ANSWER_S)) if rule.mode is Mode.ENFORCE else 0.0
        why = "the client tells no UID of its pod" if not pod.uid else await self._wait(read, pod, patience_s)
        if not why:
            self._counts["passed"] += 1
            return ""
        text, name = refusal(pod, why), f"{pod.namespace}/{pod.name}"
        outcome = "refused" if self._core.state.settings.gate.mode is Mode.ENFORCE else "would-refuse"
        self._counts[outcome] += 1
        log.info("gate=%s pod=%s why=%r", outcome, name, text[:MOST_TEXT])
        if outcome == "would-refuse":
            return ""
        self._last = text[:MOST_TEXT]
        return text

    async def _wait(self, read: Callable[[str], Awaitable[str]], pod: Gated, within_s: float) -> str:
        """Waits until the pod's gate is open, or it is denied, or for so long; empty where it is open, else why not."""
        core, clock = self._core, self._clock
        core.tell(GateAsked(pod))
        end_ns = clock.now_ns() + int(within_s * 1e9)
        if self.waiting >= MOST_WAITING:
            end_ns = 0
        self.waiting += 1
        try:
            if pod.conditions != ("verdict",) and PodUid(pod.uid) not in core.state.pods.specs and end_ns:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(read(f"{pod.namespace}/{pod.name}/{pod.uid}"), min(READ_S, within_s))
            while (why := shut(core.state, pod, clock.wall_ns())) and not is_denied(core.state, pod.uid):
                left_s = (end_ns - clock.now_ns()) / 1e9
                if left_s <= 0:
                    break
                await clock.sleep(min(LOOK_S, left_s))
            return why
        finally:
            self.waiting -= 1


def _check(request: SetGateRequest) -> None:
    """SetGateError for a request that makes no sense. It does not repeat what was asked."""
    faults = (
        (request.verdict not in (PASSED, DENIED), f"verdict: write {PASSED} or {DENIED}"),
        (not request.uid and not (request.namespace and request.name), "name the pod by uid, or by namespace and name"),
        (bool(request.namespace) is not bool(request.name), "namespace and name: give both, or none and the uid"),
        (max(map(len, (request.uid, request.namespace, request.name))) > 253, "a name of more than 253 characters"),
        (len(request.reason) > MOST_REASON, f"reason: more than {MOST_REASON} characters"),
        (not request.reason.isprintable(), "reason: characters that cannot be printed"),
        (len(request.evidence_digest) > MOST_DIGEST, f"evidence_digest: more than {MOST_DIGEST} characters"),
        (not request.evidence_digest.isprintable(), "evidence_digest: characters that cannot be printed"),
        (not 0 <= request.expires_s <= MOST_EXPIRES_S, f"expires_s: must be 0 to {MOST_EXPIRES_S}, which is 366 days"),
    )
    wrong = [why for is_wrong, why in faults if is_wrong]
    if wrong:
        raise SetGateError(400, "; ".join(wrong))


def _answer(uid: PodUid, namespace: str, name: str, verdict: Verdict) -> SetGateResponse:
    said = PASSED if verdict.passed else DENIED
    return SetGateResponse(uid, namespace, name, said, verdict.at_ns, verdict.expires_ns)


def _components(node: Node) -> Wired:
    settings = node.settings
    if settings.gate.mode is Mode.OFF:
        return Wired(())
    if not settings.podapi.enabled and any("verdict" in words for words in settings.gate.handlers.values()):
        log.warning("gate=no-verdicts why='podapi.enabled is false, so nobody can set one: set it to true'")
    if settings.keys.mode is Mode.OFF and any(
        {"key", "quotes"} & {*words} for words in settings.gate.handlers.values()
    ):
        log.warning("gate=no-keys why='keys.mode is off, so key and quotes stay shut: set it to observe or enforce'")

    async def keep() -> None:
        await asyncio.to_thread(_say, node.files, settings.gate)
        await node.part(Gates).keep()

    return Wired((("gate", keep),))


def _say(files: HostFiles, rule: GateSettings) -> None:
    """Says in the log what has a gate, and which of the handlers no runtime has. May sleep."""
    from nodeward.neighbours.kata.handlers import handler_names  # it reads the files of runtimes

    log.info("gate mode=%s at=%s handlers=%s", rule.mode.value, rule.at.value, ",".join(rule.handlers) or "none")
    known = handler_names(files)
    for handler in sorted(known and rule.handlers.keys() - known):
        named = ", ".join(sorted(known))
        what = f"the container runtime's files name no such handler, so no pod has this gate; they name {named}"
        log.warning("gate=unknown-handler handler=%s why=%r", handler, what)


WIRING = Wiring(_components)
