"""Handlers that start VMs, found in the runtimes' settings with Kata's configuration; shims' sockets; trees."""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml

from nodeward.core.vms import Handler, Profile
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.formats.cgroup_mounts import Mount
from nodeward.neighbours.kata import configs, shim_socket
from nodeward.neighbours.kata.cgroups import Trees, trees

MIB = 1 << 20
GO, DROP_INS = "/opt/kata/configuration-qemu.toml", "/opt/kata/config.d"
MAIN = """
[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
default_vcpus = 1
default_memory = 2048
enable_annotations = ["enable_iommu", "virtio_fs_extra_args"]
[agent.kata]
[runtime]
sandbox_cgroup_only = false
static_sandbox_resource_mgmt = false
"""
KATA = f"""
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]
runtime_type = "io.containerd.kata.v2"
pod_annotations = ["io.katacontainers.*"]
options = {{ ConfigPath = "{GO}" }}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One of configs.yaml. A file's text that begins with an arrow is a link; None is a file that is not there."""

    case: str
    then: dict[str, dict[str, object]]
    files: Mapping[str, str | None] = field(default_factory=dict)
    containerd: list[str] = field(default_factory=lambda: [KATA])
    crio: str = ""
    profiles: dict[str, Profile] = field(default_factory=dict)


def handlers(root: Path, case: Case) -> dict[str, Handler]:
    for path, text in {GO: MAIN, **case.files}.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if text is not None and text.startswith("->"):
            file.symlink_to(text.removeprefix("->"))
        elif text is not None:
            file.write_bytes(text.encode("latin-1"))
    files = [tomllib.loads(text) for text in case.containerd]
    sections = [tomllib.loads(case.crio)["crio"]] if case.crio else []
    return {one.name: one for one in configs.read(OsFiles(str(root)), files, sections, case.profiles)}


TOLD = msgspec.convert(yaml.safe_load(Path(__file__).with_name("configs.yaml").read_text(encoding="utf-8")), list[Case])
PLAIN = msgspec.convert({"name": "kata"} | TOLD[0].then["kata"], Handler)


@pytest.mark.parametrize("case", TOLD, ids=lambda case: case.case)
def test_which_handlers_are_found_and_what_counts_of_them(tmp_path: Path, case: Case) -> None:
    expected = {
        name: msgspec.convert((asdict(PLAIN) if name == "kata" else {"name": name}) | then, Handler)
        for name, then in case.then.items()
    }
    assert handlers(tmp_path, case) == expected


def fault(root: Path, **files: str) -> str:
    """Of the one handler; `GO` is its file, any other one a drop-in."""
    named = {GO if name == "GO" else f"{DROP_INS}/{name}": text for name, text in files.items()}
    return handlers(root, Case("", {}, named))["kata"].fault


@pytest.mark.parametrize(("name", "place"), [("GO", GO), ("a", f"{DROP_INS}/a")])
def test_a_file_of_ten_megabytes_is_refused(tmp_path: Path, name: str, place: str) -> None:
    assert f"{place} is larger than the {MIB} bytes" in fault(tmp_path, **{name: "#" * (10 * MIB)})


def test_more_drop_ins_than_are_read_are_a_fault(tmp_path: Path) -> None:
    assert f"{DROP_INS} has 101 files" in fault(tmp_path, **{str(n): "" for n in range(configs.MOST_DROP_INS + 1)})


GIB = 1 << 30
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SAID = b'kata_guest_meminfo{item="mem_total"} 2e+09\nkata_guest_meminfo{item="mem_available"} 1.5e+09\n'


def asked(folder: Path, serve: Serve | None, vm_memory: int | None = 2 * GIB) -> int | None:
    path = str(folder / "s")

    async def story() -> int | None:
        if serve is None:
            return await shim_socket.guest_used(path, vm_memory)
        server = await asyncio.start_unix_server(serve, path)
        try:
            return await shim_socket.guest_used(path, vm_memory)
        finally:
            server.close()

    return asyncio.run(story())


def answering(body: bytes, status: bytes = b"200 OK") -> Serve:
    """One that answers as Go's http does, and notes what it was asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /metrics HTTP/1.0\r\n")
        writer.write(b"HTTP/1.0 " + status + b"\r\nContent-Type: text/plain\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    return serve


ANSWERS = {
    "its total less what is available": (b'x{a="b"} 1\n' * 10_000 + SAID, 500_000_000),
    "an older guest tells what is free": (SAID.replace(b"available", b"free"), 500_000_000),
    "kibibytes": (SAID.replace(b"e+09", b"e+06"), 500_000 * 1024),
    "more available than there is": (SAID.replace(b"1.5e", b"9e"), None),
    "no number": (SAID.replace(b"2e+09", b"1e+999"), None),
    "nothing": (b"", None),
    "a line too long": (b"kata_guest_meminfo{" + b'item="mem_total",' * 50_000 + b"} NaN\n", None),
    "one beside others": (b'kata_guest_meminfo{a="' + b"x" * 600 + b'"} 1\n' + SAID, 500_000_000),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_a_guest_uses_is_taken_with_care(tmp_path: Path, case: str) -> None:
    body, used = ANSWERS[case]
    assert asked(tmp_path, answering(body)) == used


def test_an_error_is_no_figure_and_where_nobody_listens_nothing_is_known(tmp_path: Path) -> None:
    assert asked(tmp_path, None) is None
    assert asked(tmp_path, answering(SAID, b"500 Internal Server Error")) is None


def test_one_that_hangs_is_waited_for_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_socket, "PATIENCE_S", 0.05)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    assert asked(tmp_path, hang) is None


def test_of_one_that_sends_a_hundred_megabytes_one_is_read(tmp_path: Path) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + SAID)
        try:
            for _ in range(1600):
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        except OSError:
            writer.transport.abort()

    assert asked(tmp_path, flood) is None
    assert sent < 8 * shim_socket.MAX_BYTES


ROOT = "/sys/fs/cgroup"


def v1(controllers: str) -> Mount:
    return Mount(f"{ROOT}/{controllers}", "cgroup", ("rw",), ("rw", *controllers.split(",")))


V2 = Mount(ROOT, "cgroup2", ("rw",), ("rw",))
HYBRID = Mount(f"{ROOT}/unified", "cgroup2", ("rw",), ("rw",))
MEM, CPU, ACCT, HUGE = (f"{ROOT}/{name}" for name in ("memory", "cpu", "cpuacct", "hugetlb"))
BOTH = f"{ROOT}/cpu,cpuacct"
COUNTS = Mount(ROOT, "cgroup2", ("rw",), ("rw", "memory_hugetlb_accounting"))
TREES = {
    "v2": ([V2], Trees(2, ROOT, ROOT, ROOT)),
    "nothing is told": ([], Trees(2, ROOT, ROOT, ROOT)),
    "v1, mounted apart": ([v1("memory"), v1("cpu"), v1("cpuacct")], Trees(1, MEM, ACCT, CPU)),
    "v1, mounted together beside v2": (
        [HYBRID, v1("memory"), v1("cpu,cpuacct")],
        Trees(1, MEM, BOTH, BOTH, unified=f"{ROOT}/unified"),
    ),
    "memory is counted by v2 and CPU by v1": (
        [HYBRID, v1("cpuacct"), v1("cpu")],
        Trees(2, f"{ROOT}/unified", ACCT, CPU, cpu_version=1),
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_each_controller_has_its_own_tree(case: str) -> None:
    mounts, found = TREES[case]
    assert trees(mounts, ROOT) == found


def test_where_huge_pages_are_limited_and_whether_memory_has_them_too() -> None:
    assert [trees([one], ROOT).memory_has_huge for one in (COUNTS, V2)] == [True, False]
    assert trees([v1("memory"), v1("hugetlb")], ROOT).hugetlb == HUGE
