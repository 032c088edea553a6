"""Words of the settings that several features use: modes, and what a feature's failure means."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

NO_POLICY = ("", "none", "null")
"""Names of the policy that pins nothing; `null` is CRI Resource Manager's."""
EXCLUSIVE_CORES = "cmk.intel.com/exclusive-cores"
"""The extended resource of lists of CPUs: a node has as many as its exclusive pools do."""
NFD_NUMBERS: Final[Mapping[str, str]] = {"tdx": "tdx.total_keys", "sev_es": "sev.encrypted_state_ids"}
"""Node Feature Discovery's attribute of `cpu.security` that has the number of each kind of key, by the misc
controller's name."""
EPC_RESOURCE = "sgx.intel.com/epc"
"""The extended resource of enclave memory, in bytes."""
DEFAULT_RESOURCES: Mapping[str, str] = MappingProxyType({EPC_RESOURCE: "sgx_epc"})
"""Extended resources of the API to the misc controller's names, unless the settings have others."""


class Mode(Enum):
    """What a feature may do. Observe decides and shows, and performs nothing."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class OnError(Enum):
    """What a feature's own failure means for the container that waits: start it, or refuse it."""

    PASS = "pass"
    REFUSE = "refuse"
