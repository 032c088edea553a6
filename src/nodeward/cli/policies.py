"""`nodeward policies`: the CPU policies, and what each needs."""

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodeward.app.tools.policies import PolicyRow


@click.command("policies")
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(name: str | None, output: str) -> None:
    """List the CPU policies, or explain the policy NAME: aliases, the settings that it needs, its options.

    The setting policy.active chooses one. Exit code: 0, or 1 for a policy that is not known.

    \b
    Examples:
      nodeward policies
      nodeward policies static
      nodeward policies -o json | jq -r '.[].name'
    """
    from nodeward.app.tools import policies

    rows = (policies.row_of(name),) if name else policies.rows()
    if output == "json":
        import msgspec

        print(msgspec.json.encode(rows[0] if name else rows).decode())
    elif name:
        sys.stdout.write("".join(f"{line}\n" for line in _explained(rows[0])))
    else:
        width = max(len(row.name) for row in rows)
        for row in rows:
            aliases = f" (also {', '.join(row.aliases)})" if row.aliases else ""
            print(f"{row.name:<{width}}  {row.about}{aliases}")


def _explained(row: "PolicyRow") -> list[str]:
    lines = [f"{row.name}: {row.about}"]
    if row.aliases:
        lines.append(f"aliases: {', '.join(row.aliases)}")
    lines.append(f"needs: {', '.join(row.needs) or 'nothing'}")
    if row.settings:
        lines.append(f"settings: {', '.join(row.settings)}")
    if row.options:
        lines.append(f"options (policy.{row.name}.options):")
        lines += [f"  {option}: {meaning}" for option, meaning in row.options.items()]
    for title, keys in (("taken and not enforced", row.not_enforced), ("refused", row.refused)):
        if keys:
            lines.append(f"{title}:")
            lines += [f"  {key}: {why}" for key, why in keys.items()]
    return [*lines, f"example: nodeward node --set policy.active={row.name}" + "".join(_needed(row))]


def _needed(row: "PolicyRow") -> list[str]:
    return [f" --set {path}=1" for path in row.needs]
