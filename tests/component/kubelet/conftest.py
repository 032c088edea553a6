"""What the tests of our device plugin share, beside node.py."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(name="home")
def _home() -> Iterator[Path]:
    """Kubelet's folder; a socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="kub") as folder:
        yield Path(folder)
