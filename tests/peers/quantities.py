"""How Kubernetes' own code reads quantities: `resource.ParseQuantity` in a program of its own."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tests.patience import scaled
from tests.peers.find import require

WITHIN_S = scaled(60.0)


@dataclass(frozen=True, slots=True)
class Reading:
    error: str
    value: int
    exact: str
    """The amount as a decimal number."""
    sign: int


def readings(texts: Sequence[str]) -> list[Reading]:
    program = str(require("quantities") / "quantities")
    asked = "".join(f"{json.dumps(text)}\n" for text in texts)
    done = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=WITHIN_S, check=True)
    return [Reading(**json.loads(line)) for line in done.stdout.splitlines()]
