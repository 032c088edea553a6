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


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("title", "''"),
        ("title", "x" * 61),
        ("about", "x" * 201),
        ("capacity", "{sgx_epc: -1}"),
        ("capacity", "{sgx_epc: 9223372036854775808}"),
        ("capacity", "{gold: 1}"),
        ("pods", "0"),
        ("pods", "201"),
        ("pods", "1.5"),
        ("vms", "-1"),
        ("vms", "201"),
        ("offer", "maybe"),
        ("sandboxes", "-1"),
        ("sandboxes", "201"),
        ("life_s", "[12, 4]"),
        ("life_s", "[0, 4]"),
        ("life_s", "[4, 86401]"),
        ("life_s", "[.nan, .nan]"),
        ("life_s", "[4]"),
        ("charge_every_s", "0"),
        ("charge_every_s", "3601"),
        ("greedy", "1.1"),
        ("greedy", "-0.1"),
        ("greedy", ".nan"),
        ("late_spec_s", "-1"),
        ("late_spec_s", ".inf"),
        ("grace_s", "0"),
        ("grace_s", ".nan"),
        ("events", "{}"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_its_file_its_key_and_what_is_allowed(
    key: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{key}: {text}\n" + ("" if key == "title" else "title: T\n"))
    with pytest.raises(SettingsError) as caught:
        load(str(file))

    (fault,) = caught.value.faults
    assert fault.startswith(f"{file}: {key}: ")
    assert fault.endswith(f" must be {ALLOWED[key]}")


@pytest.mark.parametrize(
    ("key", "text"), [("at_s", "-1"), ("at_s", ".nan"), ("every_s", "0.01"), ("every_s", "-2"), ("do", "nap")]
)
def test_an_event_out_of_range_is_refused_with_its_place(key: str, text: str, tmp_path: Path) -> None:
    event = {"at_s": "1", "do": "drift", key: text}
    file = tmp_path / "mine.yaml"
    file.write_text("title: T\nevents:\n- {" + ", ".join(f"{name}: {value}" for name, value in event.items()) + "}\n")
    with pytest.raises(SettingsError) as caught:
        load(str(file))

    (fault,) = caught.value.faults
    assert fault.startswith(f"{file}: events[0].{key}: ")
    assert fault.endswith(f" must be {ALLOWED[key]}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("offer: true\ncapacity: {tdx: 4}\n", "vms: with `offer: true` there must be some"),
        ("offer: true\nvms: 2\n", "capacity: with `offer: true` it must have some tdx"),
        ("events: [{at_s: 1, do: lose-quotes}]\n", "events: lose-quotes happens only with `offer: true`"),
    ],
)
def test_what_does_not_fit_together_of_offering_keys_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"title: T\n{text}")
    with pytest.raises(SettingsError, match=re.escape(fault)):
        load(str(file))
