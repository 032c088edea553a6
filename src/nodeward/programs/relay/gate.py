"""Gates in the relay: finds pods that have one, and waits for the daemon's answer.

Promises: pods without a gate wait for nothing; the others wait for the node daemon, no longer than `gate.wait_s` and
the time that a call may be held, and are refused retryably where it is away, late, ends meanwhile or talks nonsense.
Must not know verdicts: `features.gate.wiring` does, and this process keeps nothing on disk.
"""

import logging
from collections import Counter
from collections.abc import Awaitable
from functools import partial
from typing import Final

from nodeward.core.errors import WireError
from nodeward.core.gating import Gated, gated, refusal
from nodeward.core.modes import Mode
from nodeward.core.workload import Sandbox
from nodeward.features.gate.rows import GateRow
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cri import facts_line
from nodeward.neighbours.cri.sandbox_calls import Gatekeeper
from nodeward.neighbours.kata.handlers import handler_names
from nodeward.neighbours.sockets import lines, unary_client
from nodeward.programs.node.relay_door import SOCKET

ANSWER_S: Final = 0.5
"""Of the time that a call may be held, so much is for the answer's way back and for who decides next."""
MOST_TEXT: Final = 1000
log = logging.getLogger(__name__)


class RelayGate:
    """Belongs to the loop's thread."""

    def __init__(self, settings: Settings, files: HostFiles) -> None:
        """Says in the log what has a gate, and which of the handlers no runtime has."""
        self._rule, self._facts = settings.gate, f"{settings.run_dir}/{SOCKET}"
        self._counts, self._last = Counter[str](), ""
        status = partial(unary_client.call, settings.relay.runtime)
        self.decider = Gatekeeper(lambda: self._rule.at, self._wait, status, self._unsure)
        known = handler_names(files)
        self._say()
        for handler in sorted(known and self._rule.handlers.keys() - known):
            named = ", ".join(sorted(known))
            what = f"the container runtime's files name no such handler, so no pod has this gate; they name {named}"
            log.warning("gate=unknown-handler handler=%s why=%r", handler, what)

    def settle(self, settings: Settings) -> None:
        """Goes by these settings from now on."""
        if settings.gate != self._rule:
            self._rule = settings.gate
            self._say()

    def row(self) -> GateRow:
        """How it does."""
        return GateRow(self._rule.mode.value, dict(self._counts), self._last)

    def _say(self) -> None:
        handlers = ",".join(self._rule.handlers) or "none"
        log.info("gate mode=%s at=%s handlers=%s", self._rule.mode.value, self._rule.at.value, handlers)

    def _gated(self, home: Sandbox) -> Gated | None:
        if self._rule.mode is Mode.OFF:
            return None
        return gated(self._rule.handlers, home.handler, home.annotations, (home.pod_uid, home.namespace, home.name))

    def _wait(self, home: Sandbox, within_s: float) -> Awaitable[str] | None:
        pod = self._gated(home)
        return None if pod is None else self._opens(pod, within_s)

    async def _opens(self, pod: Gated, within_s: float) -> str:
        """Why the pod is refused; empty where it is not. Who observes does not wait for a gate to open."""
        patience_s = max(0.0, min(self._rule.wait_s, within_s - ANSWER_S)) if self._rule.mode is Mode.ENFORCE else 0.0
        return self._told(pod, await self._shut(pod, patience_s))

    async def _shut(self, pod: Gated, patience_s: float) -> str:
        if not pod.uid:
            return "the client tells no UID of its pod"
        question = facts_line.encode_gate_request(pod, int(patience_s * 1000))
        within_s = patience_s + ANSWER_S / 2
        try:
            answer = await lines.ask(self._facts, question, facts_line.MAX_ANSWER, within_s)
            found = facts_line.decode_gate_answer(answer)
        except TimeoutError:
            return f"the node daemon did not answer within {within_s:g} s"
        except WireError as error:
            return f"the node daemon does not answer this question, or ended meanwhile ({error})"
        except OSError as error:
            return f"no node daemon answers at {self._facts} ({error.strerror or error})"
        return "" if found.open else found.why or "the node daemon tells no reason"

    def _unsure(self, home: Sandbox | None, why: str) -> str:
        """Why a call of which there is no verdict is refused; empty where it passes."""
        if home is not None:
            pod = self._gated(home)
            return "" if pod is None else self._told(pod, f"nobody could be asked ({why})")
        if self._rule.mode is not Mode.ENFORCE:
            return ""
        text = f"whether this pod has a gate cannot be told ({why}), and gate.mode is enforce. It is tried again"
        return self._refused("unknown", text)

    def _told(self, pod: Gated, why: str) -> str:
        if not why:
            self._counts["passed"] += 1
            return ""
        name, text = f"{pod.namespace}/{pod.name}", refusal(pod, why)
        if self._rule.mode is Mode.ENFORCE:
            return self._refused(name, text)
        self._counts["would-refuse"] += 1
        log.info("gate=would-refuse pod=%s why=%r", name, text[:MOST_TEXT])
        return ""

    def _refused(self, name: str, text: str) -> str:
        self._counts["refused"] += 1
        self._last = text[:MOST_TEXT]
        log.info("gate=refused pod=%s why=%r", name, text[:MOST_TEXT])
        return text
