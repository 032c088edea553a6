"""TEE keys on a running daemon: from counters and specs to what a person reads and a node is told; who makes quotes.
And the journal of grants over starts."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml
from click.testing import CliRunner

from nodeward.cli import main
from nodeward.contracts import kubepod_pb2 as kubepod
from nodeward.core.modes import Mode
from nodeward.features.keys.effects import grants
from nodeward.features.keys.effects.grants import BOOT, decode, encode
from nodeward.features.keys.settings import Attestation, KeyKind, KeysSettings, Publisher
from nodeward.features.settings import KubeSection, RecordSection, Settings
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles, ensure_folder
from nodeward.host.undo import BOOT_ID, boot_id
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.people import client
from nodeward.settings.load import from_tree
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.kube_refusals import Json
from nodeward_sim.doubles.kubelet import SimKubelet
from nodeward_sim.doubles.nfd import KATA_RULE, worker_object
from nodeward_sim.doubles.qgs import Qgs
from tests.component.daemon.rig import EPC, ROOT, STATE, WITHIN_S, Rig, Trouble, changed, rig
from tests.component.kubernetes.support import until
from tests.kubelet_views import SimViews
from tests.pages import typed
from tests.unit.formats import checkpoints

TDX, KATA = "devices.kubevirt.io/tdx", "tdx.intel.com/keys"
KUBELET = "/var/lib/kubelet"
CHECKPOINT = f"{KUBELET}/device-plugins/kubelet_internal_checkpoint"
RECORD = "/var/lib/nodeward/record"
VM = "/machine.slice/vm.scope"
counting = changed(keys=KeysSettings(Mode.OBSERVE, {EPC: KeyKind(), "tdx": KeyKind((TDX,))}))


def recorded(node: Rig) -> str:
    with contextlib.suppress(FileNotFoundError):
        return node.kernel.read(RECORD, 1 << 24).decode()
    return ""


async def keys(node: Rig, *arguments: str) -> str:
    command = ["keys", "--socket", str(node.folder / "run" / "nodeward.sock"), *arguments]
    while (done := await asyncio.to_thread(CliRunner().invoke, main.cli, command)).exit_code:
        assert isinstance(done.exception, client.AwayError), done.output
        await asyncio.sleep(0.02)  # the daemon begins
    return done.stdout


async def until_keys(node: Rig, text: str) -> str:
    said = ""
    try:
        async with asyncio.timeout(WITHIN_S):
            while text not in (said := await keys(node)):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{text!r} is not in {said!r}") from None
    return said


def begin_machine(node: Rig, key: str, amount: int) -> None:
    with node.files.lock:
        node.kernel.make_cgroup(f"{ROOT}{VM}")
        for path in ("", "/machine.slice"):
            node.kernel.write(f"{ROOT}{path}/cgroup.subtree_control", b"+misc")
        node.kernel.charge(f"{ROOT}{VM}", key, amount)


async def test_without_an_api_server_kubelet_itself_tells_what_pods_ask_for(tmp_path: Path) -> None:
    kata = kubepod.Pod(metadata=kubepod.ObjectMeta(name="kata", namespace="shop", uid="uid-kata"))
    kata.spec.containers.add(name="app")
    kata.spec.overhead[TDX].string = "1"
    kata.status.phase = "Pending"

    home = str(tmp_path / "k")
    keys = KeysSettings(Mode.OBSERVE, {"tdx": KeyKind((TDX,))}, kubelet_root=home)
    views = SimViews(home, SimKubelet(home, OsFiles(), SystemClock()))
    await views.start()
    views.put(kata)
    async with rig(tmp_path, change=changed(keys=keys)) as node:
        node.kernel.set_capacity("tdx", 4)
        assert "shop/kata: promised 1" in await until_keys(node, "3 of 4 free")
    await views.stop()


async def test_a_foreign_machine_is_seen_and_named_beside_the_pods_and_goes_again(tmp_path: Path) -> None:
    async with rig(tmp_path, change=counting) as node:
        path = await node.pod("a")
        await node.until_state(path, "enforced")
        node.kernel.charge(f"{ROOT}{path}/{node.made['a'][1]}", EPC, 1000)
        begin_machine(node, EPC, 7)

        said = await until_keys(node, "outside 7")

        assert "default/pod-a: promised 4096, holds 1000" in said
        assert f"{VM}: holds 7 (a machine outside of Kubernetes)" in said
        assert f"{(1 << 30) - 5 * 4096 - 7} of {1 << 30} free (pods {5 * 4096}" in said
        assert "tdx (devices.kubevirt.io/tdx): this kernel has no such keys" in said

        node.kernel.uncharge(f"{ROOT}{VM}", EPC, 7)
        assert VM not in await until_keys(node, "outside 0")
        assert '"key":"tdx"' in await keys(node, "-o", "json")


async def test_a_machine_counts_once_though_nothing_but_cgroups_tells_of_pods(tmp_path: Path) -> None:
    def alone(settings: Settings) -> Settings:
        off, kept = replace(settings.limits, mode=Mode.OFF), RecordSection(RECORD)
        return replace(counting(settings), limits=off, nri=replace(settings.nri, enabled=False), record=kept)

    async with rig(tmp_path, change=alone) as node:
        path = await node.pod("a")
        cgroup = f"{ROOT}{path}/{node.made['a'][1]}"
        node.kernel.charge(cgroup, EPC, 4096)

        said = await until_keys(node, "default/pod-a: promised 4096, holds 4096")
        assert f"{(1 << 30) - 5 * 4096} of {1 << 30} free" in said
        assert "outside 0" in said

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
        node.kernel.mkdir(KUBELET)
        node.kernel.mkdir(f"{KUBELET}/device-plugins")
        node.kernel.replace(CHECKPOINT, said("tdx0", "tdx0"))
        shown = await until_keys(node, "kubelet gave tdx0")
        assert f"finding: kubelet gave tdx0 of {TDX} to default/pod-a and default/pod-b" in shown
        assert f"{TDX}: 2 healthy ids registered with kubelet: tdx0 to tdx1" in shown
        assert "default/pod-b: promised 1, holds nothing that is known, id tdx0" in shown

        node.kernel.replace(CHECKPOINT, said("tdx0", "tdx1"))
        assert "finding" not in await until_keys(
            node, "default/pod-b: promised 1, holds nothing that is known, id tdx1"
        )

        node.kernel.replace(CHECKPOINT, b"{")
        shown = await until_keys(node, f"what kubelet has handed out cannot be read ({CHECKPOINT}: ")
        assert "id tdx1" in shown

        node.kernel.unlink(CHECKPOINT)
        shown = await until_keys(node, f"({CHECKPOINT} was there and is gone")
        assert "id tdx1" in shown


async def test_katas_number_follows_what_is_sold_by_the_pages_example(tmp_path: Path) -> None:
    keys = replace(
        from_tree(yaml.safe_load(typed("keys.md", "Offer keys to kubelet")), {}).keys, kubelet_dir=str(tmp_path / "k")
    )
    (tmp_path / "k" / "device-plugins").mkdir(parents=True)

    async with ApiServer() as server:
        server.nfd.nodes["n1"] = {"metadata": {"name": "n1", "uid": "u"}, "status": {"capacity": {KATA: "16"}}}
        server.nfd.install(dict(worker_object("nfd", "n1", {"tdx.total_keys": "16"})), rule=dict(KATA_RULE))

        def beside_nfd(settings: Settings) -> Settings:
            return replace(settings, kube=KubeSection(url=server.url), node_name="n1", keys=keys)

        async with rig(tmp_path, change=beside_nfd) as node:
            node.kernel.set_capacity("tdx", 16)
            begin_machine(node, "tdx", 4)
            said = await until_keys(node, "NFD's number is to be 12, and our object says 12")
            assert "share is override (chosen: auto)" in said
            server.nfd.uninstall()
            await until_keys(node, "share is own (chosen: auto)")


async def test_a_quote_service_that_ends_and_comes_back_is_shown(tmp_path: Path) -> None:
    service = Qgs(tmp_path / "qgs.socket")

    row = KeyKind(("a.b/tdx",), attestation=Attestation.OBSERVE, attestation_socket=str(service.path))
    async with rig(tmp_path, change=changed(keys=KeysSettings(Mode.OBSERVE, {"tdx": row}))) as node:
        node.kernel.set_capacity("tdx", 4)
        await until_keys(node, f"the service that makes quotes: {service.path}: No such file or directory")
        await service.start()
        await until_keys(node, "the service that makes quotes: answers")
        await service.stop()
        await until_keys(node, f"the service that makes quotes: {service.path}: Connection refused")


ROW = KeyKind((TDX,), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
CAPACITY = {EPC: 1 << 30, "tdx": 4}


def offering(url: str, folder: Path, mode: Mode = Mode.ENFORCE) -> Callable[[Settings], Settings]:
    keys = KeysSettings(mode, {"tdx": ROW}, kubelet_dir=str(folder / "kubelet"))
    return lambda settings: replace(settings, kube=KubeSection(bool(url), url=url), node_name="n1", keys=keys)


@asynccontextmanager
async def telling(folder: Path) -> AsyncIterator[tuple[ApiServer, Rig]]:
    async with ApiServer() as server, rig(folder, change=offering(server.url, folder), capacity=CAPACITY) as node:
        yield server, node


def said(server: ApiServer, reason: str) -> list[Json]:
    return [dict(one) for one in server.events.values() if one["reason"] == reason]


def is_there(node: Rig, path: str) -> bool:
    try:
        node.files.stat(path)
    except FileNotFoundError:
        return False
    return True


def hand_out(node: Rig) -> None:
    path = f"{node.settings.keys.kubelet_dir}/device-plugins"
    ensure_folder(node.kernel, path)
    pods = [checkpoints.entry("a", {"-1": ["tdx-key-0000"]}, TDX)]
    node.files.put(f"{path}/{checkpoint_file.PLACE.rpartition('/')[2]}", checkpoints.file(pods, {TDX: []}))


def on_record(node: Rig) -> object:
    path = grants.path_in(node.settings.run_dir)
    if not is_there(node, path):
        return None
    boot = boot_id(node.files)
    return (grants.decode(node.files.read(path, grants.MAX_BYTES), boot) or {}).get(TDX)


async def first_start_on_a_full_disk(node: Rig) -> Trouble:
    """The daemon begins anew, as if for the first time; its journal of grants finds no room until the trouble ends."""
    journal = grants.path_in(node.settings.run_dir)
    await until(lambda: is_there(node, BOOT.path_in(STATE)), "a journal is there, and that is noted")
    await node.stop()
    for left in (journal, BOOT.path_in(STATE)):
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
        await until(lambda: is_there(node, BOOT.path_in(STATE)), "a journal is there, and that is noted")
        await node.stop()
        node.files.unlink(journal)
        hand_out(node)
        assert said(server, "KeysRecordLost") == []
        await node.start()
        await until(lambda: bool(said(server, "KeysRecordLost")), "the node is told")
        assert on_record(node) is None, "a start before it is known again is to find the same"
        await until(lambda: on_record(node) == {"tdx-key-0000": 1}, "what kubelet named is on record")


GRANTED = {TDX: {"tdx-key-0000": 1, "tdx-key-0001": 2}}
OTHER = "11111111-2222-4333-8444-555555555555"


@asynccontextmanager
async def after_a_death(folder: Path, mode: Mode = Mode.ENFORCE, torn: bytes = b"") -> AsyncIterator[tuple[Rig, str]]:
    """The daemon's next life in the same boot, beside the journal of one that had GRANTED; and that boot."""
    async with rig(folder, change=offering("", folder, mode), capacity=CAPACITY) as node:
        boot = boot_id(node.files)
        await node.stop()
        node.files.put(grants.path_in(node.settings.run_dir), encode(GRANTED, boot) + torn)
        await node.start()
        yield node, boot


def journal(node: Rig) -> bytes:
    return node.files.read(grants.path_in(node.settings.run_dir), grants.MAX_BYTES)


def is_of(node: Rig, boot: str) -> bool:
    return boot.encode() in journal(node)


async def test_grants_are_kept_over_a_death_within_a_boot(tmp_path: Path) -> None:
    async with after_a_death(tmp_path, torn=b'{"resource":') as (node, boot):
        await until(lambda: journal(node).endswith(b"\n"), "the journal is written anew")
        assert decode(journal(node), boot) == GRANTED


async def test_a_daemon_that_began_in_observe_offers_by_its_grants_after_a_reload(tmp_path: Path) -> None:
    async with after_a_death(tmp_path, Mode.OBSERVE) as (node, boot):
        node.settings = replace(node.settings, keys=replace(node.settings.keys, mode=Mode.ENFORCE))
        node.source.asked.set()
        await node.until(lambda view: view and str(view["keys"][0]["plugin"]).startswith("waiting"))
        assert decode(journal(node), boot) == GRANTED


async def test_grants_of_an_earlier_boot_are_void(tmp_path: Path) -> None:
    async with after_a_death(tmp_path) as (node, boot):
        for other in (OTHER, boot):
            await node.stop()
            node.files.put(BOOT_ID, f"{other}\n".encode())
            await node.start()
            await until(partial(is_of, node, other), "the journal is of the new boot")
            assert decode(journal(node), other) == {}
