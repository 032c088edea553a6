"""Handlers that start VMs are found in the runtimes' settings, with Kata's configuration; faults name file and line."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml

from nodeward.aio.hostfs import OsFiles
from nodeward.edges.sandboxes import configs
from nodeward.model.sandboxes import Handler, Profile

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
