"""What containers get that nobody declared anything for, by `limits.strict` and `limits.unknown_pod`: from the kernel,
and from a runtime that has to refuse them.

They use pods of their own and leave the settings as they found them. That they take hold without a restart is part of
it.
"""

import os
from pathlib import Path

import grpc

from tests.vm.chain_node import Node
from tests.vm.inside import EPC, KIB, RESOURCE, charge, limit, refused, until

_LIMIT = 4 * KIB


def strict_denies_the_undeclared(node: Node) -> list[str]:
    """A pod that declares nothing gets 0 from birth under `strict`, and is let go when strictness ends."""
    node.daemon.settle(strict="true")
    node.api.add("plain", {"app": {}})
    pod = node.run_pod("plain", ("app",))
    app = pod.containers["app"]
    born = limit(app)
    assert born == "0"
    above = refused(app, 1)
    until(lambda: limit(pod.cgroup) == "0", "the pod's budget is 0 too")
    node.daemon.enforced("plain", "", "app")
    why = _explained(node, "plain", "limits.strict is on")
    web = limit(node.pods["web"].containers["app"])
    assert web not in ("0", "max"), "what was declared stays"
    node.daemon.settle(strict="false")
    until(lambda: (limit(app), limit(pod.cgroup)) == ("max", "max"), "plain is let go")
    os.close(charge(app, 1))
    return [
        f"strict: plain/app is born with {RESOURCE} {born}, 1: {above}; pod plain 0, web/app {web}",
        f"explain: {why}",
        f"strict ended: plain/app and pod plain {limit(app)}, 1 is accepted",
    ]


def unknown_gets_zero_until_it_is_known(node: Node) -> list[str]:
    """No annotation, and an API server that knows no such pod: 0 from birth, mended when the pod arrives there."""
    node.daemon.settle(unknown_pod="zero")
    pod = node.run_pod("stranger", ("app",))
    app = pod.containers["app"]
    born = limit(app)
    assert born == "0"
    above = refused(app, 1)
    until(lambda: node.daemon.state("stranger", "app") == "unknown", "stranger/app is shown as unknown")
    why = _explained(node, "stranger", "limits.unknown_pod is zero")
    node.api.add("stranger", {"app": {EPC: "4Ki"}})
    until(lambda: _limits(app, pod.cgroup) == [str(_LIMIT)] * 2, "its own limit and its pod's budget")
    node.daemon.enforced("stranger", "", "app")
    os.close(charge(app, _LIMIT))
    return [
        f"unknown_pod zero: stranger/app is born with {RESOURCE} {born}, 1: {above}",
        f"explain: {why}",
        f"known: stranger/app and pod stranger {RESOURCE} {limit(app)}; {_LIMIT + 1}: {refused(app, _LIMIT + 1)}",
    ]


def unknown_is_refused_until_it_is_known(node: Node) -> list[str]:
    """The runtime says why, nothing of the container is left, and once the pod is known the same create succeeds."""
    node.daemon.settle(unknown_pod="refuse")
    pod = node.run_pod("foreign", ())
    try:
        node.add_container(pod, "app")
    except grpc.RpcError as error:
        said = next(line.strip() for line in str(error).splitlines() if "details =" in line)
    else:
        raise AssertionError("a container of a pod that nobody knows was created")
    assert "default/foreign, container app: nobody knows this pod, and limits.unknown_pod is refuse." in said, said
    left = [one.name for one in pod.cgroup.iterdir() if one.is_dir()]
    assert left == [pod.sandbox.name], left
    until(lambda: node.daemon.row("foreign", "app") is None, "no row of it is left")
    node.api.add("foreign", {"app": {EPC: "4Ki"}})
    until(lambda: limit(pod.cgroup) == str(_LIMIT), "the pod is known")
    app = node.add_container(pod, "app")
    assert limit(app) == str(_LIMIT)
    node.daemon.settle(unknown_pod="unlimited")
    return [f"unknown_pod refuse: {said}", f"known: foreign/app is born with {RESOURCE} {limit(app)}"]


def _explained(node: Node, pod: str, words: str) -> str:
    lines = node.daemon.ask("explain", f"default/{pod}/app").splitlines()
    found = [line.strip() for line in lines if words in line]
    assert found, lines
    return found[0]


def _limits(*cgroups: Path) -> list[str]:
    return [limit(cgroup) for cgroup in cgroups]
