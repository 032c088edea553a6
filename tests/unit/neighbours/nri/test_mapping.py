"""Given messages of NRI, the model's words come out and nothing else; and how long a lost runtime is waited for."""

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from nodeward.contracts import nri_pb2
from nodeward.core.annotations import MAX_VALUE, TOO_LONG
from nodeward.core.decision import Adjustment, IoClass, Mount, Scheduler, SchedulerFlag, SchedulingClass
from nodeward.core.devices import DeviceNode
from nodeward.core.events import Created, Removed
from nodeward.core.workload import ContainerId, CpuRecord, Phase, SandboxId
from nodeward.host.backoff import Backoff
from nodeward.neighbours.nri import mapping
from nodeward.neighbours.nri.session import NriSettings, NriSettingsError, from_environment


@pytest.mark.parametrize(
    ("runtime", "version", "said", "expected"),
    [
        pytest.param("containerd", "v2.4.2", "v0.12.3", (0, 12), id="what the runtime says counts"),
        pytest.param("whatever", "?", "0.13.0", (0, 13), id="a newer NRI of an unknown runtime"),
        pytest.param("containerd", "1.7.24", "", (0, 6), id="containerd 1.7.24"),
        pytest.param("containerd", "v1.7.29", "", (0, 8), id="containerd 1.7.29"),
        pytest.param("containerd", "v2.1.9", "", (0, 8), id="containerd 2.1"),
        pytest.param("containerd", "v2.2.0", "", (0, 10), id="containerd 2.2.0"),
        pytest.param("containerd", "v2.2.1", "", (0, 11), id="containerd 2.2.1"),
        pytest.param("containerd", "2.2.1-rc.1+unknown", "", (0, 11), id="a release candidate"),
        pytest.param("containerd", "v1.6.20", "", (0, 2), id="before the table"),
        pytest.param("cri-o", "1.33.4", "", (0, 9), id="CRI-O 1.33"),
        pytest.param("cri-o", "1.34.0", "", (0, 10), id="CRI-O 1.34"),
        pytest.param("cri-o", "1.35", "", (0, 11), id="CRI-O 1.35 without a patch level"),
        pytest.param("containerd", "devel", "UNKNOWN", (0, 2), id="no version at all"),
        pytest.param("isulad", "9.9.9", "", (0, 2), id="an unknown runtime"),
    ],
)
def test_the_generation_is_what_the_runtime_says_or_carries(
    runtime: str, version: str, said: str, expected: tuple[int, int]
) -> None:
    request = nri_pb2.ConfigureRequest(runtime_name=runtime, runtime_version=version, NRI_version=said)
    assert mapping.generation(request) == expected


EVENTS = [*mapping.NOTIFICATIONS.values(), nri_pb2.CREATE_CONTAINER, nri_pb2.UPDATE_CONTAINER]


@given(st.sets(st.sampled_from([nri_pb2.Event.Name(event) for event in EVENTS]), min_size=1))
def test_a_runtime_is_asked_for_no_event_it_does_not_know(names: set[str]) -> None:
    wanted = [event for event in EVENTS if nri_pb2.Event.Name(event) in names]
    new = mapping.event_mask(wanted, (0, 10))
    assert new == sum(1 << (number - 1) for number in wanted)
    old = new & 0x7FF
    if old:
        assert mapping.event_mask(wanted, (0, 9)) == old
    else:
        with pytest.raises(ValueError, match="everything"):
            mapping.event_mask(wanted, (0, 9))


def test_what_we_want_exists_everywhere() -> None:
    assert mapping.event_mask(mapping.WANTED, (0, 2)) == mapping.event_mask(mapping.WANTED, (0, 12)) == 0x7DF


def plant(message: Message, path: str) -> list[str]:
    """Puts a different canary into every text field of `message`, deep; returns them."""
    planted: list[str] = []
    for field in message.DESCRIPTOR.fields:
        where = f"{path}.{field.name}"
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value[f"CANARY-key{where}"] = f"CANARY-value{where}"
            planted += [f"CANARY-key{where}", f"CANARY-value{where}"]
        elif field.message_type is not None:
            planted += plant(value.add() if field.is_repeated else value, where)
        elif field.cpp_type == field.CPPTYPE_STRING:
            planted.append(f"CANARY{where}")
            if field.is_repeated:
                value.append(planted[-1])
            else:
                setattr(message, field.name, planted[-1])
    return planted


POD_FIELDS = {"id", "name", "uid", "namespace", "linux.cgroup_parent", "runtime_handler"}
CONTAINER_FIELDS = {"id", "pod_sandbox_id", "name", "linux.cgroups_path", "image.name"}


def test_only_the_fields_on_the_list_enter_the_model() -> None:
    pod, container = nri_pb2.PodSandbox(), nri_pb2.Container()
    in_pod, in_container = plant(pod, ".pod"), plant(container, ".container")
    assert len(in_pod) > 20
    assert len(in_container) > 30
    seen = repr((mapping.sandbox(pod), mapping.container(container)))
    found = {canary for canary in in_pod + in_container if f"'{canary}'" in seen or f"'/{canary}'" in seen}
    allowed = {f"CANARY.pod.{name}" for name in POD_FIELDS} | {f"CANARY.container.{name}" for name in CONTAINER_FIELDS}
    assert found == allowed


def test_annotations_are_read_by_name_and_a_long_one_is_told_as_too_long() -> None:
    ours, big = {"nodeward.io/limits": "{}", "epc-limit.nri.io/pod": "9" * MAX_VALUE}, "9" * (MAX_VALUE + 1)
    others = {"kubernetes.io/config.hash": "h", "epc-limit.nri.io.example": "no", "example.com/big": big}
    pod = nri_pb2.PodSandbox(annotations=ours | others | {"epc-limit.nri.io/container.big": big})
    assert mapping.sandbox(pod).annotations == ours | {"epc-limit.nri.io/container.big": TOO_LONG}


@pytest.mark.parametrize(
    ("named", "path"),
    [("kubepods-podu_1.slice", "/kubepods.slice/kubepods-podu_1.slice"), ("/kubepods/../../etc", "")],
    ids=["systemd", "a way out is no path"],
)
def test_a_pods_cgroup_is_a_path_whatever_the_driver_calls_it(named: str, path: str) -> None:
    pod = nri_pb2.PodSandbox(linux=nri_pb2.LinuxPodSandbox(cgroup_parent=named))
    assert mapping.sandbox(pod).cgroup_parent == path


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (nri_pb2.CONTAINER_UNKNOWN, Phase.CREATED),
        (nri_pb2.CONTAINER_CREATED, Phase.CREATED),
        (nri_pb2.CONTAINER_PAUSED, Phase.RUNNING),
        (nri_pb2.CONTAINER_RUNNING, Phase.RUNNING),
        (nri_pb2.CONTAINER_STOPPED, Phase.STOPPED),
    ],
)
def test_each_state_has_a_phase(state: nri_pb2.ContainerState, phase: Phase) -> None:
    assert mapping.container(nri_pb2.Container(state=state)).phase is phase


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("sgx_epc 0", {"sgx_epc": 0}),
        ("sgx_epc 4096\nsev max\ntdx 18446744073709551615\n", {"sgx_epc": 4096, "tdx": 2**64 - 1}),
        ("sgx_epc max", {}),
        ("", {}),
        ("sgx_epc 99999999999999999999", {}),
        ("sgx_epc -1", {}),
        ("sgx_epc \u0661", {}),
        ("sgx_epc 1\n" * 2000, {}),
    ],
)
def test_the_runtimes_record_of_a_containers_limits_is_read(text: str, limits: dict[str, int]) -> None:
    raw = nri_pb2.Container()
    raw.linux.resources.unified["misc.max"] = text
    assert mapping.container(raw).recorded == limits


def test_an_images_name_is_kept_in_part_and_in_every_phase() -> None:
    made = mapping.container(nri_pb2.Container(id="c", image=nri_pb2.Image(name="x" * 10_000)), Phase.CREATING)
    assert made.image == "x" * mapping.MOST_OF_IMAGE
    assert made.in_phase(Phase.RUNNING).image == made.image
    assert mapping.container(nri_pb2.Container(id="c")).image == ""


def test_a_removed_container_names_its_pod_even_if_it_does_not_say_it_itself() -> None:
    pod, container = nri_pb2.PodSandbox(id="p"), nri_pb2.Container(id="c")
    assert mapping.happening(nri_pb2.REMOVE_CONTAINER, pod, container) == Removed(SandboxId("p"), ContainerId("c"))


@pytest.mark.parametrize("kind", sorted(mapping.UNHEARD))
def test_what_the_model_has_no_word_for_is_nothing(kind: nri_pb2.Event) -> None:
    assert mapping.happening(kind, nri_pb2.PodSandbox(), nri_pb2.Container()) is None


def test_no_change_is_no_bytes() -> None:
    assert mapping.create_answer(Adjustment()) == b""
    assert mapping.update_answer(ContainerId("c"), Adjustment()) == b""


def test_what_a_container_is_given_is_in_the_answer_to_its_create_and_update() -> None:
    mounts, devices = (Mount("/host", "/data", read_only=False),), (DeviceNode("/dev/sgx_enclave", 10, 125),)
    given = Adjustment({"k": "v"}, "0-3,8", "1", 512, "gold", "slow", mounts, devices=devices)
    created = nri_pb2.CreateContainerResponse.FromString(mapping.create_answer(given)).adjust
    updated = nri_pb2.UpdateContainerResponse.FromString(mapping.update_answer(ContainerId("c"), given)).update[0]
    resources = created.linux.resources
    assert dict(resources.unified) == {"k": "v"}
    assert (resources.cpu.cpus, resources.cpu.mems, resources.cpu.shares.value) == ("0-3,8", "1", 512)
    assert (resources.rdt_class.value, resources.blockio_class.value) == ("gold", "slow")
    assert (updated.container_id, updated.linux.resources) == ("c", resources)
    (mount,) = created.mounts
    assert (mount.type, mount.source, mount.destination) == ("bind", "/host", "/data")
    assert list(mount.options) == ["rbind", "rw"]
    (node,) = created.linux.devices
    assert (node.path, node.type, node.major, node.minor) == ("/dev/sgx_enclave", "c", 10, 125)
    alone = nri_pb2.CreateContainerResponse.FromString(mapping.create_answer(Adjustment(devices=devices))).adjust
    assert [field.name for field, _ in alone.linux.ListFields()] == ["devices"]


def test_scheduling_is_in_the_answer_to_a_create_where_the_runtimes_nri_has_a_field() -> None:
    """I/O since 0.10, the scheduler since 0.11. With neither key there is nothing to carry."""
    one = SchedulingClass("a", Scheduler.RR, 5, (SchedulerFlag.RECLAIM,), io_class=IoClass.IDLE, io_priority=3)

    def carried(of: mapping.Generation) -> tuple[bool, bool]:
        answer = mapping.create_answer(Adjustment(scheduling=one), of)
        linux = nri_pb2.CreateContainerResponse.FromString(answer).adjust.linux
        if linux.HasField("scheduler"):
            how = linux.scheduler
            assert (how.policy, how.priority, list(how.flags)) == (nri_pb2.SCHED_RR, 5, [nri_pb2.SCHED_FLAG_RECLAIM])
        if linux.HasField("io_priority"):
            level = nri_pb2.LinuxIOPriority(priority=3, **{"class": "IOPRIO_CLASS_IDLE"})
            assert linux.io_priority == level
        return linux.HasField("io_priority"), linux.HasField("scheduler")

    assert [carried(of) for of in ((0, 9), (0, 10), (0, 11))] == [(False, False), (True, False), (True, True)]


def test_a_plugin_started_by_the_runtime_takes_its_name_and_connection_from_it() -> None:
    given_by_runtime = {"NRI_PLUGIN_SOCKET": "3", "NRI_PLUGIN_NAME": "nw", "NRI_PLUGIN_IDX": "42"}
    assert from_environment(NriSettings("/s"), given_by_runtime) == NriSettings("/s", "nw", "42", 3)
    assert from_environment(NriSettings("/s"), {}) == NriSettings("/s")
    with pytest.raises(NriSettingsError, match="NRI_PLUGIN_SOCKET"):
        from_environment(NriSettings("/s"), {"NRI_PLUGIN_SOCKET": "three"})


def test_what_an_update_asks_of_the_cpus_is_over_the_runtimes_record(caplog: pytest.LogCaptureFixture) -> None:
    container, asked = nri_pb2.Container(), nri_pb2.LinuxResources()
    cpu = container.linux.resources.cpu
    cpu.shares.value, cpu.quota.value, cpu.period.value, cpu.cpus = 1024, 100_000, 100_000, "0-1"
    assert mapping.container(container).cpu == CpuRecord(1024, 100_000, 100_000, 0b11)
    asked.cpu.shares.value, asked.cpu.quota.value, asked.cpu.period.value = 2048, 200_000, 0
    assert mapping.container(container, asked=asked).cpu == CpuRecord(2048, 200_000, 100_000, 0b11)
    cpu.cpus = "all"
    assert mapping.container(container).cpu == CpuRecord(1024, 100_000, 100_000)
    assert "cpu=ignored error=the cpuset: 'all' is neither a CPU nor a range" in caplog.text


def test_only_the_labels_that_are_named_are_copied() -> None:
    pod = nri_pb2.PodSandbox(id="s", labels={"app": "web", "secret": "x", "long": "l" * 64})
    raw = nri_pb2.Container(id="c", labels={"own": "", "app": "other"})
    named = ("pod/labels/app", "pod/labels/long", "pod/labels/none", "labels/own")
    found = mapping.happening(nri_pb2.POST_CREATE_CONTAINER, pod, raw, named)
    assert isinstance(found, Created)
    assert found.sandbox.labels == {"pod/labels/app": "web", "pod/labels/long": None, "pod/labels/none": None}
    assert found.container.labels == {"labels/own": ""}
    assert "none" not in pod.labels


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40))
def test_each_wait_is_between_half_and_all_of_a_doubling_bound(draws: list[float]) -> None:
    source = iter(draws)
    backoff = Backoff(0.5, 30.0, lambda: next(source))
    bound = 0.5
    for _ in draws:
        assert bound / 2 <= backoff.next_s() <= bound
        bound = min(30.0, bound * 2)


def test_after_success_the_first_wait_comes_again() -> None:
    backoff = Backoff(1.0, 8.0, lambda: 0.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next_s() == 0.5
