"""What the tests of the API server's edge share: a clock turned by hand, ears, pods, certificates."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from nodeward.neighbours.kubernetes.client import PodsClient
from nodeward.neighbours.kubernetes.reflector import run
from nodeward.neighbours.kubernetes.settings import KubeSettings
from nodeward.neighbours.sockets.kube_http import Endpoint, Waits
from nodeward_sim.doubles.apiserver import ApiServer
from tests.patience import scaled
from tests.peers.pki import openssl as openssl
from tests.rigs.daemon import YieldingClock
from tests.rigs.stories import Ears as Ears
from tests.rigs.stories import under_way

WITHIN_S = scaled(10)
Json = dict[str, object]


class HandClock(YieldingClock):
    """Time passes only when somebody sleeps, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


async def until(condition: Callable[[], bool], what: str = "so", within_s: float = scaled(60.0)) -> None:
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError as error:
        raise AssertionError(f"not within {within_s:g} s: {what}") from error


def pod(name: str, node: str = "n1", epc: str = "1Mi", **more: object) -> Json:
    resources = {"limits": {"sgx.intel.com/epc": epc}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}], **more},
    }


def settings_for(server: ApiServer, **more: Any) -> KubeSettings:
    waits = Waits(connect_s=2.0, read_s=2.0, total_s=4.0)
    usual: dict[str, Any] = {"endpoint": Endpoint(server.url), "watch_s": 30, "watch_silence_s": 60.0}
    return KubeSettings(node_name="n1", request=waits, **usual | more)


@asynccontextmanager
async def reflecting(
    settings: KubeSettings, clock: HandClock | None = None, client: PodsClient | None = None
) -> AsyncIterator[Ears]:
    ears, used = Ears(), clock or HandClock()
    client = client or PodsClient(settings, used)
    async with aclosing(client), under_way(run(settings, ears, used, ears.sequence, client=client)):
        yield ears


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The URL of a server that answers every request so."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def make_ca(folder: Path, name: str) -> None:
    """NAME.crt and NAME.key, a certificate authority."""
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"),
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip


def make_leaf(folder: Path, name: str, ca: str) -> None:
    """NAME.crt and NAME.key for 127.0.0.1, signed by CA."""
    key, request, extensions = folder / f"{name}.key", folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request),
    )  # fmt: skip
    openssl(
        "x509", "-req", "-in", str(request), "-days", "2", "-CA", str(folder / f"{ca}.crt"),
        "-CAkey", str(folder / f"{ca}.key"), "-CAcreateserial", "-extfile", str(extensions),
        "-out", str(folder / f"{name}.crt"),
    )  # fmt: skip
