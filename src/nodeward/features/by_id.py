"""What runs for a feature that offers kubelet ids: a device plugin for each resource, and its end for good."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.features.wiring import Component, Note, Withdraw
from nodeward.host.clock import Clock
from nodeward.host.lanes import ThreadLane
from nodeward.host.runner import Core
from nodeward.host.slots import ByEdge
from nodeward.neighbours.kubelet.checkpoint import CheckpointFile
from nodeward.neighbours.kubelet.folder import Folder, Offering
from nodeward.neighbours.kubelet.plugin import Plugin


def plugins(
    offerings: Sequence[Offering],
    settings: Settings,
    offers: ByEdge,
    core: Core[State],
    lane: Callable[[], ThreadLane],
    clock: Clock,
    checkpoint: CheckpointFile,
    note: Note,
) -> tuple[list[Component], Withdraw]:
    """The plugin of each, by its goals in `offers`, each a component of its own; and how all are withdrawn."""

    def plugin(one: Offering) -> Plugin:
        folder = Folder(settings.keys.kubelet_dir, settings.keys.root, one, checkpoint)
        return Plugin(one, folder, offers, core.ask, core.tell, clock, partial(note, f"device-plugin-{one.key}"))

    every = {f"device-plugin-{one.key}": plugin(one) for one in offerings}

    async def offer(one: Plugin) -> None:
        looking = lane()
        try:
            await one.run(looking, random.random)
        finally:
            looking.close(0.0)

    async def withdraw() -> tuple[str, ...]:
        return tuple(await asyncio.gather(*(one.withdraw() for one in every.values())))

    return [(name, partial(offer, one)) for name, one in every.items()], withdraw
