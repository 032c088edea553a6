"""Finds out whether this node's OCI runtimes accept `misc.max` of several lines (`nri.multi_line`).

An operator's word holds where none is seen. One that is there has to tell that it is new enough: with lines that it
refuses each container of two limits would fail, and with one line none does, since the rest is written directly. The
facts are doctor's, and so is what they mean.

Must not: join lines where nobody asked for it, or hold anybody up for longer than LOOK_S.
"""

import asyncio
import logging

from nodeward.features.limits.rows import LinesRow
from nodeward.features.settings import Settings
from nodeward.host.hostfs import HostFiles

log = logging.getLogger(__name__)
LOOK_S = 3.0
"""A program tells its version in some ten milliseconds. containerd waits five seconds for a plugin that it has started
to register, our own start among them; who is slower than this is taken for one that cannot tell."""


class OciRuntimes:
    """What was found of them when it was last asked."""

    def __init__(self, settings: Settings, files: HostFiles) -> None:
        self._wanted, self._files = settings.nri.multi_line, files
        self.row = LinesRow()

    async def joins(self) -> bool:
        """Looks, by another thread, and says whether several lines may be given now."""
        if not self._wanted:
            return False
        looking = asyncio.get_running_loop().run_in_executor(None, self._look)
        try:
            row = await asyncio.wait_for(looking, LOOK_S)
        except TimeoutError:
            row = LinesRow("held", f"the OCI runtimes did not tell their versions within {LOOK_S:g} s")
        except OSError as error:
            row = LinesRow("held", f"the OCI runtimes could not be looked for: {error}")
        if row != self.row:
            self.row = row
            log.log(logging.INFO if row.state == "on" else logging.WARNING, "%s", row.text)
        return row.state != "held"

    def _look(self) -> LinesRow:
        from nodeward.people.doctor import machine as probes  # only where they are asked for
        from nodeward.people.doctor.findings import lines

        return lines(probes.programs(self._files, probes.said_by, probes.OCI))
