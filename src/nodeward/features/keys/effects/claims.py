"""What runs for keys by claim: our driver at kubelet, what was promised on disk, our slice in the API server."""

import asyncio
import os
import random
from collections.abc import Mapping
from functools import partial

from nodeward import __version__
from nodeward.core.claims import Claim, Promised
from nodeward.core.decision import Special
from nodeward.core.modes import Mode
from nodeward.features.keys import claims
from nodeward.features.keys.settings import Attestation, KeyKind
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
from nodeward.neighbours.kubernetes.owned import Owned, OwnedClient, removed
from nodeward.neighbours.kubernetes.resource_claim import ClaimReader
from nodeward.neighbours.kubernetes.resource_slice import resource_slice, slice_name
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import KubeHttp

KIND = "slice"
"""Of the change on the undo list."""
GAP_S = 0.2
"""Between two writes of the slice: a claim that has ended waits for less to be published."""
LOOK_S = 0.5


def client_of(settings: Settings, environ: Mapping[str, str], clock: Clock, driver: str, node: str) -> OwnedClient[str]:
    """Requests about the slice of a driver on a node."""
    kube = KubeSettings(endpoint=auth.endpoint_of(settings.kube, environ), node_name=node)
    kind = resource_slice(driver, node, "set keys.dra.mode to off")
    return OwnedClient(kind, slice_name(driver, node), kube, clock)


def remove(settings: Settings, environ: Mapping[str, str], path: str) -> str:
    """Deletes the slice of DRIVER/NODE if it is ours; what became of it. NodewardError where that cannot be done."""
    driver, _, node = path.partition("/")
    return asyncio.run(removed(client_of(settings, environ, SystemClock(), driver, node)))


def wired(node: Node) -> Wired:
    """The driver where the settings choose it; or, where an earlier life has left its slice, the slice's end."""
    settings, core, clock = node.settings, node.core, node.clock
    keys, dra = settings.keys, settings.keys.dra
    wants = Mode.OFF not in (keys.mode, dra.mode)
    left = any(change.target.partition(":")[0] == KIND for change in node.changes)
    if not settings.kube.enabled or not (wants or left):
        return Wired(())
    name = name_of_node(settings, os.environ)
    client = client_of(settings, os.environ, clock, dra.driver, name)
    goals = node.by_edge["keys-slice"]

    def wanted() -> str | Special | None:
        return goals.value(dra.driver) if claims.are_sold(core.state) else Special.ABSENT

    def note(ready: bool, text: str) -> None:
        node.note("resource-slice", ready, text)
        if ready:
            goals.reached(dra.driver)
        else:
            goals.missed(dra.driver, text)

    def remember() -> None:
        node.undo.remember(f"{KIND}:{dra.driver}/{name}", "absent")

    published = Owned(client, wanted, remember, clock, note, GAP_S)
    if not wants:
        return Wired((("resource-slice", published.run),), (published.retire,))

    http = KubeHttp(auth.endpoint_of(settings.kube, os.environ), clock, user_agent=f"nodeward/{__version__}")
    reader = ClaimReader(http, dra.driver)

    async def read(namespace: str, of: str) -> Claim | None:
        try:
            return await reader.read(namespace, of)
        except KubeMissingError:
            return None

    async def told() -> None:
        while published.stands not in (wanted(), None):
            await clock.sleep(GAP_S / 4)

    def edits(one: Promised) -> Mapping[str, Edits]:
        rows = core.state.settings.keys.kinds
        return {claims.device_of(key): _edits_of(rows[key]) for key in one.amounts if key in rows}

    def health() -> tuple[Health, ...]:
        rows = core.state.settings.keys.kinds
        told = ((claims.device_of(key), *claims.standing(core.state, key)) for key in rows)
        return tuple(Health(name, device, healthy, why) for device, healthy, why in told)

    lane = node.lane("claims")
    book = Book(dra.driver, node.files, settings.run_dir, keys.root, lane, lambda: core.state.keys.claims)
    cdi = CdiFolder(node.files, dra.cdi_dir, dra.driver)
    prepares = Claims(
        *(dra.driver, name, read, book, cdi, lane, lambda: core.state.keys.claims, edits, told),
        *(core.ask, core.tell, clock),
    )
    driver = Driver(
        *(dra.driver, keys.root, prepares.prepare, prepares.unprepare, health, core.tell, partial(node.note, "dra")),
        *(clock, Backoff(FIRST_PAUSE_S, 10.0, random.random)),
    )

    async def until(sold: bool) -> None:
        while claims.are_sold(core.state) is not sold:
            await clock.sleep(LOOK_S)

    async def serve() -> None:
        """While keys are sold by claim; claims that are prepared by then stay so."""
        while True:
            await until(True)
            await first_of(driver.run(), until(False))

    async def keep() -> None:
        try:
            await prepares.keep()
        finally:
            await http.aclose()
            lane.close(0.0)

    components = ("dra", serve), ("claims", keep), ("resource-slice", published.run)
    return Wired(components, (published.retire,))


def _edits_of(kind: KeyKind) -> Edits:
    """The device nodes of the setting, and the folder of the service that makes quotes."""
    asked = kind.attestation is not Attestation.OFF
    return Edits(kind.devices, (os.path.dirname(kind.attestation_socket),) if asked else ())
