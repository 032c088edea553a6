"""The node in one sentence, which rows people get, what they are told of two pictures, and what is free."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeward.core.cgroup import Hierarchy
from nodeward.core.conditions import CODES, Level, Severity
from nodeward.features.gate.rows import GatedRow, GatesView
from nodeward.features.keys.rows import KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.features.sandboxes.rows import DriftRow, FitRow, SandboxesView, SandboxRow
from nodeward.people.pods import PodRow, chosen, natural, ordered
from nodeward.people.rows import ComponentRow, NodeView
from nodeward.people.verdict import happened, verdict
from nodeward.people.view import shares
from nodeward.settings.rows import SettingsRow


def pod(name: str, state: str = "enforced") -> CgroupRow:
    return CgroupRow("pod", "shop", name, "", "", f"/{name}", state, "spec", "declared", ())


NODE = NodeView("enforce", "containerd", "answers", True, {}, {}, (pod("web"),))
KEYS = KeyRow("tdx", (), 16, 0, free=3)
VM = SandboxRow("s", "shop", "vm")
GOOD, ATTENTION, BAD = Level.GOOD, Level.ATTENTION, Level.BAD
NO_KEY, REFUSED = (replace(KEYS, free=0),), SettingsRow(faults=("x",))
LARGE = SandboxesView("enforce", rows=(replace(VM, fit=FitRow("will be killed")),))
MOVED = SandboxesView("enforce", rows=(replace(VM, drifts=(DriftRow("c", "s"),)),))
WAITS = GatesView("enforce", (GatedRow("shop", "web", "u", "PENDING", "no key"),))


def node(*rows: CgroupRow, **changes: Any) -> NodeView:
    return replace(NODE, rows=rows or NODE.rows, **changes)


TWO, NO_MISC = node(pod("a"), pod("b"), keys=(KEYS,)), node(controller=False)
OUTSIDE = (replace(KEYS, foreign=1),)
STALE = node(*(pod(name, "stale") for name in "abcde"))
AWAY = node(keys=NO_KEY, components=(ComponentRow("kube", False, "refused"),))
UNWRITTEN = node(controller=False, health={"files_unwritten": 2})
MANY = node(pod("a", "drift"), pod("b", "stale"), pod("c", "unsupported"), keys=NO_KEY, settings=REFUSED)
FIRST_THREE = (
    "shop/a is changed by another program; shop/b is not read for too long; The limits of shop/c are not "
    "enforceable on this kernel"
)


@pytest.mark.parametrize(
    ("view", "level", "sentence"),
    [
        (node(), GOOD, "All is well: 1 pod is held to its limits."),
        (TWO, GOOD, "All is well: 2 pods are held to their limits, 3 of 16 tdx keys are free."),
        (node(mode="off"), GOOD, "Limits are off."),
        (node(mode="observe", controller=False), GOOD, "Limits are observed, not enforced."),
        (NO_MISC, GOOD, "This kernel has no misc controller, so no enclave memory or keys can be limited."),
        (node(keys=OUTSIDE), GOOD, "All is well: 1 pod is held to its limits, 3 of 16 tdx keys are free."),
        (node(pod("web", "drift")), ATTENTION, "shop/web is changed by another program."),
        (STALE, ATTENTION, "shop/a, shop/b, shop/c and 2 more are not read for too long."),
        (node(keys=NO_KEY), ATTENTION, "No tdx key is free of 16."),
        (AWAY, ATTENTION, "Nodeward is not synchronised with kube: refused; No tdx key is free of 16."),
        (node(sandboxes=LARGE), ATTENTION, "The VM of shop/vm is too large for the memory limit."),
        (node(sandboxes=MOVED), ATTENTION, "Processes of shop/vm are in another cgroup than they should be."),
        (node(gates=WAITS), ATTENTION, "shop/web is waiting at a gate."),
        (node(settings=REFUSED), ATTENTION, "Newer settings were refused, older ones hold."),
        (UNWRITTEN, ATTENTION, "2 file(s) of Nodeward's own could not be written."),
        (MANY, ATTENTION, f"{FIRST_THREE}; No tdx key is free of 16; 1 more."),
        (node(keys=NO_KEY, relay_missing=True), BAD, "No relay answers, though one should; No tdx key is free of 16."),
        (node(tree=Hierarchy(fault="no cgroup")), BAD, "Nothing can be counted or limited: no cgroup."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_worst_is_said_first(view: NodeView, level: Level, sentence: str) -> None:
    said = verdict(view)
    assert (said.level, said.sentence) == (level, sentence)


def test_every_code_is_one_that_the_verdict_gives() -> None:
    source = (Path(verdict.__code__.co_filename)).read_text()
    given = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', source))

    assert set(CODES) - given == {"webhook-away", "webhook-passed-by"}
    assert all(remedy for _, remedy in CODES.values())
    assert {severity for severity, _ in CODES.values()} == set(Severity)


def row(pod: str, container: str = "", state: str = "enforced", namespace: str = "shop", refused: int = 0) -> CgroupRow:
    level = "container" if container else "pod"
    held = ResourceRow("sgx_epc", 4096, 4096, 0, 0, refused, refused, state)
    path = f"/{namespace}/{pod}/{container}"
    return CgroupRow(level, namespace, pod, container, "", path, state, "spec", "declared", (held,))


def view(*rows: CgroupRow, ready: bool = True) -> NodeView:
    source = ComponentRow("runtime", ready, "no socket")
    return NodeView("enforce", "containerd", "answers", True, {}, {}, rows, components=(source,))


PODS = [PodRow("shop", "web-2", "late-starts, pinned"), PodRow("data", "db", "drift")]
ROWS = (row("web-10"), row("web-10", "b"), row("web-2"), row("db", namespace="data"), row("web-3", "app", "drift"))


@pytest.mark.parametrize(
    ("asked", "pods"),
    [
        pytest.param({}, ["web-3", "db", "web-2", "web-10", "web-10"], id="all: unhealthy first, then natural order"),
        pytest.param({"namespace": "data"}, ["db"], id="a namespace"),
        pytest.param({"states": ("drift",)}, ["web-3"], id="a state"),
        pytest.param({"states": ("pinned",), "pods": PODS}, ["web-2"], id="a word of the column STATE"),
        pytest.param({"pod": "web-10"}, ["web-10", "web-10"], id="a pod by its bare name"),
        pytest.param({"pod": "data/db"}, ["db"], id="a pod with its namespace"),
        pytest.param({"pod": "db", "namespace": "shop"}, [], id="none"),
    ],
)
def test_rows_are_chosen_and_ordered(asked: dict[str, Any], pods: list[str]) -> None:
    assert [one.pod for one in chosen(ROWS, **asked)] == pods


def test_a_pods_rows_stay_together_its_own_first() -> None:
    rows = (row("a", "c10"), row("b", "x", "stale"), row("a", "c2"), row("b"), row("a"))
    assert [(one.pod, one.container) for one in ordered(rows)] == [
        *(("b", ""), ("b", "x")),
        *(("a", ""), ("a", "c2"), ("a", "c10")),
    ]


def test_a_number_of_any_length_can_be_sorted() -> None:
    assert natural("pod-2") < natural("pod-10") < natural(f"pod-{'9' * 5000}") < natural("pod-x")


ONCE, THRICE = (view(row("a", "c", refused=times)) for times in (1, 3))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param(None, view(row("a", state="drift")), [], id="the first picture is the table's"),
        pytest.param(view(row("a")), view(row("a", state="drift")), ["shop/a is drift, was enforced"], id="a fault"),
        pytest.param(view(row("a", state="drift")), view(row("a")), ["shop/a is enforced, was drift"], id="it is over"),
        pytest.param(view(row("a", state="pending")), view(row("a")), [], id="no fault"),
        pytest.param(view(), view(row("a", "c", "outside")), ["shop/a/c is outside"], id="a new one with a fault"),
        pytest.param(ONCE, THRICE, ["shop/a/c was refused sgx_epc 2 more times"], id="refused charges"),
        pytest.param(view(), view(ready=False), ["runtime is not ready: no socket"], id="a source is gone"),
        pytest.param(view(*ROWS), replace(view(*ROWS), seq=2), [], id="the same"),
    ],
)
def test_what_happened_between_two_pictures(before: NodeView | None, after: NodeView, lines: list[str]) -> None:
    assert happened(before, after) == lines


SIZES = {"sgx_epc": 64, "tdx": 8}
EPC_HELD = ResourceRow("sgx_epc", wanted=8, usage=4)
SHOP_WEB = CgroupRow("pod", "shop", "web", "", "", "/web", "enforced", "spec", "declared", (EPC_HELD,))
GREEDY = replace(SHOP_WEB, pod="more", resources=(replace(EPC_HELD, wanted=None),))
APP = replace(SHOP_WEB, level="container", container="app")


def test_what_is_promised_and_not_used_is_not_free_nor_what_is_used_and_was_not_promised() -> None:
    promised, free = shares(SIZES, {"sgx_epc": 10}, (SHOP_WEB, APP, GREEDY), ())
    assert (promised, free) == ({"sgx_epc": 8, "tdx": 0}, {"sgx_epc": 64 - 8 - 4 - 10}), "of a pod, not its containers"


def test_what_is_not_known_is_not_free() -> None:
    assert shares(SIZES, {}, (SHOP_WEB,), ())[1] == {}


def test_of_keys_it_is_what_the_ledger_says() -> None:
    kind = KeyRow("tdx", (), 8, 0, used=5, entitled=7, free=0)
    promised, free = shares(SIZES, {"sgx_epc": 0, "tdx": 0}, (SHOP_WEB,), (kind,))
    assert (promised["tdx"], free["tdx"]) == (7, 0)
    assert "tdx" not in shares(SIZES, {"tdx": 0}, (), (replace(kind, free=None),))[1], "blind"
