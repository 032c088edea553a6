"""`nodeward pod gate`: sets the verdict on a pod with a gate, by SetGate of the Pod API."""

import re

import click

from nodeward.cli.flags import pods

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command("gate")
@click.argument("what", metavar="NAMESPACE/NAME", shell_complete=pods)
@click.option("--pass", "passed", is_flag=True, help="It may start.")
@click.option("--deny", "denied", metavar="REASON", help="It never starts; this is final.")
@click.option("--expires", metavar="TIME", help="With --pass: for so long, such as 10m.  [default: for good]")
@click.option("--socket", help="The Pod API's socket.  [default: podapi.sock beside the daemon's socket]")
def command(what: str, passed: bool, denied: str | None, expires: str | None, socket: str | None) -> None:
    """Set the verdict on a pod that waits at its gate. It is on disk once this command ends well.

    A pod is known once its start is asked for, or the API server has told of it. The daemon answers where
    podapi.enabled is true and gate.mode is observe or enforce; gate.uids names the users who may.

    Exit code: 0, 1 where no daemon answers or the verdict was not set, 2 for wrong usage.

    \b
    Examples:
      nodeward pod gate shop/web --pass --expires 10m
      nodeward pod gate shop/web --deny 'the evidence is of another image'
    """
    import json

    from nodeward.core.text import printable
    from nodeward.people import client

    namespace, slash, name = what.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise click.UsageError(f"{printable(what, 300)} is no NAMESPACE/NAME, such as shop/web")
    if passed is (denied is not None):
        raise click.UsageError("give --pass, or --deny with the reason")
    if denied is not None and (expires or not denied.strip()):
        raise click.UsageError("--deny is final: give it a reason and no --expires")
    asked = {
        "namespace": namespace,
        "name": name,
        "verdict": "PASSED" if passed else "DENIED",
        "reason": denied or "",
        "expires_s": _seconds(expires) if expires else 0,
    }
    found = json.loads(client.podapi(socket, "/v1/SetGate", asked))
    print(f"{namespace}/{name} (uid {printable(str(found['uid']))}): {printable(str(found['verdict']))}")


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,8})([smhd])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not seconds:
        raise click.UsageError("--expires: write a number with s, m, h or d, such as 10m")
    return seconds
