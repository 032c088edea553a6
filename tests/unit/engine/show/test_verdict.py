"""The node in one sentence."""

from dataclasses import replace

import pytest

from nodeward.engine.show.verdict import Level, verdict
from nodeward.model.rows import CgroupRow
from nodeward.model.sandbox_rows import DriftRow, FitRow, SandboxesView, SandboxRow
from nodeward.model.view import ComponentRow, GatedRow, GatesView, KeyRow, NodeView, SettingsRow


def pod(name: str, state: str = "enforced") -> CgroupRow:
    return CgroupRow("pod", "shop", name, "", "", f"/{name}", state, "spec", "declared", ())


NODE = NodeView("enforce", "containerd", "answers", True, {}, {}, (pod("web"),))
KEYS = KeyRow("tdx", (), 16, 0, free=3)
VM = SandboxRow("s", "shop", "vm")


@pytest.mark.parametrize(
    ("node", "level", "sentence"),
    [
        (NODE, Level.GOOD, "All is well: 1 pod is held to its limits."),
        (
            replace(NODE, keys=(KEYS,), rows=(pod("a"), pod("b"))),
            Level.GOOD,
            "All is well: 2 pods are held to their limits, 3 of 16 tdx keys are free.",
        ),
        (replace(NODE, mode="observe"), Level.GOOD, "Limits are observed, not enforced."),
        (replace(NODE, mode="off"), Level.GOOD, "Limits are off."),
        (replace(NODE, rows=(pod("web", "drift"),)), Level.BAD, "shop/web is changed by somebody else."),
        (
            replace(NODE, rows=tuple(pod(name, "stale") for name in "abcde")),
            Level.ATTENTION,
            "shop/a, shop/b, shop/c and 2 more are not read for too long.",
        ),
        (replace(NODE, keys=(replace(KEYS, free=0),)), Level.ATTENTION, "No tdx key is free of 16."),
        (
            replace(NODE, keys=(replace(KEYS, free=0),), components=(ComponentRow("kube", False, "refused"),)),
            Level.BAD,
            "Nodeward is not synchronised with kube: refused; No tdx key is free of 16.",
        ),
        (
            replace(NODE, sandboxes=SandboxesView("enforce", rows=(replace(VM, fit=FitRow("will be killed")),))),
            Level.BAD,
            "The VM of shop/vm has a larger size than its pod's memory limit allows.",
        ),
        (
            replace(NODE, sandboxes=SandboxesView("enforce", rows=(replace(VM, drifts=(DriftRow("c", "s"),)),))),
            Level.ATTENTION,
            "Processes of shop/vm are in another cgroup than they should be.",
        ),
        (
            replace(NODE, gates=GatesView("enforce", (GatedRow("shop", "web", "u", "PENDING", "no key"),))),
            Level.ATTENTION,
            "shop/web is waiting at a gate.",
        ),
        (
            replace(NODE, settings=SettingsRow(faults=("x",))),
            Level.ATTENTION,
            "Newer settings were refused, older ones hold.",
        ),
        (replace(NODE, relay_missing=True), Level.BAD, "No relay answers, though one should."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_worst_is_said_first(node: NodeView, level: Level, sentence: str) -> None:
    said = verdict(node)
    assert (said.level, said.sentence) == (level, sentence)
