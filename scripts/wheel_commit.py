"""Writes into the wheel of which commit it is, for `nodeward --version`; hatchling calls this for `pip install .` too.

It must not fail a build: without git or a checkout the wheel does not say its commit. An editable install asks git.
"""

import runpy
import tempfile
from pathlib import Path

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[BuilderConfig]):
    """Adds `nodeward/commit.txt` without a change of the checkout."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        """Asks the package that is built, and has the answer added."""
        if version == "editable":
            return
        ours = runpy.run_path(str(Path(self.root, "src", "nodeward", "cli", "commit.py")))
        if name := ours["commit"]():
            self._scratch = tempfile.TemporaryDirectory(prefix="nodeward-wheel-")
            file = Path(self._scratch.name, "commit.txt")
            file.write_text(name, encoding="ascii")
            build_data["force_include"] = {str(file): "nodeward/commit.txt"}
