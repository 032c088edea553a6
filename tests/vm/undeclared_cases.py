"""What containers get that nobody declared anything for, by `limits.strict` and `limits.unknown_pod`: from the kernel,
and from a runtime that has to refuse them.

They use pods of their own and leave the settings as they found them. That they take hold without a restart is part of
it.
"""

import os
import re

import grpc
import pytest

from tests.vm.chain_node import Node
from tests.vm.inside import EPC, KIB, charge, limit, limits, refused, until

_LIMIT = 4 * KIB


def strict_denies_the_undeclared(node: Node) -> None:
    """A pod that declares nothing gets 0 from birth under `strict`, and is let go when strictness ends."""
    node.daemon.settle(strict="true")
    node.api.add("plain", {"app": {}})
    pod = node.run_pod("plain", ("app",))
    app = pod.containers["app"]
    assert limit(app) == "0"
    refused(app, 1)
    until(lambda: limit(pod.cgroup) == "0", "the pod's budget is 0 too")
    node.daemon.enforced("plain", "", "app")
    assert "limits.strict is on" in node.daemon.ask("explain", "default/plain/app")
    web = limit(node.pods["web"].containers["app"])
    assert web not in ("0", "max"), "what was declared stays"
    node.daemon.settle(strict="false")
    until(lambda: (limit(app), limit(pod.cgroup)) == ("max", "max"), "plain is let go")
    os.close(charge(app, 1))


def unknown_gets_zero_until_it_is_known(node: Node) -> None:
    """No annotation, and an API server that knows no such pod: 0 from birth, mended when the pod arrives there."""
    node.daemon.settle(unknown_pod="zero")
    pod = node.run_pod("stranger", ("app",))
    app = pod.containers["app"]
    assert limit(app) == "0"
    refused(app, 1)
    until(lambda: node.daemon.state("stranger", "app") == "unknown", "stranger/app is shown as unknown")
    assert "limits.unknown_pod is zero" in node.daemon.ask("explain", "default/stranger/app")
    node.api.add("stranger", {"app": {EPC: "4Ki"}})
    until(lambda: limits(app, pod.cgroup) == [_LIMIT] * 2, "its own limit and its pod's budget")
    node.daemon.enforced("stranger", "", "app")
    os.close(charge(app, _LIMIT))
    refused(app, _LIMIT + 1)


def unknown_is_refused_until_it_is_known(node: Node) -> None:
    """The runtime says why, nothing of the container is left, and once the pod is known the same create succeeds."""
    node.daemon.settle(unknown_pod="refuse")
    pod = node.run_pod("foreign", ())
    words = "default/foreign, container app: nobody knows this pod, and limits.unknown_pod is refuse."
    with pytest.raises(grpc.RpcError, match=re.escape(words)):
        node.add_container(pod, "app")
    left = [one.name for one in pod.cgroup.iterdir() if one.is_dir()]
    assert left == [pod.sandbox.name], left
    until(lambda: node.daemon.row("foreign", "app") is None, "no row of it is left")
    node.api.add("foreign", {"app": {EPC: "4Ki"}})
    until(lambda: limit(pod.cgroup) == str(_LIMIT), "the pod is known")
    app = node.add_container(pod, "app")
    assert limit(app) == str(_LIMIT)
    node.daemon.settle(unknown_pod="unlimited")
