"""What doctor says of TEE keys, by what the daemon tells."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeward.engine.show.doctor_keys import keys
from nodeward.model.doctor import Finding, KeyFacts, Severity
from nodeward.model.view import KeyHolder, KeyOffer, KeyRow, KeySharing

WELL = KeySharing("override", "auto", "a/b", 4, 1, 12, 12, {"c/d": 12}, "working", sentence="the mode")
HOLDERS = tuple(KeyHolder("s", "p", "u", 1, 1, ("tdx0",), gone=gone) for gone in (False, True))
ROW = KeyRow("tdx", ("a/b", "c/d"), 16, 0, used=3, holders=HOLDERS)
OBJECT = "nodeward/zzz-nodeward-n1"
UNCOUNTED = replace(WELL, total=None)


def found(sharing: KeySharing, our_object: str = OBJECT) -> dict[str, Finding]:
    rows = (replace(ROW, sharing=sharing),)
    return {one.code: one for one in keys(KeyFacts(rows, our_object, has_checkpoint=True))}


def test_a_node_that_shares_well_is_told_its_mode_and_what_hangs_on_whom() -> None:
    said = found(WELL)
    assert list(said) == ["keys-mode", "keys-removal"]
    assert said["keys-mode"].what == "the mode"
    assert "1 pod(s) with ids run on" in said["keys-removal"].what


@pytest.mark.parametrize(
    ("changes", "our_object", "codes"),
    [
        ({"offer": KeyOffer(withheld="gone")}, "", ["keys-gone"]),
        ({"offer": KeyOffer(withheld="uncounted")}, "", ["keys-uncounted"]),
        ({"offer": KeyOffer()}, "", []),
        ({"offer": KeyOffer(withheld="uncounted"), "sharing": UNCOUNTED}, OBJECT, ["keys-uncounted"]),
        (
            {"offer": KeyOffer(withheld="uncounted"), "sharing": replace(UNCOUNTED, chosen="own")},
            OBJECT,
            ["keys-uncounted", "keys-nfd-stale"],
        ),
        ({"sharing": UNCOUNTED}, OBJECT, ["keys-nfd-stale"]),
        ({"offer": KeyOffer(journal_fault="it is full")}, "", ["keys-journal"]),
        ({"offer": KeyOffer(journal_lost="it was removed.")}, "", ["keys-journal-lost"]),
        (
            {"offer": KeyOffer(journal_fault="it is full", journal_lost="it was removed.")},
            "",
            ["keys-journal", "keys-journal-lost"],
        ),
        (
            {"used": 3, "entitled": 17, "sharing": KeySharing("own", "own", "a/b", 0, 14)},
            "",
            ["keys-mode", "keys-oversold"],
        ),
    ],
)
def test_what_keeps_keys_from_being_given_out_is_found_and_an_object_of_ours_while_nobody_wants_it(
    changes: dict[str, Any], our_object: str, codes: list[str]
) -> None:
    row = replace(ROW, **{"used": None, "sentence": "the kernel's word."} | changes)
    said = list(keys(KeyFacts((row,), our_object, has_checkpoint=True)))
    assert sorted(one.code for one in said if one.code != "keys-removal") == sorted(codes)
    assert all(one.remedy for one in said if one.severity is Severity.WARNING)


@pytest.mark.parametrize(
    ("sharing", "code", "what"),
    [
        (replace(WELL, chosen="override", nfd="absent"), "keys-nfd-away", "nobody goes by"),
        (replace(WELL, chosen="split", nfd="served"), "keys-nfd-away", "nobody goes by"),
        (replace(WELL, chosen="shared", nfd="absent"), "keys-nfd-away", "nobody offers"),
        (replace(WELL, error="403"), "keys-nfd-error", "403"),
        (replace(WELL, nfd_fault="no answer"), "keys-nfd-error", "no answer"),
        (
            replace(WELL, mode="own", total=None, nfd="unknown", nfd_fault="403"),
            "keys-nfd-error",
            "on this node is not known, so NFD's number is left alone, as with share own: 403",
        ),
        (replace(WELL, on_node={"c/d": 16}), "keys-nfd-late", "to be 12, and the node has c/d 16"),
        (replace(WELL, on_node={}), "keys-nfd-unruled", "by which pods here ask 1"),
        (replace(WELL, on_node={}, asked=0), "keys-nfd-unruled", "nobody goes by it"),
        (replace(WELL, quotes="answers"), "keys-quotes", "answers"),
        (replace(WELL, quotes="gone"), "keys-quotes-away", "VMs start"),
        (replace(WELL, quotes="x", attestation="enforce"), "keys-quotes-away", "no key is sold"),
        (replace(WELL, total=None), "keys-nfd-stale", "no daemon here wants"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_amiss_is_found(sharing: KeySharing, code: str, what: str) -> None:
    assert code not in found(WELL)
    said = found(sharing)
    assert what in said[code].what
    assert said[code].remedy or said[code].severity.value == "ok"


@pytest.mark.parametrize(
    ("on_node", "expected"),
    [
        pytest.param(None, [], id="not-read"),
        pytest.param({"c/d": 12}, [], id="the-same"),
        pytest.param({"other/key": 3}, ["keys-nfd-unruled"], id="the-rule-has-gone-since"),
        pytest.param({"c/d": 16}, ["keys-nfd-late"], id="master-gone-since"),
    ],
)
def test_what_the_node_has_now_comes_before_what_the_daemon_saw(
    on_node: Mapping[str, int] | None, expected: list[str]
) -> None:
    facts = KeyFacts((replace(ROW, sharing=WELL),), OBJECT, has_checkpoint=True, on_node=on_node)
    assert [one.code for one in keys(facts) if one.severity is Severity.WARNING] == expected


def test_a_number_that_nfd_left_on_the_node_is_found_whatever_the_mode_and_without_the_daemon() -> None:
    own = KeySharing("own", "own", asked=2, nfd="unknown", sentence="the mode")
    for rows, asked in (((replace(ROW, sharing=own),), "; pods here ask 2 by it, and"), ((), "any more, and")):
        (left,) = (one for one in keys(KeyFacts(rows, on_node={"c/d": 13}, left_by_nfd=("c/d",))) if one.remedy)
        assert (left.code, left.severity, left.where) == ("keys-nfd-left", Severity.WARNING, "c/d")
        assert "the node has c/d 13, which Node Feature Discovery put there" in left.what
        assert asked in left.what
        assert '[{"op": "remove", "path": "/status/capacity/c~1d"}]' in left.remedy


SEV = KeyRow("sev_es", ("a/b",), 509, 0, used=3)


@pytest.mark.parametrize(
    ("row", "hiding", "severity"),
    [
        pytest.param(SEV, 99, Severity.WARNING, id="more-are-sold-than-snp-may-have"),
        pytest.param(replace(SEV, capacity=99), 99, Severity.OK, id="as-many-as-snp-may-have"),
        pytest.param(SEV, 2**32 - 1, Severity.OK, id="all-of-them"),
        pytest.param(SEV, 0, None, id="not-hidden"),
        pytest.param(replace(SEV, capacity=0), 99, None, id="no-such-keys-here"),
        pytest.param(replace(SEV, key="tdx"), 99, None, id="of-tdx"),
    ],
)
def test_ciphertext_hiding_is_found_where_more_is_sold_than_snp_may_have(
    row: KeyRow, hiding: int, severity: Severity | None
) -> None:
    said = {one.code: one for one in keys(KeyFacts((row,), hiding=hiding))}
    if severity is None:
        assert said == {}
    else:
        assert said["keys-hiding"].severity is severity
        assert bool(said["keys-hiding"].remedy) is (severity is Severity.WARNING)


def test_where_somebody_else_offers_the_keys_it_is_told_what_comes_after_him() -> None:
    for offer, is_rival in ((KeyOffer(standing="rival"), True), (KeyOffer(), False)):
        row = replace(ROW, sharing=WELL, offer=offer)
        said = {one.code: one.what for one in keys(KeyFacts((row,), OBJECT, has_checkpoint=True))}
        assert ("as KubeVirt does: the node has 0 of them at once" in said["keys-removal"]) is is_rival


def test_auto_without_nfd_is_nothing_amiss_and_without_a_daemon_only_what_it_left_behind_is_found() -> None:
    assert list(found(KeySharing("own", "auto", nfd="absent"), "")) == ["keys-mode"]
    assert list(keys(KeyFacts())) == []
    (only,) = keys(KeyFacts(our_object=OBJECT))
    assert (only.code, only.where) == ("keys-nfd-stale", OBJECT)
