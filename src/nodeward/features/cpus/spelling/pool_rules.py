"""Rules for pools that a type cannot say, each broken one told with its path."""

import re
from collections.abc import Iterator, Mapping

from nodeward.core import cpuset
from nodeward.core.decision import Scheduler, SchedulingClass
from nodeward.core.workload import MOST, OWN, PREFIXES, Qos
from nodeward.features.cpus.expression import KEYS, OPERATORS, keys_of, labels_named, pieces, references
from nodeward.features.cpus.pool_settings import (
    DEFAULT,
    POD_RESOURCE,
    RESERVED,
    BalloonsSettings,
    BalloonType,
    ClaimNames,
    ClaimsSettings,
    Creation,
    DevicesBy,
    DynamicPoolsSettings,
    Expression,
    PodPool,
    PodpoolsSettings,
    StaticPool,
    StaticPoolsSettings,
    TopologyAwareSettings,
    instances,
)
from nodeward.features.cpus.spelling.words import MAX_ITEMS, MAX_TEXT, camel, near, plain, shown

MAX_PARTS = 64
"""Components of one balloon, those of its components counted too: a few types of types would be billions."""
MAX_FIRST = 256
"""Balloons that all types together have before any container."""
_LABEL = re.compile(r"(?:pod/)?labels/(?:[a-z0-9][a-z0-9.-]*/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PATTERN = re.compile(r"(?:[^\[]|\[(?!!)\^?+(?:[^]-](?:-[^]-])?)+\])*", re.DOTALL)
"""What Go's path matching takes, between slashes; a class that has a slash is refused here. So is `[!`, which is a
negation in Python and none in Go."""


def wrong(found: object, section: object, where: str) -> Iterator[str]:
    """What is wrong with a policy's section; `section` is as it was written."""
    match found:
        case BalloonsSettings():
            yield from _balloon_faults(found, section, where)
        case PodpoolsSettings():
            yield from _name_faults([one.name for one in found.pools], f"{where}.pools")
            for i, one in enumerate(found.pools):
                yield from _pod_pool_faults(one, i, where)
        case StaticPoolsSettings():
            yield from _name_faults([one.name for one in found.pools], f"{where}.pools")
            yield from _list_faults(found.pools, f"{where}.pools")
        case DynamicPoolsSettings():
            names = [RESERVED, *(one.name for one in found.dynamic_pool_types)]
            yield from _name_faults(names, f"{where}.dynamic_pool_types", built_in=1)
            yield from _pattern_faults(found.reserved_pool_namespaces, f"{where}.reservedPoolNamespaces")
            for i, kind in enumerate(found.dynamic_pool_types):
                yield from _pattern_faults(kind.namespaces, f"{where}.dynamic_pool_types[{i}].namespaces")
        case ClaimsSettings():
            if found.names is ClaimNames.DRA_DRIVER_CPU and found.devices is DevicesBy.L3:
                yield f"{where}.devices: dra-driver-cpu has none of an l3 cache; numa or socket"
        case TopologyAwareSettings():
            yield from _pattern_faults(found.reserved_pool_namespaces, f"{where}.reservedPoolNamespaces")
            yield from _scheduling_faults(found.scheduling_classes, _chosen_classes(found), where)
            yield from _class_choice_faults(found, where)
            yield from _label_faults(found.affinity_labels, f"{where}.affinityLabels")


def _expression_faults(one: Expression, where: str) -> Iterator[str]:
    split = keys_of(one.key)
    for key in split[1] if split is not None else [one.key]:
        if not _is_key(key) and one.operator != "AlwaysTrue":
            yield f"{where}.key: {_key_fault(key)}"
    if one.operator not in OPERATORS:
        meant = near(one.operator, OPERATORS)
        hint = f"did you mean {meant}?" if meant else f"operators are {', '.join(OPERATORS)}"
        yield f"{where}.operator: {one.operator!r} is no operator; {hint}"
        return
    least, most = OPERATORS[one.operator]
    if not least <= len(one.values) <= most:
        many = {(1, 1): "exactly one value", (0, 0): "no values"}.get((least, most), "at least one value")
        yield f"{where}.values: {one.operator} takes {many}, and there are {len(one.values)}"
    if one.operator.startswith("Matches"):
        yield from _pattern_faults(one.values, f"{where}.values")


def _pattern_faults(patterns: tuple[str, ...], where: str) -> Iterator[str]:
    for i, one in enumerate(patterns):
        if "\\" in one:
            yield f"{where}[{i}]: {one!r}: a backslash in a pattern is not supported; write [*] for a star"
        elif not all(map(_PATTERN.fullmatch, one.split("/"))):
            yield f"{where}[{i}]: {one!r} is no pattern; write a class of letters as [a-z] or [^a-z], without a slash"


def _is_key(key: str) -> bool:
    return key in KEYS or _LABEL.fullmatch(key) is not None


def _key_fault(key: str) -> str:
    if key.startswith(PREFIXES):
        return f"{key!r}: {key.partition(OWN)[2]!r} is no name of a label; write one such as app.kubernetes.io/name"
    if key.startswith("tags/") or key in ("id", "pod/id"):
        return f"{key!r}: a container has none when it is placed; match by {', '.join(KEYS)} or pod/labels/NAME"
    meant = near(key, KEYS)
    names = f"{', '.join(KEYS)}, labels/NAME, pod/labels/NAME"
    return f"{key!r} is no key; {f'did you mean {meant}?' if meant else f'keys are {names}'}"


def _name_faults(names: list[str], where: str, built_in: int = 0) -> Iterator[str]:
    """Of names that may be written in an annotation. The first ones are there without being written down."""
    for i, name in enumerate(names[built_in:]):
        if not _NAME.fullmatch(name):
            yield f"{where}[{i}].name: {name!r} must be 1 to 63 letters, digits and any of _ . -"
        elif name in names[: i + built_in]:
            yield f"{where}[{i}].name: {name!r} is the name of another one too; names are unique"


def _pod_pool_faults(one: PodPool, i: int, where: str) -> Iterator[str]:
    here, built_in = f"{where}.pools[{i}]", one.name in (DEFAULT, RESERVED)
    if one.cpu < (0 if built_in else 1):
        yield f"{here}.CPU: {one.cpu} is no number of CPUs; write 1 or more"
    if one.max_pods < 0:
        yield f"{here}.MaxPods: {one.max_pods} is less than 0"
    count = instances(one.instances, 1, 0)
    if count is None:
        yield f"{here}.Instances: {one.instances!r} is no number of pools; write 2, 7 cpus or 50%"
    elif one.instances.rstrip().endswith("%") and not instances(one.instances, 1, 1 << 20):
        yield f"{here}.Instances: {one.instances!r} is no share of the CPUs; give at least 1%"
    elif one.cpu > 0 and one.instances.rstrip()[-1:].isalpha() and not instances(one.instances, one.cpu, 0):
        yield f"{here}.Instances: {one.instances!r} is not enough for one pool of {one.cpu} CPUs; give at least these"
    elif built_in and one.instances not in ("", "1"):
        yield f"{here}.Instances: there is one pool {one.name}; leave it out"


def _list_faults(pools: tuple[StaticPool, ...], where: str) -> Iterator[str]:
    taken = 0
    lists = [(f"{where}.{one.name}.cpuLists[{i}].Cpuset", it) for one in pools for i, it in enumerate(one.cpu_lists)]
    for here, given in lists:
        try:
            found = cpuset.parse(given.cpuset)
        except ValueError as error:
            yield f"{here}: {shown(given.cpuset)}: {error}"
            continue
        if not found:
            yield f"{here}: it names no CPU; write CPUs as the kernel does, such as 0-3,8"
        elif found & taken:
            twice = cpuset.text(found & taken)
            yield f"{here}: {shown(given.cpuset)}: CPUs {twice} are in a list before it too; name each CPU in one list"
        taken |= found


def _device_faults(devices: tuple[str, ...], where: str) -> Iterator[str]:
    for i, one in enumerate(devices):
        if one.startswith(POD_RESOURCE):
            if not _PATTERN.fullmatch(one.removeprefix(POD_RESOURCE)) or one == POD_RESOURCE:
                yield f"{where}[{i}]: {shown(one)} names no resources; write such as {POD_RESOURCE}vendor.com/*"
        elif not one.startswith(("/sys/", "/dev/")) or ".." in one.split("/") or "\0" in one:
            yield f"{where}[{i}]: {shown(one)} is no path below /sys or /dev, nor {POD_RESOURCE} before resources"


def _label_faults(labels: tuple[str, ...], where: str) -> Iterator[str]:
    for i, one in enumerate(labels):
        if not _LABEL.fullmatch(f"{OWN}{one}"):
            yield f"{where}[{i}]: {shown(one)} is no key of a label"
    if len(labels) > MOST // len(PREFIXES):
        yield f"{where}: has {len(labels)} labels, more than {MOST // len(PREFIXES)}; leave some out"


def _balloon_faults(rules: BalloonsSettings, section: object, where: str) -> Iterator[str]:
    for i, one in enumerate(rules.preserve):
        yield from _expression_faults(one, f"{where}.preserve[{i}]")
    yield from _pattern_faults(rules.reserved_pool_namespaces, f"{where}.reservedPoolNamespaces")
    types = dict[str, BalloonType]()
    yield from _name_faults([kind.name for kind in rules.balloon_types], f"{where}.balloon_types")
    for i, kind in enumerate(rules.balloon_types):
        here = f"{where}.balloon_types[{i}]"
        types[kind.name] = kind
        yield from _limit_faults(kind, here)
        yield from _pattern_faults(kind.namespaces, f"{here}.namespaces")
        yield from _device_faults(kind.prefer_close_to_devices, f"{here}.preferCloseToDevices")
        for j, one in enumerate(kind.match_expressions):
            yield from _expression_faults(one, f"{here}.matchExpressions[{j}]")
        try:
            pieces(kind.group_by)
        except ValueError as error:
            yield f"{here}.groupBy: {error}"
        for key in references(kind.group_by):
            if not _is_key(key) and keys_of(key) is None:
                yield f"{here}.groupBy: {_key_fault(key)}"
    sizes = dict[str, int]()
    for i, kind in enumerate(rules.balloon_types):
        yield from _component_faults(kind, types, sizes, f"{where}.balloon_types[{i}]")
    if (first := sum(max(kind.min_balloons, 0) for kind in rules.balloon_types)) > MAX_FIRST:
        yield f"{where}.balloon_types: minBalloons of all types are {first} together; at most {MAX_FIRST}"
    named = labels_named(rules)
    if len(named) > MOST:
        yield f"{where}: expressions name {len(named)} labels, more than {MOST}; match by fewer"
    chosen = {f"balloon_types[{i}].schedulingClass": one.scheduling_class for i, one in enumerate(rules.balloon_types)}
    yield from _scheduling_faults(rules.scheduling_classes, chosen, where)
    yield from _class_faults(section, where)


def _chosen_classes(rules: TopologyAwareSettings) -> Mapping[str, str]:
    """The scheduling classes that are chosen, by the path of who chooses."""
    lists = {
        "namespaceSchedulingClasses": rules.namespace_scheduling_classes,
        "podQoSSchedulingClasses": rules.pod_qos_scheduling_classes,
    }
    return {f"{path}.{one.name}": one.scheduling_class for path, ones in lists.items() for one in ones}


def _class_choice_faults(rules: TopologyAwareSettings, where: str) -> Iterator[str]:
    known = [one.value.lower() for one in Qos]
    lists = {
        "namespaceSchedulingClasses": [one.name for one in rules.namespace_scheduling_classes],
        "podQoSSchedulingClasses": [one.name.lower() for one in rules.pod_qos_scheduling_classes],
    }
    for path, names in lists.items():
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield f"{where}.{path}: {name!r} has more than one class; keep one of them"
    for one in rules.pod_qos_scheduling_classes:
        if one.name.lower() not in known:
            yield f"{where}.podQoSSchedulingClasses: {one.name!r} is no QoS class; one of {', '.join(known)}"


def _scheduling_faults(classes: tuple[SchedulingClass, ...], chosen: Mapping[str, str], where: str) -> Iterator[str]:
    """Of the classes, and of those that are chosen, by the path of who chooses."""
    names = [one.name for one in classes]
    yield from _name_faults(names, f"{where}.scheduling_classes")
    for i, one in enumerate(classes):
        here = f"{where}.scheduling_classes[{i}]"
        if (one.policy in (Scheduler.FIFO, Scheduler.RR)) != (one.priority > 0):
            yield f"{here}.priority: {one.priority}: fifo and rr need one from 1 to 99, and others have none"
        is_timed = 0 < one.runtime <= one.deadline <= (one.period or one.deadline)
        if one.policy is Scheduler.DEADLINE and not is_timed:
            yield f"{here}: deadline needs runtime, deadline and period in nanoseconds, none less than the one before"
    for path, name in chosen.items():
        if name and name not in names:
            yield f"{where}.{path}: {name!r} is no scheduling class; define it in schedulingClasses"


def _limit_faults(kind: BalloonType, where: str) -> Iterator[str]:
    for low, high, word, least in (
        (kind.min_cpus, kind.max_cpus, "CPUs", -1),
        (kind.min_balloons, kind.max_balloons, "Balloons", 0),
    ):
        if low < 0:
            yield f"{where}.min{word}: {low} is less than 0"
        if high < least:
            yield f"{where}.max{word}: {high} is less than {least}"
        elif high and low > max(high, 0):
            yield f"{where}.min{word}: {low} is more than max{word}, which is {high}; lower the one or raise the other"
    if kind.name == RESERVED and max(kind.min_balloons, kind.max_balloons) > 1:
        yield f"{where}: there is one balloon of the type {RESERVED}; leave minBalloons and maxBalloons out, or write 1"


def _component_faults(
    kind: BalloonType, types: Mapping[str, BalloonType], sizes: dict[str, int], where: str
) -> Iterator[str]:
    if not kind.components:
        if kind.component_creation is not Creation.ALL:
            yield f"{where}.componentCreation: there are no components; name them, or leave it out"
        return
    own = ("allocator_topology_balancing", "prefer_spread_on_physical_cores", "prefer_isol_cpus")
    given = [camel(name) for name in own if getattr(kind, name) not in (None, False)]
    given += ["preferCoreType"] if kind.prefer_core_type.value else []
    for name in given:
        yield f"{where}.{name}: a type with components has no CPUs of its own; write it at the components"
    for name in kind.components:
        if name not in types:
            meant = near(name, types)
            yield f"{where}.components: {name!r} is no type; {f'did you mean {meant}?' if meant else 'define it'}"
    if kind.name in _reached(kind, types):
        yield f"{where}.components: {kind.name} is among the components of its own components; leave one out"
    elif _parts(kind.name, types, sizes) > MAX_PARTS:
        yield f"{where}.components: a balloon has more than {MAX_PARTS} components, with those of its components"


def _parts(name: str, types: Mapping[str, BalloonType], sizes: dict[str, int]) -> int:
    """How many components a balloon of the type has in the end, or one more than MAX_PARTS. `sizes` has those that are
    known; a type that is in itself counts as one."""
    if name not in sizes:
        sizes[name] = 1
        inner = types[name].components if name in types else ()
        sizes[name] = min(sum(_parts(one, types, sizes) for one in inner) or 1, MAX_PARTS + 1)
    return sizes[name]


def _reached(kind: BalloonType, types: Mapping[str, BalloonType]) -> set[str]:
    """Names of all components, and of theirs."""
    found, left = set[str](), list(kind.components)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += types[name].components if name in types else ()
    return found


def _class_faults(section: object, where: str) -> Iterator[str]:
    """Of load and CPU classes, which are not enforced: names that nothing defines."""
    if not isinstance(section, dict):
        return
    at = {plain(name): value for name, value in section.items()}
    loads = dict(_named(at.get("loadclasses")))
    for name, one in loads.items():
        if not one.get("level"):
            yield f"{where}.loadClasses: the class {name[:64]!r} has no level; write core or l2cache"
    types = at.get("balloontypes")
    for i, raw in enumerate(types if isinstance(types, list) else ()):
        kind = {plain(name): value for name, value in raw.items()} if isinstance(raw, dict) else {}
        here = f"{where}.balloon_types[{i}]"
        wanted = kind.get("loads")
        for load in wanted if isinstance(wanted, list) else [wanted] if wanted else []:
            if not isinstance(load, str) or load not in loads:
                yield f"{here}.loads: {shown(load)} is no load class; define it in loadClasses"
        if kind.get("components") and kind.get("cpuclass"):
            yield f"{here}.cpuClass: a type with components has no CPUs of its own; write it at the components"


def _named(classes: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    for one in classes[:MAX_ITEMS] if isinstance(classes, list) else ():
        if isinstance(one, dict):
            found = {plain(key): value for key, value in one.items()}
            yield str(found.get("name", ""))[:MAX_TEXT], found
