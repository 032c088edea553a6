"""What runs for a feature that sells by claim: a driver at kubelet, promises on disk, a slice in the API server.

`Sold` is all that a feature says of itself; its `claims.py` decides.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from nodeward import __version__
from nodeward.core.claims import Claim, ClaimUid, Promised
from nodeward.core.decision import Special
from nodeward.core.events import SliceTold
from nodeward.core.times import from_rfc3339
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import FIRST_PAUSE_S, Node, Wired, name_of_node
from nodeward.host.backoff import Backoff
from nodeward.host.clock import Clock, SystemClock
from nodeward.host.waits import first_of
from nodeward.neighbours.dra.book import Book
from nodeward.neighbours.dra.cdi import CdiFolder, Edits
from nodeward.neighbours.dra.claims import Claims
from nodeward.neighbours.dra.driver import Driver
from nodeward.neighbours.dra.mapping import Health
from nodeward.neighbours.kubernetes import auth
from nodeward.neighbours.kubernetes.errors import KubeMissingError
from nodeward.neighbours.kubernetes.owned import Found, Owned, OwnedClient, removed
from nodeward.neighbours.kubernetes.resource_claim import ClaimReader
from nodeward.neighbours.kubernetes.resource_slice import resource_slice, slice_name, to_be_sold
from nodeward.neighbours.kubernetes.resource_slice import sold as sold_by
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp

KIND = "slice"
"""Of the change on the undo list."""
GAP_S = 0.2
"""Between two writes of the slice: a claim that has ended waits for less to be published."""
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Sold:
    """What one feature sells by claim. `setting` has the mode, `goal` is the kind of goal that says which devices are
    published, `wants` whether the settings of the start ask for it at all."""

    feature: str
    driver: str
    cdi_dir: str
    setting: str
    goal: str
    wants: bool
    is_sold: Callable[[State], bool]
    is_known: Callable[[State], bool]
    """Whether it is known what was prepared before the daemon started."""
    promised: Callable[[State], Mapping[ClaimUid, Promised]]
    edits: Callable[[State, Promised], Mapping[str, Edits]]
    """What the containers get of each device of a claim."""
    health: Callable[[State], Iterable[tuple[str, bool, str]]]
    """Each device, whether it can be used, and why not."""


def client_of(
    settings: Settings, environ: Mapping[str, str], clock: Clock, driver: str, node: str, setting: str = ""
) -> OwnedClient[str]:
    """Requests about the slice of a driver on a node."""
    kube = KubeSettings(endpoint=auth.endpoint_of(settings.kube, environ), node_name=node)
    return OwnedClient(resource_slice(driver, node, f"set {setting} to off"), slice_name(driver, node), kube, clock)


def remove(settings: Settings, environ: Mapping[str, str], path: str) -> str:
    """Deletes the slice of DRIVER/NODE if it is ours; what became of it. NodewardError where that cannot be done."""
    driver, _, node = path.partition("/")
    return asyncio.run(removed(client_of(settings, environ, SystemClock(), driver, node)))


def wired(node: Node, sold: Sold) -> Wired:
    """The driver where the settings choose it; or, where an earlier life has left its slice, the slice's end, and the
    driver for as long as a claim is prepared: kubelet ends no pod with a claim without it."""
    settings, core, clock = node.settings, node.core, node.clock
    name = name_of_node(settings, os.environ)
    left = any(change.target == f"{KIND}:{sold.driver}/{name}" for change in node.changes)
    if not settings.kube.enabled or not (sold.wants or left):
        return Wired(())
    client = client_of(settings, os.environ, clock, sold.driver, name, sold.setting)
    goals, slice_of = node.by_edge[sold.goal], f"resource-slice-{sold.feature}"

    def wanted() -> str | Special | None:
        return goals.value(sold.driver) if sold.is_sold(core.state) else Special.ABSENT

    def note(ready: bool, text: str) -> None:
        node.note(slice_of, ready, text)
        if ready:
            goals.reached(sold.driver)
        else:
            goals.missed(sold.driver, text)

    def remember() -> None:
        node.undo.remember(f"{KIND}:{sold.driver}/{name}", "absent")

    told: Mapping[str, int] | None = None

    def looked(found: Found | None) -> None:
        nonlocal told
        if (of := sold_by(found)) is not None and of != told:
            told = of
            core.tell(SliceTold(sold.driver, of, from_rfc3339(found.written) if found is not None else 0))

    def writes(devices: str) -> None:
        """From now on the API server may have what is more than before, whatever comes of the request."""
        nonlocal told
        of, before = to_be_sold(devices), told or {}
        told = {name: max(of.get(name, 0), before.get(name, 0)) for name in {**before, **of}}
        if told != before:
            core.tell(SliceTold(sold.driver, told))

    published = Owned(client, wanted, remember, clock, note, GAP_S, looked, writes)
    http = KubeHttp(auth.endpoint_of(settings.kube, os.environ), clock, user_agent=f"nodeward/{__version__}")
    reader = ClaimReader(http, sold.driver)

    async def read(namespace: str, of: str) -> Claim | None:
        try:
            return await reader.read(namespace, of)
        except KubeMissingError:
            return None

    async def written() -> None:
        while published.stands not in (wanted(), None):
            await clock.sleep(GAP_S / 4)

    def now() -> Mapping[ClaimUid, Promised]:
        return sold.promised(core.state)

    def health() -> tuple[Health, ...]:
        return tuple(Health(name, *one) for one in sold.health(core.state))

    lane, root = node.lane(f"claims-{sold.feature}"), settings.keys.root
    book = Book(sold.driver, node.files, settings.run_dir, root, lane, now)
    cdi = CdiFolder(node.files, sold.cdi_dir, sold.driver)
    prepares = Claims(
        *(sold.driver, name, read, book, cdi, lane, now, lambda one: sold.edits(core.state, one), written),
        *(core.ask, core.tell, clock),
    )
    at_kubelet = f"dra-{sold.feature}"
    driver = Driver(
        *(sold.driver, root, prepares.prepare, prepares.unprepare, health, core.tell, partial(node.note, at_kubelet)),
        *(clock, Backoff(FIRST_PAUSE_S, 10.0, random.random)),
    )

    async def until(is_needed: bool) -> None:
        while is_needed is not (
            sold.is_known(core.state) and (sold.is_sold(core.state) or bool(sold.promised(core.state)))
        ):
            await clock.sleep(LOOK_S)

    async def serve() -> None:
        """While there is something to sell, or to take back, and not before it is known what there was."""
        if not left and told is None:
            core.tell(SliceTold(sold.driver, first=True))
        while True:
            await until(True)
            await first_of(driver.run(), until(False))

    async def keep() -> None:
        try:
            await prepares.keep()
        except asyncio.CancelledError:
            lane.close(0.0)
            raise
        finally:
            await http.aclose()  # opens itself again at the next request

    components = (at_kubelet, serve), (f"claims-{sold.feature}", keep), (slice_of, published.run)
    return Wired(components, (published.retire,))
