"""What is read of VM sandboxes: files below /proc, command lines, configurations, a guest's metrics."""

from nodeward.model.podapi import ReportSandboxRequest
from nodeward.proto import podapi_pb2
from nodeward.wire import (
    cgroup_paths,
    cni_result,
    dan,
    direct_volume,
    guest_meminfo,
    guest_ram,
    kata_config,
    kata_processes,
    pod_redaction,
    podapi,
    proc_files,
)
from tests.unit.wire.sample import Codec, Sample, whole

ID = "5b" * 32
SHIM = f"/opt/kata/bin/containerd-shim-kata-v2\0-namespace\0k8s.io\0-address\0/run/c.sock\0-id\0{ID}\0".encode()
QEMU = (
    f"/usr/bin/qemu-system-x86_64\0-name\0sandbox-{ID},debug-threads=on\0-m\0002048M,slots=10,maxmem=9G\0"
    "-object\0memory-backend-file,id=dimm1,size=2048M,mem-path=/dev/shm,share=on\0-smp\0002,cores=1,maxcpus=4\0"
).encode()
STAT = b"4242 (CPU 0/KVM) (x) S 1 4242 4242 0 -1 4194368 10 0 0 0 150 50 0 0 20 0 5 0 777 1000000 2000 184467\n"
SMAPS = (
    b"7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \nSize:  65536 kB\nRss:    1024 kB\nPrivate_Hugetlb: 0 kB\n"
    b"7f0004000000-7f0004001000 r--p 00000000 fe:00 17 /usr/lib/libc.so.6\nSize:  4 kB\nRss:    4 kB\n"
)
CGROUP = b"4:memory:/kubepods/podu/kata_x\n2:cpuacct,cpu:/kata_overhead/x\n0::/\n"
CONFIG = b"""
[hypervisor.qemu]
default_vcpus = 1.5
default_memory = 2048
enable_annotations = ["enable_iommu", "default_vcpus"]
[runtime]
sandbox_cgroup_only = true
"""
METRICS = b"""# TYPE kata_guest_meminfo gauge
kata_guest_meminfo{item="mem_available"} 1.5e+09
kata_guest_meminfo{item="mem_free"} 1000000000
kata_guest_meminfo{item="mem_total"} 2000000000
"""

REPORT = b'{"sandbox":"s1","vmm_pid":7,"vcpu_tids":[8,9],"cgroups":["/a"],"runtime":"kata"}'
REPORT_MESSAGE = (
    b"p"
    + podapi_pb2.ReportSandboxRequest(
        sandbox="s1", vmm_pid=7, vcpu_tids=[8, 9], cgroups=["/a"], runtime="kata"
    ).SerializeToString()
)
POD = b'{"metadata":{"name":"a","annotations":{"k":"v"}},"spec":{"containers":[{"env":[{"name":"E","value":"x"}]}]}}'
VOLUME = b'{"volume-type":"block","device":"/dev/a","fstype":"ext4","metadata":{"fsGroup":"1"},"options":["ro"]}'
DAN = b"""{"netns": "/run/netns/a", "devices": [{"name": "eth0", "device": {"type": "host-tap", "tap_name": "t"},
"network_info": {"interface": {"ip_addresses": ["10.0.0.5/24"]}, "routes": [{"gateway": "10.0.0.1"}]}}]}"""
CNI = b"""{"kind": "cniCacheV1", "containerId": "s", "ifName": "eth0", "result": {"routes": [{"dst": "0.0.0.0/0"}],
"interfaces": [{"name": "eth0", "sandbox": "/n"}], "ips": [{"interface": 0, "address": "10.0.0.5/24"}]}}"""


@whole
def _read_files(data: bytes) -> None:
    """Behind a byte that says which file it is, as its name does."""
    kind, data = data[:1], data[1:]
    if kind == b"s":
        proc_files.stat(data)
    elif kind == b"m":
        proc_files.resident_pages(data)
    elif kind == b"c":
        cgroup_paths.by_controller(data)
    elif kind == b"u":
        proc_files.cpu_times(data)
    elif kind == b"t":
        proc_files.status(data)
    else:
        guest_ram.guest_ram(proc_files.mappings(data, 4096), None)


@whole
def _read_config(data: bytes) -> None:
    """As a file of containerd's and as Kata's own."""
    table = kata_config.parse(data)
    said = [kata_config.Source("/etc/x.toml", table)]
    kata_config.default_handler(said, said)
    kata_config.names(said, said)
    for handler in kata_config.handlers([table], [table], {}):
        kata_config.with_kata(handler, said)
        kata_config.pulls(handler.name, said, said, said, said)


@whole
def _read_request(data: bytes) -> None:
    """Behind a byte that says in which form."""
    form, data = data[:1], data[1:]
    if form == b"{":
        podapi.request_of_json(ReportSandboxRequest, form + data)
    else:
        podapi.request_of_message("ReportSandbox", ReportSandboxRequest, data)


def codecs(padding: int) -> dict[str, Codec]:
    """Each codec by the name its corpus folder has."""
    more = b"x" * padding
    files = [
        b"s" + STAT,
        b"m1000 200 30\n",
        b"ucpu  1 2 3 4\ncpu0 1 2 3 4 5 6 7 8 9 10\n",
        b"c" + CGROUP,
        b"t" + b"VmRSS:\t 100 kB\nRssShmem: 5 kB\n",
        b"p" + SMAPS,
    ]
    runtimes = (
        b'[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]\nruntime_type="io.containerd.kata.v2"\n'
    )
    return {
        "proc-files": Codec(
            [Sample(one + more) for one in files], _read_files, ("proc_files", "cgroup_paths", "guest_ram")
        ),
        "kata-processes": Codec(
            [Sample(SHIM + more), Sample(QEMU + more)], whole(kata_processes.claim), ("kata_processes",)
        ),
        "kata-config": Codec([Sample(CONFIG), Sample(runtimes)], _read_config, ("kata_config",)),
        "pod-redaction": Codec(
            [Sample(POD + b" " * padding)],
            whole(lambda data: pod_redaction.redacted(pod_redaction.decode(data))),
            ("pod_redaction",),
        ),
        "podapi": Codec([Sample(REPORT + b" " * padding), Sample(REPORT_MESSAGE)], _read_request, ("podapi",)),
        "direct-volume": Codec(
            [Sample(VOLUME + b" " * padding)], whole(direct_volume.read), ("direct_volume", "json_tree")
        ),
        "dan": Codec([Sample(DAN + b" " * padding)], whole(dan.read), ("dan", "json_tree")),
        "cni-result": Codec(
            [Sample(CNI + b" " * padding)], whole(lambda data: cni_result.read(data, "s")), ("cni_result",)
        ),
        "guest-meminfo": Codec(
            [Sample(METRICS + more)], whole(lambda data: guest_meminfo.used(data, 1 << 31)), ("guest_meminfo",)
        ),
    }
