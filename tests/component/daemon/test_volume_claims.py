"""Who mounts a volume, and which devices a pod has, asked of a running daemon."""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from nodeward.cli.vms import volume
from nodeward.core.pulls import PullsView, SandboxKey
from nodeward.features.podapi.effects.volumes import HOST_ROOT
from nodeward.host.hostfs import ensure_folder
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.cri import relay_socket as line
from nodeward.people import client
from nodeward.programs.node import run
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.runtime import SimPod
from tests.component.daemon import test_podapi
from tests.component.daemon.rig import WITHIN_S, Rig
from tests.component.daemon.test_podapi import pod, post
from tests.pages import of_page
from tests.rigs.stories import under_way

PATH = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv/mount"
SHARED = {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}
ASKED: dict[str, object] = {"pod_uid": "u1", "volume": "data"}


def with_volume(uid: str, name: str = "web") -> dict[str, object]:
    mounts = [{"name": "data", "mountPath": "/d"}]
    made = pod(uid, volumes=[SHARED], containers=[{"name": "app", "image": "i", "volumeMounts": mounts}])
    made["metadata"] = {"name": name, "namespace": "shop", "uid": uid}
    return made


@asynccontextmanager
async def serving(folder: Path, nri: bool = True) -> AsyncIterator[tuple[Rig, ApiServer, str]]:
    async with test_podapi.serving(folder, pod=with_volume("u1"), nri=nri) as (node, server, socket):
        ensure_folder(node.kernel, f"{HOST_ROOT}{PATH}")
        node.files.put("/proc/1/mountinfo", b"")
        yield node, server, socket


async def offered(socket: str, sandbox: str, uid: str = "u1") -> tuple[object, object]:
    asked = {"volume": "data", "path": PATH, "capabilities": ["block"]}
    request: dict[str, object] = {"pod_uid": uid, "sandbox": sandbox, "volumes": [asked]}
    async with asyncio.timeout(WITHIN_S):
        while True:
            with suppress(client.DaemonError):  # it begins
                said = str((await post("OfferVolumes", request, socket))["offers"])
                owner, why = re.findall(r"'(?:owner|why)': ['\"]([^'\"]*)", said)
                if "is not known" not in why and "does not answer" not in why:
                    return owner, why
            await asyncio.sleep(0.02)


async def taken(socket: str, sandbox: str) -> None:
    assert (await offered(socket, sandbox))[0] == "GUEST"
    assert (await post("ConfirmVolume", {**ASKED, "sandbox": sandbox}, socket))["owner"] == "GUEST"


def deleted(server: ApiServer) -> None:
    server.delete_pod("shop", "web")
    server.add_pod(with_volume("u2", "next"))


def held(sandbox: str) -> tuple[str, str]:
    return "HOST", f"sandbox {sandbox} of pod shop/web has it"


async def free_at_last(socket: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await offered(socket, "s2", "u2"))[0] != "GUEST":
            await asyncio.sleep(0.02)


async def test_a_restart_while_the_runtime_is_away_gives_no_claim_to_another_sandbox(tmp_path: Path) -> None:
    """Neither to the pod's next one, nor to another pod's once this one was deleted; until the runtime says that the
    sandbox has ended."""
    async with serving(tmp_path) as (node, server, socket):
        sandbox = await node.runtime.run_pod(SimPod("u1", "web", "shop"))
        await taken(socket, sandbox)
        await node.stop()
        await node.runtime.close()
        node.daemon = asyncio.create_task(run.run(node.settings, node.files, node.clock, node.source))
        assert await offered(socket, "s2") == held(sandbox)
        deleted(server)
        assert await offered(socket, "s2", "u2") == held(sandbox)
        await node.runtime.restart()
        await node.runtime.nri.wait_for_plugins(1, WITHIN_S)
        assert await offered(socket, "s2", "u2") == held(sandbox)
        await node.runtime.remove_pod(sandbox)
        await free_at_last(socket)


async def test_without_nri_a_claim_ends_with_the_pod_and_not_before_the_sandbox_that_the_relay_sees(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, nri=False) as (node, server, socket):
        told = [SandboxKey("s1", "shop", "web", "u1", 0)]
        relay = line.RelayLineServer(lambda _: lambda: PullsView("1", 7, True, (), tuple(told)))
        async with under_way(relay.run(f"{node.settings.run_dir}/{relay_line.SOCKET}")):
            await taken(socket, "s1")
            deleted(server)
            assert await offered(socket, "s2", "u2") == held("s1")
            told[0] = replace(told[0], stopped=True)
            await free_at_last(socket)


async def test_while_the_host_mounts_a_volume_no_vm_and_no_other_process_gets_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")

    async with serving(tmp_path) as (_, _, socket):
        assert (await offered(socket, "s1"))[0] == "GUEST"  # all is known
        await post("ConfirmVolume", {**ASKED, "sandbox": "s1", "release": True}, socket)

        async def hold(script: str) -> Result:
            typed = shlex.split(of_page("pods.md", "nodeward vms volume hold"), comments=True)
            held_by = [PATH if one == "PATH" else one for one in typed[4 : typed.index("--") + 1]]
            words = ["hold", "--socket", socket, *held_by, "sh", "-c", script]
            return await asyncio.to_thread(CliRunner().invoke, volume.command, words)

        mounts = asyncio.create_task(hold(f"read x < {tmp_path}/go; exit 3"))
        while "HoldVolume" not in str(await post("ListVolumeClaims", {"path": PATH}, socket)):
            await asyncio.sleep(0.02)
        why = str((await offered(socket, "s1"))[1])
        holder = r"nodeward vms volume hold \(process [0-9]+\)"
        assert re.fullmatch(f"{holder} mounts it on the host, for [0-9]+ s more", why)
        other: dict[str, object] = {"path": PATH, "holder": "csi"}
        assert not (await post("HoldVolume", other, socket))["held"]
        await asyncio.to_thread((tmp_path / "go").write_text, "\n")
        assert (await mounts).exit_code == 3
        await taken(socket, "s1")
        refused = await hold(f"touch {tmp_path}/ran")
        assert f"{PATH} must not be mounted on the host: sandbox s1 of pod shop/web has it" in str(refused.exception)
        assert not (tmp_path / "ran").exists()
