"""What a relay hears of calls that pass and of lists, without sockets: which sandboxes and containers there are, which
are gone, and that nobody makes it keep more than it may.
"""

import tracemalloc

import pytest

from nodeward.edges.cri import decider
from nodeward.edges.cri.decider import LIST_LATER_S, LIST_READ_NS, LISTS_NS, MOST_KEPT
from nodeward.model.relayed import Ended, Interest, Message
from nodeward.model.workload import ContainerId, CpuRecord, SandboxId
from nodeward.proto import cri_pb2 as cri
from tests.unit.app.relayed import Relayed, create, listed, sandbox_config, updated


def test_a_create_that_fails_leaves_nothing() -> None:
    node = Relayed()
    for end in (Ended(13, "no", 0), Ended(None, "the client cancelled", 0)):
        call = node.begin("CreateContainer")
        node.decide(call, create())
        assert len(node.containers) == 1
        node.decider.ended(call, end)
        assert node.containers == []


def test_containers_and_sandboxes_end_with_their_calls() -> None:
    node = Relayed()
    for number in range(3):
        node.create(create(), f"c{number}")
    node.passes("StopContainer", cri.StopContainerRequest(container_id="c0", timeout=30).SerializeToString(), b"")
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c1").SerializeToString(), b"")
    node.passes("RemoveContainer", cri.RemoveContainerRequest(container_id="c2").SerializeToString(), status=13)
    assert node.containers == ["c2"]
    node.passes("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="s1").SerializeToString(), b"")
    assert (node.containers, node.sandboxes) == ([], [])


def test_after_a_restart_lists_that_pass_say_what_there_is() -> None:
    """Given a relay that has just begun, when kubelet lists everything, then updates are known from then on; lists are
    read again a minute later and not before."""
    node = Relayed()
    sandboxes, containers = listed(c1=True, c2=False)
    assert not node.decider.listed
    node.passes("ListContainers", b"", containers)
    node.passes("ListPodSandbox", b"\x0a\x00", sandboxes)
    assert node.decider.listed
    assert updated(node.update()) == "sgx_epc 8192"
    assert (node.containers, node.sandboxes) == (["c1"], ["s1"])
    assert node.decider.interest("/runtime.v1.RuntimeService/ListContainers") is Interest.NONE
    node.clock.ns += LISTS_NS
    assert node.decider.interest("/runtime.v1.RuntimeService/ListContainers") is Interest.ALL


def test_a_long_list_is_read_once_its_client_has_had_time_to_take_it_and_what_else_passes_at_once() -> None:
    """Or the last bytes of its answer would wait for that where the client is slower than the relay."""
    waits: list[float] = []
    node = Relayed(soon=lambda do, after_s: waits.append(after_s))
    node.passes("ListContainers", b"", listed(c1=True)[1])
    node.passes("StartContainer", cri.StartContainerRequest(container_id="c1").SerializeToString(), b"")
    assert waits == [LIST_LATER_S, 0.0]


def test_a_list_in_pieces_is_one_list() -> None:
    node = Relayed()
    sandboxes, one = listed(c1=True)
    _, two = listed(c2=True)
    node.passes("StreamPodSandboxes", b"", sandboxes)
    node.passes("StreamContainers", b"", one, two)
    assert node.containers == ["c1", "c2"]


def test_a_list_proves_no_absence_of_what_came_after_its_request() -> None:
    node = Relayed()
    sandboxes, containers = listed(c1=True)
    late = node.begin("ListContainers")
    node.decider.request(late, Message((b"",), 0, False, 0))
    node.passes("ListPodSandbox", b"", sandboxes)
    node.create(create(), "newer")
    node.decider.response(late, Message((containers,), len(containers), False, 0))
    node.decider.ended(late, Ended(0, "", 0))
    assert sorted(node.containers) == ["c1", "newer"]


def test_a_filtered_cut_compressed_or_garbled_list_says_nothing() -> None:
    node = Relayed()
    sandboxes, containers = listed(c1=True)
    node.passes("ListPodSandbox", b"", sandboxes)
    node.passes("ListContainers", b"\x0a\x02\x12\x00", containers)  # a filter by state
    node.passes("ListContainers", b"", b"\xff\xff")
    for message in (
        Message((containers[:9],), len(containers), False, 0),
        Message((containers,), len(containers), True, 0),
    ):
        call = node.begin("ListContainers")
        node.decider.request(call, Message((b"",), 0, False, 0))
        node.decider.response(call, message)
        node.decider.ended(call, Ended(0, "", 0))
    assert node.containers == []
    assert node.decider.unread == 3
    assert not node.decider.listed


def test_a_message_that_is_too_long_is_not_kept() -> None:
    """Whoever floods the relay with pods of a megabyte and leaves their calls open takes no memory by that."""
    node = Relayed()
    call = node.begin("RunPodSandbox")
    long = cri.RunPodSandboxRequest(config=sandbox_config(), runtime_handler="x" * MOST_KEPT).SerializeToString()
    answer = cri.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString()
    node.decider.request(call, Message((long,), len(long), False, 0))
    node.decider.response(call, Message((answer,), len(answer), False, 0))
    node.decider.ended(call, Ended(0, "", 0))
    assert node.sandboxes == []
    assert node.decider.unread == 1


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_streamed_list_without_end_is_not_kept(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of long messages or of empty ones: it says nothing in the end, and takes no more memory than a list may."""
    monkeypatch.setattr(decider, "MOST_OF_LIST", 4 << 20)
    node = Relayed()
    sandboxes, _ = listed()
    node.passes("ListPodSandbox", b"", sandboxes)
    call, more = node.begin("StreamContainers"), cri.ContainerMetadata(name="x" * size).SerializeToString()
    node.decider.request(call, Message((b"",), 0, False, 0))
    tracemalloc.start()
    try:
        for _ in range((6 << 20) // (size + decider.EACH)):
            payload = bytes(bytearray(more))  # each is another, as they are when they come
            node.decider.response(call, Message((payload,), len(payload), False, 0))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    node.decider.ended(call, Ended(0, "", 0))
    assert kept < 2 << 20
    assert node.decider.unread == 1
    assert not node.decider.listed


def test_one_list_of_a_kind_is_read_at_a_time() -> None:
    node = Relayed()
    first = node.begin("ListContainers")
    assert node.decider.interest(first.path) is Interest.NONE
    node.decider.ended(first, Ended(None, "the client cancelled", 0))
    assert node.decider.interest(first.path) is Interest.ALL


def test_a_client_that_never_reads_its_list_does_not_keep_others_from_being_read() -> None:
    """Given a list that never ends, then ten seconds later another one is read, and the end of the first says nothing
    of the second."""
    node = Relayed()
    sandboxes, containers = listed(c1=True)
    stuck = node.begin("ListContainers")
    node.decider.request(stuck, Message((b"",), 0, False, 0))
    node.clock.ns += LIST_READ_NS - 1
    assert node.decider.interest(stuck.path) is Interest.NONE
    node.clock.ns += 1
    assert node.decider.interest(stuck.path) is Interest.ALL
    second = node.begin("ListContainers")
    node.decider.ended(stuck, Ended(None, "the client went", 0))
    assert node.decider.interest(stuck.path) is Interest.NONE, "the second is being read"
    node.decider.ended(second, Ended(None, "the client went", 0))
    node.passes("ListContainers", b"", containers)
    node.passes("ListPodSandbox", b"", sandboxes)
    assert node.containers == ["c1"]


def test_lists_that_do_not_pass_are_asked_for() -> None:
    """Given a client that asks for no whole list any more, then two minutes after the last one they are overdue."""
    node = Relayed()
    assert node.decider.overdue
    node.decider.asked(*listed(c1=True), 0)
    assert not node.decider.overdue
    node.clock.ns += 2 * LISTS_NS
    assert node.decider.overdue


def test_a_list_which_cannot_tell_them_leaves_the_pods_cgroup_and_the_cpus_that_a_create_and_an_update_told() -> None:
    node = Relayed()
    request = cri.CreateContainerRequest.FromString(create())
    request.sandbox_config.linux.cgroup_parent = "/kubepods/burstable/poduid-1"
    resources = request.config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.cpu_period = 2048, 200_000, 100_000
    node.create(request.SerializeToString())
    node.update()
    sandboxes, containers = listed(c1=True)
    node.passes("ListContainers", b"", containers)
    node.passes("ListPodSandbox", b"", sandboxes)
    pods = node.limits.core.state.pods
    assert pods.containers[ContainerId("c1")].container.cpu == CpuRecord(512, 200_000, 100_000)
    assert pods.sandboxes[SandboxId("s1")].sandbox.cgroup_parent == "/kubepods/burstable/poduid-1"
