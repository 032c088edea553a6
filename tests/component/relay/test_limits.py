"""Limits given through `nodeward relay` by `nodeward node`, as both are installed: grpcio's client and a runtime
of grpcio's.

The kernel is a folder with the files of a misc controller: the daemon only reads there what there is of each resource.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from nodeward.contracts import cri_pb2 as cri
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.header_blocks import encode_literals
from tests.component.relay.rig import (
    SERVICE,
    WAIT_S,
    Behave,
    Runtime,
    client_of,
    decided_by,
    log_of,
    node_process,
    people,
    relay_process,
    relayed,
    runtime_at,
    wait_for,
)
from tests.patience import scaled

ANNOTATIONS = {"epc-limit.nri.io/container.app": "8192"}
UNKNOWN = b"\xfa\x7f\x05later"
"""Field 2047."""


def runtime(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
    match name:
        case "RunPodSandbox":
            return cri.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString()
        case "CreateContainer":
            return cri.CreateContainerResponse(container_id="c1").SerializeToString()
        case "ListPodSandbox":
            metadata = cri.PodSandboxMetadata(name="pod", uid="u", namespace="default")
            sandbox = cri.PodSandbox(id="s1", metadata=metadata, annotations=ANNOTATIONS)
            return cri.ListPodSandboxResponse(items=[sandbox]).SerializeToString()
        case "ListContainers":
            one = cri.Container(id="c1", pod_sandbox_id="s1", metadata=cri.ContainerMetadata(name="app"))
            return cri.ListContainersResponse(containers=[one]).SerializeToString()
        case _:
            return b""


def create(annotations: dict[str, str] = ANNOTATIONS, uid: str = "u") -> bytes:
    """A create of that container with all that a proxy is known to lose or to reorder: a field that CRI does not have
    yet, a name twice in the environment, mounts of new kinds."""
    sandbox = cri.PodSandboxConfig(annotations=annotations)
    sandbox.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid=uid, namespace="default"))
    made = cri.CreateContainerRequest(pod_sandbox_id="s1", sandbox_config=sandbox)
    made.config.metadata.name = "app"
    for key, value in (("B", b"1"), ("A", b"2"), ("B", b"3")):
        made.config.envs.add(key=key, value=value)
    mapped = made.config.mounts.add(container_path="/mapped", host_path="/m")
    mapped.uidMappings.add(host_id=100000, container_id=0, length=65536)
    made.config.mounts.add(container_path="/ro", host_path="/r", readonly=True, recursive_read_only=True)
    made.config.mounts.add(container_path="/image").image.image = "registry/image:1"
    return made.SerializeToString() + UNKNOWN


def update() -> bytes:
    made = cri.UpdateContainerResourcesRequest(container_id="c1")
    made.linux.cpu_shares = 512
    return made.SerializeToString()


def kernel(folder: Path, capacity: str = "sgx_epc 1048576\n") -> tuple[str, ...]:
    root = folder / "cgroup"
    root.mkdir(exist_ok=True)
    for name, text in (("cgroup.controllers", "misc\n"), ("misc.capacity", capacity), ("misc.current", "")):
        (root / name).write_text(text)
    settings = folder / "nodeward.yaml"
    settings.write_text(
        f"nri: {{enabled: false}}\nrelay: {{limits: true}}\nrun_dir: {folder}/run\nstate_dir: {folder}/state\n"
        f"cgroups: {{root: {root}}}\nkube: {{enabled: false}}\n"
    )
    return "--config", str(settings)


@contextmanager
def node(
    folder: Path, behave: Behave = runtime, *flags: str, capacity: str = "sgx_epc 1048576\n"
) -> Iterator[tuple[Path, Runtime]]:
    """Relay and daemon, once the daemon decides. `flags` are the daemon's."""
    words = kernel(folder, capacity)
    with relayed(folder, *words, behave=behave) as (listen, made, _), node_process(folder, *flags):
        decided_by(listen)
        yield listen, made


def call(channel: grpc.Channel, name: str, request: bytes, version: str = "v1") -> bytes:
    answer: bytes = channel.unary_unary(f"/runtime.{version}.RuntimeService/{name}")(request, timeout=WAIT_S)
    return answer


def got(runtime: Runtime, name: str) -> bytes:
    return [request for method, request in runtime.got if method == name][-1]


def test_a_container_is_created_and_updated_with_its_pods_limit(tmp_path: Path) -> None:
    """The runtime gets the client's own bytes, and behind them the limit; by the older CRI too. `explain` says why, as
    of a container that NRI tells of."""
    with node(tmp_path) as (listen, made), client_of(listen) as channel:
        born_so = call(channel, "CreateContainer", create())
        assert cri.CreateContainerResponse.FromString(born_so).container_id == "c1"
        call(channel, "UpdateContainerResources", update(), "v1alpha2")
        why = people(listen, "explain", "default/pod/app").stdout
    born = got(made, "CreateContainer")
    assert born.startswith(create())
    linux = cri.CreateContainerRequest.FromString(born).config.linux
    assert dict(linux.resources.unified) == {"misc.max": "sgx_epc 8192"}
    changed = got(made, "UpdateContainerResources")
    assert changed.startswith(update())
    assert dict(cri.UpdateContainerResourcesRequest.FromString(changed).linux.unified) == {"misc.max": "sgx_epc 8192"}
    assert "  Source: annotation epc-limit.nri.io/container.app." in why.splitlines()
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"relay.sock.lock", "node.lock"}


def test_a_create_that_is_too_large_to_be_held_goes_on_and_its_container_is_known(tmp_path: Path) -> None:
    large = create(uid="v") + b"\xfa\x7f\x80\x80\xc0\x08" + bytes(17 << 20)
    made_now = threading.Event()

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if name == "CreateContainer":
            made_now.set()
        if name.startswith("List") and not made_now.is_set():
            return b""
        return runtime(name, request, context)

    with node(tmp_path, behave) as (listen, made), client_of(listen) as channel:
        call(channel, "CreateContainer", large)
        assert got(made, "CreateContainer") == large

        def limited() -> bool:
            call(channel, "UpdateContainerResources", update())
            return got(made, "UpdateContainerResources") != update()

        wait_for(limited, "the container's limit")


def test_while_the_runtime_sits_on_a_create_others_are_held_decided_and_answered(tmp_path: Path) -> None:
    sits, goes_on = threading.Event(), threading.Event()

    def behave(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if b"sits" in request:
            sits.set()
            assert goes_on.wait(WAIT_S)
        return runtime(name, request, context)

    held = [("CreateContainer", create()), ("CreateContainer", create(uid="v")), ("UpdateContainerResources", update())]
    with node(tmp_path, behave) as (listen, made), client_of(listen) as channel, client_of(listen) as other:
        first = create({**ANNOTATIONS, "it": "sits"})
        late = channel.unary_unary(f"{SERVICE}/CreateContainer").future(first, timeout=WAIT_S)
        assert sits.wait(WAIT_S)
        for way in (channel, other):
            for name, request in held:
                call(way, name, request)
                assert got(made, name) != request, "decided"
            call(way, "ListContainers", b"")
        assert not late.done()
        goes_on.set()
        assert cri.CreateContainerResponse.FromString(late.result()).container_id == "c1"


def unended(over: threading.Event) -> Iterator[bytes]:
    yield create()
    over.wait(WAIT_S)


def replayed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodeward", "replay", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=scaled(60), check=False)


def test_each_decision_on_a_relays_call_can_be_recorded_and_decided_again(tmp_path: Path) -> None:
    record, observes = tmp_path / "node.record", tmp_path / "observes.yaml"
    observes.write_text("limits: {mode: observe}\n")
    for life in (1, 2):
        with node(tmp_path, runtime, "--record", str(record)) as (listen, made), client_of(listen) as channel:
            call(channel, "CreateContainer", create())
            call(channel, "UpdateContainerResources", update())
            call(channel, "CreateContainer", create({"epc-limit.nri.io/container.app": str(4096 * life)}, f"u{life}"))
            assert got(made, "CreateContainer") != create()
    again = replayed(record)
    assert (again.returncode, again.stderr) == (0, "")
    assert "2 segment(s), " in again.stdout
    assert again.stdout.endswith("every decision is the same, byte for byte\n")
    other = json.loads(replayed(record, "--settings", observes, "-o", "json").stdout)
    words = json.dumps(other)
    assert [f"sgx_epc {limit}" in words for limit in (8192, 4096)] == [True, True]
    assert other["count"] == len(other["differences"]) >= 6
    assert not [word for word in (b"/mapped", b"registry/image:1") if word in record.read_bytes()]


def told(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(4096), b""))


def test_clients_that_do_not_end_their_creates_hold_up_nobody_and_are_told_when_the_relay_ends(tmp_path: Path) -> None:
    """Given eight that send headers and nothing more (the runtime here has sixteen threads) and one that sends all but
    the word that this is all, then others' creates are decided. The relay ends by SIGTERM all the same, says to each
    that it should try again, and the runtime never gets what was held."""
    headers = encode_literals(
        (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/runtime.v1.RuntimeService/CreateContainer"),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    listen, behind, over = tmp_path / "cri.sock", tmp_path / "runtime.sock", threading.Event()

    with (
        ExitStack() as clients,
        runtime_at(behind, runtime) as made,
        relay_process(listen, behind, *kernel(tmp_path)) as process,
        node_process(tmp_path),
        client_of(listen) as channel,
    ):
        decided_by(listen)
        silent = [clients.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(8)]
        for client in silent:
            client.settimeout(WAIT_S)
            client.connect(str(listen))
            client.sendall(h2.PREFACE + h2.encode_settings({}) + h2.encode_headers(1, headers, 0))
        call(channel, "CreateContainer", create())
        assert got(made, "CreateContainer") != create()
        held = channel.stream_unary(f"{SERVICE}/CreateContainer").future(unended(over), timeout=WAIT_S)
        wait_for(lambda: made.begun.count("CreateContainer") == 10, "all headers at the runtime")

        process.terminate()

        error = held.exception(WAIT_S)
        over.set()
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert error.details() == (
            "default/pod, container app: Nodeward's relay ends before this request is decided. Try again: the next "
            "relay decides"
        )
        assert all(b"grpc-status\x0214" in told(client) for client in silent)
        assert process.wait(WAIT_S) == 0
        assert [name for name, _ in made.got].count("CreateContainer") == 1
    assert "relay ends" in log_of(listen)
