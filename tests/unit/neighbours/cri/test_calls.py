"""What CRI's requests say in the words of the model, how calls are counted, and whose pulls they are.

A change of a request overrules what the client said of the same, and leaves the rest of its bytes.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from nodeward.contracts import cri_pb2 as cri
from nodeward.core.decision import Adjustment, Mount, SchedulingClass
from nodeward.core.devices import DeviceNode
from nodeward.core.pulls import PullRow
from nodeward.core.vms import Sized, Way
from nodeward.core.workload import CpuRecord
from nodeward.neighbours.cri import mapping
from nodeward.neighbours.cri.calls import Call, Ended, Fate, Interest, Message
from nodeward.neighbours.cri.counts import BOUNDS_BITS, CallCounts
from nodeward.neighbours.cri.pulls import MOST_PULLS, PullBook

NODE = DeviceNode("/dev/sgx_enclave", 10, 125)
GIVEN = Adjustment({"misc.max": "a 1"}, "0-3,8", "1", 512, "gold", "slow", (Mount("/host", "/data"),), devices=(NODE,))


def test_a_create_gets_all_that_is_given(caplog: pytest.LogCaptureFixture) -> None:
    """But a scheduling class: the log says that CRI has no field for it."""
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.config.mounts.add(container_path="/own", host_path="/o")
    request.config.annotations["own"] = "kept"
    resources = request.config.linux.resources
    resources.unified.update({"misc.max": "a 7", "io.x": "y"})
    resources.cpuset_cpus, resources.cpu_shares, resources.cpu_quota = "4", 2, 50

    changed = mapping.changed_create(
        asked := request.SerializeToString(), replace(GIVEN, scheduling=SchedulingClass("calm"))
    )

    assert changed.startswith(asked)
    config = cri.CreateContainerRequest.FromString(changed).config
    assert dict(config.linux.resources.unified) == {"misc.max": "a 1", "io.x": "y"}
    resources = config.linux.resources
    assert (resources.cpuset_cpus, resources.cpuset_mems) == ("0-3,8", "1")
    assert (resources.cpu_shares, resources.cpu_quota) == (512, 50)
    assert dict(config.annotations) == {"own": "kept", mapping.RDT_CLASS: "gold", mapping.BLOCKIO_CLASS: "slow"}
    mounts = [(mount.container_path, mount.host_path, mount.readonly) for mount in config.mounts]
    assert mounts == [("/own", "/o", False), ("/data", "/host", True)]
    (device,) = config.devices
    assert (device.container_path, device.host_path, device.permissions) == (*["/dev/sgx_enclave"] * 2, "rw")
    assert caplog.messages == ["scheduling=not-carried class=calm: CRI has no field for it"]


def test_an_update_gets_what_it_can_carry() -> None:
    request = cri.UpdateContainerResourcesRequest(container_id="c")
    request.linux.cpuset_cpus = "4"
    changed = cri.UpdateContainerResourcesRequest.FromString(mapping.changed_update(request.SerializeToString(), GIVEN))
    assert (changed.container_id, changed.linux.cpuset_cpus, changed.linux.cpu_shares) == ("c", "0-3,8", 512)
    assert dict(changed.linux.unified) == {"misc.max": "a 1"}


def test_a_create_tells_the_pods_cgroup_and_what_is_asked_of_the_cpus() -> None:
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.linux.cgroup_parent = "kubepods-burstable-podu.slice"
    resources = request.config.linux.resources
    resources.cpu_shares, resources.cpu_quota, resources.cpu_period, resources.cpuset_cpus = 512, 50_000, 100_000, "4"
    home, made = mapping.creating(request.SerializeToString(), "c")
    assert home.cgroup_parent == "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu.slice"
    assert made.cpu == CpuRecord(512, 50_000, 100_000, 0b1_0000)
    update = cri.UpdateContainerResourcesRequest(container_id="c")
    update.linux.cpu_shares, update.linux.cpu_quota = 1024, -1
    assert mapping.updating(update.SerializeToString(), made).cpu == CpuRecord(1024, -1, 100_000, 0b1_0000)


def test_a_cgroup_that_is_no_path_and_an_impossible_amount_count_as_not_said(caplog: pytest.LogCaptureFixture) -> None:
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.linux.cgroup_parent = "/kubepods/../etc"
    request.config.linux.resources.cpu_shares = -5
    home, made = mapping.creating(request.SerializeToString(), "c")
    assert (home.cgroup_parent, made.cpu) == ("", CpuRecord())
    assert "cgroup=ignored" in caplog.text
    assert "cpu=ignored error=cpu.shares is -5" in caplog.text


def test_a_sandbox_gets_its_size_by_annotations_and_nothing_else_of_it_changes() -> None:
    request = cri.RunPodSandboxRequest(runtime_handler="kata")
    request.config.annotations.update({"own": "kept", "key": "own"})
    request.config.linux.resources.cpu_shares = 2
    size = Sized(100_000, 200_000, 1 << 20, way=Way.KEYS, annotations={"key": "1"})

    changed = mapping.changed_run(asked := request.SerializeToString(), size)

    assert changed.startswith(asked)
    request.config.annotations["key"] = "1"
    assert cri.RunPodSandboxRequest.FromString(changed) == request


def test_only_the_labels_that_are_named_are_copied_of_a_create_and_of_lists() -> None:
    request = cri.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.labels.update({"app": "web", "secret": "x"})
    request.config.labels.update({"own": "o", "secret": "x"})
    named = ("pod/labels/app", "labels/own")
    homes = cri.ListPodSandboxResponse(items=[cri.PodSandbox(id="s", labels=request.sandbox_config.labels)])
    ones = cri.ListContainersResponse(containers=[cri.Container(id="c", labels=request.config.labels)])
    home, made = mapping.creating(request.SerializeToString(), "c", named)
    (listed_home,) = mapping.sandboxes((homes.SerializeToString(),), named)
    (listed,) = mapping.containers((ones.SerializeToString(),), named)
    assert home.labels == listed_home.labels == {"pod/labels/app": "web"}
    assert made.labels == listed.labels == {"labels/own": "o"}


def call(name: str, service: str = "runtime.v1.RuntimeService", held: bool = False) -> Call:
    return Call(1, 1, f"/{service}/{name}", 0, held)


def counted() -> CallCounts:
    counts = CallCounts()
    for version in ("v1", "v1alpha2"):
        counts.over(call("Version", f"runtime.{version}.RuntimeService"), 0, Fate.PASSED, 20_000)
    counts.over(call("CreateContainer", held=True), 8, Fate.REFUSED, 3_000_000)
    counts.over(call("CreateContainer", held=True), 0, Fate.CHANGED, 10**12)
    counts.over(call("PullImage", "runtime.v1.ImageService"), None, Fate.PASSED, 0)
    return counts


def test_calls_are_counted_by_method_and_status_over_both_versions_of_cri() -> None:
    counts = counted()
    assert counts.text() == "CreateContainer=1 CreateContainer/8=1 PullImage/-1=1 Version=2"
    assert {row.method: (row.results, row.fates) for row in counts.rows()} == {
        "CreateContainer": ({"OK": 1, "RESOURCE_EXHAUSTED": 1}, {"changed": 1, "refused": 1}),
        "PullImage": ({"none": 1}, {"passed": 1}),
        "Version": ({"OK": 2}, {"passed": 2}),
    }


def test_waits_are_counted_in_few_buckets_with_their_sum() -> None:
    """No time at all and 20 us twice; 3 ms, and a thousand seconds that are above every bound."""
    passed, held = counted().added()
    assert (passed.how, passed.count, passed.sum_ns) == ("passed", 3, 40_000)
    assert dict(passed.at_most) == {1 << bits: 1 if bits < 15 else 3 for bits in BOUNDS_BITS}
    assert (held.how, held.count, held.sum_ns) == ("held", 2, 10**12 + 3_000_000)
    assert dict(held.at_most) == {1 << bits: 0 if bits < 23 else 1 for bits in BOUNDS_BITS}


def test_unknown_methods_and_statuses_share_one_counter() -> None:
    counts = CallCounts()
    for number in range(1000):
        counts.over(call(str(number), "x"), 17 + number, Fate.PASSED, number)
    assert counts.calls == {("other", 2, Fate.PASSED): 1000}


CANARY = "c4n4ry"


class Told:
    def __init__(self) -> None:
        self.now = 100
        self.book = PullBook(lambda: self.now, lambda: self.now, lambda do, _: do())
        self.numbers = count(1)

    def begin(self, name: str, *requests: bytes, service: str = "RuntimeService", version: str = "v1") -> Call | None:
        call = Call(next(self.numbers), 1, f"/runtime.{version}.{service}/{name}", self.now)
        if self.book.interest(call.path) is Interest.NONE:
            return None
        self.book.began(call)
        for one in requests:
            self.book.request(call, message(one))
        return call

    def end(self, call: Call | None, *answers: bytes, status: int | None = 0) -> None:
        if call is not None:
            for one in answers:
                self.book.response(call, message(one))
            self.book.ended(call, Ended(status, CANARY, self.now))

    def run(self, attempt: int, sandbox: str) -> None:
        asked = cri.RunPodSandboxRequest(config=config(attempt), runtime_handler="kata")
        made = cri.RunPodSandboxResponse(pod_sandbox_id=sandbox).SerializeToString()
        self.end(self.begin("RunPodSandbox", asked.SerializeToString()), made)


def message(payload: bytes) -> Message:
    return Message((payload,), len(payload), False, 0)


def config(attempt: int = 0) -> cri.PodSandboxConfig:
    made = cri.PodSandboxConfig(annotations={"a": CANARY})
    made.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", uid="u", namespace="shop", attempt=attempt))
    return made


def pull(attempt: int = 0, image: str = "reg.io/app:1") -> bytes:
    secret = cri.AuthConfig(username=CANARY, password=CANARY, auth=CANARY)
    asked = cri.PullImageRequest(auth=secret, sandbox_config=config(attempt))
    asked.image.CopyFrom(cri.ImageSpec(image=image, annotations={"a": CANARY}, runtime_handler="kata"))
    return asked.SerializeToString()


def listed(*ids: str) -> bytes:
    rows = [cri.PodSandbox(id=one, metadata=config().metadata, runtime_handler="kata") for one in ids]
    return cri.ListPodSandboxResponse(items=rows).SerializeToString()


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_pull_is_kept_from_its_beginning_without_credentials(version: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    there = Told()
    call = there.begin("PullImage", pull(), service="ImageService", version=version)
    row = PullRow("shop", "web", "u", 0, "reg.io/app:1", "kata", 100)
    assert there.book.pulls == (row,)
    there.now = 200
    there.end(call, cri.PullImageResponse(image_ref="sha256:ab").SerializeToString())
    assert there.book.pulls == (PullRow(*("shop", "web", "u", 0, "reg.io/app:1", "kata", 100, 200, "OK", "sha256:ab")),)
    for status, word in ((5, "NOT_FOUND"), (None, "none"), (99, "UNKNOWN")):
        there.end(there.begin("PullImage", pull(), service="ImageService"), status=status)
        assert there.book.pulls[-1].status == word
    kept = repr([vars(there.book), there.book.pulls]) + caplog.text
    assert CANARY not in kept


def test_sandboxes_are_known_by_calls_and_after_a_start_by_a_whole_list() -> None:
    there = Told()
    old = there.begin("ListPodSandbox", b"")
    there.run(1, "new")
    there.end(there.begin("ListPodSandbox", b"\x0a\x02\x0a\x00"), listed("filtered"))
    assert not there.book.listed
    there.end(old, listed("s1"), listed("s2"))
    assert there.book.listed
    known = [(one.id, one.attempt, one.handler) for one in there.book.sandboxes]
    assert known == [("new", 1, "kata"), ("s1", 0, "kata"), ("s2", 0, "kata")]
    assert there.begin("ListPodSandbox") is None, "not again at once"
    gone = cri.RemovePodSandboxRequest(pod_sandbox_id="s1").SerializeToString()
    there.end(there.begin("StopPodSandbox", gone), status=13)
    there.end(there.begin("StopPodSandbox", gone.replace(b"s1", b"s2")))
    assert [one.id for one in there.book.sandboxes if one.stopped] == ["s2"]
    there.end(there.begin("RemovePodSandbox", gone), status=13)
    there.end(there.begin("RemovePodSandbox", gone.replace(b"s1", b"s2")))
    assert [one.id for one in there.book.sandboxes] == ["new", "s1"]


def test_the_oldest_pull_goes_first_also_one_that_is_under_way() -> None:
    there = Told()
    first = there.begin("PullImage", pull(), service="ImageService")
    for number in range(MOST_PULLS):
        there.end(there.begin("PullImage", pull(number), service="ImageService"), b"")
    there.end(first, b"")
    assert (len(there.book.pulls), there.book.forgotten, there.book.pulls[0].attempt) == (MOST_PULLS, 1, 0)
    there.end(there.begin("PullImage", pull(7, "x" * 5000), service="ImageService"))
    assert len(there.book.pulls[-1].image) == 512


@pytest.mark.parametrize("requests", [[b"\x0a\xff"], [b"\x0a" * (2 << 20)], []], ids=["no CRI", "too long", "nothing"])
def test_what_cannot_be_read_tells_nothing_and_the_next_pull_is_heard(requests: Sequence[bytes]) -> None:
    there = Told()
    for name, service in (("PullImage", "ImageService"), ("RunPodSandbox", "RuntimeService")):
        there.end(there.begin(name, *requests, service=service), b"\x0a\xff")
    there.end(there.begin("PullImage", pull(), service="ImageService"), b"\x0a\xff")
    assert there.book.sandboxes == ()
    assert [(one.name, one.status) for one in there.book.pulls] == [("web", "OK")]
