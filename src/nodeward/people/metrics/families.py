"""The catalogue of what `/metrics` has: each family's name, type, labels and meaning. docs/metrics.md follows it.

Names are as a query writes them, in base units: bytes for EPC, ids for keys, seconds for time. A value that is not
known has no series. The node is not among the labels: the scrape configuration knows it and adds it.
"""

from nodeward.core.shown import Family, counter, gauge
from nodeward.features.all import FEATURES

OF_CGROUP = ("level", "namespace", "pod", "container")
OF_RESOURCE = (*OF_CGROUP, "resource")
OF_CADVISOR = ("container", "id", "image", "name", "namespace", "pod", "resource")
USAGE = gauge("nodeward_misc_usage", OF_RESOURCE, "Charged now, with everything below.")
LIMIT = gauge("nodeward_misc_limit", OF_RESOURCE, "The limit in the kernel. Absent for none.")
LIMITED = gauge("nodeward_misc_limited", OF_RESOURCE, "1 if the kernel has a limit, else 0.")
PEAK = gauge("nodeward_misc_peak", OF_RESOURCE, "The most ever asked for, refused charges included.")
REFUSALS = counter(
    "nodeward_misc_refusals_total",
    (*OF_RESOURCE, "scope"),
    "Charges refused by this cgroup's limit (local), or by it and those below (subtree).",
)
DECLARED = gauge("nodeward_misc_declared", OF_RESOURCE, "What the pod's declarations allow. 0 if denied.")
UNDERFLOW = gauge("nodeward_misc_underflow", OF_RESOURCE, "1 while the kernel's counter is below zero.")
STATE = gauge("nodeward_enforcement_state", (*OF_CGROUP, "state"), "1 for the state of the cgroup.")
CONTAINER = gauge("nodeward_container_info", (*OF_CGROUP, "id", "source"), "1 for each container, with its id.")
CAPACITY = gauge("nodeward_misc_capacity", ("resource",), "What the node has.")
RESOURCE = gauge("nodeward_misc_resource_info", ("resource", "unit"), "1, with the unit of the resource.")
ORPHANED = gauge("nodeward_misc_orphaned", ("resource",), "Charged on the node, but to no known pod.")
CONTROLLER = gauge("nodeward_misc_controller", (), "1 if the kernel has the misc controller, else 0.")
TREE = gauge(
    "nodeward_misc_hierarchy_info",
    ("version", "root"),
    "1, with the cgroup version and the place of the misc controller.",
)
CADVISOR_USAGE = gauge("container_misc_usage", OF_CADVISOR, "As nodeward_misc_usage, with cAdvisor's labels.")
CADVISOR_EVENTS = counter("container_misc_events", OF_CADVISOR, "As nodeward_misc_refusals_total of scope subtree.")
GATE_RELAYED = counter("nodeward_gate_relayed_total", ("outcome",), "Starts of gated pods at the relay, by outcome.")
BUILD = gauge("nodeward_build_info", ("version",), "1, with the daemon's version.")
MODE = gauge("nodeward_limits_mode", ("mode",), "1 for the mode in force, 0 for the others.")
CONDITION = gauge(
    "nodeward_condition", ("code", "severity"), "1 while this condition is on the node, else 0; info is in no headline."
)
READY = gauge("nodeward_ready", (), "1 while every needed source is synchronised, else 0.")
COMPONENT = gauge("nodeward_component_ready", ("component",), "1 while this source is synchronised, else 0.")
COMPONENT_SINCE = gauge(
    "nodeward_component_since_timestamp_seconds", ("component",), "When that began. Absent before the first word."
)
LINES = gauge(
    "nodeward_multi_line_info", ("state",), "1, with the state of nri.multi_line: off, on, held or unverified."
)
SETTINGS_FAULTS = gauge("nodeward_settings_faults", (), "Faults of newer settings, which were refused.")
SETTINGS_RESTART = gauge("nodeward_settings_need_restart", (), "Settings that take effect only after a restart.")
EVENTS = counter("nodeward_events_total", (), "Events decided on.")
REPAIRS = gauge("nodeward_reconcile_repairs", (), "Limits repaired in the last five minutes.")
GOALS = gauge("nodeward_reconcile_goals", (), "Values in the kernel that the daemon holds.")
UNREACHED = gauge("nodeward_reconcile_goals_unreached", (), "Those not as wanted yet.")
QUARANTINED = gauge("nodeward_reconcile_goals_quarantined", (), "Those whose file call hangs in the kernel.")
SAMPLE_AGE = gauge(
    "nodeward_sample_age_seconds", (), "Time since the kernel's files were last read. Absent before that."
)
WATCH_AGE = gauge("nodeward_watch_age_seconds", (), "Time since the API server last sent anything about pods.")
LAG_MAX = gauge("nodeward_loop_lag_max_seconds", (), "Greatest delay of the event loop in the last minute.")
LAG_P99 = gauge("nodeward_loop_lag_p99_seconds", (), "99th percentile of that delay.")
STALLS = counter("nodeward_loop_stalls_total", (), "Delays of the event loop above 0.25 seconds.")
RESTARTS = counter("nodeward_component_restarts_total", (), "How often a part of the daemon failed and was restarted.")
STUCK = counter("nodeward_lane_jobs_stuck_total", (), "Batches of file calls that did not return in time.")
LANE_WAITING = gauge("nodeward_lane_waiting_jobs", ("lane",), "Batches of file calls waiting for a thread.")
LANE_AGE = gauge("nodeward_lane_age_seconds", ("lane",), "Time since the oldest batch was queued.")
LANE_HUNG = gauge("nodeward_lane_hung_threads", ("lane",), "Threads that hang in a file call.")
NOT_RESTORABLE = gauge("nodeward_not_restorable", (), "Changes that `nodeward uninstall` could not undo.")
STATE_UNREAD = gauge("nodeward_state_unread", (), "1 if the undo list could not be read at the start, else 0.")
FILES_UNWRITTEN = gauge("nodeward_files_unwritten", (), "Own files of which the last write failed.")
RECORD_DROPPED = counter("nodeward_record_dropped_total", (), "Events missing in the record.")
FEATURE_FAULTS = counter("nodeward_feature_faults_total", (), "Decisions that failed by a fault of Nodeward.")
DECIDE = Family("nodeward_decide_duration_seconds", "histogram", ("event",), "Duration of decisions, by event.")
ASKS = counter("nodeward_asks_total", ("outcome",), "Questions of the runtime, by answer.")
KUBE_EVENTS = counter("nodeward_kube_events_total", ("outcome",), "Kubernetes Events on pods and the node, by outcome.")
KUBE_EVENTS_LEFT_OUT = counter(
    "nodeward_kube_events_left_out_total", (), "Events left out because there were too many."
)
LEFT_OUT = gauge("nodeward_metrics_cgroups_left_out", (), "Cgroups not shown, beyond the most.")
RELAY_UP = gauge("nodeward_relay_up", (), "1 while a relay answers, 0 while it is missing. Absent if none is expected.")
RELAY = gauge("nodeward_relay_info", ("version",), "1 while a relay answers, with its version.")
RELAY_CALLS = counter(
    "nodeward_relay_calls_total", ("method", "result"), "Relayed CRI calls that have ended, by gRPC status."
)
RELAY_DECISIONS = counter("nodeward_relay_decisions_total", ("method", "outcome"), "Calls that were held, by outcome.")
RELAY_ADDED = Family(
    "nodeward_relay_added_duration_seconds", "histogram", ("how",), "How long calls waited in the relay."
)
RELAY_CLIENTS = gauge("nodeward_relay_clients", ("listen",), "Clients connected to this socket.")
RELAY_CONNECTIONS = counter("nodeward_relay_connections_total", ("listen",), "Clients that ever connected.")
RELAY_RUNTIME = gauge(
    "nodeward_relay_runtime_up", ("listen", "runtime"), "1 if the runtime answered the last client, else 0."
)
RELAY_UNSEEN = counter(
    "nodeward_relay_unseen_connections_total", ("listen",), "Connections that the relay could not follow."
)
RELAY_UNDECIDED = counter(
    "nodeward_relay_undecided_total", ("listen",), "Held calls not decided and answered by limits.on_error."
)
RELAY_FAULTS = counter("nodeward_relay_faults_total", ("listen",), "Faults of the relay while calls passed.")
RELAY_QUEUE = gauge("nodeward_relay_queue_bytes", ("queue",), "Bytes waiting: held, copied, or for the dump.")
RELAY_DUMP_TOLD = counter("nodeward_relay_dump_told_total", (), "Messages and ends of calls given to the dump.")
RELAY_DUMP_LOST = counter("nodeward_relay_dump_lost_total", (), "Messages for which the dump had no room.")
RELAY_DUMP_CUT = counter(
    "nodeward_relay_dump_cut_total", (), "Messages too long for the dump or the relay's memory: it has only their size."
)
RELAY_DECIDED = gauge("nodeward_relay_decided", (), "1 while the daemon decides calls that the relay holds, else 0.")
RELAY_UNREAD = counter("nodeward_relay_unread_total", (), "Messages passing the relay that could not be read.")

FAMILIES = (
    *(value for value in list(globals().values()) if isinstance(value, Family)),
    *(family for feature in FEATURES for family in feature.families),
)
