"""Why a TCP address of ours cannot be had, in the same words whoever wants it."""

import os

from nodeward.model.errors import NodewardError


class ListenError(NodewardError):
    """The address or port cannot be had."""


def cannot_listen(wanted: str, error: OSError) -> ListenError:
    """That error, told by the settings that name the address. Only why, without the address once more, which Python's
    own texts repeat; a name that cannot be looked up has no errno of the system's."""
    number = error.errno or 0
    why = os.strerror(number) if number > 0 else error.strerror or str(error)
    return ListenError(f"{wanted}: {why}; choose another, or stop who holds it")
