"""Where the double and the real kernel are known to differ: case id -> reason. Such a case is an expected failure.

Empty is the aim. An entry whose case passes fails the suite (strict), so the list cannot outlive its reason.
"""

from collections.abc import Mapping
from typing import Final

ON_THE_DOUBLE: Final[Mapping[str, str]] = {}
ON_THE_REAL_KERNEL: Final[Mapping[str, str]] = {}
