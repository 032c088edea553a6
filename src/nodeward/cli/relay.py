"""`nodeward relay`: runs the relay between kubelet and the runtime."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import click

from nodeward.cli.flags import set_option, unix_socket

if TYPE_CHECKING:
    from nodeward.features.settings import Settings

_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command("relay")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("relay.runtime=/run/crio/crio.sock")
@click.option("--listen", metavar="SOCKET", help="Kubelet's end: the setting relay.listen.")
@click.option("--runtime", metavar="SOCKET", help="The runtime's socket: the setting relay.runtime.")
@click.option("--dump-file", metavar="FILE", help="Write down what passes: the setting dump.file; '' for nothing.")
@click.option("--dump", metavar="RULES", help="Which methods, and how much of them: the setting dump.rules.")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True)
def command(
    config_path: str | None,
    flags: dict[str, str],
    listen: str | None,
    runtime: str | None,
    dump_file: str | None,
    dump: str | None,
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
    from nodeward.settings import load as settings

    pairs, given_by = dict(flags), {}
    for path, flag, value in (
        ("relay.listen", "--listen", listen),
        ("relay.runtime", "--runtime", runtime),
        ("dump.file", "--dump-file", dump_file),
        ("dump.rules", "--dump", dump),
    ):
        if value is not None:
            is_socket = value and path.startswith("relay.")
            is_file = value and path == "dump.file"
            pairs[path] = unix_socket(value, flag) if is_socket else os.path.abspath(value) if is_file else value
            given_by[path] = f"flag {flag}"
    run(partial(settings.load, config_path, os.environ, pairs, given_by), log_level)


class Beside(Protocol):
    """A process beside the relay."""

    async def run(self) -> None:
        """Keeps it running until cancelled."""

    def reload(self) -> None:
        """Has it read its settings again."""


def run(
    read: "Callable[[], Settings]",
    log_level: str,
    started: Callable[[], None] = lambda: None,
    reload_by: signal.Signals = signal.SIGHUP,
    faults: tuple[str, ...] = (),
    first: "Settings | None" = None,
    beside: Beside | None = None,
) -> None:
    """Relays by the settings until a signal; SIGHUP and `reload_by` have them read again. `started` is called once it
    has sockets. `faults` says why a part of the settings is left out at first."""
    from nodeward.host import process
    from nodeward.host.clock import SystemClock
    from nodeward.programs.relay import run as relay
    from nodeward.settings import load as settings
    from nodeward.settings.source import SettingsSource

    process.set_up_logs(log_level)
    settings.warn(os.environ)
    source = SettingsSource(read, "file, environment and flags", faults=faults)

    def reload() -> None:
        source.asked.set()
        if beside is not None:
            beside.reload()

    process.raise_descriptor_limit()
    clock = SystemClock()
    plan = replace(relay.plan(first or read(), clock, source), beside=beside.run if beside is not None else None)
    process.run(relay.run(plan, clock, started), reload, process.debug_switch(log_level), reload_by)
