"""What several commands share: the options `-o` and `--set`, and what a shell offers for pods, namespaces and policies.

Completing never fails: without an answer nothing is offered.
"""

import os
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])
_CONTROL = re.compile("[\x7f-\x9f]")
"""Those that command a terminal and that JSON leaves as they are, within its texts only."""


def output_option(*more: str) -> Callable[[F], F]:
    """`-o text`, `json` or `yaml`, given to the command as `output`; `more` are other forms of text, such as wide."""
    forms = ["text", *more, "json", "yaml"]
    return click.option("-o", "--output", type=click.Choice(forms), default="text", show_default=True)


def print_data(value: object, output: str, *, is_one_of_many: bool = False) -> bool:
    """Prints the value as JSON or YAML, and returns whether that was asked for. Bytes are JSON already. One of many is
    a line of JSON, or a document of YAML that begins with its mark."""
    if output not in ("json", "yaml"):
        return False
    import msgspec

    if output == "json":
        text = (value if isinstance(value, bytes) else msgspec.json.encode(value)).decode()
        print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=is_one_of_many)
        return True
    plain = msgspec.json.decode(value) if isinstance(value, bytes) else value
    text = msgspec.yaml.encode(plain).decode()
    print(("---\n" if is_one_of_many else "") + text, end="", flush=is_one_of_many)
    return True


def own_name() -> str:
    """The daemon's pod, else its process: process ids mean nothing outside a pod. `status` shows it while it waits."""
    pod = os.environ.get("POD_NAME", "")
    return f"pod {os.environ.get('POD_NAMESPACE', '')}/{pod}" if pod else f"process {os.getpid()}"


def set_option(example: str) -> Callable[[F], F]:
    """`--set`, given to the command as `flags`: dotted paths to texts; of a path that is given twice the last."""
    return click.option(
        "--set", "flags", multiple=True, metavar="PATH=VALUE", callback=_pairs, help=f"One setting, e.g. {example}."
    )


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for flag in given:
        path, equals, text = flag.partition("=")
        if not equals or not path:
            raise click.BadParameter(
                f"{flag!r} is no PATH=VALUE; write for example --set {path or 'limits.mode'}=VALUE"
            )
        pairs[path] = text
    return pairs


def unix_socket(value: str, flag: str) -> str:
    """The path of a socket that is given as `/x`, `unix:/x` or `unix:///x`; a relative path is of this folder."""
    path = value.removeprefix("unix://").removeprefix("unix:")
    if re.match("[a-zA-Z0-9+.-]+:", path):
        raise click.BadParameter(
            f"{value[:300]!r} is no unix socket; give its path, such as /run/containerd/containerd.sock",
            param_hint=flag,
        )
    return os.path.abspath(path)


# ---- completion

WITHIN_S = 1.0
"""Whoever pressed Tab waits."""


def _rows(ctx: click.Context) -> list[tuple[str, str]]:
    """Namespace and name of each pod that the daemon knows."""
    from nodeward.core.errors import NodewardError
    from nodeward.people import client
    from nodeward.people.pods import pod_rows

    client.TIMEOUT_S = WITHIN_S
    try:
        given = ctx.params.get("socket")
        if given and os.path.basename(given) == client.PODAPI_SOCKET:
            given = os.path.join(os.path.dirname(given), os.path.basename(client.DEFAULT_SOCKET))
        return [(row.namespace, row.pod) for row in pod_rows(client.node(given)) if row.namespace]
    except (NodewardError, OSError, ValueError):
        return []


def _fitting(words: Iterable[str], incomplete: str) -> list[str]:
    return sorted({word for word in words if word.startswith(incomplete)})


def pods(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """NAMESPACE/POD, and the sub-commands where the command has some."""
    below = list(ctx.command.commands) if isinstance(ctx.command, click.Group) else []
    return _fitting([*below, *(f"{namespace}/{pod}" for namespace, pod in _rows(ctx))], incomplete)


def namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces of these pods."""
    return _fitting((namespace for namespace, _ in _rows(ctx)), incomplete)


def policies(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The CPU policies."""
    from nodeward.features.cpus.policies.table import POLICIES

    return _fitting(POLICIES, incomplete)
