"""Handlers that start VMs are found in the runtimes' settings, with Kata's configuration; faults name file and line."""

import tomllib
from pathlib import Path

import pytest

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
runtime_type = "io.containerd.kata.v2"
pod_annotations = ["io.katacontainers.*"]
options = {{ ConfigPath = "{GO}" }}
"""


class Host:
    """Files below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, data: str | bytes) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    def handlers(
        self, *containerd: str, crio: str = "", profiles: dict[str, Profile] | None = None
    ) -> dict[str, Handler]:
        """By name, with these settings of the runtimes."""
        files = [tomllib.loads(text) for text in containerd]
        sections = [tomllib.loads(crio)["crio"]] if crio else []
        found = configs.read(OsFiles(str(self.root)), files, sections, profiles or {})
        return {one.name: one for one in found}

    def kata(self) -> Handler:
        """The one handler, of containerd's version 3."""
        return self.handlers(runtime("io.containerd.cri.v1.runtime", KATA))["kata"]


def runtime(plugin: str, row: str, name: str = "kata") -> str:
    """A file of containerd's."""
    return f'[plugins."{plugin}".containerd.runtimes.{name}]{row}'


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.write(GO, MAIN)
    return made


@pytest.mark.parametrize("plugin", ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"])
def test_a_handler_of_each_version_of_containerds_file_is_found_with_all_that_counts(host: Host, plugin: str) -> None:
    plain = runtime(plugin, '\nruntime_type = "io.containerd.runc.v2"', "runc")
    assert host.handlers(plain, runtime(plugin, KATA)) == {
        "kata": Handler(
            "kata",
            "io.containerd.kata.v2",
            Profile.KATA_GO,
            GO,
            hypervisor="qemu",
            only=False,
            only_from=GO,
            static=False,
            default_vcpus_m=1000,
            default_memory=2048 * MIB,
            enable_annotations=("enable_iommu", "virtio_fs_extra_args"),
            passes=("io.katacontainers.*",),
        )
    }


def test_drop_ins_are_merged_by_name_and_lists_are_replaced(host: Host) -> None:
    host.write(f"{DROP_INS}/20-later", "[runtime]\nsandbox_cgroup_only = true\n")
    host.write(f"{DROP_INS}/10-first.toml", '[hypervisor.qemu]\ndefault_vcpus = 2.5\nenable_annotations = ["a"]\n')
    host.write(f"{DROP_INS}/15.toml", "[runtime]\nsandbox_cgroup_only = false\nstatic_sandbox_resource_mgmt = true\n")
    kata = host.kata()
    assert (kata.only, kata.only_from, kata.static) == (True, f"{DROP_INS}/20-later", True)
    assert (kata.default_vcpus_m, kata.default_memory, kata.enable_annotations) == (2500, 2048 * MIB, ("a",))
    assert kata.drop_ins == tuple(f"{DROP_INS}/{name}" for name in ("10-first.toml", "15.toml", "20-later"))


def test_a_later_file_of_containerd_changes_only_what_it_says(host: Host) -> None:
    later = runtime("io.containerd.cri.v1.runtime", '\npod_annotations = ["none"]')
    kata = host.handlers(runtime("io.containerd.cri.v1.runtime", KATA), later)["kata"]
    assert (kata.config, kata.passes) == (GO, ("none",))


def test_a_handler_of_crio_is_found(host: Host) -> None:
    row = f"""[crio.runtime.runtimes.kata]
runtime_type = "vm"
runtime_path = "/usr/bin/containerd-shim-kata-v2"
runtime_config_path = "{GO}"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
"""
    found = host.handlers(crio=row)
    assert list(found) == ["kata"]
    assert (found["kata"].config, found["kata"].serves) == (GO, False)


@pytest.mark.parametrize(("plugin", "key"), [("io.containerd.cri.v1.runtime", "sandboxer"), ("cri", "sandbox_mode")])
@pytest.mark.parametrize(("value", "serves"), [("shim", True), ("podsandbox", False)])
def test_a_shim_that_serves_the_sandbox_is_told(host: Host, plugin: str, key: str, value: str, serves: bool) -> None:
    says = runtime(plugin, f'\n{key} = "{value}"')
    assert host.handlers(runtime(plugin, KATA), says)["kata"].serves is serves


def test_a_handler_that_names_no_file_has_the_first_of_katas_own_places(host: Host) -> None:
    host.write("/usr/share/defaults/kata-containers/configuration.toml", "[runtime]\nsandbox_cgroup_only = true\n")
    bare = runtime("cri", '\nruntime_type = "io.containerd.kata.v2"')
    assert host.handlers(bare)["kata"].only is True
    host.write("/etc/kata-containers/configuration.toml", "[runtime]\nsandbox_cgroup_only = false\n")
    assert host.handlers(bare)["kata"].config == "/etc/kata-containers/configuration.toml"


@pytest.mark.parametrize(
    ("row", "place", "text"),
    [
        pytest.param('options = {ConfigPath = "/opt/runtime-rs/c.toml"}', "/opt/runtime-rs/c.toml", "", id="by-path"),
        pytest.param(
            'options = {ConfigPath = "/c.toml"}', "/c.toml", '[runtime]\nname = "virt_container"', id="by-name"
        ),
        pytest.param(
            'runtime_path = "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2"',
            "/etc/kata-containers/runtime-rs/configuration.toml",
            "",
            id="by-program-and-its-default-place",
        ),
        pytest.param('options = {ConfigPath = "/c.toml"}', "/c.toml", "[hypervisor.dragonball]", id="by-hypervisor"),
    ],
)
def test_runtime_rs_is_recognised(host: Host, row: str, place: str, text: str) -> None:
    host.write(place, text)
    kata = host.handlers(runtime("cri", f'\nruntime_type = "io.containerd.kata.v2"\n{row}'))["kata"]
    assert (kata.profile, kata.config, kata.fault) == (Profile.KATA_RS, place, "")


def test_runtime_rs_adds_what_its_hypervisors_table_says_and_zero_is_known(host: Host) -> None:
    host.write(
        GO,
        "[hypervisor.qemu]\noverhead_vcpus = 0.2\noverhead_memory = 0\n[hypervisor.clh]\noverhead_memory = 9\n"
        '[runtime]\nname = "virt_container"\nhypervisor_name = "qemu"\n',
    )
    kata = host.kata()
    assert (kata.hypervisor, kata.overhead_vcpus_m, kata.overhead_memory) == ("qemu", 200, 0)


@pytest.mark.parametrize("value", ["-1", "0", '"two"', "true", "1e300", "nan"])
def test_a_number_that_stands_for_katas_default_or_is_none_is_unknown(host: Host, value: str) -> None:
    host.write(GO, f"[hypervisor.qemu]\ndefault_vcpus = {value}\n")
    assert host.kata().default_vcpus_m is None


def test_the_settings_name_a_profile_and_a_handler_that_is_not_katas_counts(host: Host) -> None:
    mine = runtime("cri", '\nruntime_type = "io.containerd.mine.v1"', "mine")
    found = host.handlers(mine, runtime("cri", KATA), profiles={"mine": Profile.DOCUMENT, "kata": Profile.KATA_RS})
    assert (found["mine"].profile, found["mine"].fault) == (Profile.DOCUMENT, "")
    assert found["kata"].profile is Profile.KATA_RS


def test_a_broken_file_is_a_fault_with_its_line_and_a_remedy(host: Host) -> None:
    host.write(GO, "[runtime]\nsandbox_cgroup_only = maybe\n")
    fault = host.kata().fault
    assert fault.startswith(f"{GO}: ")
    assert "line 2" in fault
    assert "correct the line" in fault


def test_a_broken_drop_in_is_named_and_what_was_read_before_it_stands(host: Host) -> None:
    host.write(f"{DROP_INS}/50.toml", b"[runtime]\n\xff\n")
    kata = host.kata()
    assert kata.fault.startswith(f"{DROP_INS}/50.toml: no UTF-8 at line 2")
    assert kata.only is False


def test_a_missing_file_is_a_fault_that_says_where_it_should_be(host: Host) -> None:
    (host.root / GO.lstrip("/")).unlink()
    kata = host.kata()
    assert f"no configuration of handler kata: {GO} not found" in kata.fault
    assert (kata.only, kata.hypervisor) == (None, "")


def test_a_drop_in_that_is_a_link_to_nothing_is_a_fault(host: Host) -> None:
    (host.root / DROP_INS.lstrip("/")).mkdir()
    (host.root / DROP_INS.lstrip("/") / "a.toml").symlink_to("gone.toml")
    assert f"{DROP_INS}/a.toml: is a link to a file that is not there; remove it" in host.kata().fault


def test_drop_ins_that_lead_round_in_a_circle_are_a_fault(host: Host) -> None:
    folder = host.root / DROP_INS.lstrip("/")
    folder.mkdir()
    (folder / "a.toml").symlink_to("b.toml")
    (folder / "b.toml").symlink_to("a.toml")
    assert f"{DROP_INS}/a.toml: links lead round in a circle" in host.kata().fault


@pytest.mark.parametrize("place", [GO, f"{DROP_INS}/a.toml"])
def test_a_file_of_ten_megabytes_is_refused(host: Host, place: str) -> None:
    host.write(place, b"#" * (10 * MIB))
    assert f"{place} is larger than the {MIB} bytes" in host.kata().fault


def test_more_drop_ins_than_are_read_are_a_fault(host: Host) -> None:
    for number in range(configs.MOST_DROP_INS + 1):
        host.write(f"{DROP_INS}/{number}.toml", "")
    assert f"{DROP_INS} has 101 files" in host.kata().fault
