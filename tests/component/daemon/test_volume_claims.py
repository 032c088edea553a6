"""Who mounts a volume, asked of a running daemon: what a runtime has confirmed stays its own for as long as its VM
lives."""

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from nodeward.app.node import run
from nodeward.app.node.assemble import ensure_folder
from nodeward.app.node.pod_volumes import HOST_ROOT
from nodeward.cli import client, volume
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.runtime import SimContainer, SimPod
from nodeward.edges.local import relay_line as line
from nodeward.model.pulls import PullsView, SandboxKey
from nodeward.model.settings import KubeSection, PodapiSection, Settings
from nodeward.wire import relay_line
from tests.component.daemon.rig import WITHIN_S, Rig, rig
from tests.component.daemon.test_podapi import pod, post
from tests.pages import of_page

PATH = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv/mount"
SHARED = {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}
ASKED: dict[str, object] = {"pod_uid": "u1", "volume": "data"}
Tale = Callable[[Rig, ApiServer, str], Awaitable[None]]


def with_volume(uid: str, name: str = "web") -> dict[str, object]:
    """A pod with the one PersistentVolumeClaim."""
    mounts = [{"name": "data", "mountPath": "/d"}]
    made = pod(uid, volumes=[SHARED], containers=[{"name": "app", "image": "i", "volumeMounts": mounts}])
    made["metadata"] = {"name": name, "namespace": "shop", "uid": uid}
    return made


def play(folder: Path, tale: Tale, nri: bool = True) -> None:
    async def main() -> None:
        async with ApiServer() as server:
            server.add_pod(with_volume("u1"))

            def with_api(settings: Settings) -> Settings:
                served = PodapiSection(True, uids=(os.getuid(),))
                told = replace(settings.nri, enabled=nri)
                return replace(settings, kube=KubeSection(url=server.url), node_name="n1", podapi=served, nri=told)

            async with rig(folder, change=with_api) as node:
                ensure_folder(node.kernel, f"{HOST_ROOT}{PATH}")
                node.files.put("/proc/1/mountinfo", b"")
                await tale(node, server, str(folder / "run" / "podapi.sock"))

    asyncio.run(main())


async def offered(socket: str, sandbox: str, uid: str = "u1") -> tuple[object, object]:
    """Owner and why, once the daemon answers and knows the pod."""
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
    """The sandbox of the first pod confirms its volume."""
    assert (await offered(socket, sandbox))[0] == "GUEST"
    assert (await post("ConfirmVolume", {**ASKED, "sandbox": sandbox}, socket))["owner"] == "GUEST"


def deleted(server: ApiServer) -> None:
    """The first pod is deleted by force, and another uses its PersistentVolumeClaim."""
    server.delete_pod("shop", "web")
    server.add_pod(with_volume("u2", "next"))


def held(sandbox: str) -> tuple[str, str]:
    return "HOST", f"sandbox {sandbox} of pod shop/web has it"


async def free_at_last(socket: str) -> None:
    """The other pod gets it."""
    async with asyncio.timeout(WITHIN_S):
        while (await offered(socket, "s2", "u2"))[0] != "GUEST":
            await asyncio.sleep(0.02)


def test_a_pods_next_sandbox_is_not_given_what_its_first_has_confirmed(tmp_path: Path) -> None:
    async def tale(_: Rig, __: ApiServer, socket: str) -> None:
        await taken(socket, "s1")
        assert await offered(socket, "s2") == held("s1")

    play(tmp_path, tale)


def test_a_restart_while_the_runtime_is_away_gives_no_claim_to_another_sandbox(tmp_path: Path) -> None:
    """Neither to the pod's next one, nor to another pod's once this one was deleted; until the runtime says that the
    sandbox has ended."""

    async def tale(node: Rig, server: ApiServer, socket: str) -> None:
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

    play(tmp_path, tale)


def test_a_pod_deleted_by_force_keeps_its_volume_while_its_sandbox_lives(tmp_path: Path) -> None:
    """Also after the last of its containers has ended."""

    async def tale(node: Rig, server: ApiServer, socket: str) -> None:
        sandbox = await node.runtime.run_pod(SimPod("u1", "web", "shop"))
        container = await node.runtime.create_container(sandbox, SimContainer("app"))
        await node.runtime.start(container)
        await taken(socket, sandbox)
        deleted(server)
        assert await offered(socket, "s2", "u2") == held(sandbox)
        await node.runtime.stop(container)
        assert await offered(socket, "s2", "u2") == held(sandbox)
        await node.runtime.remove_pod(sandbox)
        await free_at_last(socket)

    play(tmp_path, tale)


def test_without_nri_a_claim_ends_with_the_pod_and_not_before_the_sandbox_that_the_relay_sees(tmp_path: Path) -> None:
    async def tale(node: Rig, server: ApiServer, socket: str) -> None:
        told = [SandboxKey("s1", "shop", "web", "u1", 0)]
        relay = line.RelayLineServer(lambda _: lambda: PullsView("1", 7, True, (), tuple(told)))
        served = asyncio.create_task(relay.run(f"{node.settings.run_dir}/{relay_line.SOCKET}"))
        await taken(socket, "s1")
        deleted(server)
        assert await offered(socket, "s2", "u2") == held("s1")
        told[0] = replace(told[0], stopped=True)
        await free_at_last(socket)
        served.cancel()
        await asyncio.gather(served, return_exceptions=True)

    play(tmp_path, tale, nri=False)


def test_without_nri_and_relay_a_claim_ends_with_the_pod(tmp_path: Path) -> None:
    async def tale(_: Rig, server: ApiServer, socket: str) -> None:
        await taken(socket, "s1")
        assert await offered(socket, "s2") == held("s1")
        deleted(server)
        await free_at_last(socket)

    play(tmp_path, tale, nri=False)


def test_while_the_host_mounts_a_volume_no_vm_and_no_other_process_gets_it(tmp_path: Path) -> None:
    """By the command that mounts, whose lease is given back at its end; and the other way round."""
    os.mkfifo(tmp_path / "go")

    async def tale(_: Rig, __: ApiServer, socket: str) -> None:
        assert (await offered(socket, "s1"))[0] == "GUEST"  # all is known
        await post("ConfirmVolume", {**ASKED, "sandbox": "s1", "release": True}, socket)

        async def hold(script: str) -> Result:
            typed = shlex.split(of_page("volumes.md", "nodeward volume hold"), comments=True)
            held_by = [PATH if one == "PATH" else one for one in typed[3 : typed.index("--") + 1]]
            words = ["hold", "--socket", socket, *held_by, "sh", "-c", script]
            return await asyncio.to_thread(CliRunner().invoke, volume.command, words)

        mounts = asyncio.create_task(hold(f"read x < {tmp_path}/go; exit 3"))
        async with asyncio.timeout(WITHIN_S):
            while "HoldVolume" not in str(await post("ListVolumeClaims", {"path": PATH}, socket)):
                await asyncio.sleep(0.02)
        why = str((await offered(socket, "s1"))[1])
        assert re.fullmatch(r"nodeward volume hold \(process [0-9]+\) mounts it on the host, for [0-9]+ s more", why)
        other: dict[str, object] = {"path": PATH, "holder": "csi"}
        assert not (await post("HoldVolume", other, socket))["held"]
        await asyncio.to_thread((tmp_path / "go").write_text, "\n")
        assert (await mounts).exit_code == 3
        await taken(socket, "s1")
        refused = await hold(f"touch {tmp_path}/ran")
        assert f"{PATH} must not be mounted on the host: sandbox s1 of pod shop/web has it" in str(refused.exception)
        assert not (tmp_path / "ran").exists()

    play(tmp_path, tale)


def test_the_hosts_lease_outlives_a_restart(tmp_path: Path) -> None:
    async def tale(node: Rig, _: ApiServer, socket: str) -> None:
        assert (await offered(socket, "s1"))[0] == "GUEST"
        await post("ConfirmVolume", {**ASKED, "sandbox": "s1", "release": True}, socket)
        assert (await post("HoldVolume", {"path": PATH, "holder": "csi"}, socket))["held"]
        await node.stop()
        await node.start()
        assert str((await offered(socket, "s1"))[1]).startswith("csi mounts it on the host, for ")

    play(tmp_path, tale)
