"""What all contracts share: their exceptions, and a line for each that says how many cases held on which end."""

from collections import Counter

import pytest
from _pytest.terminal import TerminalReporter

from tests.contract.exceptions import EXCEPTIONS

ROW = "contract row"
"""Of a test's user properties: contract, end and case."""
OLD = ("nri-0.8", "nri-0.11", "containerd-0.8", "containerd-1.7")
"""Ends that are old neighbours."""
SHOWN = {"passed": "held", "failed": "FAILED", "error": "FAILED", "skipped": "skipped", "xfailed": "excepted"}


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
        item.user_properties.append((ROW, row))
        if row in EXCEPTIONS:
            known = EXCEPTIONS[row]
            item.add_marker(pytest.mark.xfail(reason=known.reason, run=known.played, strict=known.played))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    counts: dict[str, dict[str, Counter[str]]] = {}
    for outcome, shown in SHOWN.items():
        for report in terminalreporter.stats.get(outcome, ()):
            for name, row in getattr(report, "user_properties", ()):
                if name == ROW:
                    contract, end, _ = row
                    counts.setdefault(contract, {}).setdefault(end, Counter())[shown] += 1
    if counts:
        terminalreporter.section("contracts")
    for contract, ends in sorted(counts.items()):
        told = (
            f"{end}: {', '.join(f'{number} {shown}' for shown, number in said.items())}" for end, said in ends.items()
        )
        terminalreporter.write_line(f"{contract}  {'; '.join(told)}")
