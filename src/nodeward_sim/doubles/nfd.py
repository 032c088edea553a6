"""Node Feature Discovery's master, as far as extended resources go: a double that works on any API server's objects.

The real master is in no package registry, so nobody can run it in a test here. This follows its
source (kubernetes-sigs/node-feature-discovery, pkg/nfd-master); where that was misread, so is the double. Kata's rule
for TDX and SEV-SNP is here.

Must not: discover anything (the worker's object is made by whoever uses this), make labels, or keep resync times. Left
out too: the master's own settings (`disableExtendedResources`, `nodeFeatureNamespaceSelector` and the like), feature
files, and of a Quantity all but digits with a suffix.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodeward.neighbours.sockets.kube_http import KubeHttp, Waits

Json = Mapping[str, object]
API = "/apis/nfd.k8s-sigs.io/v1alpha1"
NAMESPACE = "feature.node.kubernetes.io"
NODE_LABEL = "nfd.node.kubernetes.io/node-name"
OWNED = "nfd.node.kubernetes.io/extended-resources"
_OWN = f"{NAMESPACE}/"
"""What the annotation leaves out of a name."""
_CAPACITY, _ALLOCATABLE, _NOTES = "/status/capacity", "/status/allocatable", "/metadata/annotations"
_MAX_BYTES = 8 * 1024 * 1024
_QUANTITY = re.compile(r"[0-9]{1,18}(Ki|Mi|Gi|Ti|k|M|G|T)?")
KATA_RULE: Json = {
    "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
    "kind": "NodeFeatureRule",
    "metadata": {"name": "kata-tee-keys"},
    "spec": {
        "rules": [
            {
                "name": "amd.sev-snp",
                "extendedResources": {"sev-snp.amd.com/esids": "@cpu.security.sev.encrypted_state_ids"},
                "matchFeatures": [
                    {"feature": "cpu.security", "matchExpressions": {"sev.snp.enabled": {"op": "Exists"}}}
                ],
            },
            {
                "name": "intel.tdx",
                "extendedResources": {"tdx.intel.com/keys": "@cpu.security.tdx.total_keys"},
                "matchFeatures": [{"feature": "cpu.security", "matchExpressions": {"tdx.enabled": {"op": "Exists"}}}],
            },
        ]
    },
}
"""Section 2: two rules, each for a feature that exists; the number is the attribute's."""


def worker_object(namespace: str, node: str, elements: Mapping[str, str]) -> Json:
    """What NFD's worker makes of a node whose `cpu.security` has these elements (section 3.1)."""
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": node,
            "namespace": namespace,
            "labels": {NODE_LABEL: node},
            "annotations": {"nfd.node.kubernetes.io/worker.version": "double"},
        },
        "spec": {
            "features": {"flags": {}, "instances": {}, "attributes": {"cpu.security": {"elements": dict(elements)}}}
        },
    }


@dataclass(slots=True)
class NfdMaster:
    """One master. It does nothing by itself: `reconcile` is one pass over a node, as after a change (3.2)."""

    http: KubeHttp
    namespace: str
    started: bool = False

    async def reconcile(self, node: str) -> dict[str, str]:
        """Puts on the node what the rules say; returns that."""
        objects = await self._items(f"{API}/nodefeatures", {"labelSelector": f"{NODE_LABEL}={node}"})
        attributes = self._merged(objects)
        wanted: dict[str, str] = {}
        for rule_object in sorted(await self._items(f"{API}/nodefeaturerules", {}), key=_name):  # 3.2: by object name
            for rule in _list(_at(rule_object, "spec", "rules")):
                if _matches(rule, attributes):
                    wanted |= _resources(rule, attributes)  # 3.2: a later rule overwrites the same resource
        await self._patch(node, wanted, first=not self.started and not objects)
        self.started = True
        return wanted

    def _merged(self, objects: list[Json]) -> dict[str, dict[str, str]]:
        """3.3, point 2: NFD's own namespace first, then by name, then by namespace; later attributes overwrite."""

        def order(one: Json) -> tuple[bool, str, str]:
            return _namespace(one) != self.namespace, _name(one), _namespace(one)

        merged: dict[str, dict[str, str]] = {}
        for one in sorted(objects, key=order):
            attributes = _at(one, "spec", "features", "attributes")
            for feature, found in attributes.items() if isinstance(attributes, dict) else ():
                elements = _at(found, "elements")
                merged.setdefault(feature, {}).update(elements if isinstance(elements, dict) else {})
        return merged

    async def _patch(self, node: str, wanted: Mapping[str, str], *, first: bool) -> None:
        """3.2: a resource is added to capacity only; where the capacity differs, capacity and allocatable are replaced;
        removed from both are only those that the annotation names, and none on a first pass without any object. A patch
        fails whole where a place of it is not there, and then the annotation is not patched."""
        path = f"/api/v1/nodes/{node}"
        there: Json = json.loads(await self.http.get(path, {}, waits=Waits(), max_bytes=_MAX_BYTES))
        had, notes = _table(_at(there, "status", "capacity")), _table(_at(there, "metadata", "annotations"))
        owned = [name if "/" in name else f"{_OWN}{name}" for name in str(notes.get(OWNED, "")).split(",") if name]
        gone = [name for name in owned if name not in wanted and name in had and not first]
        patch = [op for name in gone for op in (_op("remove", _CAPACITY, name), _op("remove", _ALLOCATABLE, name))]
        for name, text in wanted.items():
            if name not in had:
                patch.append(_op("add", _CAPACITY, name, text))
            elif str(had[name]) != text:
                patch += [_op("replace", _CAPACITY, name, text), _op("replace", _ALLOCATABLE, name, text)]
        await self._send(f"{path}/status", patch)
        listed = ",".join(sorted(name.removeprefix(_OWN) for name in wanted))
        if listed and notes.get(OWNED) != listed:
            await self._send(path, [_op("replace" if OWNED in notes else "add", _NOTES, OWNED, listed)])
        elif not listed and OWNED in notes and not first:
            await self._send(path, [_op("remove", _NOTES, OWNED)])

    async def _send(self, path: str, patch: list[Json]) -> None:
        if patch:
            body = json.dumps(patch).encode()
            await self.http.send("PATCH", path, body, "application/json-patch+json", waits=Waits())

    async def _items(self, path: str, query: Mapping[str, str]) -> list[Json]:
        found: Json = json.loads(await self.http.get(path, query, waits=Waits(), max_bytes=_MAX_BYTES))
        return _list(found.get("items"))


def _matches(rule: Json, attributes: Mapping[str, Mapping[str, str]]) -> bool:
    """Only the operator Exists, which is all that Kata's rule has (section 2)."""
    for term in _list(rule.get("matchFeatures")):
        expressions = term.get("matchExpressions")
        for element in expressions if isinstance(expressions, dict) else ():
            if element not in attributes.get(str(term.get("feature")), {}):
                return False
    return True


def _resources(rule: Json, attributes: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """3.2: `@domain.feature.element` is split at its first two dots, attributes only; what is missing or no Quantity is
    dropped; unprefixed names and those of kubernetes.io are refused, except NFD's own."""
    found: dict[str, str] = {}
    resources = rule.get("extendedResources")
    for name, value in resources.items() if isinstance(resources, dict) else ():
        text: str | None = str(value)
        if text is not None and text.startswith("@"):
            domain, _, rest = text[1:].partition(".")
            feature, _, element = rest.partition(".")
            text = attributes.get(f"{domain}.{feature}", {}).get(element)
        prefix = name.partition("/")[0] if "/" in name else ""
        is_theirs = prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io")
        refused = not prefix or (is_theirs and prefix != NAMESPACE and not prefix.endswith(f".{NAMESPACE}"))
        if text is not None and not refused and _QUANTITY.fullmatch(text):
            found[name] = text
    return found


def _op(op: str, place: str, name: str, *value: str) -> Json:
    """An operation of a JSON patch."""
    path = f"{place}/{name.replace('~', '~0').replace('/', '~1')}"
    return {"op": op, "path": path, **({"value": value[0]} if value else {})}


def _at(value: object, *path: str) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _table(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _name(one: Json) -> str:
    return str(_at(one, "metadata", "name"))


def _namespace(one: Json) -> str:
    return str(_at(one, "metadata", "namespace"))
