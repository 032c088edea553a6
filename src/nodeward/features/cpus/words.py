"""Why a container has these CPUs, and what decisions remark on CPUs, as sentences by the reason's code.

A code that is not here, or has fewer values (a record of another release), is told as it is.
"""

from collections.abc import Callable, Mapping

from nodeward.core.refusal import Reason

Values = tuple[str | int, ...]
_ISOLATED_FOR = {
    "annotation": "the pod's annotation prefers these",
    "relaxed": "the policy's relaxed isolation prefers these",
    "single": "it requests a single one",
}
_SHAPE = ("whole socket(s)", "whole NUMA node(s)", "whole core(s)", "single CPU(s)")


def _taken(rest: str) -> Callable[[Values], str]:
    def sentence(values: Values) -> str:
        count, cpus, free, *shape = values
        made = ", ".join(f"{number} {what}" for number, what in zip(shape, _SHAPE, strict=True) if number)
        return f"It requests {count} whole CPU(s) of {free} that were free and not isolated: {cpus} ({made}){rest}."

    return sentence


def _isolated(values: Values) -> str:
    _, cpus, by = values
    return f"{cpus}: the kernel isolates these from its scheduler, and {_ISOLATED_FOR.get(str(by), by)}."


def _own(values: Values) -> str:
    full, part, kind, cpus, within = values
    rest = f"; the other {part} m are shared" if part else ""
    return f"The {full} whole CPU(s) of its request are its own: {cpus} ({kind}, within {within}){rest}."


_BY = {
    "annotation": "its annotation",
    "unread": "what it was before, until the runtime has told all of its labels that the settings name",
    "expression": "an expression of the type",
    "namespace": "its namespace",
    "default": "no other type",
}
_HOW = {
    "there": "it ran there already",
    "group": "its group is there",
    "pod": "its pod is there",
    "space": "its namespace is there",
    "fits": "there was room in it",
    "grows": "it was inflated for it",
    "new": "it was made, or empty",
}


def _balloon(values: Values) -> str:
    kind, by, name, how = (str(value) for value in values)
    return f"Of the type {kind} by {_BY.get(by, by)}; the balloon {name} was chosen since {_HOW.get(how, how)}."


_PODPOOL = {
    "pod": "its pod is there",
    "system": "its namespace is kube-system",
    "annotation": "its pod's annotation names it",
    "none": "its pod names no pool",
    "full": "no pool that its pod names has room",
    "unknown": "its pod names a pool that is not there",
}
_DYNAMIC = {
    "annotation": "by its annotation",
    "namespace": "by its namespace",
    "nothing": "since it requests nothing",
    "none": "since no type is for its namespace",
}


def _podpool(values: Values) -> str:
    name, how, asked, has = values
    over = ", more than it has" if int(asked) > int(has) else ""
    return f"In {name} since {_PODPOOL.get(str(how), how)}; requests there were {asked} m with it, of {has} m{over}."


def _dynamic(values: Values) -> str:
    name, by = values
    return f"In the pool {name} {_DYNAMIC.get(str(by), by)}."


_SENTENCES: Mapping[str, str | Callable[[Values], str]] = {
    "cpus-none": "The policy none pins nothing: it runs wherever the runtime lets it.",
    "cpus-static-unknown": "What it requests is not known, and no CPUs are exclusive by a guess: it shares.",
    "cpus-static-qos": "Its pod is not Guaranteed, so it shares.",
    "cpus-static-pod-level": "Its pod has resources of the pod as a whole, so it shares.",
    "cpus-static-none-requested": "It requests no CPU, so it shares.",
    "cpus-static-fraction": "It requests {0} m, which is no whole number of CPUs, so it shares.",
    "cpus-static-kept": "It ran on {1} already, which are as many as it requests.",
    "cpus-static-shrunk": "It was resized from {0} to {1} CPUs and gave back {2}.",
    "cpus-static-grown": "It was resized from {0} to {1} CPUs and was given {2} besides.",
    "cpus-static-isolated": _isolated,
    "cpus-static-taken": _taken(""),
    "cpus-static-reused": _taken("; some were an init container's of its pod"),
    "cpus-static-short": _taken("; these were too few, so some are isolated by the kernel"),
    "cpus-plus-unknown": "What it requests is not known, and no CPUs are exclusive by a guess: it shares.",
    "cpus-plus-reserved": "Its namespace is kube-system: it runs on the reserved CPUs.",
    "cpus-plus-shared": "It requests {0} m, less than a whole CPU, so it shares.",
    "cpus-plus-own": _own,
    "cpus-plus-ended": "It has ended as an init container does: its CPUs are for the other containers of its pod.",
    "cpus-balloon": _balloon,
    "cpus-balloon-preserved": "The settings, or its annotation, leave its CPUs alone.",
    "cpus-podpool": _podpool,
    "cpus-static-pool": "Of the pool {0} it has {1} list(s) of CPUs.",
    "cpus-dynamic-pool": _dynamic,
    "cpus-memory": "Its memory nodes follow its CPUs, and none is taken away.",
    "cpus-changed": "Its set follows what others were given or gave back.",
    "cpus-source": "{0}: {1}",
    "cpus-labels-unread": "{0} container(s) keep the type that they have until the runtime has told their labels: {1}",
    "cpus-short": "{0} has only the CPUs {1}, and its containers request {2} m: no others are free. It grows once CPUs "
    "are online again.",
    "cpus-drift": "{0}: somebody else set its CPUs to {1}; they are written again.",
    "cpus-lost": "{0}: its set cannot be read ({1}), so it may run on any CPU; controller and set are put back.",
    "cpus-late": "{0}: others were still on its CPUs when its time to wait was over (cpus.late_ms); cpus.on_late says "
    "whether it began. nodeward cpus shows who is where.",
    "cpus-machine-kept": "other CPUs are online, and the policy does not fit these; it goes on by those before: {0}",
    "cpus-record-void": "What was written down of the containers' CPUs is not believed: {0}. Each keeps the CPUs that "
    "the runtime's own record names, where the policy allows them.",
    "policy-refused": "the settings of the policy are refused: {0}",
}


def cpu_sentence(reason: Reason) -> str:
    """The sentence; code and values as they are where there is none."""
    found = _SENTENCES.get(reason.code)
    try:
        if isinstance(found, str):
            return found.format(*reason.values)
        if found is not None:
            return found(reason.values)
    except (IndexError, ValueError):
        pass
    return " ".join((reason.code, *(str(value) for value in reason.values)))
