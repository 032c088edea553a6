"""`nodeward keys`: TEE keys and who holds them, as text."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nodeward.features.keys.rows import KeyElsewhere, KeyHolder, KeyIdRow, KeyRow


@click.command("keys")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(socket: str | None, output: str) -> None:
    """Show TEE keys: how many the kernel has, who was promised and who holds them, what is free and why.

    The daemon counts them where keys.mode is observe or enforce.

    \b
    Examples:
      nodeward keys
      nodeward keys -o json | jq '.[] | {key, free}'
      nodeward keys -o json | jq '.[].elsewhere'
    """
    import msgspec

    from nodeward.people import client
    from nodeward.people.rows import NodeView

    view = msgspec.json.decode(client.get("/v1/status", socket), type=NodeView)
    if output == "json":
        print(msgspec.json.encode(view.keys).decode())
        return
    if not view.keys:
        print("keys are not counted: set keys.mode to observe in the daemon's settings and restart it")
    for row in view.keys:
        print("\n".join(lines(row)))


def lines(row: "KeyRow") -> Iterator[str]:
    """One kind of key for people."""
    yield f"{row.key} ({', '.join(row.resources) or 'no resource'}): {row.sentence}"
    for resource, ids in row.registered.items():
        span = f": {ids[0]} to {ids[-1]}" if len(ids) > 1 else "".join(f": {one}" for one in ids)
        yield f"  {resource}: {len(ids)} healthy ids registered with kubelet{span}"
    yield from (f"  finding: {one}" for one in row.findings)
    if row.used is not None:
        yield (
            f"  {row.used} of {row.capacity} in use, {row.charged} of them by pods that were promised {row.entitled}; "
            f"read {(row.age_ms or 0) / 1000:.1f} s ago"
        )
    if row.published is not None:
        yield f"  {row.published} more published to kubelet; device plugin {row.plugin or 'has not told yet'}"
    yield from (f"  {line}" for line in _ids(row.ids))
    yield from (f"  {line}" for line in _claims(row))
    if row.refusals:
        yield f"  refused: {', '.join(f'{code} {count}' for code, count in row.refusals.items())}"
    if row.sharing is not None and row.used is not None:
        yield f"  {row.sharing.sentence}"
        if row.sharing.quotes:
            yield f"  the service that makes quotes: {row.sharing.quotes}"
    for holder in row.holders:
        yield f"  {_holder(holder)}"
    for other in row.elsewhere:
        yield f"  {other.cgroup}: holds {other.amount} ({other.about}){_age(other)}"


def _claims(row: "KeyRow") -> Iterator[str]:
    """What goes by claim, and each claim."""
    of = row.claims
    if of is None:
        return
    why = f": {of.fault or of.withheld}" if of.fault or of.withheld else ""
    if of.registered is None:
        yield f"by claim: a device of {of.published} would be published (keys.dra.mode is observe){why}"
    else:
        driver = "registered with kubelet" if of.registered else f"not registered with kubelet ({of.driver or 'yet'})"
        published = f"a device of {of.published} is to be published" if of.fault else f"a device of {of.published}"
        yield f"by claim: {of.room} more may be given out, {published}; our driver is {driver}{why}"
    for one in of.rows:
        number = f"{one.amount} key{'s' if one.amount > 1 else ''}"
        whose = " and ".join(one.pods) or "no pod"
        at = datetime.fromtimestamp(one.since_wall_ns // 10**9, UTC).isoformat()
        since = f", since {at}" if one.since_wall_ns else ""
        how = " (asked for as an extended resource)" if one.front != "claim" else ""
        state = {"waiting": f" waits: {one.why}", "draining": " has ended and still holds it"}.get(one.state, "")
        yield f"claim {one.claim}: {number}, {whose}{how}{since}{state}"


def _ids(ids: "tuple[KeyIdRow, ...]") -> Iterator[str]:
    """The ids; those that follow one another and stand alike in one line, with the time of the newest."""
    for (state, pods), group in groupby(ids, key=lambda one: (one.state, one.pods)):
        alike = list(group)
        span = f"{alike[0].id} to {alike[-1].id}" if len(alike) > 1 else alike[0].id
        whose = f", {' and '.join(pods)}" if pods else ""
        yield f"{span}: {state} for {min(one.for_ms for one in alike) / 1000:.0f} s{whose}"


def _age(other: "KeyElsewhere") -> str:
    """For how long an orphan has been there."""
    if other.for_ms is None:
        return ""
    return f", for {other.for_ms / 1000:.0f} s{f', {other.leaked} of them leaked' if other.leaked else ''}"


def _holder(holder: "KeyHolder") -> str:
    ids = f"id{'s' if len(holder.ids) > 1 else ''} {', '.join(holder.ids)}"
    name = f"{holder.namespace}/{holder.pod}" if holder.pod else f"pod {holder.uid}"
    if holder.gone:
        return f"{name}, which has ended: kubelet has not taken back {ids} yet"
    charged = "nothing that is known" if holder.charged is None else str(holder.charged)
    unknown = "" if holder.pod else ", which is not known"
    return f"{name}{unknown}: promised {holder.entitled}, holds {charged}{f', {ids}' if holder.ids else ''}"
