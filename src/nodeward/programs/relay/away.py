"""What becomes of held calls that no daemon decides: each feature's `on_error`, by the relay's own settings.

Promises: a pod with a gate is refused while gates are enforced, and so is a call of which it cannot be told whether its
pod has one. With `refuse`, static pods and Nodeward's own go on in any case: a node could not come back, since the
daemon's pod is started through this relay. Must not decide anything else.
"""

import contextlib
import logging
from collections.abc import Callable, Container
from functools import partial
from typing import Final

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.errors import WireError
from nodeward.core.gating import gated, refusal
from nodeward.core.modes import Mode, OnError
from nodeward.core.text import printable_name
from nodeward.core.workload import Sandbox
from nodeward.features.cpus.settings import Driver
from nodeward.features.settings import Settings
from nodeward.neighbours.cri.calls import Call, Pass, Refuse, Verdict
from nodeward.neighbours.cri.methods import HELD, STARTS, paths
from nodeward.neighbours.cri.sandbox_calls import CHECKPOINTS, GATED, RESIZES, RUNS, STATUS_S, Homes
from nodeward.neighbours.formats.protobuf import read
from nodeward.neighbours.sockets import unary_client
from nodeward.neighbours.sockets.unary_client import CallFailedError

INTERNAL: Final = 13
UNAVAILABLE: Final = 14
"""gRPC's statuses. Kubelet tries again after either."""
SOURCE: Final = "kubernetes.io/config.source"
"""Kubelet writes it over whatever a pod says: `file` and `http` are static pods (pkg/kubelet/config/config.go)."""
STATIC: Final = ("file", "http")
MOST_TEXT: Final = 1000
log = logging.getLogger(__name__)


def held(settings: Settings) -> Container[str]:
    """The paths of calls that are held, by the features that want it."""
    wanted, found = settings.relayed, dict[str, str]()
    if "containers" in wanted:
        found |= HELD if settings.cpus.driver is Driver.NRI else HELD | STARTS
    if "sizing" in wanted:
        found |= RUNS
    if "gate" in wanted:
        found |= GATED[settings.gate.at]
    if "checkpoints" in wanted:
        found |= paths(*CHECKPOINTS)
    if "resizes" in wanted:
        found |= paths(*RESIZES)
    return found


class Rules:
    """`neighbours.cri.asks.Away`. Belongs to the loop's thread."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """`settings`: those that hold now."""
        self._settings = settings
        self._homes = Homes(partial(unary_client.call, settings().relay.runtime))

    async def learn(self, call: Call, message: bytes, within_s: float) -> None:
        """Asks the runtime for the sandbox of a container that may have a gate."""
        if not self._is_gated(call.path):
            return
        with contextlib.suppress(OSError, TimeoutError, CallFailedError, WireError):
            if self._homes.known(call.path, message) is None:
                await self._homes.asked(call.path, message, min(STATUS_S, within_s))

    def undecided(self, call: Call, message: bytes | None, why: str, ending: bool) -> Verdict:
        """As `Decider.undecided`."""
        if self._is_gated(call.path) and (text := self._shut(call, message, why)):
            log.info("gate=refused why=%r", text[:MOST_TEXT])
            return Refuse(UNAVAILABLE, text)
        if call.path not in HELD:
            return Pass()
        who = _who(call, message)
        if ending:
            what = "Nodeward's relay ends before this request is decided. Try again: the next relay decides"
            return Refuse(UNAVAILABLE, f"{who}: {what}")
        rule = self._refuses()
        if not rule or self._goes_on(call, message):
            return Pass()
        return Refuse(INTERNAL, f"{who}: Nodeward could not decide this request ({why}), and {rule} is refuse")

    def _is_gated(self, path: str) -> bool:
        rule = self._settings().gate
        return rule.mode is Mode.ENFORCE and path in GATED[rule.at]

    def _shut(self, call: Call, message: bytes | None, why: str) -> str:
        """Why the pod's gate counts as shut; empty for a pod that has none."""
        home: Sandbox | None = None
        with contextlib.suppress(WireError):
            home = self._homes.known(call.path, message) if message is not None else None
        if home is None:
            return f"whether this pod has a gate cannot be told ({why}), and gate.mode is enforce. It is tried again"
        names = home.pod_uid, home.namespace, home.name
        pod = gated(self._settings().gate.handlers, home.handler, home.annotations, names)
        return "" if pod is None else refusal(pod, f"nobody could be asked ({why})")

    def _refuses(self) -> str:
        """The setting by which what cannot be decided is refused; empty where it goes on."""
        now = self._settings()
        limits, cpus = now.limits, now.cpus
        if now.relay.limits and limits.on_error is OnError.REFUSE and limits.mode is Mode.ENFORCE:
            return "limits.on_error"
        pins = now.pins_by(Driver.RELAY) or (bool(now.agent.config_socket) and cpus.driver is Driver.RELAY)
        if pins and cpus.on_error is OnError.REFUSE and cpus.mode is Mode.ENFORCE:
            return "cpus.on_error"
        return ""

    def _goes_on(self, call: Call, message: bytes | None) -> bool:
        """Whether it is a container without which a node may not come back."""
        home = _home(call, message)
        if home is None:
            return False
        static = home.annotations.get(SOURCE, "") in STATIC
        own = home.metadata.namespace == self._settings().relay.own_namespace
        if static or own:
            which = "static" if static else "Nodeward's own"
            log.warning("undecided=passes pod=%s why='it is %s'", printable_name(home.metadata.name), which)
        return static or own


def _home(call: Call, message: bytes | None) -> cri.PodSandboxConfig | None:
    """The pod that a create is for, as its client describes it."""
    if message is None or HELD[call.path] != "CreateContainer":
        return None
    with contextlib.suppress(WireError):
        return read("cri", cri.CreateContainerRequest, message).sandbox_config
    return None


def _who(call: Call, message: bytes | None) -> str:
    """Which container it is about, as far as that can be read."""
    with contextlib.suppress(WireError):
        if message is not None and HELD[call.path] == "CreateContainer":
            made = read("cri", cri.CreateContainerRequest, message)
            pod, name = made.sandbox_config.metadata, printable_name(made.config.metadata.name)
            return f"{printable_name(pod.namespace)}/{printable_name(pod.name)}, container {name}"
        if message is not None:
            updated = read("cri", cri.UpdateContainerResourcesRequest, message).container_id
            return f"container {printable_name(updated)[:64]}"
    return HELD[call.path]
