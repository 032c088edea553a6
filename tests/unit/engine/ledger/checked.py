"""What alone.py and together.py take for granted, looked at in every world that histories.py meets by itself."""

from functools import cache

from tests.unit.engine.ledger.alone import Alones
from tests.unit.engine.ledger.histories import Id, World
from tests.unit.engine.ledger.played import After, Memory, Played
from tests.unit.engine.ledger.together import adds_up


class Check:
    """Holds every world, and every answer to an Allocate in it, against the ids that were played one by one."""

    def __init__(self, alones: Alones) -> None:
        self.unlike: list[object] = []
        """Ids of a world that are none of those; two questions that are one there, and were answered differently."""
        self.ids: dict[tuple[Id, bool], None] = {}
        """The different ids that were met."""
        self.played = _Agreeing(self.unlike)
        self._alones = alones

    def met(self, world: World) -> None:
        """Every id of this world is one that was played alone, or can become of one."""
        for one in world.ids:
            if (one, world.sure) not in self.ids:
                self.ids[one, world.sure] = None
                if not self._alones.covers(one, sure=world.sure):
                    self.unlike.append((one, world.sure))


class _Agreeing(Played):
    """What is added up tells the answer to an Allocate, where as much is published as there are keys."""

    def __init__(self, unlike: list[object]) -> None:
        super().__init__()
        self._unlike, self._said = unlike, dict[object, str]()
        self._adds_up = cache(adds_up)

    def allocate(self, memory: Memory, wanted: int) -> tuple[After, ...]:
        freely = memory._replace(published=len(memory.given))
        answer = super().allocate(freely, wanted)[0].answer
        each = (
            self._adds_up(given[:1], row, sure=memory.sure)
            for given, row in zip(memory.given, memory.pods, strict=True)
        )
        sums = tuple(map(sum, zip(*each, strict=True)))
        if self._said.setdefault((sums, memory.roots, memory.sure), answer) != answer:
            self._unlike.append((freely, wanted))
        return super().allocate(memory, wanted)
