"""TEE keys as the shipped unit's daemon offers them from its cage: its socket in kubelet's folder, and a service for
quotes that speaks with its own group alone."""

import asyncio
import shutil
import stat
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Final

import msgspec

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.cli import client
from nodeward.doubles.kubelet import SimKubelet
from nodeward.doubles.qgs import Qgs
from nodeward.model.settings import LedgerSettings
from nodeward.model.view import KeyRow, NodeView
from tests.vm.chains import CAPACITY
from tests.vm.inside import SECOND_RESOURCE, until
from tests.vm.units_node import DAEMON, OFFERED, QUOTES, Node

PLUGINS: Final = Path(LedgerSettings().kubelet_dir, "device-plugins")
_GROUP: Final = "daemon"
"""Of the service's socket, as every distribution has one; systemd takes none that is not there."""
_ALL: Final = (CAPACITY[SECOND_RESOURCE], CAPACITY[SECOND_RESOURCE])


class Neighbours:
    """The doubles of kubelet's device manager and of the service, in a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._kubelet = SimKubelet(str(PLUGINS.parent), OsFiles(), SystemClock())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def kubelet_starts(self) -> None:
        self._run(self._kubelet.start())

    def kubelet_stops(self) -> None:
        self._run(self._kubelet.stop())

    def quotes(self) -> None:
        QUOTES.parent.mkdir(mode=0o755)
        self._run(Qgs(QUOTES).start())
        shutil.chown(QUOTES, _GROUP, _GROUP)
        QUOTES.chmod(0o660)

    def sells(self) -> tuple[int, int] | None:
        """The node's capacity and what of it is allocatable, as kubelet has them."""

        async def looked() -> tuple[int, int] | None:
            return self._kubelet.capacity(OFFERED)

        return asyncio.run_coroutine_threadsafe(looked(), self._loop).result(60)

    def _run(self, what: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(60)


def offered(node: Node) -> None:
    """Given a machine on which no kubelet has run yet, then the keys are registered once it does; also after its folder
    was made anew and the unit restarted. The service for quotes is heard once the unit has its group."""
    found = PLUGINS.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, list(PLUGINS.iterdir())) == (0o750, 0, []), "the unit made it"
    neighbours = Neighbours()
    neighbours.quotes()
    neighbours.kubelet_starts()
    until(lambda: neighbours.sells() == _ALL, "kubelet has all ids, and all are healthy", 30)
    (ours,) = PLUGINS.glob("nodeward-*.sock")
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    until(lambda: "not in the group" in _quotes(), "the service is out of reach", 30)

    neighbours.kubelet_stops()
    shutil.rmtree(PLUGINS, ignore_errors=True)  # as `kubeadm reset` does, while the daemon removes its sockets
    neighbours.kubelet_starts()
    until(lambda: "Read-only file system" in _row().plugin, "the new folder is said to be read-only", 30)
    assert "restart the daemon if kubelet's folder was made after its start" in _row().plugin
    node.drop_in(DAEMON, "quotes", f"[Service]\nSupplementaryGroups={_GROUP}\n")
    node.control("daemon-reload")
    node.control("restart", f"{DAEMON}.service")
    until(lambda: neighbours.sells() == _ALL, "kubelet has them again", 30)
    until(lambda: _quotes() == "answers", "the service is heard", 30)


def _row() -> KeyRow:
    (only,) = msgspec.json.decode(client.get("/v1/status", None), type=NodeView).keys
    return only


def _quotes() -> str:
    sharing = _row().sharing
    return sharing.quotes if sharing is not None else ""
