"""What is read of VM sandboxes: files below /proc, command lines, configurations, a guest's metrics."""

from nodeward.model.podapi import ReportSandboxRequest
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
from tests.unit.wire.sample import Codec, texts, whole


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
    table = kata_config.parse(data)
    said = [kata_config.Source("/etc/x.toml", table)]
    kata_config.default_handler(said, said)
    kata_config.names(said, said)
    for handler in kata_config.handlers([table], [table], {}):
        kata_config.with_kata(handler, said)
        kata_config.pulls(handler.name, said, said, said, said)


@whole
def _read_request(data: bytes) -> None:
    form, data = data[:1], data[1:]
    if form == b"{":
        podapi.request_of_json(ReportSandboxRequest, form + data)
    else:
        podapi.request_of_message("ReportSandbox", ReportSandboxRequest, data)


def codecs(padding: int) -> dict[str, Codec]:
    reads = {
        "proc-files": (_read_files, ("proc_files", "cgroup_paths", "guest_ram")),
        "kata-processes": (whole(kata_processes.claim), ("kata_processes",)),
        "kata-config": (_read_config, ("kata_config",)),
        "pod-redaction": (whole(lambda data: pod_redaction.redacted(pod_redaction.decode(data))), ("pod_redaction",)),
        "podapi": (_read_request, ("podapi",)),
        "direct-volume": (whole(direct_volume.read), ("direct_volume", "json_tree")),
        "dan": (whole(dan.read), ("dan", "json_tree")),
        "cni-result": (whole(lambda data: cni_result.read(data, "s")), ("cni_result",)),
        "guest-meminfo": (whole(lambda data: guest_meminfo.used(data, 1 << 31)), ("guest_meminfo",)),
    }
    return {name: Codec(texts(name, padding), *read) for name, read in reads.items()}
