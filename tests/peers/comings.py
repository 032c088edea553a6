"""Pods that come and go while parts of their node are restarted, and what the runtime then has of them."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from tests.patience import scaled
from tests.peers.cri import Cri
from tests.peers.nriside import Json, member, objects, text


class Users(Protocol):
    def create(self, name: str) -> None:
        """A pod of this name."""

    def delete(self, name: str) -> None:
        """Asks for its end."""

    def running(self, name: str) -> bool:
        """Whether it runs."""


@contextmanager
def load(users: Users, every_s: float, kept: int) -> Iterator[None]:
    end = threading.Event()
    faults: list[Exception] = []

    def churn() -> None:
        number = 0
        try:
            while not end.wait(every_s):
                oldest = f"load-{number + 1 - kept}"
                if number >= kept and not users.running(oldest):
                    continue
                number += 1
                users.create(f"load-{number}")
                if number > kept:
                    users.delete(oldest)
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(scaled(60))
    assert not faults


def in_runtime(cri: Cri) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The sandboxes that are ready, and the containers that run: the pod of each id."""

    return _sandboxes(cri), _containers(cri, "CONTAINER_RUNNING")


def caught(cri: Cri, until: Callable[[Callable[[], bool], str], None]) -> str:
    """Waits for a pod of the load whose start is under way, and names it: its sandbox is ready, and no container of it
    runs or has ended."""
    seen: set[str] = set()

    def under_way() -> bool:
        sandboxes = set(_sandboxes(cri).values())
        begun = _containers(cri, "CONTAINER_RUNNING", "CONTAINER_EXITED").values()
        seen.update(name for name in sandboxes.difference(begun) if name.startswith("load-"))
        return bool(seen)

    until(under_way, "a pod of the load is being started")
    return min(seen)


def programs(cri: Cri, pods: Mapping[str, int]) -> Counter[str]:
    found = _containers(cri, "", "CONTAINER_RUNNING", "CONTAINER_EXITED", "CONTAINER_UNKNOWN")  # "" is CREATED
    told = [(pod, cri.call("ContainerStatus", {"container_id": one})) for one, pod in found.items() if pod in pods]
    return Counter(pod for pod, one in told if member(one, "status", "started_at") not in (None, "0"))


def _sandboxes(cri: Cri) -> dict[str, str]:
    # a field with its first value, as SANDBOX_READY is, is left out of an answer
    return _found(cri.call("ListPodSandbox").get("items"), "SANDBOX_READY", "")


def _containers(cri: Cri, *states: str) -> dict[str, str]:
    return _found(cri.call("ListContainers").get("containers"), *states)


def _found(listed: Json, *states: str) -> dict[str, str]:
    wanted = [one for one in objects(listed) if one.get("state", "") in states]
    return {text(one, "id"): str(member(one, "labels", "io.kubernetes.pod.name")) for one in wanted}
