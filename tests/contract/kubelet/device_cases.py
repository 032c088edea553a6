"""What kubelet's device manager does with a device plugin."""

import os
import socket
from pathlib import Path

from nodeward.neighbours.kubelet import checkpoint_file
from tests.contract.kubelet.sides import Cases, Node
from tests.peers.daemon import until
from tests.peers.deviceplugin import DevicePlugin, register, serving_plugin

CASES = case = Cases[Node]()
WORDS = "no key is free: 2 there are, 2 are in use"


@case
def a_registration_calls_back_before_it_is_answered(node: Node) -> None:
    with serving_plugin(node.sockets, DevicePlugin(["a"])) as plugin:
        assert register(node.sockets, node.resource) == ""
        assert plugin.calls[0] == "GetDevicePluginOptions"
        until(lambda: "ListAndWatch" in plugin.calls, "the list is read")


@case
def what_cannot_be_registered_is_refused(node: Node) -> None:
    with serving_plugin(node.sockets, DevicePlugin(["a"])) as plugin:
        assert "not supported" in register(node.sockets, node.resource, version="v1alpha1")
        for name in ("plain", "kubernetes.io/key", f"example.com/{'k' * 64}"):
            assert register(node.sockets, name).startswith("UNKNOWN: "), name
        assert plugin.calls == []
    assert register(node.sockets, node.resource, endpoint="nobody.sock").startswith("UNKNOWN: ")
    assert node.side.capacity(node.resource) is None


@case
def a_list_is_whole_and_ids_that_are_not_healthy_are_not_allocatable(node: Node) -> None:
    with node.plugin(["a", "b", "c"]) as plugin:
        plugin.offer([("a", True), ("b", False), ("c", False)])
        node.has(3, 1)
        plugin.offer([("a", True), ("d", True)])
        node.has(2, 2)
        plugin.offer([])
        node.has(0, 0)


@case
def the_ids_that_a_plugin_likes_are_given(node: Node) -> None:
    with node.plugin(["a", "b", "c", "d"], likes=True) as plugin:
        plugin.offer([("a", True), ("b", True), ("c", True), ("d", False)])
        node.has(4, 3)
        node.run("first")
        node.run("second", counts=(2,))
        assert [sorted(ids) for ids in plugin.allocated] == [["c"], ["a", "b"]]
        assert plugin.available[0] == ("a", "b", "c")
        assert (node.held("first"), node.held("second")) == (("c",), ("a", "b"))
        assert "PreStartContainer" not in plugin.calls


@case
def a_refused_allocation_fails_the_pod_with_the_words_and_is_not_tried_again(node: Node) -> None:
    with node.plugin(["a", "b"]) as plugin:
        plugin.refuses_ids = WORDS
        node.create("refused")
        said = node.fails("refused")
        assert said.startswith("UnexpectedAdmissionError: Pod was rejected: Allocate failed due to rpc error: ")
        assert f"code = ResourceExhausted desc = {WORDS}" in said
        plugin.refuses_ids = ""
        node.run("later")
        assert node.side.phase("refused") == "Failed"
        assert len(plugin.allocated) == 2


@case
def a_refused_start_is_tried_again(node: Node) -> None:
    with node.plugin(["a"], starts=True) as plugin:
        plugin.refuses_starts = WORDS
        node.create("slow")
        until(lambda: node.side.waits("slow").endswith(f"code = Unavailable desc = {WORDS}"), "slow waits")
        plugin.refuses_starts = ""
        node.runs("slow")
        assert plugin.allocated == [("a",)]
        assert len(plugin.started) > 1
        assert dict.fromkeys(plugin.started) == {("a",): None}


@case
def a_container_is_given_the_ids_of_its_pods_init_container(node: Node) -> None:
    with node.plugin(["a", "b", "c"], likes=True) as plugin:
        node.create("two", counts=(2,), init=(1,))
        node.side.end_init("two")
        node.runs("two")
        first, second = plugin.allocated
        assert len(first) == 1
        assert len(second) == 2
        assert first[0] in second
        assert node.held("two") == tuple(sorted(second))


@case
def more_than_there_is_fails_the_pod_without_asking_the_plugin(node: Node) -> None:
    with node.plugin(["a"]) as plugin:
        node.run("one")
        node.create("more")
        node.fails("more")
        assert plugin.allocated == [("a",)]
        node.delete("one")
        node.run("after")
        assert plugin.allocated == [("a",), ("a",)]


@case
def ids_of_two_resources_are_apart_though_they_have_one_name(node: Node) -> None:
    other = Node(node.side, f"{node.resource}-2")
    with node.plugin(["a"], endpoint="one.sock") as one, other.plugin(["a"], endpoint="other.sock") as two:
        node.run("of-one")
        other.run("of-two")
        assert (one.allocated, two.allocated) == ([("a",)], [("a",)])
        other.delete("of-two")


@case
def the_last_to_register_is_asked_and_the_newest_list_of_either_counts(node: Node) -> None:
    with node.plugin(["a", "b"], endpoint="first.sock") as first, node.plugin(["c"], endpoint="second.sock") as second:
        node.run("of-the-second")
        assert (first.allocated, second.allocated) == ([], [("c",)])
        assert (first.streams, second.streams) == (1, 1)
        first.offer([("a", True), ("b", True), ("d", False)])
        node.has(3, 2)


@case
def the_end_of_an_old_instance_leaves_the_new_one_alone(node: Node) -> None:
    with node.plugin(["a", "b"], endpoint="old.sock") as old, node.plugin(["a", "b", "c"], endpoint="new.sock") as new:
        old.end()
        until(lambda: old.streams == 0, "the old one's list is over")
        node.run("vm")
        assert node.side.capacity(node.resource) == (3, 3)
        assert (new.streams, len(new.allocated)) == (1, 1)


@case
def a_plugin_that_ends_leaves_its_ids_without_health_and_one_that_comes_brings_them_back(node: Node) -> None:
    with node.plugin(["a", "b"]):
        node.run("before")
    node.has(2, 0)
    node.create("meanwhile")
    node.fails("meanwhile")
    assert node.side.phase("before") == "Running"
    with node.plugin(["a", "b"]):
        pass  # kubelet has both again


def _is_another(path: Path, was: os.stat_result) -> bool:
    if not path.exists():
        return False
    found = path.stat()
    return (was.st_ino, was.st_ctime_ns) != (found.st_ino, found.st_ctime_ns)


@case
def a_restart_takes_the_sockets_away_and_remembers_who_has_what(node: Node) -> None:
    folder = node.sockets
    with node.plugin(["a", "b"]) as before:
        node.run("before")
        (folder / "a-file").write_text("stays")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(folder / "other.sock"))
        was = (folder / "kubelet.sock").stat()
        node.side.restart()
        until(lambda: before.streams == 0, "the list is read no more")
        until(lambda: _is_another(folder / "kubelet.sock", was), "another socket of kubelet's")
        assert not (folder / "other.sock").exists()
        assert not (folder / "test-plugin.sock").exists()
        assert (folder / "a-file").read_text() == "stays"
        (folder / "a-file").unlink()
    with node.plugin(["a", "b"]) as after:
        assert node.side.phase("before") == "Running"
        node.run("after")
        assert after.allocated != before.allocated
        assert node.held("before") == before.allocated[0]
        assert node.held("after") == after.allocated[0]


@case
def the_checkpoint_names_each_pods_ids_and_the_healthy_ones_of_each_plugin(node: Node) -> None:
    def registered() -> tuple[str, ...] | None:
        data = (node.side.home / checkpoint_file.PLACE).read_bytes()
        return checkpoint_file.decode(data, [node.resource]).registered.get(node.resource)

    with node.plugin(["a", "b", "c"]) as plugin:
        until(lambda: registered() == ("a", "b", "c"), "all are registered")
        plugin.offer([("a", True), ("b", True), ("c", False)])
        until(lambda: registered() == ("a", "b"), "the healthy ones are registered")
        node.run("one", counts=(2,))
        data = (node.side.home / checkpoint_file.PLACE).read_bytes()
        assert list(checkpoint_file.decode(data, [node.resource]).pods.values()) == [{node.resource: ("a", "b")}]
        node.delete("one")
    node.has(3, 0)
    assert registered() == ("a", "b"), "the end of a plugin is not written down"
