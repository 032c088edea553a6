"""TEE keys on a running daemon: from counters and specs to what a person reads, and who makes quotes."""

import asyncio
import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from nodeward.aio.clock import SystemClock
from nodeward.aio.hostfs import OsFiles
from nodeward.app.settings.load import from_tree
from nodeward.doubles.apiserver import ApiServer
from nodeward.doubles.kubelet import SimKubelet
from nodeward.doubles.nfd import KATA_RULE, worker_object
from nodeward.doubles.qgs import Qgs
from nodeward.model.settings import Attestation, KeySettings, KubeSection, LedgerSettings, Mode, RecordSection, Settings
from nodeward.proto import kubepod_pb2 as kubepod
from tests.component.daemon.rig import EPC, ROOT, WITHIN_S, Rig, changed, rig, until
from tests.kubelet_views import SimViews
from tests.pages import typed
from tests.unit.wire import checkpoints

TDX, KATA = "devices.kubevirt.io/tdx", "tdx.intel.com/keys"
KUBELET = "/var/lib/kubelet"
CHECKPOINT = f"{KUBELET}/device-plugins/kubelet_internal_checkpoint"
RECORD = "/var/lib/nodeward/record"
VM = "/machine.slice/vm.scope"


counting = changed(ledger=LedgerSettings(Mode.OBSERVE, {EPC: KeySettings(), "tdx": KeySettings((TDX,))}))


def recorded(node: Rig) -> str:
    """The daemon's record until now."""
    with node.files.lock, contextlib.suppress(FileNotFoundError):
        return node.kernel.read(RECORD, 1 << 24).decode()
    return ""


async def keys(node: Rig, *arguments: str) -> str:
    """What the command prints."""
    command = (
        str(Path(sys.executable).parent / "nodeward"),
        "keys",
        "--socket",
        str(node.folder / "run" / "nodeward.sock"),
    )
    done = await asyncio.to_thread(
        subprocess.run, (*command, *arguments), capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
    return str(done.stdout)


async def until_keys(node: Rig, text: str) -> str:
    """Waits for a line."""
    said = ""
    try:
        async with asyncio.timeout(WITHIN_S):
            while text not in (said := await keys(node)):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{text!r} is not in {said!r}") from None
    return said


async def test_without_an_api_server_kubelet_itself_tells_what_pods_ask_for(tmp_path: Path) -> None:
    """Given a ledger that offers nothing, a node without API server, and a Kata pod in kubelet's own list."""
    kata = kubepod.Pod(metadata=kubepod.ObjectMeta(name="kata", namespace="shop", uid="uid-kata"))
    kata.spec.containers.add(name="app")
    kata.spec.overhead[TDX].string = "1"
    kata.status.phase = "Pending"

    home = str(tmp_path / "k")
    ledger = LedgerSettings(Mode.OBSERVE, {"tdx": KeySettings((TDX,))}, kubelet_root=home)
    views = SimViews(home, SimKubelet(home, OsFiles(), SystemClock()))
    await views.start()
    views.put(kata)
    async with rig(tmp_path, change=changed(ledger=ledger)) as node:
        with node.files.lock:
            node.kernel.set_capacity("tdx", 4)
        assert "shop/kata: promised 1" in await until_keys(node, "3 free: 4 there are")
    await views.stop()


async def test_a_foreign_machine_is_seen_and_named_beside_the_pods_and_goes_again(tmp_path: Path) -> None:
    """Given pods that were promised 4096 each, of which one holds 1000; a machine outside of Kubernetes takes 7."""
    async with rig(tmp_path, change=counting) as node:
        path = await node.pod("a")
        await node.until_state(path, "enforced")
        with node.files.lock:
            node.kernel.make_cgroup(f"{ROOT}{VM}")
            node.kernel.write(f"{ROOT}/machine.slice/cgroup.subtree_control", b"+misc")
            node.kernel.charge(f"{ROOT}{path}/{node.made['a'][1]}", EPC, 1000)
            node.kernel.charge(f"{ROOT}{VM}", EPC, 7)

        said = await until_keys(node, "7 in foreign use")

        assert "default/pod-a: promised 4096, holds 1000" in said
        assert f"{VM}: holds 7 (a machine outside of Kubernetes)" in said
        assert f"{(1 << 30) - 5 * 4096 - 7} free: {1 << 30} there are, less {5 * 4096} that pods hold" in said
        assert "tdx (devices.kubevirt.io/tdx): this kernel has no such keys" in said

        with node.files.lock:
            node.kernel.uncharge(f"{ROOT}{VM}", EPC, 7)
        assert VM not in await until_keys(node, " 0 in foreign use")
        assert '"key":"tdx"' in await keys(node, "-o", "json")


async def test_how_many_keys_there_are_is_followed_while_the_daemon_runs(tmp_path: Path) -> None:
    of_amd = LedgerSettings(Mode.OBSERVE, {"sev_es": KeySettings((TDX,))})
    async with rig(tmp_path, change=changed(ledger=of_amd)) as node:
        await until_keys(node, "this kernel has no such keys")
        for amount in (509, 99):
            with node.files.lock:
                node.kernel.set_capacity("sev_es", amount)
            await until_keys(node, f"{amount} free: {amount} there are")
        with node.files.lock:
            node.kernel.set_capacity("sev_es", 0)
        await until_keys(node, "this kernel has no such keys")


async def test_a_machine_counts_once_though_nothing_but_cgroups_tells_of_pods(tmp_path: Path) -> None:
    def alone(settings: Settings) -> Settings:
        off, kept = replace(settings.limits, mode=Mode.OFF), RecordSection(RECORD)
        return replace(counting(settings), limits=off, nri=replace(settings.nri, enabled=False), record=kept)

    async with rig(tmp_path, change=alone) as node:
        path = await node.pod("a")
        cgroup = f"{ROOT}{path}/{node.made['a'][1]}"
        with node.files.lock:
            node.kernel.charge(cgroup, EPC, 4096)

        said = await until_keys(node, "default/pod-a: promised 4096, holds 4096")
        assert f"{(1 << 30) - 5 * 4096} free" in said
        assert " 0 in foreign use" in said

        with node.files.lock:
            node.kernel.uncharge(cgroup, EPC, 4096)
        await node.runtime.remove_pod(node.made["a"][0])
        await until(lambda: f'"gone":["{path}"' in recorded(node), "its end is told")
        passes = recorded(node).count('"Sampled"')
        await until(lambda: recorded(node).count('"Sampled"') > passes + 2, "further passes")
        assert recorded(node).count(f'"gone":["{path}"') == 1, "then nobody looks for it any more"


async def test_an_id_that_kubelet_gave_to_two_pods_is_told_while_it_stands(tmp_path: Path) -> None:
    def said(*ids: str) -> bytes:
        pods = [checkpoints.entry(uid, {"-1": [one]}, TDX) for uid, one in zip("ab", ids, strict=True)]
        return checkpoints.file(pods, {TDX: ["tdx0", "tdx1"]})

    async with rig(tmp_path, change=counting) as node:
        with node.files.lock:
            node.kernel.mkdir(KUBELET)
            node.kernel.mkdir(f"{KUBELET}/device-plugins")
            node.kernel.replace(CHECKPOINT, said("tdx0", "tdx0"))
        shown = await until_keys(node, "kubelet gave tdx0")
        assert f"finding: kubelet gave tdx0 of {TDX} to default/pod-a and default/pod-b" in shown
        assert f"{TDX}: 2 healthy ids registered with kubelet: tdx0 to tdx1" in shown
        assert "default/pod-b: promised 1, holds nothing that is known, id tdx0" in shown

        with node.files.lock:
            node.kernel.replace(CHECKPOINT, said("tdx0", "tdx1"))
        assert "finding" not in await until_keys(
            node, "default/pod-b: promised 1, holds nothing that is known, id tdx1"
        )

        with node.files.lock:
            node.kernel.replace(CHECKPOINT, b"{")
        shown = await until_keys(node, f"what kubelet has handed out cannot be read ({CHECKPOINT}: ")
        assert "id tdx1" in shown

        with node.files.lock:
            node.kernel.unlink(CHECKPOINT)
        shown = await until_keys(node, f"({CHECKPOINT} was there and is gone")
        assert "id tdx1" in shown


async def test_the_command_says_how_to_switch_it_on(tmp_path: Path) -> None:
    async with rig(tmp_path) as node:
        assert "set ledger.mode to observe" in await until_keys(node, "not counted")


async def test_katas_number_follows_what_is_sold_by_the_pages_example(tmp_path: Path) -> None:
    """Given 16 keys, of which a machine outside holds four, NFD with its number 16, and the page's example as it
    stands: 12 are sold, and NFD's number becomes 12. Without NFD its number is left alone."""
    ledger = replace(
        from_tree(yaml.safe_load(typed("keys.md", "Offer keys to kubelet")), {}).ledger, kubelet_dir=str(tmp_path / "k")
    )
    (tmp_path / "k" / "device-plugins").mkdir(parents=True)

    async with ApiServer() as server:
        server.nfd.nodes["n1"] = {"metadata": {"name": "n1", "uid": "u"}, "status": {"capacity": {KATA: "16"}}}
        server.nfd.install(dict(worker_object("nfd", "n1", {"tdx.total_keys": "16"})), rule=dict(KATA_RULE))

        def beside_nfd(settings: Settings) -> Settings:
            return replace(settings, kube=KubeSection(url=server.url), node_name="n1", ledger=ledger)

        async with rig(tmp_path, change=beside_nfd) as node:
            with node.files.lock:
                node.kernel.set_capacity("tdx", 16)
                node.kernel.make_cgroup(f"{ROOT}{VM}")
                node.kernel.write(f"{ROOT}/cgroup.subtree_control", b"+misc")
                node.kernel.write(f"{ROOT}/machine.slice/cgroup.subtree_control", b"+misc")
                node.kernel.charge(f"{ROOT}{VM}", "tdx", 4)
            said = await until_keys(node, "NFD's number is to be 12, and our object says 12")
            assert "share is override (chosen: auto)" in said
            server.nfd.uninstall()
            await until_keys(node, "share is own (chosen: auto)")


async def test_a_quote_service_that_ends_and_comes_back_is_shown(tmp_path: Path) -> None:
    service = Qgs(tmp_path / "qgs.socket")

    row = KeySettings(("a.b/tdx",), attestation=Attestation.OBSERVE, attestation_socket=str(service.path))
    async with rig(tmp_path, change=changed(ledger=LedgerSettings(Mode.OBSERVE, {"tdx": row}))) as node:
        with node.files.lock:
            node.kernel.set_capacity("tdx", 4)
        await until_keys(node, f"the service that makes quotes: {service.path}: No such file or directory")
        await service.start()
        await until_keys(node, "the service that makes quotes: answers")
        await service.stop()
        await until_keys(node, f"the service that makes quotes: {service.path}: Connection refused")
