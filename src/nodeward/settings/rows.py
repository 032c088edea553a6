"""The row of settings, as people read it."""

from dataclasses import dataclass

from nodeward.core.shown import gauge


@dataclass(frozen=True, slots=True)
class SettingsRow:
    """Which settings hold, and what became of newer ones."""

    source: str = ""
    accepted_wall_ns: int = 0
    faults: tuple[str, ...] = gauge(
        "nodeward_settings_faults", "Faults of newer settings, which were refused.", default=()
    )
    """Why newer settings were refused; empty once they are accepted."""
    need_restart: tuple[str, ...] = gauge(
        "nodeward_settings_need_restart", "Settings that take effect only after a restart.", default=()
    )
    policy_object: str = ""
    """The BalloonsPolicy or TopologyAwarePolicy object that the policy is by; empty: the settings have it."""
    policy_object_faults: tuple[str, ...] = ()
    """Why the object that means this node is not in force."""
