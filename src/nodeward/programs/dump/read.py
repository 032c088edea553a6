"""Shows a dump's calls: which pod and container each is about, as text or as JSON.

Calls name pods by ids that the runtime gave out, so the reader remembers what RunPodSandbox and CreateContainer said,
and each message of GetContainerEvents, which is shown by itself. Of a pod from before all these only its id is known.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Final

import yaml

from nodeward.core.errors import WireError
from nodeward.programs.dump.lines import Dumped, Remark

MAX_NAMES = 100_000
"""So many pods and containers are remembered; the oldest are forgotten first."""
_ID = re.compile(rb"(pod_sandbox_id|container_id): \"?([^\s\"]{1,256})\"?")


@dataclass(frozen=True, slots=True)
class About:
    """The subject of a call, as far as the dump has it. `pod` is NAMESPACE/NAME."""

    pod: str = ""
    pod_uid: str = ""
    sandbox_id: str = ""
    container: str = ""
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which calls are shown; everything that is given must hold. Names are whole, ids may be their beginnings."""

    method: re.Pattern[str] | None = None
    pod: str = ""
    container: str = ""
    failed: bool = False
    slower_s: float | None = None

    def takes(self, call: Dumped, about: About) -> bool:
        """Whether this call is shown."""
        if self.method is not None and self.method.search(call.method) is None:
            return False
        if self.failed and not call.failed:
            return False
        if self.slower_s is not None and (call.took_s is None or call.took_s <= self.slower_s):
            return False
        if self.pod and not _names(
            self.pod, (about.pod, about.pod.rpartition("/")[2], about.pod_uid), about.sandbox_id
        ):
            return False
        return not self.container or _names(self.container, (about.container,), about.container_id)


def _names(wanted: str, names: tuple[str, ...], full_id: str) -> bool:
    return wanted in names or (len(wanted) >= 4 and full_id.startswith(wanted))


@dataclass(slots=True)
class Known:
    """What was learned of pods and containers so far, by the runtime's ids."""

    pods: dict[str, About] = field(default_factory=dict)
    containers: dict[str, About] = field(default_factory=dict)

    def about(self, call: Dumped) -> About:
        """What a call is about; learns from it."""
        if call.method == "RunPodSandbox":
            return self._ran(call)
        if call.method == "CreateContainer":
            return self._created(call)
        if call.method == "GetContainerEvents":
            return self._happened(call)
        ids = {found[1]: _line(found[2]) for line in call.request if (found := _ID.fullmatch(line))}
        if container_id := ids.get(b"container_id", ""):
            return self.containers.get(container_id, About(container_id=container_id))
        sandbox_id = ids.get(b"pod_sandbox_id", "")
        return self.pods.get(sandbox_id, About(sandbox_id=sandbox_id))

    def _ran(self, call: Dumped) -> About:
        named = _at(tree(call.request), "config", "metadata")
        pod = f"{_text(named, 'namespace')}/{_text(named, 'name')}"
        sandbox_id = _text(_reply(call), "pod_sandbox_id")
        about = About(pod, _text(named, "uid"), sandbox_id)
        _put(self.pods, sandbox_id, about)
        return about

    def _created(self, call: Dumped) -> About:
        asked = tree(call.request)
        of_pod = _at(asked, "sandbox_config", "metadata")
        pod = f"{_text(of_pod, 'namespace')}/{_text(of_pod, 'name')}" if of_pod else ""
        container_id = _text(_reply(call), "container_id")
        sandbox_id = _text(asked, "pod_sandbox_id")
        name = _text(_at(asked, "config", "metadata"), "name")
        about = About(pod, _text(of_pod, "uid"), sandbox_id, name, container_id)
        _put(self.containers, container_id, about)
        return about

    def _happened(self, call: Dumped) -> About:
        """An event says whom it is about; where it lacks that, as of a pod that is gone, what was said before holds. Of
        a sandbox the id stands as a container's."""
        told = _reply(call)
        status = _at(told, "pod_sandbox_status")
        named = _at(status, "metadata")
        own_id, sandbox_id = _text(told, "container_id"), _text(status, "id")
        before = self.containers.get(own_id) or self.pods.get(sandbox_id or own_id) or About()
        pod = f"{_text(named, 'namespace')}/{_text(named, 'name')}" if named else before.pod
        uid, sandbox_id = _text(named, "uid") or before.pod_uid, sandbox_id or before.sandbox_id
        if own_id == sandbox_id:
            about = About(pod, uid, sandbox_id)
            _put(self.pods, sandbox_id, about)
            return about
        statuses = _at(told, "containers_statuses")
        of_it = [one for one in statuses if _text(one, "id") == own_id] if isinstance(statuses, list) else []
        name = _text(_at(of_it[0], "metadata"), "name") if of_it else before.container
        about = About(pod, uid, sandbox_id, name, own_id)
        _put(self.containers, own_id, about)
        return about


def tree(lines: list[bytes]) -> object:
    """A message's lines as a tree; the lines themselves where they are none."""
    try:
        return parse_tree(lines)
    except WireError:
        return [_line(line) for line in lines]


def _line(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def text(call: Dumped, about: About) -> Iterator[str]:
    """A call for people: one line of what, how long and about whom, then both messages."""
    whom = "/".join(part for part in (about.pod or about.sandbox_id, about.container or about.container_id) if part)
    how_long = "no reply" if call.took_s is None else f"{call.took_s * 1000:.3f} ms"
    ended = " FAILED" if call.failed else ""
    yield f"{call.at or '(request not shown)'} {call.number} {call.method} {whom or '-'} {how_long}{ended}"
    yield from (f"  > {_line(line)}" for line in call.request)
    for reply in call.replies:
        yield from (f"  < {_line(line)}" for line in reply)


Value = bool | int | float | str | list["Value"] | dict[str, "Value"] | None
MAX_LEVEL: Final = 200
"""Lists and mappings within each other; what writes a dump ends at 64 messages, two each."""
PIECE: Final = 65_536
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML has it: ten times as fast."""
_WORDS: Final = {"true": True, "false": False, "null": None, "": None, "~": None}
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,25}(?:\.[0-9]{1,25})?(?:[eE][-+]?[0-9]{1,3})?")


class _Stream:
    """The lines as YAML's reader asks for them, so that they are never together."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._pieces = _pieces(lines)

    def read(self, size: int = 0, /) -> str:
        """The next piece, whatever its size; nothing at the end."""
        return next(self._pieces, "")


def _pieces(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines and their ends in pieces; what is no UTF-8 is shown as such."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    for line in lines:
        for at in range(0, len(line), PIECE):
            if piece := decode(line[at : at + PIECE]):
                yield piece
        yield decode(b"\n")


def parse_tree(lines: Iterable[bytes]) -> Value:
    """The one value of lines without their ends."""
    top: list[Value] = []
    within: list[list[Value] | dict[str, Value]] = [top]
    keys: list[str | None] = [None]
    """Of each of these that is a mapping the key whose value comes next."""
    try:
        for event in yaml.parse(_Stream(lines), Loader=_LOADER):
            if isinstance(event, yaml.CollectionEndEvent):
                within.pop()
                keys.pop()
            elif isinstance(event, yaml.NodeEvent):
                made = _begun(event)
                keys[-1] = _put_at(within[-1], keys[-1], made, event)
                if isinstance(made, list | dict):
                    if len(within) > MAX_LEVEL:
                        raise WireError("yaml", f"is nested more than {MAX_LEVEL} levels deep")
                    within.append(made)
                    keys.append(None)
    except yaml.YAMLError as error:
        raise WireError("yaml", " ".join(str(error).split())) from error
    if len(top) > 1:
        raise WireError("yaml", "has more than one document")
    return top[0] if top else None


def _put_at(into: list[Value] | dict[str, Value], key: str | None, made: Value, event: yaml.NodeEvent) -> str | None:
    """Puts it where it belongs; the key for what comes next, where this is one."""
    if isinstance(into, list):
        into.append(made)
    elif key is not None:
        into[key] = made
    elif isinstance(event, yaml.ScalarEvent):
        return event.value
    else:
        raise WireError("yaml", "has a key that is no text")
    return None


def _begun(event: yaml.NodeEvent) -> Value:
    """A value, still empty where it is a list or a mapping."""
    match event:
        case yaml.ScalarEvent():
            return _scalar(event)
        case yaml.SequenceStartEvent():
            return []
        case yaml.MappingStartEvent():
            return {}
    raise WireError("yaml", "has an alias (*name), which no dump has")


def _scalar(event: yaml.ScalarEvent) -> Value:
    text: str = event.value
    if not event.implicit[0]:  # in quotes, or with a tag
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and isfinite(number := float(text)):
        return number
    return text


def as_json(call: Dumped, about: About) -> dict[str, object]:
    """A call as one JSON object."""
    return {
        "number": call.number.lstrip("#"),
        "method": call.method,
        "at": call.at,
        "how": call.how,
        "took_s": call.took_s,
        "failed": call.failed,
        **asdict(about),
        "request": tree(call.request),
        "replies": [tree(reply) for reply in call.replies],
    }


def remark_as_json(remark: Remark) -> dict[str, object]:
    """What a dump says of itself as one JSON object; unlike a call's it has no method."""
    return {"at": remark.at, "missing": remark.missing, "remark": remark.text}


def _reply(call: Dumped) -> object:
    return {} if call.failed or not call.replies else tree(call.replies[0])


def _at(found: object, *path: str) -> object:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(found: object, name: str) -> str:
    value = _at(found, name)
    return "" if value is None else str(value)


def _put(table: dict[str, About], key: str, about: About) -> None:
    if key:
        table[key] = about
        if len(table) > MAX_NAMES:
            del table[next(iter(table))]
