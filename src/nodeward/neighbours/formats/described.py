"""Makes the model's sandboxes and containers of what a runtime, a client of CRI or the hook tells of them.

Promises: names are printable and bounded; only annotations and labels that are read are kept; what is impossible is
left out and said in the log.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from nodeward.core.annotations import ARE_YAML, read_ones
from nodeward.core.errors import WireError
from nodeward.core.text import printable_name
from nodeward.core.workload import (
    NO_RECORD,
    OWN,
    POD,
    Container,
    ContainerId,
    CpuRecord,
    Keys,
    PodUid,
    Sandbox,
    SandboxId,
    read_labels,
)
from nodeward.neighbours.formats.cpu_record import cpu_record
from nodeward.neighbours.formats.yaml_annotations import as_json

_log = logging.getLogger(__name__)
_NONE: Final[Mapping[str, str]] = {}


def sandbox(
    *names: str,
    annotations: Mapping[str, str],
    said: Mapping[str, str] = _NONE,
    labels: Keys = (),
    **more: Any,
) -> Sandbox:
    """A pod's sandbox. `names`: its id, the pod's UID, namespace and name; `said`: its labels, of which those named by
    `labels` are kept; `more`: the other fields as they are."""
    made_id, uid, namespace, name = names
    own = read_labels(said, labels, POD)
    return Sandbox(
        SandboxId(made_id),
        PodUid(uid),
        printable_name(namespace),
        printable_name(name),
        as_json(read_ones(annotations), ARE_YAML),
        labels=own,
        **more,
    )


def container(
    made_id: str, sandbox_id: str, name: str, said: Mapping[str, str] = _NONE, labels: Keys = (), **more: Any
) -> Container:
    """A container, as `sandbox` makes its pod's."""
    own = read_labels(said, labels, OWN)
    return Container(ContainerId(made_id), SandboxId(sandbox_id), printable_name(name), labels=own, **more)


def path(resolve: Callable[[str], str], named: str) -> str:
    """The path below the cgroup root; empty for a name that is no path, as for one that is not there."""
    try:
        return resolve(named)
    except WireError as error:
        _log.warning("cgroup=ignored error=%s", error)
        return ""


def cpu(shares: int, quota: int, period: int, cpus: str, mems: str, before: CpuRecord = NO_RECORD) -> CpuRecord:
    """What is said of CPUs, over `before`. Runtimes send a 0 for what the client did not say."""
    record, faults = cpu_record(shares, quota, period, cpus, before, mems)
    for fault in faults:
        _log.warning("cpu=ignored error=%s", fault)
    return record
