"""`nodeward node`: the daemon."""

import asyncio
import os

import click


@click.command("node")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@click.option("--set", "flags", multiple=True, metavar="PATH=VALUE", help="One setting, e.g. limits.mode=observe.")
@click.option("--record", "record_path", type=click.Path(dir_okay=False), help="Record events and decisions here.")
@click.option("--log-level", default="info", show_default=True)
def command(config_path: str | None, flags: tuple[str, ...], record_path: str | None, log_level: str) -> None:
    """Run the daemon on this node, as root, until SIGTERM.

    \b
    Examples:
      nodeward node --config /etc/nodeward.yaml
      nodeward node --set limits.mode=observe --set kube.enabled=false
      NODEWARD_LIMITS__STRICT=true nodeward node --config /etc/nodeward.yaml
    """
    from nodeward.aio.clock import SystemClock
    from nodeward.aio.hostfs import OsFiles
    from nodeward.app import node, process, settings

    pairs = dict(flag.partition("=")[::2] for flag in flags)
    if record_path:
        pairs["record.path"] = os.path.abspath(record_path)
    chosen = settings.load(config_path, os.environ, pairs)
    process.set_up_logs(log_level)
    lock = process.hold_lock(chosen.run_dir, "node")
    try:
        asyncio.run(process.until_signal(node.run(chosen, OsFiles(), SystemClock())))
    finally:
        os.close(lock)
