"""The root of every error that Nodeward raises on purpose.

    NodewardError
    ├── QuantityError        a Kubernetes quantity that cannot be read (core.quantity)
    ├── SettingsError        settings with faults, each with its path (settings.load)
    ├── WireError            bytes that are not the format they should be (here)
    ├── NriError, KubeError  one family for each neighbour
    └── RecordError          a record that cannot be replayed (core.record)

A message names the thing, the value, the rule and the remedy. Errors of the operating system stay `OSError`.
"""

from enum import Enum


class NodewardError(Exception):
    """Something an operator or a caller can act on; its text is fit to be shown to a person."""


class WireError(NodewardError):
    """Bytes that are not the format they should be. `format` names the codec, the text says what was wrong."""

    def __init__(self, format: str, fault: str) -> None:  # noqa: A002 - the house word for what a codec reads
        super().__init__(f"{format}: {fault}")
        self.format = format
        self.fault = fault


class Failure(Enum):
    """The reason for a missing answer, as gRPC names it; the value is HTTP's status."""

    INVALID_ARGUMENT = 400
    PERMISSION_DENIED = 403
    NOT_FOUND = 404
    FAILED_PRECONDITION = 409
    RESOURCE_EXHAUSTED = 429
    INTERNAL = 500
    UNAVAILABLE = 503
    DEADLINE_EXCEEDED = 504


class AnswerError(NodewardError):
    """A call that has no answer. The text names the field and the rule, and repeats nothing of what was asked."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


class RequestError(AnswerError):
    """A request that cannot be: which field, and its rule."""

    def __init__(self, text: str) -> None:
        super().__init__(Failure.INVALID_ARGUMENT, text)
