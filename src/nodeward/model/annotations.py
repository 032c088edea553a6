"""The annotation keys Nodeward reads, in one table: the only keys an edge copies out of a pod."""

OWN_LIMITS = "nodeward.io/limits"
"""Compact JSON `{"<container>": {"sgx_epc": "<decimal bytes>"}}`, written by Nodeward's own webhook."""

UPSTREAM_EPC = "epc-limit.nri.io"
"""Bare key, `/pod` and `/container.<name>`, as nri-plugins' sgx-epc reads them."""

CONFIG_HASH = "kubernetes.io/config.hash"
"""A static pod's UID as the runtime knows it, on its mirror pod."""

MIRROR = "kubernetes.io/config.mirror"
"""On the API server's picture of a static pod. The pod itself comes from a file of its node."""

EPC_SUM = "sgx.intel.com/epc"
"""The EPC of the whole pod as a quantity, written at admission; Kata sizes the EPC of its VM by it."""

QUOTE_PROVIDER = "sgx.intel.com/quote-provider"
"""Which container makes SGX quotes by itself, or `aesmd`: quotes come over the socket of that daemon."""

REQUIRED_PLUGINS = "required-plugins.noderesource.dev"
"""Bare key, `/pod` and `/container.<name>`: a YAML list of NRI plugins without which NRI's validator refuses."""

MAX_NAME = 63
"""The longest part of a key behind its slash."""

MAX_VALUE_BYTES = 256 * 1024
"""The API server's own bound on all annotations of an object; longer values are not read."""


_READ = (OWN_LIMITS, UPSTREAM_EPC, CONFIG_HASH)
_UPSTREAM_PREFIX = UPSTREAM_EPC + "/"


def is_read(key: str) -> bool:
    """Whether an edge copies the annotation `key`."""
    return key.startswith(_UPSTREAM_PREFIX) or key in _READ


_ADMITTED = (OWN_LIMITS, UPSTREAM_EPC, MIRROR, EPC_SUM, QUOTE_PROVIDER, REQUIRED_PLUGINS)
_REQUIRED_PREFIX = REQUIRED_PLUGINS + "/"


def is_admitted(key: str) -> bool:
    """Whether admission looks at the annotation `key`."""
    return key in _ADMITTED or key.startswith((_UPSTREAM_PREFIX, _REQUIRED_PREFIX))


def is_upstream_epc(key: str) -> bool:
    """Whether upstream's sgx-epc plugin could read the annotation `key`."""
    return key == UPSTREAM_EPC or key.startswith(_UPSTREAM_PREFIX)
