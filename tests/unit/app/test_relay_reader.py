"""When the daemon expects a relay: the settings want one, it was used, or its socket is left behind."""

import pytest

from nodeward.app.node.relay_reader import RelayReader
from nodeward.model.view import DoorRow, RelayView
from tests.unit.engine.build import ManualClock

GONE, DEAD, HANGS = FileNotFoundError(2, "gone"), ConnectionRefusedError(111, "refused"), TimeoutError()


def answer(clients: int) -> RelayView:
    return RelayView("1", 7, 1, doors=(DoorRow("/run/nodeward/cri.sock", "/run/runtime.sock", True, clients),))


@pytest.mark.parametrize(
    ("heard", "wanted", "missing"),
    [
        pytest.param([GONE], False, False, id="there never was one"),
        pytest.param([GONE], True, True, id="the settings want one"),
        pytest.param([answer(1)], True, False, id="it answers"),
        pytest.param([answer(1), GONE, GONE], False, True, id="it ended under its clients, however long ago"),
        pytest.param([answer(1), answer(0), GONE], False, False, id="nobody used it any more"),
        pytest.param([DEAD], False, True, id="a dead one's socket, before we began"),
        pytest.param([answer(0), DEAD], False, True, id="killed while nobody used it"),
        pytest.param([answer(0), DEAD, GONE], False, False, id="its socket was taken away"),
        pytest.param([HANGS], False, True, id="it hangs"),
        pytest.param([answer(1), GONE, answer(0)], False, False, id="it is back"),
    ],
)
async def test_a_relay_is_missing_as_long_as_one_is_expected(
    monkeypatch: pytest.MonkeyPatch, heard: list[RelayView | Exception], wanted: bool, missing: bool
) -> None:
    left = iter(heard)

    async def ask(path: str, what: str, within_s: float) -> RelayView:
        one = next(left)
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr("nodeward.edges.local.relay_line.ask", ask)
    reader = RelayReader("/run/nodeward", ManualClock(), wanted=wanted)
    for _ in heard:
        await reader.look()
    assert reader.missing is missing
