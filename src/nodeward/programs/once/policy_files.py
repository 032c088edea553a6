"""Shows what a policy file of nri-plugins or CRI Resource Manager means to Nodeward, key by key.

These forms are read: objects of `config.nri`, nri-plugins' plain configuration (a spec alone) and the values of its
chart, CRI Resource Manager's file, and ConfigMaps: those of its node agent, and such that hold a file of these.
Promises: each key of the file has a verdict and its line; a file is read as strictly as settings are. Must not: change
anything.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from nodeward.features.cpus.pool_settings import BalloonsSettings, TopologyAwareSettings
from nodeward.features.cpus.settings import AmountKind, PolicySettings
from nodeward.features.cpus.spelling import policy, pools
from nodeward.features.settings import PolicyObjectsSection
from nodeward.neighbours.kubernetes import policy_format
from nodeward.neighbours.kubernetes.policy_object import PolicyKind
from nodeward.programs.cri_resmgr.options import MODULES
from nodeward.programs.cri_resmgr.yaml import unheeded
from nodeward.settings import load
from nodeward.settings.load import SettingsError
from nodeward.settings.policy_object import BESIDE, POD_RESOURCES, below_spec, sections

API_VERSION = policy_format.API.removeprefix("/apis/")
DONE, DIFFERS, NOT_ENFORCED, REFUSED = "done", "differs", "not enforced", "refused"
_BALLOONS: Mapping[str, str] = {
    "reservedResources": "CPUs reserved by a cpuset are the balloon reserved's even without maxCPUs, and nobody else's",
    "hideHyperthreads": "a thread that is lent does not take the place of the balloon's own thread of that core",
    "components": "no component is left without a CPU where the size does not divide evenly",
    "preferIsolCpus": "CPUs that the kernel isolates go only to types that ask for them, also where others are short",
}
_OF_AGENT = (
    "nodeward agent does it where it pushes this configuration, and publishes the exclusive cores; nobody else does"
)
_STATIC_POOLS: Mapping[str, str] = {
    "pools": "a pool is chosen by annotation, not by environment or command line; of the lists of a shared pool a "
    "container gets the one with fewest containers, not a random one; no CMK_ variables are set",
    "labelNode": _OF_AGENT,
    "taintNode": _OF_AGENT,
}
_TOPOLOGY_AWARE: Mapping[str, str] = {
    "unlimitedBurstable": "without room at the level a pool below it comes before one above; nri-plugins has no fixed "
    "order there",
}
_OTHERS: Mapping[str, Mapping[str, str]] = {
    "static-plus": {"Active": "containers of kube-system stay on the reserved CPUs: docs/cpus.md"},
    "dynamic-pools": {"Active": "use is measured every ten seconds, and no container waits for it"},
    "static-pools": _STATIC_POOLS,
    "balloons": _BALLOONS,
    "topology-aware": _TOPOLOGY_AWARE,
}
"""By policy, keys whose meaning is another here, and how."""
_AMOUNTS = ("availableresources", "reservedresources", "available", "reserved")
_PLACED = "after a change each container keeps the CPUs that it may keep; a resize in place grows or shrinks its pool"
_MODULE = "is no part of the policy, and Nodeward does not do it yet, or has settings of its own for it"
_RELAYED: Mapping[str, str] = {
    "dump": "is no part of the policy: the relay takes its rules (docs/relay.md)",
    "logger": "is no part of the policy: the relay takes the level from a file, and nothing from a ConfigMap",
}
"""Modules beside the policy that the relay takes in part."""
_FORMS = (
    "is no policy's configuration: give a BalloonsPolicy or TopologyAwarePolicy object, nri-plugins' configuration, "
    "CRI Resource Manager's file with the section policy, or its ConfigMap"
)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key of the file. `verdict`: done, differs, not enforced, refused. `line` 0 where the fault has no key."""

    path: str
    line: int
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """One document. `section` is the policy in the words of settings, empty where something is refused."""

    what: str
    policy: str
    rows: tuple[KeyRow, ...]
    notes: tuple[str, ...] = ()
    section: Mapping[str, object] | None = None

    @property
    def is_refused(self) -> bool:
        """Whether Nodeward would not take it."""
        return any(row.verdict == REFUSED for row in self.rows)


Lines = Mapping[str, int]


def check(path: str) -> tuple[Checked, ...]:
    """Each document of the file. SettingsError for a file, or a document, that is no policy's configuration."""
    documents = load.documents(load.read_bytes(path), path)
    with _silent():
        found = tuple(one for tree, lines in documents if tree for one in _documents(tree, lines, path))
    if not found:
        raise SettingsError([f"{path}: {_FORMS}"])
    return found


def policy_of(path: str) -> tuple[Mapping[str, object], PolicySettings]:
    """The one policy of a file: as the section `policy`, and read. SettingsError where something is refused."""
    found = check(path)
    faults = [f"{_where(path, row)}: {row.why}" for one in found for row in one.rows if row.verdict == REFUSED]
    if faults:
        raise SettingsError(faults)
    if len(found) > 1:
        names = ", ".join(one.what for one in found)
        raise SettingsError([f"{path}: holds {len(found)} policies ({names}), and a plan is made of one: leave one in"])
    section = dict(found[0].section or {})
    with _silent():
        return section, policy.read(*policy.respelled(section, faults), faults)


@contextmanager
def _silent() -> Iterator[None]:
    """Without the log's lines of what is not enforced: `check` has a row for each."""
    said = [logging.getLogger(one.__name__) for one in (pools, policy)]
    for one in said:
        one.disabled = True
    try:
        yield
    finally:
        for one in said:
            one.disabled = False


def _plain(name: object) -> str:
    """A key without what spellings differ in."""
    return str(name).replace("_", "").lower()


def _where(path: str, row: KeyRow) -> str:
    return f"{path} line {row.line}: {row.path}" if row.line else f"{path}: {row.path}"


def _documents(tree: object, lines: Lines, path: str) -> Iterator[Checked]:
    """A document, or the files that a ConfigMap holds beside modules."""
    data = tree.get("data") if isinstance(tree, dict) and tree.get("kind") == "ConfigMap" else None
    if not isinstance(tree, dict) or not isinstance(data, dict) or set(data) <= set(MODULES):
        yield _document(tree, lines, path)
        return
    metadata, modules = tree.get("metadata"), {key: text for key, text in data.items() if key in MODULES}
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    for key, text in data.items():
        if key not in MODULES:
            at = lines.get(f"data.{key}", 0)
            for found, below in load.documents(str(text).encode(), f"{path} line {at}"):
                inner = _document(found, {inside: at + line for inside, line in below.items()}, f"{path} line {at}")
                yield replace(inner, what=f"{inner.what} in ConfigMap {name} ({key})")
    if modules:
        yield _config_map({**tree, "data": modules}, lines, path)


def _document(tree: object, lines: Lines, path: str) -> Checked:
    if not isinstance(tree, dict):
        raise SettingsError([f"{path}: {_FORMS}"])
    kind = str(tree.get("kind", ""))
    if str(tree.get("apiVersion", "")).startswith("config.nri/") or kind in [one.value for one in PolicyKind]:
        return _object(tree, lines, kind)
    if kind == "ConfigMap":
        return _config_map(tree, lines, path)
    if "policy" in tree:
        return _cri_resmgr(tree, lines, "a section policy, as in CRI Resource Manager's configuration")
    if _is_spec(tree):
        return _bare(tree, lines, "nri-plugins' configuration", "")
    if isinstance(config := tree.get("config"), dict) and _is_spec(config):
        of = {name.removeprefix("config."): line for name, line in lines.items() if name.startswith("config.")}
        return _bare(config, of, "values of nri-plugins' chart", "config.")
    raise SettingsError([f"{path}: {_FORMS}"])


def _is_spec(tree: Mapping[str, object]) -> bool:
    known = {_plain(name) for name in ("balloonTypes", "reservedPoolNamespaces", *sections({"a": 0})[0])}
    return any(_plain(name) in known for name in tree) or _kind_of(tree) is PolicyKind.TOPOLOGY_AWARE


def _kind_of(tree: Mapping[str, object]) -> PolicyKind:
    """By a key that only the one policy has; balloons where it could be both."""
    own, others = (
        {_plain(name) for name in (*(one.name for one in fields(section)), *pools.NOT_ENFORCED[section])}
        for section in (TopologyAwareSettings, BalloonsSettings)
    )
    own -= others
    return PolicyKind.TOPOLOGY_AWARE if any(_plain(name) in own for name in tree) else PolicyKind.BALLOONS


def _bare(tree: Mapping[str, object], lines: Lines, what: str, above: str) -> Checked:
    """A spec without its object, whose keys stand below `above` in the file."""
    kind = PolicyKind.BALLOONS if any(_plain(name) == "balloontypes" for name in tree) else _kind_of(tree)
    found = _spec(tree, {f"spec.{name}": line for name, line in lines.items()}, what, kind=kind)
    return replace(found, rows=tuple(replace(row, path=above + row.path.removeprefix("spec.")) for row in found.rows))


def _object(tree: Mapping[str, object], lines: Lines, kind: str) -> Checked:
    metadata = tree.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    what = f"{kind} {name}".rstrip()
    known = next((one for one in PolicyKind if one.value == kind), None)
    if known is None:
        why = f"{kind!r} is no kind of a policy; write {' or '.join(one.value for one in PolicyKind)}"
        return Checked(what, kind, (KeyRow("kind", lines.get("kind", 0), REFUSED, why),))
    spec = tree.get("spec")
    if not isinstance(spec, dict):
        return Checked(what, kind, (KeyRow("spec", lines.get("spec", 0), REFUSED, "is no mapping of settings"),))
    notes: tuple[str, ...] = () if name == "default" or name.startswith(("node.", "group.")) else (_unused(name),)
    namespace = str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""
    if namespace not in ("", PolicyObjectsSection().namespace):
        notes += (f"objects of the namespace {namespace!r} count only where policy_objects.namespace names it",)
    found = _spec(spec, {path: line for path, line in lines.items() if path.startswith("spec.")}, what, notes, known)
    version = str(tree.get("apiVersion", ""))
    if version == API_VERSION:
        return found
    why = f"{version!r} is not the version that Nodeward reads; write {API_VERSION}"
    return replace(found, rows=(KeyRow("apiVersion", lines.get("apiVersion", 0), REFUSED, why), *found.rows))


def _unused(name: str) -> str:
    return f"an object of the name {name!r} means no node: name it default, group.GROUP or node.NODE"


def _spec(
    spec: Mapping[str, object],
    lines: Lines,
    what: str,
    notes: tuple[str, ...] = (),
    kind: PolicyKind = PolicyKind.BALLOONS,
) -> Checked:
    section, _ = sections(spec, kind)
    faults = list[str]()
    chosen = policy.read(*policy.respelled(section, faults), faults)
    rows = _rows(lines, "spec.", [below_spec(fault) for fault in faults], chosen)
    return Checked(what, chosen.active, rows, (*notes, _PLACED), section)


def _config_map(tree: Mapping[str, object], lines: Lines, path: str) -> Checked:
    """Each key of its data is a module, whose value is YAML."""
    metadata, data = tree.get("metadata"), tree.get("data")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    modules, inside = dict[str, object](), dict[str, int]()
    for module, text in (data if isinstance(data, dict) else {}).items():
        at = lines.get(f"data.{module}", 0)
        inside[str(module)] = at
        for found, below in load.documents(str(text).encode(), f"{path} line {at}")[:1]:
            modules[str(module)] = found
            inside |= {f"{module}.{key}": at + line for key, line in below.items()}
    if not modules:
        raise SettingsError([f"{path}: {_FORMS}"])
    return _cri_resmgr(modules, inside, f"ConfigMap {name}".rstrip())


def _cri_resmgr(tree: Mapping[str, object], lines: Lines, what: str) -> Checked:
    faults = list[str]()
    for module in tree:
        if module not in MODULES:
            faults.append(f"{module}: is no module of CRI Resource Manager; modules are {', '.join(MODULES)}")
    section: object = tree.get("policy") or {}
    idle = unheeded(section) if isinstance(section, dict) else {}
    if isinstance(section, dict):
        section = {key: _without(value, key, idle) for key, value in section.items() if (key,) not in idle}
    chosen = policy.read(*policy.respelled(section, faults), faults)
    rows = _rows(lines, "policy.", faults, chosen, {".".join(("policy", *path)): why for path, why in idle.items()})
    named = next((row.path for row in rows if row.verdict == REFUSED and _plain(row.path) == "policy.active"), "")
    written = str(section[named.removeprefix("policy.")]) if isinstance(section, dict) and named else chosen.active
    return Checked(what, written, rows, (_PLACED,), section if isinstance(section, dict) else None)


def _without(value: object, key: str, idle: Mapping[tuple[str, ...], str]) -> object:
    return {name: one for name, one in value.items() if (key, name) not in idle} if isinstance(value, dict) else value


def _rows(
    lines: Lines, above: str, faults: Iterable[str], chosen: PolicySettings, idle: Mapping[str, str] | None = None
) -> tuple[KeyRow, ...]:
    """A row for each key, and for each fault: the fault's is the longest path that it begins with. `idle`: paths that
    have no effect, and why."""
    refused = dict[str, str]()
    for fault in faults:
        path, _, why = fault.partition(": ")
        near = max((one for one in lines if _is_in(path, one)), key=len, default="")
        key = path if path in lines or not near else near
        told = why if key == path else f"{path.removeprefix(near).lstrip('.')}: {why}"
        refused[key] = f"{refused[key]}; {told}" if key in refused else told
    rows = [*_verdicts(lines, above, refused, chosen, idle or {})]
    rows += [KeyRow(path, 0, REFUSED, why) for path, why in refused.items() if path not in lines]
    return tuple(rows)


def _is_in(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above}.", f"{above}["))


def _verdicts(
    lines: Lines, above: str, refused: Mapping[str, str], chosen: PolicySettings, without_effect: Mapping[str, str]
) -> Iterator[KeyRow]:
    idle = {_plain(key): why for of in pools.NOT_ENFORCED.values() for key, why in of.items()}
    differs = {_plain(key): why for key, why in _OTHERS.get(chosen.active, {}).items()}
    if chosen.reserved.kind is not AmountKind.CPUSET:
        differs.pop("reservedresources", None)
    closed = ""
    for path, line in lines.items():
        if closed and _is_in(path, closed):
            continue
        name = _plain(path.rpartition(".")[2])
        if path in refused:
            if not path.endswith("]") and not any(one != path and _is_in(one, path) for one in refused):
                closed = path
            yield KeyRow(path, line, REFUSED, refused[path])
        elif path in without_effect:
            closed = path
            yield KeyRow(path, line, NOT_ENFORCED, without_effect[path])
        elif not path.startswith(above):
            if path != above.rstrip("."):
                closed = path
                is_taken = path in _RELAYED
                yield KeyRow(path, line, DIFFERS if is_taken else NOT_ENFORCED, _RELAYED.get(path, _MODULE))
        elif path.endswith("]"):
            continue
        elif above == "spec." and path.startswith("spec.agent."):
            closed = path
            is_read = path == f"spec.agent.{POD_RESOURCES}"
            yield KeyRow(path, line, DONE) if is_read else KeyRow(path, line, NOT_ENFORCED, BESIDE["agent"])
        elif path == "spec.agent" and above == "spec.":
            continue
        elif path.count(".") == 1 and above == "spec." and path.removeprefix(above) in BESIDE:
            closed = path
            yield KeyRow(path, line, NOT_ENFORCED, BESIDE[path.removeprefix(above)])
        elif name in policy.NOT_DIVIDED and _plain(path.split(".")[-2]) in _AMOUNTS:
            yield KeyRow(path, line, NOT_ENFORCED, policy.NOT_DIVIDED[name])
        elif name in idle:
            closed = path
            yield KeyRow(path, line, NOT_ENFORCED, idle[name])
        elif name in differs:
            yield KeyRow(path, line, DIFFERS, differs[name])
        else:
            yield KeyRow(path, line, DONE)
