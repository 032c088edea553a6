"""Findings of doctor on the relay. Pure."""

from collections.abc import Iterator

from nodeward.core.finding import Finding, Severity
from nodeward.people.doctor.facts import KubeletFacts, RelayFacts
from nodeward.people.relay_view import RelayView

OK, NOTE, WARNING, ERROR = Severity.OK, Severity.NOTE, Severity.WARNING, Severity.ERROR
_IMAGE = "Image"
"""Every method of CRI's image service has it in its name, and no other."""


def relay(facts: RelayFacts) -> Iterator[Finding]:
    """Findings on the relay; one that all is well, where it is."""
    if not facts.where:
        return
    if facts.view is None:
        yield _away(facts)
        return
    found = [*_passes(facts, facts.view), *_decides(facts, facts.view)]
    yield from found
    if all(one.severity is NOTE for one in found):
        count = sum(sum(row.results.values()) for row in facts.view.calls)
        listens = ", ".join(door.listen for door in facts.view.doors)
        passed = f"has passed {count} calls" if facts.view.counted else "counts no calls (relay.count_calls is false)"
        yield Finding("relay", OK, f"the relay answers, and {passed}", listens)


def _away(facts: RelayFacts) -> Finding:
    start = "Start nodeward relay, or set kubelet's containerRuntimeEndpoint back to the runtime's socket."
    if facts.fault:
        return Finding("relay-silent", WARNING, facts.fault, facts.where, "See its log, and whether it is the relay's.")
    if facts.kubelet.runtime and facts.kubelet.runtime == plain(facts.listen):
        what = "kubelet's runtime endpoint is the relay's socket, and no relay answers: no container starts"
        return Finding("relay-away", ERROR, what, facts.listen, start)
    if facts.wants:
        what = f"the settings want a relay (for {', '.join(facts.wants)}), and none answers"
        return Finding("relay-away", WARNING, what, facts.where, "Start nodeward relay as kubelet's runtime endpoint.")
    return Finding("relay", OK, "no relay is wanted, and none answers", facts.where)


def _passes(facts: RelayFacts, view: RelayView) -> Iterator[Finding]:
    """Who is behind it, who goes past it, and what the dump leaves out."""
    for door in view.doors:
        if door.present is False:
            what = f"the relay's last client found nobody at {door.runtime}: kubelet's calls fail with UNAVAILABLE"
            yield Finding(
                "relay-runtime-absent", ERROR, what, door.listen, "Start the runtime, or correct relay.runtime."
            )
    yield from _past(facts.kubelet, view)
    if view.dump is not None and view.dump.lost:
        what = f"the dump has left out {view.dump.lost} messages: its disk is full, or slower than the calls"
        remedy = "Choose fewer methods by dump.rules, or another disk."
        yield Finding("relay-dump-loses", WARNING, what, view.dump.file, remedy)


def _past(kubelet: KubeletFacts, view: RelayView) -> Iterator[Finding]:
    listens = [plain(door.listen) for door in view.doors]
    methods = [row.method for row in view.calls]
    unseen = "PullImage and all other image calls are neither counted nor dumped"
    remedy = (
        f"Set kubelet's imageServiceEndpoint to unix://{listens[-1] if listens else ''}; relay.image and "
        "relay.image_listen are for an image service that is not the runtime's."
    )
    if kubelet.seen_at and kubelet.runtime not in listens:
        what = f"kubelet's runtime endpoint is {kubelet.runtime}, not the relay's: nothing of kubelet's passes here"
        mend = f"Set containerRuntimeEndpoint to unix://{listens[0] if listens else ''} and restart kubelet."
        yield Finding("relay-not-used", WARNING, what, kubelet.seen_at, mend)
    elif kubelet.seen_at and len(listens) > 1 and kubelet.images == listens[0]:
        what = (
            f"kubelet asks {listens[0]} for images, which serves none since relay.image is set: no image can be pulled"
        )
        mend = f"Set imageServiceEndpoint to unix://{listens[1]} and restart kubelet, or take relay.image out."
        yield Finding("relay-images-refused", ERROR, what, kubelet.seen_at, mend)
    elif kubelet.seen_at and kubelet.images not in listens:
        what = f"kubelet asks {kubelet.images} for images, past the relay: {unseen}"
        yield Finding("relay-images-unseen", WARNING, what, kubelet.seen_at, remedy)
    elif not kubelet.seen_at and methods and not any(_IMAGE in method for method in methods):
        what = f"no image call has passed the relay yet; if kubelet's image service is another socket, {unseen}"
        yield Finding("relay-images-unseen", NOTE, what, ", ".join(listens), remedy)


def _decides(facts: RelayFacts, view: RelayView) -> Iterator[Finding]:
    missing = [one for one in facts.wants if one not in view.daemon.wants]
    if missing:
        what = f"the settings want calls held for {', '.join(missing)}, and the relay that runs does not hold them"
        yield Finding("relay-not-driver", WARNING, what, facts.where, "Restart the relay with these settings.")
    undecided = sum(door.undecided for door in view.doors)
    if undecided:
        what = f"{undecided} calls could not be decided and were answered by on_error"
        yield Finding("relay-undecided", WARNING, what, facts.where, "The relay's log says why.")
    if view.daemon.wants and not view.daemon.process:
        what = f"calls are held and nobody decides them: {view.daemon.why}"
        yield Finding(
            "relay-alone", WARNING, what, facts.where, "Start nodeward node with the same settings beside it."
        )


def plain(endpoint: str) -> str:
    """The path of a socket, as kubelet or the settings name it."""
    path = endpoint.removeprefix("unix://").removeprefix("unix:")
    return path.removeprefix("/var") if path.startswith("/var/run/") else path
