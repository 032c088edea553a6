"""Gates at the relay: pods that wait for a verdict, and what becomes of them where no daemon answers as it should.

Kubelet and runtime are grpcio's; the daemon is the real one, or a socket in its place.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import cri_pb2 as cri
from tests.component.relay import rig
from tests.component.relay.test_limits import call, create, got, kernel, runtime
from tests.component.relay.test_sizing import run as run_pod

HANDLERS = "handlers: {kata: [verdict]}"


@contextmanager
def node(folder: Path, gate: str = HANDLERS, *flags: str) -> Iterator[tuple[Path, rig.Runtime]]:
    """A relay that holds pods with a gate. `flags`: those of `test_limits.kernel`, whose settings it and a daemon have
    then too."""
    settings = folder / "nodeward.yaml"
    before = settings.read_text() if flags else f"run_dir: {folder}/run\n"
    settings.write_text(f"{before}gate: {{mode: enforce, {gate}}}\n")
    words = flags or ("--config", str(settings))
    with rig.relayed(folder, *words, behave=of_kata) as (listen, made, _):
        yield listen, made


@contextmanager
def deciding(folder: Path, listen: Path) -> Iterator[None]:
    """A daemon that decides, and whose Pod API takes verdicts."""
    with rig.node_process(folder, "--set", "podapi.enabled=true", "--set", f"podapi.uids=[{os.getuid()}]"):
        rig.decided_by(listen)
        rig.wait_for((folder / "run" / "podapi.sock").is_socket, "the Pod API")
        yield


def set_gate(listen: Path, *verdict: str) -> str:
    told = rig.people(listen, "pod", "gate", "default/pod", *verdict, socket="podapi.sock")
    return told.stdout + told.stderr


def of_kata(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    if name != "PodSandboxStatus":
        return runtime(name, request, context)
    told = cri.PodSandboxStatusResponse()
    told.status.id, told.status.runtime_handler = "s1", "kata"
    told.status.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="u", namespace="default"))
    return told.SerializeToString()


def refused(listen: Path, name: str = "RunPodSandbox", request: bytes = run_pod()) -> str:
    with rig.client_of(listen) as channel, pytest.raises(grpc.RpcError) as caught:
        call(channel, name, request)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


def passes(listen: Path, name: str = "RunPodSandbox", request: bytes = run_pod()) -> None:
    with rig.client_of(listen) as channel:
        call(channel, name, request)


def tries(listen: Path) -> None:
    while True:
        with suppress(grpc.RpcError):
            return passes(listen)


def test_a_pod_waits_at_its_gate_until_somebody_says_pass_or_deny(tmp_path: Path) -> None:
    flags = kernel(tmp_path)
    with node(tmp_path, f"{HANDLERS}, uids: [{os.getuid()}]", *flags) as (listen, made):
        with deciding(tmp_path, listen):
            passes(listen, request=run_pod("runc"))
            made.got.clear()
            waiting = threading.Thread(target=tries, args=(listen,))
            waiting.start()
            rig.wait_for(lambda: "1 shut" in rig.people(listen, "status").stdout, "the pod at its gate")
            why = rig.people(listen, "explain", "default/pod").stdout
            assert "gate of default/pod: shut: verdict: no verdict was set yet" in why
            assert not [name for name, _ in made.got if name == "RunPodSandbox"]
            assert set_gate(listen, "--pass", "--expires", "10m") == "default/pod (uid u): PASSED\n"
            waiting.join(rig.WAIT_S)
            assert got(made, "RunPodSandbox") == run_pod()
            assert set_gate(listen, "--deny", "another image") == "default/pod (uid u): DENIED\n"
        with deciding(tmp_path, listen):
            assert "verdict: DENIED (another image), which is final" in refused(listen)
            assert "DENIED, which is final" in set_gate(listen, "--pass")
            shown = rig.people(listen, "status").stdout
            assert "gates: mode enforce, 1 refused" in shown
            assert "last: default/pod: its gate is shut: verdict: DENIED" in shown
        assert "its gate is shut: nobody could be asked (no node daemon is at" in refused(listen)
        passes(listen, request=run_pod("runc"))


def test_a_daemon_whose_gates_are_off_decides_nothing_for_a_relay_that_has_some(tmp_path: Path) -> None:
    """Else a pod with a gate would start, since the daemon says nothing against it."""
    with node(tmp_path) as (listen, made):
        (tmp_path / "nodeward.yaml").write_text(
            f"run_dir: {tmp_path}/run\nstate_dir: {tmp_path}/state\ncgroups: {{root: {tmp_path}}}\n"
            "nri: {enabled: false}\nkube: {enabled: false}\nrelay: {limits: true}\n"
        )
        with rig.node_process(tmp_path):
            assert "gate.mode is off in the node daemon: give it and the relay the same settings" in refused(listen)
            assert not made.got
            shown = rig.people(listen, "status").stdout
    assert "calls are held for gate, and nobody decides them: " in shown


def test_containers_are_held_by_what_the_runtime_tells_of_their_sandbox(tmp_path: Path) -> None:
    """And have their limit once the gate is open; without a daemon the relay asks the runtime for the handler."""
    flags = kernel(tmp_path)
    gate = f"{HANDLERS}, at: container, wait_s: 0.1, uids: [{os.getuid()}]"
    with node(tmp_path, gate, *flags) as (listen, made):
        passes(listen)
        assert "nobody could be asked" in refused(listen, "CreateContainer", create())
        assert [name for name, _ in made.got].count("PodSandboxStatus") == 1
        with deciding(tmp_path, listen):
            assert "no verdict was set yet" in refused(listen, "CreateContainer", create())
            assert not [name for name, _ in made.got if name == "CreateContainer"]
            assert set_gate(listen, "--pass") == "default/pod (uid u): PASSED\n"
            passes(listen, "CreateContainer", create())
            assert got(made, "CreateContainer").startswith(create())
            assert got(made, "CreateContainer") != create(), "it has its limit"
            assert [name for name, _ in made.got].count("PodSandboxStatus") == 2
