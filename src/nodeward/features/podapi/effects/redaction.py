"""Redaction of pods: a v1.Pod without the values that may be secret.

Denies by default: text and numbers are withheld unless their path is in `_ALLOWED` and the value has the shape given
there. Names of fields, structure, booleans and nulls are kept, also of fields that this version does not know. A
withheld value is replaced by `{"$withheld": RULE}`. Errors never hold anything of the pod.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from nodeward.core.errors import WireError

MAX_BYTES: Final = 3 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 200_000
"""Values of all kinds in one pod."""
MARK: Final = "$withheld"
FORMAT: Final = "pod"

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,316})")
_WORD = re.compile(r"[A-Za-z0-9]{1,64}")
_QUANTITY = re.compile(r"[0-9.]{1,30}([numkKMGTPE]|[KMGTPE]i|e[0-9]{1,2})?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,512}(@sha256:[0-9a-f]{64})?")
_PATH = re.compile(r"/[A-Za-z0-9._/-]{0,1024}")
_TIME = re.compile(r"[0-9TZ:.+-]{1,40}")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,316}")
_UID = re.compile(r"[0-9A-Za-z._-]{1,128}")
Path = tuple[str, ...]
"""Names of fields; `*` for an item of a list, and in `_ALLOWED` for the value of any key. No shown key is that."""


def _allowed() -> Mapping[Path, re.Pattern[str]]:
    found: dict[Path, re.Pattern[str]] = {}

    def allow(shape: re.Pattern[str], above: str, *names: str) -> None:
        found.update({tuple(f"{above}{name}".split(".")): shape for name in names})

    allow(_NAME, "", "apiVersion", "kind")
    allow(_NAME, "metadata.", "name", "namespace", "generateName")
    allow(_UID, "metadata.", "uid", "resourceVersion", "generation")
    allow(_TIME, "metadata.", "creationTimestamp", "deletionTimestamp")
    allow(_NAME, "spec.", "nodeName", "runtimeClassName", "schedulerName", "priorityClassName", "serviceAccountName")
    allow(_WORD, "spec.", "restartPolicy", "dnsPolicy", "preemptionPolicy", "priority", "terminationGracePeriodSeconds")
    allow(_QUANTITY, "spec.", "overhead.*", "resources.requests.*", "resources.limits.*")
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        above = f"spec.{kind}.*."
        allow(_NAME, above, "name", "ports.*.name", "env.*.name", "volumeMounts.*.name", "volumeDevices.*.name")
        allow(_WORD, above, "imagePullPolicy", "restartPolicy", "ports.*.protocol", "ports.*.containerPort")
        allow(_WORD, above, "ports.*.hostPort", "terminationMessagePolicy", "volumeMounts.*.mountPropagation")
        allow(_QUANTITY, above, "resources.requests.*", "resources.limits.*")
        allow(_IMAGE, above, "image")
        allow(_PATH, above, "volumeMounts.*.mountPath", "volumeDevices.*.devicePath")
    allow(_NAME, "spec.volumes.*.", "name", "persistentVolumeClaim.claimName", "csi.driver")
    allow(_WORD, "spec.volumes.*.", "emptyDir.medium")
    allow(_QUANTITY, "spec.volumes.*.", "emptyDir.sizeLimit")
    allow(_WORD, "status.", "phase", "qosClass")
    return found


_ALLOWED: Final = _allowed()
_RULES: Final = (
    ("annotations", re.compile(r"metadata\.annotations\..*")),
    ("labels", re.compile(r"metadata\.labels\..*")),
    ("env", re.compile(r"spec\.[a-zA-Z]*ontainers\.\*\.env(From)?\..*")),
    ("command", re.compile(r"spec\.[a-zA-Z]*ontainers\.\*\.(command|args)\..*")),
    ("probes", re.compile(r"spec\.[a-zA-Z]*ontainers\.\*\.[a-z]+Probe\..*")),
    ("lifecycle", re.compile(r"spec\.[a-zA-Z]*ontainers\.\*\.lifecycle\..*")),
    ("volumes", re.compile(r"spec\.volumes\..*")),
    ("image-pull-secrets", re.compile(r"spec\.imagePullSecrets\..*")),
)
RULES: Final = (*(name for name, _ in _RULES), "not-allowed")
"""The names of the rules, for `{"$withheld": RULE}`."""


def decode(data: bytes) -> object:
    """The JSON value. WireError, without any of the content, for what is too large or no JSON."""
    if len(data) > MAX_BYTES:
        raise WireError(FORMAT, f"{len(data)} bytes: at most {MAX_BYTES} are read")
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise WireError(FORMAT, f"{len(data)} bytes that are no JSON, or nested too deeply") from None
    return found


def redacted(pod: object) -> object:
    """The pod with each value withheld that no rule allows. WireError for one that is too deep or has too many
    values."""
    return _Redaction().of(pod, ())


class _Redaction:
    """One pod's; counts its values."""

    def __init__(self) -> None:
        self._items = 0

    def of(self, value: object, path: Path) -> object:
        """The value at this path."""
        self._items += 1
        if len(path) > MAX_DEPTH or self._items > MAX_ITEMS:
            raise WireError(FORMAT, f"deeper than {MAX_DEPTH} levels or more than {MAX_ITEMS} values: it is not shown")
        if isinstance(value, dict):
            return self._mapping(value, path)
        if isinstance(value, list):
            return [self.of(one, (*path, "*")) for one in value]
        if value is None or isinstance(value, bool):
            return value
        shape = _ALLOWED.get(path) or _ALLOWED.get((*path[:-1], "*"))
        if isinstance(value, str | int) and shape is not None and shape.fullmatch(str(value)):
            return value
        place = ".".join(path)
        return {MARK: next((name for name, where in _RULES if where.fullmatch(place)), RULES[-1])}

    def _mapping(self, value: Mapping[object, object], path: Path) -> object:
        shown: dict[str, object] = {}
        for number, (key, one) in enumerate(value.items()):
            # a key that is no field's name and no label's may be a value itself
            name = key if isinstance(key, str) and _KEY.fullmatch(key) else f"{MARK}-key-{number}"
            shown[name] = self.of(one, (*path, name))
        return shown
