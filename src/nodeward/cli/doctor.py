"""`nodeward doctor`: what this machine and cluster lack, and how to mend it."""

import os
import sys
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from nodeward.cli import exits
from nodeward.cli.flags import output_option, print_data, set_option

if TYPE_CHECKING:
    from nodeward.features.settings import Settings
    from nodeward.people.doctor.run import Diagnosis


@click.command("doctor")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("kube.enabled=false")
@click.option("--socket", help="The daemon's socket.  [default: NODEWARD_SOCKET, else nodeward.sock in the run_dir]")
@output_option()
@click.option("--bundle", "bundle_path", metavar="FILE.tar.gz", help="Also write a support bundle without secrets.")
def command(
    config_path: str | None, flags: dict[str, str], socket: str | None, output: str, bundle_path: str | None
) -> None:
    """Look at kernel, cgroups, runtime, API server, clock and neighbours, and report what is missing. Changes nothing.

    Runs `containerd`, `crio`, `runc` and `crun` with --version where they are in the usual folders. The bundle holds
    findings, versions, settings without secrets, the daemon's status (with names of pods) and the misc files.

    Exit code: 0 where the worst finding is ok or note, 1 warning or error (the last line, and `worst` in JSON, say
    which), 2 where the bundle cannot be written.

    \b
    Examples:
      nodeward doctor --config /etc/nodeward.yaml
      nodeward doctor -o json | jq '.findings[] | select(.severity == "error")'
      nodeward doctor --set kube.kubeconfig=/root/.kube/config --bundle /tmp/nodeward.tar.gz
    """
    from nodeward.people.doctor import run as doctor

    chosen, faults = _settings(config_path, flags)
    around = doctor.here(socket or os.environ.get("NODEWARD_SOCKET") or f"{chosen.run_dir}/nodeward.sock")
    found = doctor.diagnose(chosen, around, faults)
    if not print_data({"worst": found.worst, "findings": found.findings}, output):
        _print(found)
    if bundle_path:
        _write(bundle_path, doctor.bundle(chosen, found, around))
    sys.stdout.flush()
    sys.exit(exits.BY_SEVERITY[found.worst.value])


def _settings(config_path: str | None, flags: dict[str, str]) -> "tuple[Settings, tuple[str, ...]]":
    """The settings; the defaults, and the faults, where they cannot be used."""
    from nodeward.settings import load as settings

    try:
        return settings.load(config_path, os.environ, flags), ()
    except settings.SettingsError as error:
        return settings.from_tree({}, {}), tuple(error.faults)


def _print(found: "Diagnosis") -> None:
    for finding, after in zip_longest(found.findings, found.findings[1:]):
        print(f"{finding.severity.value:<8}{finding.code}: {finding.what} [{finding.where}]")
        if finding.remedy and (after is None or after.remedy != finding.remedy):
            print(f"        {finding.remedy}")
    print(f"worst: {found.worst.value}")


def _write(path: str, data: bytes) -> None:
    """A new file that only its owner can read; it replaces none."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    except OSError as error:
        print(f"nodeward: {path}: the bundle cannot be written: {error.strerror}; name a new file", file=sys.stderr)
        sys.exit(exits.UNUSABLE)
    print(f"bundle: {path}", file=sys.stderr)
