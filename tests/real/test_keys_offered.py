"""Keys offered to a real kubelet 1.37 by `nodeward node` itself: `keys` decides, and pods show what came of it.

This machine has no keys: the daemon's cgroup tree is a folder with misc files that the test writes. What is in use
is what they say, and the pods' own cgroups are elsewhere, so a pod never takes the key that it was promised.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeward.features.keys.effects.grants import decode
from nodeward.host.undo import BOOT_ID
from tests.peers.daemon import NODEWARD, WITHIN_S, until
from tests.peers.dying_daemon import STARTS, STEPS
from tests.peers.keynode import timeline
from tests.peers.podnode import Node, running_node
from tests.told import tell

TDX = "devices.kubevirt.io/tdx"
KEYS = 8
LATE, MADE_AGAIN = "the answer was not found in time; the pod can be made again", 5
ROW = f"{{resources: [{TDX}], publisher: device-plugin, publish: {TDX}}}"


class Offered:
    def __init__(self, node: Node) -> None:
        self.node, self.pods, self._said = node, node.keys, node.nodeward.config.read_text()
        self.uses, self.end = node.nodeward.has_keys, node.nodeward.end

    def offers(self, row: str) -> None:
        """The settings' row of the keys, from the daemon's next start on. This kubelet's --root-dir is not its usual
        one."""
        kubelet = f"kubelet_dir: {self.pods.home}, kubelet_root: {self.pods.root}"
        keys = f"{{mode: enforce, {kubelet}, kinds: {{tdx: {row}}}}}"
        self.node.nodeward.config.write_text(f"{self._said}keys: {keys}\n")

    def on_record(self) -> int:
        """How many grants the daemon has on record; those of pods that have ended for as long as kubelet names them."""
        return sum(self.granted(Path(BOOT_ID).read_text().strip()).values())

    def granted(self, boot: str) -> Mapping[str, int]:
        """The ids that the daemon has on record as granted in that boot, with how many times."""
        return (decode((self.node.nodeward.folder / "run" / "grants.journal").read_bytes(), boot) or {}).get(TDX, {})

    def shown(self) -> str:
        return self.node.nodeward.command("keys").stdout

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self.node.nodeward.process is not None
        return self.node.nodeward.process

    def start(self, healthy: int, program: Sequence[str] = (NODEWARD,)) -> subprocess.Popen[bytes]:
        with self.pods.relisted(TDX, (KEYS, healthy)):
            return self.node.nodeward.start(program)

    def replaced(self, healthy: int, end: Callable[[], None]) -> subprocess.Popen[bytes]:
        process = self.node.nodeward.start()
        lock = str(self.node.nodeward.folder / "run" / "node.lock")
        until(lambda: _has_open(process.pid, lock), "the second daemon waits")
        with self.pods.relisted(TDX, (KEYS, healthy)):
            end()
        return process

    def says(self, words: str) -> None:
        try:
            until(lambda: words in self.shown(), "keys")
        except AssertionError:
            assert words in self.shown()

    def has(self, capacity: int, allocatable: int) -> None:
        try:
            self.pods.has(TDX, (capacity, allocatable))
        except AssertionError as error:
            told = f"{self.pods.healthy(TDX)} of {self.pods.capacity(TDX)}\n{self.shown()}"
            raise AssertionError(f"{error}: {told}\n{self.node.nodeward.log()[-3000:]}") from error

    def runs(self, pod: str) -> None:
        self.makes(pod, lambda: self.pods.runs(pod))

    def makes(self, pod: str, is_so: Callable[[], bool], init: Sequence[int] = ()) -> None:
        """A pod that asks for a key, once this is so; made again where this machine was too slow to answer kubelet."""
        for late in range(MADE_AGAIN + 1):
            self.pods.create(pod, TDX, init=init)
            until(lambda: is_so() or self.pods.failed(pod) != "", f"{pod} is there or fails")
            why = self.pods.failed(pod)
            if LATE not in why or late == MADE_AGAIN:
                break
            tell(f"{pod} is made again: {why}")
            self.pods.delete(pod)
        assert why == "", f"{why}\n{self.shown()}"

    def is_left_by(self, *pods: str) -> None:
        for pod in pods:
            self.pods.delete(pod)
        self.uses(KEYS, 0)
        until(lambda: self.shown().startswith(f"tdx ({TDX}): {KEYS} of {KEYS} free"), "every key is free again")
        self.has(KEYS, KEYS)


def _has_open(pid: int, path: str) -> bool:
    try:
        return path in [os.readlink(one) for one in Path("/proc", str(pid), "fd").iterdir()]
    except FileNotFoundError:  # closed meanwhile
        return False


@contextmanager
def offered() -> Iterator[Offered]:
    """The node, with KEYS keys, none of them in use."""
    with running_node() as node:
        found = Offered(node)
        found.end(signal.SIGTERM)
        found.uses(KEYS, 0)
        found.offers(ROW)
        found.start(KEYS)
        yield found


@pytest.fixture(name="here", scope="module")
def _here() -> Iterator[Offered]:
    """One node for all; each test leaves it with KEYS keys, none of them in use, and a daemon that offers them."""
    with offered() as found:
        yield found


def test_keys_are_offered_given_and_withheld_as_the_kernel_has_them(here: Offered) -> None:
    pods = here.pods
    here.has(KEYS, KEYS)
    assert "pods-api=lost" not in here.node.nodeward.log()
    here.runs("vm-a")
    assert pods.held("vm-a", TDX) == ("tdx-key-0000",)
    for line in here.shown().splitlines():
        tell(line)

    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    here.runs("vm-b")
    pods.create("vm-c", TDX)
    until(lambda: pods.failed("vm-c") != "", "vm-c fails")
    tell(pods.failed("vm-c"))

    with timeline(pods, TDX) as seen:
        here.end(signal.SIGKILL)
        here.start(2)
        tell(f"capacity and allocatable after the daemon's kill -9: {seen()}")
        assert {found[0] for _, found in seen() if found is not None} == {KEYS}
    pods.create("vm-d", TDX)
    until(lambda: pods.failed("vm-d") != "", "vm-d fails")

    with timeline(pods, TDX) as seen:
        with pods.relisted(TDX, (KEYS, 2)):
            pods.restart()
        tell(f"capacity and allocatable after kubelet's kill -9: {seen()}")
    assert (pods.phase("vm-a"), pods.phase("vm-b")) == ("Running", "Running")
    here.uses(KEYS, KEYS - 3)
    here.has(KEYS, 3)
    here.runs("vm-e")
    held = [pods.held(pod, TDX) for pod in ("vm-a", "vm-b", "vm-e")]
    assert len(dict.fromkeys(held)) == 3
    here.is_left_by("vm-a", "vm-b", "vm-c", "vm-d", "vm-e")


def test_an_upgrade_begins_before_the_old_daemon_has_ended(here: Offered) -> None:
    pods = here.pods
    here.runs("stays")
    began, mine = pods.started("stays"), pods.held("stays", TDX)
    old = here.process
    with timeline(pods, TDX) as seen:
        here.replaced(KEYS, lambda: old.send_signal(signal.SIGTERM))
        assert old.wait(timeout=WITHIN_S) == 0
        here.has(KEYS, KEYS)
        tell(f"capacity and allocatable over an upgrade of the daemon: {seen()}")
        assert {found[0] for _, found in seen() if found is not None} == {KEYS}
    assert (pods.phase("stays"), pods.started("stays"), pods.held("stays", TDX)) == ("Running", began, mine)
    here.runs("next")
    assert pods.held("next", TDX) != mine
    here.is_left_by("stays", "next")


def test_a_key_stays_promised_when_kubelet_has_forgotten_whose_it_is(here: Offered) -> None:
    pods = here.pods
    here.runs("live")
    began = pods.started("live")
    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    served = here.node.nodeward.log().count("plugin=serving")
    with pods.relisted(TDX, (KEYS, 2)):
        pods.restart(forgets=True)
        until(lambda: here.node.nodeward.log().count("plugin=serving") > served, "it is registered again")
    until(lambda: here.shown().startswith(f"tdx ({TDX}): 1 of"), "what kubelet has forgotten is promised once")
    until(lambda: "1 more published to kubelet" in here.shown(), "the free one is published")
    here.runs("second")
    pods.create("third", TDX)
    until(lambda: pods.failed("third") != "", "third fails")
    assert (pods.phase("live"), pods.started("live"), pods.held("live", TDX)) == ("Running", began, ())
    assert "default/live: promised 1, holds nothing that is known\n" in here.shown()
    for line in here.shown().splitlines():
        tell(line)
    here.is_left_by("live", "second", "third")


@pytest.mark.parametrize("step", STEPS)
def test_a_daemon_that_dies_within_an_allocation_has_forgotten_nothing_that_kubelet_heard(
    step: str, here: Offered
) -> None:
    pods, dies, lives = here.pods, f"dies-{step}", f"lives-{step}"
    here.end(signal.SIGTERM)
    process = here.start(KEYS, [sys.executable, "-m", "tests.peers.dying_daemon", step])
    before = here.on_record()
    pods.create(dies, TDX)
    assert process.wait(timeout=WITHIN_S) == -signal.SIGKILL
    until(lambda: pods.held(dies, TDX) != () or pods.failed(dies) != "", "kubelet has seen it")
    tell(f"{step}: {pods.failed(dies) or 'the pod has its id'}")
    assert (pods.failed(dies) == "") is (step == "sent")
    assert here.on_record() - before == (step in ("recorded", "answered", "sent"))

    here.start(KEYS)
    until(lambda: pods.phase(dies) in ("Running", "Failed"), "a pod that was given its id starts once somebody lets it")
    here.runs(lives)
    held = dict.fromkeys((*pods.held(dies, TDX), *pods.held(lives, TDX)))
    assert len(held) == 1 + (step == "sent")
    until(lambda: all(f"id {name}" in here.shown() for name in held), "each id is shown with its pod")
    here.is_left_by(dies, lives)


@pytest.mark.parametrize("step", STARTS)
def test_a_start_that_was_let_through_before_a_death_counts_in_the_next_life(step: str, here: Offered) -> None:
    pods, first, second = here.pods, f"first-{step}", f"second-{step}"
    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    here.makes(second, lambda: pods.init_runs(second), init=(0,))
    until(lambda: here.on_record() == 1, "pods of before are off the record: the next life would count them until then")
    here.end(signal.SIGTERM)
    process = here.start(2, [sys.executable, "-m", "tests.peers.dying_daemon", step])
    here.makes(first, lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGKILL
    here.uses(KEYS, KEYS - 1)
    here.start(2)
    if step == "told":
        until(lambda: pods.phase(first) == "Running", "what kubelet heard stands")
    pods.end_init(second)
    until(lambda: "code = Unavailable" in pods.waits(second) or pods.runs(second), "the second has asked")
    until(lambda: pods.runs(first) or pods.runs(second), "one of them runs")
    runs, waits = (first, second) if pods.runs(first) else (second, first)
    until(lambda: "1 are on their way to pods that start" in pods.waits(waits), "the other waits for it")
    tell(f"{step}: {runs} runs, {pods.waits(waits)}")
    assert (runs == first) or step == "let-through"
    assert not pods.runs(waits)
    here.uses(KEYS, KEYS - 2)
    until(lambda: pods.runs(waits), "the other runs")
    here.is_left_by(first, second)


def test_what_is_written_on_the_node_while_kubelet_is_down_is_kubelets_to_take_back_or_its_writers(
    here: Offered,
) -> None:
    pods = here.pods
    with timeline(pods, TDX) as seen:
        with pods.down():
            pods.says(TDX, "5", by="somebody")
            assert pods.capacity(TDX) == (5, KEYS)
        here.has(KEYS, KEYS)
        tell(f"capacity and allocatable, written to while a kubelet was down that knows us: {seen()}")

    served = here.node.nodeward.log().count("plugin=serving")
    with timeline(pods, TDX) as seen:
        with pods.down():
            pods.strike_out()
            pods.says(TDX, "5", by="somebody")
        here.says(f"finding: {TDX} is offered by somebody else, so not by us: the node's status has 5 of it, written")
        for line in here.shown().splitlines():
            tell(line)
        assert "written there by 'somebody' and not by kubelet" in here.shown()
        until(lambda: pods.capacity(TDX) == (5, 5), "kubelet leaves it there")
        assert pods.healthy(TDX) == 0
        assert here.node.nodeward.log().count("plugin=serving") == served
        pods.says(TDX, None, by="somebody")
        here.has(KEYS, KEYS)
        tell(f"capacity and allocatable, written to while one was down that does not: {seen()}")


def test_what_is_taken_back_is_gone_from_the_node_and_pods_run_on(here: Offered) -> None:
    here.runs("last")
    uninstall = ("uninstall", "--config", str(here.node.nodeward.config))
    said = f"not taken back: kubelet has {KEYS} healthy id(s) of {TDX} from us"
    until(lambda: said in here.node.nodeward.command(*uninstall).stdout, "uninstall says what kubelet has")
    told = here.node.nodeward.command("uninstall", "--keys", "--yes")
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, f"{TDX}: kubelet has none left")
    here.has(0, 0)
    left = here.node.nodeward.command(*uninstall).stdout
    tell(left)
    assert f"not taken back: the node's status goes on naming {TDX}, with 0" in left
    assert "healthy id(s)" not in left
    assert here.pods.phase("last") == "Running"
