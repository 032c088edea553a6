"""The table that `status`, `top` and `sim` draw: it fits 80 columns, loses no name in a pipe, and cuts no limit."""

from dataclasses import replace

import pytest
from rich.console import Console

from nodeward.cli.table import render
from nodeward.engine.show.amounts import amount
from nodeward.model.hierarchy import Hierarchy
from nodeward.model.rows import ConfigRow
from nodeward.model.view import CgroupRow, KeyRow, LinesRow, NodeView, RelayView, ResourceRow

KI, MI, GI = 1024, 1024**2, 1024**3


def resource(name: str = "sgx_epc", refused: int = 0, here: int = 0) -> ResourceRow:
    """One that has held much."""
    return ResourceRow(name, 345 * MI, 345 * MI, 344 * MI + 5 * KI, 345 * MI - KI, refused, here)


def row(pod: str, container: str, *resources: ResourceRow, state: str = "enforced") -> CgroupRow:
    """One container, or the pod itself with an empty name."""
    level = "container" if container else "pod"
    stand = tuple(replace(one, state=one.state or state) for one in resources)
    return CgroupRow(level, "default", pod, container, "", f"/{pod}/{container}", state, "spec", "rule", stand)


def view(*rows: CgroupRow) -> NodeView:
    """A node with these rows."""
    return NodeView("enforce", "containerd v2", "answers", True, {"sgx_epc": GI}, {"sgx_epc": 5 * MI}, rows)


def drawn(shown: NodeView, width: int, height: int | None = None) -> list[str]:
    """What is drawn in so many columns."""
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(render(shown, height))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_container_without_a_name_is_shown_by_its_id_and_is_not_taken_for_the_pod() -> None:
    nameless = replace(row("1c9a", "x"), container="", id="3f1c9a0b7d42e55aa", namespace="", state="unknown")
    lines = drawn(
        view(replace(row("1c9a", "", resource()), namespace=""), replace(nameless, resources=(resource(),))), 80
    )

    assert [line.split()[0] for line in lines[3:]] == ["1c9a", "(pod)", "3f1c9a0b7d42e"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "-", id="not known"),
        pytest.param(0, "0", id="nothing"),
        pytest.param(1023, "1023", id="less than a unit"),
        pytest.param(4 * MI, "4Mi", id="whole"),
        pytest.param(4 * MI + 4 * KI, "4100Ki", id="whole in a smaller unit"),
        pytest.param(123_456, "120.5Ki", id="no whole number of units, in one beside its neighbours"),
        pytest.param(337 * MI + 516 * KI, "337.5Mi", id="cut"),
        pytest.param(36 * MI + 12 * KI, "36.01Mi", id="cut to two places below a hundred"),
        pytest.param(4 * GI - 4 * KI, "3.99Gi", id="never rounded up to a limit"),
        pytest.param(-4096, "-4096", id="a counter below zero"),
    ],
)
def test_bytes_are_shown_in_binary_units(value: int | None, text: str) -> None:
    assert amount("sgx_epc", value) == text


def test_what_is_no_number_of_bytes_is_a_plain_number() -> None:
    assert amount("tdx", 4096) == "4096"


def test_in_80_columns_names_amounts_and_headings_are_whole() -> None:
    held = resource(refused=1234567, here=12345)
    lines = drawn(view(row("web-7d4b9c-x2x4z", "", held), row("web-7d4b9c-x2x4z", "enclave", held)), 80)

    assert max(len(line) for line in lines) <= 80
    assert lines[1] == "capacity: sgx_epc 5Mi of 1Gi"
    assert lines[2:] == [
        "POD / CONTAINER WANTED LIMIT   USAGE    PEAK REFUSED  HERE STATE",
        "default/web-7d4b9c-x2x4z",
        "  (pod)          345Mi 345Mi 344.0Mi 344.9Mi 1234567 12345 enforced",
        "  enclave        345Mi 345Mi 344.0Mi 344.9Mi 1234567 12345 enforced",
    ]


def test_several_resources_have_a_column_and_still_fit() -> None:
    keys = ResourceRow("tdx", 15, 15, 3, 4, 0, 0)
    lines = drawn(view(row("p", "c" * 63, resource(), keys, state="controller-off")), 80)

    assert "RESOURCE" in lines[2]
    assert max(len(line) for line in lines) <= 80
    assert [line.split()[1] for line in lines[4:]] == ["sgx_epc", "tdx"]
    assert all(line.endswith(" controller-off") for line in lines[4:])


def test_each_resource_is_drawn_with_its_own_state_and_one_that_is_idle_not_at_all() -> None:
    """Given resources that nobody declared, then none is drawn as enforced, and a cgroup still has a line."""
    idle = ResourceRow("tdx", None, None, 0, 0, 0, 0, "unmanaged")
    used = replace(idle, resource="sev", usage=2)
    lines = drawn(view(row("p", "a", resource(), idle, used), row("p", "b", idle, replace(idle, resource="sev"))), 80)

    assert [line.split()[:2] + line.split()[-1:] for line in lines[4:]] == [
        ["a", "sgx_epc", "enforced"],
        ["a", "sev", "unmanaged"],
        ["b", "tdx", "unmanaged"],
    ]


def test_the_version_of_cgroups_and_a_root_that_cannot_be_used_are_told() -> None:
    v1 = replace(view(), tree=Hierarchy(1, "/sys/fs/cgroup/misc"))
    none = replace(view(), controller=False, tree=Hierarchy(2, "/x", "/x", "/x does not exist: correct cgroups.root"))

    assert drawn(view(), 80)[1:2] == ["capacity: sgx_epc 5Mi of 1Gi"]
    assert drawn(v1, 80)[2] == "cgroup v1 at /sys/fs/cgroup/misc: limits are written at the start"
    assert drawn(none, 80)[1] == "nothing can be counted or limited: /x does not exist: correct cgroups.root"


@pytest.mark.parametrize("state", ["held", "unverified", "on", "off"])
def test_several_resources_in_one_value_are_told_of_where_the_setting_is_not_simply_followed(state: str) -> None:
    shown = replace(view(), lines=LinesRow(state, "runc 1.1.15 cannot write several resources in one misc.max"))
    line = f"nri.multi_line {state}: runc 1.1.15 cannot write several resources in one misc.max"

    assert (line in drawn(shown, 100)) is (state in ("held", "unverified"))


def test_each_kind_of_key_has_a_line_with_how_many_are_free_and_why() -> None:
    free = "8 free: 16 there are, less 5 that pods hold or were promised, 2 in foreign use and 1 in reserve."
    tdx = KeyRow("tdx", ("devices.kubevirt.io/tdx",), 16, 1, used=6, free=8, sentence=free)
    sev = KeyRow("sev_es", (), 0, 0, sentence="this kernel has no such keys (none in misc.capacity).")
    lines = drawn(replace(view(row("p", "a", resource())), keys=(tdx, sev)), 120)

    assert lines[1:5] == [
        "capacity: sgx_epc 5Mi of 1Gi",
        f"keys tdx: {free}",
        "keys sev_es: this kernel has no such keys (none in misc.capacity).",
        "POD / CONTAINER WANTED LIMIT   USAGE    PEAK REFUSED HERE STATE",
    ]
    assert not [line for line in drawn(view(row("p", "a", resource())), 120) if line.startswith("keys ")]


@pytest.mark.parametrize("width", [80, 120])
def test_lines_about_keys_are_among_those_that_top_draws_in_the_terminals_height(width: int) -> None:
    free = "8 free: 16 there are, less 5 that pods hold or were promised, 2 in foreign use and 1 in reserve."
    keys = tuple(KeyRow(key, (), 16, 1, sentence=free) for key in ("tdx", "sev_es"))
    pods = [row(f"pod-{number}", "app", resource()) for number in range(20)]

    lines = drawn(replace(view(*pods), keys=keys), width, 12)

    assert len(lines) == 12
    assert lines[-1].startswith("... and ")


def test_a_long_name_is_cut_on_a_narrow_terminal_only() -> None:
    shown = view(row("p" * 200, "c" * 63, resource()))

    assert any(line.startswith("  cccc") and "… " in line for line in drawn(shown, 80))
    assert any(line.startswith(f"  {'c' * 63} ") for line in drawn(shown, 200))
    assert "p" * 200 in "".join(drawn(shown, 80))


@pytest.mark.parametrize("height", [10, 11, 24])
def test_no_more_lines_are_drawn_than_there_are(height: int) -> None:
    lines = drawn(view(*[row(f"pod-{number}", "app", resource()) for number in range(20)]), 80, height)

    assert len(lines) == height
    assert lines[-1] == f"... and {40 - (height - 4)} more lines"


def test_a_clusters_configuration_that_is_refused_is_shown_with_its_faults() -> None:
    relay = RelayView("1", 7, 1, config=ConfigRow("/run/c.sock", "n", 1, ("policy.Activ is not known",)))

    lines = drawn(replace(view(), relay=relay), 80)

    assert lines[lines.index("  configuration: refused at /run/c.sock") + 1] == "    policy.Activ is not known"
