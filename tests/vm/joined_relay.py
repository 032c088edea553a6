"""A real kubelet's runtime endpoint is put at the relay, which decides instead of NRI; one function a case.

A daemon of before ends, and another comes that has no NRI and tells the relay what the API server says of pods.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import yaml

from tests.peers.comings import caught, in_runtime, load, programs
from tests.peers.nriside import member, number
from tests.vm.forked import Process, started
from tests.vm.inside import KIB, RESOURCE, limit, refused, until
from tests.vm.joined_node import CONTAINERD_FOLDER, NAME, PODS, Node, container

_LISTEN: Final = CONTAINERD_FOLDER / "relay" / "cri.sock"
_LOG: Final = CONTAINERD_FOLDER / "relay.log"
_HELD: Final = 12 * KIB
_STARTS_WITHIN_S: Final = 20.0
_RECOVERS_WITHIN_S: Final = 60.0
_EVERY_S, _KEPT = 3.0, 1
"""A pod is made so often, and so many of them are left at any time."""


def _start_relay(node: Node) -> Process:
    """A relay that listens; it is ended with the node."""
    before = _LOG.read_text().count("relaying listen=") if _LOG.exists() else 0
    line = ["relay", "--config", str(node.daemon.config)]
    process = started(line, _LOG, {**os.environ, "NODEWARD_NRI__ENABLED": "false"})
    node.more.callback(_killed, process)
    until(lambda: _LOG.read_text().count("relaying listen=") > before, "the relay listens", _STARTS_WITHIN_S)
    return process


def _killed(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait(60)


def _point_at_relay(node: Node) -> None:
    """`nodeward kubelet` changes its configuration, as YAML, and it is started again."""
    config = node.kubelet.plan.folder / "kubelet.json"
    config.write_text(yaml.safe_dump(json.loads(config.read_text())))
    line = ["kubelet", "relay", "--kubelet-config", str(config)]
    for one in (f"relay.listen={_LISTEN}", f"relay.runtime={node.containerd.cri_socket}"):
        line += ["--set", one]
    node.daemon.ask(*line)
    node.kubelet.kill()
    node.kubelet.start_again()
    node.kubelet.wait_healthy()


def decided_by_the_relay(node: Node) -> list[str]:
    """Given a kubelet that is pointed at the relay, a pod made by the API has its limit from birth, without NRI."""
    _LISTEN.parent.mkdir()
    runtime = node.containerd.cri_socket
    node.daemon.configure(f"relay: {{limits: true, listen: {_LISTEN}, runtime: {runtime}}}\n")
    node.cri_relay = _start_relay(node)
    assert node.daemon.end(signal.SIGTERM) == 0
    os.environ["NODEWARD_NRI__ENABLED"] = "false"
    node.daemon.start_beside_relay()
    _point_at_relay(node)
    pod = node.run("behind", [container("app", "12Ki"), container("side")])
    app, side = pod.containers["app"], pod.containers["side"]
    assert (node.born_with(app), node.born_with(side)) == (f"{RESOURCE} {_HELD}", f"{RESOURCE} 0")
    assert [limit(one) for one in (app, side)] == [str(_HELD), "0"]
    until(lambda: limit(pod.cgroup) == str(_HELD), "the pod's budget, by the daemon")
    until(lambda: node.api.node_ready(NAME), "the node is ready")
    shown = node.daemon.ask("status")
    assert "decided at creation by the relay" in shown, shown
    at_kernel = refused(app, _HELD + 1)
    return [
        f"kubelet at the relay: runc was given misc.max '{node.born_with(app)}' for behind/app, "
        f"'{node.born_with(side)}' for behind/side; {_HELD + 1}: {at_kernel}"
    ]


@dataclass(slots=True)
class _Users:
    """Who make pods that wait and have a limit, as `tests.peers.comings` wants them."""

    node: Node
    made: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def create(self, name: str) -> None:
        self.node.create(name, [container("app", "4Ki")])
        self.made.append(name)

    def delete(self, name: str) -> None:
        self.node.delete(name)
        self.deleted.append(name)

    def running(self, name: str) -> bool:
        return "app" in self.node.container_ids(name)

    def ran(self, name: str) -> bool:
        """Whether it runs, or did: the load deletes none before."""
        return name in self.deleted or self.running(name)

    def serves(self, name: str) -> None:
        """Returns when a pod made now runs, born with its limit, and the node is ready."""
        self.create(name)
        until(lambda: self.running(name) and self.node.api.node_ready(NAME), f"{name} runs", _RECOVERS_WITHIN_S)
        app = self.node.running(name, ["app"]).containers["app"]
        assert self.node.born_with(app) == f"{RESOURCE} {4 * KIB}", self.node.born_with(app)

    @property
    def alive(self) -> Counter[str]:
        """The pods that nobody has deleted, once each."""
        return Counter(name for name in self.made if name not in self.deleted)


def _caught(node: Node) -> str:
    """The pod of the load whose start is under way now."""
    with node.containerd.cri() as direct:  # a new connection: containerd may have been killed since
        return caught(direct, lambda true, what: until(true, what, _RECOVERS_WITHIN_S))


def _kill_relay(node: Node) -> None:
    assert node.cri_relay is not None
    _killed(node.cri_relay)


def _renew_relay(node: Node) -> None:
    node.cri_relay = _start_relay(node)


def _kill_containerd_and_kubelet(node: Node) -> None:
    node.containerd.stop(signal.SIGKILL)
    node.kubelet.kill()


def _start_containerd_and_kubelet(node: Node) -> None:
    node.containerd.start()
    node.kubelet.start_again()
    node.kubelet.wait_healthy()


_RESTARTS: Final[Mapping[str, tuple[Callable[[Node], None], Callable[[Node], None]]]] = {
    "relay": (_kill_relay, _renew_relay),
    "others": (_kill_containerd_and_kubelet, _start_containerd_and_kubelet),
}
"""How each is killed, and started again. On the host containerd and kubelet are killed one after the other."""


def restarts_under_load(node: Node) -> list[str]:
    """Pods come and go while the relay, and then containerd with kubelet, are killed in the midst of a pod's start and
    started again: limits stay, that pod comes to run, each time a new pod is born with its limit and the node is Ready,
    and no pod is lost or doubled."""
    users, app = _Users(node), node.pods["behind"].containers["app"]
    lines: list[str] = []
    with node.containerd.cri() as direct:
        before = in_runtime(direct)
        with load(users, _EVERY_S, _KEPT):
            for what, (kill, start) in _RESTARTS.items():
                started = _caught(node)
                began = time.monotonic()
                kill(node)
                meanwhile = limit(app)
                assert meanwhile == str(_HELD)
                start(node)
                again_s = time.monotonic() - began
                users.serves(f"after-{what}")
                until(partial(users.ran, started), f"{started} comes to run", _RECOVERS_WITHIN_S)
                lines.append(
                    f"{what} killed by SIGKILL while {started} had its sandbox and not yet its container: behind/app "
                    f"{meanwhile} meanwhile; there again after {again_s:.1f} s; after {time.monotonic() - began:.1f} s "
                    f"{started} has run, and a new pod runs, born with its limit, and the node is Ready"
                )

        def once() -> bool:
            return all(
                had.items() <= has.items() and Counter(has.values()) == Counter(had.values()) + users.alive
                for had, has in zip(before, in_runtime(direct), strict=True)
            )

        until(once, f"each of {sorted(users.alive)} once, and all from before", _RECOVERS_WITHIN_S)
        assert programs(direct, users.alive) == users.alive
    assert _restarts(node, "behind") == 0
    lines.append(
        f"pods made under load: {len(users.made)}, deleted: {len(users.deleted)}; the others have one sandbox and one "
        f"container each, whose program was started once; {len(before[0])} sandboxes and {len(before[1])} containers "
        "from before stay"
    )
    return lines


def _restarts(node: Node, name: str) -> int:
    """How often a container of the pod was started again."""
    statuses = member(node.api.call("GET", f"{PODS}/{name}"), "status", "containerStatuses")
    found = [one for one in statuses if isinstance(one, dict)] if isinstance(statuses, list) else []
    return sum(number(one, "restartCount") for one in found)


RESTARTS: Final[Mapping[str, Callable[[Node], list[str]]]] = {
    case.__name__: case for case in (decided_by_the_relay, restarts_under_load)
}
