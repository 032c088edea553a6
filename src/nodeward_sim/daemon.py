"""The product's processes as the simulation sees them: started, asked, killed."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from nodeward.people.rows import NodeView

ASK_S = 2.0
NO_CAS = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""For a child: aiohttp reads all CAs of the machine as it is imported, a tenth of a start; nobody here speaks TLS."""
MAX_BYTES = 64 * 1024 * 1024


def socket_in(folder: Path) -> Path:
    """The operators' socket of a simulation that lives in `folder`."""
    return folder / "run" / "nodeward.sock"


class Process:
    """A module of the simulation as a child. Its log goes to the file `log`, or where ours goes."""

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def run(self, module: str, *words: str) -> None:
        """Starts it. Its standard input is a pipe that we hold open."""
        self.starts += 1
        environ = {name: text for name, text in os.environ.items() if not name.startswith("NODEWARD_")} | NO_CAS
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._log.open("ab")) if self._log is not None else None
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *words), env=environ, stdin=asyncio.subprocess.PIPE, stderr=log
            )

    @property
    def ended(self) -> int | None:
        """The exit code of a process that has ended by itself; None while it runs."""
        return self._process.returncode if self._process is not None else None

    @property
    def pid(self) -> int | None:
        """The process that was started last."""
        return self._process.pid if self._process is not None else None

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends the process; its exit code. One that does not end within ten seconds is killed."""
        process = self._process
        if process is None:
            return 0
        self.send(number)
        try:
            return await asyncio.wait_for(process.wait(), 10.0)
        except TimeoutError:
            process.kill()
            return await process.wait()

    def send(self, number: signal.Signals) -> None:
        """A signal, if it runs."""
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.send_signal(number)


class Daemon(Process):
    """`nodeward_sim.child` in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        api_url: str,
        kernel_socket: Path,
        record: str = "",
        log: Path | None = None,
        metrics: str = "",
        *,
        sections: Mapping[str, dict[str, object]] | None = None,
    ) -> None:
        """`sections` are more of its settings; without `keys` it counts no TEE keys."""
        super().__init__(log)
        self._folder, self._kernel_socket = folder, kernel_socket
        self.config = folder / "nodeward.yaml"
        settings: dict[str, object] = {
            "node_name": "sim",
            "run_dir": str(folder / "run"),
            "nri": {"socket": str(folder / "nri.sock")},
            "kube": {"url": api_url},
        }
        if record:
            settings["record"] = {"path": record}
        if metrics:
            settings["metrics"] = {"enabled": True, "listen": metrics}
        settings.update(sections or {})
        self._settings = settings
        self.config.write_text(yaml.safe_dump(settings))

    @property
    def socket(self) -> Path:
        """The operators' socket."""
        return socket_in(self._folder)

    def change(self, sections: Mapping[str, dict[str, object]]) -> None:
        """Gives it these sections instead of those that it has, while it runs."""
        self._settings |= sections
        self.config.write_text(yaml.safe_dump(self._settings))
        self.send(signal.SIGHUP)

    async def start(self) -> None:
        """Starts the process; it is ready when `view` answers."""
        await self.run("nodeward_sim.child", str(self.config), str(self._kernel_socket))

    async def view(self) -> NodeView | None:
        """What the daemon shows; None while it does not answer."""
        try:
            answer = await self._asked("GET", "status")
            return msgspec.json.decode(answer, type=NodeView) if answer is not None else None
        except msgspec.MsgspecError:
            return None

    async def post(self, name: str, body: object) -> bool:
        """Whether the daemon has taken what it is asked to do."""
        return await self._asked("POST", name, msgspec.json.encode(body)) is not None

    async def _asked(self, verb: str, name: str, sent: bytes = b"") -> bytes | None:
        """The body of a good answer; None for any other, and for none."""
        head = f"{verb} /v1/{name} HTTP/1.0\r\nHost: nodeward\r\nContent-Length: {len(sent)}\r\n\r\n"
        try:
            async with asyncio.timeout(ASK_S):
                reader, writer = await asyncio.open_unix_connection(self.socket, limit=MAX_BYTES)
                try:
                    writer.write(head.encode() + sent)
                    await writer.drain()
                    told = await reader.readuntil(b"\r\n\r\n")
                    body = await reader.read(-1)
                finally:
                    writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None
        return body if b" 200 " in told.splitlines()[0] else None
