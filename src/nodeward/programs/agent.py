"""The agent's process: passes the ConfigMap that holds for this node to the relay or the daemon.

Promises: what was taken last stays in force while the API server, the watch or the other process is away; a
configuration that is refused is said in the log, by an Event on the node and to who asks for health, once each; the
same configuration is pushed again after a while, so that a relay without memory has it too. The node has what the
policy static-pools says on it while such a configuration is in force. At most one round of requests in Pace.gap_s.
Must not judge a configuration: who applies it does.
"""

import asyncio
import hashlib
import logging
import random
from dataclasses import dataclass, field

from nodeward.core.errors import WireError
from nodeward.features.cpus.spelling import policy
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.supervise import forever
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS
from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.configmaps import ConfigMapsClient, Held, Names
from nodeward.neighbours.kubernetes.errors import KubeError, from_transport
from nodeward.neighbours.kubernetes.events import EventObject, EventSender
from nodeward.neighbours.kubernetes.node_marks import Marks, is_met, next_patch
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.resmgr import config
from nodeward.neighbours.resmgr.agent import MERGE_PATCH, AgentService
from nodeward.neighbours.resmgr.config import NotPushedError
from nodeward.neighbours.sockets.kube_http import Endpoint, KubeHttpError, Waits
from nodeward.neighbours.sockets.unary_server import INTERNAL, AnswerError
from nodeward.settings.load import parsed
from nodeward.settings.pushed import MOST_BYTES, Config, size

log = logging.getLogger(__name__)
MOST_NODE = 4 * 1024 * 1024 - 1024
"""Bytes of a Node's JSON; an object in etcd is at most 1.5 MiB."""
_ANSWER = Waits(connect_s=2.0, read_s=5.0, total_s=5.0)
_STEPS = 3
"""Patches of the node at most, until it is looked at again."""
MOST_STATUS = 4096
"""Characters of what is wrong that are told to who asks for health."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The intervals of the agent, in seconds. CRI Resource Manager's agent has the same, but for `again_s`."""

    gap_s: float = 2.0
    """Between two rounds of requests at least."""
    retry_s: float = 5.0
    """Between pushes that nobody takes."""
    again_s: float = 30.0
    """How often the same is pushed again."""
    most_s: float = 30.0
    """Between tries while the API server does not answer."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of an agent."""

    endpoint: Endpoint
    names: Names
    agent_socket: str
    config_socket: str
    pace: Pace = field(default_factory=Pace)


class Agent:
    """One node's."""

    def __init__(self, chosen: AgentOptions, clock: Clock) -> None:
        self._chosen, self._clock = chosen, clock
        node = chosen.names.node
        self._kube = PodsClient(KubeSettings(endpoint=chosen.endpoint, node_name=node), clock)
        self._maps = ConfigMapsClient(self._kube.http, chosen.names)
        self._events = EventSender(self._kube)
        self._held: Held | None = None
        self._changed = asyncio.Event()
        self._said = ""
        self._in_force: Config | None = None
        self._wanted: Marks | None = None
        """On the node, by what is in force; None where that is not known."""
        self._event_on: tuple[str, str] = ("", "")
        self.status = "no configuration was read from the API server yet"
        """What is wrong with the last configuration; empty where it is in force."""

    async def run(self) -> None:
        """Until cancelled. A part that fails is started again by itself."""
        service = AgentService(self._get_node, self._patch_node, lambda: self.status, self._chosen.names.label)
        parts = {
            "watch": self._watch,
            "push": self._push,
            "agent-socket": lambda: service.serve(self._chosen.agent_socket),
        }
        try:
            async with asyncio.TaskGroup() as group:
                for name, part in parts.items():
                    pauses = Backoff(1.0, self._chosen.pace.most_s, random.random)
                    group.create_task(forever(name, part, self._clock, pauses, lambda _, __: None), name=name)
        finally:
            await self._kube.aclose()

    async def _watch(self) -> None:
        """Round after round: what holds, and when that may be another one."""
        pace = self._chosen.pace
        delays, lost = Backoff(1.0, pace.most_s, random.random), ""
        while True:
            begun_ns = self._clock.now_ns()
            try:
                held = await self._maps.look()
                if lost:
                    log.info("kube api=answers")
                lost = ""
                delays.reset()
                self._take(held)
                await self._maps.until_touched(held)
            except KubeError as error:
                if type(error).__name__ != lost:
                    log.warning("kube api=lost why=%s; the last configuration stays in force", error)
                lost = type(error).__name__
                await self._clock.sleep(delays.next_s())
            left_s = pace.gap_s - (self._clock.now_ns() - begun_ns) / 1e9
            await self._clock.sleep(max(left_s, 0.0))

    def _take(self, held: Held) -> None:
        before, self._held = self._held, held
        if before is not None and (before.name, before.config, before.missing) == (
            held.name,
            held.config,
            held.missing,
        ):
            if before.node.marks != held.node.marks:
                self._changed.set()
            return
        if held.node.group is None:
            log.warning("node=%s is not in the API server: is NODE_NAME right?", self._chosen.names.node)
        if held.missing:
            log.warning("configmap=%s is missing: the configuration is empty, and so no policy is chosen", held.name)
        else:
            log.info("configmap=%s holds modules=%s", held.name, ",".join(sorted(held.config))[:512])
        self._changed.set()

    async def _push(self) -> None:
        """Pushes what holds: at once when that changes, again where nobody took it, and after a while anyway."""
        pace = self._chosen.pace
        while True:
            wait_s = pace.again_s
            self._changed.clear()
            if self._held is not None and not await self._pushed(self._held):
                wait_s = pace.retry_s
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _pushed(self, held: Held) -> bool:
        """Whether somebody decided about it, and the node is as it then should be."""
        found = size(held.config)
        if found > MOST_BYTES:
            why = f"{found} bytes; a configuration has at most {MOST_BYTES}"
        else:
            try:
                why = await config.push(self._chosen.config_socket, self._chosen.names.node, held.config)
            except NotPushedError as error:
                self.status = f"{held.name} is not pushed: {error}"
                if self.status != self._said:
                    log.warning("configmap=%s not-pushed why=%r; tried again", held.name, str(error))
                self._said = self.status
                return False
        if not why and self._in_force != held.config:
            self._in_force, self._wanted = held.config, _marks_of(held)
        unmarked = await self._marked(held)
        await self._decided(held, why, unmarked)
        return not unmarked

    async def _marked(self, held: Held) -> str:
        """Why the node has not what the policy in force says on it, else nothing."""
        if self._wanted is None or is_met(held.node.marks, self._wanted):
            return ""
        try:
            for _ in range(_STEPS):
                if (step := next_patch(await self._get_node(), self._wanted)) is None:
                    break
                await self._patch_node(*step, MERGE_PATCH)
                log.info("node=%s patched%s=%s", self._chosen.names.node, step[0], step[1].decode()[:512])
        except (AnswerError, WireError) as error:
            return f"the node has not what static-pools says on it: {error}"
        return ""

    async def _decided(self, held: Held, why: str, unmarked: str) -> None:
        """Says what became of it, where that is news."""
        faults = why.splitlines()
        wrong = [*faults, unmarked] if unmarked else faults
        self.status = f"{held.name}: {'; '.join(wrong)}"[:MOST_STATUS] if wrong else ""
        if (said := self.status or f"{held.name} is in force") == self._said:
            return
        self._said = said
        for fault in faults:
            log.error("configmap=%s refused fault=%r", held.name, fault)
        if not faults:
            log.info("configmap=%s accepted", held.name)
        if unmarked:
            log.warning("configmap=%s node=not-patched why=%r; tried again", held.name, unmarked)
        if faults or self._event_on[1] == "ConfigRefused":
            await self._tell(held, "ConfigRefused" if faults else "ConfigAccepted", "; ".join(faults))

    async def _tell(self, held: Held, reason: str, what: str) -> None:
        """An Event on the node. One that cannot be made is worth a line in the log."""
        node, now_ns = self._chosen.names.node, self._clock.wall_ns()
        where = f"ConfigMap {self._chosen.names.namespace}/{held.name}"
        stays = "the last good configuration stays in force"
        note = f"{where} is refused, {stays}: {what}" if what else f"{where} is in force"
        life = hashlib.sha256(f"{now_ns} {note}".encode()).hexdigest()[:16]
        self._event_on = (held.name, reason)
        event = EventObject(
            *(f"{node[:200].rstrip('-.')}.{life}", "default", node, "", "", reason, bool(what), note, node, 1),
            *(now_ns, now_ns),
            of_node=True,
            action="Configure",
        )
        try:
            await self._events.send(event, is_there=False)
        except KubeError as error:
            log.warning("kube event=failed node=%s why=%s", node, error)

    async def _get_node(self) -> bytes:
        path = f"/api/v1/nodes/{self._chosen.names.node}"
        try:
            return await self._kube.http.get(path, {}, waits=_ANSWER, max_bytes=MOST_NODE)
        except KubeHttpError as error:
            raise AnswerError(INTERNAL, str(from_transport(error, "get on nodes"))) from error

    async def _patch_node(self, below: str, body: bytes, kind: str) -> None:
        path = f"/api/v1/nodes/{self._chosen.names.node}{below}"
        try:
            await self._kube.http.send("PATCH", path, body, kind, waits=_ANSWER)
        except KubeHttpError as error:
            raise AnswerError(INTERNAL, str(from_transport(error, "patch on nodes and nodes/status"))) from error


def _marks_of(held: Held) -> Marks | None:
    """What the node has by a configuration that is in force. None where its lists are not in it, or it cannot be read
    here: only another relay than Nodeward's takes such a one."""
    faults = list[str]()
    try:
        section = parsed(held.config.get("policy", "").encode(errors="replace"))
    except YAML_FAULTS as error:
        log.warning("configmap=%s node=left-as-it-is why='policy is no YAML: %s'", held.name, error)
        return None
    chosen = policy.read(*policy.respelled(section or {}, faults), faults)
    if chosen.active != "static-pools":
        return Marks()
    pools = chosen.static_pools
    if not pools.pools:
        log.warning("configmap=%s node=left-as-it-is why='the pools of static-pools are not in it'", held.name)
        return None
    cores = sum(len(one.cpu_lists) for one in pools.pools if one.exclusive)
    return Marks(cores, pools.label_node, pools.taint_node, ours=True)
