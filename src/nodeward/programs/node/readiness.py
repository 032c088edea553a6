"""Says whether the daemon is ready: synchronised with each source that the settings choose.

Listens to what edges tell the core, and keeps of it the last word of each source. Questions of the runtime do not pass
here, so readiness costs a create nothing. Must not decide anything about pods.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from nodeward.core import events as ev
from nodeward.core.modes import Mode
from nodeward.core.ports import Tell
from nodeward.features.keys.sums import is_tracked
from nodeward.features.root import SettingsChanged
from nodeward.features.settings import EngineSettings, Settings
from nodeward.host import sd_notify
from nodeward.host.clock import Clock
from nodeward.people.rows import ComponentRow

log = logging.getLogger(__name__)
FRESH_PERIODS = 2.5
PATIENCE_S = 30.0
BEFORE_KUBELET = ("nri", "cgroups")
"""What systemd waits for. Not the API server: kubelet, which starts after us, may be what starts it."""


@dataclass(slots=True)
class _Source:
    ready: bool = False
    detail: str = "not reached yet"
    since_wall_ns: int = 0
    needed: bool = True


class Readiness:
    """The last word of each source."""

    def __init__(self, settings: Settings, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called whenever a source becomes ready or ceases to be."""
        self._clock, self._changed = clock, changed
        self._period_s = settings.cgroups.period_s
        self._sources = {"cgroups": _Source(detail="no sample yet")}
        self._door = "nri" if settings.nri.enabled else "relay"
        """By which door the runtime tells of pods."""
        if settings.nri.enabled or "containers" in settings.relayed:
            self._sources[self._door] = _Source(detail="not connected yet")
        if settings.kube.enabled:
            self._sources["kube"] = _Source()
        for name, is_served in (
            ("hook", settings.hook.enabled),
            ("podapi", settings.podapi.enabled),
            ("relay-door", bool(settings.relayed)),
            ("podapi-grpc", settings.podapi.enabled),
            ("cold-plug", settings.cold_plug.enabled),
        ):
            if is_served:
                self._sources[name] = _Source(detail="no socket yet")
        offered = settings.keys.kinds.items() if settings.keys.mode is not Mode.OFF else ()
        for key, row in offered:
            if is_tracked(row):  # ready unless its server was ended: kubelet may be what starts us
                self._sources[f"device-plugin-{key}"] = _Source(ready=True, detail="nothing is offered yet")
        if settings.metrics.enabled:
            self._sources["metrics"] = _Source(detail="not served yet", needed=_only_watches(settings.engine))
        if settings.policy_objects.enabled:
            self._sources["policy-objects"] = _Source(needed=False)
        if settings.topology_objects.enabled:
            self._sources["topology-object"] = _Source(needed=False)
        if settings.limits.node_epc:
            self._sources["node-epc"] = _Source(needed=False)
        if settings.cpus.kubevirt_label:
            self._sources["kubevirt-label"] = _Source(needed=False)
        self._answers = self._listed = False
        self._runtime = self._fault = ""
        self._sampled_ns = 0

    def listens(self, tell: Tell) -> Tell:
        """`tell`, overheard."""

        def told(event: ev.Event) -> int:
            if isinstance(event, _OF_INTEREST):
                self._heard(event)
            return tell(event)

        return told

    def rows(self) -> tuple[ComponentRow, ...]:
        """Each source as it is now."""
        self._age()
        return tuple(
            ComponentRow(name, source.ready, source.detail, source.since_wall_ns, source.needed)
            for name, source in self._sources.items()
        )

    def note(self, name: str, ready: bool, detail: str) -> None:
        """Notes the state of a source that sends no events: a socket of ours."""
        self._set(name, ready, detail)

    @property
    def sample_age_ms(self) -> int | None:
        """Since the kernel's files were last read; None before the first time."""
        return (self._clock.now_ns() - self._sampled_ns) // 1_000_000 if self._sampled_ns else None

    @property
    def ready(self) -> bool:
        """Whether all are that have to be."""
        return not self.waiting(tuple(name for name, source in self._sources.items() if source.needed))

    def waiting(self, names: tuple[str, ...]) -> list[str]:
        """Those of `names` that are chosen and not ready."""
        self._age()
        return [name for name in names if name in self._sources and not self._sources[name].ready]

    def _heard(self, event: ev.Event) -> None:
        match event:
            case ev.Sampled():
                self._sampled_ns = self._clock.now_ns()
                self._set("cgroups", not self._fault, self._fault or "sampled")
            case ev.CapacityRead():
                self._fault = event.tree.fault
            case SettingsChanged():
                if "metrics" in self._sources:
                    self._sources["metrics"].needed = _only_watches(event.settings)
            case ev.RuntimeConnected():
                nri = f", NRI {event.nri_version}" if event.nri_version else ""
                self._runtime = f"{event.name} {event.version}".strip() + nri
                self._set(self._door, False, f"connected to {self._runtime}, not synchronised yet")
            case ev.Listed():
                self._set(self._door, True, f"synchronised with {self._runtime}")
            case ev.RuntimeLost():
                self._set(self._door, False, f"lost: {event.why}")
            case ev.PodsListed():
                self._listed = True
                self._api("listed, watching")
            case ev.ApiBack():
                self._answers = True
                self._api("listed, watching" if self._listed else "answers, not listed yet")
            case ev.ApiLost():
                self._answers = False
                self._api(f"stale: {event.why}" if self._listed else f"not reached yet: {event.why}")

    def _api(self, detail: str) -> None:
        self._set("kube", self._answers and self._listed, detail)

    def _age(self) -> None:
        """A sampler that tells nothing is not heard of by an event."""
        age_s = (self._clock.now_ns() - self._sampled_ns) / 1e9
        if self._sources["cgroups"].ready and age_s > self._period_s * FRESH_PERIODS:
            self._set("cgroups", False, f"not sampled for more than {FRESH_PERIODS} periods")

    def _set(self, name: str, ready: bool, detail: str) -> None:
        source = self._sources.get(name)
        if source is None:
            return
        source.detail = detail
        if source.ready is ready and source.since_wall_ns:
            return
        source.ready, source.since_wall_ns = ready, self._clock.wall_ns()
        log.info("component=%s ready=%s detail=%r", name, "yes" if ready else "no", detail)
        self._changed()


def _only_watches(settings: EngineSettings) -> bool:
    """Whether metrics are what the daemon is for: limits and keys that are enforced hold without them."""
    return Mode.ENFORCE not in (settings.limits.mode, settings.keys.mode)


_OF_INTEREST = (
    ev.CapacityRead, ev.Sampled, ev.RuntimeConnected, ev.RuntimeLost, ev.Listed, ev.PodsListed, ev.ApiBack, ev.ApiLost,
    SettingsChanged,
)  # fmt: skip


async def tell_systemd(systemd: sd_notify.Notifier, readiness: Readiness, changed: asyncio.Event) -> None:
    """READY=1 once runtime and kernel are synchronised, or after PATIENCE_S without them, since a unit that never
    becomes ready is killed; then STATUS= with every change."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while readiness.waiting(BEFORE_KUBELET):
                await changed.wait()
                changed.clear()
    systemd.tell(sd_notify.READY)
    while True:
        systemd.status(_sentence(readiness))
        await changed.wait()
        changed.clear()


def _sentence(readiness: Readiness) -> str:
    not_ready = [f"{row.name} ({row.detail})" for row in readiness.rows() if not row.ready]
    return f"not ready: {', '.join(not_ready)}" if not_ready else "ready"
