"""A state folder that hangs, or holds a FIFO, when the daemon starts: it starts all the same, and SIGTERM ends it."""

import asyncio
import logging
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.node import assemble
from nodeward.doubles.runtime import SimRuntime
from nodeward.model.settings import RecordSection, Settings
from tests.component.daemon.rig import STATE, WITHIN_S, Trouble, TroubledFiles, rig
from tests.component.daemon.test_service import service


def recorded(settings: Settings) -> Settings:
    return replace(settings, record=RecordSection(path=f"{STATE}/node.record"))


@pytest.mark.parametrize(
    "hanging",
    [
        pytest.param(Trouble(("stat",), "/var"), id="the way to the folder"),
        pytest.param(Trouble(("read",), "undo.jsonl"), id="the undo list"),
        pytest.param(Trouble(("read",), "pods.json"), id="the pods as last known"),
        pytest.param(Trouble(("stat",), "node.record"), id="the record"),
        pytest.param(Trouble(("stat", "read", "append", "replace"), STATE), id="all of it, for good"),
    ],
)
def test_a_disk_that_hangs_at_the_start_holds_up_neither_start_nor_end(
    hanging: Trouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(assemble, "START_S", 0.2)
    monkeypatch.setattr(assemble, "UNDO_S", 0.1)
    hang = Trouble(hanging.calls, hanging.path)

    async def told() -> None:
        async with rig(tmp_path, runtime_hands_down=False, change=recorded, troubles=(hang,)) as node:
            await node.until_health("state_unread", 1)
            async with asyncio.timeout(WITHIN_S):
                while (await node.ask()).get("ready") is not True:
                    await asyncio.sleep(0.02)
            assert f"state=unread folder={STATE}" in caplog.text
            assert hang.met >= 1
            await node.pod("a")  # the runtime is answered
            assert node.daemon is not None
            node.daemon.cancel()
            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(node.daemon, return_exceptions=True)
            assert not hang.over.is_set(), "it hangs still"

    asyncio.run(told())


@pytest.mark.parametrize(
    "hanging",
    [
        pytest.param(("stat",), id="where the controller is"),
        pytest.param(("read",), id="what the node has"),
        pytest.param(("stat", "read", "open", "listdir"), id="everything"),
    ],
)
def test_a_cgroup_tree_that_hangs_at_the_start_is_said_and_is_used_once_it_answers(
    hanging: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(assemble, "START_S", 0.2)
    monkeypatch.setattr(assemble, "CGROUP_DEADLINE_S", 0.3)
    hang = Trouble(hanging, "/sys/fs/cgroup")

    async def told() -> None:
        async with rig(tmp_path, runtime_hands_down=False, troubles=(hang,)) as node:
            assert "cgroups=unread root=/sys/fs/cgroup" in caplog.text
            assert "no misc controller" not in caplog.text
            if "read" in hanging:  # else the sampler has read meanwhile what the node has
                status = await node.ask()
                assert "/sys/fs/cgroup was not read within 0.2 s: a call hangs in the kernel" in str(status["tree"])
                assert status["ready"] is False
            pod = await node.pod("a")  # the runtime is answered
            assert not hang.over.is_set(), "it hangs still"

            hang.end()
            await node.until_state(pod, "enforced")
            async with asyncio.timeout(WITHIN_S):
                while (await node.ask()).get("ready") is not True:
                    await asyncio.sleep(0.02)

    asyncio.run(told())


def test_no_file_of_the_host_is_touched_on_the_loops_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given any life: a start that finds a past, a pod that comes and goes, a record, an end."""
    here: list[tuple[str, str]] = []
    loops = threading.get_ident()

    def met(files: TroubledFiles, call: str, path: str) -> None:
        if threading.get_ident() == loops:
            here.append((call, path))

    monkeypatch.setattr(TroubledFiles, "_meet", met)

    async def told() -> None:
        async with rig(tmp_path, runtime_hands_down=False, change=recorded) as node:
            await node.until_state(await node.pod("a"), "enforced")
            await node.runtime.remove_pod(node.made["a"][0])
            await node.stop()
            await node.start()
            await node.until_state(await node.pod("b"), "enforced")

    asyncio.run(told())
    assert here == []


@pytest.mark.parametrize("name", ["undo.jsonl", "pods.json", "settings.json", ".pods.json.new"])
def test_a_fifo_in_the_state_folder_blocks_nothing(name: str, tmp_path: Path) -> None:
    async def told() -> None:
        (tmp_path / "state").mkdir()
        os.mkfifo(tmp_path / "state" / name)
        runtime = SimRuntime(tmp_path / "nri.sock")
        await runtime.serve()
        async with service(tmp_path) as daemon:
            await daemon.manager.until("READY=1")
            health = (await daemon.status())["health"]
            assert isinstance(health, dict)
            assert (health["state_unread"], health["lane_disk_hung"]) == (int(name == "undo.jsonl"), 0)
            said = (tmp_path / "log").read_text()
            assert "undo=unreadable" in said or name != "undo.jsonl"
            assert "last-known=ignored" in said or name != "pods.json"
            daemon.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(daemon.process.wait, 30) == 0
            asked = await daemon.nodeward("uninstall", "--config", str(daemon.config))
            assert asked.returncode == int(name == "undo.jsonl")
            assert ("cannot be read" in asked.stderr) is (name == "undo.jsonl")
        await runtime.close()

    asyncio.run(told())


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param("kube: {url: 'https://nobody:1'}", id="for the API server"),
        pytest.param("kube: {enabled: false}\nmetrics: {enabled: true, listen: 'nobody:1'}", id="for its own address"),
    ],
)
def test_a_resolver_that_hangs_does_not_hold_up_the_end(
    asks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a table of aliases that glibc reads for each name, and that never ends."""
    aliases = tmp_path / "aliases"
    os.mkfifo(aliases)
    monkeypatch.setenv("HOSTALIASES", str(aliases))
    (tmp_path / "nodeward.yaml").write_text(
        f"state_dir: {tmp_path}/state\nrun_dir: {tmp_path}/run\nnri: {{socket: {tmp_path}/nri.sock}}\n"
        f"cgroups: {{root: {tmp_path}/cgroup}}\n{asks}\n"
    )

    async def told() -> None:
        async with service(tmp_path) as daemon:
            async with asyncio.timeout(WITHIN_S):
                held = await asyncio.to_thread(os.open, aliases, os.O_WRONLY)  # waits until the resolver is there
            daemon.process.send_signal(signal.SIGTERM)
            try:
                assert await asyncio.to_thread(daemon.process.wait, WITHIN_S) == 0
            finally:
                os.close(held)

    asyncio.run(told())
