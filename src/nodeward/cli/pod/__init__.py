"""`nodeward pod`: shows what the node knows of its pods, through the Pod API."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from nodeward.cli.flags import output_option, pods, print_data
from nodeward.cli.groups import Own, Shows
from nodeward.cli.pod import gate

WITHHELD = "$withheld"
MIB = 1 << 20


@click.group("pod", cls=Shows)
@click.argument("what", cls=Own, metavar="[NAMESPACE/NAME]", required=False, shell_complete=pods)
@click.option("--list", "every", is_flag=True, help="List the pods that this node knows.")
@click.option("--spec", is_flag=True, help="Also the whole spec, read at the API server and redacted.")
@click.option("--socket", help="The Pod API's socket.  [default: podapi.sock beside the daemon's socket]")
@output_option()
def command(what: str | None, every: bool, spec: bool, socket: str | None, output: str) -> None:
    """Show what this node knows of a pod: each section with its source, and why it lacks something.

    Values that may be secret are withheld, and the rule is named, such as `withheld (env)`. The daemon answers
    where podapi.enabled is true.

    Exit code: 0, 1 where no daemon answers or no such pod is known, 2 for wrong usage.

    \b
    Examples:
      nodeward pod --list
      nodeward pod shop/web
      nodeward pod shop/web --spec
      nodeward pod shop/web --spec -o json | jq .spec.value
      nodeward pod gate shop/web --pass --expires 10m
    """
    from nodeward.core.text import printable
    from nodeward.people import client

    if every is (what is not None):
        raise click.UsageError("give NAMESPACE/NAME, such as shop/web, or --list")
    if every and spec:
        raise click.UsageError("--spec is of one pod: give NAMESPACE/NAME without --list")
    namespace, slash, name = (what or "").partition("/")
    if what is not None and (not slash or not namespace or not name or "/" in name):
        raise click.UsageError(f"{printable(what, 300)} is no NAMESPACE/NAME, such as shop/web")
    if every:
        body = client.podapi(socket, "/v1/pods")
    else:
        asked: dict[str, object] = {"selector": {"namespace": namespace, "name": name}}
        body = client.podapi(socket, "/v1/DescribePod", asked)
        if spec:
            more = client.podapi(socket, "/v1/DescribePod", asked | {"fields": ["spec"]})
            body = json.dumps(json.loads(body) | {"spec": json.loads(more)["spec"]}).encode()
    if print_data(body, output):
        return
    for line in _table(json.loads(body)) if every else _sections(json.loads(body)):
        print(printable(line))


def _table(pods: list[dict[str, str]]) -> Iterator[str]:
    if not pods:
        yield "no pod is known: neither the API server nor the runtime has told of one; see nodeward status"
        return
    names = ("namespace", "name", "uid", "sandbox", "handler", "runtime_class")
    rows = [[name.upper() for name in names], *([one[name] or "-" for name in names] for one in pods)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _sections(found: dict[str, dict[str, object] | None]) -> Iterator[str]:
    for name, section in found.items():
        if section is None:
            continue
        yield f"{name}  ({section['source']})"
        if section["value"] is not None:
            yield from _lines(section["value"], "  ")
        if section["why"]:
            yield f"  {'note' if section['complete'] else 'incomplete'}: {section['why']}"


def _lines(value: object, indent: str, name: str = "") -> Iterator[str]:
    """The value, one field a line; a list's items begin with a dash."""
    if isinstance(value, dict) and WITHHELD not in value and value:
        for key, one in value.items():
            if isinstance(one, dict | list) and one and WITHHELD not in one:
                yield f"{indent}{key}:"
                yield from _lines(one, f"{indent}  ", key)
            else:
                yield f"{indent}{key.removesuffix('_m')}: {_text(one, key)}"  # thousandths are told as CPUs
    elif isinstance(value, list) and value:
        for one in value:
            rows = list(_lines(one, f"{indent}  ", name))
            yield f"{indent}- {rows[0].strip()}"
            yield from rows[1:]
    else:
        yield f"{indent}{_text(value, name)}"


def _text(value: object, name: str) -> str:
    """An amount in the unit that its field's name tells, as a person reads it."""
    match value:
        case {"$withheld": rule}:
            return f"withheld ({rule})"
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case 0 if name in ("began", "ended", "expires_at", "reported", "set_at"):
            return "-"
        case int() if name in ("began", "ended", "expires_at", "reported", "set_at"):
            return datetime.fromtimestamp(value // 10**9, UTC).isoformat()
        case -1 if name == "set_by":
            return "-"
        case int() if name.endswith("_m"):
            return "none" if not value and "limit" in name else f"{value / 1000:g} CPUs"
        case int() if re.fullmatch("memory(_.*)?", name):
            return "none" if not value and "limit" in name else f"{value / MIB:g} MiB"
        case []:
            return "none"
        case dict():
            return "none"
        case "":
            return "-"
    return str(value)


command.add_command(gate.command)
