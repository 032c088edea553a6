"""A device plugin for each resource that we offer: serves, registers, and registers again.

What is offered is a goal: whole lists under `offer:RESOURCE`, and nothing is served while there is none. Kubelet asks
twice, at Allocate and at PreStartContainer; both are questions to the core, and a refusal is told with its words. A
kubelet that begins anew is noticed by whichever sign it gives: our socket vanished, its own is another one, or the
stream of our list broke. Each of these leads to a new server on a socket of its own and to a new registration, but for
a name that somebody else offers (`folder.rival`): the last to register would evict the other.

Promises: an Allocate is answered within ANSWER_S, whatever happens; nothing is held while Register runs, in which
kubelet calls back; ending sends no empty list, so that a daemon that comes again finds the node as it was; only
`withdraw` does. Must not decide.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from nodeward.core.decision import Final
from nodeward.core.devices import PluginStanding
from nodeward.core.events import Admitted, Allocating, PluginTold, Starting
from nodeward.core.ports import Ask, Tell, Wants
from nodeward.core.refusal import Refusal
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock
from nodeward.host.lanes import FullError, GivenUpError, Lane, done_on
from nodeward.neighbours.formats.kube_node import OnNode
from nodeward.neighbours.kubelet import mapping
from nodeward.neighbours.kubelet.folder import KUBELET, Folder, FolderState, Identity, Offering, of_status, rival
from nodeward.neighbours.sockets.grpc_unix import (
    Code,
    GrpcClient,
    GrpcError,
    GrpcServer,
    ServerEndedError,
    Unary,
    checked,
)

log = logging.getLogger(__name__)
LOOK_S = 0.3
"""Between two looks at kubelet's folder."""
RIVAL_S = 5.0
"""Between two looks whether a rival is still there."""
SETTLED_S = 4.0
"""So long after our last list kubelet has taken it over, where it has written its checkpoint since."""
NODE_S = 9.0
"""Between two reads of the node's status, for as long as kubelet has not taken us. Before another kubelet it is read at
once."""
ALLOCATE_NS, ANSWER_S = 400_000_000, 0.45
DEVICES_S = 0.15
"""Of that, for a look at the device nodes."""
START_NS, STARTED_S = 20_000_000_000, 21.0
"""Kubelet waits 30 seconds for PreStartContainer (KubeletPreStartContainerRPCTimeoutInSecs), without a lock; what it
hears then it says in an event, and tries again later."""
MOST_STARTS = 48
"""Starts that are decided at once. One more is to come again, so that among the calls that the transport takes at once
there is always room for an Allocate, whose refusal fails its pod."""
REGISTER_S = 15.0
"""Kubelet calls back for at most ten seconds before it answers."""
OPENED_S = 5.0
"""So long after the registration kubelet may take until it reads our list."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.3, 30.0
LONG_S = 10.0
"""A list that was read for so long shows that kubelet took us: the next pause is a first one again."""
WITHDRAWN_S = 3.0
"""So long kubelet may take to write down that nothing is left."""
UNDECIDED = ("no-opinion", "not-offered")
"""The reasons that an answer has where no feature decided; that grants nothing."""
NOTHING = "nothing is to be published"
SEALED = (
    "restart the daemon if kubelet's folder was made after its start; else let it write there: "
    "docs/install.md, Least privilege"
)
_T = TypeVar("_T")


class Published:
    """The list that is to be published now, and who waits for another one."""

    def __init__(self, clock: Clock) -> None:
        self.devices: mapping.Devices | None = None
        self._clock = clock
        self._sent: mapping.Devices = ()
        self._sent_ns, self._sent_wall_ns = 0, 0
        self.offered: Collection[str] = ()
        """Every id that kubelet may ask for: also of the list that it was told last."""
        self._change = asyncio.Event()

    def set(self, devices: mapping.Devices | None) -> None:
        """Another list; None for nothing to publish."""
        if devices != self.devices:
            self.devices = devices
            self._offers()
            change, self._change = self._change, asyncio.Event()
            change.set()

    def sends(self, devices: mapping.Devices) -> None:
        """Marks this list as sent to kubelet."""
        self._sent = devices
        self._sent_ns, self._sent_wall_ns = self._clock.now_ns(), self._clock.wall_ns()
        self._offers()

    def _offers(self) -> None:
        self.offered = {**dict(self._sent), **dict(self.devices or ())}

    def may_have_registered(self, registered: Collection[str], written_ns: int) -> Collection[str]:
        """The ids that kubelet may have of us in its checkpoint of this wall time. The newest list is there: once our
        last one was taken over, that one as a whole, or somebody else's."""
        healthy = [name for name, is_healthy in self._sent if is_healthy]
        settled = self._clock.now_ns() - self._sent_ns >= SETTLED_S * 1e9 and written_ns > self._sent_wall_ns
        return () if settled and sorted(registered) != sorted(healthy) else self.offered

    async def other_than(self, devices: mapping.Devices | None) -> mapping.Devices | None:
        """The list, once it is not this one."""
        while self.devices == devices:
            await self._change.wait()
        return self.devices

    async def ended(self) -> None:
        """Waits until nothing is to be published."""
        while self.devices is not None:
            await self._change.wait()


class Instance:
    """One server on one socket, as kubelet knows it."""

    def __init__(
        self, published: Published, allocate: Unary, start: Unary, sent: Callable[[mapping.Devices], None], asks: bool
    ) -> None:
        self.opened, self.lost = asyncio.Event(), asyncio.Event()
        """Kubelet reads our list; and does so no more."""
        self._published, self._sent, self._streams, self._asks = published, sent, 0, asks
        unary: dict[str, Unary] = {
            "GetDevicePluginOptions": self._options,
            "GetPreferredAllocation": checked(self._preferred),
            "Allocate": checked(allocate),
            "PreStartContainer": checked(start),
        }
        self.server = GrpcServer(mapping.SERVICE, unary, {"ListAndWatch": self._list})

    async def _options(self, request: bytes) -> bytes:
        return mapping.options(self._asks).SerializeToString()

    async def _preferred(self, request: bytes) -> bytes:
        return mapping.preferred(request)

    async def _list(self, request: bytes) -> AsyncIterator[bytes]:
        """Whole lists, one at each change, until there is none. The newest stream is kubelet's."""
        self._streams += 1
        mine = self._streams
        self.opened.set()
        try:
            devices = self._published.devices
            while devices is not None:
                self._published.sends(devices)
                yield mapping.listed(devices)
                self._sent(devices)
                devices = await self._published.other_than(devices)
        finally:
            if mine == self._streams:
                self.lost.set()


class Plugin:
    """The plugin of one resource. Belongs to the loop's thread; `folder` to the lane's."""

    def __init__(
        self,
        offering: Offering,
        folder: Folder,
        offers: Wants,
        ask: Ask,
        tell: Tell,
        clock: Clock,
        note: Callable[[bool, str], None] = lambda _, __: None,
    ) -> None:
        """`note` hears that the server of a plugin that kubelet reads was ended, and that this is over."""
        self.offering = offering
        self._note = note
        self._folder, self._offers, self._ask, self._tell = folder, offers, ask, tell
        self._clock = clock
        self._lane: Lane | None = None
        self._published = Published(clock)
        self._withdrawn = False
        self._told: PluginTold | None = None
        self._known: Identity | None = None
        self._restarts, self._instances, self._starts = 0, 0, 0
        self._mount_there = False
        self._unseen = ""
        """Why the folder could not be looked at the last time."""
        self._served: Identity | None = None
        """Which kubelet has read our list."""
        self._on_node, self._asked_ns = OnNode(), 0
        self._asked_for: Identity | None = None
        """Before which kubelet's sight of us that was read."""

    async def run(self, lane: Lane, random: Callable[[], float]) -> None:
        """Is a plugin until cancelled. Files are looked at on `lane`."""
        self._lane = lane
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._serve(Backoff(FIRST_PAUSE_S, LAST_PAUSE_S, random)))

    async def withdraw(self) -> str:
        """Publishes an empty list, and then nothing for as long as we live; what came of it."""
        self._withdrawn = True
        was = self._told is not None and self._told.standing is PluginStanding.SERVING
        name = self.offering.resource
        if was:
            self._published.set(())
        taken = False
        try:
            async with asyncio.timeout(WITHDRAWN_S):
                while was and not taken:
                    await self._clock.sleep(LOOK_S)
                    around = await self._on_lane("around", lambda: self._folder.around(""))
                    taken = around.registered is not None and around.registered.get(name) == ()
        except (TimeoutError, OSError):
            log.warning("resource=%s withdrawn without kubelet's word", name)
        self._published.set(None)
        if not was:
            return f"{name}: was not registered by us; it is not offered any more"
        return f"{name}: {'kubelet has none left' if taken else 'kubelet has not said that it has none left'}"

    async def allocate(self, request: bytes) -> bytes:
        """Kubelet admits a container. All of its ids are one question: they are given together or not at all."""
        containers = mapping.asked(request, self._published.offered)
        ids = tuple(name for names in containers for name in names)
        devices, began_ns = self.offering.devices(), self._clock.now_ns()
        if ids and devices:  # before anything is granted
            why = await self._no_device(devices)
            if why:
                raise GrpcError(Code.FAILED_PRECONDITION, why)
        if ids:
            spent_ns = self._clock.now_ns() - began_ns
            within = ALLOCATE_NS - spent_ns, ANSWER_S - spent_ns / 1e9
            why = await self._decided(Allocating(self.offering.resource, ids), *within)
            if why:
                raise GrpcError(Code.RESOURCE_EXHAUSTED, why)
        mount, always = self.offering.mount()
        nodes = [list(devices) * (len(names) if self.offering.tokens else 1) for names in containers]
        return mapping.allocated(nodes, mount if always or self._mount_there else "")

    async def start(self, request: bytes) -> bytes:
        """Kubelet is about to start a container."""
        ids = mapping.starting(request, self._published.offered)
        if self._starts >= MOST_STARTS:
            raise GrpcError(Code.UNAVAILABLE, f"nodeward: {self._starts} starts are being decided; kubelet tries again")
        self._starts += 1
        try:
            why = await self._decided(Starting(self.offering.resource, ids), START_NS, STARTED_S)
        finally:
            self._starts -= 1
        if why:
            raise GrpcError(Code.UNAVAILABLE, why)
        return mapping.started()

    async def _no_device(self, devices: Sequence[str]) -> str:
        """Why a container cannot be given these device nodes, empty where it can."""
        try:
            async with asyncio.timeout(DEVICES_S):
                why = await self._on_lane("devices", lambda: self._folder.no_device(devices))
        except TimeoutError:
            why = f"{', '.join(devices)}: not looked at within {DEVICES_S:g} s"
        except OSError as error:
            why = str(error)
        return why and f"nodeward: {why}; {self.offering.remedy}"

    async def _decided(self, question: Admitted, within_ns: int, within_s: float) -> str:
        """Why not, empty for yes."""
        what = type(question).__name__.lower()
        try:
            async with asyncio.timeout(within_s):
                final = self._ask(question, within_ns)
                final = final if isinstance(final, Final) else await final
        except TimeoutError:
            return f"nodeward: {what} {self.offering.resource} was not decided within {within_s:g} s; see its log"
        except Exception:
            log.exception("resource=%s %s failed", self.offering.resource, what)
            return f"nodeward: {what} {self.offering.resource} met a fault; see its log"
        if isinstance(final.value, Refusal):
            return final.value.message
        if final.reason.code in UNDECIDED:
            return f"nodeward: {self.offering.resource} is not offered now; see `nodeward doctor`"
        return ""

    async def _follow(self) -> None:
        """Takes over each new list."""
        while True:
            number = self._offers.number
            text = None if self._withdrawn else self._offers.value(self.offering.resource)
            if not self._withdrawn:
                try:
                    self._published.set(None if text is None else mapping.devices(text))
                except ValueError as error:
                    self._offers.missed(self.offering.resource, f"no list of devices: {error}")
            await self._offers.changed(number)

    async def _serve(self, backoff: Backoff) -> None:
        while True:
            if self._published.devices is None:
                self._say(PluginStanding.ENDED, "withdrawn by a person" if self._withdrawn else NOTHING)
                await self._published.other_than(None)
            seen = await self._look("")
            if seen is None:
                self._say(PluginStanding.WAITING, self._unseen)
                await self._clock.sleep(LOOK_S)
                continue
            if seen.kubelet is None or not seen.answers:
                why = "does not answer" if seen.kubelet is not None else "is not there"
                self._say(PluginStanding.WAITING, f"kubelet's socket {self._folder.path}/{KUBELET} {why}")
                await self._clock.sleep(LOOK_S)
                continue
            try:
                why = await self._rival("", seen.kubelet)
            except OSError as error:
                why = f"who else is there cannot be seen: {error}"
            if why:
                self._say(PluginStanding.RIVAL, why)
                await self._clock.sleep(RIVAL_S)
                continue
            if seen.kubelet != self._known and self._known is not None:
                self._restarts += 1
                backoff.reset()
            self._known = seen.kubelet
            began_ns = self._clock.now_ns()
            why = await self._one_instance(seen.kubelet)
            log.info("resource=%s plugin ended why=%r", self.offering.resource, why)
            if self._clock.now_ns() - began_ns > LONG_S * 1e9:
                backoff.reset()
            if self._published.devices is not None:
                await self._pause(seen.kubelet, backoff.next_s())

    async def _pause(self, kubelet: Identity, seconds: float) -> None:
        """Waits so long for this kubelet, and not for one that has begun anew meanwhile."""
        until_ns = self._clock.now_ns() + seconds * 1e9
        while (left_ns := until_ns - self._clock.now_ns()) > 0:
            await self._clock.sleep(min(LOOK_S, left_ns / 1e9))
            seen = await self._look(KUBELET)  # named as ours, so that its socket is not tried
            if seen is not None and seen.kubelet not in (None, kubelet):
                return

    async def _one_instance(self, kubelet: Identity) -> str:
        """Serves, registers, and serves on for as long as kubelet reads; why that ended."""
        self._instances += 1
        endpoint = f"{self.offering.sockets_begin}{self._clock.now_ns():x}-{self._instances:x}.sock"
        instance = Instance(self._published, self.allocate, self.start, self._handed_over, not self.offering.tokens)
        try:
            await instance.server.start(f"{self._folder.path}/{endpoint}")
            await self._register(endpoint)
            async with asyncio.timeout(OPENED_S):
                await instance.opened.wait()
            self._served = kubelet
            self._say(PluginStanding.SERVING, "")
            return await self._until_over(instance, endpoint, kubelet)
        except OSError as error:
            why = _told(error)
            self._say(PluginStanding.WAITING, why)
            return why
        except GrpcError as error:
            away = error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED)
            self._say(PluginStanding.WAITING if away else PluginStanding.REFUSED, f"registration: {error.text}")
            return error.text
        finally:
            await instance.server.stop()

    def _handed_over(self, devices: mapping.Devices) -> None:
        """Kubelet has this list. Where another one is wanted by now, it is not what was to be reached."""
        text = self._offers.value(self.offering.resource)
        with contextlib.suppress(ValueError):
            if text is not None and mapping.devices(text) == devices:
                self._offers.reached(self.offering.resource)

    async def _register(self, endpoint: str) -> None:
        client = GrpcClient(f"{self._folder.path}/{KUBELET}")
        try:
            request = mapping.registration(endpoint, self.offering.resource, not self.offering.tokens)
            await client.call(f"/{mapping.REGISTRATION}/Register", request, REGISTER_S)
        finally:
            await client.close()

    async def _until_over(self, instance: Instance, endpoint: str, kubelet: Identity) -> str:
        signs: dict[asyncio.Task[str], None] = {
            asyncio.ensure_future(self._after(instance.lost.wait(), "kubelet reads our list no more")): None,
            asyncio.ensure_future(self._after(self._published.ended(), NOTHING)): None,
            asyncio.ensure_future(self._gone(endpoint, kubelet)): None,
            asyncio.ensure_future(instance.server.serve()): None,
        }
        try:
            done, _ = await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
            await instance.server.check()  # first: its end shows by the other signs too
            return done.pop().result()
        except ServerEndedError as error:
            log.warning("resource=%s plugin=ended why=%r", self.offering.resource, str(error))
            self._note(False, str(error))
            self._say(PluginStanding.WAITING, str(error))
            return str(error)
        finally:
            for task in signs:
                task.cancel()
            await asyncio.gather(*signs, return_exceptions=True)

    async def _after(self, sign: Awaitable[object], why: str) -> str:
        await sign
        return why

    async def _gone(self, endpoint: str, kubelet: Identity) -> str:
        """Why kubelet does not know us any more. A rival that has registered shows by the checkpoint alone: kubelet
        goes on reading our list beside the other one, and takes the newest of either."""
        written: Identity | None = None
        looked_ns = 0
        while True:
            await self._clock.sleep(LOOK_S)
            seen = await self._look(endpoint)
            if seen is None:
                continue
            if not seen.own:
                return "our socket has vanished"
            if seen.kubelet not in (None, kubelet):
                return "kubelet's socket is another one"
            if seen.written != written or self._clock.now_ns() - looked_ns > RIVAL_S * 1e9:
                written, looked_ns = seen.written, self._clock.now_ns()
                with contextlib.suppress(OSError):
                    why = await self._rival(endpoint)
                    if why:
                        return why

    async def _look(self, own: str) -> FolderState | None:
        """One look; None where a file call does not come back, which is said once."""
        try:
            mount, _ = self.offering.mount()
            seen = await self._on_lane("look", lambda: self._folder.look(own, mount))
        except OSError as error:
            if self._unseen != str(error):
                log.warning("folder=%s unseen why=%s", self._folder.path, error)
            self._unseen = str(error)
            return None
        self._mount_there, self._unseen = seen.mount, ""
        return seen

    async def _rival(self, own: str, ahead_of: Identity | None = None) -> str:
        """Who else offers it, empty for nobody. Before a kubelet that has not taken us yet the node's status is a sign
        too: whoever wrote there while the last one was down is not to be evicted."""
        around = await self._on_lane("around", lambda: self._folder.around(own))
        registered = (around.registered or {}).get(self.offering.resource, ())
        ours = self._published.may_have_registered(registered, around.written_ns) if own else ()
        why = rival(self.offering, around, ours)
        if why or ahead_of in (None, self._served):
            return why
        now_ns = self._clock.now_ns()
        if self._asked_for != ahead_of or now_ns - self._asked_ns > NODE_S * 1e9:
            self._on_node, self._asked_ns, self._asked_for = await self.offering.on_node(), now_ns, ahead_of
            around = await self._on_lane("around", lambda: self._folder.around(own))  # that took its time
        known = self._served is not None
        return rival(self.offering, around) or of_status(self.offering, around, self._on_node, known=known)

    async def _on_lane(self, name: str, job: Callable[[], _T]) -> _T:
        """The job's result; OSError where the lane takes none, or gave it up."""
        if self._lane is None:
            raise OSError(self._hangs())
        try:
            return await done_on(self._lane, name, job)
        except (GivenUpError, FullError) as error:
            raise OSError(self._hangs()) from error

    def _hangs(self) -> str:
        at = self._folder.at
        what = f"a look at {at} hangs in the kernel" if at else "earlier looks at files take long"
        return f"{what}: see to the disk or server of that file system, or unmount it; it goes on when the call is back"

    def _say(self, standing: PluginStanding, why: str) -> None:
        """Tells how it stands, where that has changed."""
        told = PluginTold(self.offering.resource, standing, why, self._restarts)
        if told == self._told:
            return
        same = self._told is not None and self._told.standing is standing
        self._told = told
        level = logging.WARNING if standing in (PluginStanding.RIVAL, PluginStanding.REFUSED) else logging.INFO
        log.log(logging.DEBUG if same else level, "resource=%s plugin=%s why=%r", told.resource, standing.value, why)
        if standing is not PluginStanding.WAITING:
            self._note(True, standing.value)
        if standing not in (PluginStanding.SERVING, PluginStanding.ENDED):
            self._offers.missed(self.offering.resource, why)
        self._tell(told)


def _told(error: OSError) -> str:
    """Why nothing is served, and what mends it."""
    if isinstance(error, TimeoutError):
        return f"kubelet did not read our list within {OPENED_S:g} s"
    if error.errno == errno.EROFS:
        return f"{error}; {SEALED}"
    return str(error)
