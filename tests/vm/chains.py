"""The host's side of a chain: boots the guest that plays its cases, tells what it said and how each case ended."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from tests.peers.recipes import cache_folder
from tests.told import tell
from tests.vm import guest
from tests.vm.chain_runner import END, RESULT, SAYS

TIMEOUT_S: Final = 1500.0
"""For a guest that hangs. How long one that does not may take is a matter of the whole run's budget."""
CAPACITY: Final = {"sgx_epc": 1 << 20, "sev_es": 5}


def outcomes(machine: guest.Guest, chain: Sequence[str], kind: guest.Machine = guest.ORDINARY) -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong. Where one failed, all are played once more, in a new guest."""
    try:
        first = _played(machine, chain, kind)
        why = next((f"{case} FAILED: {why}" for case, why in first.items() if why), "")
    except UnfinishedError as unfinished:
        first, why = {}, str(unfinished)
    if not why:
        return first
    tell(f"{chain[0]} is played once more. {why}")
    try:
        return _played(machine, chain, kind)
    except UnfinishedError as unfinished:
        pytest.fail(str(unfinished), pytrace=False)


class UnfinishedError(Exception):
    """The guest ended before its cases did; the text has its output."""


def _played(machine: guest.Guest, chain: Sequence[str], kind: guest.Machine) -> Mapping[str, str]:
    """The guest has the sources that this process has."""
    ours = ("env", f"PYTHONPATH={path}") if (path := os.environ.get("PYTHONPATH")) else ()
    program = (*ours, sys.executable, "-m", "tests.vm.chain_runner", str(cache_folder().parent.parent), *chain)
    run = guest.boot(machine, program, CAPACITY, TIMEOUT_S, kind)
    lines = run.output.splitlines()
    tell(f"kernel {machine.release}, {run.duration_s:.1f} s with the boot")
    ended: dict[str, str] = {}
    for line in lines:
        if line.startswith(SAYS):
            tell(json.loads(line.removeprefix(SAYS)))
        if line.startswith(RESULT):
            name, failure, took_s = json.loads(line.removeprefix(RESULT))
            tell(f"    {'held' if not failure else 'FAILED'} in {took_s:.1f} s: {name}")
            ended[name] = failure
    if run.status != 0 or END not in lines:
        raise UnfinishedError(f"the guest did not finish its cases (status {run.status}):\n{run.output[-6000:]}")
    return ended
