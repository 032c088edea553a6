"""The annotation by which a webhook tells the node the requests and limits of a pod's containers.

CRI and NRI hand on `cpu.shares` and a quota, not the spec. CRI Resource Manager's webhook and nri-plugins'
resource-annotator write the `resources` of each container into one annotation; this is the same text. Whatever stands
there before is replaced, by whomever it was written: the spec alone says what a pod requests. Nothing is refused.
"""

import json

from nodeward.core.annotations import CPU_REQUESTS, CRI_RM_RESOURCES
from nodeward.core.workload import Role
from nodeward.features.admission.values import ContainerAsked, Operation, PodAsked, Verdict

MAX_TEXT = 128 * 1024
"""Characters. The API server refuses a pod with more than 256 KiB of annotations."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)


def annotated(operation: Operation, pod: PodAsked, key: str) -> Verdict:
    """The pod with the annotation `key`, one of CPU_REQUESTS."""
    assert key in CPU_REQUESTS
    if operation not in (Operation.CREATE, Operation.UPDATE):
        return Verdict()
    text: str | None = _text(pod, key)
    warnings: tuple[str, ...] = ()
    if text is not None and len(text) > MAX_TEXT:
        why = f"it would have {len(text)} characters, and {MAX_TEXT} are written at most; give the pod fewer containers"
        text, warnings = None, (f"annotation {key} is not written: {why}",)
    if pod.annotations.get(key) == text:
        return Verdict(warnings=warnings)
    return Verdict(warnings=warnings, annotations={key: text})


def _text(pod: PodAsked, key: str) -> str:
    """As Go writes it: maps by key, empty ones left out. Only CRI Resource Manager has `initContainers` in any case."""
    init = {one.name: _resources(one) for one in pod.containers if one.role in (Role.INIT, Role.SIDECAR)}
    regular = {one.name: _resources(one) for one in pod.containers if one.role is Role.REGULAR}
    begins = f'"initContainers":{_ENCODER.encode(init)},' if init or key == CRI_RM_RESOURCES else ""
    return f'{{{begins}"containers":{_ENCODER.encode(regular)}}}'


def _resources(one: ContainerAsked) -> dict[str, dict[str, str]]:
    both = {"limits": one.limits, "requests": one.requests}
    return {word: dict(amounts) for word, amounts in both.items() if amounts}
