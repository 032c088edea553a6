"""A node moves between its two fronts: when the plugin may have what claims gave up, and what a move waits for."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from nodeward.core import events as ev
from nodeward.core.claims import Front
from nodeward.core.devices import PluginStanding
from nodeward.core.events import Event
from nodeward.core.modes import Mode
from nodeward.features.keys.effects.front import FILE, FrontKeeper
from nodeward.features.keys.fronts import may_be_seen, to_be_seen
from nodeward.features.keys.move import waits
from nodeward.features.keys.settings import Publisher
from nodeward.features.root import State
from nodeward.features.settings import Settings
from nodeward.host.hostfs import OsFiles
from tests.rigs.daemon import AtOnce
from tests.unit.features.keys.asking import TDX
from tests.unit.features.keys.fronts import DRIVER, ROW, Claimed, claim, node, settings


def told(one: Claimed, value: int, since_wall_ns: int = 0) -> int | None:
    one.tell(ev.SliceTold(DRIVER, {"tdx": value}, since_wall_ns))
    return may_be_seen(one.state, "tdx")


def test_a_smaller_number_counts_half_a_minute_after_the_api_server_has_it_and_a_higher_one_at_once() -> None:
    one = node("all")
    assert told(one, 4) == 4
    one.after(5)
    assert told(one, 2) == 4
    one.after(20)
    assert told(one, 3) == 4
    one.after(9)
    assert told(one, 1) == 4
    one.after(2)
    one.sample()
    assert may_be_seen(one.state, "tdx") == 3
    assert told(one, 5) == 5
    one.after(40)
    assert told(one, 5) == 5


@pytest.mark.parametrize(("age_s", "free"), [(0.0, 0), (29.0, 0), (31.0, 4)])
def test_after_a_start_nobody_knows_what_was_published_before_a_young_slice(age_s: float, free: int) -> None:
    one = node("none")
    life = Claimed(State(settings=one.state.settings), at_ns=one.at_ns + 10**12, capacity={"tdx": 4})
    life.tell(ev.ClaimsRecalled(DRIVER))
    life.tell(ev.DriverTold(DRIVER, True))
    life.tell(ev.SliceTold(DRIVER, {"tdx": 0}, life.at_ns - int(age_s * 1e9)))
    life.begin()
    life.settle()
    assert life.healthy() == free
    life.after(30)
    life.settle()
    assert life.healthy() == 4


def test_the_plugin_gets_nothing_before_it_is_known_what_an_earlier_life_has_published() -> None:
    """However long the API server is away; and a slice that is gone may have been deleted just now, by kubelet."""
    one = Claimed(State(settings=settings("none")), capacity={"tdx": 4})
    one.tell(ev.ClaimsRecalled(DRIVER))
    one.begin()
    one.after(600)
    one.settle()
    assert (one.healthy(), to_be_seen(one.state, "tdx", 0)) == (0, None)
    one.tell(ev.SliceTold(DRIVER))
    one.settle()
    assert one.healthy() == 0
    one.after(30)
    one.settle()
    assert one.healthy() == 4


def test_of_many_numbers_of_before_the_highest_is_kept() -> None:
    one = node("all")
    for value in range(200, 100, -1):
        told(one, value)
        one.after(0.1)
    assert may_be_seen(one.state, "tdx") == 200


def test_a_kind_that_no_plugin_offers_stays_as_the_settings_share_it() -> None:
    one = node("all", row=replace(ROW, publisher=Publisher.NONE))
    one.settle()
    one.write()
    one.tell(ev.FrontChosen(Front.IDS))
    one.settle()
    assert (one.device(), waits(one.state, "tdx")) == ((4, False), ())


def test_a_move_says_what_it_waits_for_until_it_is_there_and_back() -> None:
    one = node("none")
    one.settle()
    one.tell(ev.PluginTold(TDX, PluginStanding.SERVING))
    assert one.prepare(claim("a")) == ""
    assert waits(one.state, "tdx") == ()

    one.tell(ev.FrontChosen(Front.CLAIMS))
    assert one.healthy() == 0
    assert waits(one.state, "tdx") == (
        "claims may be given 0 of 3 more keys: two readings of the kernel have to agree",
    )
    one.settle()
    assert waits(one.state, "tdx") == ("the API server has 0 of 4 keys for claims",)
    one.write()
    assert waits(one.state, "tdx") == ()

    one.tell(ev.FrontChosen(Front.IDS))
    assert waits(one.state, "tdx") == ("the API server has 4 of 1 keys for claims",)
    one.write()
    assert waits(one.state, "tdx") == ("the scheduler may go by the number of before for 30 s more",)
    one.after(30)
    one.sample()
    assert waits(one.state, "tdx") == ("kubelet is offered 0 of 3 more ids",)
    one.settle()
    assert (one.healthy(), waits(one.state, "tdx")) == (3, ())
    one.tell(ev.FrontChosen(Front.SETTINGS))
    assert (one.healthy(), waits(one.state, "tdx")) == (3, ())


class Heard:
    def __init__(self, state: State) -> None:
        self.state, self.told = state, list[Event]()

    def tell(self, event: Event) -> int:
        self.told.append(event)
        return 0


@pytest.mark.parametrize(
    ("body", "mode", "publisher", "why"),
    [
        (b"", Mode.ENFORCE, Publisher.DEVICE_PLUGIN, 'a move is {"to": "dra"}, or plugin, or settings: '),
        (b'{"to": "away"}', Mode.ENFORCE, Publisher.DEVICE_PLUGIN, "Invalid enum value 'away'"),
        (b'{"to": "dra", "now": 1}', Mode.ENFORCE, Publisher.DEVICE_PLUGIN, "unknown field"),
        (b'{"to": "dra"}', Mode.OBSERVE, Publisher.DEVICE_PLUGIN, "set them and restart the daemon"),
        (b'{"to": "plugin"}', Mode.ENFORCE, Publisher.NONE, "no row of keys.kinds has publisher: device-plugin"),
    ],
)
async def test_a_move_that_cannot_be_is_refused_and_changes_nothing(
    body: bytes, mode: Mode, publisher: Publisher, why: str, tmp_path: Path
) -> None:
    files = OsFiles(str(tmp_path))
    heard = Heard(State(settings=settings("none", replace(ROW, publisher=publisher), mode)))
    keeper = FrontKeeper(Settings(state_dir="/state"), files, AtOnce(), cast(Any, heard))
    with pytest.raises(ValueError, match=re.escape(why)):
        await keeper.choose(body)
    assert (heard.told, FILE.known(files, "/state")) == ([], None)


async def test_a_move_is_on_disk_before_it_is_told_and_not_told_where_the_disk_refuses(tmp_path: Path) -> None:
    files, heard = OsFiles(str(tmp_path)), Heard(State(settings=settings("none")))
    files.mkdir("/state")
    keeper = FrontKeeper(Settings(state_dir="/state"), files, AtOnce(), cast(Any, heard))
    assert await keeper.choose(b'{"to": "dra"}') == b'{"front":"dra"}'
    assert (heard.told, FILE.known(files, "/state")) == ([ev.FrontChosen(Front.CLAIMS)], Front.CLAIMS)
    away = FrontKeeper(Settings(state_dir="/gone"), files, AtOnce(), cast(Any, heard))
    with pytest.raises(ValueError, match=r"whether the choice is in /gone/keys\.front"):
        await away.choose(b'{"to": "plugin"}')
    assert len(heard.told) == 1
