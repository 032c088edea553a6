"""What must never be: the simulation's judgement, from what the kernel double holds and what the daemon says.

It knows each pod's manifest and computes the promise by itself, on purpose not with the engine's code.
"""

import math
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodeward.features.keys.rows import KeyRow
from nodeward.people.rows import NodeView

EXCESS = "charge-above-promise"
UNLIMITED = "limit-missing"
LOST = "event-lost"
STUCK = "lane-stuck"
UNSAID = "api-loss-unsaid"
OVERSOLD = "keys-oversold"
UNREAD = "keys-unread"
DRIFT, KILL_DAEMON, RESTART_RUNTIME = "drift", "kill-daemon", "restart-runtime"
"""The actions of a scenario that disturb what is judged here."""
TOLD_S = 3.0
"""Within this time the daemon knows of a promise that the API server was told of, and of one that has ended."""


def upwards(cgroup: str) -> Iterator[str]:
    """This cgroup, then each above it, without the root."""
    while cgroup:
        yield cgroup
        cgroup = cgroup.rpartition("/")[0]


@dataclass(slots=True)
class Watched:
    """One cgroup and what it was promised, in bytes. `since_s` is when it started or was last disturbed; infinite for
    one that started while the API server was away.
    """

    promised: int
    since_s: float
    reached: bool = False


@dataclass(slots=True)
class Judge:
    """Collects violations. Times are seconds of the simulation's clock."""

    grace_s: float
    resource: str = "sgx_epc"
    enforceable: bool = True
    cgroups: dict[str, Watched] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    checks: int = 0
    api_away: bool = False
    """Whether the API server is away; what runs already keeps its limits all the same."""
    _api_since: float = 0.0
    _missing_since: dict[str, float] = field(default_factory=dict)
    _silent_since: float | None = None
    _late_jobs: int = 0
    """Jobs that were stuck for want of a processor, of this life of the daemon."""
    _left: deque[tuple[float, int]] = field(default_factory=deque)
    """Since when how many keys were left, for as long back as matters."""
    _keys_read_s: float = 0.0

    def watch(self, cgroup: str, promised: int, now_s: float) -> None:
        """A cgroup whose limit must come."""
        self.cgroups[cgroup] = Watched(promised, now_s)

    def forget(self, cgroup: str) -> None:
        """A cgroup that is removed."""
        self.cgroups.pop(cgroup, None)

    def disturbed(self, action: str, now_s: float, cgroup: str = "") -> None:
        """Something was broken on purpose: the grace begins anew for what this action of a scenario disturbs, and for
        nothing else. Limits that the kernel has stay there while daemon or runtime are away."""
        for path, watched in self.cgroups.items():
            if path == cgroup if action == DRIFT else not watched.reached:
                watched.since_s, watched.reached = max(watched.since_s, now_s), False
        if action != DRIFT:
            self._missing_since.clear()
        if action == KILL_DAEMON:
            self._silent_since = None
            self._keys_read_s = now_s

    def lost_api(self, now_s: float) -> None:
        """The API server is away from now on."""
        self.api_away, self._api_since = True, now_s

    def restored_api(self, now_s: float) -> None:
        """The API server answers again: what started without it must have its limits within the grace."""
        self.api_away, self._api_since = False, now_s
        for watched in self.cgroups.values():
            if watched.since_s == math.inf:
                watched.since_s = now_s

    def limits(self, found: Mapping[str, int | None], now_s: float) -> None:
        """Compares the kernel's limits (None for `max`) with the promises."""
        if not self.enforceable:
            return
        for cgroup, limit in found.items():
            watched = self.cgroups.get(cgroup)
            if watched is None:
                continue
            self.checks += 1
            if limit == watched.promised:
                watched.reached = True
            elif now_s - watched.since_s > self.grace_s:
                self._violate(UNLIMITED, f"{cgroup}: limit is {limit}, promised {watched.promised}")
                watched.since_s = now_s

    def charged(self, cgroup: str, held: Mapping[str, int]) -> None:
        """A charge in this cgroup was accepted, after which it and those above it hold so much: none of them may hold
        more than its promise."""
        self.checks += 1
        for path in upwards(cgroup) if self.enforceable else ():
            watched = self.cgroups.get(path)
            usage = held.get(path, 0)
            if watched is not None and watched.reached and usage > watched.promised:
                self._violate(EXCESS, f"{path}: holds {usage}, promised {watched.promised}; charged in {cgroup}")

    def view(
        self,
        view: NodeView | None,
        running: Iterable[str],
        now_s: float,
        besides: Container[str] = (),
        *,
        starved: bool = False,
    ) -> None:
        """Compares what the daemon shows (None: no answer) with the containers that run. Those `besides` may be shown
        too: to who finds containers by their cgroups, a sandbox is one without a name. While the node is `starved` of
        processors a job may be late by the daemon's clock, and counts for nothing."""
        if view is None:
            self._silent_since = now_s if self._silent_since is None else self._silent_since
            if now_s - self._silent_since > self.grace_s:
                self._violate(STUCK, "the daemon does not answer")
                self._silent_since = now_s
            return
        self._silent_since = None
        self.checks += 1
        stuck = view.health.get("lanes_stuck", 0)
        if starved or stuck < self._late_jobs:  # it counts anew in its next life
            self._late_jobs = stuck
        if stuck > self._late_jobs:
            self._violate(STUCK, f"the daemon reports {stuck - self._late_jobs} stuck job(s)")
        self._said(view.api, now_s)
        shown = {row.id: row for row in view.rows if row.level == "container"}
        there = dict.fromkeys(running)
        wrong = [f"{i} runs and is not shown" for i in there if i not in shown]
        wrong += [f"{i} is shown and does not run" for i in shown if i not in there and i not in besides]
        self._missing_since = {what: self._missing_since.get(what, now_s) for what in wrong}
        for what, since in self._missing_since.items():
            if now_s - since > self.grace_s:
                self._violate(LOST, what)
                self._missing_since[what] = now_s

    def broken(self, invariant: str, what: str) -> None:
        """An invariant broke that somebody else has looked at."""
        self._violate(invariant, what)

    def most_left(self, since_s: float) -> int | None:
        """The most keys that were left at any moment since then; None where that is not known yet."""
        later = [keys for place, (_, keys) in enumerate(self._left) if self._end_s(place) > since_s]
        return max(later) if later else None

    def left(self, keys: int, now_s: float) -> None:
        """Sets how many keys are neither held nor promised from now on."""
        self._left.append((now_s, keys))

    def keys(self, view: NodeView | None, asked_s: float, now_s: float) -> None:
        """Compares the free keys that the daemon showed between `asked_s` and now with what was left: never more than
        at any moment since its sample, or since TOLD_S ago where that is earlier. Nothing is compared while the daemon
        says that it is not ready, or cannot know of promises; but a sample must be shown that is no older than the
        grace."""
        row = next((row for row in view.keys if row.key == "tdx"), None) if view is not None else None
        read_s = now_s - row.age_ms / 1e3 if row is not None and row.age_ms is not None else 0.0
        self._keys_read_s = max(self._keys_read_s or now_s, read_s)
        if now_s - self._keys_read_s > self.grace_s:
            self._violate(UNREAD, "no fresh sample of the keys is shown")
            self._keys_read_s = now_s
        told_late = self.api_away or 0 < self._api_since > now_s - self.grace_s
        if view is None or row is None or not view.ready or told_late:
            return
        self._sold(row, asked_s)

    def _sold(self, row: KeyRow, asked_s: float) -> None:
        since_s = asked_s - max((row.age_ms or 0) / 1e3, TOLD_S)
        while len(self._left) > 1 and self._left[1][0] <= asked_s - max(self.grace_s, TOLD_S):
            self._left.popleft()
        most = self.most_left(since_s)
        if row.free is None or most is None:
            return
        self.checks += 1
        if row.free > most:
            self._violate(OVERSOLD, f"{row.free} keys are shown as free, of which {most} are left: {row.sentence}")

    def _end_s(self, place: int) -> float:
        """Until when so many keys were left."""
        return self._left[place + 1][0] if place + 1 < len(self._left) else math.inf

    def _said(self, shown: str, now_s: float) -> None:
        """A loss is noticed at once; the return only at the next try, which back-off may have put off."""
        allowed_s = self.grace_s / 3 if self.api_away else self.grace_s
        if (shown != "answers") is not self.api_away and now_s - self._api_since > allowed_s:
            self._violate(UNSAID, f"the API server is {'away' if self.api_away else 'there'}, shown as {shown!r}")
            self._api_since = now_s

    def _violate(self, invariant: str, what: str) -> None:
        self.violations.append(f"{invariant}: {what}")
