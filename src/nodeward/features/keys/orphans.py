"""Keys charged to cgroups that were removed: since when, and which of them leaked.

A VM's charge stays where it began. Where its cgroup is removed first, as at the end of a pod whose hypervisor still
ends, only the cgroups above tell of it (features/keys, K2): an orphan. A VM that ends gives it back. The
kernel never does where it could not take back a TDX key id; then the key is gone until the machine restarts. Nobody
tells the one from the other, so an orphan that stays for LEAKED_NS is called leaked: no VM takes as long to end.
"""

from collections.abc import Iterator, Sequence

from nodeward.core.events import HeldElsewhere, KeysRead
from nodeward.features.keys.rows import KeyElsewhere
from nodeward.features.keys.state import Keys
from nodeward.features.root import State

LEAKED_NS = 900_000_000_000
"""The alert on orphans waits for as long."""
_MOST = 1024
"""Keys of one cgroup; of a counter that says more, which is torn, the rest is not looked at."""


def since(before: Keys, event: KeysRead) -> dict[str, int]:
    """Since when there has been an orphan in every sample, by kind; and since when there have been so many below one
    cgroup, by kind, cgroup and number (`tdx/kubepods 2`)."""
    found: dict[str, int] = {}
    for one in event.elsewhere:
        if one.below:
            for name in (one.key, *_numbered(one)):
                found[name] = before.orphans.get(name, event.at_ns)
    return found


def stands(state: State, one: HeldElsewhere, now_ns: int) -> tuple[int | None, int]:
    """For how many nanoseconds a removed cgroup below this one has held keys, None where none does; and how many have
    leaked."""
    if not one.below:
        return None, 0
    known = state.keys.orphans
    ages = [now_ns - known[name] for name in _numbered(one) if name in known]
    return max(ages, default=0), sum(age >= LEAKED_NS for age in ages)


def finding(elsewhere: Sequence[KeyElsewhere]) -> Iterator[str]:
    """What an operator should know of leaks."""
    for one in elsewhere:
        if one.leaked:
            yield (
                f"{one.leaked} key(s) leaked below {one.cgroup}: held by what was removed there, the "
                f"oldest for {(one.for_ms or 0) // 60_000} minutes; end a VM that still runs without its cgroup, else "
                "they are back when the machine has restarted."
            )


def _numbered(one: HeldElsewhere) -> Iterator[str]:
    return (f"{one.key}{one.path} {number}" for number in range(1, min(one.amount, _MOST) + 1))
