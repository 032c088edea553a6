"""Limits given through `nodeward relay` by `nodeward node`, as both are installed: grpcio's client and a runtime
of grpcio's.

The kernel is a folder with the files of a misc controller: the daemon only reads there what there is of each resource.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from nodeward.contracts import cri_pb2 as cri
from nodeward.neighbours.formats import http2_frames as h2
from nodeward.neighbours.formats.header_blocks import encode_literals
from tests.component.relay import rig
from tests.unit.neighbours.cri.strict import request

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
    folder: Path, behave: rig.Behave = runtime, *flags: str, capacity: str = "sgx_epc 1048576\n"
) -> Iterator[tuple[Path, rig.Runtime]]:
    """Relay and daemon, once the daemon decides. `flags` are the daemon's."""
    words = kernel(folder, capacity)
    with rig.relayed(folder, *words, behave=behave) as (listen, made, _), rig.node_process(folder, *flags):
        rig.decided_by(listen)
        yield listen, made


def call(channel: grpc.Channel, name: str, request: bytes, version: str = "v1") -> bytes:
    answer: bytes = channel.unary_unary(f"/runtime.{version}.RuntimeService/{name}")(request, timeout=rig.WAIT_S)
    return answer


def got(runtime: rig.Runtime, name: str) -> bytes:
    return [request for method, request in runtime.got if method == name][-1]


def test_a_container_is_created_and_updated_with_its_pods_limit(tmp_path: Path) -> None:
    """The runtime gets the client's own bytes, and behind them the limit; by the older CRI too. `explain` says why, as
    of a container that NRI tells of."""
    with node(tmp_path) as (listen, made), rig.client_of(listen) as channel:
        born_so = call(channel, "CreateContainer", create())
        assert cri.CreateContainerResponse.FromString(born_so).container_id == "c1"
        call(channel, "UpdateContainerResources", update(), "v1alpha2")
        why = rig.people(listen, "explain", "default/pod/app").stdout
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

    with node(tmp_path, behave) as (listen, made), rig.client_of(listen) as channel:
        call(channel, "CreateContainer", large)
        assert got(made, "CreateContainer") == large

        def limited() -> bool:
            call(channel, "UpdateContainerResources", update())
            return got(made, "UpdateContainerResources") != update()

        rig.wait_for(limited, "the container's limit")


def unended(over: threading.Event) -> Iterator[bytes]:
    yield create()
    over.wait(rig.WAIT_S)


def told(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(4096), b""))


def test_clients_that_do_not_end_their_creates_hold_up_nobody_and_are_told_when_the_relay_ends(tmp_path: Path) -> None:
    """Given eight that send headers and nothing more (the runtime here has sixteen threads) and one that sends all but
    the word that this is all, then others' creates are decided. The relay ends by SIGTERM all the same, says to each
    that it should try again, and the runtime never gets what was held."""
    headers = encode_literals(request("CreateContainer"))
    listen, behind, over = tmp_path / "cri.sock", tmp_path / "runtime.sock", threading.Event()

    with (
        ExitStack() as clients,
        rig.runtime_at(behind, runtime) as made,
        rig.relay_process(listen, behind, *kernel(tmp_path)) as process,
        rig.node_process(tmp_path),
        rig.client_of(listen) as channel,
    ):
        rig.decided_by(listen)
        silent = [clients.enter_context(rig.socket_to(listen)) for _ in range(8)]
        for client in silent:
            client.sendall(h2.PREFACE + h2.encode_settings({}) + h2.encode_headers(1, headers, 0))
        call(channel, "CreateContainer", create())
        assert got(made, "CreateContainer") != create()
        held = channel.stream_unary(f"{rig.SERVICE}/CreateContainer").future(unended(over), timeout=rig.WAIT_S)
        rig.wait_for(lambda: made.begun.count("CreateContainer") == 10, "all headers at the runtime")

        process.terminate()

        error = held.exception(rig.WAIT_S)
        over.set()
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert error.details() == (
            "default/pod, container app: Nodeward's relay ends before this request is decided. Try again: the next "
            "relay decides"
        )
        assert all(b"grpc-status\x0214" in told(client) for client in silent)
        assert process.wait(rig.WAIT_S) == 0
        assert [name for name, _ in made.got].count("CreateContainer") == 1
    assert "relay ends" in rig.log_of(listen)
