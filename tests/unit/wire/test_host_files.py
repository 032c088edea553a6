"""Files and names of this machine: misc files, mounts, cgroup paths, records of CPUs."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.model import cpuset
from nodeward.model.workload import CpuRecord
from nodeward.wire import cgroup_mounts, misc_files
from nodeward.wire.cgroup_mounts import MAX_LINE, Mount
from nodeward.wire.cgroup_paths import (
    by_controller,
    container_id,
    container_path,
    is_qos,
    joined,
    of_process,
    parent_path,
    pod_uid,
    pods_root,
)
from nodeward.wire.cpu_record import MAX_QUOTA, cpu_record
from nodeward.wire.errors import WireError

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,15}", fullmatch=True)


@given(st.dictionaries(NAMES, st.integers(0, 2**63 - 1)))
def test_what_the_kernel_prints_is_read_back(values: dict[str, int]) -> None:
    text = "".join(f"{name} {value}\n" for name, value in values.items())
    assert misc_files.parse(text.encode()) == values


def test_an_empty_file_a_counter_below_zero_and_events_are_read() -> None:
    assert misc_files.parse(b"") == {}
    assert misc_files.parse(b"tdx 18446744073709551615\n") == {"tdx": -1}
    assert misc_files.parse(b"sev.max 3\nsev_es.max 0\n", suffix=".max") == {"sev": 3, "sev_es": 0}


def test_no_limit_is_left_out_and_a_huge_one_is_kept() -> None:
    assert misc_files.parse_limits(b"sev max\nsev_es 18446744073709551614\n") == {"sev_es": 2**64 - 2}


@pytest.mark.parametrize("data", [b"sev 1Mi\n", b"sev\n", b"sev -1\n", b"sev " + b"9" * 21, b"s" * 20_000])
def test_what_is_no_misc_file_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        misc_files.parse(data)


@pytest.mark.parametrize(("resource", "value"), [("sev\n", "1"), ("", "1"), ("sev", "-1"), ("sev", "1 2"), ("sev", "")])
def test_no_line_is_made_that_the_kernel_reads_otherwise(resource: str, value: str) -> None:
    with pytest.raises(WireError):
        misc_files.limit_line(resource, value)


def test_one_write_is_one_line() -> None:
    assert misc_files.limit_line("sgx_epc", "4096") == b"sgx_epc 4096\n"


LINE = b"36 25 0:31 / /sys/fs/cgroup/a\\040b rw,nosuid shared:9 - cgroup cgroup rw,misc\n"
READ = Mount("/sys/fs/cgroup/a b", "cgroup", ("rw", "nosuid"), ("rw", "misc"))


def test_lines_that_are_no_mount_or_too_long_are_left_out_and_the_others_read() -> None:
    whole = LINE.replace(b"/ /", b"/" + b"r" * (MAX_LINE - len(LINE)) + b" /", 1)
    longer = whole.replace(b"/r", b"/rr", 1)

    assert len(whole) == MAX_LINE
    assert list(cgroup_mounts.mounts(b"no mount\n" + longer + whole + LINE)) == [READ, READ]


def test_a_controller_is_known_unless_its_line_is_too_long_or_it_is_off() -> None:
    rows = b"#subsys_name\thierarchy\nmisc\t0\t1\t1\npids\t0\t1\t0\nrdma\t0\t1\t" + b"1" * MAX_LINE
    assert [name for name in ("misc", "pids", "rdma") if cgroup_mounts.knows(rows, name)] == ["misc"]


UID = "pod1234_5678"


SLICES = "/kubepods.slice/kubepods-burstable.slice"


@pytest.mark.parametrize(
    ("resolve", "named", "path"),
    [
        (parent_path, "", ""),
        (parent_path, f"/kubepods/burstable/{UID}", f"/kubepods/burstable/{UID}"),
        (parent_path, f"kubepods-burstable-{UID}.slice", f"{SLICES}/kubepods-burstable-{UID}.slice"),
        (parent_path, f"{SLICES}/kubepods-burstable-{UID}.slice", f"{SLICES}/kubepods-burstable-{UID}.slice"),
        (container_path, "", ""),
        (container_path, "/kubepods/pod1/c0ffee", "/kubepods/pod1/c0ffee"),
        (container_path, "a-pod1.slice:cri-containerd:c0ffee", "/a.slice/a-pod1.slice/cri-containerd-c0ffee.scope"),
        (container_path, "a-pod1.slice:crio:c0ffee", "/a.slice/a-pod1.slice/crio-c0ffee.scope"),
    ],
)
def test_the_cgroup_of_a_pod_or_container(resolve: Callable[[str], str], named: str, path: str) -> None:
    assert resolve(named) == path


@pytest.mark.parametrize("named", ["/kubepods/../../etc", "/a//b", "/a/./b", "a--b.slice", "/a\0b", "/" + "a" * 5000])
def test_a_name_that_is_no_plain_path_is_refused(named: str) -> None:
    with pytest.raises(WireError):
        parent_path(named)


def test_a_name_with_another_line_end_in_it_forges_no_line() -> None:
    named = "/user.slice/a\u20280::/kubepods/podvictim"
    data = f"0::{named}\n".encode()
    assert (of_process(data), by_controller(data)) == ((named, ""), {"": named})
    assert not joined(data, "/kubepods/podvictim", "c0ffee")


@given(st.text(max_size=100))
def test_whatever_the_name_the_path_stays_below_the_root(named: str) -> None:
    for resolve in (parent_path, container_path):
        try:
            path = resolve(named)
        except WireError:
            continue
        assert path == "" or (path.startswith("/") and ".." not in path.split("/"))


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param(ID, ID, id="cgroupfs"),
        pytest.param(f"cri-containerd-{ID}.scope", ID, id="containerd, systemd"),
        pytest.param(f"crio-{ID}.scope", ID, id="CRI-O, systemd"),
        pytest.param(f"crio-conmon-{ID}.scope", "", id="CRI-O's monitor"),
        pytest.param(f"x{ID}", "", id="a longer name"),
        pytest.param(ID.upper(), "", id="no id: upper case"),
        pytest.param(ID[:-1], "", id="too short"),
        pytest.param("cgroup.procs", "", id="a file"),
        pytest.param("kata_overhead", "", id="Kata's overhead"),
    ],
)
def test_a_containers_id_in_the_name_of_its_cgroup(name: str, found: str) -> None:
    assert container_id(name) == found


@pytest.mark.parametrize(
    ("path", "uid", "root"),
    [
        ("/kubepods/pod12-34", "12-34", "/kubepods"),
        ("/kubepods/burstable/pod12-34", "12-34", "/kubepods"),
        (f"{SLICES}/kubepods-burstable-pod12_34.slice", "12-34", "/kubepods.slice"),
        ("/kubepods.slice/kubepods-pod12_34.slice", "12-34", "/kubepods.slice"),
        ("/mine/pod1", "1", "/mine"),
        ("/system.slice/foo.service", "", "/system.slice"),
        ("/kubepods.slice/kubepods-burstable.slice", "", "/kubepods.slice"),
    ],
)
def test_a_pods_uid_and_the_root_of_all_pods(path: str, uid: str, root: str) -> None:
    assert (pod_uid(path.rpartition("/")[2]), pods_root(path)) == (uid, root)


@pytest.mark.parametrize("name", ["burstable", "besteffort", "kubepods-besteffort.slice", "a-b-burstable.slice"])
def test_names_of_qos_classes(name: str) -> None:
    assert is_qos(name)
    assert not is_qos(name.replace("st", "ts"))


BEFORE = CpuRecord(1024, 100_000, 100_000, 0b11)


def test_what_an_update_does_not_say_stays_and_no_limit_is_said_by_less_than_zero() -> None:
    assert cpu_record(0, 0, 0, "", BEFORE) == (BEFORE, ())
    assert cpu_record(2048, -1, 0, "", BEFORE) == (CpuRecord(2048, -1, 100_000, 0b11), ())
    assert cpu_record(0, 0, 0, "2-3,8", BEFORE) == (CpuRecord(1024, 100_000, 100_000, 0b1_0000_1100), ())


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ((-1, 0, 0, ""), "cpu.shares is -1, and the kernel knows 0 to 262144"),
        ((262_145, 0, 0, ""), "cpu.shares is 262145, and the kernel knows 0 to 262144"),
        ((0, -2, 0, ""), f"the CPU quota is -2, and the kernel knows -1 to {MAX_QUOTA}"),
        ((0, 0, 2**64 - 1, ""), f"the CPU period is {2**64 - 1}, and the kernel knows 0 to 1000000"),
        ((0, 0, 0, "3-1"), "the cpuset: the range '3-1' runs backwards; write CPUs as the kernel does, such as 0-3,8"),
        ((0, 0, 0, "0-4000000000"), "the cpuset: '0-4000000000' is neither a CPU nor a range; write"),
    ],
)
def test_an_impossible_value_counts_as_not_said_and_a_sentence_tells_it(
    said: tuple[int, int, int, str], fault: str
) -> None:
    record, (sentence,) = cpu_record(*said, BEFORE)
    assert record == BEFORE
    assert sentence.startswith(fault)


def test_the_largest_set_is_read_whole() -> None:
    assert cpu_record(0, 0, 0, f"0-{cpuset.MAX_CPU}")[0].cpus.bit_count() == cpuset.MAX_CPU + 1
