"""What PyYAML raises for a text of which no values can be made.

Beside its own error there are those of its constructors, which believe a tag: `!!bool maybe` ends in a KeyError,
`!!int ''` in an IndexError, `!!timestamp soon` in an AttributeError, `2026-02-30` in a ValueError. Whoever reads YAML
that others wrote catches all of them.
"""

from typing import Final

import yaml

YAML_FAULTS: Final = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
