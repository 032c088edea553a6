"""The double of NFD's master, rule by rule; a wrong double shows in the row of its rule. Rows begin with what they are
about: 3.1 what is not discovered, 3.2 extended resources, 3.3 objects of others.

Not played, as the double says: the master's own settings, feature files, and when a pass begins (whoever uses it says).
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from nodeward.aio.clock import SystemClock
from nodeward.doubles.nfd import API, KATA_RULE, NODE_LABEL, OWNED, Json, NfdMaster, worker_object
from nodeward.transport.kube_http import Endpoint, KubeHttp, KubeRefusedError, Waits
from nodeward.wire.kube_objects import StatusObject
from tests.unit.edges.webhook.rounds import at

NFD, NODE = "nfd", "n1"
KEYS, IDS = "tdx.intel.com/keys", "sev-snp.amd.com/esids"
TDX = {"tdx.enabled": "true", "tdx.total_keys": "16"}
FIRST_PASS, LATER = False, True


def feature(name: str = NODE, namespace: str = NFD, node: str = NODE, **elements: str) -> Json:
    """A NodeFeature whose `cpu.security` has these; in a keyword `__` stands for a dot."""
    made = json.loads(
        json.dumps(worker_object(namespace, node, {key.replace("__", "."): text for key, text in elements.items()}))
    )
    made["metadata"]["name"] = name
    return dict(made)


def tdx(keys: str, name: str = NODE, namespace: str = NFD) -> Json:
    return feature(name, namespace, tdx__enabled="true", tdx__total_keys=keys)


def of_other_kinds() -> Json:
    """The same elements as flags and as an instance, where nothing may find them."""
    made: dict[str, object] = {**tdx("1")}
    features = {
        "attributes": {"cpu.security": {"elements": {"tdx.enabled": "true"}}},
        "flags": {"cpu.security": {"elements": {"tdx.total_keys": "7"}}},
        "instances": {"cpu.security": {"elements": [{"attributes": {"tdx.total_keys": "7"}}]}},
    }
    made["spec"] = {"features": features}
    return made


def rule(name: str, *parts: Mapping[str, str], exists: str = "") -> Json:
    """A NodeFeatureRule with a rule for each of these tables of resources."""
    terms = [{"feature": "cpu.security", "matchExpressions": {exists: {"op": "Exists"}}}] if exists else []
    rules = [{"name": str(number), "extendedResources": dict(part)} for number, part in enumerate(parts)]
    return {
        "kind": "NodeFeatureRule",
        "metadata": {"name": name},
        "spec": {"rules": [{**one, "matchFeatures": terms} for one in rules]},
    }


class Api(KubeHttp):
    """The objects, and a Node whose patches are taken to the letter: nothing but what they say changes."""

    def __init__(self, features: tuple[Json, ...], rules: tuple[Json, ...], node: Json) -> None:
        super().__init__(Endpoint("http://nobody"), SystemClock(), user_agent="test")
        self.features, self.rules, self.node = features, rules, json.loads(json.dumps(node))
        self.sent: list[str] = []

    async def get(self, path: str, query: Mapping[str, str], *, waits: Waits, max_bytes: int) -> bytes:
        if path == f"/api/v1/nodes/{NODE}":
            return json.dumps(self.node).encode()
        if path == f"{API}/nodefeaturerules":
            return json.dumps({"items": self.rules}).encode()
        assert path == f"{API}/nodefeatures"
        label, _, wanted = query["labelSelector"].partition("=")
        assert label == NODE_LABEL
        items = [one for one in self.features if at(one, "metadata", "labels", label) == wanted]
        return json.dumps({"items": items}).encode()

    async def send(self, verb: str, path: str, body: bytes, kind: str, *, waits: Waits) -> None:
        assert (verb, kind) == ("PATCH", "application/json-patch+json")
        place = "metadata" if path == f"/api/v1/nodes/{NODE}" else "status"
        assert place == "metadata" or path == f"/api/v1/nodes/{NODE}/status"
        self.sent.append(place)
        made = json.loads(json.dumps(self.node))
        for one in json.loads(body):
            *above, last = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
            assert above[0] == place
            table = made
            for name in above:
                table = table[name]
            if one["op"] != "add" and last not in table:  # RFC 6902: the target location must exist
                raise KubeRefusedError(path, 422, StatusObject())
            if one["op"] == "remove":
                del table[last]
            else:
                table[last] = one["value"]
        self.node = made


@dataclass
class Given:
    """The node, and what there is for it. What it has of a resource is capacity and, where nothing else is said,
    allocatable."""

    features: tuple[Json, ...] = (tdx("16"),)
    rules: tuple[Json, ...] = (KATA_RULE,)
    has: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] | None = None
    owned: str = ""
    started: bool = LATER


@dataclass
class Then:
    """What the node has after a pass; of allocatable the same, where nothing else is said."""

    has: Mapping[str, str]
    owned: str
    allocatable: Mapping[str, str] | None = None


ROWS = {
    "3.2 rules by object name, whichever is listed first": (
        Given(rules=(rule("b", {KEYS: "2"}), rule("a", {KEYS: "1"}))),
        Then({KEYS: "2"}, KEYS, {}),
    ),
    "3.2 a later rule of an object overwrites": (
        Given(rules=(rule("a", {KEYS: "1", IDS: "5"}, {KEYS: "2"}),)),
        Then({KEYS: "2", IDS: "5"}, f"{IDS},{KEYS}", {}),
    ),
    "3.2 a rule that does not match": (
        Given(rules=(rule("a", {KEYS: "1"}, exists="sev.snp.enabled"), rule("b", {IDS: "1"}, exists="tdx.enabled"))),
        Then({IDS: "1"}, IDS, {}),
    ),
    "3.2 a reference is split at the first two dots": (
        Given(features=(feature(a__b__c__d="9"),), rules=(rule("a", {KEYS: "@cpu.security.a.b.c.d"}),)),
        Then({KEYS: "9"}, KEYS, {}),
    ),
    "3.2 a reference without two dots": (
        Given(rules=(rule("a", {KEYS: "@cpu.security", IDS: "@", "x.io/y": "@."}, {"x.io/z": "1"}),)),
        Then({"x.io/z": "1"}, "x.io/z", {}),
    ),
    "3.2 attributes only": (Given(features=(of_other_kinds(),)), Then({}, "")),
    "3.2 a static value": (
        Given(rules=(rule("a", {KEYS: "3", IDS: "2Ki"}),)),
        Then({KEYS: "3", IDS: "2Ki"}, f"{IDS},{KEYS}", {}),
    ),
    "3.2 a static value that is no Quantity": (
        Given(
            rules=(rule("a", {KEYS: "many", IDS: "", "x.io/a": " 1", "x.io/b": "1 ", "x.io/c": "1Q", "x.io/d": "1"}),)
        ),
        Then({"x.io/d": "1"}, "x.io/d", {}),
    ),
    "3.2 a reference to what is no Quantity": (Given(features=(tdx("many"),)), Then({}, "")),
    "3.2 unprefixed names": (Given(rules=(rule("a", {"keys": "1", "/keys": "1"}),)), Then({}, "")),
    "3.2 names of kubernetes.io": (
        Given(rules=(rule("a", {"kubernetes.io/keys": "1", "x.kubernetes.io/keys": "1", "xkubernetes.io/keys": "1"}),)),
        Then({"xkubernetes.io/keys": "1"}, "xkubernetes.io/keys", {}),
    ),
    "3.2 NFD's own names of kubernetes.io": (
        Given(rules=(rule("a", {"feature.node.kubernetes.io/keys": "1", "x.feature.node.kubernetes.io/keys": "1"}),)),
        Then(
            {"feature.node.kubernetes.io/keys": "1", "x.feature.node.kubernetes.io/keys": "1"},
            "keys,x.feature.node.kubernetes.io/keys",
            {},
        ),
    ),
    "3.2 NFD's own name is removed by its short one": (
        Given(features=(), has={"feature.node.kubernetes.io/keys": "1"}, owned="keys"),
        Then({}, ""),
    ),
    "3.2 what is new is added to capacity only": (
        Given(has={"cpu": "4"}),
        Then({"cpu": "4", KEYS: "16"}, KEYS, {"cpu": "4"}),
    ),
    "3.2 where the capacity differs both are replaced": (
        Given(has={KEYS: "4"}, allocatable={KEYS: "3"}, owned=KEYS),
        Then({KEYS: "16"}, KEYS),
    ),
    "3.2 where only the allocatable differs it stays": (
        Given(has={KEYS: "16"}, allocatable={KEYS: "3"}, owned=KEYS),
        Then({KEYS: "16"}, KEYS, {KEYS: "3"}),
    ),
    "3.2 what the annotation names is removed": (
        Given(has={IDS: "5", KEYS: "16"}, owned=f"{IDS},{KEYS}"),
        Then({KEYS: "16"}, KEYS),
    ),
    "3.2 a removal fails whole where allocatable has it not": (
        Given(has={IDS: "5", KEYS: "4"}, allocatable={KEYS: "4"}, owned=IDS),
        Then({IDS: "5", KEYS: "4"}, IDS, {KEYS: "4"}),
    ),
    "3.2 what the annotation does not name is not removed": (
        Given(has={IDS: "5", KEYS: "16"}, owned=KEYS),
        Then({IDS: "5", KEYS: "16"}, KEYS),
    ),
    "3.2 what the annotation names and the node has not": (
        Given(has={KEYS: "16"}, owned=f"{IDS},{KEYS}"),
        Then({KEYS: "16"}, KEYS),
    ),
    "3.2 the first pass without an object removes nothing": (
        Given(features=(), has={KEYS: "16"}, owned=KEYS, started=FIRST_PASS),
        Then({KEYS: "16"}, KEYS),
    ),
    "3.2 and forgets what it did not remove where it has put something else there": (
        Given(features=(), rules=(rule("a", {IDS: "1"}),), has={KEYS: "16"}, owned=KEYS, started=FIRST_PASS),
        Then({KEYS: "16", IDS: "1"}, IDS, {KEYS: "16"}),
    ),
    "3.2 a later pass without an object removes": (
        Given(features=(), has={KEYS: "16"}, owned=KEYS),
        Then({}, ""),
    ),
    "3.2 the first pass with an object removes": (
        Given(features=(feature(sgx__enabled="true"),), has={KEYS: "16"}, owned=KEYS, started=FIRST_PASS),
        Then({}, ""),
    ),
    "3.1 an element that is absent drops the resource, and removes it": (
        Given(features=(feature(tdx__enabled="true"),), has={KEYS: "16"}, owned=KEYS),
        Then({}, ""),
    ),
    "3.3 point 2 NFD's own namespace comes first, whatever the names": (
        Given(features=(tdx("4", "a", "another"), tdx("16", "z"))),
        Then({KEYS: "4"}, KEYS, {}),
    ),
    "3.3 point 2 then by object name": (
        Given(features=(tdx("5", "c", "a"), tdx("4", "b", "z"), tdx("16"))),
        Then({KEYS: "5"}, KEYS, {}),
    ),
    "3.3 point 2 by object name in NFD's own namespace too": (
        Given(features=(tdx("5", "c"), tdx("4", "b"))),
        Then({KEYS: "5"}, KEYS, {}),
    ),
    "3.3 point 2 then by namespace": (
        Given(features=(tdx("5", "b", "y"), tdx("4", "b", "x"))),
        Then({KEYS: "5"}, KEYS, {}),
    ),
    "3.3 point 2 only the elements that the later object has are overwritten": (
        Given(features=(tdx("16"), feature("zzz-nodeward-n1", "nodeward", tdx__total_keys="12"))),
        Then({KEYS: "12"}, KEYS, {}),
    ),
    "3.3 point 2 an object with another node's label": (
        Given(features=(tdx("16"), feature("z", "nodeward", "n2", tdx__total_keys="12"))),
        Then({KEYS: "16"}, KEYS, {}),
    ),
}


@pytest.mark.parametrize(("given", "then"), ROWS.values(), ids=ROWS)
def test_the_double_goes_by_the_rule(given: Given, then: Then) -> None:
    allocatable = dict(given.has if given.allocatable is None else given.allocatable)
    node: Json = {
        "metadata": {"annotations": {OWNED: given.owned} if given.owned else {}},
        "status": {"capacity": dict(given.has), "allocatable": allocatable},
    }

    async def story() -> None:
        async with Api(given.features, given.rules, node) as api:
            master = NfdMaster(api, NFD, given.started)
            with suppress(KubeRefusedError):
                await master.reconcile(NODE)
            status = api.node["status"]
            assert status["capacity"] == then.has
            assert status["allocatable"] == (then.has if then.allocatable is None else then.allocatable)
            assert api.node["metadata"]["annotations"].get(OWNED, "") == then.owned
            if given.started and "metadata" in api.sent:
                api.sent.clear()
                await master.reconcile(NODE)
                assert api.sent == [], "what is so already is not written"

    asyncio.run(story())
