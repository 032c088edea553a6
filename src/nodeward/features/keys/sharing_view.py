"""Makes the rows of sharing and fences that `nodeward keys` and doctor show. Nothing is decided here.

Fences are what counting cannot give: a promise that a key which is free now is there when the VM begins. The
kernel would keep it if `misc.max` held each pod to what it was promised, and everybody else to a quota that is never
sold (features/keys, R6). They are only shown. For `tdx` there are none to show: where the kernel refuses a TDX
charge it takes it back twice, so that the counter falls below zero and the next attempt succeeds (K5).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeward.core.devices import PluginStanding
from nodeward.core.events import HeldElsewhere
from nodeward.core.modes import Mode
from nodeward.core.workload import PodUid
from nodeward.features.keys import sums as key_sums
from nodeward.features.keys.kubelet_view import home
from nodeward.features.keys.rows import KeyFence, KeyFences, KeySharing
from nodeward.features.keys.rule import Count, PodKeys
from nodeward.features.keys.settings import Attestation, KeyKind
from nodeward.features.keys.share import asked_by_nfd
from nodeward.features.pods.found import pod_cgroups
from nodeward.features.root import State

TDX_LEFT_OUT = (
    "none for tdx: where the kernel refuses a TDX charge it takes it back twice, so the counter falls below zero and "
    "the next VM gets a key all the same."
)


_STANDING = {
    PluginStanding.RIVAL: "is offered by somebody else, so not by us: {}; counting goes on, and we offer it once the "
    "other has gone.",
    PluginStanding.REFUSED: "is not offered: kubelet refuses it: {}.",
    PluginStanding.WAITING: "is not offered at the moment: {}.",
    PluginStanding.ENDED: "is not offered: {}.",
}
"""How it stands with our device plugin, but for the good days."""


def offering(state: State, key: str) -> Iterator[str]:
    """Why kubelet does not read our list of this kind, where the settings want it to."""
    kind, mode = state.settings.keys.kinds[key], state.settings.keys.mode
    told = state.keys.plugins.get(kind.publish)
    if told is not None and mode is Mode.ENFORCE and key_sums.is_tracked(kind) and told.standing in _STANDING:
        yield f"{kind.publish} {_STANDING[told.standing].format(told.why)}"


def sharing(state: State, key: str, sums: Count | None) -> KeySharing:
    """Who sells this kind, by which mode, and what NFD makes of it."""
    kind, nfd = state.settings.keys.kinds[key], state.keys.nfd
    found = key_sums.shared(state, key, sums, sums.free) if sums is not None else None
    is_on = state.settings.keys.mode is Mode.ENFORCE
    mode = found.mode if found is not None else kind.share
    offered = kind.publish if key_sums.is_listed(state, key) else ""
    sellable = found.sellable if found is not None and offered else None
    there = "unknown" if nfd is None else "working" if nfd.worker else "served" if nfd.served else "absent"
    told = KeySharing(
        mode=mode.value,
        chosen=kind.share.value,
        published=offered,
        sellable=0 if sellable and key_sums.unsold(state, key) else sellable,
        asked=asked_by_nfd(state, key),
        total=found.total if found is not None and is_on else None,
        written=None if nfd is None else nfd.written.get(key),
        on_node=_of_nfd(kind, nfd.on_node) if nfd is not None else {},
        nfd=there,
        nfd_fault=state.keys.nfd_fault,
        error=state.keys.misses.get("nfd", {}).get(key, ""),
        quotes=_quotes(state, key),
        attestation=kind.attestation.value,
    )
    return replace(told, sentence=_in_force(told))


def _of_nfd(kind: KeyKind, on_node: Mapping[str, int]) -> Mapping[str, int]:
    """What the node has by names that NFD may put there: ours is kubelet's, and may happen to be the same number."""
    return {name: on_node[name] for name in kind.resources if name in on_node and name != kind.publish}


def _in_force(sharing: KeySharing) -> str:
    """The mode that is in force, in a sentence."""
    chosen = "" if sharing.mode == sharing.chosen else f" (chosen: {sharing.chosen})"
    ours = f"our plugin offers {sharing.published}" if sharing.published else "we offer nothing"
    more = f" and may sell {sharing.sellable} more" if sharing.sellable is not None else ""
    if sharing.total is None:
        theirs = "NFD's number is left alone"
    else:
        written = "nothing yet" if sharing.written is None else str(sharing.written)
        theirs = f"NFD's number is to be {sharing.total}, and our object says {written}"
    return f"share is {sharing.mode}{chosen}: {ours}{more}; {theirs}, and pods here ask {sharing.asked} by it"


def _quotes(state: State, key: str) -> str:
    """Whether the service answers that makes quotes; empty where nobody asks it."""
    if state.settings.keys.kinds[key].attestation is Attestation.OFF:
        return ""
    told = state.keys.quotes.get(key)
    if told is None:
        return "not asked yet"
    return "answers" if told.answers else told.why


def fences(
    state: State, key: str, held: Mapping[PodUid, PodKeys], sums: Count, elsewhere: tuple[HeldElsewhere, ...]
) -> KeyFences:
    """What `misc.max` would be, where fences were written: each pod's promise, what slices outside hold now, and 0
    for everybody else. The quota of those outside is the reserve, or what they hold where that is more."""
    if key == "tdx":
        return KeyFences(why=TDX_LEFT_OUT)
    paths = pod_cgroups(state.pods)
    rows = [_of_pod(state, uid, claim, paths.get(uid, "")) for uid, claim in held.items()]
    rows.sort(key=lambda one: (one.cgroup, one.why))
    slices: dict[str, int] = {}
    for one in elsewhere:
        top = one.path.strip("/").split("/")[0]
        if one.key == key and top and not top.startswith("kubepods"):
            slices[f"/{top}"] = slices.get(f"/{top}", 0) + one.amount
    rows += [KeyFence(top, amount, "what it holds now") for top, amount in sorted(slices.items())]
    quota = max(sums.reserve, sums.foreign)
    why = (
        f"shown only, nothing is written: every other pod and slice would have 0. Outside of pods {quota} are set "
        f"apart ({sums.foreign} in use, {sums.reserve} in reserve); {max(0, sums.capacity - quota)} could be promised."
    )
    return KeyFences(tuple(rows), why)


def _of_pod(state: State, uid: PodUid, claim: PodKeys, path: str) -> KeyFence:
    namespace, name = home(state, uid)
    whose = f"{namespace}/{name}" if name else f"pod {uid}"
    over = max(claim.charged, default=0) - claim.entitled
    more = f"; it holds {over} more, which no fence takes back" if over > 0 else ""
    return KeyFence(path, claim.entitled, f"what {whose} was promised{more}")


def removals(row: KeySharing, capacity: int, holders: int, *, has_checkpoint: bool) -> tuple[str, ...]:
    """What would break if somebody were removed now, a sentence each (features/keys, L1, L7, N1).

    `holders` are pods with ids of ours; `has_checkpoint`: a device plugin has registered with this kubelet once."""
    said = [_without_nfd(row, has_checkpoint=has_checkpoint)] if row.asked or row.nfd == "working" else []
    if row.published:
        ends = (
            f"{holders} pod(s) with ids run on, and are not admitted again should kubelet begin anew before it is back"
        )
        said.append(
            f"our plugin: {row.published} is 0 at once, and after five minutes no resource of the node; {ends}."
        )
    if row.total is not None and row.total < capacity:
        said.append(
            f"our NodeFeature object (it goes with our DaemonSet): NFD's number is {capacity} again, though "
            f"{capacity - row.total} of them are not for those who go by it."
        )
    return tuple(said)


def _without_nfd(row: KeySharing, *, has_checkpoint: bool) -> str:
    if row.asked:
        what = (
            f"NFD, or Kata with its rule: {row.asked} key(s) are asked by NFD's number; once the node lacks it, "
            "kubelet's next start ends pods that ask by their overhead, as Kata's do, and new ones wait"
        )
    else:
        what = (
            "NFD, or Kata with its rule: no pod here asks by NFD's number, so none ends; new ones of Kata's would wait"
        )
    zeroes = "; kubelet has no checkpoint of a device plugin here, so its next start sets NFD's number to 0 for a while"
    return f"{what}{'' if has_checkpoint else zeroes}."
