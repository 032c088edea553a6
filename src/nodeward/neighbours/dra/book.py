"""The claims that are prepared, on disk before kubelet is answered, so that the promises outlive this process.

`<run_dir>/claims-<driver>` holds them whole. What it does not say kubelet may know: its checkpoint names every claim
that it has prepared, and the API server what each of them has. So after a loss, or where the file cannot be understood,
the claims are read from there; until that is done nothing is promised. The file is void after a boot: kubelet then asks
for every claim anew before a pod starts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from nodeward.core.claims import Claim, ClaimUid, Promised
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.events import ClaimsRecalled
from nodeward.host.hostfs import HostFiles
from nodeward.host.lanes import Lane, done_on
from nodeward.host.state_file import StateFile
from nodeward.host.undo import boot_id
from nodeward.neighbours.formats import kubelet_claims
from nodeward.neighbours.formats.kubelet_claims import KubeletClaim

log = logging.getLogger(__name__)
MAX_BYTES = 4 * 1024 * 1024
Read = Callable[[str, str], Awaitable[Claim | None]]
"""The claim of this namespace and name as the API server has it, None where there is none or nothing is allocated."""


class Book:
    """The claims of one driver on disk. `now` is what has been promised."""

    def __init__(
        self,
        driver: str,
        files: HostFiles,
        run_dir: str,
        root: str,
        lane: Lane,
        now: Callable[[], Mapping[ClaimUid, Promised]],
    ) -> None:
        self._driver, self._files, self._lane, self._now = driver, files, lane, now
        self._kind = StateFile(f"claims-{driver}", tuple[str, tuple[Promised, ...]], "claims", MAX_BYTES)
        self._writer, self._run_dir = self._kind.writer(files, run_dir), run_dir
        self._kubelets = f"{root.rstrip('/')}/{kubelet_claims.PLACE}"
        self._boot, self._lock = "", asyncio.Lock()
        self._there: tuple[str, tuple[Promised, ...]] | None = None

    async def recall(self, read: Read) -> ClaimsRecalled:
        """What was prepared before, as far as it is known again; with a fault it is to be tried later."""
        try:
            self._boot = await done_on(self._lane, "claims", partial(boot_id, self._files))
        except Exception as error:
            return ClaimsRecalled(self._driver, fault=f"the boot's id cannot be read: {error}")
        known, torn = await self._of_file()
        theirs, unread = await self._of_kubelet()
        if (torn or known is None) and unread:
            return ClaimsRecalled(self._driver, fault=f"{torn or f'{self._writer.path} is not there'}, and {unread}")
        if torn and theirs is None:
            why = (
                f"{torn}, and {self._kubelets} is not to be seen: let this node's pods with claims end, then remove it"
            )
            return ClaimsRecalled(self._driver, fault=why)
        if torn or unread:
            log.warning("claims=partly-known driver=%s why=%r", self._driver, torn or unread)
        mine, named = [str(one.uid) for one in known or ()], [one.uid for one in theirs or ()]
        adopted, left, title = list[Claim](), list[Promised](), ""
        try:
            for one in theirs or ():
                if self._driver in one.drivers and one.uid not in mine:
                    title = one.title
                    claim = await read(one.namespace, one.name)
                    adopted += [claim] if claim is not None and claim.uid == one.uid else []
            for of in known or ():
                if theirs is not None and of.uid not in named:
                    title = of.title
                    claim = await read(of.namespace, of.name)
                    if claim is None or claim.uid != of.uid:
                        continue  # neither kubelet nor the API server has it any more
                left.append(of)
        except NodewardError as error:
            why = f"kubelet and our record differ about {title}, and what it has been given cannot be read: {error}"
            return ClaimsRecalled(self._driver, fault=why)
        return ClaimsRecalled(self._driver, tuple(left), tuple(adopted))

    async def write(self) -> str:
        """Puts what is promised now on record; why that could not be, or nothing. A write that began after a promise
        has it."""
        async with self._lock:
            whole = self._boot, tuple(self._now().values())
            if whole == self._there:
                return ""
            try:
                await done_on(self._lane, "claims", partial(self._writer.replace, whole))
            except Exception as error:
                self._there = None
                return f"{self._writer.path} cannot be written: {error}"
            self._there = whole
            return ""

    async def _of_file(self) -> tuple[tuple[Promised, ...] | None, str]:
        """What our file says, None where there is none of this boot; and why it cannot be understood."""
        try:
            found = await done_on(self._lane, "claims", partial(self._kind.read, self._files, self._run_dir))
        except Exception as error:
            return None, f"{self._writer.path} cannot be understood: {error}"
        return (found[1], "") if found is not None and found[0] == self._boot else (None, "")

    async def _of_kubelet(self) -> tuple[tuple[KubeletClaim, ...] | None, str]:
        """What kubelet's checkpoint says, None where there is none to be seen; and why it cannot be read."""
        read = partial(self._files.read, self._kubelets, kubelet_claims.MAX_BYTES)
        try:
            return kubelet_claims.decode(await done_on(self._lane, "claims", read)), ""
        except FileNotFoundError:
            return None, ""
        except WireError as error:
            return (), f"{self._kubelets}: {error.fault}"
        except Exception as error:
            return (), f"{self._kubelets} cannot be read: {error}"
