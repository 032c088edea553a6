"""Settings from a YAML file, the environment and flags: strict, all faults at once, each with its path.

Order: built-in defaults, the file, `NODEWARD_LIMITS__MODE=observe` (two underscores between the levels), flags. Unknown
keys are refused, and each fault says which file and line, variable or flag it comes from. YAML aliases are refused,
since a few bytes of them can become gigabytes.
"""

import dataclasses
import enum
import logging
import typing
from collections.abc import Iterator, Mapping
from types import UnionType

import msgspec
import yaml

from nodeward.core.errors import NodewardError
from nodeward.core.setting import meanings
from nodeward.features.cpus.settings import Amount
from nodeward.features.cpus.spelling import policy
from nodeward.features.settings import Settings
from nodeward.host.hostfs import opened
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS
from nodeward.settings.checks import check

log = logging.getLogger(__name__)
MAX_BYTES = 1024 * 1024
MAX_PATH = 256
"""So much of a path is shown in a fault."""
PREFIX = "NODEWARD_"
DEFAULT = "default"
"""The source of a setting that nobody gave."""
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
        check(settings, faults)
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
