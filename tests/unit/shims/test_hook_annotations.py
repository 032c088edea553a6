"""Annotations and the OCI hook: which it reads, when they count, and what it says of those that cannot be read."""

import json

import pytest

from nodeward.model.settings import LimitsSettings, UnknownPod
from nodeward.shims.oci_hook import Outcome
from nodeward.wire import hook_line
from tests.unit.shims.rig import EPC, HookRig, said


def test_only_annotations_that_are_read_reach_the_daemon() -> None:
    rig = HookRig()
    rig.annotations |= {"nodeward.io/limits": "{}", "secret": "do not tell"}
    rig.config()
    rig.run(answer=said({}))

    assert hook_line.decode_request(rig.asked[0]).annotations == {"nodeward.io/limits": "{}"}


def test_the_largest_number_there_is_is_no_limit_which_the_kernel_shows_as_max() -> None:
    rig = HookRig()
    for value, shown in (("18446744073709551614", "18446744073709551614"), ("18446744073709551615", "max")):
        rig.annotations["epc-limit.nri.io/container.app"] = value
        rig.config()
        assert (rig.run(), rig.limit()) == (Outcome(0), f"{EPC} {shown}")
        assert rig.run(answer=said({EPC: int(value)})) == Outcome(0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nodeward.io/limits", json.dumps({"app": {EPC: "12288"}})),
        ("epc-limit.nri.io/container.app", "12288"),
        ("epc-limit.nri.io/pod", "12288"),
        ("epc-limit.nri.io", "12288"),
    ],
)
def test_without_daemon_and_file_the_annotations_count(key: str, value: str) -> None:
    rig = HookRig()
    rig.annotations[key] = value
    rig.config()

    assert rig.run() == Outcome(0)
    assert rig.limit() == f"{EPC} 12288"


@pytest.mark.parametrize("key", ["nodeward.io/limits", "epc-limit.nri.io/pod"])
@pytest.mark.parametrize("value", ["4096\x00", "1" * (1 << 20), "-1", ""], ids=["nul", "1 MiB", "negative", "empty"])
def test_an_annotation_that_cannot_be_read_limits_nothing_and_is_told(key: str, value: str) -> None:
    """Without daemon and file; where unknown pods are refused, it is the refusal."""
    rig = HookRig()
    rig.annotations[key] = value
    rig.config()
    outcome = rig.run()

    assert (outcome.code, rig.limit()) == (0, f"{EPC} max")
    assert f"nodeward: default/web, container app: annotation {key}: " in outcome.said
    assert "; it counts as undeclared; nobody knows this pod" in outcome.said
    rig.leave(LimitsSettings(unknown_pod=UnknownPod.REFUSE), spec=None)
    outcome = rig.run()
    assert (outcome.code, rig.limit()) == (1, f"{EPC} max")
    assert f"annotation {key}: " in outcome.said
    assert "limits.unknown_pod is refuse" in outcome.said
    assert len(outcome.said) < 500
