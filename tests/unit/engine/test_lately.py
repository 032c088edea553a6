"""Given something that happened to a pod, then the node's verdict says so first, and in the end it is over."""

from dataclasses import replace

import pytest

from nodeward.engine.lately import MOST
from nodeward.engine.show.verdict import verdict
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
from nodeward.model.conditions import Level, Verdict
from nodeward.model.sandboxes import UNLIMITED
from nodeward.model.settings import Unsupported
from nodeward.model.times import LATELY_NS
from nodeward.model.workload import ContainerId
from tests.unit.engine.build import EPC, RULE, SECOND, Told, container_spec, creating, known, node, pod_spec, started
from tests.unit.engine.cpus import build as cpus
from tests.unit.engine.sandboxes import test_step as vms
from tests.unit.engine.sandboxes.build import GIB, MIB, pod, reading, shim, vmm

AT = "1970-01-01T00:00:01Z"
WEB = ("shop/web",)


def killed_vm(limit: int = GIB) -> Told:
    told = vms.told()
    vms.read(told, reading(shim(), vmm(), cgroups=(replace(pod(limit), oom_kills=0),), vm_memory=GIB, at_s=1))
    vms.read(told, reading(shim(), cgroups=(replace(pod(limit), oom_kills=1),), at_s=2))
    return told


def refused_create() -> Told:
    told = cpus.told()
    for name in "abc":
        cpus.create(told, name, cpus=3)
    return told


def late_start() -> Told:
    told = cpus.told()
    cpus.settle(told, cpus.create(told, "c", cpus=2))
    told(ev.StartLate(ContainerId("c-0")))
    return told


def drifted_cpus() -> Told:
    told = cpus.told()
    cpus.settle(told, cpus.create(told, "a", qos="burstable"))
    told(ev.CpusetsRead({"/kubepods/burstable/poda/a-0": 1}, as_of=told.state.seq))
    return told


def refused_charge() -> Told:
    told = known(4096)
    told(creating("A", "app"))
    told(started("A", "app"))
    for count in (0, 7):
        found = ev.MiscReading(True, {EPC: 4096}, refusals_local={EPC: count})
        told(ev.Sampled({"/kubepods/podA/A-app": found}, as_of=told.state.seq))
    return told


def shown(told: Told, after_ns: int = 0) -> Verdict:
    return verdict(node_view(told.state, told.at_ns + after_ns, {}))


HAPPENED = {
    "vm-killed": (killed_vm, WEB, f"The VM of shop/web was killed at {AT} for memory: the limit of its pod is 1Gi"),
    "refused": (
        refused_create,
        ("shop/c",),
        "1 create(s) or update(s) of containers were refused (shop/c), the last: ",
    ),
    "late-starts": (late_start, ("shop/c",), "1 program(s) started, or were refused, while others were on their CPUs"),
    "drift": (
        drifted_cpus,
        ("shop/a",),
        "Another program changed what Nodeward had set 1 time(s) (shop/a); the last at",
    ),
    "charges-refused": (refused_charge, ("shop/pod-A",), "The kernel refused 7 charge(s) (shop/pod-A)"),
}


@pytest.mark.parametrize("code", HAPPENED)
def test_it_is_the_headline_until_a_quarter_of_an_hour_after_the_last_time(code: str) -> None:
    happen, pods, sentence = HAPPENED[code]
    told = happen()
    said = shown(told)

    assert said.sentence.startswith(sentence)
    assert [(one.code, one.pods) for one in said.conditions if one.code in HAPPENED] == [(code, pods)]
    assert (said.conditions[0].since, said.level is not Level.GOOD, bool(said.conditions[0].remedy)) == (AT, True, True)
    assert code in [one.code for one in shown(told, LATELY_NS).conditions]
    over = code not in [one.code for one in shown(told, LATELY_NS + 1).conditions]
    assert over is (code != "vm-killed"), "which lasts until a new one is there"


def test_a_killed_vm_is_killed_while_it_is_there_and_a_new_one_is_not() -> None:
    told = killed_vm()
    told.at_ns += 2 * LATELY_NS
    assert "vm-killed" in [one.code for one in shown(told).conditions]
    vms.read(told, reading(shim(), vmm(), cgroups=(replace(pod(2 * GIB), oom_kills=1),), vm_memory=MIB, at_s=3))
    assert "vm-killed" not in [one.code for one in shown(told).conditions]


def test_what_is_not_known_of_a_kill_is_said() -> None:
    assert "by a limit that was not seen, above the pod or the node's own" in shown(killed_vm(UNLIMITED)).sentence
    told = vms.told()
    vms.read(told, reading(shim(), cgroups=(replace(pod(GIB), oom_kills=1),)))
    assert "killed before Nodeward first read it for memory" in shown(told).sentence


def test_many_refusals_keep_a_bounded_table_and_their_number() -> None:
    told = node(replace(RULE, unsupported=Unsupported.REFUSE), capacity=0)
    ids = [f"p{number}" for number in range(MOST + 50)]
    for uid in ids:
        told(ev.PodSeen(pod_spec(uid, container_spec("app", 4096))))
        told(creating(uid, "app"))
        told.at_ns += SECOND // 100
    assert len(told.state.lately) <= MOST + 1
    assert sum(one.count for one in told.state.lately.values()) == len(ids)
