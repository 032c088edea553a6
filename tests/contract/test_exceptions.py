"""The list of exceptions, and the lines that count the contracts' cases."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from tests.contract.apiserver.test_apiserver_contract import CASES as API_CASES
from tests.contract.cri.cri_cases import CASES as CRI_CASES
from tests.contract.cri.sides import SIDES as CRI_SIDES
from tests.contract.exceptions import EXCEPTIONS
from tests.contract.kernel.cases import CASES as KERNEL_CASES
from tests.contract.kernel.cases import V1_CASES
from tests.contract.kubelet.device_cases import CASES as DEVICE_CASES
from tests.contract.kubelet.view_cases import CASES as VIEW_CASES
from tests.contract.nri.adaptation_cases import CASES as NRI_CASES
from tests.contract.nri.adaptation_sides import SIDES
from tests.contract.quantity.test_quantity_contract import CASES as QUANTITY_CASES
from tests.patience import scaled

ROOT = Path(__file__).resolve().parents[2]
ENDS = {
    "kernel": ("double", "real"),
    "nri": SIDES,
    "cri": CRI_SIDES,
    "apiserver": ("double", "real"),
    "kubelet": ("double", "real"),
    "quantity": ("apimachinery",),
}
CASES: dict[str, Collection[str]] = {
    "kernel": KERNEL_CASES,
    "nri": NRI_CASES,
    "cri": CRI_CASES,
    "apiserver": API_CASES,
    "kubelet": [*DEVICE_CASES, *VIEW_CASES],
    "quantity": QUANTITY_CASES,
}


def test_each_exception_is_a_case_on_an_end() -> None:
    assert [(contract, end) for contract, end, _ in EXCEPTIONS if end not in ENDS[contract]] == []
    assert [(contract, case) for contract, _, case in EXCEPTIONS if case not in CASES[contract]] == []


def test_each_contract_is_counted_by_end() -> None:
    """The doubles' own rows, in a run of their own."""
    folders = [
        f"tests/contract/{name}" for name in ("kernel/test_kernel_double.py", "apiserver", "kubelet", "cri", "nri")
    ]
    words = [*folders, "-k", "test_kernel or double", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=scaled(300)
    )

    assert ran.returncode == 0, ran.stdout
    lines = ran.stdout.splitlines()
    assert f"kernel  double: {len(KERNEL_CASES) + len(V1_CASES)} held" in lines
    assert f"apiserver  double: {len(API_CASES)} held" in lines
    assert f"kubelet  double: {len(CASES['kubelet'])} held" in lines
    nri = "; ".join(f"{side}: {len(NRI_CASES)} held" for side in SIDES if side.startswith("double"))
    assert f"nri  {nri}" in lines
    cases = len(CRI_CASES)
    assert f"cri  double-1.7: {cases} held; double-2.4: {cases - 1} held, 1 excepted" in lines
