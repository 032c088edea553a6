"""What an OCI runtime gives a hook: the container's state on stdin, and the bundle's `config.json`.

Only what a limit needs is read: ids, pid, the cgroup's name, and who the container is by the annotations that
containerd, CRI-O and the kubelet put there. Arguments, environment and mounts are never looked at.

Sources: OCI runtime-spec 1.0.2 (State, Linux cgroups path); containerd pkg/cri/annotations; CRI-O pkg/annotations and
internal/factory/container: its containers also carry the kubelet's labels and the pod's annotations as annotations.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from nodeward.core.errors import WireError

MAX_STATE = 1024 * 1024
"""A state repeats the annotations, of which the API server allows 256 KiB."""
MAX_CONFIG = 8 * 1024 * 1024
"""Mounts, environment and a seccomp profile: real ones stay below a tenth of it."""
MOST_COMMAS = 1 << 18
"""About as many values; a real configuration has some thousands. A table of short ones takes 17 times its text."""
MAX_ID = 1024
_MAX_NAME = 1024
_MAX_PID = 2**22
MEND_BUNDLE = "See who else changes the bundle: another hook, or a wrapper of the runtime"
"""The remedy where a runtime would not have written what is there."""
_MEND_STATE = "Install the hook as docs/relay.md says, so that an OCI runtime gives it the container's state on stdin"

_CRIO_ID = "io.kubernetes.cri-o.ContainerID"
_CONTAINERD = (
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri.sandbox-id",
    "io.kubernetes.cri.sandbox-uid",
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.cri.container-name",
)
_CRIO = (
    "io.kubernetes.cri-o.ContainerType",
    "io.kubernetes.cri-o.SandboxID",
    "io.kubernetes.pod.uid",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.pod.name",
    "io.kubernetes.container.name",
)
"""The kind, and who it is. CRI-O adds the kubelet's labels."""


class RuntimeState(NamedTuple):
    """The container as its runtime has it. `pid` is 0 where the runtime does not say."""

    id: str
    pid: int
    bundle: str


class Bundle(NamedTuple):
    """What a hook needs of `config.json`."""

    cgroups_path: str
    annotations: Mapping[str, str]


class Identity(NamedTuple):
    """Who a container is in Kubernetes. `container` is empty for the one that holds the sandbox."""

    sandbox_id: str
    pod_uid: str
    namespace: str
    pod: str
    container: str


def decode_state(data: bytes) -> RuntimeState:
    """The state from stdin; WireError for anything else."""
    if len(data) <= MAX_STATE and not data.strip():
        raise WireError("OCI state", f"nothing on stdin. {_MEND_STATE}")
    state = _table("OCI state", data, MAX_STATE, _MEND_STATE)
    bundle, pid = _text(state, "bundle", 4096), state.get("pid", 0)
    if not bundle.startswith("/") or "\0" in bundle or ".." in bundle.split("/"):
        raise WireError("OCI state", f"bundle {bundle[:200]!r} is not a plain absolute path. {_MEND_STATE}")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 <= pid <= _MAX_PID:
        raise WireError("OCI state", f"pid {str(pid)[:80]!r} is no process id. {_MEND_STATE}")
    return RuntimeState(_text(state, "id", MAX_ID), pid, bundle)


def decode_config(data: bytes) -> Bundle:
    """The bundle's `config.json`; WireError for anything else."""
    config = _table("config.json", data, MAX_CONFIG, MEND_BUNDLE)
    if not isinstance(config.get("ociVersion"), str):
        raise WireError("config.json", f"has no ociVersion, so it is no OCI bundle's. {MEND_BUNDLE}")
    linux = config.get("linux", {})
    path = linux.get("cgroupsPath", "") if isinstance(linux, dict) else None
    if not isinstance(path, str):
        raise WireError("config.json", f"linux.cgroupsPath is no text. {MEND_BUNDLE}")
    found = config.get("annotations") or {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise WireError("config.json", f"annotations is no table of texts. {MEND_BUNDLE}")
    return Bundle(path, found)


def identity(annotations: Mapping[str, str], container_id: str) -> Identity | None:
    """Who the container is; None for one that no Kubernetes runtime has made.

    A pod's own annotations can lie among these. CRI-O's word counts where it names this container's id, which nobody
    can know beforehand; and nothing is what holds a sandbox unless it has the sandbox's id.
    """
    keys = _CRIO if annotations.get(_CRIO_ID) == container_id else _CONTAINERD
    kind, sandbox, uid, namespace, pod, container = (_line(annotations, key) for key in keys)
    if kind == "sandbox" and sandbox == container_id:
        return Identity(sandbox, uid, namespace, pod, "")
    if not container:
        return None
    return Identity(sandbox, uid, namespace, pod, container)


def _line(annotations: Mapping[str, str], key: str) -> str:
    value = annotations.get(key, "")
    if len(value) > _MAX_NAME or "\n" in value or "\0" in value:
        fault = f"annotation {key} has {len(value)} characters or more than one line"
        raise WireError("config.json", f"{fault}. {MEND_BUNDLE}")
    return value


def _table(what: str, data: bytes, max_bytes: int, remedy: str) -> dict[str, object]:
    if len(data) > max_bytes:
        raise WireError(what, f"more than {max_bytes} bytes. {remedy}")
    if len(data) > MOST_COMMAS and data.count(b",") > MOST_COMMAS:
        raise WireError(what, f"more than {MOST_COMMAS} commas, thus values. {remedy}")
    try:
        found: object = json.loads(str(data, "utf-8"))
    except UnicodeDecodeError as error:
        fault = f"is no UTF-8 text: byte {data[error.start]:#04x} at position {error.start}"
        raise WireError(what, f"{fault}. {remedy}") from error
    except (ValueError, RecursionError) as error:
        fault = f"is no JSON ({error.__class__.__name__}: {str(error)[:200]})"
        raise WireError(what, f"{fault}. {remedy}") from error
    if not isinstance(found, dict):
        raise WireError(what, f"is no JSON object but {type(found).__name__}. {remedy}")
    return found


def _text(state: Mapping[str, object], key: str, most: int) -> str:
    value = state.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        fault = f"{key} is missing, empty, no text or longer than {most} characters"
        raise WireError("OCI state", f"{fault}. {_MEND_STATE}")
    return value
