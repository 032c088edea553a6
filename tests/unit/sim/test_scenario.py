"""Scenario files: each key has a range, and docs/scenarios.md says what the code says."""

import dataclasses
import re
from pathlib import Path

import pytest

from nodeward.app.settings.load import SettingsError
from nodeward.sim.scenario import ACTIONS, ALLOWED, Happening, Scenario, load

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "scenarios.md").read_text("utf-8")


def keys() -> list[str]:
    return [one.name for one in dataclasses.fields(Scenario)] + [one.name for one in dataclasses.fields(Happening)]


def test_the_document_has_every_key_with_what_it_may_hold() -> None:
    rows = re.findall(r"^\| `(?:events\[\]\.)?([a-z_]+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", DOCUMENT, re.MULTILINE)

    assert [(key, allowed) for key, _, allowed in rows] == [(key, ALLOWED[key]) for key in keys()]
    assert list(ALLOWED) == keys()


def test_the_document_has_the_defaults(tmp_path: Path) -> None:
    """They are put into a file, and that file is the default scenario."""
    rows = re.findall(r"^\| `([a-z_]+)` \| `([^|]+)` \| ", DOCUMENT, re.MULTILINE)
    file = tmp_path / "defaults.yaml"
    file.write_text("title: T\n" + "".join(f"{key}: {default}\n" for key, default in rows))

    assert load(str(file)) == Scenario("T")
    assert len(rows) == len(dataclasses.fields(Scenario)) - 2, "all but title and about"


def test_the_document_has_every_action_and_its_example_is_accepted(tmp_path: Path) -> None:
    assert re.findall(r"^\| `([a-z-]+)` \| [^|]+ \|$", DOCUMENT, re.MULTILINE) == list(ACTIONS)
    file = tmp_path / "example.yaml"
    file.write_text(re.sub("^    ", "", DOCUMENT.split("\n\n")[2], flags=re.MULTILINE))
    assert load(str(file)).events == (Happening(4.0, "drift", 6.0),)


BAD = {
    "title": ("''", "x" * 61),
    "about": ("x" * 201,),
    "capacity": ("{sgx_epc: -1}", "{sgx_epc: 9223372036854775808}", "{gold: 1}"),
    "pods": ("0", "201", "1.5"),
    "vms": ("-1", "201"),
    "offer": ("maybe",),
    "oversized": ("1.1",),
    "life_s": ("[12, 4]", "[0, 4]", "[4, 86401]", "[.nan, .nan]", "[4]"),
    "charge_every_s": ("0", "3601"),
    "greedy": ("1.1", "-0.1", ".nan"),
    "late_spec_s": ("-1", ".inf"),
    "grace_s": ("0", ".nan"),
    "events": ("{}",),
    "at_s": ("-1", ".nan"),
    "every_s": ("0.01", "-2"),
    "do": ("nap",),
}
"""Of each key, what it may not hold."""


@pytest.mark.parametrize(("key", "text"), [(key, text) for key, texts in BAD.items() for text in texts])
def test_a_value_out_of_its_range_is_refused_with_its_file_its_key_and_what_is_allowed(
    key: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    event = {"at_s": "1", "do": "drift", key: text}
    of_event = "events:\n- {" + ", ".join(f"{name}: {value}" for name, value in event.items()) + "}\n"
    within = key in {one.name for one in dataclasses.fields(Happening)}
    file.write_text(("" if key == "title" else "title: T\n") + (of_event if within else f"{key}: {text}\n"))
    with pytest.raises(SettingsError) as caught:
        load(str(file))

    (fault,) = caught.value.faults
    assert fault.startswith(f"{file}: {'events[0].' * within}{key}: ")
    assert fault.endswith(f" must be {ALLOWED[key]}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title: T\npods: many\n", "pods: 'many' must be a whole number"),
        ("pods: 3\n", "title: is missing"),
        ("title: T\npodz: 3\n", "podz: unknown key; known are title,"),
        ("title: T\nevents: 3\n", "events: 3 must be a list such as"),
        ("title: T\nevents: [3]\n", "events[0]: 3 must have keys, such as"),
        ("title: T\nevents: [{at_s: 1}]\n", "events[0].do: is missing"),
        ("title: T\noffer: true\ncapacity: {tdx: 4}\n", "vms: with `offer: true` there must be some"),
        ("title: T\noffer: true\nvms: 2\n", "capacity: with `offer: true` it must have some tdx"),
        ("title: T\nevents: [{at_s: 1, do: resize}]\n", "events: resize happens only with some `pinned`"),
        ("title: T\npinned: 2\nrelay: true\n", "pinned: with `relay: true` there can be none"),
        ("title: T\nevents: [{at_s: 1, do: move-vmm}]\n", "events: move-vmm happens only with some `katas`"),
        ("title: T\ngate: true\n", "gate: it needs some `katas`"),
        ("title: T\nkatas: 2\nrelay: true\n", "katas: with `relay: true` there can be none"),
        ("title: T\nevents: [{at_s: 1, do: lose-quotes}]\n", "events: lose-quotes happens only with `offer: true`"),
    ],
)
def test_a_fault_is_told_in_one_sentence_with_its_place(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file))

    (told,) = caught.value.faults
    assert told.startswith(f"{file}: {fault}")
