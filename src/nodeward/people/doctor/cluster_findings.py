"""Findings of doctor on the cluster.

Pure, as `people.doctor.findings` is.
"""

from collections.abc import Iterator

from nodeward.core.finding import Access, Finding, Neighbour, Registered, Severity
from nodeward.people.doctor.facts import ApiFacts

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
    """Whether it lists this node's pods and takes Events; why not. An error's own remedy replaces the general one."""
    if facts.access is Access.OFF:
        what = "the API server is not used (kube.enabled is false): only annotations say what was promised"
        yield Finding("api-off", NOTE, what, "kube.enabled", "Set kube.enabled to true for limits from pods' specs.")
    elif facts.access is Access.OK:
        yield Finding("api", OK, "the API server lists this node's pods", facts.where)
        yield from _events(facts)
    elif facts.access in _REFUSED:
        code, remedy = _REFUSED[facts.access]
        what, own = facts.detail, ""
        if facts.access is Access.CONFIG:
            what, _, own = what.partition("; ")
        elif facts.access is Access.DENIED and "; " in what:
            what, _, own = what.rpartition("; ")
        yield Finding(code, ERROR, what, facts.where or "kube", f"{own[0].upper()}{own[1:]}." if own else remedy)


def _events(facts: ApiFacts) -> Iterator[Finding]:
    remedy = "Allow create and patch on events of events.k8s.io in every namespace, or set kube.events to false."
    if facts.no_events is None:
        what = "the API server does not say whether this user may create Events: whether pods are told is not known"
        yield Finding("events-not-looked-at", NOTE, what, facts.where, remedy)
    elif facts.no_events:
        what = f"this user may not {' or '.join(facts.no_events)} Events: pods are not told what became of their limits"
        yield Finding("events-denied", WARNING, what, facts.where, remedy)


def ours(facts: ApiFacts) -> Iterator[Finding]:
    """Our objects in the cluster besides the daemon."""
    if facts.access is Access.OK and facts.webhooks is not None:
        yield _webhook(facts.webhooks, facts.where)
    for place in dict.fromkeys(f"{one.namespace}/{one.name}" for one in facts.no_parameters):
        policies = [one.policy for one in facts.no_parameters if f"{one.namespace}/{one.name}" == place]
        what = (
            f"the ConfigMap {place}, which the bindings of {' and '.join(policies)} name, is not there: in their "
            "namespaces the API server makes no pod, not even one without EPC"
        )
        remedy = "Apply deploy/policies/parameters.yaml, or delete these bindings (docs/webhook.md)."
        yield Finding("policies-no-parameters", WARNING, what, facts.where, remedy)


_NEVER = {
    "tdx.intel.com/keys": "which Kata asks for by its RuntimeClass's overhead, and no claim can serve an overhead",
    "sev-snp.amd.com/esids": "which Kata asks for by its RuntimeClass's overhead, and no claim can serve an overhead",
    "sgx.intel.com/epc": "which is an amount of bytes, and a claim would want as many devices",
}
"""Extended resources that no DeviceClass may stand for, and why (KEP-5004)."""


def classes(facts: ApiFacts) -> Iterator[Finding]:
    """DeviceClasses by which pods of the whole cluster cannot be placed any more."""
    for name, resource in facts.device_classes or ():
        if resource in _NEVER:
            what = (
                f"the DeviceClass {name} stands for {resource}, {_NEVER[resource]}: pods that ask for it do not start"
            )
            remedy = f"Take extendedResourceName out of it: kubectl edit deviceclass {name} (docs/claims.md)."
            yield Finding("claims-class", ERROR, what, f"DeviceClass {name}", remedy)


def claims(facts: ApiFacts) -> Iterator[Finding]:
    """Who else sells by a driver of ours on this node, and pods that do not end for want of a driver."""
    for driver, name in facts.twin_slices:
        what = f"somebody else publishes a ResourceSlice of our driver {driver} on this node, and sells what we sell"
        remedy = (
            f"Stop who makes it and delete it (kubectl delete resourceslice {name}), or give our driver another name."
        )
        yield Finding("claims-twin", ERROR, what, f"ResourceSlice {name}", remedy)
    if facts.ending:
        more = f" and {len(facts.ending) - 1} more" if len(facts.ending) > 1 else ""
        what = (
            f"the pod {facts.ending[0]}{more} with claims was to have ended two minutes ago: kubelet ends it once each "
            "driver of its claims has answered"
        )
        remedy = (
            "See which driver is away (kubectl describe pod), and start it; Nodeward's serves until its last claim has "
            "ended, whatever dra.mode is (docs/claims.md)."
        )
        yield Finding("claims-ending", WARNING, what, facts.ending[0], remedy)


def _webhook(seen: tuple[Registered, ...], where: str) -> Finding:
    """What is registered of ours, and whether the API server can trust it."""
    absent = [name for name in OUR_WEBHOOKS if name not in [one.name for one in seen]]
    blind = [one.name for one in seen if one.name in OUR_WEBHOOKS and not one.has_ca]
    if blind:
        what = (
            f"{' and '.join(dict.fromkeys(blind))} in a MutatingWebhookConfiguration has no caBundle: the API server "
            "trusts no certificate of nodeward webhook, and refuses new pods with EPC (failurePolicy: Fail)"
        )
        remedy = (
            "See that cert-manager and its cainjector run and deploy/webhook/certificate.yaml is applied, or patch in "
            "trust.yaml of deploy/webhook/make-certificate (docs/webhook.md)."
        )
        return Finding("webhook-no-ca", WARNING, what, where, remedy)
    if not absent:
        return Finding("webhook", OK, "nodeward webhook is registered", where)
    return Finding(
        "webhook-absent",
        NOTE,
        f"no MutatingWebhookConfiguration has {' or '.join(absent)}: nodeward webhook gives pods with EPC no devices, "
        "aesmd sidecar and annotations, and refuses none early; limits are still set, from pods' specs",
        where,
        "Install deploy/webhook (docs/webhook.md) if nobody else does that here.",
    )


_DAEMON_SETS = {
    "sgx-epc": "sgx-epc",
    "intel-sgx-plugin": "intel-sgx-plugin",
    "cri-resmgr": "cri-rm",
    "nri-resource-policy": "nri-policy",
    "dracpu": "dra-driver-cpu",
    "dra-driver-cpu": "dra-driver-cpu",
}
"""Parts of the names of DaemonSets, and whose they are."""


def neighbours(facts: ApiFacts) -> Iterator[Neighbour]:
    """Who else changes pods or their limits, by names in the cluster."""
    for one in facts.webhooks or ():
        if one.name == "sgx.mutator.webhooks.intel.com":
            yield Neighbour("intel-sgx-webhook", f"webhook {one.name}")
    for name in facts.daemon_sets or ():
        for part, known in _DAEMON_SETS.items():
            if part in name:
                yield Neighbour(known, f"DaemonSet {name}")
