"""What the tests of the webhook share: certificates, a server in this process, the program, clients that speak HTTP."""

import asyncio
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nodeward.features.admission.door.doors import Patience, listen
from nodeward.features.admission.door.server import PATH, Bounds, WebhookServer
from nodeward.features.settings import Settings
from nodeward.host.tls import ReloadingTls
from nodeward.programs.webhook import decider
from tests.component.kubernetes.support import make_ca, make_leaf
from tests.patience import scaled
from tests.rigs.stories import Story, told_in, under_way
from tests.unit.features.admission.rounds import Json, container, pod_of, review

WITHIN_S = scaled(30.0)
NODEWARD = str(Path(sys.executable).parent / "nodeward")
EPC = "sgx.intel.com/epc"
GOOD = json.dumps(review(pod_of(container("app", {EPC: "1Mi"}), container("side")))).encode()
HEAD = f"POST {PATH}?timeout=5s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
REQUEST = f"{HEAD}Content-Length: {len(GOOD)}\r\n\r\n".encode() + GOOD
JSON_TYPE = {"Content-Type": "application/json"}


def make_pki(folder: Path) -> Path:
    """ca.crt, and two pairs of it: first and second."""
    make_ca(folder, "ca")
    for name in ("first", "second"):
        make_leaf(folder, name, "ca")
    return folder


def install(pki: Path, name: str, target: Path) -> None:
    """Puts a pair in place as kubelet does a Secret: whole, by a symlink that moves."""
    version = target / f"..{name}"
    version.mkdir(parents=True)
    for end in ("crt", "key"):
        (version / f"tls.{end}").write_bytes((pki / f"{name}.{end}").read_bytes())
    swap(target, version)


def swap(target: Path, version: Path) -> None:
    new = target / "..new"
    new.symlink_to(version.name)
    os.replace(new, target / "..data")
    for end in ("crt", "key"):
        with suppress(FileExistsError):
            (target / f"tls.{end}").symlink_to(f"..data/tls.{end}")


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by their names in lower case, and body."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert re.fullmatch(r"HTTP/1\.1 \d{3} \S.*", status), status
    return int(status.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


@dataclass(slots=True)
class Serving:
    port: int
    trust: ssl.SSLContext
    server: WebhookServer
    tls: ReloadingTls

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)

    async def known(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that has brought a review, and has the answer."""
        reader, writer = await self.open()
        writer.write(REQUEST)
        assert (await answer(reader))[0] == 200
        return reader, writer

    async def post(self, body: bytes, headers: dict[str, str] | None = None, path: str = PATH) -> tuple[int, bytes]:
        return await asyncio.to_thread(asked, self.port, self.trust, body, headers, path)

    async def review(self, made: Json) -> Json:
        status, said = await self.post(json.dumps(review(made)).encode())
        assert status == 200, said
        found: Json = json.loads(said)["response"]
        return found


@asynccontextmanager
async def serving(
    pki: Path, tmp_path: Path, *, bounds: Bounds | None = None, patience: Patience | None = None
) -> AsyncIterator[Serving]:
    """The server on a free port of the loopback, with the pair `first` in the folder."""
    install(pki, "first", tmp_path)
    tls = ReloadingTls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    await tls.check()
    server = WebhookServer(decider(Settings()), lambda: tls.context, bounds, patience)
    listener = listen("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    async with under_way(server.serve(listener)), asyncio.timeout(WITHIN_S):
        yield Serving(port, trust, server, tls)


def served(bounds: Bounds | None = None, patience: Patience | None = None) -> Callable[[Story], Story]:
    return told_in(serving, bounds=bounds, patience=patience)


@contextmanager
def program(folder: Path, *settings: str, stderr: int | None = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    pair = f"webhook.certificate_file={folder}/tls.crt", f"webhook.key_file={folder}/tls.key"
    flags = "webhook.address=127.0.0.1", "webhook.port=0", *pair, *settings
    command = [NODEWARD, "webhook", *(word for flag in flags for word in ("--set", flag))]
    process = subprocess.Popen(command, stderr=stderr, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WITHIN_S)
        if process.stderr is not None:
            process.stderr.close()


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if " serving " in line:
            return int(line.partition("port=")[2].split()[0])
    raise AssertionError("the program ended before it served")


def asked(
    port: int, trust: ssl.SSLContext, body: bytes = GOOD, headers: dict[str, str] | None = None, path: str = PATH
) -> tuple[int, bytes]:
    link = http.client.HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=trust)
    with closing(link):
        link.request("POST", path, body, JSON_TYPE if headers is None else headers)
        answer = link.getresponse()
        return answer.status, answer.read()
