"""The annotation keys Nodeward reads, in one table: the only keys an edge copies out of a pod."""

OWN_LIMITS = "nodeward.io/limits"
"""Compact JSON `{"<container>": {"sgx_epc": "<decimal bytes>"}}`, written by Nodeward's own webhook."""

UPSTREAM_EPC = "epc-limit.nri.io"
"""Bare key, `/pod` and `/container.<name>`, as nri-plugins' sgx-epc reads them."""

CONFIG_HASH = "kubernetes.io/config.hash"
"""A static pod's UID as the runtime knows it, on its mirror pod."""

MAX_VALUE_BYTES = 256 * 1024
"""The API server's own bound on all annotations of an object; longer values are not read."""


_READ = (OWN_LIMITS, UPSTREAM_EPC, CONFIG_HASH)
_UPSTREAM_PREFIX = UPSTREAM_EPC + "/"


def is_read(key: str) -> bool:
    """Whether an edge copies the annotation `key`."""
    return key.startswith(_UPSTREAM_PREFIX) or key in _READ
