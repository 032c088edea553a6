"""What kubelet's device manager does with a device plugin. Each case has a resource of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from nodeward.wire import kubelet_checkpoint
from tests.contract.kubelet.sides import Side
from tests.peers.daemon import until
from tests.peers.deviceplugin import DevicePlugin, register, running_plugin, serving_plugin

Case = Callable[[Side, str], None]
CASES: dict[str, Case] = {}
WORDS = "no key is free: 2 there are, 2 are in use"


def case(played: Case) -> Case:
    """Adds it, under its name with dashes."""
    CASES[played.__name__.replace("_", "-")] = played
    return played


def sockets(side: Side) -> Path:
    return side.home / "device-plugins"


def has(side: Side, resource: str, capacity: int, allocatable: int) -> None:
    side.has(resource, (capacity, allocatable))


def runs(side: Side, pod: str) -> None:
    until(lambda: side.phase(pod) == "Running", f"{pod} runs")


def fails(side: Side, pod: str) -> str:
    until(lambda: side.failed(pod) != "", f"{pod} fails")
    return side.failed(pod)


@case
def a_registration_calls_back_before_it_is_answered(side: Side, resource: str) -> None:
    with serving_plugin(sockets(side), DevicePlugin(["a"])) as plugin:
        assert register(sockets(side), resource) == ""
        assert plugin.calls[0] == "GetDevicePluginOptions"
        until(lambda: "ListAndWatch" in plugin.calls, "the list is read")


@case
def what_cannot_be_registered_is_refused(side: Side, resource: str) -> None:
    with serving_plugin(sockets(side), DevicePlugin(["a"])) as plugin:
        assert "not supported" in register(sockets(side), resource, version="v1alpha1")
        for name in ("plain", "kubernetes.io/key", f"example.com/{'k' * 64}"):
            assert register(sockets(side), name).startswith("UNKNOWN: "), name
        assert plugin.calls == []
    assert register(sockets(side), resource, endpoint="nobody.sock").startswith("UNKNOWN: ")
    assert side.capacity(resource) is None


@case
def a_list_is_whole_and_ids_that_are_not_healthy_are_not_allocatable(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b", "c"]) as plugin:
        has(side, resource, 3, 3)
        plugin.offer([("a", True), ("b", False), ("c", False)])
        has(side, resource, 3, 1)
        plugin.offer([("a", True), ("d", True)])
        has(side, resource, 2, 2)
        plugin.offer([])
        has(side, resource, 0, 0)


@case
def the_ids_that_a_plugin_likes_are_given(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b", "c", "d"], likes=True) as plugin:
        has(side, resource, 4, 4)
        plugin.offer([("a", True), ("b", True), ("c", True), ("d", False)])
        has(side, resource, 4, 3)
        side.create("first", resource)
        runs(side, "first")
        side.create("second", resource, counts=(2,))
        runs(side, "second")
        assert [sorted(ids) for ids in plugin.allocated] == [["c"], ["a", "b"]]
        assert plugin.available[0] == ("a", "b", "c")
        assert (side.held("first", resource), side.held("second", resource)) == (("c",), ("a", "b"))
        assert "PreStartContainer" not in plugin.calls
        for pod in ("first", "second"):
            side.delete(pod)


@case
def a_refused_allocation_fails_the_pod_with_the_words_and_is_not_tried_again(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b"]) as plugin:
        has(side, resource, 2, 2)
        plugin.refuses_ids = WORDS
        side.create("refused", resource)
        said = fails(side, "refused")
        assert said.startswith("UnexpectedAdmissionError: Pod was rejected: Allocate failed due to rpc error: ")
        assert f"code = ResourceExhausted desc = {WORDS}" in said
        plugin.refuses_ids = ""
        side.create("later", resource)
        runs(side, "later")
        assert side.phase("refused") == "Failed"
        assert len(plugin.allocated) == 2
        for pod in ("refused", "later"):
            side.delete(pod)


@case
def a_refused_start_is_tried_again(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a"], starts=True) as plugin:
        has(side, resource, 1, 1)
        plugin.refuses_starts = WORDS
        side.create("slow", resource)
        until(lambda: side.waits("slow").endswith(f"code = Unavailable desc = {WORDS}"), "slow waits")
        plugin.refuses_starts = ""
        runs(side, "slow")
        assert plugin.allocated == [("a",)]
        assert len(plugin.started) > 1
        assert dict.fromkeys(plugin.started) == {("a",): None}
        side.delete("slow")


@case
def a_container_is_given_the_ids_of_its_pods_init_container(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b", "c"], likes=True) as plugin:
        has(side, resource, 3, 3)
        side.create("two", resource, counts=(2,), init=(1,))
        side.end_init("two")
        runs(side, "two")
        first, second = plugin.allocated
        assert len(first) == 1
        assert len(second) == 2
        assert first[0] in second
        assert side.held("two", resource) == tuple(sorted(second))
        side.delete("two")


@case
def more_than_there_is_fails_the_pod_without_asking_the_plugin(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a"]) as plugin:
        has(side, resource, 1, 1)
        side.create("one", resource)
        runs(side, "one")
        side.create("more", resource)
        fails(side, "more")
        assert plugin.allocated == [("a",)]
        side.delete("one")
        side.create("after", resource)
        runs(side, "after")
        assert plugin.allocated == [("a",), ("a",)]
        for pod in ("more", "after"):
            side.delete(pod)


@case
def ids_of_two_resources_are_apart_though_they_have_one_name(side: Side, resource: str) -> None:
    other = f"{resource}-2"
    with (
        running_plugin(sockets(side), resource, ["a"], endpoint="one.sock") as one,
        running_plugin(sockets(side), other, ["a"], endpoint="other.sock") as two,
    ):
        has(side, resource, 1, 1)
        has(side, other, 1, 1)
        side.create("of-one", resource)
        runs(side, "of-one")
        side.create("of-two", other)
        runs(side, "of-two")
        assert (one.allocated, two.allocated) == ([("a",)], [("a",)])
        for pod in ("of-one", "of-two"):
            side.delete(pod)


@case
def the_last_to_register_is_asked_and_the_newest_list_of_either_counts(side: Side, resource: str) -> None:
    with (
        running_plugin(sockets(side), resource, ["a", "b"], endpoint="first.sock") as first,
        running_plugin(sockets(side), resource, ["c"], endpoint="second.sock") as second,
    ):
        has(side, resource, 1, 1)
        side.create("of-the-second", resource)
        runs(side, "of-the-second")
        assert (first.allocated, second.allocated) == ([], [("c",)])
        assert (first.streams, second.streams) == (1, 1)
        first.offer([("a", True), ("b", True), ("d", False)])
        has(side, resource, 3, 2)
        side.delete("of-the-second")


@case
def the_end_of_an_old_instance_leaves_the_new_one_alone(side: Side, resource: str) -> None:
    with running_plugin(sockets(side), resource, ["a", "b"], endpoint="old.sock") as old:
        has(side, resource, 2, 2)
        with running_plugin(sockets(side), resource, ["a", "b", "c"], endpoint="new.sock") as new:
            has(side, resource, 3, 3)
            old.end()
            until(lambda: old.streams == 0, "the old one's list is over")
            side.create("vm", resource)
            runs(side, "vm")
            assert side.capacity(resource) == (3, 3)
            assert (new.streams, len(new.allocated)) == (1, 1)
            side.delete("vm")


@case
def a_plugin_that_ends_leaves_its_ids_without_health_and_one_that_comes_brings_them_back(
    side: Side, resource: str
) -> None:
    with running_plugin(sockets(side), resource, ["a", "b"]):
        has(side, resource, 2, 2)
        side.create("before", resource)
        runs(side, "before")
    has(side, resource, 2, 0)
    side.create("meanwhile", resource)
    fails(side, "meanwhile")
    assert side.phase("before") == "Running"
    with running_plugin(sockets(side), resource, ["a", "b"]):
        has(side, resource, 2, 2)
        for pod in ("before", "meanwhile"):
            side.delete(pod)


def _is_another(path: Path, was: os.stat_result) -> bool:
    if not path.exists():
        return False
    found = path.stat()
    return (was.st_ino, was.st_ctime_ns) != (found.st_ino, found.st_ctime_ns)


@case
def a_restart_takes_the_sockets_away_and_remembers_who_has_what(side: Side, resource: str) -> None:
    folder = sockets(side)
    with running_plugin(folder, resource, ["a", "b"]) as before:
        has(side, resource, 2, 2)
        side.create("before", resource)
        runs(side, "before")
        (folder / "a-file").write_text("stays")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(folder / "other.sock"))
        was = (folder / "kubelet.sock").stat()
        side.restart()
        until(lambda: before.streams == 0, "the list is read no more")
        until(lambda: _is_another(folder / "kubelet.sock", was), "another socket of kubelet's")
        assert not (folder / "other.sock").exists()
        assert not (folder / "test-plugin.sock").exists()
        assert (folder / "a-file").read_text() == "stays"
        (folder / "a-file").unlink()
    with running_plugin(folder, resource, ["a", "b"]) as after:
        has(side, resource, 2, 2)
        assert side.phase("before") == "Running"
        side.create("after", resource)
        runs(side, "after")
        assert after.allocated != before.allocated
        assert side.held("before", resource) == before.allocated[0]
        assert side.held("after", resource) == after.allocated[0]
        for pod in ("before", "after"):
            side.delete(pod)


@case
def the_checkpoint_names_each_pods_ids_and_the_healthy_ones_of_each_plugin(side: Side, resource: str) -> None:
    def registered() -> tuple[str, ...] | None:
        data = (side.home / kubelet_checkpoint.PLACE).read_bytes()
        return kubelet_checkpoint.decode(data, [resource]).registered.get(resource)

    with running_plugin(sockets(side), resource, ["a", "b", "c"]) as plugin:
        until(lambda: registered() == ("a", "b", "c"), "all are registered")
        plugin.offer([("a", True), ("b", True), ("c", False)])
        until(lambda: registered() == ("a", "b"), "the healthy ones are registered")
        side.create("one", resource, counts=(2,))
        runs(side, "one")
        data = (side.home / kubelet_checkpoint.PLACE).read_bytes()
        assert list(kubelet_checkpoint.decode(data, [resource]).pods.values()) == [{resource: ("a", "b")}]
        side.delete("one")
    has(side, resource, 3, 0)
    assert registered() == ("a", "b"), "the end of a plugin is not written down"
