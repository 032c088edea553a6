"""Files and names of this machine: misc files, mounts, cgroup paths, records of CPUs, NFD's, the quote service's."""

import json
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core import cpuset
from nodeward.core.errors import WireError
from nodeward.core.workload import CpuRecord
from nodeward.neighbours.formats import cgroup_mounts, cgroup_paths, misc_files
from nodeward.neighbours.formats.cgroup_mounts import MAX_LINE, Mount
from nodeward.neighbours.formats.cgroup_paths import container_path, parent_path
from nodeward.neighbours.formats.cpu_record import MAX_QUOTA, cpu_record
from nodeward.neighbours.nfd import objects as nfd
from nodeward.neighbours.qgs.quotes import LENGTH_BYTES, MAX_BYTES, answer, error_of, length, request

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
READ = Mount("/sys/fs/cgroup/a b", "cgroup", ("rw", "nosuid"), ("rw", "misc"), (0, 31))


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
    assert (cgroup_paths.of_process(data), cgroup_paths.by_controller(data)) == ((named, ""), {"": named})
    assert not cgroup_paths.joined(data, "/kubepods/podvictim", "c0ffee")


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
    assert cgroup_paths.container_id(name) == found


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
    assert (cgroup_paths.pod_uid(path.rpartition("/")[2]), cgroup_paths.pods_root(path)) == (uid, root)


@pytest.mark.parametrize("name", ["burstable", "besteffort", "kubepods-besteffort.slice", "a-b-burstable.slice"])
def test_names_of_qos_classes(name: str) -> None:
    assert cgroup_paths.is_qos(name)
    assert not cgroup_paths.is_qos(name.replace("st", "ts"))


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
def test_an_impossible_value_counts_as_not_said_and_is_told(said: tuple[int, int, int, str], fault: str) -> None:
    record, (sentence,) = cpu_record(*said, BEFORE)
    assert record == BEFORE
    assert sentence.startswith(fault)


def test_the_largest_set_is_read_whole() -> None:
    assert cpu_record(0, 0, 0, f"0-{cpuset.MAX_CPU}")[0].cpus.bit_count() == cpuset.MAX_CPU + 1


OWNER = nfd.Owner("apps/v1", "DaemonSet", "nodeward-node", "7")
NUMBERS = {"tdx": 12, "sev_es": 99}


def test_what_is_made_is_read_as_ours_and_says_what_it_should() -> None:
    found = nfd.node_feature(nfd.body("nodeward", "n1", OWNER, NUMBERS, "5"))
    assert (found.namespace, found.name, found.node, found.version) == ("nodeward", "zzz-nodeward-n1", "n1", "5")
    assert (found.ours, found.worker, found.owners, found.numbers) == (True, False, (OWNER,), NUMBERS)
    assert nfd.says(found, "n1", OWNER, NUMBERS)
    assert not nfd.says(found, "n2", OWNER, NUMBERS)
    assert not nfd.says(found, "n1", nfd.Owner("v1", "Node", "n1", "7"), NUMBERS)
    assert not nfd.says(found, "n1", OWNER, {"tdx": 12})


def test_the_same_numbers_are_the_same_body_whatever_their_order() -> None:
    assert nfd.body("a", "n", OWNER, NUMBERS) == nfd.body("a", "n", OWNER, dict(reversed(NUMBERS.items())))


def test_a_kind_without_a_number_of_nfds_is_refused() -> None:
    with pytest.raises(WireError, match="NFD has no number for sgx_epc"):
        nfd.body("nodeward", "n1", OWNER, {"sgx_epc": 1})


@pytest.mark.parametrize("node", ["a", "z" * 63, "n" * 253])
def test_our_name_is_a_name_and_sorts_behind_the_workers(node: str) -> None:
    name = nfd.object_name(node)
    assert len(name) <= nfd.MAX_NAME
    assert name > node or node.startswith("zzzz")
    assert nfd.object_name(node[:-1] + "b") != nfd.object_name(node[:-1] + "c")


def listed(*objects: object, token: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "9", "continue": token}, "items": objects}).encode()


def feature(name: str, elements: object, **metadata: object) -> dict[str, object]:
    spec = {"features": {"attributes": {"cpu.security": {"elements": elements}}}}
    return {"metadata": {"name": name, "namespace": "nfd", "labels": {nfd.NODE_LABEL: "n1"}, **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("elements", "numbers"),
    [
        pytest.param({"tdx.total_keys": "16", "sgx.enabled": "true"}, {"tdx": 16}, id="one"),
        pytest.param({"tdx.total_keys": "-1"}, {}, id="negative"),
        pytest.param({"tdx.total_keys": "1e3"}, {}, id="no-plain-number"),
        pytest.param({"tdx.total_keys": "9" * 5000}, {}, id="a-number-of-5000-digits"),
        pytest.param({"tdx.total_keys": "\u0663"}, {}, id="digits-of-another-script"),
        pytest.param({"tdx.total_keys": "4294967296"}, {}, id="more-than-there-can-be"),
        pytest.param({"tdx.total_keys": 16}, {}, id="no-text"),
        pytest.param([], {}, id="no-table"),
        pytest.param(None, {}, id="nothing"),
    ],
)
def test_only_counts_of_keys_are_read_and_one_odd_object_hides_no_other(elements: object, numbers: object) -> None:
    odd, good = feature("n1", elements), feature("n2", {"tdx.total_keys": "4"})
    objects, version, token = nfd.page(listed(odd, good, token="t"))
    assert [one.numbers for one in objects] == [numbers, {"tdx": 4}]
    assert (version, token) == ("9", "t")


@pytest.mark.parametrize(
    ("metadata", "worker"),
    [
        pytest.param({}, True, id="the-nodes-name"),
        pytest.param({"name": "other"}, False, id="another-name"),
        pytest.param(
            {"name": "other", "annotations": {"nfd.node.kubernetes.io/worker.version": "v1"}}, True, id="its-annotation"
        ),
    ],
)
def test_the_workers_object_is_told_from_others(metadata: dict[str, object], worker: bool) -> None:
    one = feature(str(metadata.pop("name", "n1")), {}, **metadata)
    ((found,), *_) = nfd.page(listed(one))
    assert found.worker is worker
    assert not found.ours
    assert found.spec == b""


def test_a_watch_on_the_node_tells_its_numbers_and_its_own_end() -> None:
    def line(kind: str, found: object) -> bytes:
        return json.dumps({"type": kind, "object": found}).encode()

    node = {"metadata": {"uid": "u"}, "status": {"capacity": {"a/b": "3", "cpu": "4"}}}
    assert nfd.on_node(line("MODIFIED", node), ("a/b", "c/d")) == {"a/b": 3}
    with pytest.raises(WireError, match="the server ended it"):
        nfd.on_node(line("ERROR", {"code": 410}), ("a/b",))


@pytest.mark.parametrize("instance", ["", "foo.", "foo.bar."])
def test_what_nfds_master_put_on_a_node_is_told_by_its_annotation(instance: str) -> None:
    """Also that of a master with `-instance`, and where the name is in NFD's own namespace, which it leaves out."""
    name = "feature.node.kubernetes.io/own"
    notes = {f"{instance}nfd.node.kubernetes.io/extended-resources": "c/d,gone/since,no/number,own", "x/y": "a/b"}
    capacity = {"a/b": "3", "c/d": "13", "no/number": "1Ki", name: "2"}
    body = json.dumps({"metadata": {"uid": "u", "annotations": notes}, "status": {"capacity": capacity}})
    found = nfd.node(body.encode(), ("a/b", "c/d", "no/number", name))
    assert found == ("u", {"a/b": 3, "c/d": 13, name: 2}, ("c/d", name))


def test_a_pod_without_a_controller_is_its_own_owner() -> None:
    pod = {"metadata": {"name": "p", "uid": "u", "ownerReferences": [{"kind": "Thing", "uid": "t"}]}}
    assert nfd.controller_of(json.dumps(pod).encode()) == nfd.Owner("v1", "Pod", "p", "u")


def test_nesting_without_end_and_a_body_without_end_are_refused() -> None:
    deep = b'{"metadata":{},"items":[{"metadata":{"name":"a"},"spec":' + b'{"a":' * 100_000 + b"}" * 100_000 + b"}]}"
    with suppress(WireError):
        objects, *_ = nfd.page(deep)
        assert objects[0].numbers == {}
    with pytest.raises(WireError, match="at most"):
        nfd.page(b" " * (nfd.MAX_BYTES + 1))


def test_the_request_is_a_length_and_a_bare_header_for_platform_info() -> None:
    assert request() == bytes.fromhex("00000010 0100 0100 04000000 10000000 00000000")


GOOD = answer()[LENGTH_BYTES:]


def changed(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        pytest.param(b"", "no header", id="empty"),
        pytest.param(GOOD[:15], "no header", id="cut-within-the-header"),
        pytest.param(changed(0, b"\x02\x00"), "version 2.1", id="another-major-version"),
        pytest.param(changed(4, b"\x01"), "of type 1", id="a-quote"),
        pytest.param(GOOD + b"x", "says that it has", id="longer-than-it-says"),
        pytest.param(GOOD[:-1], "says that it has", id="shorter-than-it-says"),
        pytest.param(changed(20, struct.pack("<I", 0xFFFFFFFF)), "not as long", id="a-part-of-4-gib"),
        pytest.param(struct.pack("<HHIII", 1, 1, 5, 16, 0), "no platform", id="nothing-behind-the-header"),
    ],
)
def test_what_is_no_answer_is_named(body: bytes, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        error_of(body)


def test_another_minor_version_is_an_answer() -> None:
    assert error_of(changed(2, b"\x07\x00")) == 0


@pytest.mark.parametrize("size", [0, 15, MAX_BYTES + 1, 2**32 - 1])
def test_no_answer_is_so_long_or_so_short(size: int) -> None:
    with pytest.raises(WireError, match=f"of {size} bytes"):
        length(struct.pack(">I", size))
