"""What we publish, and what kube-scheduler's allocator makes of it: it places as many claims as we say, and no more.

Nodes are made up by chance; their devices are those of the production's decisions.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from nodeward.core import events as ev
from nodeward.core.cpuset import parse
from nodeward.features.cpus.settings import Amount, AmountKind
from nodeward.features.keys.state import Offer
from tests.peers.find import require
from tests.told import tell
from tests.unit.features.build import container_spec, pod_spec
from tests.unit.features.cpus import test_claims as cpus
from tests.unit.features.cpus.machines import machine
from tests.unit.features.keys import fronts as keys
from tests.unit.features.limits import test_claims as memory

CASES = 250
"""Of each kind."""
PAGE, MIB = 4096, 1 << 20
RULES = replace(cpus.RULES, reserved=Amount(AmountKind.CPUSET, 1))


@dataclass
class Case:
    driver: str
    devices: object
    claims: Sequence[Mapping[str, str]]
    expected: list[tuple[str, int]]
    """For each claim the device and how much of it it is given; nothing where it does not fit."""
    consumed: dict[str, dict[str, str]] = field(default_factory=dict)

    def line(self) -> str:
        asked = {"driver": self.driver, "devices": self.devices, "consumed": self.consumed, "claims": self.claims}
        return json.dumps(asked)


def of_keys(chance: Random) -> Case:
    """A node with some keys of which claims have some, somebody else others, and the plugin its share."""
    size = chance.randint(1, 6)
    one = keys.node(chance.choice(["all", "none", str(chance.randint(0, size))]), size)
    prepared = [f"c{number}" for number in range(chance.randint(0, size)) if not one.prepare(keys.claim(f"c{number}"))]
    one.root = chance.randint(0, size - len(prepared))
    one.settle()
    under_way = chance.randint(0, 2)
    room = max(0, one.state.keys.rooms.get("tdx", Offer()).published - under_way)
    taken = {"tdx": {"keys": str(len(prepared) + under_way)}} if prepared or under_way else {}
    text = one.goals[f"keys-slice:{keys.DRIVER}"].value
    return Case(keys.DRIVER, json.loads(str(text)), [{}] * 8, [("tdx", 1)] * room + [("", 0)] * (8 - room), taken)


def of_memory(chance: Random) -> Case:
    """A node with enclave memory on some NUMA nodes, of which claims have some, and pods declare some otherwise."""
    sizes = {number: chance.randint(1, 16) * MIB for number in range(chance.randint(0, 3))}
    one = memory.node(sum(sizes.values()) or 16 * MIB, memory=sizes)
    consumed: dict[str, int] = {}
    for number in range(chance.randint(0, 3)):
        amount, node = chance.randint(1, 1024) * PAGE, chance.choice([*sizes]) if sizes else None
        device = "epc" if node is None else f"epc-{node}"
        left = {name: free(of) - consumed.get(name, 0) for name, of in published(one).items()}
        if amount <= left[device]:
            made = memory.claim(amount, f"c{number}") if node is None else memory.of_numa(node, amount, f"c{number}")
            assert one.prepare(made) == ""
            consumed[device] = consumed.get(device, 0) + amount
    one(ev.PodSeen(pod_spec("b", container_spec("app", chance.randint(0, 24 * MIB)))))
    asked = [chance.choice([0, chance.randint(1, 8 * MIB)]) for _ in range(8)]
    expected, left = list[tuple[str, int]](), dict(consumed)
    for want in asked:
        expected.append(placed(published(one), left, want))
        left[expected[-1][0]] = left.get(expected[-1][0], 0) + expected[-1][1]
    claims = [{"epc": str(want)} if want else {} for want in asked]
    taken = {name: {"epc": str(amount)} for name, amount in consumed.items()}
    return Case(memory.DRIVER, json.loads(str(one.slice)), claims, expected, taken)


def of_cpus(chance: Random) -> Case:
    """A node some of whose CPUs claims have, and others are requested of those that are shared. What the scheduler
    places can be prepared."""
    one = cpus.node(machine(chance.randint(1, 2), chance.randint(1, 2), 1, chance.randint(1, 4)), RULES)
    for number in range(chance.randint(0, 2)):
        begun = chance.randint(0, 3)
        cpus.begins(one, f"s{number}", cpus=begun)
    consumed: dict[str, int] = {}
    expected, asked = list[tuple[str, int]](), [chance.randint(1, 5) for _ in range(11)]
    for number, want in enumerate(asked):
        devices = json.loads(one.state.cpus.by_claim.slices[cpus.DRIVER])
        room = {device["name"]: size(device) - consumed.get(device["name"], 0) for device in devices}
        name = next((name for name, left in room.items() if want <= left), "")
        if name:
            consumed[name] = consumed.get(name, 0) + want
        if number < 3 and name:
            prepared = cpus.prepared(one, cpus.claim(f"c{number}", {int(name.rpartition("-")[2]): want}))
            assert parse(prepared).bit_count() == want
        if number >= 3:
            expected.append((name, want if name else 0))
    taken = dict(consumed)
    for name, want in expected:
        if name:
            taken[name] -= want
    text = one.state.cpus.by_claim.slices[cpus.DRIVER]
    for number, (name, want) in enumerate(expected):
        if name:
            found = cpus.prepared(one, cpus.claim(f"l{number}", {int(name.rpartition("-")[2]): want}))
            assert parse(found).bit_count() == want
    claims = [{"cpu": str(want)} for want in asked[3:]]
    of_before = {name: {"cpu": str(amount)} for name, amount in taken.items() if amount}
    return Case(cpus.DRIVER, json.loads(text), claims, expected, of_before)


def size(device: Mapping[str, Any]) -> int:
    return 0 if device.get("taints") else int(device["capacity"]["cpu"]["value"])


def published(one: memory.Node) -> dict[str, dict[str, object]]:
    return {device["name"]: device for device in json.loads(str(one.slice))}


def free(device: Mapping[str, object]) -> int:
    """What the device has for all claims together; nothing where it is withheld."""
    return 0 if device.get("taints") else number(device, "value")


def number(device: object, *names: str) -> int:
    assert isinstance(device, dict)
    found = device["capacity"]["epc"]
    for name in names:
        found = found[name]
    digits, unit = found.rstrip("KMi"), {"Ki": 1024, "Mi": MIB}
    return int(digits) * unit.get(found[len(digits) :], 1)


def placed(devices: Mapping[str, dict[str, object]], consumed: Mapping[str, int], want: int) -> tuple[str, int]:
    """The first device with enough left of what is asked, in whole pages; the default where nothing is."""
    for name, device in devices.items():
        pages = -(-want // PAGE) * PAGE or number(device, "requestPolicy", "default")
        if consumed.get(name, 0) + pages <= free(device):
            return name, pages
    return "", 0


def test_the_scheduler_places_as_many_claims_as_we_say_and_no_more() -> None:
    program = str(require("draalloc") / "draalloc")
    chance = Random(38)
    cases = [make(chance) for make in (of_keys, of_memory, of_cpus) for _ in range(CASES)]
    said = subprocess.run(
        [program], input="\n".join(one.line() for one in cases), capture_output=True, text=True, check=True, timeout=120
    )
    answers = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(answers) == len(cases)
    for one, answer in zip(cases, answers, strict=True):
        found = [(given["device"], sum(map(int, given["consumed"].values()))) for given in answer]
        assert found == one.expected, (one.line(), answer)
    fits = sum(device != "" for one in cases for device, _ in one.expected)
    tell(f"{len(cases)} nodes, {fits} of {8 * len(cases)} claims are placed")
    assert 0 < fits < 8 * len(cases)
