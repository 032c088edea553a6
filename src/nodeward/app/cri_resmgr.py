"""CRI Resource Manager's command line in our words: its options of both generations to settings of the relay.

What the relay has is taken over; what a coming part of Nodeward will serve, or what has no meaning here, is said in one
line; what would change containers and is not there is refused, since a node would run otherwise than its operator
believes. Options: reference 1.1, from its flags.go (v0.9) and its documents of v0.1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import yaml

from nodeward.model.errors import NodewardError
from nodeward.wire import go_flags
from nodeward.wire.errors import WireError
from nodeward.wire.go_flags import Given
from nodeward.wire.yaml_faults import YAML_FAULTS

LISTEN = "/var/run/cri-resmgr/cri-resmgr.sock"
RUNTIMES = ("/var/run/dockershim.sock", "/run/containerd/containerd.sock", "/var/run/crio/crio.sock")
"""Where a runtime answers, the historic default first."""
NO_POLICY = ("", "none", "null")
LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
_LATER_POLICY = "comes with Nodeward's CPU policies, which are not built yet"
_LATER_AGENT = "comes with Nodeward's agent, which is not built yet"
_NO_MEANING = "has no meaning here"

SWITCHES: Mapping[str, bool] = {
    # both generations
    "policy": False,
    "runtime-socket": False,
    "image-socket": False,
    "relay-socket": False,
    "relay-dir": False,
    "agent-socket": False,
    "config-socket": False,
    "list-policies": True,
    # the historic one
    "config": False,
    "dump": False,
    "dump-file": False,
    "reserved-resources": False,
    "available-resources": False,
    "logger": False,
    "list-loggers": True,
    "logger-level": False,
    "logger-source": False,
    "logger-debug": False,
    "logger-prefix": False,
    # the final one
    "host-root": False,
    "allow-untested-runtimes": True,
    "pid-file": False,
    "fallback-config": False,
    "force-config": False,
    "force-config-signal": False,
    "reset-config": True,
    "reset-policy": True,
    "disable-policy-switch": True,
    "metrics-interval": False,
    "rebalance-interval": False,
    "disable-ui": True,
    "print-config": True,
    "h": True,
    "help": True,
}
"""Every option of both generations, with whether it is a switch."""

_REMARKS: Mapping[str, str] = {
    "relay-dir": f"{_NO_MEANING}: the relay keeps nothing on disk",
    "agent-socket": _LATER_AGENT,
    "config-socket": _LATER_AGENT,
    "host-root": f"{_NO_MEANING}: the relay runs on the host, ordered before kubelet",
    "allow-untested-runtimes": f"{_NO_MEANING}: any runtime is relayed",
    "force-config-signal": f"{_NO_MEANING} without policies",
    "reset-config": f"{_NO_MEANING}: the relay keeps no configuration",
    "reset-policy": f"{_NO_MEANING}: the relay keeps no policy",
    "disable-policy-switch": f"{_NO_MEANING} without policies",
    "metrics-interval": f"{_NO_MEANING}: metrics are counted as calls pass",
    "rebalance-interval": _LATER_POLICY,
    "disable-ui": f"{_NO_MEANING}: there is no web page",
    "logger": f"{_NO_MEANING}: one event a line on standard error",
    "logger-source": f"{_NO_MEANING}: each line names its source",
    "logger-prefix": f"{_NO_MEANING}: each line names its source",
}
"""Options that are taken and change nothing, and why."""
_REFUSED: Mapping[str, str] = {
    "reserved-resources": _LATER_POLICY,
    "available-resources": _LATER_POLICY,
}
"""Options that would change how containers run."""


class CriResmgrError(NodewardError):
    """A command line that cannot be followed; the text says which option, why, and what to do."""


@dataclass(slots=True)
class Chosen:
    """What a command line means. `pairs` are settings by dotted path, as `--set` takes them."""

    pairs: dict[str, str] = field(default_factory=dict)
    log_level: str = "info"
    pid_file: str = ""
    asked: str = ""
    """`help`, `print-config`, `list-policies`, `list-loggers`, or nothing: to run."""
    notes: list[str] = field(default_factory=list)
    """Lines for whoever started it."""


def choose(
    words: Sequence[str],
    environ: Mapping[str, str],
    read: Callable[[str], str],
    exists: Callable[[str], bool],
) -> Chosen:
    """What these words mean. `read` gives a file's text; `exists` tells whether a socket is there."""
    try:
        given, rest = go_flags.parse(words, SWITCHES)
        given = _with_files(given, read)
    except WireError as error:
        raise CriResmgrError(f"{error}; cri-resmgr -h lists what there is") from error
    chosen = Chosen({"relay.listen": LISTEN})
    if rest:
        if rest[0] not in ("help", "config-help"):
            raise CriResmgrError(f"{rest[0]!r} is no option; options begin with - or --, and cri-resmgr -h lists them")
        chosen.asked = "help"
    for one in given:
        _take(chosen, one)
    if "off:*" not in environ.get("LOGGER_DEBUG", "off:*"):
        chosen.log_level = "debug"
    _runtime(chosen, exists)
    _image_socket(chosen)
    if "dump.rules" in chosen.pairs and "dump.file" not in chosen.pairs:
        chosen.notes.append("--dump without --dump-file: dumps are written to a file only, so nothing is dumped")
    return chosen


def _with_files(given: Sequence[Given], read: Callable[[str], str]) -> list[Given]:
    """The options, with each configuration file's in its place. Files of both generations are told apart by content."""
    found: list[Given] = []
    for one in given:
        if one.name not in ("config", "force-config", "fallback-config"):
            found.append(one)
            continue
        text = read(one.value)
        if one.name == "config" and go_flags.is_lines(text):
            found += go_flags.parse(["-config", one.value], SWITCHES, partial(_said, text))[0]
        else:
            found += _from_yaml(one.value, text)
    return found


def _said(text: str, _: str) -> str:
    return text


def _from_yaml(path: str, text: str) -> list[Given]:
    """What a YAML configuration says of policy, dump and logger; the other modules configure policies."""
    try:
        tree = yaml.safe_load(text)
    except YAML_FAULTS as error:
        raise WireError(path, f"is no YAML: {' '.join(str(error).split())}") from error
    if tree is None:
        return []
    if not isinstance(tree, dict):
        raise WireError(path, "is neither a file of `option = value` lines nor YAML with modules at its top")
    known = {
        ("policy", "Active"): "policy",
        ("policy", "AvailableResources"): "available-resources",
        ("policy", "ReservedResources"): "reserved-resources",
        ("dump", "Config"): "dump",
        ("dump", "File"): "dump-file",
        ("logger", "Debug"): "logger-debug",
    }
    found = []
    for (module, name), option in known.items():
        inside = tree.get(module)
        if isinstance(inside, dict) and name in inside:
            value = inside[name]
            found.append(Given(option, "" if value is None else str(value), f"{path} {module}.{name}"))
    return found


def _take(chosen: Chosen, one: Given) -> None:
    match one.name:
        case "h" | "help":
            chosen.asked = "help"
        case "print-config" | "list-policies" | "list-loggers":
            chosen.asked = one.name if one.value == "true" else chosen.asked
        case "policy":
            _policy(one)
        case "runtime-socket":
            chosen.pairs["relay.runtime"] = _path(one)
        case "relay-socket":
            chosen.pairs["relay.listen"] = _path(one)
        case "image-socket":
            _images(chosen, one)
        case "dump":
            before = chosen.pairs.get("dump.rules")
            chosen.pairs["dump.rules"] = one.value if before is None else f"{before},{one.value}"
        case "dump-file":
            chosen.pairs["dump.file"] = _path(one)
        case "pid-file":
            chosen.pid_file = one.value
        case "logger-level":
            if one.value not in LEVELS:
                raise CriResmgrError(f"--logger-level: {one.value!r} is none of {', '.join(LEVELS)} ({one.where})")
            chosen.log_level = LEVELS[one.value]
        case "logger-debug":
            chosen.log_level = chosen.log_level if one.value in ("", "none") else "debug"
        case name if name in _REFUSED:
            raise CriResmgrError(f"--{name}: {_REFUSED[name]}; leave it out to relay and dump ({one.where})")
        case name:
            chosen.notes.append(f"--{name}: {_REMARKS[name]} ({one.where})")


def _policy(one: Given) -> None:
    if one.value not in NO_POLICY:
        raise CriResmgrError(
            f"--policy: {one.value!r} {_LATER_POLICY}; null or none relays and changes nothing ({one.where})"
        )


def _path(one: Given) -> str:
    path = one.value.removeprefix("unix://")
    if not path.startswith("/"):
        raise CriResmgrError(f"--{one.name}: {one.value!r} is no absolute path ({one.where})")
    return path


def _images(chosen: Chosen, one: Given) -> None:
    if one.value == "default":
        chosen.pairs["relay.image"] = ""
    elif one.value == "-":
        chosen.notes.append("--image-socket -: image calls are passed on like any other, and answered by the runtime")
    else:
        chosen.pairs["relay.image"] = _path(one)


def _runtime(chosen: Chosen, exists: Callable[[str], bool]) -> None:
    if "relay.runtime" in chosen.pairs:
        return
    found = next((path for path in RUNTIMES if exists(path)), RUNTIMES[1])
    chosen.pairs["relay.runtime"] = found
    how = "is there" if exists(found) else f"is waited for; none of {', '.join(RUNTIMES)} is there"
    chosen.notes.append(f"no --runtime-socket: {found} {how}")


def _image_socket(chosen: Chosen) -> None:
    """Where images of another service are relayed: CRI Resource Manager had one socket for both."""
    if chosen.pairs.get("relay.image"):
        path = f"{chosen.pairs['relay.listen'].rpartition('/')[0]}/cri-resmgr-image.sock"
        chosen.pairs["relay.image_listen"] = path
        chosen.notes.append(f"images: point kubelet's image service at {path}")
