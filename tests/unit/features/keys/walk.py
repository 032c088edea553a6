"""Every world that can be reached from a first one, each once: what the small models of `keys` are played by."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import TypeVar

from tests.unit.features.keys.asking import Node

W = TypeVar("W")
N = TypeVar("N", bound=Node)


def worlds(first: W, steps: Callable[[W], Iterable[W]], key: Callable[[W], object]) -> Iterator[W]:
    """The nearest first. Two worlds with one `key` are the same."""
    known, todo = {key(first)}, deque([first])
    while todo:
        world = todo.popleft()
        yield world
        for after in steps(world):
            if (name := key(after)) not in known:
                known.add(name)
                todo.append(after)


def copied(node: N) -> N:
    other = copy(node)
    other.charged, other.held, other.goals = dict(node.charged), dict(node.held), dict(node.goals)
    other.commits, other.waited_for = [], []
    return other
