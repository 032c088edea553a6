"""The errors of the NRI edge.

    NodewardError
    └── NriError              something between Nodeward and a container runtime's NRI
        ├── NriSettingsError  a name, index or socket that no runtime would take
        └── RuntimeGoneError  the runtime that started this plugin has closed the connection it gave

Calls without an answer are the transport's TtrpcError, bytes that are no NRI are WireError.
"""

from nodeward.core.errors import NodewardError


class NriError(NodewardError):
    """Something between Nodeward and a container runtime's NRI."""


class NriSettingsError(NriError):
    """A name, index or socket that no runtime would take."""


class RuntimeGoneError(NriError):
    """The runtime that started this plugin has closed the connection it gave; only it can start the plugin again."""
