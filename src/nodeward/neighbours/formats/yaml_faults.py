"""The exceptions that PyYAML raises for a text that is not valid.

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
