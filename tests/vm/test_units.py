"""The shipped systemd units, run from the bundle by a real systemd in the guest: relay and daemon before a kubelet."""

import functools
from typing import Final

import pytest

from tests.peers.bundle import require_bundle
from tests.vm.chains import chain
from tests.vm.guest import Machine
from tests.vm.units_cases import CASES, MORE

_UNITS: Final = functools.partial(
    chain, words=lambda: [str(require_bundle())], kind=Machine(memory_mib=2048, systemd=True)
)
test_units = _UNITS(CASES, "units")
test_more = pytest.mark.nightly(_UNITS(MORE, "units-more"))
