"""The shipped systemd units, run from the bundle by a real systemd in the guest: relay and daemon before a kubelet."""

from tests.peers.bundle import require_bundle
from tests.vm.chains import chain
from tests.vm.guest import Machine
from tests.vm.units_cases import CASES

test_units = chain(CASES, "units", words=lambda: [str(require_bundle())], kind=Machine(memory_mib=2048, systemd=True))
