"""Kata's runtime-rs as an oracle: where its library, the crate cgroups-rs, puts a sandbox's processes.

Paths are below the root of a hierarchy. `placed` and `deleted` change the machine's cgroups, so they need root.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.patience import scaled
from tests.peers.find import require

WITHIN_S = scaled(30.0)

Places = Mapping[int, Mapping[str, str]]
"""Process or thread -> hierarchy by its controllers, empty for cgroup v2 -> path of the cgroup."""


class RefusedError(Exception):
    """The library refused a request; the message is its own."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What runtime-rs knows of a sandbox when it places it."""

    sandbox: str
    cgroups_path: str | None
    """The OCI cgroupsPath; None where runtime-rs finds no OCI spec."""
    only: bool
    """sandbox_cgroup_only."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The cgroups of a sandbox, and whether systemd makes them."""

    systemd: bool
    sandbox: str
    overhead: str | None


def paths(sandbox: Sandbox) -> Paths:
    """Where its cgroups are."""
    said: dict[str, object] = json.loads(_answer("paths", sandbox))
    overhead = said["overhead"]
    return Paths(said["systemd"] is True, str(said["sandbox"]), None if overhead is None else str(overhead))


def placed(
    sandbox: Sandbox, *, shim: int | None = None, vcpus: Sequence[int] | None = None, read: Sequence[int] = ()
) -> Places:
    """Places the shim, before it starts others, or the VM after its start; then where each of `read` is."""
    said: dict[str, str] = json.loads(_answer("place", sandbox, shim=shim, vcpus=vcpus, read=read))
    return {int(found): hierarchies(text) for found, text in said.items()}


def deleted(sandbox: Sandbox) -> None:
    """Removes its cgroups; who is still in them is moved to the root."""
    _answer("delete", sandbox)


def hierarchies(text: str) -> Mapping[str, str]:
    """The text of a /proc/ID/cgroup."""
    return {line.split(":", 2)[1]: line.split(":", 2)[2] for line in text.splitlines()}


def _answer(operation: str, sandbox: Sandbox, **more: object) -> str:
    program = str(require("cgroupsrs") / "cgroupsrs")
    asked = {"op": operation, "sandbox": sandbox.sandbox, "cgroups_path": sandbox.cgroups_path, "only": sandbox.only}
    done = subprocess.run(
        [program], input=f"{json.dumps(asked | more)}\n", capture_output=True, text=True, timeout=WITHIN_S, check=True
    )
    said: dict[str, object] = json.loads(done.stdout)
    if said["error"]:
        raise RefusedError(f"{operation} {sandbox}: {said['error']}")
    return json.dumps(said["value"])
