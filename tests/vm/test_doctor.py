"""`nodeward doctor` in the guest, where a real misc controller has sgx_epc and no runtime runs."""

import json
import sys
from pathlib import Path

from tests.vm import guest


def test_the_guests_controller_and_the_missing_runtime_are_found() -> None:
    nodeward = Path(sys.executable).parent / "nodeward"
    words = (str(nodeward), "doctor", "--set", "kube.enabled=false", "-o", "json")
    run = guest.boot(guest.needed(), words, {"sgx_epc": 1 << 20, "sev_es": 2})

    assert run.status == 2, run.output
    line = next(line for line in run.output.splitlines() if '{"worst"' in line)
    found = {one["code"]: one for one in json.loads(line[line.index("{") :])["findings"]}
    assert found["resource"]["what"] == "the kernel limits sgx_epc, and has 1048576 of it"
    assert found["misc-not-delegated"]["severity"] == "note"
    assert found["nri-no-socket"]["severity"] == "error"
    assert found["privileges"]["severity"] == "ok"
    assert not [code for code in found if code.startswith("cgroup") or code == "probe-failed"]
