"""The keys of all annotations that Nodeward reads. No other annotation is copied from a pod."""

from collections.abc import Mapping

OWN_LIMITS = "nodeward.io/limits"
"""Compact JSON `{"<container>": {"sgx_epc": "<decimal bytes>"}}`, written by Nodeward's own webhook."""

GATE = "nodeward.io/gate"
"""Conditions that the pod's start waits for beside those of the settings: any of key, quotes, verdict, with commas."""

UPSTREAM_EPC = "epc-limit.nri.io"
"""Bare key, `/pod` and `/container.<name>`, as nri-plugins' sgx-epc reads them."""

CONFIG_HASH = "kubernetes.io/config.hash"
"""A static pod's UID as the runtime knows it, on its mirror pod. On any other pod it is a user's word."""

CONFIG_SOURCE = "kubernetes.io/config.source"
"""Kubelet writes it over whatever a pod says: `file` and `http` are static pods (pkg/kubelet/config/config.go)."""

MIRROR = "kubernetes.io/config.mirror"
"""On the API server's picture of a static pod, the same hash again. The pod itself comes from a file of its node. The
API server lets nobody add it to a pod that is there; who may create a pod bound to a node may create one with it, which
kubelet never runs, and deletes."""

EPC_SUM = "sgx.intel.com/epc"
"""The EPC of the whole pod as a quantity, written at admission; Kata sizes the EPC of its VM by it."""

QUOTE_PROVIDER = "sgx.intel.com/quote-provider"
"""Which container makes SGX quotes by itself, or `aesmd`: quotes come over the socket of that daemon."""

REQUIRED_PLUGINS = "required-plugins.noderesource.dev"
"""Bare key, `/pod` and `/container.<name>`: a YAML list of NRI plugins without which NRI's validator refuses."""

CRI_RM_RESOURCES = "intel.com/resources"
CPU_REQUESTS = ("noderesource.dev/resources", CRI_RM_RESOURCES)
"""What the containers of a pod request, as a webhook of nri-plugins or of CRI Resource Manager writes it: JSON
`{"initContainers": {name: {"requests": .., "limits": ..}}, "containers": {..}}`. The first that is there counts."""

PREFER_ISOLATED = "cri-resource-manager.intel.com/prefer-isolated-cpus"
"""Whether CPUs that the kernel isolates are taken for a pod's own CPUs: for the policies static and static-plus."""

BALLOON_TYPES = (
    "balloon.balloons.resource-policy.nri.io",
    "balloon.balloons.cri-resource-manager.intel.com",
)
"""A balloon type, for the policy balloons. Bare key, `/pod` and `/container.<name>`. The first that is there counts."""

POD_POOL = "pool.podpools.cri-resource-manager.intel.com"
"""Pools for the whole pod, for the policy podpools."""

DYNAMIC_POOL = "dynamic-pool.dynamic-pools.cri-resource-manager.intel.com"
"""A pool, for the policy dynamic-pools. Bare key, `/pod` and `/container.<name>`."""

STATIC_POOL = "pool.static-pools.cri-resource-manager.intel.com"
"""A pool, for the policy static-pools. Bare key, `/pod` and `/container.<name>`. Nodeward's own: CRI Resource Manager
reads the container's environment and command line, which no edge copies."""

HIDE_HYPERTHREADS = "hide-hyperthreads.resource-policy.nri.io"
"""Whether a container has one thread of each core. Bare key, `/pod` and `/container.<name>`."""

PRESERVE_CPU = "cpu.preserve.resource-policy.nri.io"
"""`true`: a container's CPUs are left alone. Bare key, `/pod` and `/container.<name>`."""

MEMORY_TYPE = "memory-type.resource-policy.nri.io"
"""Types of memory with commas, of dram, hbm and pmem. Bare key, `/pod` and `/container.<name>`."""

_DOMAINS = ("resource-policy.nri.io", "cri-resource-manager.intel.com")
HINTS, ALLOW_HINTS, DENY_HINTS = "topologyhints", "allow.topologyhints", "deny.topologyhints"
OF_TREE: Mapping[str, tuple[str, ...]] = {
    word: tuple(f"{word}.{domain}" for domain in _DOMAINS)
    for word in (
        *("prefer-isolated-cpus", "require-isolated-cpus", "prefer-shared-cpus", "prefer-reserved-cpus"),
        *("prefer-cpu-priority", "unlimited-burstable", "memory.preserve", "cpu.preserve", "hide-hyperthreads"),
        *("memory-type", "scheduling-class", "strict.topologyhints", "pick-resources-by-hints"),
        *(HINTS, ALLOW_HINTS, DENY_HINTS, "cold-start"),
    )
}
"""Wishes of a container, by their word, for the policy topology-aware. Bare key, `/pod` and `/container.<name>`. The
first that is there counts."""

AFFINITY = tuple(f"{domain}/affinity" for domain in _DOMAINS)
ANTI_AFFINITY = tuple(f"{domain}/anti-affinity" for domain in _DOMAINS)
"""Which containers a pod's containers want to be near to, and far from, for topology-aware: YAML by container name."""

OF_TREE_LATER = tuple(
    key
    for domain in _DOMAINS
    for key in (
        *(f"{domain}/{word}" for word in ("memory-type", "cold-start")),
        *(f"{word}.{domain}" for word in ("cpu-class", "irq-affinity")),
    )
)
"""What upstream's topology-aware follows and Nodeward does not: whoever has one is told so."""

NEWER: Mapping[str, str] = {
    f"{domain}/{word}": f"{word}.{domain}/container.NAME"
    for domain in _DOMAINS
    for word in ("memory-type", "cold-start")
}
"""What stands in the place of an old spelling that is not followed."""

ARE_YAML = (*AFFINITY, *ANTI_AFFINITY, *OF_TREE[ALLOW_HINTS], *OF_TREE[DENY_HINTS], *OF_TREE["cold-start"])
"""An event has the values of these as JSON; one that is no YAML as it is."""

RDT_CLASSES = ("rdtclass.resource-policy.nri.io", "rdtclass.cri-resource-manager.intel.com")
BLOCKIO_CLASSES = ("blockioclass.resource-policy.nri.io", "blockioclass.cri-resource-manager.intel.com")
"""A class that the runtime knows, of the shares of caches and memory bandwidth, and of block I/O. Bare key, `/pod` and
`/container.<name>`. The first that is there counts."""

SCHEDULING_CLASS = "scheduling-class.resource-policy.nri.io"
"""A scheduling class of the policy balloons. Bare key, `/pod` and `/container.<name>`."""

KATA_ONLY = "io.katacontainers.config.runtime.sandbox_cgroup_only"
"""Whether everything of a VM sandbox is put in the sandbox's cgroup. Kata obeys it whatever its `enable_annotations`
say, where the container runtime hands it on."""

KATA_CONFIG = "io.katacontainers.config_path"
"""Another configuration file than that of the runtime handler; obeyed likewise. Doctor and admission know it."""

KATA_SIZES = (
    "io.katacontainers.config.hypervisor.default_vcpus",
    "io.katacontainers.config.hypervisor.default_memory",
)
"""A VM's size without what its containers ask for; obeyed where Kata's `enable_annotations` allow it."""

CRI_SIZES = (
    "io.kubernetes.cri.sandbox-cpu-period",
    "io.kubernetes.cri.sandbox-cpu-quota",
    "io.kubernetes.cri.sandbox-memory",
)
"""What containerd makes of the resources of RunPodSandbox, in microseconds and bytes; Kata's static size reads them."""

KATA_QUEUES = (
    "io.katacontainers.config.hypervisor.network_queues",
    "io.katacontainers.config.hypervisor.block_device_num_queues",
)
"""Queues of a VM's devices; of runtime-rs, and obeyed where its `enable_annotations` allow it."""

MAX_NAME = 63
"""The longest part of a key behind its slash."""

MAX_VALUE = 256 * 1024
"""Characters. The API server's own bound, in bytes, is as much for all annotations of an object."""

TOO_LONG = f"(longer than {MAX_VALUE} characters)"
"""What stands in the place of a longer value: it is no amount and no JSON, and who reads it says so."""
_OF_POOLS = (
    *(*BALLOON_TYPES, POD_POOL, DYNAMIC_POOL, STATIC_POOL, HIDE_HYPERTHREADS, PRESERVE_CPU, MEMORY_TYPE),
    *(key for spellings in OF_TREE.values() for key in spellings),
    *(*AFFINITY, *ANTI_AFFINITY, *OF_TREE_LATER),
)
_CLASSES = (*RDT_CLASSES, *BLOCKIO_CLASSES, SCHEDULING_CLASS)
_READ = (
    *(OWN_LIMITS, GATE, UPSTREAM_EPC, CONFIG_SOURCE, *CPU_REQUESTS, PREFER_ISOLATED),
    *(*_OF_POOLS, *_CLASSES, KATA_ONLY, *KATA_SIZES, *KATA_QUEUES),
)
_UPSTREAM_PREFIX = UPSTREAM_EPC + "/"
_SCOPED = (_UPSTREAM_PREFIX, *(f"{key}/" for key in (*_OF_POOLS, *_CLASSES)))


def is_read(key: str) -> bool:
    """Whether an edge copies the annotation `key`."""
    return key in _READ or key.startswith(_SCOPED)


def upstream_epc_of(container: str) -> tuple[str, str, str]:
    """The keys under which upstream's sgx-epc plugin looks for a container's limit: the first that is there counts."""
    return f"{UPSTREAM_EPC}/container.{container}", f"{UPSTREAM_EPC}/pod", UPSTREAM_EPC


def read_ones(found: Mapping[str, str]) -> dict[str, str]:
    """The annotations that an edge copies, TOO_LONG for a longer value. Asks `found` for these only: each value that a
    message gives is a copy."""
    return {key: text if len(text := found[key]) <= MAX_VALUE else TOO_LONG for key in found if is_read(key)}


_ADMITTED = (OWN_LIMITS, UPSTREAM_EPC, MIRROR, EPC_SUM, QUOTE_PROVIDER, REQUIRED_PLUGINS, *CPU_REQUESTS)
_REQUIRED_PREFIX = REQUIRED_PLUGINS + "/"


def is_admitted(key: str) -> bool:
    """Whether admission looks at the annotation `key`."""
    return key in _ADMITTED or key.startswith((_UPSTREAM_PREFIX, _REQUIRED_PREFIX))


def is_upstream_epc(key: str) -> bool:
    """Whether upstream's sgx-epc plugin could read the annotation `key`."""
    return key == UPSTREAM_EPC or key.startswith(_UPSTREAM_PREFIX)
