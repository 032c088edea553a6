"""What all contracts share: which cases are on a real neighbour, and their exceptions."""

import pytest

from tests.contract.exceptions import EXCEPTIONS

OLD = ("nri-0.8", "nri-0.11", "containerd-0.8", "containerd-1.7")
"""Ends that are old neighbours."""


def row_of(item: pytest.Item) -> tuple[str, str, str] | None:
    """Contract, end and case of a test, from its folder and parameters; None for tests of another kind."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return None
    params: dict[str, object] = spec.params
    contract = item.path.parent.name
    if "case_id" in params:
        return contract, item.path.stem.rpartition("_")[2], str(params["case_id"])
    end = str(params.get("side") or params.get("kind") or "")
    if "case" not in params or not end:
        return None
    case = params["case"]
    return contract, end, case if isinstance(case, str) else str(spec.id).removesuffix(f"-{end}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        row = row_of(item)
        if row is None:
            continue
        if row[1] in OLD:
            item.add_marker(pytest.mark.nightly)
        if row in EXCEPTIONS:
            known = EXCEPTIONS[row]
            item.add_marker(pytest.mark.xfail(reason=known.reason, run=known.played, strict=known.played))
