"""`nodeward setup completion`: the script by which a shell completes commands and options, made by click."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script by which a shell completes `nodeward`: bash 4.4 or later, zsh, or fish.

    \b
    Examples:
      nodeward setup completion bash > /etc/bash_completion.d/nodeward
      nodeward setup completion zsh > "${fpath[1]}/_nodeward"
      nodeward setup completion fish > ~/.config/fish/completions/nodeward.fish
    """
    from click.shell_completion import get_completion_class

    from nodeward.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None, shell
    print(made(cli, {}, "nodeward", "_NODEWARD_COMPLETE").source())
