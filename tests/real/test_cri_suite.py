"""containerd's own CRI suite: the same results direct, and through a relay that relays, dumps, or gives CPUs.

Two run at once, each on a containerd of its own: with three the suite's own waits, a few seconds, are too short. What
is run, and why the rest of the suite is not, stands in tests/peers/cri_suite.yaml. With the policy `static` a part of
it is run each time, all of it with the marker deep.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeward.core import cpuset
from tests.component.relay.rig import WAIT_S, decided_by, node_process, relay_process
from tests.peers import crisuite
from tests.peers.containerd import IMAGE, Containerd, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod, start
from tests.peers.crisuite import Ran
from tests.peers.nriside import member, text

DIRECT, RELAYED, DUMPED = "direct", "relayed", "relayed, full dump"
PINNED, ALL_PINNED = "relayed, static", "all of it relayed, static"
STATIC = "cpus: {driver: relay}\npolicy: {active: static, reserved: 1}\nlimits: {mode: off}\n"
_COUNT = re.compile(r"(\w+)(?:/\d+|/-1)?=(\d+)")


@dataclass(frozen=True, slots=True)
class Went:
    ran: Ran
    has: list[str]
    """All tests of the suite."""
    log: str
    """The relay's."""
    dumped: Mapping[str, int]
    """Calls by method in the dump."""
    cpus: str = ""
    """Which CPUs a container has, as its runtime remembers them."""


def one(way: str) -> Went:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctd")))
        containerd = stack.enter_context(running_containerd(folder))
        stack.enter_context(crisuite.images_served(containerd))
        has = crisuite.has(containerd)
        if way == DIRECT:
            ran = crisuite.run(containerd, containerd.cri_socket, crisuite.chosen().run)
            return Went(ran, has, "", {})
        return behind_a_relay(containerd, way, has)


def behind_a_relay(containerd: Containerd, way: str, has: list[str]) -> Went:
    listen, dump = containerd.folder / "cri.sock", containerd.folder / "cri.dump"
    options = ["--dump-file", str(dump), "--dump", "reset,full:.*"] if way == DUMPED else []
    settings = containerd.folder / "nodeward.yaml"
    folders = f"run_dir: {containerd.folder}/run\nstate_dir: {containerd.folder}/state\n"
    settings.write_text(f"{folders}nri: {{enabled: false}}\nkube: {{enabled: false}}\n")
    with ExitStack() as stack:
        if way in (PINNED, ALL_PINNED):
            settings.write_text(settings.read_text() + STATIC)
            stack.enter_context(node_process(containerd.folder))
        stack.enter_context(relay_process(listen, containerd.cri_socket, "--config", str(settings), *options))
        if way in (PINNED, ALL_PINNED):
            decided_by(listen)
        ran = crisuite.run(containerd, listen, names(way))
        cpus = cpus_of_a_container(containerd, listen)
    dumped: Mapping[str, int] = {}
    if way == DUMPED:
        command = [str(Path(sys.executable).parent / "nodeward"), "dump", str(dump), "-o", "json"]
        read = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S * 2, check=True)
        told = [json.loads(line) for line in read.stdout.splitlines()]
        # each further message of a stream has a line of its own, with the number of its call
        dumped = Counter(method for method, _ in {(call["method"], call["number"]) for call in told})
    return Went(ran, has, listen.with_suffix(".log").read_text(), dumped, cpus)


def names(way: str) -> tuple[str, ...]:
    chosen = crisuite.chosen()
    return {PINNED: chosen.quick, ALL_PINNED: chosen.with_a_policy}.get(way, chosen.run)


def cpus_of_a_container(containerd: Containerd, listen: Path) -> str:
    """Of one that shares its CPUs, created at this socket."""
    with Cri(listen, containerd.peer / "proto" / "cri.proto") as cri:
        pod = pod_config("shares", containerd.cgroup_parent, containerd.folder / "logs")
        sandbox, made = start(cri, pod, container_config("app", IMAGE, memory_bytes=0))
        told = member(cri.call("ContainerStatus", {"container_id": made}), "status", "resources", "linux")
        remove_pod(cri, sandbox)
    return text(told, "cpuset_cpus") if isinstance(told, dict) else ""


@pytest.fixture(name="went", scope="module")
def _went() -> Iterator[dict[str, Went]]:
    ways = (DIRECT, RELAYED, DUMPED, PINNED)
    crisuite.program()
    with crisuite.cgroups_removed(), ThreadPoolExecutor(2) as threads:
        yield dict(zip(ways, threads.map(one, ways), strict=True))


def calls(log: str) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for name, number in _COUNT.findall(log.partition("relayed calls ")[2]):
        counted[name] += int(number)
    return counted


def test_every_test_of_the_suite_is_run_or_left_out_with_a_reason(went: dict[str, Went]) -> None:
    chosen = crisuite.chosen()
    assert sorted([*chosen.run, *chosen.left_out]) == sorted(went[DIRECT].has)


@pytest.mark.parametrize("way", [RELAYED, DUMPED])
def test_the_suite_goes_through_the_relay_as_it_goes_past_it(went: dict[str, Went], way: str) -> None:
    assert went[way].ran.results == went[DIRECT].ran.results, went[way].ran.told()
    assert "lost_sight=0" in went[way].log
    assert "faults=0" in went[way].log


def test_the_chosen_tests_pass(went: dict[str, Went]) -> None:
    ran = went[DIRECT].ran
    assert {ran.results.get(name) for name in crisuite.chosen().run} == {"PASS"}, ran.told()
    assert set(ran.results.values()) == {"PASS"}


def test_every_call_of_the_suite_stands_in_the_dump(went: dict[str, Went]) -> None:
    counted = calls(went[DUMPED].log)
    counted.pop("other", None)  # containerd's own services, on the same socket
    assert len(counted) >= 25
    assert {name: went[DUMPED].dumped.get(name, 0) for name in counted} == counted
    assert "lost=0" in went[DUMPED].log


def test_with_a_policy_the_same_tests_pass(went: dict[str, Went]) -> None:
    passes_with_a_policy(PINNED, went[PINNED])


@pytest.mark.nightly
def test_with_a_policy_all_tests_pass_but_those_that_look_at_cpus() -> None:
    crisuite.program()
    with crisuite.cgroups_removed():
        passes_with_a_policy(ALL_PINNED, one(ALL_PINNED))


def passes_with_a_policy(way: str, went: Went) -> None:
    assert {name: went.ran.results.get(name) for name in names(way)} == dict.fromkeys(names(way), "PASS"), (
        went.ran.told()
    )
    assert went.cpus == cpuset.text(cpuset.of(os.sched_getaffinity(0)))
    assert "faults=0" in went.log
    assert "WARNING nodeward.host" not in went.log, went.log
