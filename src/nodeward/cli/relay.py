"""`nodeward relay`: between kubelet and the runtime."""

import asyncio

import click

_LEVELS = click.Choice(["debug", "info", "warning", "error"])
_SOCKET = click.Path(dir_okay=False)


@click.command("relay")
@click.option("--listen", default="/run/nodeward/cri.sock", show_default=True, type=_SOCKET, help="Kubelet's end.")
@click.option(
    "--runtime",
    default="/run/containerd/containerd.sock",
    show_default=True,
    type=_SOCKET,
    help="The runtime's socket.",
)
@click.option("--log-level", type=_LEVELS, default="info", show_default=True)
def command(listen: str, runtime: str, log_level: str) -> None:
    """Relay every CRI message between kubelet and the runtime, until SIGTERM.

    The socket gets the owner and mode of the runtime's. It may be started before the runtime.

    \b
    Examples:
      nodeward relay
      nodeward relay --listen /run/nodeward/cri.sock --runtime /run/crio/crio.sock
    """
    import uvloop

    from nodeward.aio.clock import SystemClock
    from nodeward.app import process, relay

    process.set_up_logs(log_level)
    process.raise_descriptor_limit()
    plan = relay.RelayPlan(listen.removeprefix("unix://"), runtime.removeprefix("unix://"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(process.until_signal(relay.run(plan, SystemClock())))
