"""`v1.Config` served by `cri-resmgr`, called by grpcio as CRI Resource Manager's agent calls it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from nodeward.contracts import resmgr_config_pb2 as pb
from nodeward.people import client
from tests.component.relay.rig import WAIT_S, client_of, running, runtime_at, socket_to, wait_for
from tests.peers.nriside import Record, member

STATIC = {"policy": "Active: static\nReservedResources: {CPU: 1}\n"}


@dataclass(frozen=True, slots=True)
class Relayed:
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "config.sock"

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        listen, runtime = self.folder / "cri.sock", self.folder / "runtime.sock"
        program = "from nodeward.cli.cri_resmgr.relay import main; main()"
        own = ("-relay-socket", str(listen), "-runtime-socket", str(runtime), "-config-socket", str(self.socket))
        environment = {f"NODEWARD_{name}_DIR": str(self.folder / name.lower()) for name in ("RUN", "STATE")}
        command, log = [sys.executable, "-c", program, *own, *options], self.folder / "relay.log"
        with running(command, log, self.socket.is_socket, {**os.environ, **environment}) as process:
            yield process
            process.kill()

    def set(self, config: dict[str, str]) -> str:
        request = pb.SetConfigRequest(node_name="n", config=config).SerializeToString()
        with client_of(self.socket) as channel:
            answer = channel.unary_unary("/v1.Config/SetConfig")(request, timeout=WAIT_S, wait_for_ready=True)
        return pb.SetConfigReply.FromString(answer).error

    def status(self) -> Record:
        """The picture of the daemon that runs beside the relay."""
        path = self.folder / "run" / "nodeward.sock"
        found: list[Record] = []

        def answers() -> bool:  # one that was killed leaves its socket
            with suppress(client.AwayError):
                found.append(json.loads(client.get("/v1/status", str(path))))
            return bool(found)

        wait_for(answers, "the daemon's answer")
        return found[0]

    def policy(self) -> object:
        return member(self.status(), "cpus", "policy")

    def faults(self) -> object:
        return member(self.status(), "settings", "faults")

    def has_fault(self, said: str) -> bool:
        """Whether that is among the faults; of an empty text, whether there is none."""
        return said in str(self.faults()) if said else self.faults() == []


@pytest.fixture(name="relay")
def _relay(tmp_path: Path) -> Iterator[Relayed]:
    with ExitStack() as stack:
        stack.enter_context(runtime_at(tmp_path / "runtime.sock"))
        yield Relayed(tmp_path)


def test_a_policy_is_pushed_kept_over_a_kill_and_taken_back_by_the_empty_configuration(relay: Relayed) -> None:
    with relay.running():
        assert relay.policy() == "none"
        assert relay.set(STATIC) == ""
        assert relay.policy() == "static"
    with relay.running():
        assert relay.policy() == "static", "the last one holds before any agent comes"
        assert relay.set({}) == ""
        assert relay.policy() == "none"


def test_a_sighup_of_the_relay_does_not_forget_which_policy_was_pushed(relay: Relayed) -> None:
    with relay.running("-disable-policy-switch") as process:
        assert relay.set(STATIC) == ""
        process.send_signal(signal.SIGHUP)
        log = relay.folder / "relay.log"
        wait_for(lambda: b"relay.reload settings=" in log.read_bytes(), "the relay to have read its settings")
        assert b"refused" not in log.read_bytes()
        assert (relay.folder / "state" / "cri-resmgr-policy").read_text() == "static\n"


def test_one_that_fitted_before_and_does_not_fit_the_machine_any_more_is_refused_again(relay: Relayed) -> None:
    """As after a start with fewer CPUs: what is kept is not in force, and the agent must not believe so."""
    large = {"policy": "Active: static\nReservedResources: {CPU: 'cpuset:1000'}\n"}
    (relay.folder / "state").mkdir()
    (relay.folder / "state" / "agent-config.json").write_text(json.dumps({"v": 1, "holds": large}))
    with relay.running():
        for _ in range(2):
            assert "1000" in relay.set(large)
        assert relay.set(STATIC) == ""
        assert relay.policy() == "static"


def test_a_bad_configuration_is_answered_with_every_fault_and_the_last_good_one_holds(relay: Relayed) -> None:
    with relay.running():
        assert relay.set(STATIC) == ""
        bad = {"policy": "Activ: static\nAvailableResources: {CPU: cpuset:zero}\n", "polcy": "", "dump": "Confg: on\n"}
        faults = relay.set(bad).splitlines()
        said = ("did you mean policy.Active?", "polcy is no module", "dump.Confg", "'cpuset:zero' is no amount")
        for named in said:
            assert any(named in fault for fault in faults), (named, faults)
        assert relay.policy() == "static"
        assert relay.faults() == faults
        assert relay.set(STATIC) == ""
        assert relay.faults() == []


BOMB = "a: &a [x, x]\n" + "".join(f"{to}: &{to} [*{of}, *{of}]\n" for of, to in pairwise("abcdefghijklmnop"))
NONE = {
    BOMB: "aliases",
    "Active: static\nActive: none\n": "stands here again",
    "[" * 40_000: "is no YAML",
    "- Active\n": "has no names with values",
    "Active: static\n": "policy.reserved: is not set",
    "Active: static\nReservedResources: {CPU: 'cpuset:1000'}\n": "1000",
    "Active: none\nReservedResources: {CPU: []}\n": "holds other values",
    f"Active: 0x{'f' * 9000}\n": "cannot be read",
    "Active: eda\n": "later",
    "#" * 60_000: "at most 49152",
}


def test_what_a_configmap_may_hold_and_no_configuration_is(relay: Relayed) -> None:
    with relay.running():
        for text, said in NONE.items():
            assert said in relay.set({"policy": text}), text[:40]
            assert relay.policy() == "none", text[:40]


def test_a_cluster_chooses_neither_a_file_nor_rules_that_cannot_be_read(relay: Relayed) -> None:
    """Else the next start of the relay would fail, or root write where the cluster wants."""
    with relay.running():
        assert relay.set({"dump": "Config: 'full:('\n"}).endswith("(pushed configuration)")
        assert relay.set(STATIC | {"dump": f"Config: off:.*\nFile: {relay.folder}/dump\n"}) == ""
        assert "a cluster names no file that root writes" in (relay.folder / "relay.log").read_text()
    with relay.running():
        assert relay.policy() == "static"
        assert not (relay.folder / "dump").exists()


def test_a_mebibyte_and_bytes_that_are_no_call_cost_their_connection_only(relay: Relayed) -> None:
    with relay.running():
        with pytest.raises(grpc.RpcError) as told:
            relay.set({"policy": "x" * 1024 * 1024})
        assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64):
            with socket_to(relay.socket) as peer:
                peer.sendall(garbage)
                while peer.recv(4096):
                    pass
        assert relay.set(STATIC) == ""
        assert oct(relay.socket.stat().st_mode & 0o777) == "0o600"


def test_a_forced_file_serves_no_config_socket_and_a_fallback_holds_until_the_first_push(relay: Relayed) -> None:
    file = relay.folder / "own.yaml"
    file.write_text("policy: {Active: static-plus, ReservedResources: {CPU: 1}}\n")
    with relay.running("-fallback-config", str(file)):
        assert relay.policy() == "static-plus"
        assert relay.set(STATIC) == ""
    with relay.running("-fallback-config", str(file), "-disable-policy-switch"):
        assert relay.policy() == "static"
        assert "the last one was static" in relay.set({"policy": "Active: none\n"})


def test_a_fallback_that_breaks_or_is_mended_is_heard_at_the_chosen_signal_and_a_push_takes_its_place(
    relay: Relayed,
) -> None:
    file, good = relay.folder / "own.yaml", "policy: {Active: static, ReservedResources: {CPU: 1}}\n"
    steps = (
        ("policy: {Active: eda}\n", "none", "'eda' comes with a later version"),
        (good, "static", ""),
        ("policy: {Activ: none}\n", "static", "did you mean policy.Active?"),
        (good, "static", ""),
    )
    file.write_text("policy: {Active: memtier}\n")
    with relay.running("-fallback-config", str(file), "-force-config-signal", "SIGUSR2") as process:
        assert relay.policy() == "none", "kubelet has its runtime all the same"
        assert "'memtier' comes with a later version" in str(relay.faults())
        for text, policy, said in steps:
            file.write_text(text)
            process.send_signal(signal.SIGUSR2)
            wait_for(partial(relay.has_fault, said), f"the faults of {text}")
            assert relay.policy() == policy, text
        file.write_text("policy: {Active: eda}\n")
        process.send_signal(signal.SIGUSR2)
        wait_for(partial(relay.has_fault, "'eda' comes with a later version"), "the fault")
        assert relay.set({"policy": "Active: static-plus\nReservedResources: {CPU: 1}\n"}) == ""
        assert (relay.policy(), relay.faults()) == ("static-plus", [])
