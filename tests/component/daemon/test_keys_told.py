"""What the node is told of its TEE keys by Kubernetes Events of a running daemon, on the double of the API server."""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodeward.app import begun, grants
from nodeward.model.settings import KeySettings, KubeSection, LedgerSettings, Mode, Publisher, Settings
from nodeward.sim.apiserver import ApiServer, Json
from tests.component.daemon.rig import EPC, ROOT, STATE, Rig, Trouble, rig, until

TDX = "devices.kubevirt.io/tdx"
ROW = KeySettings((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
CAPACITY = {EPC: 1 << 30, "tdx": 4}


def offering(url: str, folder: Path) -> Callable[[Settings], Settings]:
    ledger = LedgerSettings(Mode.ENFORCE, {"tdx": ROW}, kubelet_dir=str(folder / "kubelet"))
    return lambda settings: replace(settings, kube=KubeSection(url=url), node_name="n1", ledger=ledger)


def said(server: ApiServer, reason: str) -> list[Json]:
    return [dict(one) for one in server.events.values() if one["reason"] == reason]


def make_run_folder(node: Rig) -> str:
    """The folder of the journal, on the simulated node; the journal's path."""
    place = ""
    for part in node.settings.run_dir.strip("/").split("/"):
        place += f"/{part}"
        with node.files.lock, contextlib.suppress(FileExistsError):
            node.kernel.mkdir(place)
    return grants.path_in(node.settings.run_dir)


def is_there(node: Rig, path: str) -> bool:
    try:
        node.files.stat(path)
    except FileNotFoundError:
        return False
    return True


def test_the_node_is_told_of_a_journal_that_cannot_be_written_and_of_one_that_was_removed(tmp_path: Path) -> None:
    async def story(server: ApiServer, node: Rig) -> None:
        await until(lambda: bool(said(server, "KeysNotRecorded")), "the node is told")
        (told,) = said(server, "KeysNotRecorded")
        assert told["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
        journal = make_run_folder(node)
        assert f"{journal} cannot be written: " in str(told["note"])
        await until(lambda: is_there(node, begun.path_in(STATE)), "a journal is there, and that is noted")
        await node.stop()
        node.files.unlink(journal)
        assert said(server, "KeysRecordLost") == []
        await node.start()
        await until(lambda: bool(said(server, "KeysRecordLost")), "the node is told")

    async def main() -> None:
        async with (
            ApiServer() as server,
            rig(tmp_path, change=offering(server.url, tmp_path), capacity=CAPACITY) as node,
        ):
            await story(server, node)

    asyncio.run(main())


def test_the_node_is_told_of_counters_that_cannot_be_read_and_not_while_they_can(tmp_path: Path) -> None:
    async def story(server: ApiServer, node: Rig) -> None:
        make_run_folder(node)
        await until(lambda: is_there(node, begun.path_in(STATE)), "the daemon grants keys")
        refused = Trouble(("open", "pread"), f"{ROOT}/misc.current", errno.EIO)
        node.files.trouble(refused)
        await until(lambda: bool(said(server, "KeysNotCounted")), "the node is told")
        refused.end()
        (told,) = said(server, "KeysNotCounted")
        assert f"No TEE key of kind tdx ({TDX}) is given out on this node: " in str(told["note"])
        assert (told["type"], "series" in told) == ("Warning", False)

    async def main() -> None:
        async with (
            ApiServer() as server,
            rig(tmp_path, change=offering(server.url, tmp_path), capacity=CAPACITY) as node,
        ):
            await story(server, node)

    asyncio.run(main())
