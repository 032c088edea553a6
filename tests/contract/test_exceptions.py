"""The list of exceptions, and the lines that count the contracts' cases."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from _pytest.terminal import TerminalReporter

from tests.contract.apiserver.test_apiserver_contract import CASES as API_CASES
from tests.contract.conftest import ROW, pytest_terminal_summary
from tests.contract.cri.cri_cases import CASES as CRI_CASES
from tests.contract.cri.sides import SIDES as CRI_SIDES
from tests.contract.exceptions import EXCEPTIONS
from tests.contract.kernel.cases import CASES as KERNEL_CASES
from tests.contract.kernel.cases import CPU_CASES, V1_CASES
from tests.contract.kubelet.device_cases import CASES as DEVICE_CASES
from tests.contract.kubelet.view_cases import CASES as VIEW_CASES
from tests.contract.nri.adaptation_cases import CASES as NRI_CASES
from tests.contract.nri.adaptation_sides import SIDES
from tests.contract.quantity.test_quantity_contract import CASES as QUANTITY_CASES

ENDS = {
    "kernel": ("double", "real"),
    "nri": SIDES,
    "cri": CRI_SIDES,
    "apiserver": ("double", "real"),
    "kubelet": ("double", "real"),
    "quantity": ("apimachinery",),
}
CASES: dict[str, Collection[str]] = {
    "kernel": [*KERNEL_CASES, *V1_CASES, *CPU_CASES],
    "nri": NRI_CASES,
    "cri": CRI_CASES,
    "apiserver": API_CASES,
    "kubelet": [*DEVICE_CASES, *VIEW_CASES],
    "quantity": QUANTITY_CASES,
}


def test_each_exception_is_a_case_on_an_end() -> None:
    assert [(contract, end) for contract, end, _ in EXCEPTIONS if end not in ENDS[contract]] == []
    assert [(contract, case) for contract, _, case in EXCEPTIONS if case not in CASES[contract]] == []


class _Rows:
    """A plugin: how many rows of each contract's end were collected."""

    def __init__(self) -> None:
        self.found = Counter[tuple[str, str]]()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.found.update(
            row[:2] for item in session.items for _, row in item.user_properties if isinstance(row, tuple)
        )


def test_each_case_is_a_row_of_its_contract_on_each_double() -> None:
    rows = _Rows()
    assert pytest.main([str(Path(__file__).parent), "--collect-only", "-p", "no:cacheprovider"], plugins=[rows]) == 0
    doubles = [(name, end) for name, ends in ENDS.items() for end in ends if end.startswith("double")]
    assert {one: rows.found[one] for one in doubles} == {one: len(CASES[one[0]]) for one in doubles}


def test_the_summary_counts_a_contracts_rows_by_end_and_outcome() -> None:
    def report(end: str) -> SimpleNamespace:
        return SimpleNamespace(user_properties=[("other", 1), (ROW, ("cri", end, "a-case"))])

    said = list[str]()
    stats = {"passed": [report("double"), report("real"), report("double")], "xfailed": [report("real")]}
    reporter = SimpleNamespace(stats=stats, section=said.append, write_line=said.append)
    pytest_terminal_summary(cast(TerminalReporter, reporter))
    assert said == ["contracts", "cri  double: 2 held; real: 1 held, 1 excepted"]
