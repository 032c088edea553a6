"""`v1.Config` served by `nodeward node`, where CPUs are given by NRI, called by grpcio."""

from __future__ import annotations

from pathlib import Path

from nodeward.proto import resmgr_config_pb2 as pb
from tests.component.relay.rig import WAIT_S, client_of
from tests.peers.daemon import Daemon, daemon, until
from tests.peers.nriside import member


def push(path: Path, policy: str) -> str:
    """What is wrong with it, by the daemon's answer."""
    request = pb.SetConfigRequest(node_name="n", config={"policy": policy}).SerializeToString()
    with client_of(path) as channel:
        answer = channel.unary_unary("/v1.Config/SetConfig")(request, timeout=WAIT_S, wait_for_ready=True)
    return pb.SetConfigReply.FromString(answer).error


def policy(node: Daemon) -> object:
    return member(node.shown(), "cpus", "policy")


def test_a_daemon_takes_a_policy_refuses_what_does_not_fit_and_keeps_the_last_good_one(tmp_path: Path) -> None:
    path = tmp_path / "config.sock"
    more = f"agent: {{config_socket: {path}}}", "policy: {active: static-plus, reserved: 1}"
    with daemon(tmp_path / "nri.sock", tmp_path, *more) as node:
        until(path.is_socket, "config socket")
        assert policy(node) == "static-plus"
        assert push(path, "Active: static\nReservedResources: {CPU: 1}\n") == ""
        assert policy(node) == "static"
        assert "1000" in push(path, "Active: static\nReservedResources: {CPU: 'cpuset:1000'}\n")
        assert "did you mean policy.Active?" in push(path, "Activ: static\n")
        assert policy(node) == "static"
        assert node.process is not None
        node.process.kill()
        node.process.wait(WAIT_S)
        node.start()
        until(lambda: policy(node) is not None, "the next life")
        assert policy(node) == "static"
        assert push(path, "") == ""
        assert policy(node) == "none", "the section of the file is replaced, not merged"
