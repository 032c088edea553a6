"""Translates CRI Resource Manager's YAML configuration into its options.

It has modules at its top. What is in `policy`, `dump` and `logger` has an option each, or a name with dots. Of other
modules the name is given, so that nothing in a file goes unmentioned. What no module has is refused, as it was there.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from nodeward.core.errors import WireError
from nodeward.features.cpus.spelling import policy
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS
from nodeward.programs.cri_resmgr.go_flags import Given
from nodeward.programs.cri_resmgr.options import KLOG, LATER_POLICY, MODULES, NO_DOMAIN, REMARKS
from nodeward.settings.load import parsed

_INSIDE: Mapping[str, Mapping[str, str]] = {
    "policy": {"active": "policy", "available": "available-resources", "reserved": "reserved-resources"},
    "dump": {"Config": "dump.Config", "File": "dump.File", "Disabled": "dump.Disabled", "Debug": "dump.Debug"},
    "logger": {
        "Debug": "logger-debug",
        "Level": "logger-level",
        "Logger": "logger",
        "Enable": "logger-sources",
        "LogSource": "logger.LogSource",
        "Klog": "",
    },
}
"""Which option each has, of `policy` by the settings' own keys; `Klog` has klog's flags."""
_WRITTEN = ("Active", "AvailableResources", "ReservedResources")
"""As CRI Resource Manager's own pages spell the keys of `policy`."""
_AMOUNTS = ("available-resources", "reserved-resources")
POOLS = policy.OF_LISTS
"""Sections of `policy` that are given as they are: the settings' reader knows their words."""
_SECTIONS = ("static", *POOLS)
_MOST_VALUES, _MOST_DEPTH = 65_536, 32
"""Of such a section. With aliases of aliases a short file would have billions."""
_STATIC = ("relaxed_isolation", "Rdt", "options")
_SWITCHES = ("dump.Disabled", "dump.Debug", "logger.LogSource")


def options(path: str, text: str) -> list[Given]:
    """What a configuration says, in the order of its modules. Raises WireError that names the module."""
    try:
        tree = parsed(text.encode())
    except YAML_FAULTS as error:
        raise WireError(path, f"is no YAML: {' '.join(str(error).split())}") from error
    if tree is None:
        return []
    if isinstance(tree, dict) and "apiVersion" in tree and "kind" in tree:
        why = (
            "is an object of Kubernetes: give what stands below data, as `policy: {Active: ...}`, or let nodeward agent"
        )
        raise WireError(path, f"{why} bring the object")
    if not isinstance(tree, dict):
        raise WireError(path, "is neither a file of `option = value` lines nor YAML with modules at its top")
    return of_tree(path, tree)


def of_tree(path: str, tree: Mapping[object, object]) -> list[Given]:
    """The same of what was read already."""
    found: list[Given] = []
    for module, inside in tree.items():
        if module not in MODULES:
            raise _unknown(path, str(module), MODULES)
        if module not in _INSIDE:
            found.append(Given(str(module), "", path))
        elif isinstance(inside, dict):
            found += _module(path, str(module), inside)
        elif inside is not None:
            raise WireError(f"{path} {module}", "has no names with values")
    return found


def _module(path: str, module: str, inside: Mapping[object, object]) -> Iterator[Given]:
    names = _INSIDE[module]
    for key, value in inside.items():
        where = f"{path} {module}.{key}"
        name = policy.key_of(str(key)) if module == "policy" else str(key)
        option = names.get(name)
        if module == "policy" and name == "static":
            yield from _static(where, value)
        elif module == "policy" and name in POOLS:
            yield Given(f"policy.{name}", _as_json(where, value), where)
        elif module == "policy" and _is_unheeded(key, value):
            yield Given(f"policy.{key}", "", path)
        elif option is None:
            known = (*_WRITTEN, *_SECTIONS) if module == "policy" else names
            raise _unknown(path, f"{module}.{key}", [f"{module}.{one}" for one in known])
        elif not option:
            yield from _klog(where, value)
        elif option in _AMOUNTS:
            yield from _amounts(option, where, value)
        elif option in _SWITCHES:
            yield Given(option, _switch(where, value), where)
        elif option in ("logger-debug", "logger-sources"):
            yield Given(option, _sources(where, value), where)
        else:
            yield Given(option, _text(where, value), where)


def _is_unheeded(key: object, value: object) -> bool:
    """Whether it is the section of a policy that is not here. One that is surely a section of ours, misspelled, is
    none."""
    name = policy.key_of(str(key))
    if name in _INSIDE["policy"] or name in _SECTIONS or not (value is None or isinstance(value, dict)):
        return False
    return f"policy.{name}" in REMARKS or not get_close_matches(name.lower(), _SECTIONS, n=1, cutoff=0.8)


def unheeded(section: Mapping[object, object]) -> dict[tuple[str, ...], str]:
    """The fields of the module `policy` without effect, by path, and why."""
    found = dict[tuple[str, ...], str]()
    for key, value in section.items():
        if _is_unheeded(key, value):
            found[str(key),] = REMARKS.get(f"policy.{key}", LATER_POLICY)
        elif _INSIDE["policy"].get(policy.key_of(str(key))) in _AMOUNTS and isinstance(value, dict):
            names = [str(name) for name in value if str(name).strip().lower() != "cpu"]
            found |= {(str(key), name): NO_DOMAIN for name in names}
        elif policy.key_of(str(key)) == "static" and isinstance(value, dict):
            names = [str(name) for name in value if str(name).lower() == "rdt"]
            found |= {(str(key), name): REMARKS["policy.static.Rdt"] for name in names}
    return found


def _static(where: str, inside: object) -> Iterator[Given]:
    """The policy's own settings. `Options` are kubelet's, which CRI Resource Manager has not."""
    for key, value in _within(where, inside):
        at, name = f"{where}.{key}", policy.key_of(key, "static")
        if name not in _STATIC:
            raise _unknown(where, key, ("RelaxedIsolation", "Options"))
        if name == "options":
            yield from (
                Given(f"policy.static.options.{option}", _word(at, one), at) for option, one in _within(at, value)
            )
        elif name == "relaxed_isolation":
            yield Given("static-policy-relaxed-isolation", _switch(at, value), at)
        else:
            yield Given(f"policy.static.{key}", "", at)


def _as_json(where: str, value: object) -> str:
    count, left = 0, [(value, 0)]
    while left:
        one, depth = left.pop()
        count += 1
        if count > _MOST_VALUES or depth > _MOST_DEPTH:
            raise WireError(where, f"has more than {_MOST_VALUES} values, or {_MOST_DEPTH} levels")
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        left += ((inner, depth + 1) for inner in inside)
    return json.dumps(value, default=str)


def _amounts(option: str, where: str, inside: object) -> Iterator[Given]:
    if isinstance(inside, str | int | float):
        inside = {"cpu": inside}
    for key, value in _within(where, inside):
        yield Given(option, f"{key}={_text(f'{where}.{key}', value)}", f"{where}.{key}")


def _within(where: str, inside: object) -> Iterator[tuple[str, object]]:
    if inside is None:
        return
    if not isinstance(inside, dict):
        raise WireError(where, "has no names with values")
    yield from ((str(key), value) for key, value in inside.items())


def _word(where: str, value: object) -> str:
    return _text(where, value).lower() if isinstance(value, bool) else _text(where, value)


def _klog(where: str, inside: object) -> Iterator[Given]:
    for key, value in _within(where, inside):
        if key not in KLOG:
            raise _unknown(where, key, KLOG)
        yield Given(key, _text(f"{where}.{key}", value), f"{where}.{key}")


def _switch(where: str, value: object) -> str:
    if value is not None and not isinstance(value, bool):
        raise WireError(where, f"{_text(where, value)!r} is neither true nor false")
    return "true" if value else "false"


def _sources(where: str, value: object) -> str:
    """`state:source,...`, as text or, in v0.3, as lists by state."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, dict) or not all(isinstance(names, list) for names in value.values()):
        raise WireError(where, f"{_text(where, value)} is no text such as on:cache,off:relay")
    return ",".join(f"{str(state).lower()}:{_text(where, name)}" for state, names in value.items() for name in names)


def _text(where: str, value: object) -> str:
    """A plain value. What holds others is none, and as text it may be gigabytes: an alias may be one of aliases."""
    if isinstance(value, dict | list | set | tuple):
        raise WireError(where, "holds other values, where one text is wanted")
    return "" if value is None else str(value)


def _unknown(where: str, name: str, known: Iterable[str]) -> WireError:
    near = next(iter(get_close_matches(name, list(known), n=1, cutoff=0.6)), "")
    return WireError(where, f"{name} is not known{f'; did you mean {near}?' if near else ''}")
