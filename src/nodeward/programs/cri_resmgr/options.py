"""The options and configuration modules of CRI Resource Manager, v0.1.0 to v0.9.2, and their meaning here.

A name is in SWITCHES if any release's `cri-resmgr` took it on its command line; klog's flags are there from v0.5. What
is taken over has its case in `cri_resmgr`. Others are in REMARKS, or in REFUSED where containers would run otherwise.
"""

from collections.abc import Mapping

LATER_POLICY = "comes with a later CPU policy of Nodeward, which is not built yet"
_LATER_CONTROL = "comes with Nodeward's control of caches, block I/O and frequencies, which is not built yet"
_NO_POOL_FILES = "is not read: write the lists into the configuration, below policy.static-pools"
_NO_MEANING = "has no meaning here"
NO_DOMAIN = f"{_NO_MEANING}: policies divide CPUs"
_OF_AGENT = (
    f"{_NO_MEANING}: nodeward agent does it, by LabelNode and TaintNode below policy.static-pools in its ConfigMap"
)
_ONE_LOG = f"{_NO_MEANING}: one event a line on standard error"
_SOURCE = f"{_NO_MEANING}: each line names its source"
_NO_TRACES = f"{_NO_MEANING}: calls are counted and timed, not traced"
_METRICS = f"{_NO_MEANING}: the node daemon serves metrics, at its setting metrics.listen"
_NO_PAGE = f"{_NO_MEANING}: there is no web page"

KLOG: Mapping[str, bool] = {
    "v": False,
    "vmodule": False,
    "logtostderr": True,
    "alsologtostderr": True,
    "stderrthreshold": False,
    "log_dir": False,
    "log_file": False,
    "log_file_max_size": False,
    "log_backtrace_at": False,
    "skip_headers": True,
    "skip_log_headers": True,
    "add_dir_header": True,
    "one_output": True,
}
"""Klog's flags, which are also what `logger.Klog` may hold."""

VARIABLES = "LOGGER_"
"""How its environment variables begin."""
FROM_ENVIRONMENT: Mapping[str, str] = {
    f"{VARIABLES}DEBUG": "logger-debug",
    f"{VARIABLES}LOG_SOURCE": "logger.LogSource",
    **{f"{VARIABLES}{name.upper()}": name for name in KLOG},
}
"""Each variable, and the option or configuration that says the same."""

HISTORIC: Mapping[str, bool] = {
    "policy": False,
    "config": False,
    "dump": False,
    "dump-file": False,
    "count-period": False,
    "reserved-resources": False,
    "available-resources": False,
    "logger": False,
    "list-loggers": True,
    "logger-level": False,
    "logger-source": False,
    "logger-sources": False,
    "logger-debug": False,
    "logger-prefix": False,
    "no-rdt": True,
    "resctrl-path": False,
    "static-policy-relaxed-isolation": True,
    "static-pools-conf-file": False,
    "static-pools-conf-dir": False,
    "static-pools-create-cmk-node-label": True,
    "static-pools-create-cmk-node-taint": True,
    "topology-aware-pin-cpu": False,
    "topology-aware-pin-memory": False,
    "topology-aware-prefer-isolated-cpus": False,
    "topology-aware-prefer-shared-cpus": False,
    "topology-aware-fake-hint": False,
    "cpu-allocator-debug": True,
    "trace": False,
    "trace-jaeger-collector": False,
    "trace-jaeger-agent": False,
    "trace-prometheus-metrics": False,
    "allow-policy-switch": True,
    "cgroupv2-path": False,
}
"""Options of v0.1 to v0.3 that the last release has no more."""

SWITCHES: Mapping[str, bool] = {
    # all releases
    "runtime-socket": False,
    "image-socket": False,
    "relay-socket": False,
    "relay-dir": False,
    "agent-socket": False,
    "config-socket": False,
    "list-policies": True,
    "version": True,
    **HISTORIC,
    # the later ones: to v0.9
    "host-root": False,
    "allow-untested-runtimes": True,
    "pid-file": False,
    "fallback-config": False,
    "force-config": False,
    "force-config-signal": False,
    "reset-config": True,
    "reset-policy": True,
    "disable-policy-switch": True,
    "metrics-interval": False,
    "rebalance-interval": False,
    "disable-ui": True,
    "external-visualizers": False,
    "print-config": True,
    "cgroup-mount": False,
    "cgroup-v2-dir": False,
    "cgroup-path": False,
    "kubelet-cgroup-root": False,
    "bpf-install-path": False,
    **KLOG,
    # Go's own
    "h": True,
    "help": True,
}
"""Every option of all releases, with whether it is a switch."""

MODULES = ("policy", "dump", "logger", "rdt", "cpu", "blockio", "control", "resource-manager", "instrumentation")
"""What the top of a YAML configuration may have."""

REMARKS: Mapping[str, str] = {
    "relay-dir": f"{_NO_MEANING}: what the relay keeps is in the folders of the settings state_dir and run_dir",
    "agent-socket": f"{_NO_MEANING}: the relay asks the agent nothing; --config-socket takes its configurations",
    "host-root": f"{_NO_MEANING}: the relay runs on the host, ordered before kubelet",
    "allow-untested-runtimes": f"{_NO_MEANING}: any runtime is relayed",
    "allow-policy-switch": f"{_NO_MEANING}: a policy may be another than the last, without --disable-policy-switch",
    "metrics-interval": f"{_NO_MEANING}: metrics are counted as calls pass",
    "rebalance-interval": f"{_NO_MEANING}: dynamic-pools divide CPUs by use every ten seconds",
    "disable-ui": _NO_PAGE,
    "external-visualizers": _NO_PAGE,
    "count-period": f"{_NO_MEANING}: what is to be counted has its name in the dump, and its number in the metrics",
    "no-rdt": _LATER_CONTROL,
    "resctrl-path": _LATER_CONTROL,
    "static-pools-conf-file": _NO_POOL_FILES,
    "static-pools-conf-dir": _NO_POOL_FILES,
    "static-pools-create-cmk-node-label": _OF_AGENT,
    "static-pools-create-cmk-node-taint": _OF_AGENT,
    "topology-aware-fake-hint": f"{_NO_MEANING}: hints cannot be made up",
    "cpu-allocator-debug": _ONE_LOG,
    "bpf-install-path": f"{_NO_MEANING}: no container's memory is watched by BPF",
    "trace": _NO_TRACES,
    "trace-jaeger-collector": _NO_TRACES,
    "trace-jaeger-agent": _NO_TRACES,
    "trace-prometheus-metrics": _METRICS,
    "cgroup-path": f"{_NO_MEANING}: use of cgroups is told by the node daemon's metrics",
    "cgroup-v2-dir": f"{_NO_MEANING}: the tree is found below --cgroup-mount",
    "cgroupv2-path": f"{_NO_MEANING}: the tree is found below --cgroup-mount",
    "logger": _ONE_LOG,
    "logger-source": _SOURCE,
    "logger-sources": _SOURCE,
    "logger-prefix": _SOURCE,
    **dict.fromkeys(KLOG, _ONE_LOG),
    "v": f"{_NO_MEANING}: 4 and more switch the log to debug",
    # modules of a YAML configuration, and what is in them
    "policy.none": f"{_NO_MEANING}: the policy has no settings",
    "policy.static-plus": f"{_NO_MEANING}: the policy has no settings",
    "policy.static.Rdt": f"{_NO_MEANING}: the policy never used it",
    "rdt": _LATER_CONTROL,
    "cpu": _LATER_CONTROL,
    "blockio": _LATER_CONTROL,
    "control": _LATER_CONTROL,
    "resource-manager": _LATER_CONTROL,
    "instrumentation": _METRICS,
    "dump.Debug": f"{_NO_MEANING}: dumps are written to a file, not to the log",
    "logger.LogSource": _SOURCE,
}
"""What is taken and changes nothing, and why."""
