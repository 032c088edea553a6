"""Refuses what a VM sandbox cannot do (settings `relay.vm_checkpoint` and `relay.vm_resize`), with the reason.

Promises: asks the runtime at each such call, so that it needs no memory of sandboxes and knows those from before its
start; what the runtime or the configuration does not tell within the time of the hold passes, and is counted.
Containers without a VM lose that time only. Must not change a request.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from nodeward.core.modes import OnError
from nodeward.core.vms import Handler
from nodeward.core.workload import SandboxId
from nodeward.features.pods.effects.cri_runtime import RuntimeCall
from nodeward.features.sandboxes import fixed
from nodeward.features.sandboxes.rows import VmGuardRow
from nodeward.features.sandboxes.words import shown
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.sandbox_calls import CHECKPOINTS, RESIZES, VmCall, VmCalls
from nodeward.neighbours.kata.handlers import read_handlers

SHARE: Final = 0.8
"""Of the time that a hold has, so much for what is to be found out: the rest is for who decides after."""
ASK_S: Final = 2.0
"""How long the runtime may take for one answer."""
MOST_TEXT: Final = 1000
MOST_ID: Final = 100
"""Characters of what a client calls a container; the runtimes' own ids have 64."""
log = logging.getLogger(__name__)


class _UnknownError(Exception):
    """What is needed was not told."""


class VmGuard:
    """Belongs to the loop's thread; files are read by another one."""

    def __init__(self, settings: Settings, files: HostFiles, call: RuntimeCall) -> None:
        self._call, self._checkpoint, self._resize = call, settings.relay.vm_checkpoint, settings.relay.vm_resize
        self._files, self._profiles = files, settings.sandboxes.profiles
        self._counts = Counter[str]()
        self._last = ""
        self._reading: asyncio.Future[Mapping[str, Handler]] | None = None
        checkpoints = CHECKPOINTS if self._checkpoint is OnError.REFUSE else ()
        resizes = RESIZES if self._resize is OnError.REFUSE else ()
        self.decider = VmCalls((*checkpoints, *resizes), self._why_not)

    def row(self) -> VmGuardRow:
        """How it does."""
        return VmGuardRow(self._checkpoint.value, self._resize.value, dict(self._counts), self._last)

    async def _why_not(self, asked: VmCall, within_s: float) -> str:
        """Why the call is refused. A fault of ours, too, lets it pass."""
        about = f"sandbox {asked.sandbox}" if asked.container is None else f"container {asked.container}"
        about, what = shown(about[:MOST_ID]), "checkpoint" if asked.resize is None else "resize"
        try:
            async with asyncio.timeout(within_s * SHARE):
                why = await self._found(asked)
        except Exception as error:
            self._counts["unknown"] += 1
            log.warning("%s=passes %s why=%r", what, about, str(error) or type(error).__name__)
            return ""
        if not why:
            self._counts["passed"] += 1
            return ""
        self._counts[f"{what}s refused"] += 1
        self._last = f"{about}: {why}"[:MOST_TEXT]
        log.info("%s=refused %s why=%r", what, about, why)
        return f"{what} of {about} refused: {why}" if asked.resize is None else why

    async def _found(self, asked: VmCall) -> str:
        if self._reading is None or self._reading.done():  # one at a time, however many calls wait for it
            self._reading = asyncio.get_running_loop().run_in_executor(None, self._read)
        handlers = await asyncio.shield(self._reading)
        if not handlers:
            return ""
        handler = handlers.get(await self._handler(asked))
        if handler is None:
            return ""
        if asked.resize is None:
            return fixed.why_no_checkpoint(handler)
        changes_size = fixed.resizes(handler)
        if changes_size is None:
            raise _UnknownError(f"whether VMs of {handler.name} have a fixed size: {handler.fault or handler.config}")
        if changes_size:
            return ""
        if asked.container is None:
            return fixed.why_no_resize(handler, None, asked.resize)
        status = await self._ask(asked, "ContainerStatus", mapping.status_of(asked.container))
        before = mapping.status_share(status)
        if before is None:
            raise _UnknownError("the resources of the container: the runtime's ContainerStatus has none")
        return fixed.why_no_resize(handler, before, asked.resize)

    def _read(self) -> Mapping[str, Handler]:
        return {one.name: one for one in read_handlers(self._files, self._profiles)}

    async def _handler(self, asked: VmCall) -> str:
        """The runtime handler of what is asked about, by the runtime's own lists."""
        sandbox = asked.sandbox
        if asked.container is not None:
            listed = await self._ask(asked, "ListContainers", mapping.home_asked(asked.container))
            sandbox = mapping.home_told(listed, asked.container)
        if sandbox is None:
            raise _UnknownError("the sandbox: the runtime has no such container")
        return await self._handler_of(asked, sandbox)

    async def _handler_of(self, asked: VmCall, sandbox: SandboxId) -> str:
        listed = await self._ask(asked, "ListPodSandbox", mapping.handler_asked(sandbox))
        handler = mapping.handler_told(listed, sandbox)
        if handler is None:
            raise _UnknownError("the runtime handler: the runtime has no such sandbox")
        return handler

    async def _ask(self, asked: VmCall, method: str, request: bytes) -> bytes:
        return await self._call(f"{asked.service}/{method}", request, ASK_S)
