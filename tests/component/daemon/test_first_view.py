"""A daemon that offers keys beside a kubelet whose checkpoint has a form that nobody here knows."""

import asyncio
import json
from pathlib import Path

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.cli import client
from nodeward.doubles.kubelet import SimKubelet
from nodeward.proto import kubepod_pb2 as kubepod
from tests.component.daemon.test_grants import TDX, daemon, until
from tests.kubelet_views import SimViews


def published(folder: Path) -> tuple[int, str]:
    """How many keys are offered beside those that were granted, and what an operator is told."""
    (row,) = json.loads(client.get("/v1/status", str(folder / "run" / "nodeward.sock")))["keys"]
    return row["published"], " ".join(row["findings"])


def test_keys_are_offered_once_kubelet_tells_of_its_pods_and_no_more_while_one_may_have_been_given_ids(
    tmp_path: Path,
) -> None:
    """Given a kubelet that does not answer at first; then its Pods API does, with a pod that waits for its sandbox and
    whose ids nobody tells of; then that pod has failed."""
    waits = kubepod.Pod(metadata=kubepod.ObjectMeta(name="vm", namespace="shop", uid="uid-vm"))
    waits.spec.containers.add(name="compute").resources.limits[TDX].string = "1"
    waits.status.phase = "Pending"
    home, cgroups = tmp_path / "kubelet", tmp_path / "cgroups"
    (home / "device-plugins").mkdir(parents=True)
    (home / "device-plugins" / "kubelet_internal_checkpoint").write_text('{"Form": "of a later kubelet"}')
    cgroups.mkdir()
    for name, text in {"controllers": "misc", "procs": "", "subtree_control": ""}.items():
        (cgroups / f"cgroup.{name}").write_text(f"{text}\n")
    for name, amount in {"capacity": 4, "current": 0}.items():
        (cgroups / f"misc.{name}").write_text(f"tdx {amount}\n")

    async def story() -> None:
        views = SimViews(str(home), SimKubelet(str(home), OsFiles(), SystemClock()))
        views.put(waits)
        with daemon(tmp_path):

            async def said(amount: int, finding: str) -> None:
                def is_so() -> bool:
                    found, text = published(tmp_path)
                    return found == amount and finding in text

                await asyncio.to_thread(until, is_so, finding)

            await said(0, "what was read before stands")
            await views.start()
            try:
                await said(0, f"shop/vm asks for {TDX} and may have been given ids that nobody tells of")
                waits.status.phase = "Failed"
                views.put(waits)
                await said(4, "stands in for that")
            finally:
                await views.stop()

    asyncio.run(story())
