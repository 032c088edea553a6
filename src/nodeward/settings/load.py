"""Settings from a YAML file, the environment and flags: strict, all faults at once, each with its path.

Order: built-in defaults, the file, `NODEWARD_LIMITS__MODE=observe` (two underscores between the levels), flags. Unknown
keys are refused, and each fault says which file and line, variable or flag it comes from. YAML aliases are refused,
since a few bytes of them can become gigabytes.
"""

import dataclasses
import enum
import logging
import posixpath
import re
import typing
from collections.abc import Iterator, Mapping
from types import UnionType

import msgspec
import yaml

from nodeward.core.annotations import CPU_REQUESTS
from nodeward.core.errors import NodewardError, WireError
from nodeward.core.gating import CONDITIONS, MOST_HANDLERS, listed
from nodeward.core.modes import EPC_RESOURCE, NFD_NUMBERS, Mode
from nodeward.core.setting import is_absolute, meanings
from nodeward.features.cpus.pool_settings import ClaimNames
from nodeward.features.cpus.settings import MOST_LATE_MS, Amount, Driver
from nodeward.features.cpus.spelling import policy
from nodeward.features.keys.settings import Attestation, CapacitySource, KeyKind, Publisher, Share
from nodeward.features.limits.settings import GivenBy
from nodeward.features.sandboxes.settings import unlimited
from nodeward.features.settings import SECRETS, DumpSection, KubeSection, Settings
from nodeward.host.hostfs import opened
from nodeward.neighbours.formats.cgroup_paths import kubepods
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS

log = logging.getLogger(__name__)
MAX_BYTES = 1024 * 1024
MAX_PATH = 256
"""So much of a path is shown in a fault."""
PREFIX = "NODEWARD_"
DEFAULT = "default"
"""The source of a setting that nobody gave."""
MOST_UIDS, MOST_UID = 64, 2**32 - 1
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_TOP = [field.name for field in dataclasses.fields(Settings)]

Tree = dict[str, object]


class SettingsError(NodewardError):
    """Settings with faults. `faults` holds them all, each `path: what is wrong and what is allowed`."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class _Strict(yaml.SafeLoader):
    """Without aliases, and without keys that stand twice: of those YAML would take the last and say nothing."""

    def compose_mapping_node(self, anchor: dict[str, yaml.Node]) -> yaml.MappingNode:  # typed so by PyYAML's stubs
        node = super().compose_mapping_node(anchor)
        seen: dict[object, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            line = key.start_mark.line + 1
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.YAMLError(f"line {line}: merge keys (<<) are not allowed here; write the keys themselves")
            if key.value in seen:
                raise yaml.YAMLError(f"line {line}: {key.value} stands here again, first on line {seen[key.value]}")
            seen[key.value] = line
        return node

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed in settings")
        return super().compose_node(parent, index)


def _parsed(data: bytes) -> tuple[yaml.Node | None, object]:
    loader = _Strict(data)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def parsed(data: bytes) -> object:
    """The content of YAML, without aliases and repeated keys. YAML_FAULTS for what is none."""
    return _parsed(data)[1]


def documents(data: bytes, where: str) -> list[tuple[object, Mapping[str, int]]]:
    """Every document of a YAML text, as strict as settings, with the line of each path in it."""
    found = list[tuple[object, Mapping[str, int]]]()
    try:
        loader = _Strict(data)
        try:
            while loader.check_node():
                node = loader.get_node()
                found.append((loader.construct_document(node), dict(_lines(node))))
        finally:
            loader.dispose()
    except YAML_FAULTS as error:
        raise SettingsError([f"{where}: is no YAML: {' '.join(str(error).split())}"]) from error
    return found


def read_bytes(path: str) -> bytes:
    """A file's content. SettingsError for one that is missing or too large."""
    try:
        with opened(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror}"]) from error
    if len(data) > MAX_BYTES:
        raise SettingsError([f"{path}: larger than {MAX_BYTES} bytes"])
    return data


def read_yaml(path: str) -> Tree:
    """The mapping in a YAML file. SettingsError for one that is missing, too large or no mapping."""
    data = read_bytes(path)
    try:
        node, tree = _parsed(data)
    except YAML_FAULTS as error:
        raise SettingsError([f"{path}: is no YAML: {' '.join(str(error).split())}"]) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError([f"{path}: holds a {type(tree).__name__}; settings are a mapping of sections"])
    return _FromFile(path, typing.cast(Tree, tree), node)


class _FromFile(Tree):
    """What a file holds, and the file and line of each setting by its path."""

    def __init__(self, path: str, tree: Tree, node: yaml.Node | None) -> None:
        super().__init__(tree)
        self.places = {name: f"{path} line {line}" for name, line in _lines(node)}


def _lines(node: yaml.Node | None, above: str = "") -> Iterator[tuple[str, int]]:
    """Each key of a mapping and of those within it: its dotted path, and its line. An item of a list is `key[0]`."""
    if isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            yield f"{above[:-1]}[{i}]", value.start_mark.line + 1
            yield from _lines(value, f"{above[:-1]}[{i}].")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield f"{above}{key.value}", key.start_mark.line + 1
                yield from _lines(value, f"{above}{key.value}.")


def load(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
    given_by: Mapping[str, str] | None = None,
) -> Settings:
    """The settings. `flags` maps dotted paths to texts, and `given_by` those that did not come by --set to what faults
    say they came by. Raises SettingsError with every fault."""
    return from_tree(read_yaml(path) if path else {}, environ, flags, given_by)


def from_tree(
    tree: Tree,
    environ: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
    given_by: Mapping[str, str] | None = None,
    beneath: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a file's content, checked as `load` does. `beneath`: settings that stand as if the file had them,
    below environment and flags."""
    return _sourced(tree, environ, flags, given_by, beneath)[0]


def sourced(
    path: str | None, environ: Mapping[str, str], flags: Mapping[str, str] | None = None
) -> list[tuple[str, object, str]]:
    """The settings as `load` returns them: the path of each setting, its value, and where it comes from: file and line,
    variable, flag or default."""
    settings, where = _sourced(read_yaml(path) if path else {}, environ, flags)
    return [(name, _value(settings, name), (_written(name, where) or [DEFAULT])[-1]) for name in _paths(Settings)]


def _value(settings: object, path: str) -> object:
    for name in path.split("."):
        settings = getattr(settings, name)
    return settings


def _sourced(
    tree: Tree,
    environ: Mapping[str, str],
    flags: Mapping[str, str] | None = None,
    given_by: Mapping[str, str] | None = None,
    beneath: Mapping[str, str] | None = None,
) -> tuple[Settings, Mapping[str, str]]:
    """The settings, and the place of each that is no default."""
    faults: list[str] = []
    where = dict(tree.places) if isinstance(tree, _FromFile) else {}
    spelled: dict[str, str] = {}
    if policy.SECTION in tree:
        tree[policy.SECTION], found = policy.respelled(tree[policy.SECTION], faults)
        spelled |= found
    for dotted, text in (beneath or {}).items():
        parts = policy.canonical(dotted.split("."))
        where[".".join(parts)] = (given_by or {}).get(dotted, dotted)
        _put(tree, parts, text, faults)
    for name, text in environ.items():
        parts = name.removeprefix(PREFIX).lower().split("__")
        # A Service named nodeward puts NODEWARD_PORT and the like into every pod: without a level it is not for us.
        if name.startswith(PREFIX) and (len(parts) > 1 or parts[0] in _TOP):
            parts = policy.canonical(parts)
            where[".".join(parts)] = f"environment {name}"
            spelled.pop(".".join(parts), None)
            _ship(tree, parts)
            _put(tree, parts, text, faults)
    for dotted, text in (flags or {}).items():
        parts = policy.canonical(dotted.split("."))
        where[".".join(parts)] = (given_by or {}).get(dotted, f"flag --set {dotted}=...")
        spelled.pop(".".join(parts), None)
        _ship(tree, parts)
        _put(tree, parts, text, faults)
    settings = _build(Settings, {name: value for name, value in tree.items() if name != policy.SECTION}, "", faults)
    if isinstance(settings, Settings):
        chosen = policy.read(_read_below(tree.get(policy.SECTION, {})), spelled, faults)
        settings = dataclasses.replace(settings, policy=chosen)
        _check(settings, faults)
    if faults or not isinstance(settings, Settings):
        raise SettingsError([_with_source(fault, where) for fault in faults])
    return settings, {".".join(policy.canonical(one.split("."))): source for one, source in where.items()}


def _with_source(fault: str, where: Mapping[str, str]) -> str:
    """The fault, and where what it is about was written: the setting, something within it, or what it is in."""
    path, _, what = fault.partition(": ")
    source = _source(path, where)
    shown = fault if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}...: {what}"
    return f"{shown} ({source})" if source else shown


def _source(path: str, where: Mapping[str, str]) -> str:
    """Where this setting was written, something within it, or what it is in; empty for nowhere."""
    sources = _written(path, where)
    sources = sources or [source for one, source in where.items() if path.startswith(f"{one}.")]
    return sources[-1] if sources else ""


def _written(path: str, where: Mapping[str, str]) -> list[str]:
    """Where this setting was written, or things within it."""
    return [where[path]] if path in where else [place for one, place in where.items() if one.startswith(f"{path}.")]


def misnamed(environ: Mapping[str, str]) -> list[str]:
    """Variables that are not read and surely mean a setting: but for underscores they are its name.

    A Service named nodeward-webhook puts NODEWARD_WEBHOOK_PORT=tcp://... into pods, which means no setting.
    """
    meant = {path.replace(".", "").replace("_", ""): path for path in _paths(Settings)}
    found: list[str] = []
    for name, text in environ.items():
        rest = name.removeprefix(PREFIX).lower()
        path = meant.get(rest.replace("_", ""), "")
        right = PREFIX + path.upper().replace(".", "__")
        is_of_service = name.endswith("_PORT") and "://" in text
        if name.startswith(PREFIX) and path and name != right and "__" not in rest and not is_of_service:
            found.append(f"environment {name}: is not read; for the setting {path} write {right}")
    return found


def warn(environ: Mapping[str, str]) -> None:
    """Says in the log what `misnamed` finds."""
    for warning in misnamed(environ):
        log.warning("settings=not-read why=%r", warning)


def _paths(kind: type, above: str = "") -> Iterator[str]:
    """The dotted path of every setting."""
    for name, hint in typing.get_type_hints(kind).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint is not Amount:
            yield from _paths(hint, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def schema() -> Tree:
    """The JSON Schema of the settings file; unknown keys are refused there too."""
    (reference,), components = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    for component in components.values():
        component["additionalProperties"] = component.get("additionalProperties", False)
    components |= policy.schema()
    _describe(components, Settings)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **reference, "$defs": components}


def _describe(components: Mapping[str, Tree], kind: type) -> None:
    """Puts the meaning of each setting below the dataclass `kind`, and its bounds, into the schema of it."""
    properties = components[kind.__name__]["properties"]
    assert isinstance(properties, dict)
    told = dict(meanings(kind))
    for name, hint in typing.get_type_hints(kind).items():
        if (meaning := told.get(name)) is not None:
            bounds = {"minimum": meaning.least, "maximum": meaning.most}
            known = {key: bound for key, bound in bounds.items() if bound is not None}
            properties[name] = {**properties[name], **known, "description": meaning.whole}
        below = _rows_of(hint) or hint
        if isinstance(below, type) and dataclasses.is_dataclass(below) and below is not Amount:
            _describe(components, below)


class _Text(str):
    """A value from the environment or a flag: taken as it is where the setting is text, else read as YAML."""

    __slots__ = ()

    def read(self, kind: type | UnionType) -> object:
        if kind is str:
            return str(self)
        try:
            found: object = yaml.load(str(self), Loader=_Strict)
        except YAML_FAULTS:
            return str(self)
        return found


def _read_below(section: object) -> object:
    """The section, with what texts give of its sections and their lists."""
    if not isinstance(section, dict):
        return section
    found = dict(section)
    for name in policy.OF_LISTS:
        inside = section.get(name)
        inside = inside.read(dict) if isinstance(inside, _Text) else inside
        if isinstance(inside, dict):
            inside = {key: value.read(list) if isinstance(value, _Text) else value for key, value in inside.items()}
        if name in section:
            found[name] = inside
    return found


def _ship(tree: Tree, parts: list[str]) -> None:
    """Begins the table `keys.kinds` as it ships where a variable or a flag changes a row, and no file has the table."""
    section = tree.setdefault("keys", {}) if parts[:2] == ["keys", "kinds"] and len(parts) > 3 else None
    if isinstance(section, dict) and "kinds" not in section:
        section["kinds"] = {key: dataclasses.asdict(row) for key, row in Settings().keys.kinds.items()}


def _put(tree: Tree, parts: list[str], text: str, faults: list[str]) -> None:
    here = tree
    for part in parts[:-1]:
        below = here.setdefault(part, {})
        if not isinstance(below, dict):
            faults.append(f"{'.'.join(parts)}: {part} is no section")
            return
        here = below
    here[parts[-1]] = _Text(text)


def _build(kind: type, value: object, path: str, faults: list[str]) -> object:
    """An instance of the dataclass `kind` from a mapping; the default stands in for a value with a fault."""
    if not isinstance(value, dict):
        faults.append(f"{path or 'settings'}: is {value!r}, must be a section of settings")
        return kind()
    hints = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    for key in value:
        if key not in known:
            near = _nearest(str(key).lower().replace("-", "_"), known)
            hint = f"did you mean {near}?" if near else f"known keys are {', '.join(known)}"
            faults.append(f"{path}{'.' if path else ''}{key}: unknown key; {hint}")
    found: dict[str, object] = {}
    for name in known:
        if name in value:
            where = f"{path}.{name}" if path else name
            hint_type = hints[name]
            rows = _rows_of(hint_type)
            if dataclasses.is_dataclass(hint_type) and isinstance(hint_type, type):
                found[name] = _build(hint_type, value[name], where, faults)
            elif rows is not None and isinstance(value[name], dict):
                found[name] = {
                    str(key): _build(rows, row, f"{where}.{key}", faults) for key, row in value[name].items()
                }
            elif (words := _words_of(hint_type)) is not None and isinstance(value[name], dict):
                chosen: dict[str, object] = {}
                for key, word in value[name].items():
                    _leaf(words, word, f"{where}.{key}", chosen, str(key), faults)
                found[name] = chosen
            else:
                _leaf(hint_type, value[name], where, found, name, faults)
    return kind(**found)


def _rows_of(hint: object) -> type | None:
    """The dataclass of which this setting is a table by name, None for any other setting."""
    if typing.get_origin(hint) is not Mapping:
        return None
    row: object = typing.get_args(hint)[1]
    return row if isinstance(row, type) and dataclasses.is_dataclass(row) else None


def _words_of(hint: object) -> type[enum.Enum] | None:
    """The words of which this setting is a table by name, None for any other setting."""
    if typing.get_origin(hint) is not Mapping:
        return None
    word: object = typing.get_args(hint)[1]
    return word if isinstance(word, type) and issubclass(word, enum.Enum) else None


def _nearest(key: str, known: list[str]) -> str:
    """The known key that was probably meant; empty where none is near, as none is to a key twice as long."""
    if len(key) > 2 * max(map(len, known), default=0):
        return ""
    from difflib import get_close_matches  # only where there is a fault

    return next(iter(get_close_matches(key, known, n=1, cutoff=0.75)), "")


def _leaf(
    kind: type | UnionType, value: object, where: str, found: dict[str, object], name: str, faults: list[str]
) -> None:
    value = value.read(kind) if isinstance(value, _Text) else value
    if value is False and isinstance(kind, type) and issubclass(kind, enum.Enum) and "off" in [e.value for e in kind]:
        value = "off"  # YAML 1.1 reads a bare `off` as false
    try:
        found[name] = msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            rule = f"one of {', '.join(str(member.value) for member in kind)}"
        else:
            rule = _in_words(error)
        faults.append(f"{where}: {value!r} is not allowed; {rule}")


_KINDS = {
    "array": "a list, such as [a, b]",
    "bool": "true or false, without quotes",
    "float": "a number",
    "int": "a whole number",
    "object": "names with values",
    "str": "text: write it in quotes",
}


def _in_words(error: msgspec.ValidationError) -> str:
    """What msgspec expected, as a person writes it in YAML."""
    expected, _, inside = str(error).partition(" - at ")
    kind = _KINDS.get(expected.removeprefix("Expected `").partition("`")[0].partition(" ")[0])
    return f"{'each value' if inside else 'it'} must be {kind}" if kind else str(error)


def _check(settings: Settings, faults: list[str]) -> None:
    """Rules that a type cannot say."""
    webhook, driver = settings.webhook, settings.cpus.driver
    faults += [f"{path}: {fault}" for path, fault in _beyond(settings)]
    if not 1 <= settings.cpus.late_ms <= MOST_LATE_MS[driver]:
        faults.append(
            f"cpus.late_ms: {settings.cpus.late_ms} is not between 1 and {MOST_LATE_MS[driver]} milliseconds with "
            f"cpus.driver {driver.value}"
        )
    try:
        kubepods(settings.cgroups.kubelet_root)
    except WireError as error:
        faults.append(f"cgroups.kubelet_root: {error.fault}")
    name, plugin = settings.nri.plugin_name, webhook.required_plugin
    if plugin and not _is_plugin(plugin):
        faults.append(f"webhook.required_plugin: {plugin!r} is no plugin's name, such as nodeward")
    for key in webhook.annotate:
        if key not in CPU_REQUESTS:
            faults.append(f"webhook.annotate: {key!r} is none of {', '.join(CPU_REQUESTS)}")
    if not _is_plugin(name):
        faults.append(f"nri.plugin_name: {name!r} may only have letters, digits and any of . _ + -, such as nodeward")
    index = settings.nri.plugin_index
    if not (len(index) == 2 and index.isascii() and index.isdigit()):
        faults.append(f"nri.plugin_index: {index!r} is not two digits, such as 90")
    if address(settings.metrics.listen) is None:
        faults.append(
            f"metrics.listen: {settings.metrics.listen!r} is no address with a port from 0 to 65535, such as "
            "127.0.0.1:9743, [::1]:9743 or :9743 for every address"
        )
    for path, uids in (("podapi.uids", settings.podapi.uids), ("gate.uids", settings.gate.uids)):
        if not 1 <= len(uids) <= MOST_UIDS or any(not 0 <= uid < MOST_UID for uid in uids):
            faults.append(f"{path}: {list(uids)} is not 1 to {MOST_UIDS} user ids from 0 to {MOST_UID - 1}")
    # root is let in all the same: by the gRPC socket
    if outside := sorted({*settings.gate.uids} - {0, *settings.podapi.uids})[:MOST_UIDS]:
        faults.append(
            f"gate.uids: {outside} are not in podapi.uids, so that the Pod API refuses their SetGate: add them to "
            "podapi.uids, or remove them here"
        )
    _check_resources(settings.limits.resources, faults)
    _check_keys(settings, faults)
    _check_relay(settings, faults)
    _check_gate(settings.gate.handlers, faults)
    if unlimited(settings.sizing.unlimited) is None:
        faults.append(
            f"sizing.unlimited: {settings.sizing.unlimited!r} is none of request, all, a number of CPUs such as '2' "
            "(in quotes), or a part of the machine such as 50%"
        )
    if settings.pins_by(Driver.NRI) and not settings.nri.enabled:
        faults.append(
            "cpus.driver: nri carries no CPUs while nri.enabled is false: set nri.enabled to true, or cpus.driver "
            "to relay"
        )
    if driver is Driver.RELAY and settings.cpus.mode is not Mode.OFF and settings.nri.enabled:
        faults.append(
            "cpus.driver: relay, and NRI tells of the same containers: set nri.enabled to false, or cpus.driver to nri"
        )
    carried = settings.nri.enabled if driver is Driver.NRI else not settings.nri.enabled
    if settings.policy_objects.enabled and not (settings.kube.enabled and carried):
        faults.append(
            "policy_objects.enabled: objects come from the API server, and the policy is carried out by NRI or the "
            "relay: set kube.enabled to true, and nri.enabled to true with cpus.driver nri, to false with relay"
        )
    if settings.topology_objects.enabled and not settings.kube.enabled:
        faults.append("topology_objects.enabled: the object is in the API server: set kube.enabled to true")
    if settings.cpus.kubevirt_label and not settings.kube.enabled:
        faults.append("cpus.kubevirt_label: the node's labels are in the API server: set kube.enabled to true")
    if not _NAMESPACE.fullmatch(settings.policy_objects.namespace):
        faults.append(f"policy_objects.namespace: {settings.policy_objects.namespace!r} is no namespace's name")
    if settings.kube.url:
        _check_url(settings.kube, faults)


def _beyond(section: object, above: str = "") -> Iterator[tuple[str, str]]:
    """The settings whose field says that they cannot be what they are, and why."""
    kind = type(section)
    assert dataclasses.is_dataclass(kind)
    told, default = dict(meanings(kind)), kind()
    for one in dataclasses.fields(kind):
        path, value = f"{above}{one.name}", getattr(section, one.name)
        if one.name in told:
            if fault := told[one.name].fault(value, getattr(default, one.name)):
                yield path, fault
            for key, row in value.items() if isinstance(value, Mapping) else ():
                if dataclasses.is_dataclass(row):
                    yield from _beyond(row, f"{path}.{key}.")
        elif dataclasses.is_dataclass(value):
            yield from _beyond(value, f"{path}.")


def _check_resources(resources: Mapping[str, str], faults: list[str]) -> None:
    first: dict[str, str] = {}
    for extended, resource in resources.items():
        if "/" not in extended or not resource.replace("_", "").isalnum():
            faults.append(f"limits.resources: {extended!r}: {resource!r} is not an extended resource and a misc name")
        other = first.setdefault(resource, extended)
        if other != extended:
            faults.append(f"limits.resources: {other!r} and {extended!r} both mean {resource}: keep one of them")


def _check_gate(handlers: Mapping[str, tuple[str, ...]], faults: list[str]) -> None:
    if len(handlers) > MOST_HANDLERS:
        faults.append(f"gate.handlers: {len(handlers)} are more than {MOST_HANDLERS}")
    for handler, words in handlers.items():
        where = f"gate.handlers.{handler}"
        if not _is_label(handler):
            faults.append(
                f"{where}: {handler!r} is no runtime handler: a RuntimeClass takes lower case letters, digits and '-'"
            )
        if not words:
            faults.append(f"{where}: names no condition; write some of {listed()}, or leave the handler out")
        faults += [f"{where}: {word!r} is no condition; one of {listed()}" for word in words if word not in CONDITIONS]


def _is_label(name: str) -> bool:
    """Whether it is a DNS label, as the API server wants of a RuntimeClass's handler."""
    inside = all(letter in "abcdefghijklmnopqrstuvwxyz0123456789-" for letter in name)
    return inside and 1 <= len(name) <= 63 and "-" not in (name[0], name[-1])


DRIVER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def _is_device(path: str) -> bool:
    return path.startswith("/dev/") and posixpath.normpath(path) == path


def _check_devices(settings: Settings, faults: list[str]) -> None:
    if settings.limits.devices is not GivenBy.NRI:
        return
    where = "limits.devices: is nri, and"
    if not (settings.nri.enabled or settings.relay.limits):
        faults.append(f"{where} neither nri.enabled nor relay.limits is true: nobody could give a container its device")
    if not settings.kube.enabled:
        faults.append(f"{where} kube.enabled is false: the device goes by the pod's spec in the API server")
    if EPC_RESOURCE not in settings.limits.resources:
        faults.append(f"{where} limits.resources has no sgx.intel.com/epc, by which the device is given")


def _check_claims(settings: Settings, faults: list[str]) -> None:
    dra, epc = settings.keys.dra, settings.limits.dra
    if dra.share not in ("all", "none") and not (dra.share.isascii() and dra.share.isdecimal()):
        faults.append(f"keys.dra.share: {dra.share!r} is not all, none or a number of keys")
    cpu = settings.cpus.dra
    sellers = (
        ("keys", settings.keys.mode, dra),
        ("limits", settings.limits.mode, epc),
        ("cpus", settings.cpus.mode, cpu),
    )
    for where, mode, by_claim in sellers:
        name = by_claim.driver
        if len(name) > 63 or not DRIVER_NAME.fullmatch(name):
            faults.append(
                f"{where}.dra.driver: {name!r} is no DNS name of up to 63 small letters, digits, dots, dashes"
            )
        if by_claim.mode is not Mode.OFF and not settings.kube.enabled:
            faults.append(f"{where}.dra.mode: claims are in the API server: set kube.enabled to true")
        if by_claim.mode is Mode.ENFORCE and mode is not Mode.ENFORCE:
            faults.append(f"{where}.dra.mode: is enforce, and {where}.mode is {mode.value}: set that to enforce too")
    if len(dict.fromkeys((dra.driver, epc.driver, cpu.driver))) < 3:
        faults.append("keys.dra.driver, limits.dra.driver and cpus.dra.driver: each needs a name of its own")
    is_theirs = settings.policy.claims.names is ClaimNames.DRA_DRIVER_CPU
    if settings.policy.active == "claims" and is_theirs and cpu.driver != "dra.cpu":
        faults.append(
            f"cpus.dra.driver: is {cpu.driver!r}, and policy.claims.names is dra-driver-cpu: set it to dra.cpu"
        )
    if settings.policy.active == "claims" and cpu.mode is not Mode.ENFORCE and settings.cpus.mode is Mode.ENFORCE:
        faults.append("policy.active: is claims, and cpus.dra.mode is not enforce: set that to enforce too")
    _check_devices(settings, faults)
    if settings.limits.node_epc and not settings.kube.enabled:
        faults.append("limits.node_epc: the node's status is in the API server: set kube.enabled to true")
    if settings.limits.node_epc and epc.mode is Mode.ENFORCE:
        faults.append(
            "limits.node_epc: limits.dra.mode is enforce, so EPC goes by claim; sold both ways it is sold twice"
        )
    for path in epc.devices:
        if not _is_device(path):
            faults.append(
                f"limits.dra.devices: {path!r} is not the absolute path of a device node, such as /dev/sgx_enclave"
            )


def _check_keys(settings: Settings, faults: list[str]) -> None:
    _check_claims(settings, faults)
    first: dict[str, str] = {}
    for key, row in settings.keys.kinds.items():
        where = f"keys.kinds.{key}"
        if not (key.isascii() and key.replace("_", "").isalnum()):
            faults.append(f"{where}: {key!r} is no name of the misc controller, such as tdx or sev_es")
        _check_publisher(where, row, settings.keys.dra.mode, faults)
        _check_share(where, row, settings.kube.enabled, faults)
        for name in row.resources:
            other = first.setdefault(name, where)
            if "/" not in name:
                faults.append(f"{where}.resources: {name!r} is no extended resource, such as devices.kubevirt.io/tdx")
            elif other != where:
                faults.append(f"{where}.resources: {name!r} stands in {other} too: it can promise only one thing")
            elif settings.keys.mode is not Mode.OFF and settings.limits.resources.get(name, key) != key:
                faults.append(
                    f"{where}.resources: {name!r} is {settings.limits.resources[name]} in limits.resources: it can "
                    "promise only one thing"
                )


MOST_DEVICES = 16
"""Of a container with a key; a VM needs one or two."""
OTHERS_DOMAINS = ("intel.com", "amd.com", "kubernetes.io", "katacontainers.io")
"""Extended resources below these are other people's: NFD's rules and Kata's charts put theirs on the node."""


def _check_publisher(where: str, row: KeyKind, by_claim: Mode, faults: list[str]) -> None:
    if row.capacity_from is CapacitySource.FIXED and row.capacity < 1:
        faults.append(f"{where}.capacity: is {row.capacity}, and capacity_from fixed needs how many keys there are")
    if row.split < 0 or (row.share is Share.SPLIT and row.split < 1):
        faults.append(f"{where}.split: is {row.split}, must be how many keys are ours, at least 1")
    elif row.capacity and row.share is Share.SPLIT and row.split > row.capacity:
        faults.append(f"{where}.split: {row.split} keys of {row.capacity} (capacity) cannot be ours")
    socket = row.attestation_socket
    if (socket or row.attestation is not Attestation.OFF) and not is_absolute(socket):
        faults.append(f"{where}.attestation_socket: {socket!r} is not an absolute path without '..'")
    for path in row.devices:
        if not _is_device(path):
            faults.append(f"{where}.devices: {path!r} is not the absolute path of a device node, such as /dev/sev")
    if len(row.devices) > MOST_DEVICES or len(dict.fromkeys(row.devices)) < len(row.devices):
        faults.append(f"{where}.devices: names one twice, or more than {MOST_DEVICES}; name each once")
    if row.publisher is Publisher.NONE:
        if row.devices and by_claim is Mode.OFF:
            faults.append(f"{where}.devices: our device plugin gives them out, or our claims, and neither is on")
        return
    if row.publish not in row.resources:
        faults.append(f"{where}.publish: {row.publish!r} is none of {where}.resources; name the one we are to publish")
    domain = row.publish.partition("/")[0]
    if any(domain == other or domain.endswith(f".{other}") for other in OTHERS_DOMAINS):
        faults.append(
            f"{where}.publish: {row.publish!r} is a name of NFD's, Kata's or Kubernetes' own: a device plugin never "
            "takes it over, since pods that ask for it by their overhead would end with kubelet's next start"
        )


def _check_share(where: str, row: KeyKind, kube: bool, faults: list[str]) -> None:
    """What NFD and the API server must be there for."""
    key = where.rpartition(".")[2]
    by_nfd, by_share = row.capacity_from is CapacitySource.NFD, row.share not in (Share.OWN, Share.AUTO)
    for field, asked in (("share", by_share), ("capacity_from", by_nfd)):
        if asked and key not in NFD_NUMBERS:
            faults.append(f"{where}.{field}: NFD has no number for {key}, only for {', '.join(NFD_NUMBERS)}")
    if not kube and (by_nfd or by_share):
        field = "capacity_from" if by_nfd else "share"
        faults.append(f"{where}.{field}: needs the API server, where NFD's objects are: set kube.enabled to true")


def _check_relay(settings: Settings, faults: list[str]) -> None:
    relay, dump = settings.relay, settings.dump
    if bool(relay.image) != bool(relay.image_listen):
        faults.append("relay.image: a separate image service needs both relay.image and relay.image_listen")
    if relay.limits and settings.nri.enabled:
        faults.append("relay.limits: NRI drives limits too, and one has to: set nri.enabled or relay.limits to false")
    if dump == DumpSection():
        return
    from nodeward.neighbours.cri import dump_rules  # only where a dump is chosen

    try:
        dump_rules.parse(dump.rules)
    except WireError as error:
        faults.append(f"dump.rules: {error}")
    for name in dump.show:
        if name not in SECRETS:
            faults.append(f"dump.show: {name!r} is none of {', '.join(SECRETS)}")


def _check_url(section: KubeSection, faults: list[str]) -> None:
    from nodeward.neighbours.kubernetes.auth import (
        endpoint_of,  # what the daemon itself would say, loaded only where it is asked
    )
    from nodeward.neighbours.kubernetes.errors import KubeConfigError

    try:
        endpoint_of(section, {})
    except KubeConfigError as error:
        faults.append(f"kube.url: {str(error).removeprefix('kube.url ')}")


def _is_plugin(name: str) -> bool:
    """Whether a runtime takes this as a plugin's name."""
    return bool(name) and all(letter in "._+-" or (letter.isascii() and letter.isalnum()) for letter in name)


def address(listen: str) -> tuple[str, int] | None:
    """Host and port of a `HOST:PORT`; the host is empty for every address. None if it is none."""
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        return None
    if (":" in bare and bare == host) or bare != bare.strip() or not bare.isascii():
        return None
    return bare, int(port)
