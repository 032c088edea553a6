"""`nodeward webhook`: runs the admission server."""

import os

import click

from nodeward.cli.flags import set_option

_LEVELS = click.Choice(["debug", "info", "warning", "error"])


@click.command("webhook")
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@set_option("webhook.port=8443")
@click.option("--log-level", type=_LEVELS, default="info", show_default=True)
def command(config_path: str | None, flags: dict[str, str], log_level: str) -> None:
    """Serve the API server's questions about pods, until SIGTERM. Needs no privileges.

    Takes the place of Intel's SGX webhook, at the same path /mutate--v1-pod.

    \b
    Examples:
      nodeward webhook --config /etc/nodeward.yaml
      nodeward webhook --set webhook.certificate_file=/tls/tls.crt --set webhook.key_file=/tls/tls.key
      NODEWARD_LIMITS__MODE=observe nodeward webhook --config /etc/nodeward.yaml
    """
    from nodeward.host import process
    from nodeward.host.clock import SystemClock
    from nodeward.programs import webhook
    from nodeward.settings import load as settings

    chosen = settings.load(config_path, os.environ, flags)
    process.set_up_logs(log_level)
    settings.warn(os.environ)
    process.run(webhook.run(chosen, SystemClock()))
