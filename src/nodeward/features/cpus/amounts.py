"""Resolves the settings `AvailableResources` and `ReservedResources` on a machine, for all policies.

Promises: a set is never empty, and every fault is a Denied that names the setting, its value, the rule and the remedy.
"""

from collections.abc import Callable

from nodeward.core.cpuset import CpuSet, text
from nodeward.features.cpus.settings import Amount, AmountKind
from nodeward.features.cpus.values import Denied, Ground

AVAILABLE = "policy.AvailableResources.CPU"
RESERVED = "policy.ReservedResources.CPU"


def universe(ground: Ground) -> CpuSet | Denied:
    """The CPUs that containers may have at all: available and online. The kernel's isolated ones are among them."""
    online, amount = ground.machine.online, ground.rules.available
    match amount.kind:
        case AmountKind.NONE:
            found = online
        case AmountKind.CPUSET:
            found = online & amount.cpus
        case AmountKind.EXCLUDE:
            found = online & ~amount.cpus
        case AmountKind.QUANTITY:
            return Denied(
                f"{_setting(AVAILABLE, amount)} is a number of CPUs, and which ones is not said; write "
                f'"cpuset:{text(online)}" or "exclude-cpuset:..."'
            )
    if not found:
        why = f"leaves containers no CPU: online are {text(online) or 'none'}; name some of these"
        return Denied(f"{_setting(AVAILABLE, amount)} {why}")
    return found


def reserved_offline(ground: Ground) -> CpuSet:
    """The CPUs that are reserved by number and offline now: they are left out while another one of these is online."""
    amount = ground.rules.reserved
    is_named = amount.kind is AmountKind.CPUSET and amount.cpus & ground.machine.online
    return amount.cpus & ground.machine.offline if is_named else 0


def reserved(ground: Ground, pick: Callable[[CpuSet, int], CpuSet]) -> CpuSet | Denied:
    """The CPUs reserved for the system. `pick` chooses a number of CPUs of a set that has as many."""
    allowed = universe(ground)
    if isinstance(allowed, Denied):
        return allowed
    amount, isolated = ground.rules.reserved, ground.machine.isolated
    ordinary = allowed & ~isolated
    match amount.kind:
        case AmountKind.NONE:
            return Denied(f'{RESERVED} is not set, and this policy needs it; write "1", or "cpuset:0"')
        case AmountKind.QUANTITY:
            count = -(-amount.milli // 1000)
            if not 0 < count <= ordinary.bit_count():
                return Denied(
                    f"{_setting(RESERVED, amount)}: {count} CPUs of the {ordinary.bit_count()} that are available "
                    f"and not isolated ({text(ordinary) or 'none'}); write a number from 1 to {ordinary.bit_count()}"
                )
            return pick(ordinary, count)
        case AmountKind.EXCLUDE:
            found = ordinary & ~amount.cpus
        case AmountKind.CPUSET:
            found = amount.cpus & ~reserved_offline(ground)
    faults = (
        ("not online", found & ~ground.machine.online),
        (f"not available by {AVAILABLE}", found & ground.machine.online & ~allowed),
        ("isolated by the kernel", found & allowed & isolated),
    )
    wrong = [f"CPUs {text(cpus)} are {why}" for why, cpus in faults if cpus]
    if not found:
        wrong = ["it names no CPU"]
    if wrong:
        return Denied(f"{_setting(RESERVED, amount)}: {', '.join(wrong)}; name some of {text(ordinary) or 'none'}")
    return found


def _setting(path: str, amount: Amount) -> str:
    if amount.kind is AmountKind.QUANTITY:
        return f"{path} ({amount.milli}m)"
    return path if amount.kind is AmountKind.NONE else f"{path} ({amount.kind.value}:{text(amount.cpus)})"
