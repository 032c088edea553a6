"""`nodeward relay`: runs the relay between kubelet and the runtime."""

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from nodeward.cli.flags import set_option

if TYPE_CHECKING:
    from nodeward.features.settings import Settings
    from nodeward.settings.pushed import Pushed

_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command("relay")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("relay.runtime=/run/crio/crio.sock")
@click.option("--listen", metavar="SOCKET", help="Kubelet's end: the setting relay.listen.")
@click.option("--runtime", metavar="SOCKET", help="The runtime's socket: the setting relay.runtime.")
@click.option("--dump-file", metavar="FILE", help="Write down what passes: the setting dump.file; '' for nothing.")
@click.option("--dump", metavar="RULES", help="Which methods, and how much of them: the setting dump.rules.")
@click.option("--record", metavar="FILE", help="Record events and decisions at its end: the setting relay.record.")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True)
def command(
    config_path: str | None,
    flags: dict[str, str],
    listen: str | None,
    runtime: str | None,
    dump_file: str | None,
    dump: str | None,
    record: str | None,
    log_level: str,
) -> None:
    """Relay every CRI message between kubelet and the runtime, until SIGTERM.

    The socket gets the owner and mode of the runtime's. It may be started before the runtime. SIGHUP reads the
    settings again, SIGUSR1 switches the log to debug and back.

    \b
    Examples:
      nodeward relay
      nodeward relay --listen /run/nodeward/cri.sock --runtime /run/crio/crio.sock
      nodeward relay --dump-file /tmp/cri.dump --dump 'short:.*,full:.*Container$'
    """
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.cri_resmgr import pushed as cri_resmgr_pushed
    from nodeward.settings.pushed import Pushed

    pairs, given_by = dict(flags), {}
    for path, flag, value in (
        ("relay.listen", "--listen", listen),
        ("relay.runtime", "--runtime", runtime),
        ("dump.file", "--dump-file", dump_file),
        ("dump.rules", "--dump", dump),
        ("relay.record", "--record", record),
    ):
        if value is not None:
            is_path = value and path != "dump.rules"
            pairs[path] = os.path.abspath(value.removeprefix("unix://")) if is_path else value
            given_by[path] = f"flag {flag}"
    pushed = Pushed(cri_resmgr_pushed.over_file(config_path, os.environ, pairs, given_by), OsFiles())
    run(pushed.read, log_level, pushed=pushed)


def run(
    read: "Callable[[], Settings]",
    log_level: str,
    started: Callable[[], None] = lambda: None,
    reload_by: signal.Signals = signal.SIGHUP,
    pushed: "Pushed | None" = None,
    faults: tuple[str, ...] = (),
) -> None:
    """Relays by the settings until a signal; SIGHUP and `reload_by` have them read again. `started` is called once it
    has sockets. `pushed` has what an agent pushed; `faults` says why a part of the settings is left out at first."""
    from nodeward.host import process
    from nodeward.host.clock import SystemClock
    from nodeward.host.hostfs import OsFiles
    from nodeward.programs.relay import run as relay
    from nodeward.settings import load as settings
    from nodeward.settings.reload import SettingsSource

    process.set_up_logs(log_level)
    settings.warn(os.environ)
    source = SettingsSource(read, "file, environment and flags", faults=faults, pushed=pushed)
    chosen = pushed.first() if pushed is not None else read()
    process.raise_descriptor_limit()
    clock = SystemClock()
    plan = relay.plan(chosen, clock, OsFiles(), source)
    process.run(relay.run(plan, clock, started), source.asked.set, process.debug_switch(log_level), reload_by)
