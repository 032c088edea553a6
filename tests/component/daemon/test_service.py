"""`nodeward node` as a service: what systemd, a probe and an operator are told of a real process and its sources."""

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeward import __version__
from nodeward.features.podapi.settings import ColdPlugSection, PodapiSection
from nodeward.features.settings import KubeSection, NriSection
from nodeward.host import watchdog
from nodeward.host.clock import SystemClock
from nodeward.neighbours.sockets.grpc_unix import Code, GrpcError
from nodeward.programs.node.run import run
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kernel import SimKernel
from nodeward_sim.doubles.runtime import SimRuntime
from tests.bad_grpc import send_bad_path
from tests.component.daemon.rig import WITHIN_S, Trouble, changed, rig
from tests.component.kubelet.node import called
from tests.patience import scaled
from tests.rigs.stories import under_way

NODEWARD = str(Path(sys.executable).parent / "nodeward")


class Manager:
    """A service manager that always listens: the kernel keeps ten datagrams for one that does not."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.heard: list[str] = []
        asyncio.get_running_loop().add_reader(self.socket, self.listen)

    def listen(self) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard.append(self.socket.recv(4096).decode())
        return self.heard

    async def until(self, said: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not any(line.startswith(said) for line in self.heard):
                await asyncio.sleep(0.02)
        place = next(number for number, line in enumerate(self.heard) if line.startswith(said))
        del self.heard[: place + 1]

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()


class Service:
    def __init__(self, folder: Path, process: subprocess.Popen[str], manager: Manager, config: Path) -> None:
        self.folder, self.process, self.manager, self.config = folder, process, manager, config

    async def nodeward(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "NODEWARD_SOCKET": str(self.folder / "run" / "nodeward.sock")}
        command = [NODEWARD, *arguments]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=WITHIN_S, env=environ, check=False
        )

    async def reload(self, text: str) -> None:
        self.config.write_text(text)
        self.process.send_signal(signal.SIGHUP)
        await self.manager.until("RELOADING=1\nMONOTONIC_USEC=")
        await self.manager.until("READY=1")

    async def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self.process.wait, WITHIN_S) == 0

    async def status(self) -> dict[str, Any]:
        done = await self.nodeward("status", "-o", "json")
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found


SETTINGS = """\
state_dir: {folder}/state
run_dir: {folder}/run
kube: {{enabled: false}}
nri: {{socket: {folder}/nri.sock}}
cgroups: {{root: {folder}/cgroup, period_s: 0.1}}
"""


@contextlib.asynccontextmanager
async def service(folder: Path, *flags: str) -> AsyncIterator[Service]:
    (folder / "cgroup").mkdir(exist_ok=True)
    (folder / "cgroup" / "cgroup.controllers").touch()
    config = folder / "nodeward.yaml"
    if not config.exists():
        config.write_text(SETTINGS.format(folder=folder))
    manager = Manager(folder / "notify")
    environ = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "400000"}
    with (folder / "log").open("w") as log:
        words = [NODEWARD, "node", "--config", str(config), *flags]
        process = subprocess.Popen(words, stderr=log, env=environ, text=True)
    try:
        yield Service(folder, process, manager, config)
    finally:
        if process.poll() is None:
            process.kill()
        await asyncio.to_thread(process.wait, WITHIN_S)
        manager.close()


async def test_systemd_and_probes_hear_of_readiness_of_life_and_of_the_end(tmp_path: Path) -> None:
    runtime = SimRuntime(tmp_path / "nri.sock")
    async with service(tmp_path) as daemon:
        await daemon.manager.until("WATCHDOG=1")  # the loop turns, and the runtime is not there yet
        await daemon.manager.until("WATCHDOG=1")
        probe = await daemon.nodeward("status", "--ready")
        assert probe.returncode == 1
        assert "not ready nri" in probe.stdout
        assert "READY=1" not in daemon.manager.heard

        await runtime.serve()
        await daemon.manager.until("READY=1")
        await daemon.manager.until("STATUS=ready")
        probe = await daemon.nodeward("status", "--ready")
        assert probe.returncode == 0, probe.stdout
        assert "synchronised with containerd" in probe.stdout
        shown = await daemon.status()
        assert shown["ready"] is True
        health = shown["health"]
        assert health["loop_lag_max_us"] >= health["loop_lag_p99_us"] >= 0

        await runtime.close()
        await daemon.manager.until("STATUS=not ready: nri (lost:")
        assert (await daemon.nodeward("status", "--ready")).returncode == 1

        daemon.process.send_signal(signal.SIGTERM)
        await daemon.manager.until("STOPPING=1")
        assert await asyncio.to_thread(daemon.process.wait, WITHIN_S) == 0
    assert (await daemon.nodeward("status", "--ready")).returncode == 1


async def test_a_daemon_whose_loop_stands_is_not_said_to_live_and_its_stack_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.setattr(watchdog, "DUMPS_APART_S", 0.0)  # this machine may have been slow just before
    manager = Manager(tmp_path / "notify")

    async with rig(tmp_path) as node:
        await manager.until("READY=1")
        await manager.until("WATCHDOG=1")
        time.sleep(0.3)  # the loop stands: what was due when it stopped is said by then
        manager.listen().clear()
        time.sleep(1.0)  # ten feeds
        assert manager.listen() == []
        await manager.until("WATCHDOG=1")
        assert (await node.health())["loop_stalls"] >= 1
        assert (await node.health())["loop_lag_max_us"] > 1_000_000
    manager.close()
    assert any(
        "thread=MainThread stack='test_a_daemon_whose_loop_stands_is_not_said_to_live_and_its_stack_is_logged daemon/"
        in line
        for line in caplog.messages
    )


async def test_sighup_reads_the_settings_again_whole_or_not_at_all(tmp_path: Path) -> None:
    runtime = SimRuntime(tmp_path / "nri.sock")
    await runtime.serve()
    text = SETTINGS.format(folder=tmp_path) + f"record: {{path: {tmp_path}/node.record}}\n"
    (tmp_path / "nodeward.yaml").write_text(text)
    async with service(tmp_path) as daemon:
        await daemon.manager.until("READY=1")
        await daemon.reload(text + "limits: {mode: observe, stritc: true}\npods: {wait_ms: 9999}\n")
        shown = await daemon.status()
        assert shown["mode"] == "enforce"
        found = shown["settings"]
        assert [fault.split(":")[0] for fault in found["faults"]] == ["limits.stritc", "pods.wait_ms"]
        assert "did you mean strict?" in (await daemon.nodeward("status")).stdout.replace("\n", "")

        good = text + "limits: {mode: observe}\nnode_name: other\n"
        await daemon.reload(good)
        shown = await daemon.status()
        assert shown["mode"] == "observe"
        top = await daemon.nodeward("status", "--watch", "-o", "json", "--every", "0.1", "--times", "3")
        assert [json.loads(line)["mode"] for line in top.stdout.splitlines()] == ["observe"] * 3
        piped = (await daemon.nodeward("status", "--watch", "--every", "0.1", "--times", "2")).stdout
        assert len(re.findall("^limits observe", piped, re.MULTILINE)) == 2, piped
        assert piped.endswith("\n")
        found = shown["settings"]
        assert (found["faults"], found["need_restart"]) == ([], ["node_name"])
        await daemon.end()
        log = (tmp_path / "log").read_text()
        assert "settings=refused fault='limits.stritc: unknown key; did you mean strict? (" in log
        assert "settings=need-restart keys=node_name" in log
        replayed = await daemon.nodeward("replay", str(tmp_path / "node.record"))
        assert replayed.returncode == 0, replayed.stderr
        assert "every decision is the same, byte for byte" in replayed.stdout
    (tmp_path / "notify").unlink()

    daemon.config.write_text("limits: {mode: [\n" + text)  # broken: the next start has the last good ones
    alien = await daemon.nodeward("node", "--config", str(daemon.config), "--set", f"state_dir={tmp_path}/elsewhere")
    assert alien.returncode == 1  # there are none of those
    assert "is no YAML" in alien.stderr
    daemon.config.write_text(good + "nonsense: 1\n")
    async with service(tmp_path, "--set", "limits.mode=off") as daemon:  # a flag is this start's, and holds
        await daemon.manager.until("READY=1")
        shown = await daemon.status()
        assert shown["mode"] == "off"
        found = shown["settings"]
        assert found["source"] == "last good settings"
        assert found["faults"][0].startswith("nonsense: unknown key")
    await runtime.close()


async def test_a_second_daemon_names_the_first_and_starts_once_that_is_killed(tmp_path: Path) -> None:
    runtime = SimRuntime(tmp_path / "nri.sock")
    await runtime.serve()
    async with service(tmp_path) as daemon:
        await daemon.manager.until("READY=1")
        second = await daemon.nodeward("node", "--config", str(daemon.config))
        assert second.returncode == 1
        assert f"is held by process {daemon.process.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        taken_back = await daemon.nodeward("uninstall", "--config", str(daemon.config), "--yes")
        assert taken_back.returncode == 1
        assert (await daemon.status())["ready"] is True  # the first one has not noticed

        daemon.process.kill()
    (tmp_path / "notify").unlink()
    async with service(tmp_path) as daemon:
        await daemon.manager.until("READY=1")
        assert (await daemon.status())["ready"] is True
    await runtime.close()


async def test_a_second_daemon_of_a_node_waits_is_shown_and_takes_over(tmp_path: Path) -> None:
    """As of two DaemonSets that select one node: `status` and `doctor` name the pod that waits, and SIGTERM ends it."""
    runtime = SimRuntime(tmp_path / "nri.sock")
    await runtime.serve()
    async with service(tmp_path) as daemon:
        await daemon.manager.until("READY=1")
        command = [NODEWARD, "node", "--config", str(daemon.config), "--wait"]
        pod = {"POD_NAMESPACE": "nodeward", "POD_NAME": "nodeward-node-b-x1"}
        waits = [subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **pod}) for _ in range(2)]
        try:
            while (
                "waits on this node: pod nodeward/nodeward-node-b-x1"
                not in (said := await daemon.nodeward("status")).stdout
            ):
                await asyncio.sleep(0.05)
            assert "second-daemon" in (await daemon.nodeward("status", "-o", "json")).stdout, said
            found = (await daemon.nodeward("doctor", "--config", str(daemon.config))).stdout
            assert "decides nothing until this one ends: pod nodeward/nodeward-node-b-x1" in found
            here = os.environ | pod | {"NODEWARD_SOCKET": str(tmp_path / "run" / "nodeward.sock")}
            ready = [NODEWARD, "status", "--ready"]  # as the probe of the waiting pod, and of the first one
            assert await asyncio.to_thread(subprocess.call, ready, env=here) == 1
            assert (await daemon.nodeward("status", "--ready")).returncode == 0
            waits[0].terminate()
            assert waits[0].wait(timeout=scaled(10)) == 0
            daemon.process.kill()
            while (await daemon.status()).get("ready") is not True:
                await asyncio.sleep(0.05)
            assert (await daemon.status())["waiting"] == ""
            waits[1].terminate()
            assert waits[1].wait(timeout=scaled(10)) == 0
        finally:
            for one in waits:
                one.kill()
                one.wait()
    await runtime.close()


async def test_an_api_server_that_goes_away_is_stale_since_then(tmp_path: Path) -> None:
    api = ApiServer()
    await api.start()
    port = api.port

    async with rig(tmp_path, change=changed(node_name="n", kube=KubeSection(url=api.url))) as node:
        listed = await node.until_source("kube", True)
        for other in ("nri", "cgroups"):
            await node.until_source(other, True)
        assert (await node.ask())["ready"] is True

        await api.stop()
        lost = await node.until_source("kube", False)
        assert str(lost["detail"]).startswith("stale: ")
        assert int(str(lost["since_wall_ns"])) > int(str(listed["since_wall_ns"]))
        assert (await node.ask())["ready"] is False
        detail = (await node.until_source("nri", True))["detail"]
        assert detail == "synchronised with containerd v2.4.2, NRI v0.12.3"

        await api.start(port=port)
        await node.until_source("kube", True)
        assert (await node.ask())["ready"] is True
    await api.stop()


async def test_a_kernel_without_the_misc_controller_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    lacking = Trouble(("read", "stat"), "misc.capacity", errno.ENOENT)
    async with rig(tmp_path, change=changed(node_name="n7"), troubles=(lacking,)) as node:
        await node.until_source("cgroups", True)
    said = [(one.levelno, one.getMessage()) for one in caplog.records if one.name.startswith("nodeward.programs")]
    assert said[0] == (logging.INFO, f"daemon begins version={__version__} mode=enforce node=n7")
    warned = [text for level, text in said if level == logging.WARNING]
    assert warned == ["this kernel has no misc controller: nothing can be enforced"]


async def test_a_source_that_the_settings_switch_off_is_said_to_be_off(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        await node.until_source("nri", True)
        found = await node.ask()
        assert (found["api"], found["api_stale_since"]) == ("off", "")
        assert str(found["runtime"]).startswith("containerd")

        daemon = tmp_path / "other"
        daemon.mkdir()
        settings = replace(node.settings, nri=NriSection(enabled=False), run_dir=str(daemon / "run"))
        beside = replace(node, folder=daemon)
        async with under_way(run(settings, SimKernel({}), SystemClock())):
            await beside.until_source("cgroups", True)
            assert (await beside.ask())["runtime"] == "off"


GRPC_SOCKETS = {"podapi-grpc": "podapi-grpc.sock", "cold-plug": "pod-resources.sock"}


async def test_a_grpc_socket_that_a_bad_request_has_ended_answers_again_and_the_daemon_is_not_ready_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def is_served(path: str) -> bool:
        with pytest.raises(GrpcError) as said:
            await called(Path(path), "/no.Service/Method")
        return said.value.code is Code.UNIMPLEMENTED

    async with rig(tmp_path, change=changed(podapi=PodapiSection(True), cold_plug=ColdPlugSection(True))) as node:
        for name, socket in GRPC_SOCKETS.items():
            path = str(tmp_path / "run" / socket)
            row = await node.until_source(name, True)
            assert row["detail"] == f"answers at {path}"
            assert await is_served(path)
            await asyncio.to_thread(send_bad_path, path)
            while caplog.text.count(f"component={name} ready=yes") != 2:
                await asyncio.sleep(0.02)
            assert await is_served(path)
            assert (await node.ask())["ready"] is True
            ended = f"component={name} ready=no detail='the gRPC server was ended by a request that it could"
            assert ended in caplog.text
