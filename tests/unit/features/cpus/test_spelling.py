"""Sections of policies with pools: every spelling means the same, all faults are told, nothing is passed over."""

import json
import logging
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeward.core.decision import IoClass, Scheduler, SchedulerFlag, SchedulingClass
from nodeward.features.cpus import pool_settings as pools
from nodeward.features.cpus.settings import PolicySettings
from nodeward.features.cpus.spelling.pools import NOT_ENFORCED, SECTIONS, kinds, spellings
from nodeward.features.cpus.spelling.words import MAX_ITEMS
from nodeward.features.settings import Settings
from nodeward.settings import last_good
from nodeward.settings.load import SettingsError, from_tree, load, schema

NRI = """
policy:
  active: balloons
  reservedResources: {cpu: 1}
  balloons:
    pinCPU: true
    allocatorTopologyBalancing: true
    reservedPoolNamespaces: [monitoring]
    preserve: {matchExpressions: [{key: name, operator: In, values: [a, b]}]}
    balloonTypes:
    - name: fast
      namespaces: ["web-*"]
      matchExpressions: [{key: ":namespace:pod/name", operator: Matches, values: ["a:b*"]}]
      groupBy: ${namespace}-x
      minCPUs: 1
      maxCPUs: "4"
      minBalloons: 1
      maxBalloons: 3
      allocatorPriority: normal
      preferNewBalloons: true
      preferSpreadingPods: true
      preferPerNamespaceBalloon: true
      preferSpreadOnPhysicalCores: false
      shareIdleCPUsInSame: numa
      hideHyperthreads: true
      preferIsolCpus: true
      preferCoreType: efficient
    - {name: both, components: [{balloonType: fast}, {balloonType: both2}], componentCreation: balance-balloons}
    - {name: both2, maxCPUs: -1}
"""
BY_NAME = pools.Expression(":namespace:pod/name", "Matches", ("a:b*",))
PREFERS = (True, True, True, False, None, True, pools.CoreType.EFFICIENT, pools.Within.NUMA, True)
FAST = pools.BalloonType("fast", ("web-*",), (BY_NAME,), "${namespace}-x", 1, 4, 1, 3, pools.Priority.NORMAL, *PREFERS)
WANTED = pools.BalloonsSettings(
    True,
    ("monitoring",),
    True,
    False,
    (pools.Expression("name", "In", ("a", "b")),),
    (
        FAST,
        pools.BalloonType("both", components=("fast", "both2"), component_creation=pools.Creation.BALANCE),
        pools.BalloonType("both2", max_cpus=-1),
    ),
)


def loaded(text: str, folder: Path, environ: dict[str, str] | None = None) -> Settings:
    file = folder / "s.yaml"
    file.write_text(text)
    return load(str(file), environ or {})


def _renamed(tree: object, above: str = "policy") -> object:
    if isinstance(tree, list):
        return [_renamed(one, "") for one in tree]
    if not isinstance(tree, dict):
        return tree
    lower = ("policy", "balloons", "cpu")
    return {key if key in lower else key[0].upper() + key[1:]: _renamed(value, key) for key, value in tree.items()}


def test_both_spellings_mean_the_same_and_are_kept_for_the_next_start(tmp_path: Path) -> None:
    settings = loaded(NRI, tmp_path)

    assert settings.policy.balloons == WANTED
    pascal = json.dumps(_renamed(yaml.safe_load(NRI))).replace('"normal"', "1")
    assert loaded(pascal, tmp_path) == settings
    assert from_tree(json.loads(json.dumps(last_good.plain(settings))), {}) == settings


def test_a_variable_gives_a_switch_or_a_whole_list(tmp_path: Path) -> None:
    environ = {
        "NODEWARD_POLICY__BALLOONS__PIN_CPU": "false",
        "NODEWARD_POLICY__BALLOONS__BALLOON_TYPES": "[{name: x, minCPUs: 2}]",
    }
    found = loaded(NRI, tmp_path, environ).policy.balloons
    assert (found.pin_cpu, found.balloon_types) == (False, (pools.BalloonType("x", min_cpus=2),))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("balloonTypes: {}", "balloonTypes: is {}, must be a list of at most 256 items"),
        ("pinCPU: maybe", "pinCPU: 'maybe' is not allowed; true or false"),
        ("pinCPU: true, PinCPU: true", "PinCPU: is the setting policy.balloons.pinCPU again; keep one of them"),
        ("reservedResources: {cpu: 1}", "reservedResources: stands beside the section, as policy.reservedResources"),
        ("preserve: {matchExpression: []}", "preserve.matchExpression: unknown key; the only one is matchExpressions"),
        ("preserve: [{key: name, operator: Equal, values: [a]}]", "preserve[0].operator: 'Equal' is no operator; did"),
        ("preserve: [{key: name, operator: In}]", "preserve[0].values: In takes at least one value, and there are 0"),
        ("preserve: [{key: tags/a, operator: Exists}]", "preserve[0].key: 'tags/a': a container has none when it is p"),
        ("preserve: [{key: nme, operator: Exists}]", "preserve[0].key: 'nme' is no key; did you mean name?"),
    ],
)
def test_faults_of_the_section(text: str, fault: str, tmp_path: Path) -> None:
    (found,) = told(f"{{{text}}}", tmp_path)
    assert found.startswith(f"policy.balloons.{fault}")


NESTED = ", ".join(f"{{name: t{i}, components: [{', '.join([f't{i + 1}'] * 8)}]}}" for i in range(9))
"""Of few words a balloon of 134 million parts."""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{name: a, minCPU: 2}", "[0].minCPU: unknown key; did you mean minCPUs?"),
        ("{name: a, minCPUs: 3, maxCPUs: 2}", "[0].minCPUs: 3 is more than maxCPUs, which is 2"),
        ("{name: a, minCPUs: 3, maxCPUs: -1}", "[0].minCPUs: 3 is more than maxCPUs, which is -1"),
        ("{name: a, minBalloons: 3, maxBalloons: 2}", "[0].minBalloons: 3 is more than maxBalloons, which is 2"),
        ("{name: a, minCPUs: 1.5}", "[0].minCPUs: 1.5 is no whole number from -1 to 8192"),
        ("{name: a, maxCPUs: 99999}", "[0].maxCPUs: 99999 is no whole number from -1 to 8192"),
        ("{name: a, allocatorPriority: 4}", "[0].allocatorPriority: 4 is not allowed; one of high, normal, low, none"),
        ("{name: a, shareIdleCPUsInSame: node}", "[0].shareIdleCPUsInSame: 'node' is not allowed; one of system, "),
        ("{name: 'a[0]'}", "[0].name: 'a[0]' must be 1 to 63 letters, digits and any of _ . -"),
        ("{minCPUs: 1}", "[0].name: '' must be 1 to 63 letters"),
        ("{name: a}, {name: a}", "[1].name: 'a' is the name of another one too"),
        ("{name: a, memoryTypes: [HBN]}", "[0].memoryTypes[0]: 'HBN' is not allowed; one of DRAM, HBM, PMEM"),
        ("{name: a, preferCloseToDevices: [x]}", "[0].preferCloseToDevices[0]: 'x' is no path below /sys or /dev"),
        ("{name: a, groupBy: '${pod/labels/x y}'}", "[0].groupBy: 'pod/labels/x y': 'x y' is no name of a label"),
        ("{name: a, groupBy: 'foo$'}", "[0].groupBy: '$' is no reference to a key"),
        ("{name: a, groupBy: '${}'}", "[0].groupBy: '${}' is no reference to a key"),
        ("{name: a, groupBy: '${a$b}'}", "[0].groupBy: '${a$b}' is no reference to a key"),
        ("{name: a, components: [b]}", "[0].components: 'b' is no type; define it"),
        ("{name: a, components: [b]}, {name: b, components: [a]}", "[0].components: a is among the components of its"),
        ("{name: a, components: [b], preferIsolCpus: true}, {name: b}", "[0].preferIsolCpus: a type with components"),
        ("{name: a, components: [b], cpuClass: x}, {name: b}", "[0].cpuClass: a type with components has no CPUs"),
        ("{name: a, componentCreation: balance-balloons}", "[0].componentCreation: there are no components"),
        ("{name: a, loads: [x]}", "[0].loads: 'x' is no load class; define it in loadClasses"),
        ("{name: a, schedulingClass: x}", "[0].schedulingClass: 'x' is no scheduling class"),
        ("{name: reserved, maxBalloons: 2}", "[0]: there is one balloon of the type reserved"),
        ("{name: reserved, minCPUs: 3}", "[0].minCPUs: 3 is not 2, as many as are reserved (2)"),
        (", ".join(["{}"] * (MAX_ITEMS + 1)), ": is [{}, {}, "),
        (f"{NESTED}, {{name: t9}}", "[0].components: a balloon has more than 64 components, with those of its"),
        ("{name: a, minBalloons: 250}, {name: b, minBalloons: 7}", ": minBalloons of all types are 257 together; at "),
    ],
)
def test_faults_of_types(text: str, fault: str, tmp_path: Path) -> None:
    found = told(f"{{BalloonTypes: [{text}]}}", tmp_path)[0]
    assert found.startswith(f"policy.balloons.BalloonTypes{fault}")


POOL, KIND = (
    pools.StaticPool("shared", False, (pools.CpuList(1, "0,16"),)),
    pools.DynamicPoolType("a", ("b",), pools.Priority.LOW),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "podpools: {Pools: [{Name: a, CPU: 5, MaxPods: 2, Instances: 50 %, FillOrder: packed}]}",
            PolicySettings(
                podpools=pools.PodpoolsSettings(True, (pools.PodPool("a", 5, 2, "50 %", pools.FillOrder.PACKED),))
            ),
        ),
        (
            "static-pools: {labelNode: true, pools: {shared: {cpuLists: [{Socket: 1, Cpuset: '0,16'}]}}}",
            PolicySettings(static_pools=pools.StaticPoolsSettings((POOL,), True)),
        ),
        (
            "dynamic-pools: {PinCPU: false, DynamicPoolTypes: [{Name: a, Namespaces: [b], AllocatorPriority: 2}]}",
            PolicySettings(dynamic_pools=pools.DynamicPoolsSettings(False, (), (KIND,))),
        ),
    ],
)
def test_the_words_of_cri_resource_manager(text: str, found: PolicySettings, tmp_path: Path) -> None:
    settings = loaded(f"policy: {{{text}}}", tmp_path)
    assert settings.policy == found
    assert from_tree(json.loads(json.dumps(last_good.plain(settings))), {}) == settings


TOO_FEW = "CPUs' is not enough for one pool of 4 CPUs; give at least these"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("podpools: {Pools: [{Name: a}]}", "podpools.Pools[0].CPU: 0 is no number of CPUs"),
        ("podpools: {Pools: [{Name: a, CPU: 1, Instances: many}]}", "podpools.Pools[0].Instances: 'many' is no number"),
        ("podpools: {Pools: [{Name: a, CPU: 4, Instances: 3 CPUs}]}", f"podpools.Pools[0].Instances: '3 {TOO_FEW}"),
        ("podpools: {Pools: [{Name: a, CPU: 4, Instances: 0 CPUs}]}", f"podpools.Pools[0].Instances: '0 {TOO_FEW}"),
        ("podpools: {Pools: [{Name: default, Instances: 2}]}", "podpools.Pools[0].Instances: there is one pool defaul"),
        ("podpools: {Pools: [{Name: a, CPU: 1, MaxPods: -1}]}", "podpools.Pools[0].MaxPods: -1 is less than 0"),
        ("static-pools: {pools: {a: {cpuLists: [{Cpuset: x}]}}}", "static-pools.pools.a.cpuLists[0].Cpuset: 'x': "),
        ("static-pools: {pools: {a: {cpuLists: [{}]}}}", "static-pools.pools.a.cpuLists[0].Cpuset: it names no CPU"),
        (
            "static-pools: {pools: {a: {cpuLists: [{Cpuset: 0-2}]}, b: {cpuLists: [{Cpuset: '4'}, {Cpuset: 2-4}]}}}",
            "static-pools.pools.b.cpuLists[1].Cpuset: '2-4': CPUs 2,4 are in a list before it too; name each CPU in",
        ),
        (
            "dynamic-pools: {dynamicPoolTypes: [{name: a, namespaces: [b*, 'x[']}]}",
            "dynamic-pools.dynamicPoolTypes[0].namespaces[1]: 'x[' is no pattern; write a class of letters as [a-z]",
        ),
        ("dynamic-pools: {reservedPoolNamespaces: ['[']}", "dynamic-pools.reservedPoolNamespaces[0]: '[' is no patter"),
        ("static-pools: {ConfDirPath: /etc/cmk}", "static-pools.ConfDirPath: pools are not read from other files"),
        ("dynamic-pools: {dynamicPoolTypes: [{name: reserved}]}", "dynamic-pools.dynamicPoolTypes[0].name: 'reserved'"),
    ],
)
def test_faults_of_the_other_policies(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(f"policy: {{{text}}}", tmp_path)
    assert caught.value.faults[0].startswith(f"policy.{fault}")


@pytest.mark.parametrize("pattern", ["[", "a[", "[]", "[^]", "[a-]", "[-a]", "[a/b]", "[!a]", r"\*"])
def test_a_pattern_that_is_none_is_refused(pattern: str, tmp_path: Path) -> None:
    """Go's path.Match has an error for each but the last three."""
    found = told(f"{{preserve: [{{key: name, operator: MatchesNone, values: ['{pattern}']}}]}}", tmp_path)
    assert found[0].startswith("policy.balloons.preserve[0].values[0]: '")


def test_patterns_that_go_takes_are_taken(tmp_path: Path) -> None:
    patterns = ["", "*", "web-[0-9]", "[^a-z]?", "[[]", "a]", "[*]", "[a-cx-z]/*", "[^^]", "[^!]", "[a^]"]
    text = f"{{key: name, operator: MatchesAny, values: {patterns}}}"
    found = loaded(f"policy: {{balloons: {{preserve: [{text}], reservedPoolNamespaces: {patterns}}}}}", tmp_path)
    assert found.policy.balloons.reserved_pool_namespaces == tuple(patterns)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    assert len(told("{pinCPU: 3, BalloonTypes: [{nme: a}, {name: b, minCPUs: x}], loadClasses: []}", tmp_path)) == 3


def told(section: str, folder: Path) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(f"policy:\n  reserved: 2\n  balloons: {section}", folder)
    line = f" ({folder}/s.yaml line 3)"
    assert all(fault.endswith(line) for fault in caught.value.faults)
    return [fault.removesuffix(line) for fault in caught.value.faults]


KEYS = sorted({name for kind in SECTIONS.values() for one in kinds(kind) for name in spellings(one)})
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.floats() | st.text(max_size=6) | st.sampled_from(KEYS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["balloons", "podpools", "static-pools", "dynamic-pools"]), values))
def test_whatever_is_written_is_read_or_refused(sections: dict[str, object]) -> None:
    faults, settings = list[str](), Settings()
    try:
        settings = from_tree({"policy": sections}, {})
    except SettingsError as error:
        faults = error.faults
    assert all(fault.startswith("policy.") for fault in faults)
    assert from_tree(json.loads(json.dumps(last_good.plain(settings))), {}) == settings


def test_scheduling_classes_are_read_and_bounded(tmp_path: Path) -> None:
    """In the words of nri-plugins. What the kernel would refuse is refused here: a container would not start."""
    section = "{schedulingClasses: [{name: a, %s}], balloonTypes: [{name: b, schedulingClass: a}]}"
    text = section % "policy: rr, priority: 5, flags: [reset-on-fork], ioClass: be, ioPriority: 7"
    found = loaded(f"policy: {{balloons: {text}}}", tmp_path).policy.balloons
    rr = SchedulingClass("a", Scheduler.RR, 5, (SchedulerFlag.RESET_ON_FORK,), io_class=IoClass.BE, io_priority=7)
    assert (found.scheduling_classes, found.balloon_types[0].scheduling_class) == ((rr,), "a")

    for keys, fault in {
        "policy: fifo": ".priority: 0: fifo and rr need one from 1 to 99, and others have none",
        "priority: 3": ".priority: 3: fifo and rr need one",
        "nice: 20": ".nice: 20 is no whole number from -20 to 19",
        "policy: deadline, runtime: 5, deadline: 4": ": deadline needs runtime, deadline and period in nanoseconds",
        "policy: iso": ".policy: 'iso' is not allowed; one of none, other, fifo, rr, batch, idle, deadline",
    }.items():
        (first, *_) = told(section % keys, tmp_path)
        assert f"[0]{fault}" in first


def test_what_is_taken_and_not_enforced_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    section = dict.fromkeys(NOT_ENFORCED[pools.BalloonsSettings]) | {
        "loadClasses": [{"name": "avx", "level": "core"}],
        "balloonTypes": [{"name": "a", "loads": ["avx"], **dict.fromkeys(("cpuClass", "irqClaim", "irqMode"), "x")}],
    }
    caplog.set_level(logging.WARNING)
    found = loaded(json.dumps({"policy": {"balloons": section}}), tmp_path).policy.balloons

    assert found == pools.BalloonsSettings(balloon_types=(pools.BalloonType("a"),))
    said = [record.getMessage().split()[1] for record in caplog.records]
    assert sorted(one.rpartition(".")[2] for one in said) == sorted(
        [*NOT_ENFORCED[pools.BalloonsSettings], "loads", "cpuClass", "irqClaim", "irqMode"]
    )


def test_the_schema_knows_every_spelling_and_no_other_key() -> None:
    defined = schema()["$defs"]
    assert isinstance(defined, dict)
    kind = defined["BalloonType"]
    assert not kind["additionalProperties"]
    assert {"MinCPUs", "minCPUs", "min_cpus", "cpuClass", "CpuClass"} < set(kind["properties"])
