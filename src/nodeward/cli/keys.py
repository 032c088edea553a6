"""`nodeward keys`: TEE keys and who holds them, as text."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

import click

from nodeward.cli.flags import output_option, print_data
from nodeward.cli.groups import Shows

if TYPE_CHECKING:
    from nodeward.features.keys.rows import KeyElsewhere, KeyHolder, KeyIdRow, KeyRow


@click.group("keys", cls=Shows)
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
@output_option()
def command(socket: str | None, output: str) -> None:
    """Show TEE keys: how many the kernel has, who was promised and who holds them, what is free and why.

    The daemon counts them where keys.mode is observe or enforce.

    \b
    Examples:
      nodeward keys
      nodeward keys -o json | jq '.[] | {key, free}'
      nodeward keys -o json | jq '.[].elsewhere'
      nodeward keys move --to dra --dry-run
    """
    rows = _rows(socket)
    if print_data(rows, output):
        return
    if not rows:
        print("keys are not counted: set keys.mode to observe in the daemon's settings and restart it")
    for row in rows:
        print("\n".join(lines(row)))


@command.command("move")
@click.option("--to", type=click.Choice(["dra", "plugin", "settings"]), required=True, help="By which way keys go.")
@click.option("--dry-run", "dry", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do it.")
@click.option("--within", type=click.FloatRange(0, 3600), default=120.0, show_default=True, help="Seconds to wait.")
@click.option("--socket", help="The daemon's socket.  [default: /run/nodeward/nodeward.sock]")
def move(to: str, dry: bool, yes: bool, within: float, socket: str | None) -> None:
    """Move the node's TEE keys from the device plugin to claims (dra), or back, while VMs run.

    Whoever gives keys up does so first. No VM is touched, and no key is given out twice. The daemon keeps the choice,
    also when it is restarted, and follows it in the place of keys.dra.share until `--to settings`. This command only
    asks for it and says what it waits for: it may be ended, and asked again.

    Exit code: 0 once the node is there, 1 where it is not within that time or cannot be, 2 for wrong usage.

    \b
    Examples:
      nodeward keys move --to dra --dry-run
      nodeward keys move --to dra --yes
      nodeward keys move --to plugin --yes --within 300
    """
    import json

    from nodeward.people import client

    if dry is yes:
        raise click.UsageError("give --dry-run to see what would be done, or --yes to do it")
    rows = _rows(socket)
    if dry:
        print("\n".join(_plan(rows, to)))
        return
    client.get("/v1/keys/move", socket, "POST", json.dumps({"to": to}).encode())
    raise SystemExit(_followed(lambda: _rows(socket), to, within))


def _rows(socket: str | None) -> "tuple[KeyRow, ...]":
    from nodeward.people import client
    from nodeward.people.rows import NodeView

    return client.decoded(client.get("/v1/status", socket), NodeView).keys


def _plan(rows: "tuple[KeyRow, ...]", to: str) -> Iterator[str]:
    """What a move would do, step by step."""
    for row in rows:
        of = row.claims
        if row.used is None:
            continue
        if of is None or of.registered is None:
            yield f"{row.key}: keys do not go by claim here: set keys.mode and keys.dra.mode to enforce first"
            continue
        ids = sum(1 for one in row.holders if one.ids and not one.gone)
        yield f"{row.key}: {row.capacity} keys; {ids} pods have ids, {len(of.rows)} have claims; they run on"
        if to == "dra":
            yield f"  1. kubelet is offered no more ids ({row.published or 0} now), so that no pod comes by the plugin"
            yield f"  2. claims may be given all that is free: {of.room} more now, then {row.free or 0}"
            once = f", once {ids} pods have ended" if ids else ""
            yield f"  3. pods that ask by the extended resource go by claim{once}"
        elif to == "plugin":
            yield f"  1. claims are given no more keys ({of.room} now)"
            yield "  2. half a minute passes, in which the scheduler sees that"
            yield f"  3. kubelet is offered all that is free: {row.published or 0} ids now, then {row.free or 0}"
        else:
            yield "  keys.dra.share of the settings holds again; whoever gives keys up by it does so first"
    yield "nothing was changed; --yes does it"


def _followed(rows: Callable[[], "tuple[KeyRow, ...]"], to: str, within_s: float) -> int:
    """Says what is waited for, until nothing is."""
    from nodeward.people.client import AwayError

    until, said = time.monotonic() + within_s, list[str]()
    while True:
        try:
            kinds = [row for row in rows() if row.claims is not None and row.used is not None]
            waits = [f"{row.key}: {why}" for row in kinds if row.claims is not None for why in row.claims.waits]
        except AwayError as error:
            kinds, waits = [], [f"{error}; it goes on with the move when it is back"]
        else:
            waits = waits if kinds else ["no kind of key is counted here and goes by claim (nodeward keys)"]
        there = bool(kinds) and all(row.claims is not None and row.claims.front == to for row in kinds)
        if there and not waits:
            print("\n".join(f"{row.key}: {_stands(row, to)}" for row in kinds))
            return 0
        if (now := [_without_number(one) for one in waits]) != said:
            said = now
            print("\n".join(f"waiting: {one}" for one in waits), flush=True)
        if time.monotonic() > until:
            print(f"not there after {within_s:g} s; the daemon goes on: nodeward keys move --to {to} --yes looks again")
            return 1
        time.sleep(0.5)


def _stands(row: "KeyRow", to: str) -> str:
    room = row.claims.room if row.claims is not None else 0
    by = {"dra": "by claim", "plugin": "by id", "settings": "as keys.dra.share says"}[to]
    return f"keys go {by}: claims may be given {room} more, kubelet {row.published or 0} more ids"


def _without_number(text: str) -> str:
    """So that a countdown is one line."""
    return re.sub(r"[0-9]+ s more", "", text)


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
    if of.front != "settings":
        yield f"moved by a person to {of.front}: keys.dra.share holds again after nodeward keys move --to settings"
    yield from (f"the move waits: {one}" for one in of.waits)
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
