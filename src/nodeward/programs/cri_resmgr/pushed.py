"""Reads a configuration that CRI Resource Manager's agent pushes: modules by name, each of YAML.

It is read as `cri-resmgr --force-config` reads a file, but without YAML's aliases and with every fault at once. Taken
are a policy and the rules of a dump: what else a node does, and which files root writes there, is the node's to say.
"""

import logging
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from nodeward.core.errors import WireError
from nodeward.core.text import printable
from nodeward.features.settings import Settings
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS
from nodeward.settings.load import SettingsError, from_tree, parsed, read_yaml
from nodeward.settings.pushed import MOST_BYTES, Overlaid, size

WHERE = "pushed configuration"
log = logging.getLogger(__name__)


def over(config: Mapping[str, str], load: Callable[[Mapping[str, str]], Settings]) -> Settings:
    """The settings by a configuration: what it says, as settings by dotted path, is given to `load`. SettingsError with
    every fault."""
    from nodeward.programs.cri_resmgr import read, yaml  # only where something is pushed

    found, faults = read.CommandLine(), list[str]()
    if (bytes_ := size(config)) > MOST_BYTES:
        raise SettingsError([f"{WHERE}: {bytes_} bytes; a configuration has at most {MOST_BYTES}"])
    for module, text in sorted(config.items()):
        inside = _inside(module, text, faults)
        for key, value in inside.items():
            try:
                for one in yaml.of_tree(WHERE, {module: {key: value}}):
                    read.take(found, one)
            except (WireError, read.CriResmgrError) as error:
                faults.append(str(error))
            except ValueError:  # a number whose digits Python does not write out
                faults.append(f"{WHERE} {module}: {printable(str(key), 64)} has a value that cannot be read")
    pairs = {path: value for path, value in found.pairs.items() if path.startswith("policy.") or path == "dump.rules"}
    if "dump.file" in found.pairs:
        found.notes.append("dump.File: a cluster names no file that root writes; set dump.file on the node")
    if found.debug or found.log_level != read.CommandLine().log_level:
        found.notes.append("logger: the log's level is chosen on the node; SIGUSR1 switches debug on and off")
    try:
        settings = load(pairs)
    except SettingsError as error:
        raise SettingsError([*faults, *error.faults]) from error
    if faults:
        raise SettingsError(faults)
    for note in found.notes:
        log.info("config note=%r", note)
    return settings


def _inside(module: str, text: str, faults: list[str]) -> Mapping[object, object]:
    """The module's settings; none where it has a fault."""
    from nodeward.programs.cri_resmgr.options import MODULES

    if module not in MODULES:
        near = next(iter(get_close_matches(module[:64], MODULES, n=1, cutoff=0.6)), "")
        hint = f"did you mean {near}?" if near else f"modules are {', '.join(MODULES)}"
        faults.append(f"{WHERE}: {printable(module, 64)} is no module; {hint}")
        return {}
    try:
        tree = parsed(text.encode(errors="replace"))
    except YAML_FAULTS as error:
        faults.append(f"{WHERE} {module}: is no YAML: {' '.join(str(error).split())[:256]}")
        return {}
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        faults.append(f"{WHERE} {module}: has no names with values")
        return {}
    return tree


def over_file(
    path: str | None, environ: Mapping[str, str], flags: Mapping[str, str], given_by: Mapping[str, str] | None = None
) -> Overlaid:
    """Which settings of `nodeward relay` and `nodeward node` a configuration overrides: the file's section policy is
    replaced whole; environment and flags are the operator's, and win."""

    def overlaid(config: Mapping[str, str] | None) -> Settings:
        tree = read_yaml(path) if path else {}
        if config is None:
            return from_tree(tree, environ, flags, given_by)
        tree.pop("policy", None)

        def load(pushed: Mapping[str, str]) -> Settings:
            by = {path: WHERE for path in pushed if path not in flags}
            return from_tree(tree, environ, flags, {**by, **(given_by or {})}, pushed)

        return over(config, load)

    return overlaid
