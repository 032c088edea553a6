"""Writes the files that the OCI hook goes by while no daemon answers.

Beside the hook's socket: `pods/UID.json` and `hook.json` (`features.limits.hook_file`). Written whole, soon after a pod
is known, on the disk lane; a pod's file goes when the pod is no longer known. Files of an earlier daemon stay while the
API server is away, since their containers may be restarted meanwhile.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from nodeward.core.workload import PodSpec, PodUid
from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings
from nodeward.features.pods.state import KnownSpec
from nodeward.features.root import State
from nodeward.host.clock import Clock
from nodeward.host.hostfs import HostFiles, ensure_folder
from nodeward.host.lanes import Lane
from nodeward.host.state_file import OneWriter

log = logging.getLogger(__name__)
EVERY_S = 0.1
"""How late a file may be: a pod's first container comes later, after its image."""


@dataclass(slots=True)
class Keeper:
    """What lies in the folder. Synchronous; belongs to one lane."""

    files: HostFiles
    folder: str
    rule: LimitsSettings | None = None
    pods: dict[str, PodSpec | None] | None = None
    """What each file in the folder says; None for one that an earlier daemon has left."""
    writer: OneWriter = field(default_factory=OneWriter)

    def bring(self, rule: LimitsSettings, specs: Mapping[PodUid, KnownSpec], complete: bool) -> None:
        """Writes what differs. `complete`: a pod that is not in `specs` does not exist. OSError: tried again later."""
        with self.writer.writes(self.folder):
            self._bring(rule, specs, complete)

    def _bring(self, rule: LimitsSettings, specs: Mapping[PodUid, KnownSpec], complete: bool) -> None:
        if self.pods is None:
            self.pods = self._found()
        if rule != self.rule:
            self.files.replace(f"{self.folder}/{hook_file.RULE}", hook_file.encode_rule(rule))
            self.rule = rule
        wanted = {hook_file.name_of(uid): replace(known.spec, uid=uid) for uid, known in specs.items()}
        wanted.pop("", None)
        for name, spec in wanted.items():
            if self.pods.get(name) != spec:
                self._write(name, spec)
                self.pods[name] = spec
        if complete:
            for name in [name for name in self.pods if name not in wanted]:
                self.files.unlink(f"{self.folder}/{name}")
                del self.pods[name]

    def _write(self, name: str, spec: PodSpec) -> None:
        data = hook_file.encode_pod(spec)
        if len(data) > hook_file.MAX_BYTES:
            log.warning("hook-file=not-written pod=%s/%s bytes=%d", spec.namespace, spec.name, len(data))
            return
        self.files.replace(f"{self.folder}/{name}", data)

    def _found(self) -> dict[str, PodSpec | None]:
        ensure_folder(self.files, f"{self.folder}/{hook_file.FOLDER}")
        names = self.files.listdir(f"{self.folder}/{hook_file.FOLDER}")
        return {f"{hook_file.FOLDER}/{name}": None for name in names if name.endswith(".json")}


async def keep(state: Callable[[], State], files: HostFiles, lane: Lane, folder: str, clock: Clock) -> None:
    """Keeps the files until cancelled, off the loop; they stay when the daemon ends, which is what they are for."""
    keeper = Keeper(files, folder)
    done: tuple[object, object, bool] | None = None
    busy = failing = False

    def landed(what: tuple[object, object, bool], result: object) -> None:
        nonlocal keeper, done, busy, failing
        busy = False
        if not isinstance(result, BaseException):
            done, failing = what, False
            return
        keeper = Keeper(files, folder, writer=keeper.writer)  # a job that was given up may still have the old one
        if not failing:
            failing = True
            log.warning("hook-files=not-written folder=%s error=%s", folder, result)

    while True:
        now = state()
        rule, specs, complete = now.settings.limits, now.pods.specs, now.pods.api_up
        what = (rule, specs, complete)
        if not busy and (done is None or done[0] is not rule or done[1] is not specs or done[2] != complete):
            busy = lane.submit("hook files", partial(keeper.bring, rule, specs, complete), partial(landed, what))
        await clock.sleep(EVERY_S)
