"""No planted secret leaves a relay: a canary in every text of what kubelet asks and what the runtime answers."""

import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from nodeward.proto import cri_pb2 as cri
from tests.component.relay.rig import WAIT_S, call, client_of, relay_process, runtime_at, wait_for
from tests.component.relay.test_limits import ANNOTATIONS, kernel
from tests.component.relay.test_status import people, status_socket

TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
SAID = {f"runtime.v1.LinuxContainerResources.{name}" for name in ("cpuset_cpus", "cpuset_mems")}
"""A list of CPUs or memory nodes that cannot be read is named in the log."""
NOT_DUMPED = {
    *("runtime.v1.KeyValue.value", "runtime.v1.StatusResponse.info", "runtime.v1.ContainerStatusResponse.info"),
    *(f"runtime.v1.AuthConfig.{name}" for name in ("username", "password", "auth", "identity_token", "registry_token")),
    *("runtime.v1.ContainerConfig.command", "runtime.v1.ContainerConfig.args", "runtime.v1.ImageSpec.annotations"),
    *(f"runtime.v1.{of}.annotations" for of in ("ContainerConfig", "PodSandboxConfig", "ContainerStatus")),
    "runtime.v1.UpdateContainerResourcesRequest.annotations",
    *(f"runtime.v1.{of}.labels" for of in ("ContainerConfig", "PodSandboxConfig", "ContainerStatus")),
    *(f"runtime.v1.Windows{kind}SecurityContext.credential_spec" for kind in ("Container", "Sandbox")),
}
"""Of the fields in this story; docs/dump.md promises it. All others are dumped."""
GIVEN = {
    *(f"runtime.v1.PodSandboxMetadata.{name}" for name in ("name", "namespace", "uid")),
    *("runtime.v1.CreateContainerRequest.pod_sandbox_id", "runtime.v1.UpdateContainerResourcesRequest.container_id"),
    "runtime.v1.LinuxPodSandboxConfig.cgroup_parent",
}
"""They have other values."""


class Planted:
    """Canaries by the fields that have them."""

    def __init__(self) -> None:
        self.fields: list[str] = []

    def found_in(self, text: bytes) -> set[str]:
        return {self.fields[int(number)] for number in re.findall(rb"c4n4ry(\d{4})x", text)}

    def fill(self, message: Any) -> Any:
        """One item in each list, one key in each map."""
        for field in message.DESCRIPTOR.fields:
            at = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                if field.message_type.fields_by_name["value"].type in TEXTS:
                    at["key"] = self._canary(field)
            elif field.message_type is not None:
                self.fill(at.add() if field.is_repeated else at)
                if not field.is_repeated:
                    at.SetInParent()
            elif field.type in TEXTS:
                said = self._canary(field)
                value = said.encode() if field.type == FieldDescriptor.TYPE_BYTES else said
                at.append(value) if field.is_repeated else setattr(message, field.name, value)
        return message

    def _canary(self, field: FieldDescriptor) -> str:
        self.fields.append(field.full_name)
        return f"c4n4ry{len(self.fields) - 1:04}x"


def test_no_canary_leaves_a_relay_that_decides_sizes_records_and_dumps(tmp_path: Path) -> None:
    planted = Planted()

    def runtime(name: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        replies: dict[str, Callable[[], Message]] = {
            "RunPodSandbox": lambda: cri.RunPodSandboxResponse(pod_sandbox_id="s1"),
            "CreateContainer": lambda: cri.CreateContainerResponse(container_id="c1"),
            "ContainerStatus": lambda: planted.fill(cri.ContainerStatusResponse()),
            "Status": lambda: planted.fill(cri.StatusResponse()),
        }
        return replies[name]().SerializeToString() if name in replies else b""

    def sandbox_named(config: Any) -> None:
        config.metadata.CopyFrom(cri.PodSandboxMetadata(name="pod", uid="u", namespace="default"))
        config.annotations.update(ANNOTATIONS)
        config.linux.cgroup_parent = "/kubepods/podu"

    listen, behind, dump = tmp_path / "cri.sock", tmp_path / "runtime.sock", tmp_path / "dump"
    flags = (*kernel(tmp_path), "--log-level", "debug", "--dump-file", str(dump), "--record", f"{tmp_path}/record")
    settings = tmp_path / "nodeward.yaml"
    settings.write_text(f"{settings.read_text()}sizing: {{mode: enforce}}\n")
    run = planted.fill(cri.RunPodSandboxRequest())
    create, update = planted.fill(cri.CreateContainerRequest()), planted.fill(cri.UpdateContainerResourcesRequest())
    pull = planted.fill(cri.PullImageRequest())
    for config in (run.config, create.sandbox_config, pull.sandbox_config):
        sandbox_named(config)
    create.pod_sandbox_id, create.config.metadata.name, update.container_id = "s1", "app", "c1"
    for linux in (create.config.linux.resources, update.linux):
        linux.cpuset_cpus = ""
    with runtime_at(behind, runtime), relay_process(listen, behind, *flags):
        with client_of(listen) as channel:
            for request in (run, create, update):
                call(channel, request.DESCRIPTOR.name.removesuffix("Request"), request.SerializeToString())
            channel.unary_unary("/runtime.v1.ImageService/PullImage")(pull.SerializeToString(), timeout=WAIT_S)
            call(channel, "ContainerStatus")
            call(channel, "Status")
        wait_for(status_socket(listen).is_socket, "relay.sock")
        shown = [people(listen, *words).stdout for words in (("status",), ("status", "-o", "json"), ("cpus",))]
    left = {name: (tmp_path / name).read_bytes() for name in ("record", "cri.log")}
    left |= {str(path): path.read_bytes() for path in tmp_path.glob("*/**/*") if path.is_file()}
    left["status"] = "".join(shown).encode()
    dumped = dump.read_bytes()
    dumped += b"".join(b64decode(one) for one in re.findall(rb'"([A-Za-z0-9+/]{16}=?=?)"', dumped))
    assert {name: told for name, one in left.items() if (told := planted.found_in(one) - SAID)} == {}
    assert set(planted.fields) - planted.found_in(dumped) == NOT_DUMPED | GIVEN
