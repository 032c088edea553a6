"""Given something that happened to a pod, then `nodeward status` says so, the pod comes first, and after a quarter of
an hour without another one it is over."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from nodeward.cli import client
from nodeward.cli.main import cli
from nodeward.engine.lately import MOST
from nodeward.engine.show.verdict import verdict
from nodeward.engine.show.view import node_view
from nodeward.model import events as ev
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
def test_it_is_the_headline_and_its_pod_comes_first(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    happen, pods, sentence = HAPPENED[code]
    told = happen()
    view = node_view(told.state, told.at_ns, {})
    view = replace(view, verdict=verdict(view))
    monkeypatch.setattr(client, "node", lambda socket: view)

    said = CliRunner().invoke(cli, ["status"], env={"COLUMNS": "400"}).output
    found = json.loads(CliRunner().invoke(cli, ["status", "-o", "json"]).output)["verdict"]

    assert said.startswith(sentence)
    assert [(one["code"], tuple(one["pods"])) for one in found["conditions"] if one["code"] in HAPPENED] == [
        (code, pods)
    ]
    assert (found["conditions"][0]["since"], found["level"] != "good") == (AT, True)
    assert bool(found["conditions"][0]["remedy"])


@pytest.mark.parametrize("code", [code for code in HAPPENED if code != "vm-killed"])
def test_it_is_over_a_quarter_of_an_hour_after_the_last_time(code: str) -> None:
    told = HAPPENED[code][0]()

    assert code in [one.code for one in verdict(node_view(told.state, told.at_ns + LATELY_NS, {})).conditions]
    assert code not in [one.code for one in verdict(node_view(told.state, told.at_ns + LATELY_NS + 1, {})).conditions]


def test_a_killed_vm_is_killed_while_it_is_there_and_a_new_one_is_not() -> None:
    told = killed_vm()
    told.at_ns += 2 * LATELY_NS
    view = node_view(told.state, told.at_ns, {})
    assert view.sandboxes is not None
    assert (view.sandboxes.rows[0].fit.fit, view.sandboxes.rows[0].fit.killed_since) == ("killed", AT)
    assert [one.since for one in verdict(view).conditions if one.code == "vm-killed"] == [AT]

    vms.read(told, reading(shim(), vmm(), cgroups=(replace(pod(2 * GIB), oom_kills=1),), vm_memory=MIB, at_s=3))
    assert "vm-killed" not in [one.code for one in verdict(node_view(told.state, told.at_ns, {})).conditions]


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        pytest.param(
            killed_vm(UNLIMITED), "by a limit that was not seen, above the pod or the node's own", id="no limit"
        ),
        pytest.param(None, "killed before Nodeward first read it for memory", id="before the daemon's start"),
    ],
)
def test_what_is_not_known_of_a_kill_is_said(told: Told | None, sentence: str) -> None:
    if told is None:
        told = vms.told()
        vms.read(told, reading(shim(), cgroups=(replace(pod(GIB), oom_kills=1),)))
    view = node_view(told.state, told.at_ns, {})
    assert view.sandboxes is not None
    assert view.sandboxes.rows[0].fit.fit == "killed"
    assert sentence in verdict(view).sentence


def test_many_refusals_keep_a_bounded_table_and_their_number() -> None:
    told = node(replace(RULE, unsupported=Unsupported.REFUSE), capacity=0)
    ids = [f"p{number}" for number in range(MOST + 50)]
    for uid in ids:
        told(ev.PodSeen(pod_spec(uid, container_spec("app", 4096))))
        told(creating(uid, "app"))
        told.at_ns += SECOND // 100
    assert len(told.state.lately) <= MOST + 1
    assert sum(one.count for one in told.state.lately.values()) == len(ids)
