"""The pods of the simulation: manifests, and what each container of them was promised, worked out by hand."""

from dataclasses import dataclass
from random import Random

from nodeward_sim.doubles.kata import GO, MEMORY, ONLY, RS

MIB = 1024 * 1024
OFFERED = "devices.kubevirt.io/tdx"
LAUNCHER = "compute"
"""KubeVirt's container that asks for the key."""
Json = dict[str, object]

KATA_HANDLERS = (GO, RS)
"""The runtime handlers of Kata pods."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One container to run. `promised` in bytes, None for no limit; `seconds` it runs, 0 for until the pod's end;
    `cpu_m` and `cpu_limit_m` in thousandths of a CPU."""

    name: str
    promised: int | None
    seconds: float = 0.0
    cpu_m: int = 0
    cpu_limit_m: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A confidential VM in a pod: how many keys the pod's spec promises it, how long after its container it takes them,
    and whether it does so in the pod's cgroup."""

    keys: int
    late_s: float
    inside: bool


@dataclass(frozen=True, slots=True)
class KataPod:
    """A pod in a VM of Kata: its runtime handler, the sum of its containers' limits, and the overhead of its
    RuntimeClass. `fills` is the share of its memory that the guest comes to use."""

    handler: str
    annotations: dict[str, str]
    memory: int
    cpu_m: int
    overhead_memory: int
    overhead_cpu_m: int
    fills: float

    @property
    def limit(self) -> int:
        """The pod's, in bytes."""
        return self.memory + self.overhead_memory

    @property
    def cpu_limit_m(self) -> int:
        """The pod's, in thousandths of a CPU."""
        return self.cpu_m + self.overhead_cpu_m


@dataclass(frozen=True, slots=True)
class Shape:
    """A pod to run: its manifest, its containers in order of start, its budget in bytes (None for no limit)."""

    manifest: Json
    containers: tuple[Planned, ...]
    budget: int | None
    machine: Machine | None = None
    overhead: int = 0
    """Bytes of enclave memory that its sandbox takes beside the containers, as its RuntimeClass says."""
    qos: str = ""
    """Kubelet's folder of the pod's class: `besteffort`, `burstable`, or none for a Guaranteed one."""
    kata: KataPod | None = None
    image: str = ""
    """What its runtime pulls in the guest; empty for a pod whose image is there."""
    claim: str = ""
    """Its claim by the pod's own name, where its VM's key is one's."""

    @property
    def uid(self) -> str:
        """The pod's."""
        metadata = self.manifest["metadata"]
        assert isinstance(metadata, dict)
        return str(metadata["uid"])

    def own(self, plan: Planned) -> int:
        """How many CPUs kubelet's static policy gives this container for its own."""
        return 0 if self.qos or plan.cpu_m % 1000 or plan.cpu_m != plan.cpu_limit_m else plan.cpu_m // 1000


def _container(name: str, epc: str | None, **extra: object) -> Json:
    resources: Json = {"limits": {"sgx.intel.com/epc": epc}, "requests": {"sgx.intel.com/epc": epc}} if epc else {}
    return {"name": name, "image": "sim", "resources": resources, **extra}


def make(number: int, random: Random) -> Shape:
    """The next pod: alone, with an undeclared neighbour, with init and sidecar, or without any enclave."""
    spec: Json = {"nodeName": "sim"}
    mib = random.choice((1, 4, 16))
    planned: tuple[Planned, ...]
    budget: int | None
    match random.randrange(4):
        case 0:
            spec["containers"] = [_container("enclave", f"{mib}Mi")]
            planned, budget = (Planned("enclave", mib * MIB),), mib * MIB
        case 1:
            spec["containers"] = [_container("enclave", f"{mib}Mi"), _container("proxy", None)]
            planned, budget = (Planned("enclave", mib * MIB), Planned("proxy", 0)), mib * MIB
        case 2:
            spec["initContainers"] = [
                _container("attest", "1Mi", restartPolicy="Always"),
                _container("seal", "32Mi"),
            ]
            spec["containers"] = [_container("enclave", f"{mib}Mi")]
            planned = (
                Planned("attest", MIB),
                Planned("seal", 32 * MIB, seconds=0.5),
                Planned("enclave", mib * MIB),
            )
            budget = 33 * MIB
        case _:
            spec["containers"] = [_container("web", None)]
            planned, budget = (Planned("web", None),), None
    return Shape(_manifest(f"pod-{number}", number, spec), planned, budget)


def make_sandboxed(number: int, random: Random) -> Shape:
    """The next pod with a VM that is an enclave's host: its overhead has enclave memory besides the containers'."""
    own, beside = (mib * MIB for mib in (random.choice((1, 4)), random.choice((2, 8))))
    spec: Json = {
        "nodeName": "sim",
        "runtimeClassName": "kata-sgx",
        "overhead": {"sgx.intel.com/epc": str(beside)},
        "containers": [_container("enclave", str(own))],
    }
    manifest = _manifest(f"sandboxed-{number}", number, spec)
    return Shape(manifest, (Planned("enclave", own),), own + beside, overhead=beside)


def make_guest(number: int, random: Random) -> Shape:
    """The next pod with an image that is pulled in a guest: what its containers request is known to kubelet alone."""
    names = ("app", "log")[: random.randrange(1, 3)]
    cpus = {name: random.randrange(1, 30) * 100 for name in names}
    image = f"reg.example/guest-{number}:1"
    rows: list[Json] = [
        {"name": name, "image": image, "resources": {"requests": {"cpu": f"{cpus[name]}m"}}} for name in names
    ]
    manifest = _manifest(f"guest-{number}", number, {"nodeName": "sim", "containers": rows})
    return Shape(manifest, tuple(Planned(name, None, cpu_m=cpus[name]) for name in names), None, image=image)


def make_machine(number: int, random: Random) -> Shape:
    """The next pod with a VM: KubeVirt's launcher, which asks for the key in its container and takes it late, or a Kata
    pod, whose overhead has the key and whose hypervisor takes it outside of the pod."""
    if random.random() < 0.6:
        limits: Json = {OFFERED: "1"}
        launcher: Json = {"name": LAUNCHER, "image": "sim", "resources": {"limits": limits, "requests": limits}}
        spec: Json = {"nodeName": "sim", "containers": [launcher]}
        manifest = _manifest(f"vm-{number}", number, spec)
        return Shape(manifest, (Planned(LAUNCHER, None),), None, Machine(1, random.uniform(3.0, 6.0), inside=True))
    spec = {
        "nodeName": "sim",
        "runtimeClassName": "kata-qemu-tdx",
        "overhead": {"tdx.intel.com/keys": "1"},
        "containers": [_container("web", None)],
    }
    manifest = _manifest(f"kata-{number}", number, spec)
    return Shape(manifest, (Planned("web", None),), None, Machine(1, random.uniform(0.2, 1.0), inside=False))


def make_claimed(number: int, _: Random) -> Shape:
    """The next pod with a VM whose key is a claim's: KubeVirt's launcher takes it at once."""
    launcher: Json = {"name": LAUNCHER, "image": "sim", "resources": {"claims": [{"name": "key"}]}}
    name = f"claimed-{number}"
    claims: list[Json] = [{"name": "key", "resourceClaimName": f"key-{name}"}]
    spec: Json = {"nodeName": "sim", "resourceClaims": claims, "containers": [launcher]}
    machine = Machine(1, 0.5, inside=True)
    return Shape(_manifest(name, number, spec), (Planned(LAUNCHER, None),), None, machine, claim="key")


def make_pinned(number: int, random: Random) -> Shape:
    """The next pod that asks for CPUs: alone, with a neighbour that shares, with an init container, or without any CPU
    of its own."""
    whole = random.choice((1, 2, 2, 4)) * 1000
    planned: tuple[Planned, ...]
    match random.randrange(6):
        case 0:
            planned = (Planned("app", None, 0.0, whole, whole), Planned("log", None, 0.0, 500, 500))
        case 1:
            planned = (Planned("first", None, 0.3, 1000, 1000), Planned("app", None, 0.0, whole, whole))
        case 2:
            planned = (Planned("web", None, 0.0, 500, 2000),)
        case 3:
            planned = (Planned("part", None, 0.0, 1500, 1500),)
        case _:
            planned = (Planned("app", None, 0.0, whole, whole),)
    ones = [_asks(plan) for plan in planned]
    spec: Json = {"nodeName": "sim", "containers": [one for one in ones if one["name"] != "first"]}
    if len(ones) > len(_listed(spec)):
        spec["initContainers"] = ones[:1]
    qos = "burstable" if planned[0].cpu_m != planned[0].cpu_limit_m else ""
    return Shape(_manifest(f"cpus-{number}", number, spec), planned, None, qos=qos)


def make_kata(number: int, random: Random, oversized: float) -> Shape:
    """The next Kata pod, of one of the two runtimes and in one of the two modes. A share of all have an annotation for
    a VM that is larger than its pod's limit."""
    is_oversized = random.random() < oversized
    handler = GO if is_oversized else random.choice((GO, RS))  # runtime-rs goes by the limits alone
    annotations = {MEMORY: "1024"} if is_oversized else {}
    if random.random() < 0.5:
        annotations[ONLY] = "true" if handler == GO else "false"
    memory, cpu_m = random.choice((128, 256)) * MIB, random.choice((500, 1000, 2000))
    beside = (512 if handler == GO else 320) * MIB
    pod = KataPod(handler, annotations, memory, cpu_m, beside, 250, 1.0 if is_oversized else random.random())
    limits: Json = {"cpu": f"{cpu_m}m", "memory": str(memory)}
    spec: Json = {
        "nodeName": "sim",
        "runtimeClassName": handler,
        "overhead": {"cpu": "250m", "memory": str(beside)},
        "containers": [{"name": "app", "image": "sim", "resources": {"limits": limits, "requests": limits}}],
    }
    manifest = _manifest(f"kata-{number}", number, spec)
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    metadata["annotations"] = annotations
    return Shape(manifest, (Planned("app", None, 0.0, cpu_m, cpu_m),), None, kata=pod)


def asked(shape: Shape, name: str, cpu_m: int) -> None:
    """A user has changed the container's CPUs in the pod's manifest."""
    spec = shape.manifest["spec"]
    assert isinstance(spec, dict)
    spec["containers"] = [
        _asks(Planned(name, None, 0.0, cpu_m, cpu_m)) if one["name"] == name else one for one in _listed(spec)
    ]


def _listed(spec: Json) -> list[Json]:
    found = spec["containers"]
    assert isinstance(found, list)
    return found


def _asks(plan: Planned) -> Json:
    requests: Json = {"cpu": f"{plan.cpu_m}m", "memory": "64Mi"}
    limits: Json = {"cpu": f"{plan.cpu_limit_m}m", "memory": "64Mi"}
    return {"name": plan.name, "image": "sim", "resources": {"requests": requests, "limits": limits}}


def _manifest(name: str, number: int, spec: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"00000000-0000-4000-8000-{number:012d}"},
        "spec": spec,
        "status": {"phase": "Running"},
    }
