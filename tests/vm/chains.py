"""The host's side of a chain: boots the guest that plays its cases, tells what it said and how each case ended."""

import functools
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pytest

from tests.peers.find import absent, require
from tests.peers.recipes import cache_folder
from tests.told import tell
from tests.vm import guest
from tests.vm.chain_runner import END, RESULT

TIMEOUT_S: Final = 1500.0
"""For a guest that hangs. How long one that does not may take is a matter of the whole run's budget."""
CAPACITY: Final = {"sgx_epc": 1 << 20, "sev_es": 5}
_SYSTEMD: Final = guest.Machine(systemd=True)
Held = Mapping[str, str]
"""Case -> empty if it held, else what went wrong."""


def chain(
    cases: Iterable[str],
    name: str,
    peers: Sequence[str] = ("containerd",),
    words: Callable[[], Sequence[str]] = tuple,
    kind: guest.Machine = guest.ORDINARY,
    *,
    stock: bool = False,
    capacity: Mapping[str, int] = CAPACITY,
) -> Callable[[str], None]:
    """A test for each case of a chain. It needs these peers, and systemd where that is the guest's first process;
    `words` are what the chain wants besides."""

    def boots() -> Held:
        return outcomes(_needed(peers, kind, stock=stock), (name, *words()), kind, capacity)

    return tests_of(cases, boots)


def _needed(peers: Sequence[str], kind: guest.Machine, *, stock: bool) -> guest.Guest:
    machine = guest.needed(stock=stock)
    for peer in peers:
        require(peer)
    for tool in ("systemctl", "dbus-daemon") if kind.systemd else ():
        if shutil.which(tool) is None:
            absent(f"no {tool} here: run scripts/install-tools")
    return machine


def tests_of(cases: Iterable[str], boots: Callable[[], Held]) -> Callable[[str], None]:
    """A test for each of these cases, which are played once."""
    names = [*cases]
    held = functools.cache(lambda: kept(names, boots))

    @pytest.mark.parametrize("case", names)
    def test(case: str) -> None:
        ended_well(case, held())

    return test


def kept(cases: Iterable[str], boots: Callable[[], Held]) -> Held:
    """What a boot gives; where it fails, that is why each of these cases does, so that none of them boots again."""
    try:
        return boots()
    except Exception:
        return dict.fromkeys(cases, traceback.format_exc())


def ended_well(case: str, held: Held) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]


def outcomes(
    machine: guest.Guest,
    chain: Sequence[str],
    kind: guest.Machine = guest.ORDINARY,
    capacity: Mapping[str, int] = CAPACITY,
) -> Held:
    """Plays them; where one failed, all are played once more, in a new guest."""
    return twice(chain[0], lambda: once(machine, chain, kind, capacity))


def twice(name: str, play: Callable[[], Held]) -> Held:
    """What a chain gives; where a case failed, what all give when they are played once more."""
    try:
        first = play()
        why = next((f"{case} FAILED: {why}" for case, why in first.items() if why), "")
    except UnfinishedError as unfinished:
        first, why = {}, str(unfinished)
    if not why:
        return first
    tell(f"{name} is played once more. {why}")
    return play()


class UnfinishedError(Exception):
    """The guest ended before its cases did; the text has its output."""


def once(
    machine: guest.Guest,
    chain: Sequence[str],
    kind: guest.Machine = guest.ORDINARY,
    capacity: Mapping[str, int] = CAPACITY,
) -> Held:
    """Plays them in a guest that has the sources that this process has."""
    ours = ("env", f"PYTHONPATH={path}") if (path := os.environ.get("PYTHONPATH")) else ()
    program = (*ours, sys.executable, "-m", "tests.vm.chain_runner", str(cache_folder().parent.parent), *chain)
    run = guest.boot(machine, program, capacity, TIMEOUT_S, kind)
    lines = run.output.splitlines()
    tell(f"kernel {machine.release}, {run.duration_s:.1f} s with the boot")
    ended: dict[str, str] = {}
    for line in lines:
        if line.startswith(RESULT):
            name, failure, took_s = json.loads(line.removeprefix(RESULT))
            tell(f"    {'held' if not failure else 'FAILED'} in {took_s:.1f} s: {name}")
            ended[name] = failure
    if run.status != 0 or END not in lines:
        raise UnfinishedError(f"the guest did not finish its cases (status {run.status}):\n{run.output[-6000:]}")
    return ended


def pytest_inside(module: str, *cases: str, peers: Sequence[str], stock: bool = False) -> str:
    """What the module, pytest or what becomes it, says of these files in a guest with systemd; all cases pass.
    Overlays and sandboxes' folders are in /dev/shm: the guest's /tmp is an overlay itself."""
    machine = _needed(peers, _SYSTEMD, stock=stock)
    known = {"PYTHONPATH": os.environ.get("PYTHONPATH", "src"), "XDG_CACHE_HOME": str(cache_folder().parent.parent)}
    known |= {"TMPDIR": "/dev/shm", "NODEWARD_REQUIRE_ALL": "1"}
    words = ("env", *(f"{key}={value}" for key, value in known.items()), sys.executable, "-m", module)
    program = (*words, "-q", "--color=no", "--tb=short", *cases)
    run = guest.boot(machine, program, {"sev": 1, "sev_es": 1}, 600.0, _SYSTEMD)
    assert run.status == 0, run.output[-6000:]
    return run.output
