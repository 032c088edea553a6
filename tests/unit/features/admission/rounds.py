"""One round of admission on JSON: a review as the API server writes it, the answer, the patch applied to the pod.

The patch is applied by this module's own reading of RFC 6902 (`add` and `remove`), so that the builder's mistakes show.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nodeward.features.admission.decide import admit
from nodeward.features.admission.door import mapping
from nodeward.features.admission.door.mapping import encode
from nodeward.features.admission.door.review import decode_review
from nodeward.features.admission.requests import annotated
from nodeward.features.admission.values import AdmissionRule, Verdict

Json: TypeAlias = dict[str, object]
RULE = AdmissionRule()


def review(pod: Json | None, operation: str = "CREATE", sub_resource: str = "", **more: object) -> Json:
    request: Json = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": operation,
        "namespace": "default",
        "userInfo": {"username": "admin"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {},
    }
    if sub_resource:
        request["subResource"] = sub_resource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request | more}


@dataclass(frozen=True, slots=True)
class Round:
    """What came out: the pod as the API server would have it after the patch."""

    verdict: Verdict
    pod: Json
    operations: list[Json]


def admitted(
    pod: Json, operation: str = "CREATE", sub_resource: str = "", rule: AdmissionRule = RULE, annotate: str = ""
) -> Round:
    """By the rule; or by what writes the annotation `annotate`."""
    request = decode_review(json.dumps(review(pod, operation, sub_resource)).encode(), 1 << 24)
    asked = mapping.operation(request), mapping.pod_asked(request)
    verdict = annotated(*asked, annotate) if annotate else admit(*asked, rule)
    assert request.object is not None
    operations: list[Json] = json.loads(encode(mapping.patch(request.object, verdict)))
    return Round(verdict, applied(pod, operations), operations)


def applied(document: Json, operations: list[Json]) -> Json:
    """The document after an RFC 6902 patch of `add` and `remove`; AssertionError for one that does not fit."""
    result: Json = copy.deepcopy(document)
    for operation in operations:
        path = str(operation["path"])
        assert path.startswith("/")
        *above, last = (part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
        here: object = result
        for part in above:
            here = here[int(part)] if isinstance(here, list) else _member(here, part)
        if isinstance(here, list):
            assert operation["op"] == "add"
            here.insert(len(here) if last == "-" else int(last), operation["value"])
        else:
            assert isinstance(here, dict), f"{path}: the parent is {here!r}"
            if operation["op"] == "add":
                here[last] = operation["value"]
            else:
                assert operation["op"] == "remove"
                del here[last]
    return result


def _member(value: object, name: str) -> object:
    assert isinstance(value, dict), f"{name}: no object above it"
    return value[name]


def container(name: str, limits: Mapping[str, object] | None = None, **more: object) -> Json:
    """A container; its requests equal its limits, as the API server makes them."""
    found: Json = {"name": name, "image": "localhost/none:1"}
    if limits is not None:
        found["resources"] = {"limits": dict(limits), "requests": dict(limits)}
    return found | more


def pod_of(*containers: Mapping[str, object], annotations: Mapping[str, object] | None = None, **spec: object) -> Json:
    metadata: Json = {"name": "web", "namespace": "default"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}}


def at(value: object, *path: str | int) -> object:
    for part in path:
        if isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        else:
            value = value.get(str(part)) if isinstance(value, dict) else None
    return value


def notes(pod: Mapping[str, object]) -> Json:
    found = at(pod, "metadata", "annotations") or {}
    assert isinstance(found, dict)
    return dict(found)
