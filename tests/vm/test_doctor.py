"""`nodeward doctor` in the guest, where no runtime runs: with a real misc controller that has sgx_epc, and without."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.vm import guest


def doctor(*settings: str, machine: guest.Machine = guest.ORDINARY) -> Mapping[str, Mapping[str, str]]:
    """What it finds there, by code; it has to end with 1, since one is an error."""
    nodeward = Path(sys.executable).parent / "nodeward"
    flags = [word for one in ("kube.enabled=false", *settings) for word in ("--set", one)]
    words = (str(nodeward), "doctor", *flags, "-o", "json")
    run = guest.boot(guest.needed(), words, {"sgx_epc": 1 << 20, "sev_es": 2}, machine=machine)

    assert run.status == 1, run.output
    line = next(line for line in run.output.splitlines() if '{"worst"' in line)
    return {one["code"]: one for one in json.loads(line[line.index("{") :])["findings"]}


def test_the_guests_controller_and_the_missing_runtime_are_found() -> None:
    found = doctor()

    assert found["resource"]["what"] == "the kernel limits sgx_epc, and has 1048576 of it"
    assert found["misc-not-delegated"]["severity"] == "note"
    assert found["nri-no-socket"]["severity"] == "error"
    assert found["privileges"]["severity"] == "ok"
    assert not [code for code in found if code.startswith("cgroup") or code == "probe-failed"]


def test_a_kernel_without_the_misc_controller_is_the_one_error_where_no_runtime_is_asked_for() -> None:
    found = doctor("nri.enabled=false", machine=guest.Machine(kernel_words=("cgroup_disable=misc",)))

    assert [code for code, one in found.items() if one["severity"] == "error"] == ["no-misc-controller"]
    controller = found["no-misc-controller"]
    assert controller["what"].startswith(f"the misc controller is not there (kernel {guest.needed().release})")
    assert "without cgroup_disable=misc" in controller["remedy"]
    assert not {"resource", "no-resource", "misc-delegated", "misc-not-delegated", "probe-failed"} & set(found)
