"""Drives nriside, the runtime's end of NRI made of containerd's own pkg/adaptation.

One object is one process. Commands are awaited one by one, each under a deadline; what the process says unasked (a
plugin synchronized, a line of the adaptation's log) is kept in order and can be waited for, so that no test sleeps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.patience import scaled

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Record: TypeAlias = "dict[str, Json]"

WAIT_S = scaled(15.0)
LINE_LIMIT_BYTES = 64 << 20

RELEASES = ("0.8", "0.11", "0.12")
"""The releases of NRI that peers are built of: containerd 2.1 has 0.8, 2.2 has 0.10 and 0.11, 2.4 has 0.12."""
EACH = [*(pytest.param(old, marks=pytest.mark.nightly) for old in RELEASES[:-1]), RELEASES[-1]]
"""The same for `parametrize`: the old ones are not DAILY."""


def text(record: Mapping[str, Json], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def number(record: Mapping[str, Json], key: str) -> int:
    value = record.get(key)
    return int(value) if isinstance(value, int | float | str) else 0


def member(record: Mapping[str, Json], *path: str) -> Json:
    here: Json = dict(record)
    for key in path:
        here = here.get(key) if isinstance(here, dict) else None
    return here


def objects(listed: Json) -> list[Record]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


class NriSideError(Exception):
    """The process ended, or did not say within the deadline what a test waits for."""


@dataclass(slots=True)
class NriSide:
    home: Path
    socket: Path
    events: list[Record] = field(default_factory=list)
    _answers: dict[int, Record] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _next_id: int = 1
    _ended: bool = False
    _process: asyncio.subprocess.Process | None = None
    _reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.events.clear()
        self._ended = False
        self._process = await asyncio.create_subprocess_exec(
            str(self.home / "nriside"),
            "-socket",
            str(self.socket),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
        )
        self._reader = asyncio.create_task(self._read(self._process))
        await self.event("ready")

    async def end(self) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), WAIT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        await reader
        self._process = self._reader = None

    async def command(self, op: str, **values: Json) -> Record:
        identity, self._next_id = self._next_id, self._next_id + 1
        line = json.dumps({"id": identity, "op": op, **values}) + "\n"
        if self._process is None or self._process.stdin is None:
            raise NriSideError(f"nriside is not running, so it cannot {op}")
        self._process.stdin.write(line.encode())
        await self._until(lambda: identity in self._answers, f"an answer to {op}")
        return self._answers.pop(identity)

    async def event(self, kind: str, containing: str = "") -> Record:
        def found() -> Record | None:
            for line in self.events:
                if line.get("event") == kind and containing in text(line, "message"):
                    return line
            return None

        await self._until(lambda: found() is not None, f"event {kind} {containing!r}")
        line = found()
        if line is None:
            raise NriSideError(f"event {kind} was there and is gone")
        return line

    async def plugins(self) -> list[str]:
        """The plugins which the adaptation calls, by index and name."""
        known = (await self.command("plugins")).get("plugins")
        return [str(name) for name in known] if isinstance(known, list) else []

    async def has(self, plugin: str) -> None:
        await self.event("log", f'plugin "{plugin}" connected and synchronized')

    async def _until(self, true: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_S), self._changed:
                await self._changed.wait_for(lambda: true() or self._ended)
        except TimeoutError as error:
            raise NriSideError(f"nriside: no {what} within {WAIT_S} s; it said {self.events[-5:]}") from error
        if not true():
            raise NriSideError(f"nriside ended while the test waited for {what}; it said {self.events[-5:]}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for raw in process.stdout:
            line: Record = json.loads(raw)
            async with self._changed:
                if "event" in line:
                    self.events.append(line)
                else:
                    self._answers[number(line, "id")] = line
                self._changed.notify_all()
        async with self._changed:
            self._ended = True
            self._changed.notify_all()


@asynccontextmanager
async def nriside(home: Path, socket: Path) -> AsyncIterator[NriSide]:
    side = NriSide(home, socket)
    try:
        await side.start()
        yield side
    finally:
        await side.end()
