"""Which series a picture of VM sandboxes has: what is known in base units, and nothing of what is not."""

from dataclasses import replace

import pytest

from nodeward.edges.metrics import sandboxes
from nodeward.edges.metrics.families import FAMILIES
from tests.unit.edges.metrics.build import node, read, scrape, untold, values
from tests.unit.edges.metrics.sandboxes import BARE, KNOWN, MIB, SANDBOXES

VIEW = replace(node(), sandboxes=SANDBOXES)
WEB = {"namespace": "ns", "pod": "web", "sandbox": "5ab1e"}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("memory_bytes", {**WEB, "part": "guest"}, 500 * MIB),
        ("memory_bytes", {**WEB, "part": "vmm"}, 120 * MIB),
        ("memory_bytes", {**WEB, "part": "shim"}, 40 * MIB),
        ("memory_bytes", {**WEB, "part": "virtiofsd"}, 10 * MIB),
        ("charged_memory_bytes", WEB, 700 * MIB),
        ("outside_memory_bytes", WEB, 45 * MIB),
        ("overhead_memory_bytes", WEB, 170 * MIB),
        ("guest_used_bytes", WEB, 300 * MIB),
        ("cpu_seconds_total", WEB, 9.5),
        ("vcpu_seconds_total", WEB, 9.0),
        ("overhead_cpu_cores", WEB, 0.08),
        ("declared_memory_bytes", WEB, 160 * MIB),
        ("declared_cpu_cores", WEB, 0.25),
        ("vm_memory_bytes", WEB, 2048 * MIB),
        ("vm_vcpus", WEB, 3),
        ("limit_bytes", WEB, 2000 * MIB),
        ("headroom_bytes", WEB, -200 * MIB),
        ("killed_at_bytes", WEB, 1800 * MIB),
        ("fit", {**WEB, "fit": "will be killed"}, 1),
        ("drifts", {**WEB, "code": "elsewhere"}, 2),
        ("oom_kills_total", WEB, 2),
        ("read_faults", WEB, 1),
        ("sample_age_seconds", WEB, 1.5),
        ("sandbox_info", {**WEB, "level": "pod", "only": "false", "only_from": "annotation"}, 1),
        ("sandbox_info", {"sandbox": "d0cke7", "level": "container", "only": ""}, 1),
        ("class_overhead_memory_bytes", {"class": "kata-qemu", "percentile": "95"}, 170 * MIB),
        ("class_overhead_cpu_cores", {"class": "kata-qemu", "percentile": "99"}, 0.12),
        ("class_samples", {"class": "new"}, 3),
        ("class_declared_memory_bytes", {"class": "kata-qemu"}, 160 * MIB),
        ("class_declared_cpu_cores", {"class": "kata-qemu"}, 0.25),
        ("class_recommended_memory_bytes", {"class": "kata-qemu"}, 192 * MIB),
        ("class_recommended_cpu_cores", {"class": "kata-qemu"}, 0.15),
        ("unaccounted_memory_bytes", {}, 45 * MIB),
        ("unaccounted_cpu_cores", {}, 0.08),
        ("system_reserved_memory_bytes", {}, 64 * MIB),
        ("system_reserved_cpu_cores", {}, 0.12),
        ("handler_info", {"handler": "kata", "hypervisor": "qemu", "only": "false"}, 1),
        ("handler_unread", {"handler": "kata"}, 0),
        ("handler_unread", {"handler": "kata-fc"}, 1),
        ("mode_info", {"mode": "observe", "cgroup_version": "2", "driver": "systemd"}, 1),
        ("limit_writes_total", {}, 4),
        ("limit_misses", {}, 1),
        ("left_out", {}, 0),
    ],
)
def test_what_is_known_is_shown_in_base_units(name: str, labels: dict[str, str], value: float) -> None:
    assert values(VIEW, f"nodeward_sandboxes_{name}", **labels) == [value]


def test_of_a_sandbox_that_could_not_be_read_there_is_no_figure() -> None:
    found = {one.name.removeprefix("nodeward_sandboxes_") for one in read(VIEW) if one.labels.get("sandbox") == BARE.id}

    assert found == {"sandbox_info", "fit", "read_faults"}
    assert values(VIEW, "nodeward_sandboxes_fit", sandbox=BARE.id, fit="unknown") == [1]


def test_of_a_node_and_a_class_that_were_not_measured_there_is_no_figure() -> None:
    view = replace(SANDBOXES, unaccounted_memory=None, unaccounted_cpu_m=None, reserved_memory=None)
    found = read(replace(VIEW, sandboxes=replace(view, reserved_cpu_m=None)))

    assert [one.name for one in found if "unaccounted" in one.name or "reserved" in one.name] == []
    assert [one.name for one in found if one.labels.get("class") == "new"] == ["nodeward_sandboxes_class_samples"]


def test_while_sandboxes_are_off_no_series_speaks_of_them() -> None:
    assert [one.name for one in read(node()) if "_sandboxes_" in one.name] == []


def test_beyond_the_bound_sandboxes_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "MOST_SANDBOXES", 3)
    rows = tuple(replace(KNOWN, id=f"{number:064x}") for number in range(10))
    view = replace(VIEW, sandboxes=replace(SANDBOXES, rows=rows))

    assert len(values(view, "nodeward_sandboxes_sandbox_info")) == 3
    assert values(view, "nodeward_sandboxes_left_out") == [7]


def test_two_whose_names_are_cut_are_no_two_same_series() -> None:
    """An id is a word on somebody's command line, and may be of any length."""
    rows = tuple(replace(KNOWN, id="x" * 600 + end) for end in "ab")
    classes = tuple(replace(SANDBOXES.classes[0], name="x" * 600 + end) for end in "ab")
    handlers = tuple(replace(SANDBOXES.handlers[0], name="x" * 600 + end) for end in "ab")
    view = replace(SANDBOXES, rows=rows, classes=classes, handlers=handlers)

    assert untold(scrape(replace(VIEW, sandboxes=view))) == []


def test_a_sandbox_costs_a_bounded_number_of_series() -> None:
    mine = [one for one in read(VIEW) if one.labels.get("sandbox") == KNOWN.id]

    assert len(mine) <= 2 * len([one for one in FAMILIES if "sandbox" in one.labels])
