"""The commands on the pages of the docs, for the tests that run them.

A test takes a command with `of_page` and puts its own names for the page's: so it fails when the page changes its mind.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")))
PROGRAMS: Final = (
    *(
        "nodeward",
        "nodeward-oci-hook",
        "cri-resmgr",
        "cri-resmgr-agent",
        "cri-resmgr-webhook",
        "cri-resmgr-agent-probe",
        "kubectl",
        "helm",
    ),
    *("make", "curl", "grpcurl", "systemctl", "ctr", "crictl", "podman", "ssh", "cp", "rm", "mkdir", "python3", "pip"),
    *("scripts/install-tools", "scripts/build-peers", "scripts/vm-prepare", "minisign", "sha256sum", "kustomize"),
    *("deploy/webhook/make-certificate", "for", "mount"),
)
INSTALLED: Final = "/opt/nodeward/bin/"


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a page has it."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text[:60]}"


def _complete(text: str) -> bool:
    if text.startswith("for "):
        return text.endswith("done")
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.rstrip().endswith("\\")


def commands(page: Path) -> Iterator[Command]:
    """What stands in the page's indented and fenced blocks and begins with a program's name."""
    fenced, kept, first = False, "", 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
            continue
        if not (fenced or line.startswith("    ")):
            kept = ""
            continue
        kept, first = (f"{kept}\n{line.strip()}", first) if kept else (line.strip(), number)
        words = [one for one in kept.split() if not re.fullmatch(r"[A-Za-z_]+=\S*", one)]
        if not words or words[0].removeprefix(INSTALLED) not in PROGRAMS:
            kept = ""
        elif _complete(kept):
            yield Command(page.name, first, kept.replace(INSTALLED, ""))
            kept = ""


_OUTPUT: Final = re.compile(r"nodeward node (ended|runs)")
FOUND: Final = tuple(one for page in PAGES for one in commands(page) if not _OUTPUT.match(one.text))


def of_page(page: str, start: str) -> str:
    """The page's command that is this one, else the first that begins so."""
    texts = [one.text for one in FOUND if one.page == page and one.text.startswith(start)]
    assert texts, f"{page} has no command {start!r} any more"
    return start if start in texts else texts[0]


def taken() -> Iterator[str]:
    """Every command that some test takes with `of_page`."""
    call = re.compile(r"""of_page\(\s*["']([\w.-]+)["'],\s*(?:"([^"]+)"|'([^']+)')\s*\)""")
    for file in (ROOT / "tests").rglob("*.py"):
        for page, plain, quoted in call.findall(file.read_text(encoding="utf-8")):
            yield of_page(page, plain or quoted)


def typed(page: str, heading: str) -> str:
    """The block of a page of the docs that is the first below a heading, such as settings."""
    below = (ROOT / "docs" / page).read_text().partition(f" {heading}\n")[2]
    block = re.search(r"(?m)(?:^    .*\n|^\n(?=    ))+", below)
    assert block is not None, f"{page}: nothing is typed below {heading}"
    return textwrap.dedent(block[0])
