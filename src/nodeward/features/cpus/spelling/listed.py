"""What `nodeward cpus policies` says of each CPU policy, from the table of policies."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_type_hints

from nodeward.core.errors import NodewardError
from nodeward.features.cpus.policies.table import ALIASES, POLICIES
from nodeward.features.cpus.settings import STATIC_OPTIONS, PolicySettings
from nodeward.features.cpus.spelling import pools
from nodeward.features.cpus.spelling.policy import LATER
from nodeward.features.cpus.spelling.words import near


class UnknownPolicyError(NodewardError):
    """No policy of this name; the text says which there are."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy."""

    name: str
    aliases: tuple[str, ...]
    about: str
    needs: tuple[str, ...]
    """Settings without which it does not begin."""
    settings: tuple[str, ...]
    """Settings of its own."""
    options: dict[str, str]
    """What its setting `options` takes, and what each means."""
    not_enforced: dict[str, str] = dataclasses.field(default_factory=dict)
    """Keys of nri-plugins and CRI Resource Manager that are taken and have no effect, and why."""
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    """Keys of theirs that are refused, and why."""


def rows() -> tuple[PolicyRow, ...]:
    """Every policy, in the table's order."""
    hints = get_type_hints(PolicySettings)
    found = []
    for name, policy in POLICIES.items():
        section = hints.get(name.replace("-", "_"))
        is_section = isinstance(section, type) and dataclasses.is_dataclass(section)
        own = [one.name for one in dataclasses.fields(section)] if is_section and section is not None else []
        aliases = tuple(alias for alias, meant in ALIASES.items() if alias and meant == name)
        options = dict(STATIC_OPTIONS) if name == "static" else {}
        settings = tuple(f"policy.{name.replace('-', '_')}.{one}" for one in own)
        idle, barred = (dict(_left_out(name, table)) for table in (pools.NOT_ENFORCED, pools.REFUSED))
        found.append(PolicyRow(name, aliases, policy.about, policy.needs, settings, options, idle, barred))
    return tuple(found)


def _left_out(name: str, table: Mapping[type, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    section = pools.SECTIONS.get(name.replace("-", "_"))
    for kind in pools.kinds(section) if section is not None else ():
        yield from table.get(kind, {}).items()


def row_of(name: str) -> PolicyRow:
    """The policy of this name or alias. Raises UnknownPolicyError."""
    meant = ALIASES.get(name, name)
    for row in rows():
        if row.name == meant:
            return row
    later = "comes with a later version of Nodeward" if name in LATER else "is not known"
    meant = near(name, POLICIES, ALIASES)
    hint = f"did you mean {meant}? " if meant else ""
    raise UnknownPolicyError(f"the policy {name[:64]!r} {later}; {hint}policies are {', '.join(POLICIES)}")
