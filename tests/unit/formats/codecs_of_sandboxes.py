"""What is read of VM sandboxes: files below /proc, command lines, configurations, a guest's metrics."""

from nodeward.features.podapi.door import messages
from nodeward.features.podapi.effects import redaction
from nodeward.features.podapi.rows import ReportSandboxRequest
from nodeward.neighbours.formats import cgroup_paths, proc_files
from nodeward.neighbours.kata import config_file, dan, direct_volume, guest_memory, network, processes
from nodeward.neighbours.kata.shim_socket import used
from tests.unit.formats.sample import Codec, texts, whole


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
        guest_memory.guest_ram(proc_files.mappings(data, 4096), None)


@whole
def _read_config(data: bytes) -> None:
    table = config_file.parse(data)
    said = [config_file.Source("/etc/x.toml", table)]
    config_file.default_handler(said, said)
    config_file.names(said, said)
    for handler in config_file.handlers([table], [table], {}):
        config_file.with_kata(handler, said)
        config_file.pulls(handler.name, said, said, said, said)


@whole
def _read_request(data: bytes) -> None:
    form, data = data[:1], data[1:]
    if form == b"{":
        messages.request_of_json(ReportSandboxRequest, form + data)
    else:
        messages.request_of_message("ReportSandbox", ReportSandboxRequest, data)


def codecs(padding: int) -> dict[str, Codec]:
    reads = {
        "proc-files": (_read_files, ("formats.proc_files", "formats.cgroup_paths", "kata.guest_memory")),
        "kata-processes": (whole(processes.claim), ("kata.processes",)),
        "kata-config": (_read_config, ("kata.config_file",)),
        "pod-redaction": (
            whole(lambda data: redaction.redacted(redaction.decode(data))),
            ("podapi.effects.redaction",),
        ),
        "podapi": (_read_request, ("podapi.door.messages",)),
        "direct-volume": (whole(direct_volume.read), ("kata.direct_volume", "kata.json_tree")),
        "dan": (whole(dan.read), ("kata.dan", "kata.json_tree")),
        "cni-result": (whole(lambda data: network.read_result(data, "s")), ("kata.network",)),
        "guest-meminfo": (whole(lambda data: used(data, 1 << 31)), ("kata.shim_socket",)),
    }
    return {name: Codec(texts(name, padding), *read) for name, read in reads.items()}
