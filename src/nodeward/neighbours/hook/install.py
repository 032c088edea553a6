"""Prints what adds the OCI hook to containers: `hooks.d` files, containerd's settings, and CDI. Texts only.

Sources: oci-hooks(5), schema 1.0.0 (CRI-O, podman); OCI runtime-spec 1.0.2, hooks; containerd's CRI settings
`base_runtime_spec` and `pod_annotations`; the CDI specification 0.5.0.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodeward.core.annotations import OWN_LIMITS, UPSTREAM_EPC
from nodeward.core.errors import WireError

STAGE = "createRuntime"
"""The cgroup and the container's first process are there, and the user's program does not run."""
TIMEOUT_S = 10
"""After so long a runtime kills the hook and fails the container; the hook itself takes three seconds at most."""
PROGRAM = "nodeward-oci-hook"
MAX_SPEC = 8 * 1024 * 1024
CDI_VERSION = "0.5.0"
CDI_KIND = "nodeward.io/epc"
CDI_DEVICE = "limit"
ANNOTATIONS = (OWN_LIMITS, UPSTREAM_EPC, f"{UPSTREAM_EPC}/*")
_CONTAINERD = {
    3: "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{runtime}]",
    2: "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.{runtime}]",
}
"""The table of a runtime in containerd's settings, by their version: 3 since containerd 2.0."""


@dataclass(frozen=True, slots=True)
class Hook:
    """The program, where it is, and its options."""

    path: str
    options: tuple[str, ...] = ()

    def entry(self) -> dict[str, object]:
        """The hook as OCI and CDI write it. The first argument is the program's name."""
        return {"path": self.path, "args": [PROGRAM, *self.options], "timeout": TIMEOUT_S}


def hooks_d(hook: Hook) -> bytes:
    """A file for `hooks.d`: every container gets the hook."""
    return _text({"version": "1.0.0", "hook": hook.entry(), "when": {"always": True}, "stages": [STAGE]})


def cdi(hook: Hook) -> bytes:
    """A CDI spec with one device; who asks for it gets the hook."""
    edits = {"hooks": [{"hookName": STAGE, **hook.entry()}]}
    return _text(
        {
            "cdiVersion": CDI_VERSION,
            "kind": CDI_KIND,
            "devices": [{"name": CDI_DEVICE, "containerEdits": edits}],
        }
    )


def base_spec(default: bytes, hook: Hook) -> bytes:
    """A runtime's own default spec (`ctr oci spec`) with the hook, in place of an earlier one of ours."""
    if len(default) > MAX_SPEC:
        raise WireError("OCI spec", f"more than {MAX_SPEC} bytes")
    if not default.strip():
        raise WireError("OCI spec", "nothing came on stdin or from the file; give the output of ctr oci spec")
    try:
        spec: object = json.loads(default)
    except (ValueError, RecursionError) as error:
        kind = error.__class__.__name__
        raise WireError("OCI spec", f"is no JSON ({kind}); give the output of ctr oci spec") from error
    if not isinstance(spec, dict) or not isinstance(spec.get("ociVersion"), str) or "mounts" not in spec:
        raise WireError("OCI spec", "has no ociVersion or mounts; give the whole output of ctr oci spec")
    hooks = spec.setdefault("hooks", {})
    others = hooks.get(STAGE, []) if isinstance(hooks, dict) else None
    if not isinstance(others, list):
        raise WireError("OCI spec", f"hooks.{STAGE} is no list")
    hooks[STAGE] = [*(other for other in others if not _is_ours(other)), hook.entry()]
    try:
        return _text(spec)
    except RecursionError as error:  # written with indents it goes deeper than it was read
        raise WireError("OCI spec", "is nested too deeply; give the output of ctr oci spec") from error


def programs(tree: object) -> Iterator[str]:
    """The paths by which a file of hooks.d, a CDI spec or a base spec calls our hook."""
    left = [tree]
    while left:  # not by calls within calls: somebody else's file may be nested deeply
        part = left.pop()
        if isinstance(part, Mapping):
            path = part.get("path")
            if isinstance(path, str) and (_is_ours(part) or path.endswith(f"/{PROGRAM}")):
                yield path
            left += part.values()
        elif isinstance(part, list):
            left += part


def containerd_lines(spec_path: str, runtime: str, version: int) -> str:
    """The lines for containerd's settings of this version."""
    names = ", ".join(f'"{name}"' for name in ANNOTATIONS)
    table = _CONTAINERD[version].format(runtime=runtime)
    return f'{table}\n  base_runtime_spec = "{spec_path}"\n  pod_annotations = [{names}]\n'


def _is_ours(entry: object) -> bool:
    args = entry.get("args") if isinstance(entry, Mapping) else None
    return isinstance(args, list) and args[:1] == [PROGRAM]


def _text(tree: object) -> bytes:
    return json.dumps(tree, indent=2).encode() + b"\n"
