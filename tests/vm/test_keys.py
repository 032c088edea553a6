"""`nodeward keys` beside a real kernel's counters: late charges, foreign VMs, Kata's outside of their pods, a moved
process, a removed cgroup."""

from typing import Final

import pytest

from tests.vm.chains import chain
from tests.vm.keys_cases import CAPACITY, CASES, MORE, SEV, SEV_CAPACITY, TDX

_THERE: Final = {TDX: CAPACITY, SEV: SEV_CAPACITY}
test_keys = chain(CASES, "taken-keys", (), capacity=_THERE)
test_more = pytest.mark.nightly(chain(MORE, "taken-keys-more", (), capacity=_THERE))
