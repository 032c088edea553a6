"""What the node is told of its TEE keys by Kubernetes Events of a running daemon, on the double of the API server."""

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from nodeward.app.host.boot import boot_id
from nodeward.app.node import grants, grants_boot
from nodeward.app.node.assemble import ensure_folder
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kube_refusals import Json
from nodeward.model.settings import KeySettings, KubeSection, LedgerSettings, Mode, Publisher, Settings
from nodeward.wire import kubelet_checkpoint
from tests.component.daemon.rig import EPC, ROOT, STATE, Rig, Trouble, rig, until
from tests.unit.wire import checkpoints

TDX = "devices.kubevirt.io/tdx"
ROW = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
CAPACITY = {EPC: 1 << 30, "tdx": 4}


def offering(url: str, folder: Path) -> Callable[[Settings], Settings]:
    ledger = LedgerSettings(Mode.ENFORCE, {"tdx": ROW}, kubelet_dir=str(folder / "kubelet"))
    return lambda settings: replace(settings, kube=KubeSection(url=url), node_name="n1", ledger=ledger)


@asynccontextmanager
async def telling(folder: Path) -> AsyncIterator[tuple[ApiServer, Rig]]:
    """A node that offers its keys, beside the API server that it tells."""
    async with ApiServer() as server, rig(folder, change=offering(server.url, folder), capacity=CAPACITY) as node:
        yield server, node


def said(server: ApiServer, reason: str) -> list[Json]:
    return [dict(one) for one in server.events.values() if one["reason"] == reason]


def make_folder(node: Rig, path: str) -> str:
    """A folder on the simulated node, and those above it; its path."""
    with node.files.lock:
        ensure_folder(node.kernel, path)
    return path


def is_there(node: Rig, path: str) -> bool:
    try:
        node.files.stat(path)
    except FileNotFoundError:
        return False
    return True


def hand_out(node: Rig) -> None:
    """Kubelet's checkpoint names an id of a pod."""
    path = make_folder(node, f"{node.settings.ledger.kubelet_dir}/device-plugins")
    pods = [checkpoints.entry("a", {"-1": ["tdx-key-0000"]}, TDX)]
    node.files.put(f"{path}/{kubelet_checkpoint.PLACE.rpartition('/')[2]}", checkpoints.file(pods, {TDX: []}))


def on_record(node: Rig) -> object:
    """The ids of the kind that the journal has, None where there is none."""
    path = grants.path_in(node.settings.run_dir)
    if not is_there(node, path):
        return None
    boot = boot_id(node.files)
    return (grants.decode(node.files.read(path, grants.MAX_BYTES), boot) or {}).get(TDX)


async def first_start_on_a_full_disk(node: Rig) -> Trouble:
    """The daemon begins anew, as if for the first time; its journal of grants finds no room until the trouble ends."""
    journal = grants.path_in(node.settings.run_dir)
    await until(lambda: is_there(node, grants_boot.path_in(STATE)), "a journal is there, and that is noted")
    await node.stop()
    for left in (journal, grants_boot.path_in(STATE)):
        node.files.unlink(left)
    full = node.files.trouble(Trouble(("append", "replace"), journal, errno.ENOSPC))
    await node.start()
    return full


async def test_the_node_is_told_of_a_journal_that_cannot_be_written_and_of_one_that_was_removed(tmp_path: Path) -> None:
    """And of the latter it finds out by kubelet's checkpoint what it said, and puts that on record."""
    async with telling(tmp_path) as (server, node):
        journal, full = grants.path_in(node.settings.run_dir), await first_start_on_a_full_disk(node)
        await until(lambda: bool(said(server, "KeysNotRecorded")), "the node is told")
        full.end()
        (told,) = said(server, "KeysNotRecorded")
        assert told["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
        assert f"{journal} cannot be written: " in str(told["note"])
        await until(lambda: is_there(node, grants_boot.path_in(STATE)), "a journal is there, and that is noted")
        await node.stop()
        node.files.unlink(journal)
        hand_out(node)
        assert said(server, "KeysRecordLost") == []
        await node.start()
        await until(lambda: bool(said(server, "KeysRecordLost")), "the node is told")
        assert on_record(node) is None, "a start before it is known again is to find the same"
        await until(lambda: on_record(node) == {"tdx-key-0000": 1}, "what kubelet named is on record")


async def test_the_node_is_told_of_counters_that_cannot_be_read_and_not_while_they_can(tmp_path: Path) -> None:
    async with telling(tmp_path) as (server, node):
        await until(lambda: is_there(node, grants_boot.path_in(STATE)), "the daemon grants keys")
        refused = Trouble(("open", "pread"), f"{ROOT}/misc.current", errno.EIO)
        node.files.trouble(refused)
        await until(lambda: bool(said(server, "KeysNotCounted")), "the node is told")
        refused.end()
        (told,) = said(server, "KeysNotCounted")
        assert f"No TEE key of kind tdx ({TDX}) is given out on this node: " in str(told["note"])
        assert (told["type"], "series" in told) == ("Warning", False)
