"""`nodeward completion`: what a shell completes commands and options by."""

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what completes `nodeward`'s commands and options in this shell.

    \b
    Examples:
      nodeward completion bash > /etc/bash_completion.d/nodeward
      nodeward completion zsh > ~/.zfunc/_nodeward
      nodeward completion fish > ~/.config/fish/completions/nodeward.fish
    """
    from click.shell_completion import get_completion_class

    from nodeward.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None  # click has these three
    print(found(cli, {}, "nodeward", "_NODEWARD_COMPLETE").source())
