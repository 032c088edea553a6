"""Asks the node daemon, over a socket in `run_dir`, what it knows of pods.

Promises: a pod is asked for when its sandbox is asked for, so that its creates seldom wait; a daemon that is absent,
late or talks nonsense costs no create any time once that is known, and is looked for again every LOOK_S. Then the
annotations hold, as they do without a daemon. An answer that makes no sense of one pod, or is about another than was
asked for, is not taken in and concerns that pod alone. Until it is known whether there is a daemon, creates and updates
wait for that, as they do for a pod. What is known of a pod ends with its sandbox. Must not decide.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from nodeward.core.errors import WireError
from nodeward.core.events import ApiBack, ApiLost, Event, Listed, PodGone, PodSeen, SandboxRemoved, SandboxStopped
from nodeward.core.ports import Tell
from nodeward.core.workload import PodSpec, PodUid, Sandbox
from nodeward.features.root import State
from nodeward.host.clock import Clock
from nodeward.host.runner import Core
from nodeward.neighbours.cri import facts_line
from nodeward.neighbours.cri.facts_line import Answer, Asked, SenselessPodError
from nodeward.neighbours.sockets import lines
from nodeward.programs.node.relay_door import READ_S, SOCKET

ASK_S: Final = READ_S + 1.0
"""How long the daemon may take for a pod that it has to read first."""
LOOK_S: Final = 2.0
"""How often it is looked whether a daemon is there."""
MOST_AT_ONCE: Final = 16
"""Pods that are asked for at a time; less than the daemon's socket takes."""
DAEMON, ANNOTATIONS = "daemon", "annotations"
_log = logging.getLogger(__name__)


class DaemonFacts:
    """Facts of the relay's core (`host.runner.Facts`)."""

    def __init__(self, run_dir: str, core: Callable[[], Core[State]], clock: Clock) -> None:
        self._path, self._core, self._clock = f"{run_dir}/{SOCKET}", core, clock
        self._under_way: dict[PodUid, asyncio.Task[str]] = {}
        self._behind = True
        """Sandboxes may be known whose pods were never asked for."""
        self.source = ""
        """`daemon` or `annotations`; empty before anybody was looked for."""
        self.why = ""
        """Why it is annotations."""
        self.senseless = 0
        """Answers that made no sense of the pod that was asked for."""

    async def fetch(self, fact: str, key: str) -> str:
        """Asks for the pod NAMESPACE/NAME/UID; why it is not known, or nothing."""
        namespace, name, uid = key.split("/", 2)
        task = self._begin(Asked(uid, namespace, name))
        await asyncio.wait((task,))
        return "the relay ends" if task.cancelled() else task.result()

    def ahead(self, home: Sandbox) -> None:
        """A sandbox is being made: its pod will be needed."""
        if self.source != DAEMON or len(self._under_way) >= MOST_AT_ONCE:
            return
        if home.pod_uid and home.pod_uid not in self._core().state.pods.specs:
            self._begin(Asked(home.pod_uid, home.namespace, home.name))

    def listens(self, tell: Tell) -> Tell:
        """`tell`; and what is known of a pod ends with its sandbox."""

        def told(event: Event) -> int:
            seq = tell(event)
            match event:
                case SandboxStopped() | SandboxRemoved():
                    self._forget((event.sandbox.pod_uid,))
                case Listed():
                    specs = self._core().state.pods.specs
                    self._forget(tuple(uid for uid, known in specs.items() if known.seq <= event.as_of))
                    self._behind = True
            return seq

        return told

    async def keep(self) -> None:
        """Looks for the daemon, for ever, and asks it for the pods of sandboxes from before."""
        if not self.source:
            self._core().tell(ApiBack())  # until it is known that nobody answers: whoever needs a pod asks for it
        while True:
            await self._ask(Asked("", "", ""))
            if self.source == DAEMON and self._behind:
                self._behind = False
                await self._catch_up()
            await self._clock.sleep(LOOK_S)

    async def _catch_up(self) -> None:
        pods = self._core().state.pods
        homes = [pods.sandboxes[sandbox_id].sandbox for uid, sandbox_id in pods.sandbox_of.items()]
        for home in homes:
            if self.source == DAEMON and home.pod_uid not in self._core().state.pods.specs:
                await asyncio.wait((self._begin(Asked(home.pod_uid, home.namespace, home.name)),))

    def _forget(self, uids: tuple[PodUid, ...]) -> None:
        pods = self._core().state.pods
        for uid in uids:
            if uid in pods.specs and uid not in pods.sandbox_of:
                self._core().tell(PodGone(uid))

    def _begin(self, asked: Asked) -> asyncio.Task[str]:
        uid = PodUid(asked.uid)
        task = self._under_way.get(uid)
        if task is None:
            task = self._under_way[uid] = asyncio.get_running_loop().create_task(self._ask(asked), name=f"pod {uid}")
            task.add_done_callback(lambda _: self._under_way.pop(uid))
        return task

    async def _ask(self, asked: Asked) -> str:
        """Asks, and tells the core what is new by the answer. Whoever waits may be gone by then."""
        try:
            answer = await told(self._path, asked, ASK_S)
        except (OSError, TimeoutError, WireError) as error:
            if isinstance(error, SenselessPodError) and asked.uid:
                return self._not_taken_in(asked, error)
            self._now(ANNOTATIONS, f"{self._path}: {error or f'no answer within {ASK_S:g} s'}")
            return f"no node daemon: {self.why}"
        self._now(DAEMON, "")
        if answer.pod is None:
            return answer.why
        self._core().tell(PodSeen(answer.pod))
        return ""

    def _not_taken_in(self, asked: Asked, error: SenselessPodError) -> str:
        self.senseless += 1
        if self.senseless == 1:
            what = "facts make no sense pod=%s/%s error=%s: its annotations hold (the first; later ones are counted)"
            _log.warning(what, asked.namespace, asked.name, error)
        return f"the node daemon's answer makes no sense: {error}"

    def _now(self, source: str, why: str) -> None:
        before, self.source, self.why = self.source, source, why
        if source == before:
            return
        self._behind = True
        if source == DAEMON:
            self._core().tell(ApiBack())
            _log.info("facts=daemon socket=%s: limits follow the pods' specs", self._path)
        else:
            self._core().tell(ApiLost(why))
            level = logging.WARNING if before else logging.INFO
            _log.log(level, "facts=annotations why=%r: container limits only, by annotations", why)


async def told(path: str, asked: Asked, within_s: float) -> Answer:
    """The daemon's answer. OSError, TimeoutError or WireError where there is none."""
    line = await lines.ask(path, facts_line.encode_request(asked), facts_line.MAX_ANSWER, within_s)
    answer = facts_line.decode_answer(line)
    if answer.pod is not None and not _is_asked(answer.pod, asked):
        raise SenselessPodError("facts line", "another pod is told of than was asked for")
    return answer


def _is_asked(pod: PodSpec, asked: Asked) -> bool:
    same_name = (pod.namespace, pod.name) == (asked.namespace, asked.name)
    return same_name and asked.uid == (pod.config_hash or pod.uid)
