"""What reading hostile input takes of a process's memory, by the kernel's own account of it.

`python -m tests.unit.formats.taken KIND...` prints a line of JSON for each input: its name, its size, and by how many
bytes the memory of whoever read it grew at its highest. Each is read in a child of its own, which is forked
when the input is there already, so that nothing an earlier one has left is used again. Python's own account
(tracemalloc) has nothing of what protobuf and msgspec allocate.

Of a protobuf message there is one input for each repeated field and each map that it has, wherever it is, full of the
shortest elements that may be there. Of JSON there is what each codec makes most of.
"""

import ctypes
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from nodeward.contracts import cri_pb2 as cri
from nodeward.contracts import deviceplugin_pb2, kubepod_pb2, nri_pb2, podresources_pb2, podsapi_pb2
from nodeward.contracts.ttrpc_pb2 import Request
from nodeward.core.errors import NodewardError
from nodeward.neighbours.formats.grpc_messages import MESSAGE_BYTES
from nodeward.neighbours.formats.kube_objects import MAX_LIST_BYTES, MAX_OBJECT_BYTES
from nodeward.neighbours.hook import line as hook_line
from nodeward.neighbours.hook import oci
from nodeward.neighbours.kubelet import checkpoint_file
from nodeward.neighbours.nfd import objects
from nodeward.neighbours.nri import ttrpc
from nodeward.neighbours.sockets.grpc_unix import MAX_MESSAGE
from tests.unit.formats.codecs import called, codecs, sent
from tests.unit.formats.codecs_of_relay import dumped

if TYPE_CHECKING:
    from google._upb import _message

    from nodeward.neighbours.formats.protobuf import Described

    Field = FieldDescriptor | _message.FieldDescriptor

UNSEEN = 512 << 10
"""As long as a message may be without being looked at."""
LARGE = int(os.environ.get("NODEWARD_LARGE_MESSAGE", UNSEEN * 2))
"""Of protobuf, where as much may be sent. To make them all 16 MiB long takes minutes, and they are refused alike."""
ROOM = 256
"""Bytes for what stands around the elements."""
DEEPEST = 6
"""Messages in one another, down to which fields are looked for."""
MOST_BESIDE = 64 << 20
"""Bytes of memory beside four times the input's size that reading it may take, whatever it is."""
BESIDE = {"dump": 160 << 20, "review": 112 << 20, "watch": 96 << 20, "pod-list": 128 << 20}
"""Where it is more: for a dump's writer, a process of its own; and for JSON, of which size and values are bounded."""
PR_SET_THP_DISABLE = 41
"""prctl(2)."""
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)

Hostile = tuple[str, bytes]
"""A name, and the bytes as the codec is given them."""


# ---- protobuf


def _number(amount: int) -> bytes:
    made = bytearray()
    while amount > 0x7F:
        made.append(amount & 0x7F | 0x80)
        amount >>= 7
    return bytes((*made, amount))


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _within(path: tuple[int, ...], content: bytes) -> bytes:
    for number in reversed(path):
        content = _field(number, content)
    return content


def _full(field: "Field", size: int) -> bytes:
    """So many bytes of the shortest elements: empty ones, keys that all differ, packed numbers of one byte."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        entries = (_field(field.number, _field(1, b"%x" % at)) for at in range(size))
        made = bytearray()
        for entry in entries:
            if len(made) + len(entry) > size:
                break
            made += entry
        return bytes(made)
    if kind is None and field.type not in TEXTS:
        return _field(field.number, b"!" * size)
    element = _field(field.number, b"")
    return element * (size // len(element))


def _repeated(kind: "Described", path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], "Field"]]:
    """Each repeated field, with the numbers of the fields that it is in."""
    for field in kind.fields:
        if field.is_repeated:
            yield path, field
        if field.message_type is not None and len(path) < DEEPEST:
            yield from _repeated(field.message_type, (*path, field.number))


def _messages(kind: type[Message], most: int, frame: Callable[[bytes], bytes] = bytes) -> Iterator[Hostile]:
    """Of each field one input as long as may be, and one that is read without being looked at. A field that is met
    again deeper inside is not tried again."""
    seen: dict[str, None] = {}
    for path, field in _repeated(kind.DESCRIPTOR):
        if field.full_name not in seen:
            seen[field.full_name] = None
            for size in (UNSEEN, min(most, LARGE)):
                yield f"{field.full_name}, {size} bytes", frame(_within(path, _full(field, size - ROOM)))


def _listed(pod: bytes) -> bytes:
    return podsapi_pb2.ListPodsResponse(pods=[pod]).SerializeToString()


def _device_calls() -> Iterator[Hostile]:
    for number, name in enumerate(("AllocateRequest", "PreStartContainerRequest", "PreferredAllocationRequest")):
        yield from _messages(getattr(deviceplugin_pb2, name), MAX_MESSAGE, bytes((number,)).__add__)


def _nri() -> Iterator[Hostile]:
    most = ttrpc.MAX_PAYLOAD_BYTES - ROOM
    yield from _messages(Request, most, sent)
    for kind in (nri_pb2.SynchronizeRequest, nri_pb2.UpdateContainerRequest):
        method = kind.DESCRIPTOR.name.removesuffix("Request")
        yield from _messages(kind, most, functools.partial(called, method))


def _cri() -> Iterator[Hostile]:
    kinds = {
        b"c": cri.CreateContainerRequest,
        b"u": cri.UpdateContainerResourcesRequest,
        b"p": cri.ListPodSandboxResponse,
        b"s": cri.ListContainersResponse,
    }
    for letter, kind in kinds.items():
        yield from _messages(kind, MESSAGE_BYTES, letter.__add__)


def _shown() -> Iterator[Hostile]:
    """Of those fields whose elements come to the most lines and the longest: to write them out takes seconds."""
    chosen = ("supplemental_groups", "mounts", "ContainerConfig.annotations", "ContainerConfig.args")
    for name, data in _messages(cri.CreateContainerRequest, MESSAGE_BYTES, dumped):
        if name.partition(",")[0].endswith(chosen):
            yield name, data


# ---- JSON


def _json(name: str, size: int, begin: str, element: str, end: str) -> Hostile:
    """So many bytes of one element again and again; `%x` in it is its number."""
    one = element + ","
    made, at = bytearray(begin.encode()), 0
    while len(made) < size - ROOM - len(end):
        made += (one % at if "%" in one else one).encode()
        at += 1
    return f"{name}, {size} bytes", bytes(made[:-1]) + end.encode()


POD = '{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":{'
REVIEW = '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":{'
LIST = '{"metadata":{"resourceVersion":"1"},"items":['
ENTRY = '{"PodUID":"","ContainerName":"","ResourceName":"a.b/tdx","DeviceIDs":{},"AllocResp":""}'
JSON: Mapping[str, Sequence[tuple[str, int, str, str, str]]] = {
    "pod-list": [
        row
        for size in (1 << 20, MAX_LIST_BYTES)
        for row in (
            ("pods", size, LIST, '{"metadata":{"name":"","namespace":"","uid":""}}', "]}"),
            ("containers", size, f'{LIST}{POD}"containers":[', '{"name":""}', "]}}]}"),
            ("initContainers", size, f'{LIST}{POD}"initContainers":[', '{"name":"","resources":{}}', "]}}]}"),
            ("overhead", size, f'{LIST}{POD}"overhead":{{', '"%x":0', "}}}]}"),
        )
    ],
    "watch": [("overhead", MAX_OBJECT_BYTES, f'\n{{"type":"ADDED","object":{POD}"overhead":{{', '"%x":0', "}}}}\n")],
    "review": [
        row
        for size in (1 << 20, MAX_OBJECT_BYTES)
        for row in (
            ("containers", size, REVIEW + '"spec":{"containers":[', "{}", "]}}}}"),
            ("annotations", size, REVIEW + '"metadata":{"annotations":{', '"%x":0', "}}}}"),
        )
    ],
    "nfd": [("objects", size, '{"metadata":{},"items":[', "{}", "]}") for size in (30_000, objects.MAX_BYTES)],
    "kube-node": [
        ("managed fields", 4 << 20, '{"status":{},"metadata":{"managedFields":[', "{}", "]}}"),
        ("capacity", 4 << 20, '{"status":{"capacity":{', '"%x":"1"', "}}}"),
    ],
    "kubelet-checkpoint": [("entries", checkpoint_file.MAX_BYTES, '{"Data":{"PodDeviceEntries":[', ENTRY, "]}}")],
    "hook-line": [("annotations", hook_line.MAX_REQUEST, '{"annotations":{', '"%x":""', "}}")],
    "oci": [  # too many, and as many as may be
        ("annotations", oci.MAX_CONFIG, '{"annotations":{', element, "}}") for element in ('"%x":""', '"%032x":""')
    ],
}
"""Of each codec a name, a size, and what begins, is repeated, and ends."""


def _of_json(kind: str) -> Iterator[Hostile]:
    return itertools.starmap(_json, JSON[kind])


def full_node(pods: int) -> bytes:
    """A Synchronize of so many pods with a container each, about as containerd says it."""
    made = nri_pb2.SynchronizeRequest()
    for number in range(pods):
        pod = made.pods.add(id=f"{number:064x}", name="web", uid="u" * 36, namespace="team")
        for table in (pod.labels, pod.annotations):
            table.update({f"io.kubernetes.pod.{at}": "v" * 30 for at in range(8)})
        one = made.containers.add(id=f"{number:064x}", pod_sandbox_id=pod.id, name="main", args=["/bin/app", "--flag"])
        one.env.extend(f"KUBERNETES_SERVICE_PORT_{at}=tcp://10.0.0.1:443" for at in range(15))
        for table in (one.labels, one.annotations):
            table.update({f"io.kubernetes.container.{at}": "v" * 12 for at in range(7)})
        for at in range(10):
            one.mounts.add(destination=f"/var/run/{at}", source="/var/lib/kubelet/pods/x", options=["rbind", "ro"])
        one.linux.namespaces.extend(nri_pb2.LinuxNamespace(type=name) for name in ("pid", "ipc", "uts", "mount"))
        for at in range(7):
            one.linux.resources.devices.add(allow=True, type="c", access="rwm").major.value = at
        one.linux.resources.memory.limit.value = one.linux.resources.cpu.quota.value = 1 << 20
    return made.SerializeToString()


SHORT = ("pods-api", "watch")
"""One of protobuf and one of JSON, which are played daily."""
KINDS: Mapping[str, tuple[str, Callable[[], Iterator[Hostile]]]] = {
    "nri": ("mux", _nri),
    "pods-api": ("pods-api", lambda: _messages(podsapi_pb2.ListPodsResponse, MAX_MESSAGE)),
    "pod-in-protobuf": ("pods-api", lambda: _messages(kubepod_pb2.Pod, MAX_OBJECT_BYTES, _listed)),
    "pod-resources": ("pod-resources", lambda: _messages(podresources_pb2.ListPodResourcesResponse, MAX_MESSAGE)),
    "device-plugin": ("device-plugin", _device_calls),
    "cri": ("cri-messages", _cri),
    "dump": ("dump", _shown),
    **{kind: (kind, functools.partial(_of_json, kind)) for kind in JSON},
}
"""The codec, and its inputs."""


def taken(work: Callable[[], object]) -> int:
    """By how many bytes the memory of a child that does this grows at its highest. Pages of files are not in it, nor
    what the kernel had put aside of the parent's: how much of both is resident is another matter each time."""
    far, near = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _small_pages()
            before = _status()
            with suppress(NodewardError):
                work()
            after = _status()
            peak = after["VmHWM"] - after["RssFile"] - after["RssShmem"]
            os.write(near, b"%d" % (peak - before["RssAnon"] - before["VmSwap"]))
            code = 0
        finally:
            os._exit(code)
    os.close(near)
    with open(far, "rb") as said:
        grown = said.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"the child ended with status {status}")
    return int(grown)


def _small_pages() -> None:
    """Huge pages are whole, however little of them is used; whether there are any is the machine's choice."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def _status() -> dict[str, int]:
    """What the kernel counts of this process's memory, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        rows = (line.split() for line in file if line.endswith("kB\n"))
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}


def main(kinds: list[str]) -> None:
    for kind in kinds:
        name, inputs = KINDS[kind]
        codec = codecs()[name]
        for sample in codec.samples:  # whatever is made once is there before the first fork
            codec.read([sample.frame(sample.payload)], lambda: None)
        for title, data in inputs():
            grown = taken(functools.partial(codec.read, [data], lambda: None))
            print(json.dumps([kind, title, len(data), grown]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(KINDS))
