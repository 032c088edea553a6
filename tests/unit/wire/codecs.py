"""Every codec that reads what others wrote, with good inputs to damage and the rooms it is stacked on.

The rows `mux`, `ttrpc` and `nri` end in the plugin's own session, so that a damaged message goes as far as a runtime's
would: framing, envelope, protobuf, the words of the model.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from nodeward.edges.cri import mapping as cri_mapping
from nodeward.edges.nri.session import PLUGIN, NriSettings, Session
from nodeward.model.decision import Adjustment, Final, Reason
from nodeward.model.errors import NodewardError
from nodeward.model.events import Event, Question, SandboxStarted
from nodeward.model.settings import LimitsSettings
from nodeward.model.workload import ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from nodeward.proto import cri_pb2 as cri
from nodeward.proto import nri_pb2
from nodeward.wire import (
    cgroup_paths,
    dump_feed,
    dump_text,
    facts_line,
    hook_line,
    kube_objects,
    kubelet_checkpoint,
    misc_files,
    nri_mux,
    oci,
    pod_file,
    record,
    ttrpc,
)
from nodeward.wire.admission_review import annotations_of, decode_review
from nodeward.wire.errors import WireError
from nodeward.wire.hook_line import HookAnswer, HookRequest
from nodeward.wire.nri_mux import MuxDecoder
from nodeward.wire.record import RecordError
from nodeward.wire.ttrpc import Kind, Message, MessageDecoder
from tests.unit.edges.webhook.rounds import container, pod_of, review
from tests.unit.transport.between import Between
from tests.unit.transport.strict import DATA, END_STREAM, StrictEnd, frame, message, request
from tests.unit.wire import checkpoints

Reached = Callable[[], None]
"""To be called when the decoder of payloads is about to get something of this input."""
REVIEW_LIMIT = 1 << 20


@dataclass(frozen=True)
class Sample:
    """A good payload, and how it is framed."""

    payload: bytes
    frame: Callable[[bytes], bytes] = field(default=lambda payload: payload)


@dataclass(frozen=True)
class Codec:
    """What reads the pieces of one input, and the only errors that may come of it."""

    samples: Sequence[Sample]
    read: Callable[[Sequence[bytes], Reached], None]
    error: type[NodewardError] = WireError


# ---- NRI: each row has one room more around the same calls


def _calls(padding: int = 0) -> dict[str, bytes]:
    """Each kind of call a runtime makes, with its payload. `padding` bytes of annotation make it larger."""
    pod = nri_pb2.PodSandbox(id="p" * 64, name="web", uid="u-1", annotations={"a": "b" * (1 + padding)})
    linux = nri_pb2.LinuxContainer(cgroups_path="/kubepods/podu-1/x")
    made = nri_pb2.Container(id="c" * 64, pod_sandbox_id=pod.id, name="main", env=["A=b"], linux=linux)
    resources = nri_pb2.LinuxResources(unified={"misc.max": "sgx_epc 1"})
    asked = {
        "Configure": nri_pb2.ConfigureRequest(
            runtime_name="containerd", runtime_version="v2.1.0", request_timeout=2000
        ),
        "Synchronize": nri_pb2.SynchronizeRequest(pods=[pod, pod], containers=[made]),
        "CreateContainer": nri_pb2.CreateContainerRequest(pod=pod, container=made),
        "UpdateContainer": nri_pb2.UpdateContainerRequest(pod=pod, container=made, linux_resources=resources),
        "StateChange": nri_pb2.StateChangeEvent(event=nri_pb2.STOP_CONTAINER, pod=pod, container=made),
        "RemoveContainer": nri_pb2.RemoveContainerRequest(pod=pod, container=made),
    }
    return {method: request.SerializeToString() for method, request in asked.items()}


def _envelope(method: str, payload: bytes) -> bytes:
    return ttrpc.encode_request(ttrpc.Request(PLUGIN, method, payload))


def _message(method: str, payload: bytes) -> bytes:
    return ttrpc.encode(Message(1, Kind.REQUEST, 0, _envelope(method, payload)))


def _muxed(method: str, payload: bytes) -> bytes:
    return nri_mux.encode_message(nri_mux.PLUGIN_SERVICE, _message(method, payload))


def _samples(frame: Callable[[str, bytes], bytes], padding: int = 0) -> list[Sample]:
    return [Sample(payload, functools.partial(frame, method)) for method, payload in _calls(padding).items()]


def _session() -> Session:
    def ask(question: Question, within_ns: int) -> Final:
        return Final(Adjustment({"misc.max": "sgx_epc 1"}), Reason("test"))

    def tell(event: Event) -> int:
        return 1

    return Session(NriSettings(), ask, tell, lambda: 1)


def _handle(envelopes: Iterator[bytes], reached: Reached) -> None:
    session = _session()
    methods = _calls()
    for envelope in envelopes:
        request = ttrpc.decode_request(envelope)
        if request.service == PLUGIN and request.method in methods:
            reached()
        session._handle(request)


def _read_envelope(pieces: Sequence[bytes], reached: Reached) -> None:
    _handle(iter([b"".join(pieces)]), reached)


def _payloads(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decoder = MessageDecoder()
    return (message.payload for piece in pieces for message in decoder.feed(piece))


def _read_messages(pieces: Sequence[bytes], reached: Reached) -> None:
    _handle(_payloads(iter(pieces)), reached)


def _read_mux(pieces: Sequence[bytes], reached: Reached) -> None:
    decoder = MuxDecoder()
    _handle(_payloads(frame.payload for piece in pieces for frame in decoder.feed(piece)), reached)


# ---- Kubernetes


def _pod(padding: int = 0) -> dict[str, object]:
    return {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "annotations": {"kubernetes.io/config.hash": "h"}},
        "spec": {
            "nodeName": "n1",
            "overhead": {"memory": "1Mi"},
            "containers": [
                {
                    "name": "c",
                    "env": [{"name": "A", "value": "b" * (1 + padding)}],
                    "resources": {"limits": {"sgx.intel.com/epc": "1Mi", "cpu": 1}},
                }
            ],
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}]},
    }


def _watch(padding: int = 0) -> list[Sample]:
    """An event in each sample, framed as a line of its own."""
    status = {"code": 410, "reason": "Expired", "message": "too old"}
    objects = {"ADDED": _pod(padding), "BOOKMARK": {"metadata": {"resourceVersion": "7"}}, "ERROR": status}
    told = [json.dumps({"type": change, "object": body}).encode() for change, body in objects.items()]
    return [Sample(event, lambda payload: b"\n" + payload + b"\n") for event in told]


def _read_watch(pieces: Sequence[bytes], reached: Reached) -> None:
    lines = kube_objects.LineSplitter()
    for line in chain.from_iterable(map(lines.feed, pieces)):
        reached()
        kube_objects.decode_watch_line(line)


def _list(padding: int = 0) -> list[Sample]:
    page = {"metadata": {"resourceVersion": "7", "continue": "t"}, "items": [_pod(padding), _pod()]}
    return [Sample(json.dumps(page).encode())]


def _read_list(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    kube_objects.decode_pod_list(b"".join(pieces))


def _review(padding: int = 0) -> list[Sample]:
    notes = {"a": "b" * (1 + padding)}
    asked = review(pod_of(container("app", {"sgx.intel.com/epc": "1Mi"}), annotations=notes))
    return [Sample(json.dumps(asked).encode())]


def _read_review(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    request = decode_review(b"".join(pieces), 8 * REVIEW_LIMIT)
    if request.object is not None:
        annotations_of(request.object, lambda _: True)


# ---- this machine's files and names, the daemon's own record


def _read_misc(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    data = b"".join(pieces)
    misc_files.parse_limits(data)
    misc_files.parse(data, suffix=".max")


def _read_path(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    named = b"".join(pieces).decode("latin-1")
    for resolve in (cgroup_paths.container_path, cgroup_paths.parent_path):
        resolve(named)


def _record(padding: int = 0) -> list[Sample]:
    sandbox = Sandbox(SandboxId("p"), PodUid("u"), "ns", "web", {"a": "b" * (1 + padding)}, "/kubepods/podu")
    return [Sample(record.encode_event(SandboxStarted(sandbox))), Sample(record.encode_segment("1", {"a": 1}))]


def _read_record(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    list(record.read(iter(b"".join(pieces).splitlines(keepends=True))))


# ---- what an OCI runtime gives a hook, and what hook and daemon say to each other


def _oci(padding: int = 0) -> list[Sample]:
    notes = {"io.kubernetes.cri.container-type": "container", "a": "b" * (1 + padding)}
    config = {"ociVersion": "1.0.2", "linux": {"cgroupsPath": "/kubepods/podu/c"}, "annotations": notes}
    return [Sample(json.dumps(one).encode()) for one in ({"id": "c", "pid": 1, "bundle": "/b"}, config)]


def _read_oci(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    data = b"".join(pieces)
    if b'"bundle"' in data:
        oci.decode_state(data)
    else:
        oci.identity(oci.decode_config(data).annotations, "c")


def _hook(padding: int = 0) -> list[Sample]:
    request = HookRequest("c", "s", "u", "ns", "web", "app", "/kubepods/podu/c", {"a": "b" * (1 + padding)})
    answer = HookAnswer({"sgx_epc": 4096}, "", "pass", "declared")
    return [Sample(hook_line.encode_request(request)), Sample(hook_line.encode_answer(answer))]


def _read_hook(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    data = b"".join(pieces)
    (hook_line.decode_answer if b'"limits"' in data else hook_line.decode_request)(data)


def _facts(padding: int = 0) -> list[Sample]:
    spec = PodSpec(PodUid("u"), "ns", "w" * (1 + padding), (ContainerSpec("app", declared={"sgx_epc": 1}),))
    request = facts_line.encode_request(facts_line.Asked("u", "ns", "web"))
    return [Sample(request), Sample(facts_line.encode_answer(spec)), Sample(facts_line.encode_answer(None, "no pod"))]


def _read_facts(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    data = b"".join(pieces)
    (facts_line.decode_answer if b'"why"' in data else facts_line.decode_request)(data)


def _pod_files(padding: int = 0) -> list[Sample]:
    spec = PodSpec(PodUid("u"), "ns", "w" * (1 + padding), (ContainerSpec("app", declared={"sgx_epc": 1}),))
    return [Sample(pod_file.encode_pod(spec)), Sample(pod_file.encode_rule(LimitsSettings()))]


def _read_pod_file(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    data = b"".join(pieces)
    (pod_file.decode_rule if b'"limits"' in data else pod_file.decode_pod)(data)


def _checkpoints(padding: int = 0) -> list[Sample]:
    answer, registered = "QQ" * (2 + padding // 4 * 2), {"a.b/tdx": ["x"]}
    ids: list[object] = [{"-1": ["tdx0", "tdx1"]}, ["tdx0"], None]
    return [
        Sample(checkpoints.file([checkpoints.entry("u-1", one, "a.b/tdx", "c", answer)], registered)) for one in ids
    ]


def _read_checkpoint(pieces: Sequence[bytes], reached: Reached) -> None:
    reached()
    kubelet_checkpoint.decode(b"".join(pieces), ("a.b/tdx",))


# ---- what clients and runtimes of CRI send through the relay


def _calls_of_cri(padding: int = 0) -> list[Sample]:
    """A unary call each, on a connection of its own; the payload is its message and the framing is HTTP/2's."""

    def framed(method: str, payload: bytes) -> bytes:
        end = StrictEnd(client=True)
        end.headers(1, request(method, (b"grpc-timeout", b"20S")), split=30, padding=3)
        body = message(payload)
        for at in range(0, len(body), 16_384):
            end.out += frame(DATA, END_STREAM if at + 16_384 >= len(body) else 0, 1, body[at : at + 16_384])
        return bytes(end.out)

    payload = b"name" * (8 + padding // 4)
    return [Sample(payload, functools.partial(framed, method)) for method in ("Version", "HoldCreate")]


def _read_cri(enforces: bool, pieces: Sequence[bytes], reached: Reached) -> None:
    """What damages a client's bytes damages a runtime's, too; they come to another session."""
    near, far = (Between(enforces=enforces, greet=False) for _ in range(2))
    for piece in pieces:
        near.session.from_client(piece)
        far.session.from_runtime(piece)
        for rig in (near, far):
            rig.session.client_out.clear()
            rig.session.runtime_out.clear()
        if near.watcher.calls:
            reached()
    for rig in (near, far):
        rig.session.close("the end")


# ---- what a relay that decides, and the writer of its dump, read of CRI's messages


def _messages_of_cri(padding: int = 0) -> list[Sample]:
    """By its first byte each is a create, an update, or a list."""
    notes = {"nodeward.io/limits": '{"app":{"sgx_epc":"4096"}}', "a": "b" * (1 + padding)}
    create = cri.CreateContainerRequest(pod_sandbox_id="s")
    create.sandbox_config.metadata.CopyFrom(cri.PodSandboxMetadata(name="web", uid="u", namespace="ns"))
    create.sandbox_config.annotations.update(notes)
    create.config.metadata.name = "app"
    create.config.linux.resources.unified["misc.max"] = "sgx_epc 1"
    update = cri.UpdateContainerResourcesRequest(container_id="c", annotations=notes)
    update.linux.unified["misc.max"] = "sgx_epc 1"
    pods = cri.ListPodSandboxResponse()
    pods.items.add(id="s", metadata=create.sandbox_config.metadata, annotations=notes)
    containers = cri.ListContainersResponse()
    containers.containers.add(id="c", pod_sandbox_id="s", metadata=create.config.metadata, annotations=notes)
    made = (create, update, pods, containers)
    return [
        Sample(one.SerializeToString(), kind.__add__) for kind, one in zip((b"c", b"u", b"p", b"s"), made, strict=True)
    ]


def _read_messages_of_cri(pieces: Sequence[bytes], reached: Reached) -> None:
    data = b"".join(pieces)
    kind, payload = data[:1], data[1:]
    if kind not in (b"c", b"u", b"p", b"s"):
        return
    reached()
    limits = {"misc.max": "sgx_epc 4096"}
    if kind == b"c":
        cri_mapping.creating(payload, "create-1")
        cri_mapping.changed_create(payload, limits)
    elif kind == b"u":
        cri_mapping.changed_update(payload, limits)
    else:
        (cri_mapping.sandboxes if kind == b"p" else cri_mapping.containers)((payload,))


def _dumped(padding: int = 0) -> list[Sample]:
    """Messages in the frames by which a relay tells its dump of them."""

    def framed(payload: bytes) -> bytes:
        path = "/runtime.v1.RuntimeService/CreateContainer"
        return b"".join(dump_feed.encode(dump_feed.Frame(dump_feed.Kind.REQUEST, 1, 1, 0, path, payload, len(payload))))

    create = cri.CreateContainerRequest(pod_sandbox_id="s" * (1 + padding))
    create.config.envs.add(key="TOKEN", value=b"hidden")
    create.config.mounts.add(container_path="/a", host_path="/b")
    return [Sample(create.SerializeToString(), framed)]


def _read_dumped(pieces: Sequence[bytes], reached: Reached) -> None:
    reader = dump_feed.FrameReader()
    for piece in pieces:
        for told in reader.feed(piece):
            reached()
            kinds = dump_text.kinds("RuntimeService", "CreateContainer")
            dump_text.body(kinds[0] if kinds else None, told.payload)


def codecs(padding: int = 0) -> dict[str, Codec]:
    """Every codec by the name its corpus folder has. `padding` makes the samples larger by so many bytes."""
    misc = [
        Sample(b"sgx_epc 1048576\ntdx max\n"),
        Sample(b"sgx_epc.max 12\n"),
        Sample(b"sgx_epc 18446744073709551615\n"),
    ]
    paths = [Sample(b"/kubepods/burstable/podu-1/abc"), Sample(b"kubepods-burstable-podu_1.slice:cri-containerd:abc")]
    return {
        "mux": Codec(_samples(_muxed, padding), _read_mux),
        "ttrpc": Codec(_samples(_message, padding), _read_messages),
        "nri": Codec(_samples(_envelope, padding), _read_envelope),
        "watch": Codec(_watch(padding), _read_watch),
        "pod-list": Codec(_list(padding), _read_list),
        "review": Codec(_review(padding), _read_review),
        "misc-files": Codec(misc, _read_misc),
        "cgroup-paths": Codec(paths, _read_path),
        "oci": Codec(_oci(padding), _read_oci),
        "hook-line": Codec(_hook(padding), _read_hook),
        "facts-line": Codec(_facts(padding), _read_facts),
        "pod-file": Codec(_pod_files(padding), _read_pod_file),
        "kubelet-checkpoint": Codec(_checkpoints(padding), _read_checkpoint),
        "relay": Codec(_calls_of_cri(padding), functools.partial(_read_cri, False)),
        "relay-held": Codec(_calls_of_cri(padding), functools.partial(_read_cri, True)),
        "cri-messages": Codec(_messages_of_cri(padding), _read_messages_of_cri),
        "dump": Codec(_dumped(padding), _read_dumped),
        "record": Codec(_record(padding), _read_record, RecordError),
    }
