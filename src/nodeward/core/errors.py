"""The root of every error Nodeward raises on purpose.

    NodewardError
    ├── QuantityError        a Kubernetes quantity that cannot be read (core.quantity)
    ├── SettingsError        settings with faults, each with its path (settings.load)
    ├── WireError            bytes that are not the format they should be (core.wire_errors)
    ├── NriError, KubeError  one family for each edge (edges/*/errors.py)
    └── RecordError          a record that cannot be replayed (core.record)

A message names the thing, the value, the rule and the remedy. Errors of the operating system stay `OSError`.
"""


class NodewardError(Exception):
    """Something an operator or a caller can act on; its text is fit to be shown to a person."""
