"""A CRI call as lines of a dump, in CRI Resource Manager's format (pkg/dump/dump.go); docs/relay.md shows it.

`#7` stands where that format has room for a client's name: it numbers the calls, so that a reply finds its request.
Fields are in the order of their names, as upstream's YAML has them. What may be secret (`_BLANKED` and what follows it,
annotations and labels but kubelet's own) is blanked here, before any disk sees it. Of fields that the schema does not
know only number and size are told.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from nodeward.contracts import cri_pb2
from nodeward.core.text import printable
from nodeward.features.settings import SECRETS
from nodeward.neighbours.formats.protobuf import is_too_much

STAMP = 24
"""Columns of a stamp, as `2006-Jan-02 15:04:05.000` has them."""
MAX_LEVEL = 64
"""Messages within messages; protobuf itself reads 100."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+=%-]*(?:[ :][A-Za-z0-9_./@+=%-]+)*")
_NOT_TEXT = re.compile(r"(?i)y|n|yes|no|on|off|true|false|null|nan|\.inf|[0-9.]+e[0-9]+")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON leaves in a text, and YAML takes for a line's end or refuses."""
_SERVICES = tuple(cri_pb2.DESCRIPTOR.services_by_name.values())
_BLANKED = {
    "runtime.v1.AuthConfig.username": "credentials",
    "runtime.v1.AuthConfig.password": "credentials",
    "runtime.v1.AuthConfig.auth": "credentials",
    "runtime.v1.AuthConfig.identity_token": "credentials",
    "runtime.v1.AuthConfig.registry_token": "credentials",
    "runtime.v1.WindowsContainerSecurityContext.credential_spec": "credentials",
    "runtime.v1.WindowsSandboxSecurityContext.credential_spec": "credentials",
    "runtime.v1.KeyValue.value": "environment",
    "runtime.v1.ContainerStatusResponse.info": "environment",
    "runtime.v1.PodSandboxStatusResponse.info": "environment",
    "runtime.v1.StatusResponse.info": "credentials",
    "runtime.v1.ImageStatusResponse.info": "environment",
    "runtime.v1.ContainerConfig.command": "commands",
    "runtime.v1.ContainerConfig.args": "commands",
    "runtime.v1.ExecRequest.cmd": "commands",
    "runtime.v1.ExecSyncRequest.cmd": "commands",
    "runtime.v1.ExecSyncResponse.stdout": "commands",
    "runtime.v1.ExecSyncResponse.stderr": "commands",
}
"""Fields that may hold a secret, and by which name showing them is asked for. An image's configuration has environment
values too; a runtime's own, as containerd tells it there, may have passwords of registries."""
_NO_DIGEST = r"@(?![\w+.-]+:[0-9a-fA-F]{32,})"
_USER = re.compile(rf"(?s)\A.*{_NO_DIGEST}")
_USER_IN_TEXT = re.compile(rf"(?<!\S)[^\s:]+:\S*{_NO_DIGEST}")
_IMAGE = ("image", "user_specified_image", "image_ref", "image_id", "repo_tags", "repo_digests")
_BLANKED_WITHIN = {"url": re.compile(r"(?<![^/])[^/]*\Z"), **dict.fromkeys(("server_address", *_IMAGE), _USER)}
"""Of texts that may hold credentials beside something else, by the field's name in any message: what may be one. A URL
is that of Exec, Attach or PortForward, and who has its last part takes the stream."""
_COMMAND_IN_TEXT = re.compile(r"(?s)(?:\bexec: |\bexecutable\b|\bcommand error\b).*")
"""Where runc, crun, gVisor and CRI-O begin to repeat a command, or what it wrote, in the words of a failure."""
_TEXTS_OF_PODS = ("annotations", "labels", "label_selector")
"""Maps of any message whose values a pod's author writes."""
_OF_POD = frozenset(f"io.kubernetes.pod.{name}" for name in ("name", "namespace", "uid"))
_OF_CONTAINER = _OF_POD | {"io.kubernetes.container.name"}
_GRACE = frozenset(("io.kubernetes.pod.terminationGracePeriod", "io.kubernetes.pod.deletionGracePeriod"))
_COUNTED = _GRACE | {f"io.kubernetes.container.{name}" for name in ("hash", "restartCount")}
_CONFIG = frozenset(("kubernetes.io/config.seen", "kubernetes.io/config.source"))
_KUBELETS_OWN = {
    **{f"runtime.v1.PodSandbox{of}.labels": _OF_POD for of in ("", "Config", "Status", "Attributes")},
    **{f"runtime.v1.PodSandbox{of}.annotations": _CONFIG for of in ("", "Config", "Status", "Attributes")},
    **{f"runtime.v1.Container{of}.labels": _OF_CONTAINER for of in ("", "Config", "Status", "Attributes")},
    **{f"runtime.v1.Container{of}.annotations": _COUNTED for of in ("", "Config", "Status", "Attributes")},
    **{f"runtime.v1.Container{of}Filter.label_selector": _OF_CONTAINER for of in ("", "Stats")},
    **{f"runtime.v1.PodSandbox{of}Filter.label_selector": _OF_CONTAINER for of in ("", "Stats")},
}
"""By field, the keys that kubelet always writes itself (its kuberuntime/labels.go and config/config.go). The same key
elsewhere is the author's: kubelet copies a pod's annotations and labels to its sandbox. So is `config.hash`, which it
writes for static pods only. `preStopHandler` of a container has a command."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Kubernetes' v1.LastAppliedConfigAnnotation."""
_PACKED = ("H4sI", "eyJ")
"""How base64 of what gzip packed begins, and of a JSON object."""
Kind = type[Message] | None
"""A message's class, None for one that the schema does not know."""


@dataclass(frozen=True, slots=True)
class Call:
    """One relayed call, or one more message of a stream."""

    number: int
    method: str
    """The bare name, as Version."""
    how: str
    """`passthrough`, `relayed` or `intercepted`."""


def stamp(at_ns: int) -> str:
    """A wall time, in this machine's time zone, to the millisecond."""
    at = datetime.fromtimestamp(at_ns // 1_000_000_000)
    month = _MONTHS[at.month - 1]
    return f"{at:%Y}-{month}-{at:%d %H:%M:%S}.{at_ns // 1_000_000 % 1000:03d}"


def latency(ns: int) -> str:
    """A latency in seconds, in a stamp's columns."""
    return f"+{ns / 1e9:f}".rjust(STAMP)


def request(call: Call, at_ns: int, body: Sequence[str]) -> str:
    """The lines of a request."""
    return _block(stamp(at_ns), call, "=>", "REQUEST", body)


def reply(call: Call, took_ns: int, body: Sequence[str]) -> str:
    """The lines of a reply."""
    return _block(latency(took_ns), call, "<=", "REPLY", body)


def failed(call: Call, took_ns: int, why: str) -> str:
    """The lines of a call that failed."""
    lines = [printable(line) for line in why.splitlines()]
    return _block(latency(took_ns), call, "<=", "FAILED", ("", *lines) if why else ())


def named(call: Call, took_ns: int, why: str | None) -> str:
    """The line of a call that is dumped by name only. `why` it failed, None where it did not."""
    head = f"[{latency(took_ns)}] #{call.number} {call.method} <= ({call.how}) "
    return f"{head}REQUEST\n" if why is None else f"{head}FAILED: {printable(' '.join(why.split()))}\n"


def remark(at_ns: int, text: str) -> str:
    """A line about the dump itself; upstream's format knows none, so it reads like a comment of YAML."""
    return f"[{stamp(at_ns)}] # {text}\n"


def head(shown: Iterable[str]) -> str:
    """The line with which a dump begins: what is hidden in it, and the setting that shows it; empty where all is shown.
    It has no time, so that it is the same in every file of a dump."""
    hidden = [name for name in SECRETS if name not in shown]
    if not hidden:
        return ""
    return (
        f"# hidden here: {', '.join(hidden)}. Setting dump.show names kinds to show, such as dump.show=[{hidden[-1]}]; "
        f"for cri-resmgr NODEWARD_DUMP__SHOW='[{hidden[-1]}]'\n"
    )


def _block(when: str, call: Call, arrow: str, word: str, body: Sequence[str]) -> str:
    head = f"[{when}] #{call.number} {call.method} {arrow} "
    if len(body) == 1:
        return f"{head}({call.how}) {word} {body[0]}\n"
    text = "\n".join(("", *filter(None, body))).replace("\n", f"\n{head}    ")
    return f"{head}({call.how}) {word}{text}\n"


@lru_cache(maxsize=256)
def kinds(service: str, method: str) -> tuple[type[Message], type[Message]] | None:
    """Request and reply of a method, by its service's name without the version; None where it is not known."""
    for one in _SERVICES:
        found = one.methods_by_name.get(method) if one.name == service else None
        if found is not None:
            return GetMessageClass(found.input_type), GetMessageClass(found.output_type)
    return None


def body(kind: Kind, raw: bytes, shown: Sequence[str] = ()) -> list[str]:
    """A message as YAML's lines. `shown` are names of `features.settings.SECRETS` that are not blanked."""
    if kind is None:
        return [f"# {len(raw)} bytes of a message that this version does not know"]
    if is_too_much(kind, raw, apart=4):  # a number is a line
        return [f"# {len(raw)} bytes of {kind.DESCRIPTOR.name}, which would take too much memory to show"]
    try:
        return list(_lines(kind.FromString(raw), shown, 0)) or ["{}"]
    except DecodeError:
        return [f"# {len(raw)} bytes that are no {kind.DESCRIPTOR.name}"]


def _as_row(lines: Iterable[str]) -> tuple[str, ...]:
    first, *more = list(lines) or ["{}"]
    return (f"- {first}", *(f"  {line}" for line in more))


def _lines(message: Message, shown: Sequence[str], level: int) -> Iterator[str]:
    if level > MAX_LEVEL:
        yield "# deeper than is shown"
        return
    for field, value in sorted(message.ListFields(), key=lambda pair: pair[0].name):
        secret = _BLANKED.get(field.full_name)
        if secret is not None and secret not in shown:
            yield f"{field.name}: '{_blank(secret)}'"
        else:
            yield from _field(field, value, shown, level)
    unknown_fields = UnknownFieldSet(message)
    for number in range(len(unknown_fields)):
        unknown = unknown_fields[number]
        size = f", {len(unknown.data)} bytes" if isinstance(unknown.data, bytes) else ""
        yield f"# field {unknown.field_number}, not known to this version{size}"


def _field(field: FieldDescriptor, value: object, shown: Sequence[str], level: int) -> Iterator[str]:
    if isinstance(value, Message):
        yield from _nested(f"{field.name}:", value, shown, level)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield f"{field.name}:"
        values = field.message_type.fields_by_name["value"]
        pairs = value.items() if isinstance(value, Mapping) else ()
        own = _KUBELETS_OWN.get(field.full_name, frozenset())
        hidden = field.name in _TEXTS_OF_PODS and "annotations" not in shown
        for key, one in sorted(pairs, key=lambda pair: str(pair[0])):
            head = f"  {_scalar(None, key)}:"
            if hidden and key not in own:
                yield f"{head} '{_blank('annotations')}'"
            elif "environment" not in shown and _may_be_manifest(key, one):
                yield f"{head} '{_blank('environment')}'"
            elif isinstance(one, Message):
                yield from (f"  {line}" for line in _nested(head.strip(), one, shown, level))
            else:
                yield f"{head} {_scalar(values, one)}"
    elif field.is_repeated:
        yield f"{field.name}:"
        for one in value if isinstance(value, Sequence) else ():
            if isinstance(one, Message):
                yield from _as_row(_lines(one, shown, level + 1))
            else:
                yield f"- {_scalar(field, _without_secrets(field.name, one, shown))}"
    else:
        yield f"{field.name}: {_scalar(field, _without_secrets(field.name, value, shown))}"


def _without_secrets(name: str, value: object, shown: Sequence[str]) -> object:
    if not isinstance(value, str):
        return value
    if name == "message":
        return words(value, shown)
    within = _BLANKED_WITHIN.get(name)
    return value if within is None or "credentials" in shown else within.sub(_blank("credentials"), value, count=1)


def words(text: str, shown: Sequence[str]) -> str:
    """A runtime's words of a failure, which may repeat an image's name or a command."""
    if "credentials" not in shown:
        text = _USER_IN_TEXT.sub(_blank("credentials"), text)
    return text if "commands" in shown else _COMMAND_IN_TEXT.sub(_blank("commands"), text)


def _may_be_manifest(name: object, text: object) -> bool:
    """Whether an annotation may hold a whole object of Kubernetes, as kubectl, kapp and Rancher's tools put there what
    they applied; kubelet hands a pod's annotations to the runtime. By what it says, since each has its own name."""
    if name == _LAST_APPLIED:
        return True
    return isinstance(text, str) and (("apiVersion" in text and "kind" in text) or text.startswith(_PACKED))


def _blank(secret: str) -> str:
    return f"*** {secret}, not shown ***"


def _nested(head: str, message: Message, shown: Sequence[str], level: int) -> Iterator[str]:
    inner = list(_lines(message, shown, level + 1))
    if not inner:
        yield f"{head} {{}}"
        return
    yield head
    yield from (f"  {line}" for line in inner)


def _scalar(field: FieldDescriptor | None, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return json.dumps(b64encode(value).decode())
    if isinstance(value, int) and field is not None and field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and not _NOT_TEXT.fullmatch(text):
        return text
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))
