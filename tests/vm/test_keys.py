"""`nodeward keys` beside a real kernel's counters: late charges, foreign VMs, Kata's outside of their pods, a moved
process, a removed cgroup."""

from tests.vm.chains import chain
from tests.vm.keys_cases import CAPACITY, CASES, SEV, SEV_CAPACITY, TDX

test_keys = chain(CASES, "taken-keys", (), capacity={TDX: CAPACITY, SEV: SEV_CAPACITY})
