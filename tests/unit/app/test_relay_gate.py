"""Gates in the relay without sockets: what is said of handlers, what observe does, and calls without a verdict."""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from nodeward.app.node.assemble import ensure_folder
from nodeward.app.relay.gate import RelayGate
from nodeward.doubles.kernel import SimKernel
from nodeward.edges.cri.gatekeeper import Gatekeeper
from nodeward.model.gate import GateAt, GateSettings
from nodeward.model.relayed import Call, Pass, Refuse, Verdict
from nodeward.model.settings import Mode, Settings
from nodeward.proto import cri_pb2 as cri
from nodeward.wire.errors import WireError

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
RUN = Call(1, 1, "/runtime.v1.RuntimeService/RunPodSandbox", 0, held=True)
ENFORCE = Settings(run_dir="/nowhere", gate=GateSettings(Mode.ENFORCE, {"kata": ("verdict",), "katta": ("key",)}))
OBSERVE = replace(ENFORCE, gate=replace(ENFORCE.gate, mode=Mode.OBSERVE))
CONFIG = "[plugins.{}.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n"


def asked(handler: str, uid: str = "u") -> bytes:
    made = cri.RunPodSandboxRequest(runtime_handler=handler)
    made.config.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", namespace="shop", uid=uid))
    return made.SerializeToString()


def decided(gate: RelayGate, message: bytes) -> Verdict:
    async def wait() -> Verdict:
        found = gate.decider.decide(RUN, message, 1_000_000_000)
        return found if isinstance(found, Verdict) else await found

    return asyncio.run(wait())


@pytest.mark.parametrize("plugin", ["'io.containerd.cri.v1.runtime'", "'io.containerd.grpc.v1.cri'", "cri"])
def test_a_handler_that_the_runtime_does_not_have_is_said(plugin: str, caplog: pytest.LogCaptureFixture) -> None:
    """In each version of containerd's file."""
    caplog.set_level(logging.WARNING)
    files = SimKernel({})
    ensure_folder(files, "/etc/containerd")
    files.replace("/etc/containerd/config.toml", CONFIG.format(plugin).encode())
    RelayGate(ENFORCE, files)
    assert [record.getMessage().partition(" why=")[0] for record in caplog.records] == [
        "gate=unknown-handler handler=katta"
    ]


def test_observe_lets_pass_what_enforce_refuses_from_the_next_settings_on() -> None:
    gate = RelayGate(OBSERVE, SimKernel({}))
    assert decided(gate, asked("kata")) == Pass()
    assert gate.decider.undecided(RUN, None, "too large", ending=False) == Pass()
    gate.settle(ENFORCE)
    assert isinstance(decided(gate, asked("kata")), Refuse)
    assert "tells no UID" in str(decided(gate, asked("kata", uid="")))
    assert decided(gate, asked("runc")) == Pass()
    assert gate.row().counts == {"would-refuse": 1, "refused": 2}


def test_a_call_without_a_verdict_passes_only_if_its_pod_is_known_to_have_no_gate() -> None:
    decider = RelayGate(ENFORCE, SimKernel({})).decider
    assert decider.undecided(RUN, asked("runc"), "the relay ends", ending=True) == Pass()
    for message in (asked("kata"), None, b"\x0a\xff"):
        refused = decider.undecided(RUN, message, "the relay ends", ending=True)
        assert isinstance(refused, Refuse)
        assert (refused.status, "the relay ends" in refused.text) == (14, True)


@pytest.mark.parametrize("told", ["", "other"])
def test_a_runtime_that_tells_of_no_such_sandbox_leaves_a_container_undecided(told: str) -> None:
    """Else its pod would have no handler, and so no gate."""

    async def status(path: str, request: bytes, within_s: float) -> bytes:
        return cri.PodSandboxStatusResponse(status=cri.PodSandboxStatus(id=told)).SerializeToString()

    async def wait() -> None:
        found = keeper.decide(replace(RUN, path=CREATE), made.SerializeToString(), 1_000_000_000)
        assert isinstance(found, Awaitable)
        await found

    keeper = Gatekeeper(lambda: GateAt.CONTAINER, lambda home, within_s: None, status, lambda home, why: why)
    made = cri.CreateContainerRequest(pod_sandbox_id="s1")
    with pytest.raises(WireError, match="no such sandbox"):
        asyncio.run(wait())
