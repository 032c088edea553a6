"""What the engine decides: an Answer, Goals, Calls, each with the Reason for it."""

from collections.abc import Mapping
from enum import Enum

from nodeward.model.refusal import Reason as Reason
from nodeward.model.refusal import Refusal as Refusal
from nodeward.model.refusal import Refused as Refused
from nodeward.model.value import field, value


@value(frozen=True, slots=True)
class Adjustment:
    """What a container is to be given: the whole value of each unified key (`misc.max`), empty for no change."""

    unified: Mapping[str, str] = field(default_factory=dict)


@value(frozen=True, slots=True)
class Final:
    """An answer that ends the ask."""

    value: Adjustment | Refusal
    reason: Reason


@value(frozen=True, slots=True)
class Need:
    """The ask waits for a fact: `fact` is a kind (`pod`), `key` names it, `within_ns` bounds the wait."""

    fact: str
    key: str
    within_ns: int


@value(frozen=True, slots=True)
class Commit:
    """The ask waits until this record is durable."""

    record: str


class Special(Enum):
    """A goal's value that is no text."""

    ABSENT = "absent"


@value(frozen=True, slots=True)
class Goal:
    """What should be so in the world, for as long as nobody says otherwise.

    `target` is `<kind>:<where>`: `misc.max:sgx_epc:/kubepods/pod1` or `subtree:/kubepods`. `value` is the text to be
    there; ABSENT takes back what our record says we wrote. `undo` asks that the old value is kept on disk before the
    first write (for what outlives pods). `perform` is false where the domain only observes.
    """

    target: str
    value: str | Special
    reason: Reason
    undo: bool = False
    perform: bool = True
    ours: bool = False
    """What is to be taken back was written in our name by somebody else: by the runtime, at our word."""


@value(frozen=True, slots=True)
class PodEvent:
    """A call: one Kubernetes Event on a pod, or on the node itself where `pod` is empty, sent at most once. Its outcome
    returns as CallEnded with the same `id`.

    `series` is the id of the call that made the Event object: what happens again is sent with the same and a higher
    `count`. Where it is the call's own id, the object is to be made. Times are by the clock that decisions go by.
    """

    id: int
    series: int
    namespace: str
    pod: str
    pod_uid: str
    container: str
    """Empty for the pod itself, or the node."""
    field_path: str
    """Where in the pod's spec the container stands, as Kubernetes writes it; empty for the pod itself."""
    reason: Reason
    count: int
    first_ns: int
    last_ns: int


@value(frozen=True, slots=True)
class Fault:
    """A domain raised; its old slice was kept and its `on_error` answered."""

    domain: str
    error: str


@value(frozen=True, slots=True)
class Decision:
    """What follows from one event."""

    answer: Final | Need | Commit | None = None
    goals: tuple[Goal, ...] = ()
    forget: tuple[str, ...] = ()
    """Targets whose world is gone (a removed cgroup): their slots end without a write."""
    faults: tuple[Fault, ...] = ()
    notes: tuple[Reason, ...] = ()
    """Things a person should hear of (a log line), at most once each."""
    calls: tuple[PodEvent, ...] = ()
    """One-shot effects, for what cannot be a goal."""


NOTHING = Decision()
"""What most events lead to."""
