"""The OCI hook and the daemon: the line between them, what the daemon learns by it, and what it leaves for later."""

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.modes import OnError
from nodeward.features.limits.settings import LimitsSettings, Unsupported
from nodeward.features.settings import HookSection, Settings
from nodeward.host.hostfs import ensure_folder
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.sockets import lines
from nodeward.programs.hook.run import Options, Outcome, ask_socket, run
from tests.component.daemon.rig import EPC, ROOT, WITHIN_S, Rig, Trouble, rig
from tests.component.kubernetes.support import until

PID = 4242
ID = "a" * 64
SANDBOX = "b" * 64


@contextlib.asynccontextmanager
async def hooked(folder: Path, limits: LimitsSettings | None = None, *, nri: bool = False) -> AsyncIterator[Rig]:
    """A node with the hook's socket, and without NRI unless it is asked for."""

    def change(settings: Settings) -> Settings:
        return replace(
            settings,
            nri=settings.nri,
            limits=limits or settings.limits,
            hook=HookSection(enabled=True, folder=str(folder / "hook")),
        )

    async with rig(folder, change=change, runtime_hands_down=nri) as node:
        ensure_folder(node.kernel, str(folder / "hook"))
        await until(lambda: (folder / "hook/hook.sock").exists(), "the hook's socket")
        yield node


def start(
    node: Rig, uid: str, name: str = "app", container_id: str = ID, annotations: dict[str, str] | None = None
) -> bytes:
    """What a runtime does before its hooks: the cgroup, the process, the bundle. The state for stdin."""
    path = f"/kubepods/pod{uid}/{container_id}"
    bundle = f"/bundle-{container_id}"
    kind = "container" if name else "sandbox"
    notes = {
        "io.kubernetes.cri.container-type": kind,
        "io.kubernetes.cri.sandbox-id": SANDBOX,
        "io.kubernetes.cri.sandbox-uid": uid,
        "io.kubernetes.cri.sandbox-namespace": "default",
        "io.kubernetes.cri.sandbox-name": f"pod-{uid}",
        **({"io.kubernetes.cri.container-name": name} if name else {}),
        **(annotations or {}),
    }
    config = {"ociVersion": "1.0.2", "linux": {"cgroupsPath": path}, "annotations": notes}
    kernel = node.kernel
    kernel.make_cgroup(ROOT + path)
    for folder in ("", "/kubepods", f"/kubepods/pod{uid}"):
        kernel.write(f"{ROOT}{folder}/cgroup.subtree_control", b"+misc")
    for folder in ("/proc", f"/proc/{PID}", bundle):
        with contextlib.suppress(FileExistsError):
            kernel.mkdir(folder)
    kernel.replace(f"/proc/{PID}/cgroup", f"0::{path}\n".encode())
    kernel.replace(f"{bundle}/config.json", json.dumps(config).encode())
    return json.dumps({"id": container_id, "pid": PID, "bundle": bundle}).encode()


async def hook(node: Rig, state: bytes, on_error: str = "refuse") -> Outcome:
    options = Options(on_error, str(node.folder / "hook"))
    return await asyncio.to_thread(run, state, node.files, options, ask_socket)


async def test_a_container_has_its_limit_before_it_runs_and_the_daemon_knows_it_until_it_ends(tmp_path: Path) -> None:
    async with hooked(tmp_path) as node:
        assert await hook(node, start(node, "a", name="", container_id=SANDBOX)) == Outcome(0)
        path = f"/kubepods/poda/{ID}"
        assert await hook(node, start(node, "a")) == Outcome(0)
        assert node.limit(path) == f"{EPC} 4096"
        await node.until_state(path, "enforced")
        row = await node.row(path)
        assert (row["namespace"], row["pod"], row["container"], row["id"]) == ("default", "pod-a", "app", ID)
        assert node.limit("/kubepods/poda") == f"{EPC} 4096", "the pod's budget"
        assert await node.row(f"/kubepods/poda/{SANDBOX}") == {}, "what holds the sandbox is nobody's"
        node.kernel.rmdir(ROOT + path)
        await until_rows(node, ["/kubepods/poda"])
        node.kernel.rmdir(f"{ROOT}/kubepods/poda/{SANDBOX}")
        node.kernel.rmdir(f"{ROOT}/kubepods/poda")
        await until_rows(node, [])


async def until_rows(node: Rig, cgroups: list[str]) -> None:
    await node.until(lambda view: "rows" in view and [row["cgroup"] for row in view["rows"]] == cgroups)


async def test_a_refusal_of_the_engine_is_the_runtimes_error(tmp_path: Path) -> None:
    async with hooked(tmp_path, LimitsSettings(unsupported=Unsupported.REFUSE)) as node:
        notes = {"nodeward.io/limits": json.dumps({"app": {"tdx": "1"}})}
        outcome = await hook(node, start(node, "unknown", annotations=notes), on_error="pass")

        assert outcome.code == 1
        assert "default/pod-unknown, container app: declares 1 of tdx, which this kernel cannot limit" in outcome.said


async def test_on_error_comes_with_the_answer(tmp_path: Path) -> None:
    async with hooked(tmp_path, LimitsSettings(on_error=OnError.REFUSE)) as node:
        state = start(node, "a")
        path = f"/kubepods/poda/{ID}/misc.max"
        trouble = node.files.trouble(Trouble(("write",), path, 30))
        outcome = await hook(node, state, on_error="pass")
        trouble.end()

        assert outcome.code == 1
        assert f"cannot write '{EPC} 4096'" in outcome.said
        assert "writable" in outcome.said


async def test_what_is_left_for_the_hook_holds_without_the_daemon(tmp_path: Path) -> None:
    async with hooked(tmp_path) as node:
        left = f"{node.folder}/hook/pods/a.json"
        state = start(node, "a")

        def is_there() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return bool(node.kernel.read(left, 99_999))
            return False

        await until(is_there, "the pod's file")
        options = Options("refuse", f"{node.folder}/hook")

        def nobody(path: str, line: bytes, wait: bool) -> bytes:
            raise ConnectionRefusedError(111, "Connection refused")

        outcome = await asyncio.to_thread(run, state, node.files, options, nobody)
        assert outcome.code == 0
        assert "Connection refused" in outcome.said
        assert node.limit(f"/kubepods/poda/{ID}") == f"{EPC} 4096"


async def test_beside_nri_the_runtimes_word_stays(tmp_path: Path) -> None:
    async with hooked(tmp_path, nri=True) as node:
        pod = await node.pod("a")
        sandbox, container = node.made["a"]
        path = f"{pod}/{container}"
        await node.until_state(path, "enforced")
        before = await node.row(path)
        request = hook_line.HookRequest(container, sandbox, "a", "default", "pod-a", "app", path, {})
        answer = await asyncio.to_thread(
            ask_socket, f"{node.folder}/hook/hook.sock", hook_line.encode_request(request), True
        )

        assert hook_line.decode_answer(answer).limits == {EPC: 4096}
        assert await node.row(path) | {"resources": 0} == before | {"resources": 0}
        await node.runtime.stop(container)
        await until_rows(node, [pod])


# ---- clients that are none


REQUEST = hook_line.HookRequest(ID, SANDBOX, "a", "default", "pod-a", "app", f"/kubepods/poda/{ID}", {})
BAD = {
    "garbage": b"garbage\n",
    "empty line": b"\n",
    "another version": b'{"v":2}\n',
    "no line's end, then closed": b'{"v":1',
    "huge": b"x" * (hook_line.MAX_REQUEST + 10) + b"\n",
    "no pod's cgroup": hook_line.encode_request(REQUEST._replace(cgroup="/system.slice/sshd.service")),
    "the root": hook_line.encode_request(REQUEST._replace(cgroup="/")),
    "a cgroup that escapes": hook_line.encode_request(REQUEST._replace(cgroup="/kubepods/poda/../../x")),
    "two levels below the pod": hook_line.encode_request(REQUEST._replace(cgroup=f"/kubepods/poda/{ID}/x")),
    "no id": hook_line.encode_request(REQUEST._replace(id="")),
}


async def test_a_client_that_makes_no_sense_gets_no_answer_and_changes_nothing(tmp_path: Path) -> None:
    """Only root may ask."""
    async with hooked(tmp_path) as node:
        assert stat.S_IMODE(os.stat(tmp_path / "hook/hook.sock").st_mode) == 0o600
        assert (await node.until_source("hook", True))["detail"] == f"answers at {tmp_path}/hook/hook.sock"

        def ask(line: bytes) -> bytes:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(WITHIN_S)
                peer.connect(str(tmp_path / "hook/hook.sock"))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    peer.sendall(line)
                    peer.shutdown(socket.SHUT_WR)
                    return peer.recv(100)
            return b""

        for what, line in BAD.items():
            assert await asyncio.to_thread(ask, line) == b"", what
            assert (await node.ask())["rows"] == [], what
        assert (await hook(node, start(node, "a"))).code == 0, "others are served"


async def test_slow_clients_are_let_go_and_many_are_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_CLIENTS", 4)

    async with hooked(tmp_path) as node:
        path = str(tmp_path / "hook/hook.sock")
        idle = [await asyncio.open_unix_connection(path) for _ in range(4)]
        reader, _ = await asyncio.open_unix_connection(path)
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b"", "the fifth is turned away"
        assert not any(one.at_eof() for one, _ in idle), "while the others are waited for"
        for one, _ in idle:
            assert await asyncio.wait_for(one.read(), WITHIN_S) == b"", "a slow one is let go"
        assert (await hook(node, start(node, "a"))).code == 0
