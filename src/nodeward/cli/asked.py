"""The options of `status` and `top` that select rows: `-n`, `--state` and a pod."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from nodeward.people.rows import NodeView

F = TypeVar("F", bound=Callable[..., object])
STATES = (
    *("drift", "outside", "stale", "controller-off", "unsupported", "pending", "unknown"),
    *("enforced", "relayed", "counted", "unmanaged"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows."""

    namespace: str | None = None
    states: tuple[str, ...] = ()
    pod: str | None = None

    def of(self, view: "NodeView") -> "NodeView":
        """The picture with these rows, in the order for people. All else is the whole node's."""
        from nodeward.people.chosen import chosen
        from nodeward.people.verdict import verdict

        first = (view.verdict or verdict(view)).pods
        return replace(view, rows=chosen(view.rows, self.namespace, self.states, self.pod, first))

    def nothing(self, view: "NodeView") -> str:
        """Why no row is left; empty where some are, or all were asked for."""
        if view.rows or self == Asked():
            return ""
        words = [f"pod {self.pod}"] if self.pod else []
        words += [f"namespace {self.namespace}"] if self.namespace else []
        words += [f"state {' or '.join(self.states)}"] if self.states else []
        return f"no row has {', '.join(words)}; `nodeward status` shows all"


def row_options(command: F) -> F:
    """`-n` and `--state`, given to the command as `namespace` and `states`."""
    of_state = click.option(
        "--state", "states", multiple=True, type=click.Choice(STATES), help="Only cgroups in this state; repeatable."
    )
    return click.option("-n", "--namespace", help="Only pods of this namespace.")(of_state(command))
