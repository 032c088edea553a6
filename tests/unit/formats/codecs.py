"""Every codec that reads what others wrote, with good inputs to damage and the rooms it is stacked on.

Those of kubelet's words and of the relay's stand beside this.

The rows `mux`, `ttrpc` and `nri` end in the plugin's own session, so that a damaged message goes as far as a runtime's
would: framing, envelope, protobuf, the words of the model.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from nodeward.contracts import nri_pb2
from nodeward.core import record
from nodeward.core.decision import Adjustment, Final
from nodeward.core.errors import WireError
from nodeward.core.events import Event, Question, SandboxStarted
from nodeward.core.pulls import PullRow, PullsView, SandboxKey
from nodeward.core.record import RecordError
from nodeward.core.refusal import Reason
from nodeward.core.times import from_rfc3339
from nodeward.core.topology import CpuAmount, NodeZones, Zone
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Sandbox, SandboxId
from nodeward.features.admission.door.review import annotations_of, decode_review
from nodeward.features.all import EVENTS
from nodeward.features.cpus import recorded
from nodeward.features.cpus.effects import journal
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.values import Change, Grant, Pool, Pools, Recorded
from nodeward.features.limits import hook_file
from nodeward.features.limits.settings import LimitsSettings
from nodeward.neighbours.cgroups import memory_use
from nodeward.neighbours.cri import door_frames, relay_line
from nodeward.neighbours.cri.door_frames import Frame
from nodeward.neighbours.cri.rows import CallRow, DoorRow
from nodeward.neighbours.formats import cgroup_mounts, cgroup_paths, kube_node, kube_objects, misc_files
from nodeward.neighbours.hook import install, oci
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook.install import Hook
from nodeward.neighbours.hook.line import HookAnswer, HookRequest
from nodeward.neighbours.kubernetes import cluster, owned, policy_format, resource_claim
from nodeward.neighbours.kubernetes.cluster import is_allowed
from nodeward.neighbours.kubernetes.configmaps import config_map, node_now, node_of_list
from nodeward.neighbours.kubernetes.policy_object import PolicyKind
from nodeward.neighbours.kubernetes.resource_slice import resource_slice, sold
from nodeward.neighbours.kubernetes.topology_object import TOPOLOGY
from nodeward.neighbours.nfd import objects
from nodeward.neighbours.nri import mux, ttrpc
from nodeward.neighbours.nri.mux import MuxDecoder
from nodeward.neighbours.nri.session import PLUGIN, NriConnection, NriSettings
from nodeward.neighbours.nri.ttrpc import Message, MessageDecoder, MessageType
from nodeward.neighbours.qgs import quotes
from nodeward.neighbours.qgs.quotes import LENGTH_BYTES, error_of, length
from nodeward.people.relay_view import RelayView
from tests.unit.features.cpus.machines import W
from tests.unit.formats import codecs_of_kubelet, codecs_of_relay, codecs_of_sandboxes
from tests.unit.formats.sample import Codec, Reached, Sample, texts, whole

ZONES = NodeZones((Zone("node-0", "Node", CpuAmount(8000, 7000, 500), "socket #0", {"node-0": 10}, {"cpuset": "0-7"}),))
REVIEW_LIMIT = 1 << 20


# ---- NRI: each row has one room more around the same calls


def _calls(padding: int = 0) -> dict[str, bytes]:
    """Each kind of call a runtime makes, with its payload. `padding` bytes of annotation make it larger."""
    pod = nri_pb2.PodSandbox(id="p" * 64, name="web", uid="u-1", annotations={"a": "b" * (1 + padding)})
    linux = nri_pb2.LinuxContainer(cgroups_path="/kubepods/podu-1/x")
    made = nri_pb2.Container(id="c" * 64, pod_sandbox_id=pod.id, name="main", env=["A=b"], linux=linux)
    cpu = nri_pb2.LinuxCPU(cpus="0-3,8", shares={"value": 2048}, quota={"value": -1}, period={"value": 100_000})
    resources = nri_pb2.LinuxResources(unified={"misc.max": "sgx_epc 1"}, cpu=cpu)
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
    return ttrpc.encode(Message(1, MessageType.REQUEST, 0, _envelope(method, payload)))


def sent(envelope: bytes) -> bytes:
    return mux.encode_message(mux.PLUGIN_SERVICE, ttrpc.encode(Message(1, MessageType.REQUEST, 0, envelope)))


def called(method: str, payload: bytes) -> bytes:
    return sent(_envelope(method, payload))


def _samples(frame: Callable[[str, bytes], bytes], padding: int = 0) -> list[Sample]:
    return [Sample(payload, functools.partial(frame, method)) for method, payload in _calls(padding).items()]


def _session() -> NriConnection:
    def ask(question: Question, within_ns: int) -> Final:
        return Final(Adjustment({"misc.max": "sgx_epc 1"}), Reason("test"))

    def tell(event: Event) -> int:
        return 1

    return NriConnection(NriSettings(), ask, tell, lambda: 1)


_METHODS = frozenset(_calls())


def _handle(envelopes: Iterator[bytes], reached: Reached) -> None:
    session = _session()
    for envelope in envelopes:
        request = ttrpc.decode_request(envelope)
        if request.service == PLUGIN and request.method in _METHODS:
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


def _read_watch(pieces: Sequence[bytes], reached: Reached) -> None:
    lines = kube_objects.LineSplitter()
    for line in chain.from_iterable(map(lines.feed, pieces)):
        reached()
        kube_objects.decode_watch_line(line)


@whole
def _read_review(data: bytes) -> None:
    request = decode_review(data, 8 * REVIEW_LIMIT)
    if request.object is not None:
        annotations_of(request.object, lambda _: True)


@whole
def _read_kube_lists(data: bytes) -> None:
    """Each reads it, since what was asked for stands outside of the bytes."""
    if b"policyName" in data:
        cluster.parameters(data)
        cluster.bound_policies(data)
    elif b"handler" in data:
        cluster.runtime_classes(data)
    else:
        cluster.webhooks(data)
    if b"metadata" in data:
        cluster.daemon_set_names(data)
    elif b"status" in data:
        is_allowed(data)


_read_node = whole(lambda data: (kube_node.on_node(data, "a/b"), kube_node.labels_on_node(data, "a")))


@whole
def _read_config_maps(data: bytes) -> None:
    if b"object" in data:
        node_now(data, "g")
    elif b"labels" in data:
        node_of_list(data, "g")
    else:
        config_map(data)


@whole
def _read_nfd(data: bytes) -> None:
    if b'"items"' in data:
        objects.page(data)
        objects.running(data)
    elif b'"object"' in data:
        objects.on_node(data, ("tdx.intel.com/keys", "cpu"))
    elif b'"capacity"' in data:
        objects.node(data, ("tdx.intel.com/keys", "cpu"))
    else:
        found = objects.node_feature(data)
        objects.says(found, "n1", objects.controller_of(data), {"tdx": 12})


@whole
def _read_policies(data: bytes) -> None:
    if b'"items"' in data:
        policy_format.version_of(data)
    elif b'"object"' in data:
        policy_format.touched(data)
        policy_format.group_in(data)
    else:
        policy_format.group(data)
        policy_format.status_patch("n1", policy_format.policy_object(data, PolicyKind.BALLOONS, "n1").said, "")


@whole
def _read_zones(data: bytes) -> None:
    found = owned.found(data, "object")
    found.says(TOPOLOGY, ZONES)
    sold(found)
    from_rfc3339(found.written)
    found.says(resource_slice("d.test", "n1", "mend"), "[]")
    owned.uid_of_node(data)


# ---- this machine's files and names, the daemon's own record


@whole
def _read_misc(data: bytes) -> None:
    misc_files.parse_limits(data)
    misc_files.parse(data, suffix=".max")


@whole
def _read_path(data: bytes) -> None:
    named = data.decode("latin-1")
    for resolve in (cgroup_paths.container_path, cgroup_paths.parent_path):
        resolve(named)


def _mounts(padding: int = 0) -> list[Sample]:
    """`/proc/self/mountinfo`, and `/proc/cgroups`."""
    line = "36 25 0:31 / /sys/fs/cgroup/{}a\\040b rw,nosuid shared:9 - cgroup2 cgroup2 rw,misc\n"
    overlong, many = line.format("x" * padding), line.format("x" * 2000) * (padding // 2000)
    return [
        Sample(overlong.encode()),
        *([Sample(many.encode())] if many else []),
        Sample(b"#subsys_name\thierarchy\tnum_cgroups\tenabled\nmisc\t0\t1\t1\n"),
    ]


@whole
def _read_mounts(data: bytes) -> None:
    list(cgroup_mounts.mounts(data))
    cgroup_mounts.knows(data, "misc")


def _record(padding: int = 0) -> list[Sample]:
    sandbox = Sandbox(SandboxId("p"), PodUid("u"), "ns", "web", {"a": "b" * (1 + padding)}, "/kubepods/podu")
    return [
        Sample(record.encode_event(SandboxStarted(sandbox))),
        Sample(b"".join(record.segment_pieces("1", {"a": 1}))),
    ]


_read_record = whole(lambda data: list(record.read(iter(data.splitlines(keepends=True)), EVENTS)))


def _cpus_journal(padding: int = 0) -> list[Sample]:
    grant = Grant("u/app", pool="shared", part_m=100, namespace="n" * (1 + padding))
    there = Recorded(W, PolicySettings("static"), Pools({"shared": Pool(6, members=("u/app",))}, {"u/app": grant}))
    change = Change(("u/app",), (grant,), {"shared": Pool(2), "gone": None}, {"u/app": 1})
    head = journal.whole(there, "b")
    return [Sample(head), Sample(journal.line(change), lambda payload: head + payload)]


@whole
def _read_cpus_journal(data: bytes) -> None:
    found = journal.read(data, "b")
    if found is not None:
        now = found.recorded
        for change in found.changes:
            now = recorded.changed(now, change)
        recorded.fault(now)


# ---- what an OCI runtime gives a hook, and what hook and daemon say to each other


@whole
def _read_oci(data: bytes) -> None:
    if b'"bundle"' in data:
        oci.decode_state(data)
    else:
        oci.identity(oci.decode_config(data).annotations, "c")


def _hook(padding: int = 0) -> list[Sample]:
    request = HookRequest("c", "s", "u", "ns", "web", "app", "/kubepods/podu/c", {"a": "b" * (1 + padding)})
    answer = HookAnswer({"sgx_epc": 4096}, "", "pass", "declared")
    return [Sample(hook_line.encode_request(request)), Sample(hook_line.encode_answer(answer))]


_read_hook = whole(lambda data: (hook_line.decode_answer if b'"limits"' in data else hook_line.decode_request)(data))


def _door(padding: int = 0) -> list[Sample]:
    frames: tuple[Frame, ...] = (
        door_frames.Hello(1, 7, "/run/cri.sock", "/run/c.sock", ("containers",)),
        door_frames.Asked(3, "/runtime.v1.RuntimeService/CreateContainer", b"m" * (1 + padding), 4800),
        door_frames.Passed(3, "/runtime.v1.RuntimeService/CreateContainer", b"m" * (1 + padding), b"a", True, True),
        door_frames.Said(3, 8, "exhausted"),
        door_frames.Wanted(1, "/runtime.v1.RuntimeService/ListContainers", b"", 5000),
        door_frames.Given(1, 0, "", b"l" * (1 + padding)),
    )
    return [Sample(door_frames.encode(frame)) for frame in frames]


@whole
def _read_door(data: bytes) -> None:
    if not list(door_frames.FrameReader().feed(data)):
        raise WireError("relay door", "no whole frame")


def _pod_files(padding: int = 0) -> list[Sample]:
    spec = PodSpec(PodUid("u"), "ns", "w" * (1 + padding), (ContainerSpec("app", declared={"sgx_epc": 1}),))
    return [Sample(hook_file.encode_pod(spec)), Sample(hook_file.encode_rule(LimitsSettings()))]


_read_pod_files = whole(lambda data: (hook_file.decode_rule if b'"limits"' in data else hook_file.decode_pod)(data))


def _status(padding: int = 0) -> list[Sample]:
    door = DoorRow("/run/nodeward/cri.sock", "/run/containerd/" + "c" * (1 + padding))
    view = RelayView("1", 7, 1, doors=(door,), calls=(CallRow("Version", {"OK": 1}, {"passed": 1}),))
    request, answer = relay_line.encode_request(relay_line.STATUS), relay_line.encode_answer(view)
    pull = PullRow("ns", "web", "u", 1, "reg.io/app:1", "kata", 1, 2, "OK", "sha256:" + "c" * (1 + padding))
    pulls = relay_line.encode_pulls(PullsView("1", 7, True, (pull,), (SandboxKey("s", "ns", "web", "u", 1),)))
    return [Sample(request), Sample(answer), Sample(pulls)]


@whole
def _read_status(data: bytes) -> None:
    reads = (relay_line.decode_pulls, b'"pulls"'), (relay_line.decode_request, b'"ask"')
    next((read for read, word in reads if word in data), partial(relay_line.decode_answer, kind=RelayView))(data)


@whole
def _read_spec(data: bytes) -> None:
    """A spec as the command reads it; what else there is as doctor does, which leaves out what is no JSON."""
    if b"mounts" in data:
        install.base_spec(data, Hook("/opt/nodeward-oci-hook"))
        return
    with suppress(ValueError, RecursionError):
        list(install.programs(json.loads(data)))


def _quotes() -> list[Sample]:
    return [Sample(quotes.answer()), Sample(quotes.answer(error=3))]


@whole
def _read_quotes(data: bytes) -> None:
    """As the client does: the length first, and then at most so many bytes."""
    if len(data) >= LENGTH_BYTES:
        size = length(data[:LENGTH_BYTES])
        error_of(data[LENGTH_BYTES : LENGTH_BYTES + size])


def codecs(padding: int = 0) -> dict[str, Codec]:
    """Every codec by the name its corpus folder has. `padding` makes the samples larger by so many bytes."""
    of_texts: dict[str, tuple[Callable[[Sequence[bytes], Reached], None], Sequence[str]]] = {
        "pod-list": (whole(kube_objects.decode_pod_list), ("formats.kube_objects",)),
        "review": (_read_review, ("admission.door.review",)),
        "kube-lists": (_read_kube_lists, ("kubernetes.cluster",)),
        "kube-node": (_read_node, ("formats.kube_node",)),
        "kube-configmaps": (_read_config_maps, ("kubernetes.configmaps", "kubernetes.node_marks")),
        "nfd": (_read_nfd, ("nfd.objects",)),
        "policy-objects": (_read_policies, ("kubernetes.policy_format",)),
        "resource-claim": (
            whole(lambda data: resource_claim.claim(data, "tee.nodeward.io")),
            ("kubernetes.resource_claim",),
        ),
        "topology-object": (_read_zones, ("kubernetes.owned",)),
        "misc-files": (_read_misc, ("formats.misc_files",)),
        "memory-use": (whole(memory_use.parse), ("cgroups.memory_use",)),
        "cgroup-paths": (_read_path, ("formats.cgroup_paths",)),
        "oci": (_read_oci, ("hook.oci",)),
        "hook-install": (_read_spec, ("hook.install",)),
    }
    lines = [Sample(one.payload, b"\n%b\n".__mod__) for one in texts("watch", padding)]
    return {
        "mux": Codec(_samples(called, padding), _read_mux, ("nri.mux", "nri.ttrpc")),
        "ttrpc": Codec(_samples(_message, padding), _read_messages, ("nri.ttrpc",)),
        "nri": Codec(_samples(_envelope, padding), _read_envelope, ("nri.ttrpc", "formats.cpu_record")),
        "watch": Codec(lines, _read_watch, ("formats.kube_objects",)),
        **{name: Codec(texts(name, padding), *reads) for name, reads in of_texts.items()},
        "cgroup-mounts": Codec(_mounts(padding), _read_mounts, ("formats.cgroup_mounts",)),
        "hook-line": Codec(_hook(padding), _read_hook, ("hook.line",)),
        "relay-door": Codec(_door(padding), _read_door, ("cri.door_frames",)),
        "relay-line": Codec(_status(padding), _read_status, ("cri.relay_line",)),
        "pod-file": Codec(_pod_files(padding), _read_pod_files, ("limits.hook_file",)),
        "qgs": Codec(_quotes(), _read_quotes, ("qgs.quotes",)),
        "record": Codec(_record(padding), _read_record, ("core.record",), RecordError),
        "cpus-journal": Codec(_cpus_journal(padding), _read_cpus_journal, ("cpus.effects.journal",)),
        **codecs_of_kubelet.codecs(padding),
        **codecs_of_relay.codecs(padding),
        **codecs_of_sandboxes.codecs(padding),
    }
