"""`nodeward setup`: makes the programs around Nodeward ready for it."""

import click

from nodeward.cli.setup import cdi, completion, hook, relay, runtime


@click.group("setup")
def command() -> None:
    """Make the container runtime, kubelet and the shell ready for Nodeward.

    \b
    Examples:
      nodeward setup runtime --dry-run            NRI on in containerd or CRI-O
      nodeward setup relay --dry-run              kubelet asks the relay
      nodeward setup relay --undo                 and the runtime again
      nodeward setup completion bash > /etc/bash_completion.d/nodeward
    """


for one in (runtime, relay, hook, cdi, completion):
    command.add_command(one.command)
