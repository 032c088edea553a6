"""What the cluster's facts mean: how the API server answers, and who changes pods there. Pure, as `engine.doctor`."""

from collections.abc import Iterator

from nodeward.model.doctor import Access, ApiFacts, Finding, Neighbour, Severity

OK, NOTE, WARNING, ERROR = Severity.OK, Severity.NOTE, Severity.WARNING, Severity.ERROR
OUR_WEBHOOKS = ("create.nodeward.io", "update.nodeward.io")
"""Their names in deploy/webhook."""
_REFUSED = {
    Access.CONFIG: (
        "api-config",
        "Correct kube.kubeconfig, kube.url or the file named; on a host without API server set kube.enabled to false.",
    ),
    Access.DENIED: (
        "api-denied",
        "Renew the token or client certificate (401), or allow get, list and watch on pods (403).",
    ),
    Access.CERTIFICATE: ("api-certificate", "Renew the certificate, name the right authority, or set the clock."),
    Access.UNREACHABLE: ("api-unreachable", "Start the API server, or correct its address, route and firewall."),
}


def api(facts: ApiFacts) -> Iterator[Finding]:
    """Whether it lists this node's pods and takes Events; why not."""
    if facts.access is Access.OFF:
        what = "the API server is not used (kube.enabled is false): only annotations say what was promised"
        yield Finding("api-off", NOTE, what, "kube.enabled", "Set kube.enabled to true for limits from pods' specs.")
    elif facts.access is Access.OK:
        yield Finding("api", OK, "the API server lists this node's pods", facts.where)
        yield from _events(facts)
    elif facts.access in _REFUSED:
        code, remedy = _REFUSED[facts.access]
        yield Finding(code, ERROR, facts.detail, facts.where or "kube", remedy)


def _events(facts: ApiFacts) -> Iterator[Finding]:
    remedy = "Allow create and patch on events of events.k8s.io in every namespace, or set kube.events to false."
    if facts.no_events is None:
        what = "the API server does not say whether this user may create Events: whether pods are told is not known"
        yield Finding("events-not-looked-at", NOTE, what, facts.where, remedy)
    elif facts.no_events:
        what = f"this user may not {' or '.join(facts.no_events)} Events: pods are not told what became of their limits"
        yield Finding("events-denied", WARNING, what, facts.where, remedy)


def ours(facts: ApiFacts) -> Iterator[Finding]:
    """What of ours is in the cluster beside the daemon."""
    if facts.access is not Access.OK or facts.webhooks is None:
        return
    absent = [name for name in OUR_WEBHOOKS if name not in facts.webhooks]
    if not absent:
        yield Finding("webhook", OK, "nodeward webhook is registered", facts.where)
        return
    yield Finding(
        "webhook-absent",
        NOTE,
        f"no MutatingWebhookConfiguration has {' or '.join(absent)}: nodeward webhook gives pods with EPC no devices, "
        "aesmd sidecar and annotations, and refuses none early; limits are still set, from pods' specs",
        facts.where,
        "Install deploy/webhook (docs/webhook.md) if nobody else does that here.",
    )


def unlisted(facts: ApiFacts) -> Iterator[Finding]:
    """What could not be looked at."""
    for one in facts.unlisted:
        if one.denied:
            what = f"the API server does not let this user list {one.what}, so others there were not looked for"
            remedy = "Run doctor once with an administrator's kubeconfig (--set kube.kubeconfig=FILE)."
        else:
            what = f"{one.what} were not listed, so others there were not looked for: {one.why}"
            remedy = f"Run doctor again when the API server answers well, or list the {one.what} with kubectl."
        yield Finding("cluster-not-looked-at", NOTE, what, facts.where, remedy)


def neighbours(facts: ApiFacts) -> Iterator[Neighbour]:
    """Who else changes pods or their limits, by names in the cluster."""
    for name in facts.webhooks or ():
        if name == "sgx.mutator.webhooks.intel.com":
            yield Neighbour("intel-sgx-webhook", f"webhook {name}")
    for name in facts.daemon_sets or ():
        for part, known in (("sgx-epc", "sgx-epc"), ("intel-sgx-plugin", "intel-sgx-plugin"), ("cri-resmgr", "cri-rm")):
            if part in name:
                yield Neighbour(known, f"DaemonSet {name}")
