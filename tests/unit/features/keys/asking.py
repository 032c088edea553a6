"""A node whose keys we offer, and kubelet that asks: an engine with the core's part of an ask played by hand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from nodeward.core import events as ev
from nodeward.core.decision import Adjustment, Commit, Decision, Final, Goal, Need, Special
from nodeward.core.modes import Mode
from nodeward.core.refusal import Refusal
from nodeward.core.workload import ContainerSpec, PodSpec, PodUid, Role
from nodeward.features.all import apply
from nodeward.features.keys.device_ids import id_name
from nodeward.features.keys.id_states import stood
from nodeward.features.keys.rows import KeyRow
from nodeward.features.keys.settings import KeyKind, KeysSettings, Publisher
from nodeward.features.keys.state import Keys, Stood
from nodeward.features.keys.terms import KeyState
from nodeward.features.keys.view import key_rows
from nodeward.features.root import State
from nodeward.features.settings import EngineSettings
from tests.unit.features.build import SECOND, sandbox

TDX, KATA = "devices.kubevirt.io/tdx", "tdx.intel.com/keys"
ROW = KeyKind((TDX, KATA), publisher=Publisher.DEVICE_PLUGIN, publish=TDX)
ID = [id_name("tdx", number) for number in range(16)]


def offering(row: KeyKind = ROW, mode: Mode = Mode.ENFORCE) -> EngineSettings:
    return EngineSettings(keys=KeysSettings(mode, {"tdx": row}))


def with_row(row: KeyKind) -> State:
    return State(settings=offering(row))


def launcher(uid: str, keys: int = 1, *, init: int = 0, terminal: bool = False) -> ev.PodSeen:
    containers = [ContainerSpec("compute", declared={TDX: keys})]
    if init:
        containers.insert(0, ContainerSpec("prepare", Role.INIT, {TDX: init}))
    return ev.PodSeen(PodSpec(PodUid(uid), "shop", f"pod-{uid}", tuple(containers), terminal=terminal))


def kata(uid: str) -> ev.PodSeen:
    return ev.PodSeen(PodSpec(PodUid(uid), "shop", f"pod-{uid}", (ContainerSpec("app"),), overhead={KATA: 1}))


def states(found: Mapping[str, Mapping[str, Stood]]) -> dict[str, dict[str, KeyState]]:
    return {key: {name: one.state for name, one in ids.items()} for key, ids in found.items()}


@dataclass
class Node:
    """What the kernel and kubelet's checkpoint say whenever they are read, and the engine."""

    state: State = field(default_factory=lambda: State(settings=offering()))
    at_ns: int = SECOND
    capacity: dict[str, int] = field(default_factory=lambda: {"tdx": 16})
    root: int = 0
    root_fails: bool = False
    """A read of the whole node's counter fails."""
    charged: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    """What pods hold besides at the second read of a sample, after that of the root; and `root_late` what others do."""
    root_late: int = 0
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held_fault: str = ""
    beside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What kubelet's PodResources says where the checkpoint cannot be read."""
    answered: bool | None = None
    """Whether that is an answer without anybody unknown; None where it is not asked."""
    of_kubelet: tuple[PodSpec, ...] | None = None
    kernel_hangs: bool = False
    goals: dict[str, Goal] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    waited_for: list[str] = field(default_factory=list)
    last_ask: int = 0

    @property
    def wall_ns(self) -> int:
        return self.at_ns

    def tell(self, event: ev.Event) -> Decision:
        stamped = replace(event, at_ns=self.at_ns, wall_ns=self.wall_ns, seq=self.state.seq + 1)
        before = self.state.keys
        self.state, decision = apply(self.state, stamped)
        assert not decision.faults, decision.faults
        now = self.state.keys  # of the same offers and sample the same was compared before
        if not (now.offers is before.offers and now.sample is before.sample and now.stood is before.stood):
            assert states(now.stood) == states(stood(replace(self.state, keys=self._anew()), Keys()))
        self.goals.update((str(goal.target), goal) for goal in decision.goals)
        return decision

    def _anew(self) -> Keys:
        """The slice, without how it was said to stand with each id."""
        return replace(self.state.keys, stood={})

    def after(self, seconds: float) -> None:
        self.at_ns += int(seconds * SECOND)

    def sample(self) -> Decision:
        more = self.charged | {uid: self.charged.get(uid, 0) + amount for uid, amount in self.late.items()}
        pods = {PodUid(uid): {"tdx": (self.charged.get(uid, 0), amount)} for uid, amount in more.items()}
        roots = {} if self.root_fails else {"tdx": (self.root, self.root + self.root_late)}
        return self.tell(ev.KeysRead(self.state.seq, self.capacity, roots, pods))

    def view(self) -> Decision:
        said = self.beside if self.held_fault else self.held
        pods = {PodUid(uid): {TDX: ids} for uid, ids in said.items()}
        if self.of_kubelet is not None:
            self.tell(ev.PodsOfKubelet(self.state.seq, self.of_kubelet))
        answered = self.answered if self.held_fault else None
        return self.tell(ev.KeysHeld(self.state.seq, pods, {}, self.held_fault, answered=answered))

    def views(self, seconds: int) -> None:
        for _ in range(seconds // 2):
            self.after(2)
            self.view()

    def begin(self, grants: dict[str, int] | None = None, fault: str = "", *, api: bool = True) -> Self:
        if api:
            self.tell(ev.ApiBack())
        self.tell(ev.GrantsRecalled({TDX: grants or {}}, fault))
        self.view()
        return self.settle()

    def settle(self) -> Self:
        for _ in range(3):
            self.sample()
            self.after(2)
        self.sample()
        return self

    def ask(self, question: ev.Allocating | ev.Starting, commit_error: str = "") -> str:
        return self.end(self.open(question), commit_error)

    def open(self, question: ev.Allocating | ev.Starting) -> Decision:
        """Asks, and goes on until there is an answer or something to put on record."""
        self.last_ask += 1
        decision = self.tell(replace(question, ask_id=self.last_ask))
        while isinstance(decision.answer, Need):
            self.waited_for.append(decision.answer.fact)
            if decision.answer.fact == "held":
                self.view()
            elif not self.kernel_hangs:
                self.sample()
            decision = self.tell(ev.FactRead(self.last_ask))
        return decision

    def end(self, decision: Decision, commit_error: str = "") -> str:
        if isinstance(decision.answer, Commit):
            self.commits.append(decision.answer.record)
            decision = self.tell(ev.Committed(self.last_ask, commit_error))
        assert isinstance(decision.answer, Final), decision
        assert not self.state.asks
        assert not self.state.keys.reserved
        if isinstance(decision.answer.value, Refusal):
            return decision.answer.value.message
        assert decision.answer.value == Adjustment()
        return ""

    def allocate(self, *ids: str, commit_error: str = "") -> str:
        return self.ask(ev.Allocating(TDX, ids), commit_error)

    def admit(self, uid: str, *ids: str) -> str:
        """Kubelet allocates for a pod, keeps that, and the pod's sandbox starts."""
        refused = self.allocate(*ids)
        if not refused:
            self.held[uid] = ids
            self.tell(launcher(uid, len(ids)))
            self.tell(ev.SandboxStarted(sandbox(uid)))
        return refused

    def having(self, uid: str, *ids: str, runs: bool = False) -> Self:
        """It has admitted this pod, whose VM has taken its keys if it `runs`."""
        assert self.admit(uid, *ids) == ""
        if runs:
            self.charged, self.root = {**self.charged, uid: len(ids)}, self.root + len(ids)
        return self

    def start(self, *ids: str) -> str:
        return self.ask(ev.Starting(TDX, ids))

    @property
    def listed(self) -> list[tuple[str, bool]]:
        text = self.goals[f"offer:{TDX}"].value
        assert isinstance(text, str)
        return [(name, healthy) for name, healthy in json.loads(text)]

    @property
    def withdrawn(self) -> bool:
        return self.goals[f"offer:{TDX}"].value is Special.ABSENT

    @property
    def row(self) -> KeyRow:
        """What people are shown."""
        (found,) = key_rows(self.state, self.at_ns)
        return found

    def healthy(self) -> int:
        return sum(healthy for _, healthy in self.listed)
