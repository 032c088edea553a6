"""What of each resource was promised, and what is free."""

from dataclasses import replace

from nodeward.features.keys.rows import KeyRow
from nodeward.features.limits.rows import CgroupRow, ResourceRow
from nodeward.people.view import shares

SIZES = {"sgx_epc": 64, "tdx": 8}
HELD = ResourceRow("sgx_epc", wanted=8, usage=4)
POD = CgroupRow("pod", "shop", "web", "", "", "/web", "enforced", "spec", "declared", (HELD,))
GREEDY = replace(POD, pod="more", resources=(replace(HELD, wanted=None),))
APP = replace(POD, level="container", container="app")


def test_what_is_promised_and_not_used_is_not_free_nor_what_is_used_and_was_not_promised() -> None:
    promised, free = shares(SIZES, {"sgx_epc": 10}, (POD, APP, GREEDY), ())
    assert (promised, free) == ({"sgx_epc": 8, "tdx": 0}, {"sgx_epc": 64 - 8 - 4 - 10}), "of a pod, not its containers"


def test_what_is_not_known_is_not_free() -> None:
    assert shares(SIZES, {}, (POD,), ())[1] == {}


def test_of_keys_it_is_what_the_ledger_says() -> None:
    kind = KeyRow("tdx", (), 8, 0, used=5, entitled=7, free=0)
    promised, free = shares(SIZES, {"sgx_epc": 0, "tdx": 0}, (POD,), (kind,))
    assert (promised["tdx"], free["tdx"]) == (7, 0)
    assert "tdx" not in shares(SIZES, {"tdx": 0}, (), (replace(kind, free=None),))[1], "blind"
