"""Two thousand whole reviews at once: each is answered or told that it was not, and the server serves on.

The server is stopped while they are brought, so that all of them are there in the moment in which it goes on. Nothing
here looks at a clock: `python -m bench webhook` prints how long answers take.
"""

import os
import re
import resource
import signal
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.webhook import crowd
from tests.component.webhook.crowd import Client, Said
from tests.component.webhook.support import REQUEST, WITHIN_S, install, port_of, post, program
from tests.peers.find import absent

CROWD = 2000
DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
NEEDED = CROWD + 500
MOST_MIB = 160
"""With a buffer of 64 KiB for each connection it was 229, with asyncio's own 590."""


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """The server begins with as few as a container may have, and this process may have enough of them."""
    if DESCRIPTORS < NEEDED:
        absent(f"at most {DESCRIPTORS} descriptors: ulimit -n {NEEDED} for this test")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def may_open_more() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, NEEDED), hard))


def trust(pki: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pki / "ca.crt"))


def at_once(pid: int, clients: list[Client], message: bytes) -> list[Said]:
    """What comes of these requests, all of which are there when the server looks."""
    os.kill(pid, signal.SIGSTOP)
    try:
        return crowd.ask(clients, message, WITHIN_S, lambda: os.kill(pid, signal.SIGCONT))
    finally:
        os.kill(pid, signal.SIGCONT)


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def ended(process: subprocess.Popen[str]) -> tuple[dict[str, int], str]:
    """What the webhook counted in its life, and what it logged."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(WITHIN_S) == 0
    assert process.stderr is not None
    logged = process.stderr.read()
    last = next(line for line in logged.splitlines() if " webhook ends " in line)
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", last)}, logged


@pytest.mark.usefixtures("few_descriptors")
def test_a_crowd_of_two_thousand_is_answered_or_told_so_and_nobody_is_lost(pki: Path, tmp_path: Path) -> None:
    """Given 2,000 connections, when each brings a whole review in one moment, thrice; then nobody is reset, every
    connection stays, what is shed is counted and told, memory is bounded, and the next ones are served."""
    install(pki, "first", tmp_path)
    with program(tmp_path) as process:
        port = port_of(process)
        may_open_more()
        with crowd.crowd(port, trust(pki), CROWD, WITHIN_S, first=REQUEST) as clients:
            said = [one for _ in range(3) for one in at_once(process.pid, clients, REQUEST)]
            statuses = Counter(one.status for one in said)
            assert len(said) == 3 * CROWD
            assert set(statuses) <= {200, 503}, statuses
            assert statuses[200] > 0
            assert not any(one.ends for one in said)
            alone = [crowd.ask([client], REQUEST, WITHIN_S)[0].status for client in clients[::100]]
            assert set(alone) == {200}
        assert post(port, trust(pki)) == 200
        assert peak_mib(process.pid) < MOST_MIB
        counted, logged = ended(process)

    assert counted["overloaded"] == statuses[503]
    assert counted["patched"] == CROWD + statuses[200] + len(alone) + 1
    assert (counted["faults"], counted["turned_away"], counted["not_reviews"]) == (0, 0, 0)
    assert ("turned_away=503 times=1 because=too many reviews at once; add replicas" in logged) is (statuses[503] > 0)
