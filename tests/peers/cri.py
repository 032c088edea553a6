"""A CRI client for tests: any method by name, requests and answers as JSON-like values.

The schema is the one that the containerd peer was built with; it is read at run time into a pool of descriptors of its
own, so nothing generated lies in the repository and nothing can clash with other protobuf code in the process.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from tests.patience import scaled
from tests.peers.nriside import Record, objects, text

CALL_TIMEOUT_S = scaled(60.0)
CONNECT_TIMEOUT_S = scaled(30.0)


@functools.cache
def schema(proto: Path) -> descriptor_pool.DescriptorPool:
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        status = protoc.main(
            ["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out}", "--include_imports", str(proto)]
        )
        if status:
            raise RuntimeError(f"protoc ended with status {status} on {proto}")
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.Add(file)
    return pool


class Cri:
    """A connection to a CRI socket. An older `version` has the numbers of the fields that are used here."""

    def __init__(self, socket: Path, proto: Path, version: str = "v1") -> None:
        self._pool, self._version = schema(proto), version
        self._channel = grpc.insecure_channel(f"unix://{socket}")

    def __enter__(self) -> Cri:
        grpc.channel_ready_future(self._channel).result(CONNECT_TIMEOUT_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._channel.close()

    def _message(self, name: str) -> type[Message]:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"runtime.v1.{name}"))

    def encoded(self, method: str, request: Record | None = None) -> bytes:
        asked = json_format.ParseDict(request or {}, self._message(f"{method}Request")())
        return bytes(asked.SerializeToString(deterministic=True))

    def call(
        self, method: str, request: Record | None = None, behind: bytes = b"", service: str = "RuntimeService"
    ) -> Record:
        """The answer to that request, and to what comes `behind` it, as a field that CRI does not have would."""
        invoke = self._channel.unary_unary(
            f"/runtime.{self._version}.{service}/{method}",
            response_deserializer=self._message(f"{method}Response").FromString,
        )
        answered: Message = invoke(self.encoded(method, request) + behind, timeout=CALL_TIMEOUT_S)
        result: Record = json_format.MessageToDict(answered, preserving_proto_field_name=True)
        return result

    def stream(
        self, method: str, service: str = "RuntimeService", timeout_s: float = CALL_TIMEOUT_S
    ) -> Iterator[Record]:
        described = self._pool.FindServiceByName(f"runtime.v1.{service}").methods_by_name[method]
        asked, answered = map(message_factory.GetMessageClass, (described.input_type, described.output_type))
        invoke = self._channel.unary_stream(
            f"/runtime.v1.{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answered.FromString,
        )
        for message in invoke(asked(), timeout=timeout_s):
            yield json_format.MessageToDict(message, preserving_proto_field_name=True)


def pod_config(name: str, cgroup_parent: str, logs: Path) -> Record:
    """A pod in the node's network, as the kubelet would describe it."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "namespace": "default"},
        "log_directory": str(logs),
        "linux": {
            "cgroup_parent": f"{cgroup_parent}/pod{name}",
            "security_context": {"namespace_options": {"network": "NODE"}},
        },
    }


def container_config(name: str, image: str, memory_bytes: int = 64 << 20) -> Record:
    """A container that waits; 0 leaves its memory unlimited, for a host without that controller."""
    return {
        "metadata": {"name": name},
        "image": {"image": image},
        "command": ["/pause"],
        "log_path": f"{name}.log",
        "linux": {"resources": {"cpu_shares": 10, "memory_limit_in_bytes": memory_bytes}},
    }


def start(cri: Cri, pod: Record, container: Record, handler: str = "") -> tuple[str, str]:
    sandbox = text(cri.call("RunPodSandbox", {"config": pod, "runtime_handler": handler}), "pod_sandbox_id")
    request: Record = {"pod_sandbox_id": sandbox, "config": container, "sandbox_config": pod}
    created = text(cri.call("CreateContainer", request), "container_id")
    cri.call("StartContainer", {"container_id": created})
    return sandbox, created


def containers(cri: Cri, sandbox: str) -> list[str]:
    listed = cri.call("ListContainers", {"filter": {"pod_sandbox_id": sandbox}}).get("containers")
    return [text(each, "id") for each in objects(listed)]


def remove_pod(cri: Cri, sandbox: str) -> None:
    """Stop and remove the pod and what is in it, in the kubelet's order.

    A containerd (2.4.2) that is to remove a pod with its containers while a plugin registers waits for itself for ever.
    """
    cri.call("StopPodSandbox", {"pod_sandbox_id": sandbox})
    for container in containers(cri, sandbox):
        cri.call("RemoveContainer", {"container_id": container})
    cri.call("RemovePodSandbox", {"pod_sandbox_id": sandbox})


def pods(cri: Cri) -> list[str]:
    return [text(item, "id") for item in objects(cri.call("ListPodSandbox").get("items"))]
