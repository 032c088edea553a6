"""Tables that fit, lose no name in a pipe and cut no limit; the latest decisions; and one table of many nodes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType

from nodeward.cli.kubectl import nodes
from nodeward.cli.kubectl.answers import draw, status_of
from nodeward.cli.kubectl.plugin import cli
from nodeward.core.conditions import HappenedRow
from nodeward.features.cpus.rows import CpuHolderRow, CpusView
from nodeward.features.gate.rows import GatedRow, GatesView
from nodeward.features.keys.rows import KeyHolder, KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.features.limits.words import amount
from nodeward.features.sandboxes.rows import FitRow, SandboxesView, SandboxRow
from nodeward.people.rows import NodeView
from nodeward.people.table import render
from nodeward_sim.decided import Decided, LatestDecisions

KI, MI, GI = 1024, 1024**2, 1024**3
SPEC, RULE = "the pod's spec in the API server", "The container declares this limit."


def resource(name: str = "sgx_epc", refused: int = 0, here: int = 0) -> ResourceRow:
    return ResourceRow(name, 345 * MI, 345 * MI, 344 * MI + 5 * KI, 345 * MI - KI, refused, here)


def row(pod: str, container: str, *resources: ResourceRow, state: str = "enforced", **more: Any) -> CgroupRow:
    """One container, or the pod itself with an empty name."""
    level = "container" if container else "pod"
    stand = tuple(replace(one, state=one.state or state) for one in resources)
    made = CgroupRow(level, "default", pod, container, "", f"/{pod}/{container}", state, SPEC, RULE, stand)
    return replace(made, **more)


def view(*rows: CgroupRow) -> NodeView:
    return NodeView("enforce", "containerd v2", "answers", True, {"sgx_epc": GI}, {"sgx_epc": 5 * MI}, rows)


def printed(what: RenderableType, width: int = 120, *, is_terminal: bool = False) -> list[str]:
    console = Console(width=width, force_terminal=is_terminal or None, color_system=None if is_terminal else "auto")
    with console.capture() as captured:
        console.print(what)
    return [line.rstrip() for line in captured.get().splitlines()]


def drawn(shown: NodeView, width: int, height: int | None = None, *, is_wide: bool = True) -> list[str]:
    return printed(render(shown, height, is_wide=is_wide), width, is_terminal=True)


def test_a_container_without_a_name_is_shown_by_its_id_and_is_not_taken_for_the_pod() -> None:
    nameless = replace(row("1c9a", "x", resource(), namespace=""), container="", id="3f1c9a0b7d42e55aa")
    lines = drawn(view(row("1c9a", "", resource(), namespace=""), nameless), 80)

    assert [line.split()[0] for line in lines[3:]] == ["1c9a", "(pod)", "3f1c9a0b7d42e"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "-", id="not known"),
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


def test_each_resource_is_drawn_with_its_own_state_and_one_that_is_idle_not_at_all() -> None:
    idle = ResourceRow("tdx", None, None, 0, 0, 0, 0, "unmanaged")
    used = replace(idle, resource="sev", usage=2)
    lines = drawn(view(row("p", "a", resource(), idle, used), row("p", "b", idle, replace(idle, resource="sev"))), 80)

    assert [line.split()[:2] + line.split()[-1:] for line in lines[4:]] == [
        ["a", "sgx_epc", "enforced"],
        ["a", "sev", "unmanaged"],
        ["b", "tdx", "unmanaged"],
    ]


def test_each_kind_of_key_has_a_line_with_how_many_are_free_and_why() -> None:
    free = "8 of 16 free (pods 5, outside 2, reserve 1)."
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


def test_pods_are_told_apart_on_a_terminal_of_80_columns() -> None:
    """A pod's name is what an operator types next: other columns are cut before it, and its end stays."""
    ids = tuple(f"tdx-key-{number:04}" for number in range(4))
    holders = tuple(KeyHolder("default", f"web-{at}", "u", 4, 4, ids) for at in (1, 2))
    key = KeyRow("tdx", ("devices.kubevirt.io/tdx",), 8, 0, 8, holders=holders)
    pods = [row(name, "app", resource()) for name in ("web-1", "web-2", f"{'p' * 200}-7")]
    lines = drawn(replace(view(*pods), keys=(key,)), 80, is_wide=False)

    for name in ("default/web-1 ", "default/web-2 ", "ppp-7 "):
        assert any(name in line for line in lines), lines


def test_a_long_name_is_cut_on_a_narrow_terminal_only() -> None:
    shown = view(row("p" * 200, "c" * 63, resource()))

    assert any(line.startswith("  cccc") and "… " in line for line in drawn(shown, 80))
    assert any(line.startswith(f"  {'c' * 63} ") for line in drawn(shown, 200))
    assert "p" * 200 in "".join(drawn(shown, 80))


@pytest.mark.parametrize(("is_wide", "has"), [(True, "40 lines"), (False, "20 pods")], ids=["cgroups", "pods"])
@pytest.mark.parametrize("height", [5, 12])
def test_no_more_lines_are_drawn_than_there_are(height: int, is_wide: bool, has: str) -> None:
    pods = [row(f"pod-{number}", "app" if is_wide else "", resource()) for number in range(20)]
    lines = drawn(view(*pods), 80, height, is_wide=is_wide)
    count, what = has.split()

    assert (len(lines), lines[-1]) == (height, f"... and {int(count) - (height - 4)} more {what}")


def every_promise() -> NodeView:
    """A node where each feature is on: a pod with all promises, and one of which only its CPUs are known."""
    limits = view(
        row("pinned", "app", replace(resource(), wanted=None, limit=None, usage=0, peak=0, refusals=0)),
        row("web", "", resource(refused=2), ResourceRow("tdx", 1, 1, 1, 1, 0, 0)),
        row("web", "enclave", resource()),
    )
    own = CpuHolderRow("default", "pinned", "app", "exclusive", own="4-5", for_ms=190_000, state="held")
    pool = CpuHolderRow("default", "web", "enclave", "shared", pool="shared", for_ms=500, state="held")
    key = KeyRow("tdx", (), 16, 0, used=1, free=14, holders=(KeyHolder("default", "web", "u", 2, 1, ("k1", "k2")),))
    vm = SandboxRow("0123", "default", "web", vm_memory=GI, fit=FitRow("will be killed", limit=GI, vm=GI, overhead=MI))
    return replace(
        limits,
        cpus=CpusView("static", "enforce", "nri", "0-7", holders=(own, pool)),
        keys=(key,),
        sandboxes=SandboxesView("observe", 2, rows=(vm,)),
        gates=GatesView("enforce", (GatedRow("default", "web", "u", "PENDING", "no verdict yet"),)),
    )


def test_a_pod_is_one_line_with_all_its_promises_and_a_column_is_there_where_one_is_made() -> None:
    lines = drawn(every_promise(), 200, is_wide=False)

    at = next(place for place, line in enumerate(lines) if line.startswith("POD "))
    columns = [re.split(r"  +", line) for line in lines[at:]]
    assert columns == [
        ["POD", "EPC", "CPUS", "KEYS", "VM", "GATE", "STATE"],
        ["default/web", "344.0Mi / 345Mi, 2 refused", "pool shared", "2 tdx (k1, k2), 1 taken", "will be killed, 1Gi",
         "pending: no verdict yet", "vm-too-big, gate-shut"],
        ["default/pinned", "-", "4-5 own for 3 min", "-", "-", "-", "pinned"],
    ]  # fmt: skip
    assert drawn(view(), 80, is_wide=False)[2:] == ["POD  STATE"]


@pytest.mark.parametrize(
    ("mode", "limit", "epc", "state"),
    [
        pytest.param("enforce", 8 * MI, "1Mi / 8Mi", "enforced", id="held to it"),
        pytest.param("observe", None, "1Mi / (8Mi)", "observed", id="promised and not limited"),
    ],
)
def test_what_is_used_stands_before_the_limit(mode: str, limit: int | None, epc: str, state: str) -> None:
    one = ResourceRow("sgx_epc", 8 * MI, limit, MI, MI, 0, 0, "enforced" if limit else "unmanaged")
    shown = replace(view(row("web", "", one)), mode=mode)

    assert drawn(shown, 80, is_wide=False)[-1].split("  ") == ["default/web", epc, state]


@pytest.mark.parametrize("width", [40, 80])
def test_pods_with_long_names_fit_and_in_a_pipe_no_name_is_cut(width: int) -> None:
    shown = view(row("p" * 253, "", resource()))

    assert max(map(len, drawn(shown, width, is_wide=False)[2:])) <= width
    assert drawn(shown, 1000, is_wide=False)[-1].startswith(f"default/{'p' * 253}  344.0Mi")


def app(wanted: int | None = 4 * MI, **more: Any) -> CgroupRow:
    return row("web", "app", ResourceRow("sgx_epc", wanted, wanted, 0, 0, 0, 0), namespace="shop", **more)


def told(*views: tuple[CgroupRow, ...]) -> list[Decided]:
    decisions = LatestDecisions()
    for rows in views:
        decisions.look(NodeView("enforce", "", "answers", True, {}, {}, rows))
    return list(decisions.latest)


def test_a_new_container_and_another_limit_source_or_rule_are_decisions() -> None:
    bare = app(None)
    again = (app(), app(), app(state="drift"), bare, replace(bare, rule="Because."), replace(bare, source="x"))

    assert told(*((one,) for one in again)) == [
        Decided(f"shop/web/app: sgx_epc 4Mi, from {SPEC}", RULE),
        Decided(f"shop/web/app: no limit, from {SPEC}", RULE),
        Decided(f"shop/web/app: no limit, from {SPEC}", "Because."),
        Decided("shop/web/app: no limit, from x", RULE),
    ]


def test_a_repair_is_told() -> None:
    _, repaired = told(*((app(repairs=repairs),) for repairs in (0, 1, 1, 0)))

    assert repaired.what == "shop/web/app: sgx_epc 4Mi is written again"
    assert "repaired 1 time(s)" in repaired.why


def of_a_node(pod: str, container: str, state: str) -> CgroupRow:
    held = ResourceRow("sgx_epc", 4 * MI, 8 * MI if state == "drift" else 4 * MI, MI, 2 * MI, 3, 3)
    return row(pod, container, held, state=state, namespace="shop")


def answer(node: str, *rows: CgroupRow, fault: str = "", said: bytes | None = None, code: int = 0) -> nodes.Answer:
    view = NodeView("enforce", "containerd", "answers", True, {}, {}, rows, ready=True)
    place = nodes.NodewardPod(node, f"nodeward-{node}", "node")
    return nodes.Answer(place, msgspec.json.encode(view) if said is None else said, code, "not so\\u001b", fault)


ANSWERS = (
    answer("node-2", of_a_node("web-10", "app", "enforced"), of_a_node("web-2", "app", "enforced")),
    answer("node-10", of_a_node("db", "main", "drift")),
    answer("node-3", fault="no answer within 10 s (--timeout)"),
    answer("node-4", said=b'{"mode":"enforce"}'),
    answer("node-5", said=b"", code=1),
)
RECORDED = """\
2 of 5 nodes answer, 1 of them need attention.
node-3: no answer: no answer within 10 s (--timeout)
node-4: no answer: an answer of another version of Nodeward: Object missing required field `runtime`
node-5: no answer: not so\\u001b
node-10: shop/db is changed by another program.
NODE     POD          EPC                   STATE
node-10  shop/db      1Mi / 8Mi, 3 refused  drift
node-2   shop/web-2   1Mi / 4Mi, 3 refused  enforced
node-2   shop/web-10  1Mi / 4Mi, 3 refused  enforced
"""


def test_all_nodes_are_one_table_and_each_fault_has_its_node() -> None:
    assert printed(draw([status_of(one, None, ()) for one in ANSWERS])) == RECORDED.splitlines()


def test_the_pod_with_the_most_urgent_condition_is_first_and_each_node_has_a_verdict() -> None:
    at = "2026-11-28T07:00:00Z"
    killed = replace(
        view(of_a_node("a", "app", "enforced"), of_a_node("vm", "app", "enforced")),
        lately=(HappenedRow("vm-killed", "shop/vm", 1, at, at),),
    )
    told = (
        answer("n1", of_a_node("db", "main", "drift")),
        answer("n2", said=msgspec.json.encode(killed)),
        answer("n3", fault="no"),
    )
    found = [status_of(one, None, ()) for one in told]
    lines = printed(draw(found))
    assert [line.split()[1] for line in lines[lines.index(next(one for one in lines if one[:4] == "NODE")) + 1 :]] == [
        "shop/vm", "shop/db", "shop/a",
    ]  # fmt: skip
    verdicts = [
        one["verdict"]["conditions"][0]["code"] for one in json.loads(msgspec.json.encode([one for one, _ in found]))
    ]
    assert verdicts == ["drift", "vm-killed", "daemon-away"]


def pods(*phases: tuple[str, str, str | None]) -> str:
    found = [
        {
            "metadata": {"name": f"pod-{place}", "namespace": "nodeward", "deletionTimestamp": deleted},
            "spec": {"nodeName": node, "containers": [{"name": "node", "args": ["node", "--config", "/etc/n.yaml"]}]},
            "status": {"phase": phase},
        }
        for place, (node, phase, deleted) in enumerate(phases)
    ]
    return json.dumps({"items": found})


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, *words: str) -> tuple[int, str, str]:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = CliRunner().invoke(cli, words)
    said = f"{done.exception}" if isinstance(done.exception, nodes.KubectlError) else done.stderr
    return done.exit_code, done.stdout, said


UNPLACED = '{"metadata":{"name":"p","namespace":"s"},"spec":{}}'
EXEC = 'case " $* " in *" get "*) cat "$(dirname "$0")/pods" ;; *) {} ;; esac'


@pytest.mark.parametrize(
    ("exec_", "fault"),
    [
        pytest.param("sleep 60", "no answer within 0.5 s (--timeout)", id="hangs"),
        pytest.param("yes", "the answer is longer than", id="never ends"),
        pytest.param("echo 'Error: gone' >&2; exit 1", "Error: gone", id="is refused"),
        pytest.param("printf 'command terminated with exit code 2\\n' >&2; exit 2", "exit code 2", id="says no more"),
        pytest.param("printf '\\377\\0'", "an answer of another version", id="is no text"),
    ],
)
def test_a_node_whose_exec_fails_is_a_fault_of_that_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exec_: str, fault: str
) -> None:
    monkeypatch.setattr(nodes, "MAX_ANSWER", 1 << 20)
    (tmp_path / "pods").write_text(pods(("a", "Running", None)))
    timeout = "0.5" if exec_.startswith("sleep") else "30"
    code, said, _ = asked(tmp_path, monkeypatch, EXEC.format(exec_), "status", "--timeout", timeout, "-o", "json")
    (one,) = json.loads(said)["nodes"]
    assert (code, one["node"], fault in one["fault"]) == (1, "a", True), one


def test_of_two_pods_on_a_node_the_one_that_runs_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_b_2 = (("b-2", "Pending", None), ("b-2", "Running", None), ("b-2", "Running", "now"))
    (tmp_path / "pods").write_text(pods(("b-10", "Running", None), *of_b_2))
    script = EXEC.format('echo "$*" > "$(dirname "$0")/asked-$5"; echo \'{"worst":"note","findings":[]}\'')
    words = ("doctor", "--context", "c", "-o", "json")
    code, said, _ = asked(tmp_path, monkeypatch, script, *words)
    assert [one["pod"] for one in json.loads(said)["nodes"]] == ["pod-2", "pod-0"]
    assert code == 0
    line = "--context=c exec -n nodeward pod-2 -c node -- nodeward doctor -o json --config /etc/n.yaml"
    assert (tmp_path / "asked-pod-2").read_text().strip() == line


@pytest.mark.parametrize(
    ("script", "words", "why"),
    [
        pytest.param("echo refused >&2; exit 1", ["status"], "kubectl get pods: refused", id="no API server"),
        pytest.param("echo '{\"items\":[]}'", ["status"], "no pod of Nodeward with the label", id="not installed"),
        pytest.param("echo []", ["status"], "what kubectl prints is no pod", id="no list"),
        pytest.param("exit 0", ["explain", "--", "--all"], "'--all' is no name of a pod", id="no name"),
        pytest.param("exit 0", ["explain", "a/b/c/d"], "is no POD[/CONTAINER]", id="too many slashes"),
        pytest.param(f"echo '{UNPLACED}'", ["explain", "p"], "pod s/p is on no node yet", id="no node"),
    ],
)
def test_what_cannot_be_asked_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: list[str], why: str
) -> None:
    code, _, said = asked(tmp_path, monkeypatch, script, *words)
    assert code != 0
    assert why in said
