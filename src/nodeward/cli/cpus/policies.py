"""`nodeward cpus policies`: the CPU policies, what each needs, and what a configuration of one would do."""

import json
import sys
from collections.abc import Iterable
from textwrap import TextWrapper
from typing import TYPE_CHECKING, NoReturn

import click

from nodeward.cli import exits
from nodeward.cli.flags import output_option, policies, print_data

if TYPE_CHECKING:
    from nodeward.features.cpus.spelling.listed import PolicyRow
    from nodeward.people.plan import CpuPlan
    from nodeward.programs.once.policy_files import Checked

SHOWN = 40
"""So many containers the text names; JSON has all."""
_DONE = TextWrapper(
    110, initial_indent="  done: ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
)


@click.group("policies")
def command() -> None:
    """List and explain the CPU policies, and try what a configuration of one would do.

    The setting policy.active chooses one.

    \b
    Examples:
      nodeward cpus policies list
      nodeward cpus policies show static
      nodeward cpus policies check balloons.yaml
      nodeward cpus policies plan balloons.yaml
    """


@command.command("list")
@output_option()
def list_policies(output: str) -> None:
    """List the CPU policies.

    \b
    Examples:
      nodeward cpus policies list
      nodeward cpus policies list -o json | jq -r '.[].name'
    """
    from nodeward.features.cpus.spelling import listed

    rows = listed.rows()
    if print_data(rows, output):
        return
    width = max(len(row.name) for row in rows)
    for row in rows:
        aliases = f" (also {', '.join(row.aliases)})" if row.aliases else ""
        print(f"{row.name:<{width}}  {row.about}{aliases}")


@command.command("show")
@click.argument("name", shell_complete=policies)
@output_option()
def show(name: str, output: str) -> None:
    """Explain the policy NAME: aliases, the settings that it needs, its options.

    Exit code: 0, or 1 for a policy that is not known.

    \b
    Examples:
      nodeward cpus policies show balloons
    """
    from nodeward.features.cpus.spelling import listed

    row = listed.row_of(name)
    if not print_data(row, output):
        sys.stdout.write("".join(f"{line}\n" for line in _explained(row)))


def _explained(row: "PolicyRow") -> list[str]:
    lines = [f"{row.name}: {row.about}"]
    if row.aliases:
        lines.append(f"aliases: {', '.join(row.aliases)}")
    lines.append(f"needs: {', '.join(row.needs) or 'nothing'}")
    if row.settings:
        lines.append(f"settings: {', '.join(row.settings)} (docs/cpus.md#{row.name})")
    if row.options:
        lines.append(f"options (policy.{row.name}.options):")
        lines += [f"  {option}: {meaning}" for option, meaning in row.options.items()]
    for title, keys in (("taken and not enforced", row.not_enforced), ("refused", row.refused)):
        if keys:
            lines.append(f"{title}:")
            for why in dict.fromkeys(keys.values()):
                lines.append(f"  {', '.join(key for key in keys if keys[key] == why)}: {why}")
    return [*lines, f"example: nodeward node --set policy.active={row.name}" + "".join(_needed(row))]


def _needed(row: "PolicyRow") -> list[str]:
    return [f" --set {path}=1" for path in row.needs]


@command.command("check", short_help="Say which keys of a configuration Nodeward does.")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False))
@output_option()
def check(path: str, output: str) -> None:
    """Say which keys of a policy's configuration for nri-plugins or CRI Resource Manager Nodeward does.

    FILE is a BalloonsPolicy or TopologyAwarePolicy object, nri-plugins' plain configuration, CRI Resource Manager's
    file or its ConfigMap. Each key is done, differs in meaning, is not enforced, or is refused. Names and limits are
    compared once every value can be read: mend the file and check it again. Whether it fits a node's CPUs only
    `nodeward cpus policies plan` says.

    Exit code: 0 Nodeward takes it, 1 something is refused, 2 the file cannot be used.

    \b
    Examples:
      nodeward cpus policies check balloons.yaml
      kubectl get -n kube-system balloonspolicy default -o yaml > p.yaml
      nodeward cpus policies check balloons.yaml -o json | jq '.[].rows[] | select(.verdict == "refused")'
    """
    from nodeward.programs.once import policy_files
    from nodeward.settings.load import SettingsError

    try:
        found = policy_files.check(path)
    except SettingsError as error:
        _unusable(error.faults)
    if not print_data(found, output):
        _write(line for one in found for line in _checked(path, one))
    sys.exit(exits.FAILED if any(one.is_refused for one in found) else exits.GOOD)


def _checked(path: str, found: "Checked") -> list[str]:
    lines = [f"{path}: {found.what}, policy {found.policy}"]
    for row in found.rows:
        if row.verdict != "done":
            lines.append(f"  line {row.line}: " * bool(row.line) + f"{row.path}: {row.verdict}: {row.why}")
    done = [row.path for row in found.rows if row.verdict == "done"]
    lines += _DONE.wrap(", ".join(done))
    return [*lines, *(f"  note: {note}" for note in found.notes)]


@command.command("plan", short_help="Show which containers would have other CPUs.")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False))
@click.option(
    "--record", metavar="RECORD", type=click.Path(exists=True, dir_okay=False), help="A recorded node instead."
)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@output_option()
def plan(path: str, record: str | None, socket: str | None, output: str) -> None:
    """Show which containers of this node would have other CPUs by a policy's configuration, and which.

    FILE is one of those that `nodeward cpus policies check` reads. The running daemon decides, and changes nothing.
    With --record the events of a recorded node are decided again by the policy; each container is shown as it first
    differs.

    Exit code: 0 the plan is made, 1 the policy would be refused on this node (with --record: something would differ),
    2 the file or the record cannot be used.

    \b
    Examples:
      nodeward cpus policies plan balloons.yaml
      nodeward cpus policies plan balloons.yaml --record /var/log/node.record
    """
    from nodeward.programs.once import policy_files
    from nodeward.settings.load import SettingsError

    try:
        section, chosen = policy_files.policy_of(path)
    except SettingsError as error:
        _unusable(error.faults)
    if record is not None:
        from nodeward.cli import replay

        replay.read(record, lambda: replay.compare(record, chosen, path, output))
    import msgspec

    from nodeward.people import client
    from nodeward.people.plan import CpuPlan

    answer = client.get("/v1/plan", socket, "POST", json.dumps(section).encode())
    made = msgspec.json.decode(answer, type=CpuPlan)
    if not print_data(answer, output):
        _write(_planned(made))
    sys.exit(exits.FAILED if made.refused else exits.GOOD)


def _planned(made: "CpuPlan") -> list[str]:
    if made.refused:
        return ["this node would refuse it, and keep what is in force:", *(f"  {why}" for why in made.refused)]
    lines = [f"{len(made.moved)} container(s) would have other CPUs, {len(made.staying)} the same:"]
    lines += [
        f"  {row.container}: {row.now or 'not pinned'} -> {row.then or 'not pinned'}" for row in made.moved[:SHOWN]
    ]
    return lines if len(made.moved) <= SHOWN else [*lines, f"  ... and {len(made.moved) - SHOWN} more in -o json"]


def _write(lines: Iterable[str]) -> None:
    """Lines with names that others chose."""
    from nodeward.core.text import printable

    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def _unusable(faults: list[str]) -> NoReturn:
    for fault in faults:
        print(f"nodeward: {fault}", file=sys.stderr)
    sys.exit(exits.UNUSABLE)
