"""Sentences that say why kubelet is refused: resource, ids, numbers and remedy.

Kubelet puts the text of a refused Allocate into the pod's status, and that of a refused start into an event.
"""

from collections.abc import Iterator, Sequence

from nodeward.features.keys.rule import Count

_SHOWN_IDS, _SHOWN_CHARS = 4, 64
_AGAIN = "kubelet tries again by itself"
REMEDIES = {
    "none": "this is a fault of kubelet's: restart it",
    "twice": "this is a fault of kubelet's: restart it",
    "unknown": "kubelet has an old list: it gets the present one, and the pod can be made again",
    "too-many": "let the pod ask for no more than the node's capacity shows",
    "unoffered": "offer the resource with keys.mode enforce and publisher device-plugin, or take the pod elsewhere",
    "early": "make the pod again in a few seconds",
    "journal": "mend the folder run_dir of the daemon's settings; running pods keep their keys",
    "quotes": "start that service, or set the row's attestation to observe",
    "unread": "see nodeward doctor for the misc controller; the pod can be made again",
    "uncounted": "see nodeward keys; the row's setting `capacity` says how many there are where the kernel hides it",
    "gone": "load that module again (kvm_intel with tdx, kvm_amd with sev_es), or take the pod elsewhere",
    "foreign": "end what holds keys outside of the node's pods (nodeward keys names it), or place the pod elsewhere",
    "promised": "end a pod that was promised a key, or place this one elsewhere",
    "draining": "wait for the end of the VM that holds it (nodeward keys names it), then make the pod again",
    "reserved": "lower the row's setting `reserve`, or place the pod elsewhere",
    "withheld": "the keys that became free a moment ago are offered in a few seconds; the pod can be made again",
    "late": "the pod can be made again; see nodeward status for what is slow",
    "owner": _AGAIN,
    "taken": f"{_AGAIN}; see nodeward keys for who holds the keys",
    "claim": "delete the pod, and its claim where that stays; the next one is allocated anew",
}
"""What can be done, by the code of the refusal. The codes are labels of metrics too, so they stay."""
_OF_STARTS = {
    "unread": f"{_AGAIN}; see nodeward doctor for the misc controller",
    "late": f"{_AGAIN}; see nodeward status for what is slow",
    "quotes": f"{_AGAIN}; {REMEDIES['quotes']}",
    "uncounted": f"{_AGAIN}; {REMEDIES['uncounted']}",
    "gone": f"{_AGAIN}; {REMEDIES['gone']}",
}
"""The same where a start is refused: the pod waits, and need not be made again."""


_OF_CLAIMS = {
    "claim": REMEDIES["claim"],
    "journal": f"{REMEDIES['journal']}; {_AGAIN}",
    "foreign": f"end what holds keys outside of the node's pods (nodeward keys names it); {_AGAIN}",
    "promised": f"end a pod that was promised a key; {_AGAIN}",
    "draining": f"wait for the end of the VM that holds it (nodeward keys names it); {_AGAIN}",
    "reserved": f"lower the row's setting `reserve`; {_AGAIN}",
}
"""The same of claims: kubelet tries again by itself."""


def text(code: str, resource: str, ids: Sequence[str], why: str, *, starts: bool = False) -> str:
    """The whole refusal, of a start or of an Allocate."""
    remedy = (_OF_STARTS if starts else REMEDIES).get(code, REMEDIES[code])
    return f"Nodeward gives out no {resource} for {_named(ids)}: {why}; {remedy}"


def of_claim(code: str, title: str, why: str) -> str:
    """The whole refusal of a claim, which kubelet shows in an event of its pod; it tries again by itself."""
    remedy = _OF_CLAIMS.get(code, _OF_STARTS.get(code, ""))
    return f"Nodeward does not prepare the claim {title}: {why}; {remedy or _AGAIN}"


def short_of(sums: Count, published: int | None, asked: int, promised: bool) -> tuple[str, str]:
    """Code and reason where fewer keys may be granted than were asked for; `promised`: some pod was promised keys.
    `published` is None where the scheduler sells."""
    offered = "" if published is None else f" and {published} published"
    numbers = f"{asked} asked, {sums.free} free of {sums.capacity}{offered} ({', '.join(_taken(sums))})"
    if sums.free >= asked:
        return "withheld", numbers
    if sums.foreign and sums.free + sums.foreign >= asked:
        return "foreign", numbers
    if sums.reserve and sums.free + sums.reserve >= asked:
        return "reserved", numbers
    return ("promised" if promised else "draining" if sums.claimed else "foreign"), numbers


def _taken(sums: Count) -> Iterator[str]:
    if sums.wrapped:
        yield "the kernel's counter of the whole node went below zero, so nothing can be told"
        return
    yield f"{sums.claimed} held by pods or promised to them"
    yield f"{sums.foreign} in foreign use"
    yield f"{sums.reserve} in reserve"


def _named(ids: Sequence[str]) -> str:
    shown = [one if len(one) <= _SHOWN_CHARS else f"{one[:_SHOWN_CHARS]}..." for one in ids[:_SHOWN_IDS]]
    more = f" and {len(ids) - len(shown)} more" if len(ids) > len(shown) else ""
    return f"{', '.join(repr(one) for one in shown)}{more}" if ids else "a list without ids"
