"""Several who decide a relay's held calls, one after another."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nodeward.neighbours.cri.calls import Call, Decides, Pass, Refuse, Replace, Verdict


@dataclass(frozen=True, slots=True)
class Chain:
    """A Decides of several. Those that hold a call decide it one after another: the first that refuses it ends that,
    and what one replaces is handed on to the next."""

    deciders: tuple[Decides, ...]
    now_ns: Callable[[], int]

    def holds(self, path: str) -> bool:
        """Whether any does."""
        return any(one.holds(path) for one in self.deciders)

    def decide(self, call: Call, message: bytes, within_ns: int) -> Verdict | Awaitable[Verdict]:
        """Their verdict, at once where none of them has to wait."""
        left = tuple(one for one in self.deciders if one.holds(call.path))
        return self._by(left, call, message, Pass(), self.now_ns() + within_ns)

    def _by(
        self, left: tuple[Decides, ...], call: Call, message: bytes, verdict: Verdict, end_ns: int
    ) -> Verdict | Awaitable[Verdict]:
        """The verdict of those who are left; `verdict` is that of those before them."""
        for place, one in enumerate(left, 1):
            found = one.decide(call, message, max(0, end_ns - self.now_ns()))
            if isinstance(found, Awaitable):
                if place == len(left) and isinstance(verdict, Pass):
                    return found  # it is cancelled itself where nobody waits any more
                return self._later(found, left[place:], call, message, verdict, end_ns)
            if isinstance(found, Refuse):
                return found
            if isinstance(found, Replace):
                verdict, message = found, found.message
        return verdict

    async def _later(
        self,
        awaited: Awaitable[Verdict],
        left: tuple[Decides, ...],
        call: Call,
        message: bytes,
        verdict: Verdict,
        end_ns: int,
    ) -> Verdict:
        found = await awaited
        if isinstance(found, Refuse):
            return found
        if isinstance(found, Replace):
            verdict, message = found, found.message
        rest = self._by(left, call, message, verdict, end_ns)
        return await rest if isinstance(rest, Awaitable) else rest
