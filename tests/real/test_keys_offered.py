"""Keys offered to a real kubelet 1.37 by `nodeward node` itself: the ledger decides, and pods show what came of it.

This machine has no keys: what is in use is what the test writes into misc files (offered_node.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeward.app.host.boot import BOOT_ID
from tests.peers.daemon import NODEWARD, WITHIN_S, standing_still, until
from tests.peers.deviceplugin import running_plugin
from tests.peers.dying_daemon import STARTS, STEPS
from tests.peers.keynode import timeline
from tests.peers.nriside import Record
from tests.peers.podnode import END_SOON, container
from tests.real import key_stories
from tests.real.offered_node import KEYS, ROW, TDX, Offered, offered
from tests.told import tell

SEV = "devices.kubevirt.io/sev-esids"
OTHER_BOOT = "00000000-0000-4000-8000-000000000002"


@pytest.fixture(name="here", scope="module")
def _here() -> Iterator[Offered]:
    """One node for all; each test leaves it with KEYS keys, none of them in use, and a daemon that offers them."""
    with offered() as found:
        yield found


def test_keys_are_offered_given_and_withheld_as_the_kernel_has_them(here: Offered) -> None:
    """Given keys, when pods come, somebody else takes some, daemon and kubelet die, then none is given twice."""
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
    """Given a pod with an id, when a second daemon waits for the first and takes over, then the node's capacity stands
    all the while, and so do the pod and its id."""
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


def test_a_start_waits_while_the_kernel_has_no_key_left(here: Offered) -> None:
    """Given a pod whose init container and whose container ask for a key each, while there is one, then both have the
    same id, and it is promised one; when others take every key before the second starts, then its start is put off with
    the reason, and it runs once a key is there; the id is its own all the while."""
    pods = here.pods
    here.uses(KEYS, KEYS - 1)
    here.has(KEYS, 1)
    pods.create("late", TDX, init=(1,))
    until(lambda: pods.init_runs("late"), "late's init container runs")
    until(lambda: "default/late: promised 1, " in here.shown(), "it is promised one key")
    assert pods.held("late", TDX) == ("tdx-key-0000",)
    assert pods.failed("late") == ""
    here.uses(KEYS, KEYS)
    here.has(KEYS, 1)
    pods.end_init("late")
    until(lambda: "code = Unavailable" in pods.waits("late"), "late waits")
    tell(pods.waits("late"))
    assert f"Nodeward gives out no {TDX} for 'tdx-key-0000'" in pods.waits("late")
    assert f"of {KEYS} there are {KEYS} in use" in pods.waits("late")
    assert pods.phase("late") == "Pending"
    here.uses(KEYS, KEYS - 1)
    until(lambda: pods.phase("late") == "Running", "late runs")
    assert pods.held("late", TDX) == ("tdx-key-0000",)
    here.is_left_by("late")


def test_a_static_pod_is_given_its_key_while_the_api_server_stands_still(here: Offered) -> None:
    """Given an API server that lets everybody in and answers nobody, when kubelet has a pod of its own that asks for a
    key, then it is given one. Kubelet itself starts a container only once that server is back, or given up."""
    spec: Record = {**END_SOON, "containers": [container("app", resources={"limits": {TDX: "1"}})]}
    manifest: Record = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "still"}, "spec": spec}
    before = here.pods.handed_out(TDX)
    with standing_still(here.pods.server.process):
        here.pods.kubelet.add_static("still", json.dumps(manifest))
        until(lambda: any(uid not in before for uid in here.pods.handed_out(TDX)), "kubelet has an answer, and a key")
    until(lambda: here.pods.runs("still-node-1"), "it runs")
    here.pods.kubelet.remove_static("still")
    here.is_left_by()


def test_new_capacity_is_offered_without_a_restart(here: Offered) -> None:
    """Given a running daemon, when the kernel has one more key, then the node has one more; and one less thereafter."""
    here.uses(KEYS + 1, 0)
    here.has(KEYS + 1, KEYS + 1)
    here.uses(KEYS, 0)
    here.has(KEYS, KEYS)


def test_each_mode_of_sharing_is_as_its_table_says_and_doctor_says_which_it_is(here: Offered) -> None:
    key_stories.modes(here)


def test_auto_follows_nfd_and_no_key_is_sold_while_nobody_makes_quotes(here: Offered) -> None:
    key_stories.auto_and_quotes(here)


def test_after_another_boot_only_kubelets_word_counts(here: Offered) -> None:
    """Given a journal of grants, when the daemon begins in what it takes for another boot beside a kubelet that lived
    on, then the journal is void, and what kubelet has given is not given again."""
    pods, folder = here.pods, here.node.nodeward.folder
    here.runs("before")
    mine = pods.held("before", TDX)
    here.end(signal.SIGKILL)
    recorded = here.on_record()
    here.forge(("tdx-key-0006", "tdx-key-0007"))
    assert here.on_record() == recorded + 2
    (folder / "boot_id").write_text(f"{OTHER_BOOT}\n")
    over = f'mount --bind {folder}/boot_id {BOOT_ID} && exec "$@"'
    here.start(KEYS, ["unshare", "-m", "sh", "-c", over, "sh", NODEWARD])
    shown = here.shown()
    tell(shown.splitlines()[0])
    assert shown.startswith(f"tdx ({TDX}): {KEYS - 1} free")
    assert f"default/before: promised 1, holds nothing that is known, id {mine[0]}" in shown
    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    here.runs("after")
    assert pods.held("after", TDX) != mine
    pods.create("more", TDX)
    until(lambda: pods.failed("more") != "", "more fails")
    assert list(here.granted(OTHER_BOOT)) == list(pods.held("after", TDX))
    here.end(signal.SIGTERM)
    here.start(2)
    here.is_left_by("before", "after", "more")


def test_the_keys_of_a_journal_that_was_removed_stay_promised_and_are_on_record_again(here: Offered) -> None:
    """Given a pod with an id, when the daemon is killed and its journal removed, then the next one says so, finds the
    id with kubelet, and gives no more pods a key than there are."""
    pods = here.pods
    here.runs("kept")
    mine = pods.held("kept", TDX)
    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    here.end(signal.SIGKILL)
    (here.node.nodeward.folder / "run" / "grants.journal").unlink()
    here.start(2)
    assert "grants=lost" in here.node.nodeward.log()
    here.says("the journal of grants was removed since the boot: 1 id(s) are taken for granted")
    until(lambda: list(here.granted(Path(BOOT_ID).read_text().strip())) == list(mine), "it is on record again")
    here.runs("next")
    assert pods.held("next", TDX) != mine
    pods.create("beyond", TDX)
    until(lambda: pods.failed("beyond") != "", "beyond fails")
    for line in here.shown().splitlines():
        tell(line)
    here.is_left_by("kept", "next", "beyond")


def test_a_key_stays_promised_when_kubelet_has_forgotten_whose_it_is(here: Offered) -> None:
    """Given a pod with an id, when kubelet dies and its checkpoint is deleted, then the pod's key is nobody else's,
    whatever ids kubelet gives out."""
    pods = here.pods
    here.runs("live")
    began = pods.started("live")
    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    served = here.node.nodeward.log().count("plugin=serving")
    with pods.relisted(TDX, (KEYS, 2)):
        pods.restart(forgets=True)
        until(lambda: here.node.nodeward.log().count("plugin=serving") > served, "it is registered again")
    until(lambda: here.shown().startswith(f"tdx ({TDX}): 1 free"), "what kubelet has forgotten is promised once")
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
    """Given a daemon that is killed at this step, when the next one lives, then it knows of each id that a pod has."""
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


def promised_one_key_each(here: Offered, step: str, first: str, second: str) -> None:
    """Two pods have an id each: of one the daemon was killed at this step of its start, the other is still in its init
    container. There is one key left."""
    pods = here.pods
    here.uses(KEYS, KEYS - 2)
    here.has(KEYS, 2)
    here.makes(second, lambda: pods.init_runs(second), init=(0,))
    until(lambda: here.on_record() == 1, "pods of before are off the record: the next life would count them until then")
    here.end(signal.SIGTERM)
    process = here.start(2, [sys.executable, "-m", "tests.peers.dying_daemon", step])
    here.makes(first, lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGKILL
    here.uses(KEYS, KEYS - 1)


@pytest.mark.parametrize("step", STARTS)
def test_a_start_that_was_let_through_before_a_death_counts_in_the_next_life(step: str, here: Offered) -> None:
    """Given a daemon that is killed between the yes to a pod's start and its charge, when another lives, one key is
    left, and a second pod is to start, then only one of the two does, until there is a key for the other too."""
    pods, first, second = here.pods, f"first-{step}", f"second-{step}"
    promised_one_key_each(here, step, first, second)
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


def test_such_a_start_counts_too_where_only_kubelets_apis_tell_of_it(here: Offered) -> None:
    """Given the same two pods, when the next daemon finds a checkpoint that cannot be read, then it knows both by
    PodResources; the second waits for the first one's key, and starts by the Pods API's word once there is another."""
    pods = here.pods
    promised_one_key_each(here, "told", "first", "second")
    mine = {pod: pods.held(pod, TDX)[0] for pod in ("first", "second")}
    with here.checkpoint_hidden():
        here.node.nodeward.start()
        here.says("finding: what kubelet has handed out cannot be read")
        for pod, name in mine.items():
            here.says(f"default/{pod}: promised 1, holds nothing that is known, id {name}")
        here.has(KEYS, 2)
        pods.end_init("second")
        until(lambda: "1 are on their way to pods that start" in pods.waits("second"), "the second waits")
        tell(pods.waits("second"))
        assert pods.runs("first")
        here.uses(KEYS, KEYS - 2)
        until(lambda: pods.runs("second"), "the second runs")
    here.is_left_by("first", "second")


def test_a_rival_keeps_its_name_and_the_finding_says_so(here: Offered) -> None:
    """Given another plugin of the name, when the daemon starts, then it says so, and takes over when the other ends.
    The id of a pod that had it from the other is on the list for as long as that pod lives, and beside somebody else's
    plugin nobody takes our list for the other's; the other is told that comes back with that id alone."""
    here.end(signal.SIGTERM)
    plugins = here.pods.home / "device-plugins"
    with running_plugin(plugins, TDX, ["tdx0", "tdx1"]):
        here.has(2, 2)
        here.node.nodeward.start()
        until(lambda: f"finding: {TDX} is offered by somebody else" in here.shown(), "the finding")
        for line in here.shown().splitlines():
            tell(line)
        assert here.pods.capacity(TDX) == (2, 2)
        here.runs("theirs")
    here.has(KEYS + 1, KEYS)
    tell(f"{here.pods.held('theirs', TDX)} is a rival's, which has ended: the node has {here.pods.capacity(TDX)}")
    with running_plugin(plugins, "example.com/other", ["other0"]):
        for pod in ("one", "two"):  # kubelet writes down each, and the daemon looks at what it wrote
            here.runs(pod)
        assert "offered by somebody else" not in here.shown()
        here.has(KEYS + 1, KEYS)
    left = here.pods.held("theirs", TDX)
    with running_plugin(plugins, TDX, left):  # which is on our list too
        here.says(f"1 ids of another plugin's registered ({left[0]})")
        here.has(1, 1)
    here.has(KEYS + 1, KEYS)
    here.is_left_by("one", "two", "theirs")


def test_a_rival_that_comes_with_another_kubelet_keeps_the_name(here: Offered) -> None:
    """Given a daemon that has registered, when it stands still while kubelet dies, begins anew and takes another
    plugin of the name, then it leaves the name to that until it ends."""
    with contextlib.ExitStack() as there:
        with standing_still(here.process):
            here.pods.restart()
            rival = there.enter_context(running_plugin(here.pods.home / "device-plugins", TDX, ["tdx0", "tdx1"]))
            here.has(2, 2)
        here.says(f"finding: {TDX} is offered by somebody else")
        assert (rival.streams, here.pods.capacity(TDX)) == (1, (2, 2))
    here.has(KEYS, KEYS)


def test_a_name_that_somebody_wrote_on_the_node_is_left_to_him_and_counted(here: Offered) -> None:
    """Given a resource that somebody has written into the node's status, when the daemon starts that is to offer it,
    then it does not, says who, and counts; once it is gone from there the daemon registers. What kubelet wrote there
    of the daemon's other resource keeps that from nothing."""
    said, root = here.node.nodeward.config.read_text(), here.node.nodeward.folder / "cgroup"
    row = f"{{resources: [{SEV}], publisher: device-plugin, publish: {SEV}}}"
    here.end(signal.SIGTERM)
    here.node.nodeward.config.write_text(said.replace(f"tdx: {ROW}", f"tdx: {ROW}, sev_es: {row}"))
    for name, amount in (("misc.capacity", 4), ("misc.current", 1)):
        with (root / name).open("ab") as file:
            file.write(f"sev_es {amount}\n".encode())
    here.pods.says(SEV, "5")
    here.start(KEYS)
    until(lambda: f"finding: {SEV} is offered by somebody else" in here.shown(), "the finding")
    for line in here.shown().splitlines():
        tell(line)
    assert f"sev_es ({SEV}): 3 free" in here.shown()
    assert here.pods.capacity(SEV) == (5, 5)
    here.pods.says(SEV, None)
    here.pods.has(SEV, (4, 3))
    here.end(signal.SIGTERM)
    here.node.nodeward.config.write_text(said)
    here.uses(KEYS, 0)
    for name in ("misc.capacity", "misc.current"):
        os.truncate(root / name, len(f"tdx {KEYS}\n"))
    here.start(KEYS)


def test_what_is_written_on_the_node_while_kubelet_is_down_is_kubelets_to_take_back_or_its_writers(
    here: Offered,
) -> None:
    """Given a daemon that has registered, when somebody writes its resource into the node's status while kubelet is
    down, then kubelet takes that back where it knows of a plugin, and the daemon registers. Where kubelet has struck
    that out, it leaves what is there: the daemon says who wrote it and does not register, until it is gone."""
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
    """Given a pod with an id, when the keys are taken back, then the node has none, and the pod runs."""
    here.runs("last")
    uninstall = ("uninstall", "--config", str(here.node.nodeward.config))
    said = f"not taken back: kubelet has {KEYS} healthy id(s) of {TDX} from us"
    until(lambda: said in here.node.nodeward.command(*uninstall).stdout, "uninstall says what kubelet has")
    told = here.node.nodeward.command("decommission")
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, f"{TDX}: kubelet has none left")
    here.has(0, 0)
    left = here.node.nodeward.command(*uninstall).stdout
    tell(left)
    assert f"not taken back: the node's status goes on naming {TDX}, with 0" in left
    assert "healthy id(s)" not in left
    assert here.pods.phase("last") == "Running"
