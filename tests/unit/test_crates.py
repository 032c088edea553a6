"""The pins of peers in Rust."""

from pathlib import Path

import pytest

from tests.peers import crates
from tests.peers.recipes import RUST_FOLDER


@pytest.mark.parametrize("pins", sorted(RUST_FOLDER.glob("*/crates.sum")), ids=lambda path: path.parent.name)
def test_a_lock_file_of_the_pins_names_each_of_them_and_the_registry_that_it_was_given(pins: Path) -> None:
    pinned = pins.read_text(encoding="utf-8")
    lock = crates.lock(pinned, "registry+here")
    assert crates.sums(lock) == pinned
    assert crates.source(lock) == "registry+here"


@pytest.mark.parametrize("others", ["", 'source = "registry+b"'], ids=["none", "two"])
def test_a_lock_file_has_one_registry(others: str) -> None:
    one = '[[package]]\nname = "a"\n'
    with pytest.raises(ValueError, match="unpack"):
        crates.source(f'{one}{others}\n{one}source = "registry+a"\n' if others else one)
