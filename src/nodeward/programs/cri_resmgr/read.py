"""Translates CRI Resource Manager's command line into settings of the relay.

What the relay has is taken over; what a coming part of Nodeward will serve, or what has no meaning here, is said in one
line; what would change containers and is not there is refused, since a node would run otherwise than its operator
believes. Which options there are: `cri_resmgr_options`, from the sources of its releases.
"""

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import yaml

from nodeward.core.errors import NodewardError, WireError
from nodeward.core.modes import NO_POLICY
from nodeward.core.text import printable
from nodeward.features.cpus.spelling.policy import LATER
from nodeward.programs.cri_resmgr import go_flags
from nodeward.programs.cri_resmgr import yaml as cri_resmgr_yaml
from nodeward.programs.cri_resmgr.go_flags import Given
from nodeward.programs.cri_resmgr.options import (
    FROM_ENVIRONMENT,
    HISTORIC,
    LATER_POLICY,
    NO_DOMAIN,
    REMARKS,
    SWITCHES,
    VARIABLES,
)

LISTEN = "/var/run/cri-resmgr/cri-resmgr.sock"
CONFIG_SOCKET = "/var/run/cri-resmgr/cri-resmgr-config.sock"
"""Where agents of all its releases push a configuration."""
RUNTIMES = ("/var/run/dockershim.sock", "/run/containerd/containerd.sock", "/var/run/crio/crio.sock")
"""Where a runtime answers, the historic default first."""
_SECTIONS = tuple(f"policy.{name}" for name in cri_resmgr_yaml.POOLS)
_OPTIONS = "policy.static.options."
_NOT_ON_NODE = "static-pools: only nodeward agent puts cmk.intel.com/exclusive-cores on the node, by its ConfigMap"
LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
LEVELS |= {"fatal": "error", "panic": "error"}
GIVEN_BY = {
    "relay.listen": "by --relay-socket",
    "relay.runtime": "by --runtime-socket",
    "relay.image": "by --image-socket",
    "dump.rules": "by --dump",
    "dump.file": "by --dump-file",
    "cgroups.root": "by --cgroup-mount",
    "cgroups.kubelet_root": "by --kubelet-cgroup-root",
    "policy.active": "by --policy, or Active of the module policy",
    "policy.available": "by --available-resources, or AvailableResources of the module policy",
    "policy.reserved": "by --reserved-resources, or ReservedResources of the module policy",
    **dict.fromkeys(_SECTIONS, "by the module policy"),
}
"""Which option is which setting, to somebody who gave options and files of this tool."""
RELOADS = ("SIGHUP", "SIGUSR2", "SIGWINCH")
"""Signals that can have the settings read again; others end a process, or have a meaning of their own here."""
KLOG_DEBUG = 4
"""From here on klog's verbosity is what others call debug."""
_STATES = dict.fromkeys(("true", "on", "enable", "enabled", "1"), True)
_STATES |= dict.fromkeys(("false", "off", "disable", "disabled", "0"), False)


class CriResmgrError(NodewardError):
    """A command line that cannot be followed; the text says which option, why, and what to do."""


@dataclass(slots=True)
class CommandLine:
    """What a command line means. `pairs` are settings by dotted path, as `--set` takes them."""

    pairs: dict[str, str] = field(default_factory=dict)
    log_level: str = "info"
    pid_file: str = ""
    asked: str = ""
    """`help`, `version`, `print-config`, `list-policies`, `list-loggers`, `reset`, or nothing: to run."""
    reload_by: signal.Signals = signal.SIGHUP
    """Has the settings read again, as SIGHUP does."""
    debug: dict[str, bool] = field(default_factory=dict)
    """Sources whose debug lines were switched on or off; our log has one level for all, so one that is on is enough."""
    dump_default: str = ""
    """The rules where none are given: those of the generation by whose word a file is written."""
    keeps_policy: bool = False
    """Whether another policy than the last one is refused."""
    resets_policy: bool = False
    """With `reset`: whether the last policy is forgotten."""
    resets_config: bool = False
    """With `reset`: whether the agent's last configuration is."""
    config_socket: str = ""
    """Where an agent's configurations are to be taken; empty for nowhere."""
    faults: tuple[str, ...] = ()
    """Why the file of --fallback-config is not obeyed."""
    historic: bool = False
    """Whether the command line is one of the first releases'."""
    no_dump: bool = False
    """Whether a file has `dump.Disabled`: the rules then show nothing, so that SIGHUP can have it dump again."""
    notes: list[str] = field(default_factory=list)
    """Lines for whoever started it."""

    def as_file(self) -> str:
        """A settings file by which `nodeward relay` does the same; what is no setting stands in comments above it."""
        told = [f"# For nodeward relay --config FILE --log-level {self.log_level}"]
        if self.pid_file:
            told.append(f"# Without the file of its process id: {printable(self.pid_file)}")
        tree: dict[str, object] = {}
        for path, value in sorted(self.pairs.items()):
            *above, name = path.split(".")
            here = tree
            for section in above:
                inside = here.setdefault(section, {})
                assert isinstance(inside, dict)
                here = inside
            here[name] = json.loads(value) if path in _SECTIONS or value == "false" else value
        return "\n".join((*told, yaml.safe_dump(tree, allow_unicode=True, width=4096)))


def choose(
    words: Sequence[str],
    environ: Mapping[str, str],
    read: Callable[[str], str],
    exists: Callable[[str], bool],
    fallback: bool = True,
) -> CommandLine:
    """What these words mean. `read` gives a file's text; `exists` tells whether a socket is there. Without `fallback`
    the file of --fallback-config is left out: an agent's configuration takes its place."""
    try:
        given, rest = go_flags.parse(words, SWITCHES)
        if any(one.name in ("h", "help") for one in given):
            return CommandLine(asked="help")
        historic = any(one.name in HISTORIC for one in given)
        is_forced = any(one.name == "force-config" and one.value for one in given)
        given = _with_files(given, read, fallback)
    except WireError as error:
        raise CriResmgrError(f"{error}; cri-resmgr -h lists what there is") from error
    chosen = CommandLine({"relay.listen": LISTEN}, historic=historic)
    asked = [one.value for one in given if one.name == "policy"][-1:]
    elsewhere = environ.get("NODEWARD_CPUS__DRIVER", "relay") != "relay"
    if not is_forced and not elsewhere and not any(name in NO_POLICY for name in asked):
        chosen.config_socket = CONFIG_SOCKET  # whoever asks for no policy wants a relay that has no part in any call
    if rest:
        if rest[0] not in ("help", "config-help"):
            raise CriResmgrError(f"{rest[0]!r} is no option; options begin with - or --, and cri-resmgr -h lists them")
        chosen.asked = "help"
    _take_environment(chosen, environ)
    for one in given:
        take(chosen, one)
    if any(chosen.debug.values()):
        chosen.log_level = "debug"
    _runtime(chosen, exists)
    _image_socket(chosen)
    if chosen.config_socket and is_forced:
        chosen.notes.append("--config-socket: not served, since --force-config wins over every agent's configuration")
    elif chosen.config_socket:
        chosen.pairs |= {"agent.config_socket": chosen.config_socket, "cpus.driver": "relay"}
    if chosen.pairs.get("cpus.driver") == "relay":
        chosen.pairs |= {path: value for path, value in _DAEMON.items() if not _is_said(environ, path)}
    if chosen.pairs.get("policy.active") == "static-pools":
        chosen.notes.append(_NOT_ON_NODE)
    if chosen.no_dump:
        chosen.pairs["dump.rules"] = "off:.*"
        chosen.notes.append("dump.Disabled: nothing is dumped")
    elif "dump.rules" in chosen.pairs and not chosen.pairs.get("dump.file"):
        chosen.notes.append("rules of a dump without --dump-file or dump.File: nothing is dumped; name a file")
    elif chosen.dump_default and "NODEWARD_DUMP__RULES" not in environ:
        chosen.pairs.setdefault("dump.rules", chosen.dump_default)
    return chosen


_DAEMON = {"nri.enabled": "false", "kube.enabled": "false", "limits.mode": "off"}
"""What the node daemon beside the relay leaves to others: CRI Resource Manager gave CPUs, by CRI alone."""


def _is_said(environ: Mapping[str, str], path: str) -> bool:
    """Whether the environment has something of this setting's section."""
    section = f"NODEWARD_{path.partition('.')[0].upper()}__"
    return any(name.startswith(section) for name in environ)


def _with_files(given: Sequence[Given], read: Callable[[str], str], with_fallback: bool) -> list[Given]:
    """The options, with each configuration file's in its place. Files of both generations are told apart by content."""
    files = {one.name: one.value for one in given}
    forced, fallback = files.get("force-config"), files.get("fallback-config")
    if forced and fallback:
        raise CriResmgrError(f"--force-config {forced} and --fallback-config {fallback}: give one of them, not both")
    found: list[Given] = []
    for one in given:
        if one.name not in ("config", "force-config", "fallback-config"):
            found.append(one)
            continue
        if (not one.value and one.name != "config") or (one.name == "fallback-config" and not with_fallback):
            continue
        text = read(one.value)
        if one.name == "config" and go_flags.is_lines(text):
            found += go_flags.parse(["-config", one.value], SWITCHES, partial(_said, text))[0]
        else:
            found += cri_resmgr_yaml.options(one.value, text)
    return found


def _said(text: str, _: str) -> str:
    return text


def take(chosen: CommandLine, one: Given) -> None:
    match one.name:
        case "version" | "print-config" | "list-policies" | "list-loggers":
            chosen.asked = one.name if one.value == "true" else chosen.asked
        case "reset-config" | "reset-policy":
            chosen.asked = "reset" if one.value == "true" else chosen.asked
            chosen.resets_policy |= one.name == "reset-policy" and one.value == "true"
            chosen.resets_config |= one.name == "reset-config" and one.value == "true"
        case "force-config-signal":
            _reload_by(chosen, one)
        case "policy":
            _policy(chosen, one)
        case "disable-policy-switch":
            chosen.keeps_policy = one.value == "true"
        case "available-resources" | "reserved-resources":
            _resources(chosen, one)
        case section if section in _SECTIONS:
            chosen.pairs[section] = one.value
        case "static-policy-relaxed-isolation":
            chosen.pairs["policy.static.relaxed_isolation"] = one.value
        case "topology-aware-pin-cpu" | "topology-aware-pin-memory":
            chosen.pairs[_of_tree(one.name)] = one.value
        case "topology-aware-prefer-isolated-cpus" | "topology-aware-prefer-shared-cpus":
            chosen.pairs[_of_tree(one.name)] = one.value
        case "runtime-socket":
            chosen.pairs["relay.runtime"] = _path(one)
        case "config-socket":
            chosen.config_socket = _path(one) if one.value and not one.value.startswith("disable") else ""
        case "relay-socket":
            chosen.pairs["relay.listen"] = _path(one)
        case "image-socket":
            _images(chosen, one)
        case "dump" | "dump.Config" | "dump-file" | "dump.File":
            _take_dump(chosen, one)
        case "pid-file":
            chosen.pid_file = one.value
        case "dump.Disabled":
            chosen.no_dump = one.value == "true"
        case "cgroup-mount":
            chosen.pairs["cgroups.root"] = _path(one)
        case "kubelet-cgroup-root":
            chosen.pairs["cgroups.kubelet_root"] = one.value or "/"
        case _:
            _take_log(chosen, one)


def _of_tree(option: str) -> str:
    return f"policy.topology_aware.{option.removeprefix('topology-aware-').replace('-', '_')}"


def _take_dump(chosen: CommandLine, one: Given) -> None:
    """Options are the historic generation's, and add up. YAML is the final one's. Rules of the one take the place of
    the other's."""
    from nodeward.neighbours.cri import dump_rules  # only where a dump is chosen

    match one.name:
        case "dump":
            chosen.pairs["dump.rules"] = dump_rules.historic(one.value, chosen.pairs.get("dump.rules", ""))
        case "dump.Config":
            try:
                chosen.pairs["dump.rules"] = dump_rules.final(one.value)
            except WireError as error:
                raise CriResmgrError(f"{error} ({one.where})") from error
        case _:
            chosen.pairs["dump.file"] = _path(one) if one.value else ""
            chosen.dump_default = dump_rules.FINAL_DEFAULT if one.name == "dump.File" else "on"


def _take_log(chosen: CommandLine, one: Given) -> None:
    match one.name:
        case "logger-level":
            level = LEVELS.get(one.value.lower())
            if level is None:
                raise CriResmgrError(f"--logger-level: {one.value!r} is none of {', '.join(LEVELS)} ({one.where})")
            chosen.log_level = level
        case "logger-debug":
            _debug(chosen.debug, one)
        case "v":
            chosen.debug["-v"] = _verbosity(one) >= KLOG_DEBUG
            if not chosen.debug["-v"]:
                _remark(chosen, one)
        case _:
            _remark(chosen, one)


def _remark(chosen: CommandLine, one: Given) -> None:
    """One line of what has no effect."""
    if one.name.startswith(_OPTIONS):
        chosen.pairs[one.name] = one.value
        return
    remark = REMARKS.get(one.name, LATER_POLICY)
    chosen.notes.append(f"{_name(one)}: {remark} ({one.where})")


def _name(one: Given) -> str:
    """As it was written: modules of a file have no dashes."""
    return f"--{one.name}" if one.name in SWITCHES else one.name


def _take_environment(chosen: CommandLine, environ: Mapping[str, str]) -> None:
    """What the environment says of the log: options add to it, or overrule it. As there, what cannot be read of it is
    only said."""
    for name in sorted(name for name in environ if name.startswith(VARIABLES)):
        option = FROM_ENVIRONMENT.get(name)
        if option is None:
            chosen.notes.append(f"{printable(name, 64)} in the environment: no release knows it, and it is not read")
            continue
        try:
            _take_log(chosen, Given(option, environ[name], f"{name} in the environment"))
        except CriResmgrError as error:
            chosen.notes.append(f"{error}: ignored")


def _debug(sources: dict[str, bool], one: Given) -> None:
    """Sources by `[state:]source,...`, where a state holds for what follows it too. The first release had
    `source,...[:state]`, where `all` and `none` also forget what was said before."""
    spec = one.value
    names, colon, last = spec.rpartition(":")
    historic = bool(colon) and ":" not in names and last.lower() in _STATES and names.lower() not in _STATES
    state = True
    for item in (f"{last}:{names}" if historic else spec).split(","):
        word, colon, source = (part.strip() for part in item.rpartition(":"))
        if colon:
            if word.lower() not in _STATES:
                raise CriResmgrError(f"--logger-debug: {word[:64]!r} is neither on nor off ({one.where})")
            state = _STATES[word.lower()]
        if source == "none" or (historic and source in ("all", "*")):
            sources.clear()
        if source:
            sources["*" if source in ("all", "none") else source] = state != (source == "none")


def _verbosity(one: Given) -> int:
    try:
        return int(one.value)
    except ValueError:
        raise CriResmgrError(f"--v: {one.value[:64]!r} is no whole number ({one.where})") from None


def _policy(chosen: CommandLine, one: Given) -> None:
    """The loader knows which there are. Without a policy nothing is decided, and the relay has no part in any call."""
    if one.value in LATER:
        raise CriResmgrError(
            f"--policy: {one.value!r} comes with a later version of Nodeward; cri-resmgr -list-policies names "
            f"those that are there ({one.where})"
        )
    for path, value in (("policy.active", one.value), ("cpus.driver", "relay")):
        if one.value in NO_POLICY:
            chosen.pairs.pop(path, None)
        else:
            chosen.pairs[path] = value


def _resources(chosen: CommandLine, one: Given) -> None:
    """`cpu=AMOUNT[,domain=amount...]`: an amount may have commas of its own."""
    parts: list[str] = []
    for part in one.value.split(","):
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    for domain, equals, amount in (part.partition("=") for part in parts):
        if not equals:
            raise CriResmgrError(f"--{one.name}: {domain[:64]!r} is no domain=amount, such as cpu=1 ({one.where})")
        if domain.strip().lower() == "cpu":
            chosen.pairs[f"policy.{one.name.partition('-')[0]}"] = amount.strip()
        else:
            chosen.notes.append(f"--{one.name}: {domain[:64]!r} {NO_DOMAIN} ({one.where})")


def _reload_by(chosen: CommandLine, one: Given) -> None:
    if one.value in RELOADS:
        chosen.reload_by = signal.Signals[one.value]
    elif one.value and not one.value.lower().startswith("disable") and one.value not in signal.Signals.__members__:
        raise CriResmgrError(f"--{one.name}: {one.value[:64]!r} is no signal; write {_or(RELOADS)} ({one.where})")
    else:
        others = f"SIGHUP does, and so would {_or(RELOADS[1:])}"
        chosen.notes.append(f"--{one.name}: {one.value!r} reads no file again here; {others} ({one.where})")


def _or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _path(one: Given) -> str:
    path = one.value.removeprefix("unix://").removeprefix("unix:")
    if not path.startswith("/"):
        raise CriResmgrError(f"{_name(one)}: {one.value!r} is no absolute path ({one.where})")
    return path


def _images(chosen: CommandLine, one: Given) -> None:
    if one.value == "default":
        chosen.pairs["relay.image"] = ""
    elif one.value == "-":
        chosen.notes.append("--image-socket -: image calls are passed on like any other, and answered by the runtime")
    else:
        chosen.pairs["relay.image"] = _path(one)


def _runtime(chosen: CommandLine, exists: Callable[[str], bool]) -> None:
    if "relay.runtime" in chosen.pairs:
        return
    found = next((path for path in RUNTIMES if exists(path)), RUNTIMES[1])
    chosen.pairs["relay.runtime"] = found
    how = "is there" if exists(found) else f"is waited for; none of {', '.join(RUNTIMES)} is there"
    chosen.notes.append(f"no --runtime-socket: {found} {how}")


def _image_socket(chosen: CommandLine) -> None:
    """Where images of another service are relayed: CRI Resource Manager had one socket for both."""
    if chosen.pairs.get("relay.image"):
        path = f"{chosen.pairs['relay.listen'].rpartition('/')[0]}/cri-resmgr-image.sock"
        chosen.pairs["relay.image_listen"] = path
        chosen.notes.append(f"images: point kubelet's image service at {path}")
