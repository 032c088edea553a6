"""Findings on the sizes of VMs: which way each handler obeys, and what is missing."""

from dataclasses import replace

import pytest

from nodeward.engine.show.doctor_sizing import sizing
from nodeward.model.doctor import Finding, RelayFacts, Severity, VmFacts
from nodeward.model.limits_rule import Mode
from nodeward.model.sandboxes import Handler, Profile
from nodeward.model.sizing import SizingRow, SizingSettings
from nodeward.model.view import RelayView

KATA = Handler("kata", "io.containerd.kata.v2", Profile.KATA_GO, "/etc/kata.toml", static=True)
ENFORCE = SizingSettings(Mode.ENFORCE)
RELAY = RelayFacts("/run/relay.sock", RelayView("1", 9, 1, sizing=SizingRow("enforce")), sizing=ENFORCE)
NAMED = replace(RELAY, sizing=replace(ENFORCE, handlers=("other",)))


def only(handler: Handler, relay: RelayFacts = RELAY) -> Finding:
    (found,) = sizing(VmFacts((handler,)), relay)
    return found


def test_nothing_is_said_where_no_size_is_given() -> None:
    assert list(sizing(VmFacts((KATA,)), RelayFacts())) == []


BOTH = replace(KATA, passes=("io.katacontainers.*",), enable_annotations=("default_.*",))


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        pytest.param(KATA, "hand them on; enable_annotations lacks default_vcpus and default_memory", id="resources"),
        pytest.param(BOTH, "(resources); annotations of a pod: obeyed", id="both ways"),
        pytest.param(
            replace(BOTH, static=False),
            "(the annotations default_vcpus and default_memory); annotations of a pod: obeyed",
            id="a VM that grows",
        ),
        pytest.param(
            replace(BOTH, enable_annotations=("default_vcpus",)),
            "annotations of a pod: not obeyed, enable_annotations lacks default_memory",
            id="half of the annotations",
        ),
    ],
)
def test_sizes_are_obeyed(handler: Handler, says: str) -> None:
    found = only(handler)
    assert (found.code, found.severity) == ("sizing", Severity.OK)
    assert found.what.endswith(says)


def test_queues_are_told_of_where_they_are_wanted() -> None:
    relay = replace(RELAY, sizing=replace(ENFORCE, queues=True))
    assert "queues of devices: not obeyed, only runtime-rs" in only(BOTH, relay).what
    rs = replace(BOTH, profile=Profile.KATA_RS, runtime_type="vm", enable_annotations=("network_queues",))
    said = only(rs, relay).what
    assert (
        "(the annotations io.kubernetes.cri.sandbox-*); queues of devices: not obeyed, block_device_num_queues" in said
    )


@pytest.mark.parametrize(
    ("handler", "relay", "code", "says"),
    [
        (replace(KATA, static=False), RELAY, "sizing-not-obeyed", "start small and grow"),
        (replace(KATA, static=False, runtime_type="vm"), RELAY, "sizing-not-obeyed", "enable_annotations lacks"),
        (replace(KATA, fault="/etc/kata.toml: line 3"), RELAY, "sizing-not-obeyed", "line 3"),
        (KATA, NAMED, "sizing-unknown", "the handler other is unknown"),
    ],
)
def test_sizes_are_not_obeyed(handler: Handler, relay: RelayFacts, code: str, says: str) -> None:
    found = only(handler, relay)
    assert (found.code, found.severity, bool(found.remedy)) == (code, Severity.WARNING, True)
    assert says in found.what


@pytest.mark.parametrize(
    ("view", "says"), [(None, "no relay answers"), (RelayView("1", 9, 1), "the relay runs with sizing.mode off")]
)
def test_no_relay_gives_sizes(view: RelayView | None, says: str) -> None:
    (found,) = sizing(VmFacts(()), replace(RELAY, view=view))
    assert (found.code, says in found.what) == ("sizing-no-relay", True)
