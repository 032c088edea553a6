"""`nodeward replay`: a record, decided again."""

import sys

import click


@click.command("replay")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
def command(path: str) -> None:
    """Decide a record's events again; exit with 1 at the first decision that differs.

    \b
    Example:
      nodeward node --record /tmp/node.record ...
      nodeward replay /tmp/node.record
    """
    from nodeward.app.replay import replay

    with open(path, "rb") as file:
        found = replay(file)
    print(f"{path}: {found.segments} segment(s), {found.events} event(s), {found.torn} torn place(s)")
    if found.difference:
        print(f"first difference: {found.difference}", file=sys.stderr)
        sys.exit(1)
    print("every decision is the same, byte for byte")
