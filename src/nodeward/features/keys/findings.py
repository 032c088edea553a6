"""Findings of doctor on TEE keys.

Goes by what the daemon tells of itself, since it alone has counted; without it only an object of ours that was left
behind can be told. Pure, as `people.doctor.findings` is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeward.core.devices import PluginStanding
from nodeward.core.finding import Finding, Severity
from nodeward.features.keys.rows import KeyRow, KeySharing
from nodeward.features.keys.share import oversold
from nodeward.features.keys.sharing_view import removals
from nodeward.features.keys.terms import ClaimState


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """TEE keys, as the daemon counts them. `our_object` is NAMESPACE/NAME of a NodeFeature object of ours for this
    node, whoever wants it; `has_checkpoint`: a device plugin has registered with this kubelet once; `hiding`: how many
    of the ids of SEV-ES and SEV-SNP are to hide ciphertext, by the parameter of kvm_amd, 0 for no part of them.
    `on_node` and `left_by_nfd` as in ApiFacts."""

    rows: tuple[KeyRow, ...] = ()
    our_object: str = ""
    has_checkpoint: bool = False
    hiding: int = 0
    on_node: Mapping[str, int] | None = None
    left_by_nfd: tuple[str, ...] = ()


OK, NOTE, WARNING = Severity.OK, Severity.NOTE, Severity.WARNING
_RULE = "See that nfd-master runs without restrictions.disableExtendedResources, that Kata's NodeFeatureRule is there"
_UNRULED = f"{_RULE}, and that it matches this node."
_LATE = (
    f"{_RULE}, that NFD's nodeFeatureNamespaceSelector lets our namespace in, and that no NodeFeature with this node's "
    "label has the same attribute and sorts behind ours by name (rename or delete it): the last one counts."
)

_RIVAL = (
    "Whoever offers these keys now in our place, as KubeVirt does: the node has 0 of them at once, and our plugin "
    "registers within five seconds, with ids of its own; pods that have the other's run on."
)


def keys(facts: KeyFacts) -> Iterator[Finding]:
    """All findings about keys; none where they are not counted and nothing of ours was left."""
    is_wanted = False
    for row in facts.rows:
        if row.key == "sev_es" and facts.hiding and row.capacity:
            yield _hiding(row, facts.hiding)
        if row.sharing is None or (row.used is None and not row.sharing.error):
            is_wanted = is_wanted or _stands(row)
            continue
        sharing = _as_of_now(row, row.sharing, facts)
        is_wanted = is_wanted or sharing.total is not None
        yield from _shared(row, sharing)
        yield from _attested(row, sharing)
        with_ids = sum(1 for holder in row.holders if holder.ids and not holder.gone)
        said = removals(sharing, row.capacity, with_ids, has_checkpoint=facts.has_checkpoint)
        if row.offer is not None and row.offer.standing == PluginStanding.RIVAL.value:
            said = (*said, _RIVAL)
        if said:
            yield Finding("keys-removal", NOTE, f"if it were removed now: {' '.join(said)}", f"keys.kinds.{row.key}")
    yield from _left(facts)
    if facts.our_object and not is_wanted:
        what = (
            "a NodeFeature object of ours is there that no daemon here wants: NFD's number stands still at what it says"
        )
        remedy = "Start the daemon with keys.mode enforce, or delete the object (nodeward uninstall, or kubectl)."
        yield Finding("keys-nfd-stale", WARNING, what, facts.our_object, remedy)


def of_offers(rows: Sequence[KeyRow]) -> Iterator[Finding]:
    """Finds what is wrong with the ids that kubelet is offered."""
    for row in rows:
        yield from _uncounted(row)
        yield from _journal(row)
        yield from _claims(row)


def _stands(row: KeyRow) -> bool:
    """Whether our object may be there for a kind that cannot be counted: what it says stands until it can be again."""
    return row.offer is not None and row.sharing is not None and row.sharing.chosen != "own"


def _uncounted(row: KeyRow) -> Iterator[Finding]:
    """What is offered to kubelet, and cannot be counted any more, or is not there any more."""
    where, withheld = f"keys.kinds.{row.key}", row.offer.withheld if row.offer is not None else ""
    what = f"no id is offered of {row.key}: {row.sentence.removesuffix('.')}"
    if withheld == "gone":
        remedy = "Load their module again (kvm_intel, kvm_amd), or set the row's publisher to none."
        yield Finding("keys-gone", WARNING, what, where, remedy)
    elif withheld == "uncounted":
        remedy = (
            "Let misc.capacity and misc.current of the root be read (the latter is there since Linux 6.6); where only "
            "the former is hidden, say how many there are as `capacity`."
        )
        yield Finding("keys-uncounted", WARNING, what, where, remedy)


def _journal(row: KeyRow) -> Iterator[Finding]:
    """The record of grants: why none can be put on it, or what its loss means."""
    if row.offer is None:
        return
    where = f"keys.kinds.{row.key}"
    if row.offer.journal_fault:
        what = f"no id is given out of {row.key}: {row.offer.journal_fault}"
        remedy = "Mend the folder run_dir of the daemon's settings, or do as it says; running pods keep their keys."
        yield Finding("keys-journal", WARNING, what, where, remedy)
    if row.offer.journal_lost:
        remedy = "Find out what removes files in the folder run_dir of the daemon's settings while machines run."
        yield Finding("keys-journal-lost", WARNING, row.offer.journal_lost.removesuffix("."), where, remedy)


def _claims(row: KeyRow) -> Iterator[Finding]:
    """Why keys are not given by claim, and which claims wait."""
    of, where = row.claims, "keys.dra"
    if of is None:
        return
    if of.fault:
        what = f"the keys of {row.key} are not published to the scheduler: {of.fault}"
        yield Finding(
            "claims-unpublished", WARNING, what, where, "Do what it says; deploy/node/claims.yaml has the rights."
        )
    if of.driver and of.registered is False:
        what = f"kubelet has not registered our driver, so no claim is prepared: {of.driver}"
        remedy = (
            "See that keys.kubelet_root is kubelet's --root-dir, and in a pod that deploy/node/dra.yaml is applied."
        )
        yield Finding("claims-unregistered", WARNING, what, where, remedy)
    for one in of.rows:
        if one.state == ClaimState.WAITING.value:
            what = f"the claim {one.claim} waits for a key, and its pod does not start: {one.why}"
            yield Finding("claims-wait", WARNING, what, " and ".join(one.pods), "Do what it says; kubelet tries again.")


def _as_of_now(row: KeyRow, sharing: KeySharing, facts: KeyFacts) -> KeySharing:
    """With what the node has now: where the daemon may not watch it, it looks every two minutes."""
    if facts.on_node is None:
        return sharing
    return replace(sharing, on_node={name: facts.on_node[name] for name in row.resources if name in facts.on_node})


def _left(facts: KeyFacts) -> Iterator[Finding]:
    """NFD's master takes back what it put on the node, and nobody does once it is gone (features/keys, N1)."""
    for name in facts.left_by_nfd:
        asked = [row.sharing.asked for row in facts.rows if row.sharing is not None and name in row.resources]
        here = f"; pods here ask {sum(asked)} by it" if asked else ""
        number = (facts.on_node or {}).get(name, 0)
        what = (
            f"the node has {name} {number}, which Node Feature Discovery put there and nobody changes or takes back, "
            f"since it has nothing for this node any more{here}, and more pods may be sent here by it"
        )
        remedy = (
            "Install NFD again. Or, once no pod here asks by it, run nfd-master -prune, or take it out of the node's "
            f"status: kubectl patch node NODE --subresource=status --type=json -p '{_taken_out(name)}'."
        )
        yield Finding("keys-nfd-left", WARNING, what, name, remedy)


def _taken_out(name: str) -> str:
    """The JSON patch by which a resource is no longer in a node's status."""
    return f'[{{"op": "remove", "path": "/status/capacity/{name.replace("/", "~1")}"}}]'


def _shared(row: KeyRow, sharing: KeySharing) -> Iterator[Finding]:
    where = f"keys.kinds.{row.key}.share"
    needs = sharing.chosen in ("override", "split", "shared")
    if needs and sharing.nfd in ("absent", "served"):
        lost = "nobody offers these keys" if sharing.chosen == "shared" else "nobody goes by a number of ours"
        what = f"share is {sharing.chosen}, and Node Feature Discovery is not at work on this node: {lost}"
        yield Finding("keys-nfd-away", WARNING, what, where, "Install NFD, or set share to auto.")
    elif sharing.nfd_fault and sharing.chosen == "auto" and sharing.nfd == "unknown":
        what = (
            f"whether Node Feature Discovery works on this node is not known, so NFD's number is left alone, as with "
            f"share own: {sharing.nfd_fault}"
        )
        remedy = "Do what it says; deploy/node/nfd.yaml has the rights. Without NFD, set share to own."
        yield Finding("keys-nfd-error", WARNING, what, where, remedy)
    elif sharing.error or sharing.nfd_fault:
        what = f"NFD's number cannot be kept: {sharing.error or sharing.nfd_fault}"
        yield Finding("keys-nfd-error", WARNING, what, where, "Do what it says; deploy/node/nfd.yaml has the rights.")
    elif sharing.total is not None and sharing.on_node and sharing.total not in sharing.on_node.values():
        there = ", ".join(f"{name} {number}" for name, number in sharing.on_node.items())
        what = f"NFD's master has not taken our number over: it is to be {sharing.total}, and the node has {there}"
        yield Finding("keys-nfd-late", WARNING, what, where, _LATE)
    elif sharing.total is not None and sharing.nfd == "working" and not sharing.on_node:
        yield _unruled(sharing, where)
    own = sharing.chosen == "own" and bool(sharing.published)
    what, remedy = oversold(row.key, row.entitled, row.capacity, sharing.asked, own=own)
    if what:
        yield Finding("keys-oversold", WARNING, what, where, f"{remedy[0].upper()}{remedy[1:]}.")
    yield Finding("keys-mode", OK, sharing.sentence, where)


def _unruled(sharing: KeySharing, where: str) -> Finding:
    """NFD is at work and puts no number of this kind on the node, as without Kata's rule (features/keys, N3)."""
    what = "Node Feature Discovery is at work, and no rule of it puts this number on the node"
    if not sharing.asked:
        return Finding("keys-nfd-unruled", NOTE, f"{what}: nobody goes by it", where, _UNRULED)
    what += f", by which pods here ask {sharing.asked}: kubelet's next start ends those that ask by their overhead"
    remedy = f"{_UNRULED} Or end these pods before kubelet is started anew."
    return Finding("keys-nfd-unruled", WARNING, what, where, remedy)


def _attested(row: KeyRow, sharing: KeySharing) -> Iterator[Finding]:
    if not sharing.quotes:
        return
    where = f"keys.kinds.{row.key}.attestation"
    if sharing.quotes == "answers":
        yield Finding("keys-quotes", OK, "the service that makes quotes answers", where)
        return
    so = "no key is sold meanwhile" if sharing.attestation == "enforce" else "VMs start, and get no quotes"
    what = f"the service that makes quotes does not answer ({sharing.quotes}): {so}"
    remedy = "Start it (qgsd), correct attestation_socket, or give the daemon its group, and in a pod its folder."
    yield Finding("keys-quotes-away", WARNING, what, where, remedy)


def _hiding(row: KeyRow, asids: int) -> Finding:
    """With ciphertext hiding SEV-SNP has the ids from 1 up to so many, and SEV-ES those above; `misc.capacity` tells of
    both together (features/keys, K6)."""
    where = "/sys/module/kvm_amd/parameters/ciphertext_hiding_asids"
    if row.capacity <= asids:
        what = f"ciphertext hiding keeps ids for SEV-SNP, and no more than those are sold: {row.capacity}"
        return Finding("keys-hiding", OK, what, where)
    what = (
        f"ciphertext hiding leaves SEV-SNP {asids} of the {row.capacity} ids of sev_es, and SEV-ES the others; the "
        "kernel counts them together, so for SNP's VMs as many are sold as there are of both"
    )
    remedy = f"Where SNP is what is offered, set capacity_from: fixed and capacity: {asids} in keys.kinds.sev_es."
    return Finding("keys-hiding", WARNING, what, where, remedy)
