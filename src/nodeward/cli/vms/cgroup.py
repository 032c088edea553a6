"""`nodeward vms cgroup`: places a VM sandbox, for VM runtimes that place nothing themselves. Starts in some 60 ms:
it imports the planner and the files, no asyncio, no settings."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from nodeward.cli.flags import output_option, print_data

if TYPE_CHECKING:
    from nodeward.features.sandboxes.effects.placing import Machine, Running
    from nodeward.features.sandboxes.plan import Processes, Step, Wanted

_F = TypeVar("_F", bound=Callable[..., object])
_MOST = 1024
_NAMES = (
    click.option("--sandbox", required=True, metavar="ID", help="The sandbox's id."),
    click.option("--cgroups-path", required=True, metavar="PATH",
                 help="linux.cgroupsPath of its sandbox container: /POD/ID, or NAME.slice:PREFIX:ID."),
    click.option("--container", "containers", multiple=True, metavar="ID=PATH",
                 help="Another container and its linux.cgroupsPath; may be given again."),
    click.option("--only/--split", default=True, show_default=True,
                 help="Everything in one cgroup of the pod's; or vCPU threads there, all else without a limit."),
    click.option("--no-pod", is_flag=True, help="Docker, podman, nerdctl: the container's cgroup is the sandbox's."),
    click.option("--driver", type=click.Choice(["cgroupfs", "systemd"]), help="Checked against the form of the path."),
    click.option("--threaded", is_flag=True, help="cgroup v2 with --split: vCPU threads in a threaded subtree."),
    output_option(),
)  # fmt: skip
_LIMITS = (
    click.option("--memory", type=int, metavar="BYTES", help="The sum of the containers' memory limits."),
    click.option("--overhead", type=int, metavar="BYTES",
                 help="With --only: what the pod's memory limit has above --memory, for the VMM and the shim."),
    click.option("--cpu-m", type=int, metavar="N", help="The sum of their CPU limits, in thousandths of a CPU."),
)  # fmt: skip
_PROCESSES = (
    click.option("--vmm", metavar="PID[:START]", help="The VMM. START: field 22 of its stat(5), if it is known."),
    click.option("--vcpu", "vcpus", multiple=True, metavar="TID[:START]", help="A vCPU thread; may be given again."),
    click.option("--shim", "shims", multiple=True, metavar="[ID=]PID[:START]",
                 help="The shim of the sandbox, or of a container; may be given again."),
    click.option("--virtiofsd", metavar="PID[:START]"),
)  # fmt: skip

_WORDS = {"pass-on": "pass on controllers of", "threaded": "make threaded"}


class _Named(NamedTuple):
    """A number that was given, and the start that it was given with (0 for none)."""

    number: int = 0
    start: int = 0


def _options(*groups: Sequence[Callable[[_F], _F]]) -> Callable[[_F], _F]:
    def added(command: _F) -> _F:
        for option in reversed([one for group in groups for one in group]):
            command = option(command)
        return command

    return added


@click.group("cgroup")
def command() -> None:
    """Place a VM sandbox by Kata's page "host cgroup management", for runtimes that do not place.

    Not for Kata: it places by itself, and again at each change.

    \b
    Examples:
      nodeward vms cgroup plan --sandbox sb1 --cgroups-path /kubepods/pod1/sb1 --split
      nodeward vms cgroup create --sandbox sb1 --cgroups-path /pods/pod1/sb1 --memory 1073741824
      nodeward vms cgroup place --sandbox sb1 --cgroups-path /kubepods/pod1/sb1 --shim 4711 --vmm 4712
      nodeward vms cgroup delete --sandbox sb1 --cgroups-path /kubepods/pod1/sb1
    """


@command.command("plan")
@_options(_NAMES, _LIMITS, _PROCESSES)
@click.option("--version", type=click.Choice(["1", "2"]), help="Of cgroups.  [default: this machine's]")
def plan(
    output: str, version: str | None, vmm: str | None, vcpus: tuple[str, ...], shims: tuple[str, ...],
    virtiofsd: str | None, **options: object,
) -> None:  # fmt: skip
    """Print the steps of create, place and delete. Writes nothing.

    \b
    Examples:
      nodeward vms cgroup plan --sandbox sb1 --cgroups-path /kubepods/pod1/sb1 --split --version 1
      nodeward vms cgroup plan --sandbox sb1 --cgroups-path system.slice:docker:sb1 --no-pod -o json
    """
    from nodeward.features.sandboxes import plan as planner

    wanted = _wanted(int(version) if version else _machine().version, options)
    processes = _processes(wanted, vmm, vcpus, shims, virtiofsd)[0]
    phases = {
        "create": planner.create(wanted),
        "place": planner.place(wanted, processes),
        "delete": planner.delete(wanted),
    }
    _print(output, wanted, phases)


@command.command("create")
@_options(_NAMES, _LIMITS)
def create(output: str, **options: object) -> None:
    """Make the sandbox's cgroups and set their limits, before its VM starts. What is there is kept.

    With --only the limits are those of the pod's cgroup: a limit that it has stays, and below kubepods none is set,
    since kubelet does. If the cgroup above is not a pod's by its name (podUID), the sandbox's own cgroup has them.

    \b
    Example:
      nodeward vms cgroup create --sandbox sb1 --cgroups-path /pod1/sb1 --memory 1073741824 --overhead 209715200
    """
    from nodeward.features.sandboxes import plan as planner

    at = _machine()
    wanted = _wanted(at.version, options)
    _perform(at, output, wanted, "create", planner.create(wanted), ())


@command.command("place")
@_options(_NAMES, _PROCESSES)
def place(
    output: str, vmm: str | None, vcpus: tuple[str, ...], shims: tuple[str, ...], virtiofsd: str | None,
    **options: object,
) -> None:  # fmt: skip
    """Move the sandbox's processes and threads. One that is gone, or whose number was given to another, is not moved.

    With --only a shim is best placed before it starts the VMM: memory stays where it was charged.

    \b
    Example:
      nodeward vms cgroup place --sandbox sb1 --cgroups-path /p/sb1 --split --shim 11 --vmm 12 --vcpu 14 --vcpu 15
    """
    from nodeward.features.sandboxes import plan as planner

    at = _machine()
    wanted = _wanted(at.version, options)
    processes, starts = _processes(wanted, vmm, vcpus, shims, virtiofsd)
    steps = planner.place(wanted, processes)
    if not steps:
        raise click.UsageError("nothing to place: give --vmm PID, --shim PID or --virtiofsd PID")
    _perform(at, output, wanted, "place", steps, _running(steps, starts))


@command.command("delete")
@_options(_NAMES)
def delete(output: str, **options: object) -> None:
    """Remove the sandbox's own cgroups, after its processes have ended. What is gone is no error.

    \b
    Example:
      nodeward vms cgroup delete --sandbox sb1 --cgroups-path /kubepods/pod1/sb1
    """
    from nodeward.features.sandboxes import plan as planner

    at = _machine()
    wanted = _wanted(at.version, options)
    _perform(at, output, wanted, "delete", planner.delete(wanted), ())


def _machine() -> "Machine":
    from nodeward.features.sandboxes.effects import placing
    from nodeward.host.hostfs import OsFiles

    return placing.machine(OsFiles())


def _wanted(version: int, options: dict[str, object]) -> "Wanted":
    """The sandbox of these options, each checked."""
    from nodeward.features.sandboxes.effects.placing import driver_of
    from nodeward.features.sandboxes.expected import Paths
    from nodeward.features.sandboxes.plan import Wanted, checked_id, checked_path

    path = checked_path("--cgroups-path", str(options["cgroups_path"]))
    driver = driver_of(path)
    if options["driver"] not in (None, driver.value):
        raise click.UsageError(
            f"--cgroups-path {path[:200]!r} has the form of driver {driver.value}, not {options['driver']}; "
            "give linux.cgroupsPath as the OCI spec has it"
        )
    containers = options["containers"]
    pairs = [_pair(one) for one in containers] if isinstance(containers, tuple) else []
    named = tuple((checked_id("--container", one), checked_path("--container", its)) for one, its in pairs)
    memory, cpu_m, overhead = options.get("memory"), options.get("cpu_m"), options.get("overhead")
    return Wanted(
        paths=Paths(
            sandbox=checked_id("--sandbox", str(options["sandbox"])),
            cgroups_path=path,
            containers=named,
            no_pod=bool(options["no_pod"]),
        ),
        only=bool(options["only"]),
        version=version,
        driver=driver,
        memory=memory if isinstance(memory, int) else None,
        cpu_m=cpu_m if isinstance(cpu_m, int) else None,
        threaded=bool(options["threaded"]),
        overhead=overhead if isinstance(overhead, int) else None,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = str(text).partition("=")
    if not equals:
        raise click.UsageError(
            f"--container {str(text)[:200]!r} is no ID=PATH; write --container {name[:64]}=/POD/{name[:64]}"
        )
    return name, value


def _processes(
    wanted: "Wanted", vmm: str | None, vcpus: tuple[str, ...], shims: tuple[str, ...], virtiofsd: str | None
) -> "tuple[Processes, dict[int, int]]":
    """What was given, and by number the start that was given with it."""
    from nodeward.features.sandboxes.plan import Processes

    the_vmm, the_files = _numbered("--vmm", vmm), _numbered("--virtiofsd", virtiofsd)
    threads = [_numbered("--vcpu", one) for one in vcpus]
    own = wanted.paths.sandbox
    pairs = [(name if mark else own, number) for name, mark, number in (_shim(one) for one in shims)]
    numbered = [(name, _numbered("--shim", number)) for name, number in pairs]
    given = [the_vmm, the_files, *threads, *(one for _, one in numbered)]
    processes = Processes(
        the_vmm.number,
        tuple(one.number for one in threads),
        tuple((name, one.number) for name, one in numbered),
        the_files.number,
    )
    return processes, {one.number: one.start for one in given if one.start}


def _shim(text: str) -> tuple[str, str, str]:
    name, mark, number = text.partition("=")
    return (name, mark, number) if mark else ("", "", name)


def _numbered(option: str, text: str | None) -> _Named:
    """A number with or without a start; nothing for nothing."""
    if text is None:
        return _Named()
    from nodeward.features.sandboxes.effects.placing import MAX_PID

    number, mark, start = text.partition(":")
    if not all(one.isascii() and one.isdigit() and len(one) < 20 for one in ((number, start) if mark else (number,))):
        raise click.UsageError(f"{option} {text[:80]!r} is no PID and no PID:START; write 4711 or 4711:123456")
    if not 1 < int(number) <= MAX_PID:
        raise click.UsageError(f"{option} {number} is not between 2 and {MAX_PID}, where processes have their numbers")
    return _Named(int(number), int(start or 0))


def _running(steps: "Sequence[Step]", starts: dict[int, int]) -> "Sequence[Running]":
    """Each process and thread of these steps as it is now, before the first is moved."""
    from nodeward.features.sandboxes.effects.placing import running
    from nodeward.host.hostfs import OsFiles

    files = OsFiles()
    return [running(files, step.pid, step.tid, starts.get(step.tid, 0)) for step in steps]


def _perform(
    at: "Machine", output: str, wanted: "Wanted", phase: str, steps: "Sequence[Step]", known: "Sequence[Running]"
) -> None:
    from nodeward.features.sandboxes.effects import placing
    from nodeward.host.hostfs import OsFiles

    placing.perform(OsFiles(), at, steps, known)
    _print(output, wanted, {phase: steps})


def _print(output: str, wanted: "Wanted", phases: "Mapping[str, Sequence[Step]]") -> None:
    from nodeward.features.sandboxes.plan import note

    said = note(wanted)
    steps = [_record(phase, step) for phase, some in phases.items() for step in some]
    about = {"sandbox": wanted.paths.sandbox, "version": wanted.version, "note": said, "steps": steps}
    if print_data(about, output):
        return
    for phase, some in phases.items():
        for step in some:
            print(f"{phase}: {_line(wanted.version, step)}")
    if said:
        print(f"note: {said}", file=sys.stderr)


def _record(phase: str, step: "Step") -> dict[str, str | int]:
    """What a step does; without what it does not have."""
    found: dict[str, str | int] = {
        "phase": phase,
        "act": step.act.value,
        "cgroup": step.cgroup,
        "trees": step.trees.value,
        "step": step.number,
        "file": step.file,
        "value": step.value,
        "role": step.role.value if step.role else "",
        "pid": step.pid,
        "tid": step.tid,
        "if_unset": step.if_unset,
    }
    return {name: value for name, value in found.items() if value}


def _line(version: int, step: "Step") -> str:
    trees = f" ({step.trees.value})" if version == 1 else ""
    number = f"  [{step.number}]" if step.number else ""
    if step.role is not None:
        who = f"{step.role.value} {step.pid}" if step.whole else f"{step.role.value} thread {step.tid} of {step.pid}"
        return f"move {who} to {step.cgroup}{trees}{number}"
    number = f" unless it has one{number}" if step.if_unset else number
    value = f" {step.file} {step.value}".rstrip() if step.file else f": {step.value}" if step.value else ""
    return f"{_WORDS.get(step.act.value, step.act.value)} {step.cgroup}{value}{trees}{number}"
