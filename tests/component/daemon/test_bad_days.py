"""Trees that cannot be written, full disks, clocks that jump, refused Events, lost containers: all else goes on."""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.app.host import undo
from nodeward.app.settings import last_good, reload
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kube_refusals import Json
from nodeward.doubles.runtime import SimPod
from nodeward.edges.kube import events
from nodeward.model.settings import CgroupsSection, KubeSection, Settings
from nodeward.transport.kube_http import Waits
from tests.component.daemon.rig import EPC, LOST, PODS, ROOT, STATE, WITHIN_S, Rig, Trouble, rig, until
from tests.patience import scaled


async def test_a_cgroup_tree_that_cannot_be_written_is_said_and_pods_start_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sealed, number = Trouble(("write",), ROOT, errno.EROFS), errno.EROFS
    async with rig(tmp_path, runtime_hands_down=False, troubles=(sealed,)) as node:
        path = await node.pod("a")
        await node.until_state(path, "controller-off")
        await node.until_error(path, os.strerror(number))
        assert (await node.ask())["ready"] is True
        explained = str(await node.ask("/v1/explain?what=default/pod-a"))
        assert f"The last write failed: {os.strerror(number)}" in explained
        assert f"goal=missed target=subtree:{path} error=" in caplog.text

        sealed.end()  # remounted by somebody: mended without a restart
        await node.until_state(path, "enforced")
        assert (await node.row(path))["last_error"] == ""


async def test_one_limit_that_cannot_be_written_is_drift_with_its_error_and_others_are_enforced(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        sealed = node.files.trouble(Trouble(("write",), "/podbad/misc.max", errno.EROFS))
        bad, good = await node.pod("bad"), await node.pod("good")
        await node.until_state(good, "enforced")
        await node.until_state(bad, "drift")
        await node.until_error(bad, "Read-only file system")
        sealed.end()
        await node.until_state(bad, "enforced")


async def test_a_state_folder_that_cannot_be_written_stops_no_limit_and_is_made_up_for_though_nothing_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    for module in (undo, reload):
        monkeypatch.setattr(module, "EVERY_S", 0.1)
    full = Trouble(("append", "replace"), STATE, errno.ENOSPC)
    async with rig(tmp_path, runtime_hands_down=False, troubles=(full,)) as node:
        await node.until_state(await node.pod("a"), "enforced")
        await node.until_health("not_restorable", 3)
        assert "undo=not-restorable target=subtree:/ " in caplog.text
        assert "last-good=not-kept" in caplog.text

        full.end()
        await node.until_health("not_restorable", 0)
        with node.files.lock:
            listed = [change.target for change in undo.read(node.kernel, STATE)]
        assert listed == ["subtree:/", "subtree:/kubepods", "limits:/kubepods"]
        await until(lambda: last_good.read(node.files, STATE, {}) == node.settings, "the settings are kept")


async def test_a_cgroup_that_vanishes_between_read_and_write_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    path = "/kubepods/podbad"

    async with rig(tmp_path) as node:

        def vanishes() -> None:
            for name in node.files.listdir(ROOT + path):
                if node.files.stat(f"{ROOT}{path}/{name}").is_dir:
                    node.files.rmdir(f"{ROOT}{path}/{name}")
            node.files.rmdir(ROOT + path)

        moment = node.files.trouble(Trouble(("write",), "/podbad/misc.max", first=vanishes))
        sandbox = await node.runtime.run_pod(SimPod("bad", "pod-bad"))
        await until(lambda: moment.met == 1, "its cgroup goes as its limit is written")
        await node.until_state(await node.pod("good"), "enforced")
        assert (await node.health())["component_restarts"] == 0
        assert "goal=missed" not in caplog.text
        await node.runtime.remove_pod(sandbox)
        while await node.row(path):
            await asyncio.sleep(0.02)
        await node.until_health("goals_unreached", 0)


async def test_a_container_that_the_runtime_has_lost_gets_its_limit(tmp_path: Path) -> None:
    pod, lost, pause = "/kubepods/podc", f"/kubepods/podc/{LOST}", f"/kubepods/podc/{'e' * 64}"

    async with rig(tmp_path) as node:
        with node.files.lock:
            for path in (lost, pause):
                node.kernel.make_cgroup(ROOT + path)

        await node.until_state(lost, "enforced")
        assert (node.limit(lost), node.limit(pod)) == (f"{EPC} 4096", f"{EPC} 4096")
        row = await node.row(lost)
        assert row["stale_since"] == "2023-11-14T22:13:20Z", "known from the disk"
        assert (row["namespace"], row["pod"], row["container"], row["id"]) == ("default", "pod-c", "app", LOST)
        await node.until_state(pause, "unmanaged")
        assert node.limit(pause) == f"{EPC} max"

        with node.files.lock:
            for path in (lost, pause, pod):
                node.kernel.remove_cgroup(ROOT + path)

        while await node.row(pod) or await node.row(lost):
            await asyncio.sleep(0.02)


async def test_a_refusal_is_shown_before_the_next_pass(tmp_path: Path) -> None:
    async with rig(
        tmp_path, change=lambda settings: replace(settings, cgroups=CgroupsSection(period_s=3600.0))
    ) as node:
        pod = await node.pod("a")
        container = f"{pod}/{node.made['a'][1]}"
        while not await node.row(container):
            await asyncio.sleep(0.02)

        async def shown(place: str) -> object:
            resources = (await node.row(place)).get("resources")
            return resources[0]["refusals"] if isinstance(resources, list) and resources else None

        while not (await shown(pod) and await shown(container)):  # a cgroup is watched soon after it is known
            with node.files.lock, contextlib.suppress(OSError):
                node.kernel.charge(ROOT + container, EPC, 4097)
            await asyncio.sleep(0.05)


def a_pod(uid: str) -> Json:
    container = {"name": "app", "resources": {"limits": {"sgx.intel.com/epc": "4096"}}}
    return {
        "metadata": {"name": f"pod-{uid}", "namespace": "default", "uid": uid},
        "spec": {"nodeName": "n1", "containers": [container]},
    }


def with_api(url: str) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, kube=KubeSection(url=url), node_name="n1")


async def refused(node: Rig, uid: str) -> None:
    """A charge that the container's limit refuses, once it is enforced."""
    home = await node.pod(uid)
    path = f"{home}/{node.made[uid][1]}"
    await node.until_state(path, "enforced")
    with node.files.lock, contextlib.suppress(OSError):
        node.kernel.charge(f"{ROOT}{path}", EPC, 5000)


async def until_counted(node: Rig, name: str, least: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await node.health()).get(name, 0) < least:
            await asyncio.sleep(0.02)


async def test_enforcing_goes_on_where_events_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WAITS", Waits(scaled(0.5), scaled(0.5), scaled(0.5)))

    async def story(server: ApiServer, node: Rig) -> None:
        for failed, (status, uid) in enumerate({0: "a", 403: "good", 503: "bad"}.items(), 1):
            server.faults.events_refuse, server.faults.events_hang = status, not status
            await refused(node, uid)
            await until_counted(node, "kube_events_failed", failed)
        server.faults.events_refuse, server.faults.events_hang = 0, False
        await refused(node, "b")
        await until_counted(node, "kube_events_sent", 1)
        told = [one for one in server.events.values() if one["reason"] == "ChargeRefused"]
        assert [dict(one)["regarding"] for one in told] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "pod-b",
                "uid": "b",
                "fieldPath": "spec.containers{app}",
            }
        ]
        assert (await node.ask())["ready"] is True

    async with ApiServer() as server:
        for uid in PODS:
            server.add_pod(a_pod(uid))
        async with rig(tmp_path, change=with_api(server.url)) as node:
            await story(server, node)
