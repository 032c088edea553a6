"""`cri-resmgr`, the walk of its first README: relay, dump, and the dump read back; images of another service;
and `nodeward kubelet` before a relay: kubelet's own words for its endpoints, there and back."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from nodeward import __version__
from nodeward.contracts import cri_pb2 as cri
from tests.component.relay import rig

PROGRAM = Path(sys.executable).parent / "cri-resmgr"
IMAGES = "/runtime.v1.ImageService"


def environment(folder: Path) -> dict[str, str]:
    """Ours, and a run_dir of its own: the default one is the machine's."""
    return {**os.environ, "NODEWARD_RUN_DIR": str(folder / "run")}


def ended(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    line, env = [PROGRAM, *words], environment(folder)
    return subprocess.run(line, capture_output=True, text=True, timeout=rig.WAIT_S, check=False, env=env)


@contextmanager
def cri_resmgr(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The program; its words are in `cri-resmgr.log` in the folder."""
    listen = folder / "relay" / "cri.sock"
    own = [] if "-config" in options else ["-relay-socket", str(listen)]
    command, log = [str(PROGRAM), *own, *options], folder / "cri-resmgr.log"
    with rig.running(command, log, listen.is_socket, environment(folder)) as process:
        yield process


def says(log: Path, words: str) -> bool:
    return words in log.read_text()


def answered(dump: Path, number: int) -> bool:
    return dump.exists() and re.search(rf"#{number} \S+ <= ", dump.read_text()) is not None


def answer(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    if name == "RunPodSandbox":
        return cri.RunPodSandboxResponse(pod_sandbox_id="abcd1234").SerializeToString()
    context.abort(grpc.StatusCode.NOT_FOUND, "no image\nof that name")
    raise AssertionError


def test_the_dumper_of_the_first_readme(tmp_path: Path) -> None:
    runtime, dump = tmp_path / "runtime.sock", tmp_path / "cri.dump"
    pid = tmp_path / "pid"
    walk = ["-policy", "null", "-dump", "reset,full:.*", "-dump-file", str(dump), "-pid-file", str(pid)]
    asked = cri.RunPodSandboxRequest()
    asked.config.metadata.name, asked.config.metadata.namespace = "web", "default"
    with (
        rig.runtime_at(runtime, answer),
        cri_resmgr(tmp_path, "--runtime-socket", f"unix://{runtime}", *walk) as process,
    ):
        rig.wait_for(lambda: pid.exists() and pid.read_text() == f"{process.pid}\n", "the process's number")
        with rig.client_of(tmp_path / "relay" / "cri.sock") as channel:
            rig.call(channel, "RunPodSandbox", asked.SerializeToString())
            create = cri.CreateContainerRequest(pod_sandbox_id="abcd1234").SerializeToString()
            with pytest.raises(grpc.RpcError):
                rig.call(channel, "CreateContainer", create)
        lines = rig.lines_of_dump(dump, 11)
        process.send_signal(signal.SIGUSR1)
        rig.wait_for(lambda: "log level=debug" in (tmp_path / "cri-resmgr.log").read_text(), "word of the log's level")
        assert (tmp_path / "run" / "relay.sock").is_socket()
        second = ended(tmp_path, "-relay-socket", tmp_path / "relay" / "cri.sock", "-runtime-socket", runtime, *walk)
        assert second.returncode == 1
        assert second.stderr.splitlines()[-1].startswith("cri-resmgr: ")
        assert "another relay listens here. Stop that one, or choose another path" in second.stderr
        assert pid.read_text() == f"{process.pid}\n", "nor is the dump of the first touched"
    stamp = r"\[\d{4}-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d\.\d{3}\]"
    took = r"\[ +\+\d+\.\d{6}\]"
    expected = [
        r"# hidden here: credentials, .*annotations\. Setting dump\.show names .* NODEWARD_DUMP__SHOW=.*",
        rf"{stamp} #1 RunPodSandbox => \(passthrough\) REQUEST",
        rf"{stamp} #1 RunPodSandbox =>     config:",
        rf"{stamp} #1 RunPodSandbox =>       metadata:",
        rf"{stamp} #1 RunPodSandbox =>         name: web",
        rf"{stamp} #1 RunPodSandbox =>         namespace: default",
        rf"{took} #1 RunPodSandbox <= \(passthrough\) REPLY pod_sandbox_id: abcd1234",
        rf"{stamp} #2 CreateContainer => \(passthrough\) REQUEST pod_sandbox_id: abcd1234",
        rf"{took} #2 CreateContainer <= \(passthrough\) FAILED",
        rf"{took} #2 CreateContainer <=     NOT_FOUND: no image",
        rf"{took} #2 CreateContainer <=     of that name",
    ]
    assert len(lines) == len(expected)
    assert [line for line, wanted in zip(lines, expected, strict=True) if not re.fullmatch(wanted, line)] == []
    assert not pid.exists()


def test_a_historic_file_of_options_is_followed_and_sigusr1_switches_full_debug_on_and_off_again(
    tmp_path: Path,
) -> None:
    runtime, dump, config = tmp_path / "runtime.sock", tmp_path / "cri.dump", tmp_path / "options"
    config.write_text(
        f"# the walk of the first README\npolicy = null\n\ndump = reset,full:.*\n  file = {dump}\n"
        f"relay-socket = {tmp_path}/relay/cri.sock\nruntime-socket = unix://{runtime}\nlogger-level=warn\n"
    )
    log = tmp_path / "cri-resmgr.log"
    with (
        rig.runtime_at(runtime),
        cri_resmgr(tmp_path, "-config", str(config)) as process,
        rig.client_of(tmp_path / "relay" / "cri.sock") as channel,
    ):
        for number, level in enumerate(("warning", "debug", "warning")):
            if number:
                process.send_signal(signal.SIGUSR1)
                rig.wait_for(partial(says, log, f"log level={level}"), "word of the log's level")
            channel.unary_unary(f"{rig.SERVICE}/Version")(b"", timeout=rig.WAIT_S)
            channel.unary_unary(f"{rig.SERVICE}/Brew")(b"", timeout=rig.WAIT_S)
            rig.wait_for(partial(answered, dump, 2 * number + 2), "reply in the dump")
    told = log.read_text()
    assert re.findall(r"DEBUG \S+ (call number=\d+ .*) added_us=\d", told) == [
        "call number=3 connection=1 method=Version status=OK fate=passed",
        "call number=4 connection=1 method='/runtime.v1.RuntimeService/Brew' status=OK fate=passed",
    ]
    assert " INFO " not in told.partition("log level=debug")[0]
    assert [line.split("#")[1].split()[0] for line in dump.read_text().splitlines() if " => " in line] == list("123456")


def test_images_of_another_service_are_relayed_at_a_socket_of_their_own(tmp_path: Path) -> None:
    runtime, images, dump = tmp_path / "runtime.sock", tmp_path / "images.sock", tmp_path / "cri.dump"
    own = tmp_path / "relay" / "cri-resmgr-image.sock"
    options = ["-image-socket", str(images), "-dump", "reset,name:.*", "-dump-file", str(dump), "-policy", "none"]
    with (
        rig.runtime_at(runtime) as of_pods,
        rig.runtime_at(images) as of_images,
        cri_resmgr(tmp_path, "-runtime-socket", str(runtime), *options, "-logtostderr"),
    ):
        rig.wait_for(own.is_socket, "socket for images")
        with rig.client_of(own) as channel:
            assert channel.unary_unary(f"{IMAGES}/PullImage")(b"i", timeout=rig.WAIT_S) == b"i"
        with rig.client_of(tmp_path / "relay" / "cri.sock") as channel:
            assert channel.unary_unary(f"{rig.SERVICE}/Version")(b"v", timeout=rig.WAIT_S) == b"v"
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(f"{IMAGES}/PullImage")(b"i", timeout=rig.WAIT_S)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert str(own) in refused.value.details()
        assert (of_pods.got, of_images.got) == ([("Version", b"v")], [("PullImage", b"i")])
        numbers = [line.split("#")[1].split()[0] for line in rig.lines_of_dump(dump, 4)[1:]]
    assert sorted(numbers) == ["1", "2", "3"]
    assert (tmp_path / "cri-resmgr.log").read_text().count("cri-resmgr: --logtostderr: ") == 1


def test_the_signal_that_was_chosen_for_it_has_the_forced_configuration_read_again(tmp_path: Path) -> None:
    runtime, config, log = tmp_path / "runtime.sock", tmp_path / "config", tmp_path / "cri-resmgr.log"
    config.write_text(f"dump: {{Config: 'full:.*', File: {tmp_path}/cri.dump}}\n")
    options = ["-runtime-socket", str(runtime), "-force-config", str(config), "--force-config-signal", "SIGUSR2"]
    with (
        rig.runtime_at(runtime),
        cri_resmgr(tmp_path, *options) as process,
        rig.client_of(tmp_path / "relay" / "cri.sock") as channel,
    ):
        rig.wait_for(partial(says, log, "relaying "), "word that it relays")
        config.write_text(config.read_text().replace("full:", "off:"))
        process.send_signal(signal.SIGUSR2)
        rig.wait_for(partial(says, log, "changed=dump.rules"), "word of the settings")
        assert channel.unary_unary(f"{rig.SERVICE}/Version")(b"v", timeout=rig.WAIT_S) == b"v"
    assert (tmp_path / "cri.dump").read_bytes() == b""


SAYS: tuple[tuple[str, int, str], ...] = (
    ("-policy static -h", 0, "cri-resmgr -policy null -dump 'reset,full:.*' -dump-file /tmp/cri.dump"),
    ("-policy null -list-policies", 0, "none: pins nothing: containers run wherever the runtime lets them\n"),
    ("-print-config -policy static -reserved-resources cpu=1", 0, "\npolicy:\n  active: static\n"),
    ("-policy statik", 1, "policy.active: 'statik' is no policy; did you mean static?"),
    ("-version", 0, f"cri-resmgr, nodeward version {__version__}\n"),
    ("-config /dev/zero", 1, "/dev/zero: is a device"),
    ("-print-config -logtostderr -dump-file /x", 0, "cri-resmgr: --logtostderr: "),
    ("-print-config -dump full:( -dump-file /x", 1, "(by --dump)"),
    ("-relay-socket /nowhere/cri.sock -dump-file /tmp", 1, "dump file /tmp: is a folder; name a file in it"),
    (
        "-policy static+ -reserved-resources cpu=1 --disable-policy-switch",
        *(1, "policy static-plus: the last one was static ("),
    ),
    ("--reset-policy", 0, "forgot the last policy, static\n"),
    ("--reset-policy", 0, "nothing to erase: no policy is noted, and no configuration is kept"),
)


def test_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(b"# a\n" * (10 << 18))
    monkeypatch.setenv("NODEWARD_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "cri-resmgr-policy").write_text("static\n")
    for line, status, said in SAYS:
        told, said = ended(tmp_path, *line.format(folder=tmp_path).split()), said.format(folder=tmp_path)
        assert (told.returncode, said in told.stdout + told.stderr) == (status, True), told.stderr
    for option in ("-config", "-force-config"):
        told = ended(tmp_path, option, tmp_path / "large")
        why = f"cri-resmgr: {tmp_path}/large: larger than the 1048576 bytes allowed here\n"
        assert (told.returncode, told.stderr) == (1, why)
    monkeypatch.setenv("NODEWARD_LIMITS__MODE", "bogus")
    assert ended(tmp_path, "-h").returncode == 0, "help needs no settings"
    assert "limits.mode: 'bogus' is not allowed" in ended(tmp_path, "-print-config").stderr


WORDS = {
    "--flags-file": 'KUBELET_EXTRA_ARGS="--v=2 --container-runtime=remote --container-runtime-endpoint=unix://{runtime}'
    ' --image-service-endpoint=unix://{runtime}"\n',
    "--kubelet-config": "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://{runtime}  # ours\n"
    "imageServiceEndpoint: unix://{runtime}\nmaxPods: 10\n",
}
"""By option, what a file of that kind has: flags as of old, and configuration as of now."""


@pytest.mark.parametrize("kind", WORDS)
def test_a_kubelet_is_pointed_at_the_relay_and_back_byte_for_byte(tmp_path: Path, kind: str) -> None:
    listen, behind, file = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "kubelet"
    before = WORDS[kind].format(runtime=behind)
    file.write_text(before)

    def kubelet(target: str, *more: str) -> subprocess.CompletedProcess[str]:
        sets = ("--set", f"relay.listen={listen}", "--set", f"relay.runtime={behind}")
        words = ["setup", "relay", *(["--undo"] if target == "runtime" else [])]
        command = [rig.NODEWARD, *words, kind, str(file), *sets, *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=rig.WAIT_S, check=False)

    with rig.runtime_at(behind):
        alone = kubelet("relay")
        assert (alone.returncode, file.read_text()) == (1, before)
        assert "start the relay (systemctl enable --now nodeward-relay), or give --force; nothing" in alone.stderr
        with rig.relay_process(listen, behind):
            tried = kubelet("relay", "--dry-run")
            assert (tried.returncode, file.read_text()) == (0, before)
            assert tried.stdout.endswith("\nnothing was changed; without --dry-run it is done\n")
            done = kubelet("relay")
            assert done.stdout.splitlines()[:-1] == tried.stdout.splitlines()[:-1], "the same as was shown"
            assert done.stdout.endswith("\ndone; now: systemctl restart kubelet\n")
            told = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
            endpoints = re.findall(r"ndpoint(?:=|: )unix://([^\s\"#]+)", "\n".join(told))
            assert endpoints == [str(listen)] * 2
            with rig.client_of(Path(endpoints[0])) as channel:
                assert rig.call(channel, "Version", b"v") == b"v"
        back = kubelet("runtime")
        assert (back.returncode, file.read_text()) == (0, before), back.stderr
