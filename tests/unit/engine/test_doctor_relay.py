"""What doctor makes of a relay: each case is one thing that is wrong, and what is said of it."""

from dataclasses import replace

import pytest

from nodeward.engine.show.doctor_relay import plain, relay
from nodeward.model.doctor import KubeletFacts, RelayFacts, Severity
from nodeward.model.view import CallRow, DoorRow, DriverRow, DumpRow, RelayView

LISTEN, RUNTIME = "/run/nodeward/cri.sock", "/run/containerd/containerd.sock"
KUBELET = KubeletFacts("process 7", LISTEN, LISTEN)
VIEW = RelayView(
    "1",
    9,
    1,
    doors=(DoorRow(LISTEN, RUNTIME, True, 2, 2),),
    calls=(CallRow("Version", {"OK": 3}, {"passed": 3}),),
    limits=DriverRow(here=True),
    dump=DumpRow("/tmp/cri.dump", 9, 0, 0),
)
WELL = RelayFacts("/run/nodeward/relay.sock", VIEW, "", LISTEN, True, False, KUBELET)
NONE = replace(WELL, view=None, wants_limits=False, kubelet=KubeletFacts("process 7", RUNTIME, RUNTIME))
ELSEWHERE = replace(VIEW, limits=DriverRow(owner="process 12"))
CASES = {
    "absent-and-not-wanted": (NONE, "relay", Severity.OK, "no relay is wanted"),
    "absent-and-wanted": (replace(NONE, wants_limits=True), "relay-away", Severity.WARNING, "relay.limits is true"),
    "absent-and-kubelet-asks-it": (replace(WELL, view=None), "relay-away", Severity.ERROR, "no container starts"),
    "silent": (replace(NONE, fault="no answer of X"), "relay-silent", Severity.WARNING, "no answer of X"),
    "well": (WELL, "relay", Severity.OK, "3 calls"),
    "runtime-away": (
        replace(WELL, view=replace(VIEW, doors=(replace(VIEW.doors[0], present=False),))),
        "relay-runtime-absent",
        Severity.ERROR,
        RUNTIME,
    ),
    "kubelet-past-it": (
        replace(WELL, kubelet=KubeletFacts("process 7", RUNTIME, RUNTIME)),
        "relay-not-used",
        Severity.WARNING,
        RUNTIME,
    ),
    "images-past-it": (
        replace(WELL, kubelet=KubeletFacts("process 7", LISTEN, "/run/images.sock")),
        "relay-images-unseen",
        Severity.WARNING,
        "PullImage",
    ),
    "images-where-none-are-served": (
        replace(WELL, view=replace(VIEW, doors=(*VIEW.doors, DoorRow("/run/nodeward/images.sock", "/i", True, 0, 0)))),
        "relay-images-refused",
        Severity.ERROR,
        "no image can be pulled",
    ),
    "no-image-call-and-no-kubelet-seen": (
        replace(WELL, kubelet=KubeletFacts()),
        "relay-images-unseen",
        Severity.NOTE,
        "no image call",
    ),
    "dump-loses": (
        replace(WELL, view=replace(VIEW, dump=DumpRow("/tmp/cri.dump", 9, 4, 0))),
        "relay-dump-loses",
        Severity.WARNING,
        "4 messages",
    ),
    "uncounted": (replace(WELL, view=replace(VIEW, counted=False)), "relay", Severity.OK, "counts no calls"),
    "nri-too": (replace(WELL, nri=True), "relay-and-nri", Severity.WARNING, "nri.enabled"),
    "another-decides": (replace(WELL, view=ELSEWHERE), "relay-not-driver", Severity.WARNING, "process 12"),
    "undecided": (
        replace(WELL, view=replace(VIEW, doors=(replace(VIEW.doors[0], undecided=5),))),
        "relay-undecided",
        Severity.WARNING,
        "5 calls",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_relay_is_judged(name: str) -> None:
    facts, code, severity, words = CASES[name]

    found = [one for one in relay(facts, True) if one.severity is not Severity.OK] or list(relay(facts, True))

    assert [(one.code, one.severity) for one in found] == [(code, severity)]
    assert words in found[0].what
    assert severity is Severity.OK or found[0].remedy


def test_image_calls_that_have_passed_are_no_riddle() -> None:
    """Given no kubelet that is seen, and an image call among those that passed, then nothing is lacking."""
    calls = (CallRow("ImageFsInfo", {"OK": 1}, {"passed": 1}),)
    facts = replace(WELL, kubelet=KubeletFacts(), view=replace(VIEW, calls=calls))

    assert [one.code for one in relay(facts, True)] == ["relay"]


def test_a_relay_alone_is_a_note_beside_what_is_well() -> None:
    assert [(one.code, one.severity) for one in relay(WELL, False)] == [
        ("relay-alone", Severity.NOTE),
        ("relay", Severity.OK),
    ]


def test_where_nobody_looked_nothing_is_said() -> None:
    assert list(relay(RelayFacts(), None)) == []


@pytest.mark.parametrize("endpoint", ["unix:///var/run/x.sock", "unix:/run/x.sock", "/run/x.sock"])
def test_an_endpoint_is_a_path_however_it_is_written(endpoint: str) -> None:
    assert plain(endpoint) == "/run/x.sock"
