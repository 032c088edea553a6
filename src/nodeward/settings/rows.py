"""The row of settings, as people read it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SettingsRow:
    """Which settings hold, and what became of newer ones."""

    source: str = ""
    accepted_wall_ns: int = 0
    faults: tuple[str, ...] = ()
    """Why newer settings were refused; empty once they are accepted."""
    need_restart: tuple[str, ...] = ()
    """Settings that were accepted and only hold after a restart."""
    policy_object: str = ""
    """The BalloonsPolicy object that the policy is by; empty: the settings have it."""
    policy_object_faults: tuple[str, ...] = ()
    """Why the object that means this node is not in force."""
