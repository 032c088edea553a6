"""ResolvePull and ReportPull, beside a relay that answers on a real socket, and what runtimes' files say of pulls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeward.core.pulls import PullRow, PullsView, SandboxKey
from nodeward.core.workload import PodUid, Sandbox, SandboxId
from nodeward.features.podapi.effects import pulls as pod_pulls
from nodeward.features.podapi.effects.pulls import PodPulls, PullRequestError
from nodeward.features.podapi.rows import PodImage, PullState, ReportPullRequest, ResolvePullRequest, Section
from nodeward.features.pods.state import KnownSandbox, Pods
from nodeward.features.settings import Settings
from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.cri import relay_line
from nodeward.neighbours.sockets.lines import LineServer
from tests.unit.features.build import ManualClock, there

DIGEST = "sha256:" + "a" * 64
PULL = PullRow("shop", "web", "u", 1, "app:latest", "", 5, 6, "OK", "sha256:host")
SEEN = PullsView("1", 7, True, (PULL,), (SandboxKey("s1", "shop", "web", "u", 1, "kata"),))
ASKED = ResolvePullRequest("shop", "web", "u", 1, "app")
REPORT = ReportPullRequest("s1", "app", "PULLED", DIGEST, 100)
KATA, NYDUS = "/etc/kata.toml", 'snapshotter = "nydus"'
HANDLER = (
    f'[plugins.p.containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\noptions.ConfigPath = "{KATA}"\n'
)


@asynccontextmanager
async def beside(
    folder: Path,
    answer: bytes | None = relay_line.encode_pulls(SEEN),
    pods: Callable[[], Pods] = Pods,
    most_asked: int = 1000,
) -> AsyncIterator[PodPulls]:
    """A relay beside answers so, or there is none for b"", or it never answers for None."""
    asked = 0

    async def answering(line: bytes) -> bytes | None:
        nonlocal asked
        asked += 1
        assert relay_line.decode_request(line) == relay_line.PULLS
        if answer is None:
            await asyncio.Event().wait()
        return answer

    settings, ready = replace(Settings(), run_dir=str(folder)), asyncio.Event()
    pulls = PodPulls(settings, OsFiles(str(folder)), ManualClock(), pods)
    if answer == b"":
        yield pulls
        return
    server = LineServer("relay", answering, 1 << 16)
    serving = asyncio.create_task(server.run(f"{folder}/{relay_line.SOCKET}", ready.set))
    await ready.wait()
    yield pulls
    serving.cancel()
    await asyncio.wait([serving])
    assert asked <= most_asked


def write(folder: Path, path: str, text: str) -> None:
    file = folder / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("attempt", "uid", "state", "sandbox"),
    [
        pytest.param(1, "u", PullState.RESOLVED, "s1", id="its sandbox"),
        pytest.param(0, "u", PullState.STALE, "", id="an attempt before"),
        pytest.param(2, "u", PullState.PENDING, "", id="a sandbox that is being made"),
        pytest.param(1, "other", PullState.PENDING, "", id="another pod of the same name"),
    ],
)
async def test_a_pull_is_its_attempts(tmp_path: Path, attempt: int, uid: str, state: str, sandbox: str) -> None:
    async with beside(tmp_path) as pulls:
        found = await pulls.resolve(replace(ASKED, attempt=attempt, uid=uid))
        assert (found.state, found.sandbox) == (state, sandbox)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(b"", "no relay answers at", id="away"),
        pytest.param(None, "did not answer within", id="late"),
        pytest.param(b"\xff{\n", "cannot be read", id="nonsense"),
        pytest.param(b'{"v":2,"pulls":{}}\n', "version 2 is not known", id="another version"),
        pytest.param(relay_line.encode_error("'pulls' cannot be asked"), "this relay is older", id="older"),
        pytest.param(relay_line.encode_error("it notes no pulls"), "it notes no pulls", id="off"),
    ],
)
async def test_a_relay_that_does_not_tell_is_said_and_nothing_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str
) -> None:
    if answer is None:
        monkeypatch.setattr(pod_pulls, "WITHIN_S", 0.05)

    async with beside(tmp_path, answer) as pulls:
        found = await pulls.resolve(ASKED)
        assert (found.state, found.sandbox, found.mode) == (PullState.UNKNOWN, "", "UNKNOWN")
        assert why in found.why
        seen = await pulls.pulls("u", "shop", "web", "")
        assert why in seen.why
        assert not (await pulls.report(REPORT)).accepted


async def test_hundred_who_ask_at_once_are_two_questions_to_the_relay(tmp_path: Path) -> None:
    async with beside(tmp_path, most_asked=2) as pulls:
        found = await asyncio.gather(*(pulls.resolve(ASKED) for _ in range(100)))
        assert {one.sandbox for one in found} == {"s1"}


async def test_what_a_guest_holds_is_by_report_and_ends_with_its_sandbox(tmp_path: Path) -> None:
    web = ("u", "shop", "web", "")
    images: Section[Mapping[str, str]] = Section({"app": "app", "log": "log:1"}, "the API server")

    async with beside(tmp_path) as pulls:
        seen, of = await pulls.pulls(*web), await pulls.images(*web, images)
        assert of.value == (PodImage("app", "app", ("sha256:host",), ()), PodImage("log", "log:1", (), ()))
        assert [(one.sandbox, one.status) for one in there(seen.value).host] == [("s1", "OK")]
        bad = replace(REPORT, image="log:1", state="FAILED", digest="", error="GET https://u:c4n4ry@r/?t=c4n4ry \n 401")
        assert (await pulls.report(bad)).accepted
        assert (await pulls.report(REPORT)).accepted
        seen, of = await pulls.pulls(*web), await pulls.images(*web, images)
        assert of.value == (PodImage("app", "app", ("sha256:host",), (DIGEST,)), PodImage("log", "log:1", (), ()))
        assert (there(seen.value).mode, [one.error for one in there(seen.value).guest]) == (
            "GUEST",
            ["GET https://r/   401", ""],
        )
        assert (await pulls.resolve(ASKED)).mode_why == "its runtime has reported a pull in the guest"
        assert not (await pulls.report(replace(REPORT, sandbox="s2"))).accepted
        for number in range(2 * pod_pulls.MOST_IMAGES):
            await pulls.report(replace(REPORT, image=f"app:{number}"))
        assert len(there((await pulls.pulls(*web)).value).guest) == pod_pulls.MOST_IMAGES


async def test_reports_end_with_their_sandbox(tmp_path: Path) -> None:
    nri = KnownSandbox(Sandbox(SandboxId("s2"), PodUid("u2"), "shop", "old", handler="kata"), 1)
    known = {nri.sandbox.id: nri}

    async with beside(tmp_path, pods=lambda: Pods(sandboxes=dict(known))) as pulls:
        assert (await pulls.report(replace(REPORT, sandbox="s2"))).accepted
        for ended in (False, True):
            if ended:
                known.clear()
            assert (await pulls.report(REPORT)).accepted
            seen = await pulls.pulls("u2", "shop", "old", "s2")
            assert [one.sandbox for one in there(seen.value).guest] == ([] if ended else ["s2"])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (replace(REPORT, digest="sha256:c4n4ry"), "digest"),
        (replace(REPORT, digest=""), "digest"),
        (replace(REPORT, digest=DIGEST + "\n"), "digest"),
        (replace(REPORT, state="c4n4ry"), "state"),
        (replace(REPORT, bytes=-1), "bytes"),
        (replace(REPORT, image="c4n4ry" * 100), "image"),
        (replace(REPORT, sandbox=""), "sandbox"),
        (replace(ASKED, uid=""), "namespace, name, uid"),
        (replace(ASKED, attempt=-2), "attempt"),
    ],
)
async def test_a_senseless_request_is_refused_without_an_echo(
    tmp_path: Path, wrong: ReportPullRequest | ResolvePullRequest, field: str
) -> None:
    async with beside(tmp_path) as pulls:
        with pytest.raises(PullRequestError, match=f"^{field}: ") as refused:
            await (pulls.report(wrong) if isinstance(wrong, ReportPullRequest) else pulls.resolve(wrong))
        assert "c4n4ry" not in str(refused.value)


CRIO = '[crio.runtime.runtimes.kata]\nruntime_path = "/bin/kata"\nruntime_config_path = "/etc/kata.toml"\n'
PLATFORM = f"[plugins.images.runtime_platforms.kata]\n{NYDUS}\n"
GO, RS = "experimental_force_guest_pull = true\n", 'experimental = ["x", "force_guest_pull"]\n'
RUNTIME = {KATA: "[runtime]\n"}
CONTAINERD = {"/etc/containerd/config.toml": HANDLER}


BY_NYDUS = {**RUNTIME, "/etc/containerd/config.toml": HANDLER + NYDUS}
BY_PLATFORM = {**RUNTIME, "/etc/containerd/config.toml": HANDLER + PLATFORM}
PROXY = {"/etc/nydus/config.toml": '[daemon]\nfs_driver = "proxy"\n'}
BACK = {"/etc/config.d/9": f"[runtime]\n{GO.replace('true', 'false')}"}
BY_CRIO = {**RUNTIME, "/etc/crio/crio.conf.d/kata": f"{CRIO}runtime_pull_image = true\n"}
CRIO_KEY = "/etc/crio/crio.conf.d/kata: [crio.runtime.runtimes.kata] runtime_pull_image = true"
MODES: dict[str, tuple[dict[str, str], str, str]] = {
    "no files": ({}, "UNKNOWN", "read were no files"),
    "an option that nobody sets": ({**CONTAINERD, **RUNTIME}, "HOST", "no option"),
    "Go": ({**CONTAINERD, KATA: f"[runtime]\n{GO}"}, "GUEST", f"{KATA}: [runtime] experimental_f"),
    "runtime-rs": ({**CONTAINERD, KATA: f"[runtime]\n{RS}"}, "GUEST", "has force_guest_pull"),
    "a drop-in takes it back": ({**CONTAINERD, KATA: f"[runtime]\n{GO}", **BACK}, "HOST", "no option"),
    "a broken file": ({**CONTAINERD, KATA: "[runtime"}, "UNKNOWN", f"{KATA}: "),
    "no configuration of Kata": (CONTAINERD, "UNKNOWN", "not found"),
    "nydus": (BY_NYDUS, "UNKNOWN", "(fs_driver) was not found"),
    "nydus as a proxy": ({**BY_PLATFORM, **PROXY}, "GUEST", "/etc/nydus/config.toml: [daemon] fs_driver = 'proxy'"),
    "CRI-O": (BY_CRIO, "GUEST", CRIO_KEY),
}


@pytest.mark.parametrize("case", MODES)
async def test_where_an_image_is_pulled_is_said_by_file_and_key(tmp_path: Path, case: str) -> None:
    files, mode, why = MODES[case]
    for path, text in files.items():
        write(tmp_path, path, text)

    async with beside(tmp_path) as pulls:
        found = await pulls.resolve(ASKED)
        assert (found.handler, found.mode) == ("kata", mode)
        assert why in found.mode_why


async def test_a_handler_without_a_vm_pulls_on_the_host_and_so_does_the_default(tmp_path: Path) -> None:
    write(tmp_path, "/etc/containerd/config.toml", '[plugins.p.containerd.runtimes.gvisor]\nruntime_type = "runsc"\n')
    keys = [SandboxKey(f"s-{handler}", "shop", handler, "u", 1, handler) for handler in ("gvisor", "")]
    seen = replace(SEEN, sandboxes=(keys[0], replace(keys[1], name="none")))
    async with beside(tmp_path, relay_line.encode_pulls(seen)) as pulls:
        for name, what in (("gvisor", "gvisor"), ("none", "")):
            found = await pulls.resolve(replace(ASKED, name=name))
            assert (found.handler, found.mode) == (what, "HOST")
            assert "starts no VM" in found.mode_why
