"""The catalogue of what `/metrics` has: each family's name, type, labels and meaning. docs/metrics.md follows it.

Names are as a query writes them, in base units: bytes for EPC, ids for keys, seconds for time. A value that is not
known has no series. The node is not among the labels: the scrape configuration knows it and adds it.
"""

from nodeward.core.shown import Family, _counter, _gauge
from nodeward.features.sandboxes import metrics as sandboxes

OF_CGROUP = ("level", "namespace", "pod", "container")
OF_RESOURCE = (*OF_CGROUP, "resource")
OF_CADVISOR = ("container", "id", "image", "name", "namespace", "pod", "resource")


USAGE = _gauge("nodeward_misc_usage", OF_RESOURCE, "Charged now, with everything below.")
LIMIT = _gauge("nodeward_misc_limit", OF_RESOURCE, "The limit in the kernel. Absent for none.")
LIMITED = _gauge("nodeward_misc_limited", OF_RESOURCE, "1 if the kernel has a limit, else 0.")
PEAK = _gauge("nodeward_misc_peak", OF_RESOURCE, "The most ever asked for, refused charges included.")
REFUSALS = _counter(
    "nodeward_misc_refusals_total",
    (*OF_RESOURCE, "scope"),
    "Charges refused by this cgroup's limit (local), or by it and those below (subtree).",
)
DECLARED = _gauge("nodeward_misc_declared", OF_RESOURCE, "What the pod's declarations allow. 0 if denied.")
UNDERFLOW = _gauge("nodeward_misc_underflow", OF_RESOURCE, "1 while the kernel's counter is below zero.")
STATE = _gauge("nodeward_enforcement_state", (*OF_CGROUP, "state"), "1 for the state of the cgroup.")
CONTAINER = _gauge("nodeward_container_info", (*OF_CGROUP, "id", "source"), "1 for each container, with its id.")
CAPACITY = _gauge("nodeward_misc_capacity", ("resource",), "What the node has.")
RESOURCE = _gauge("nodeward_misc_resource_info", ("resource", "unit"), "1, with the unit of the resource.")
ORPHANED = _gauge("nodeward_misc_orphaned", ("resource",), "Charged on the node, but to no known pod.")
CONTROLLER = _gauge("nodeward_misc_controller", (), "1 if the kernel has the misc controller, else 0.")
TREE = _gauge(
    "nodeward_misc_hierarchy_info",
    ("version", "root"),
    "1, with the cgroup version and the place of the misc controller.",
)
CADVISOR_USAGE = _gauge("container_misc_usage", OF_CADVISOR, "As nodeward_misc_usage, with cAdvisor's labels.")
CADVISOR_EVENTS = _counter("container_misc_events", OF_CADVISOR, "As nodeward_misc_refusals_total of scope subtree.")
KEYS_CAPACITY = _gauge("nodeward_keys_capacity", ("key",), "Keys that the node has. Absent for none.")
KEYS_RESERVE = _gauge("nodeward_keys_reserve", ("key",), "Keys that the settings keep back.")
KEYS_USED = _gauge("nodeward_keys_used", ("key",), "Keys in use on the node.")
KEYS_ENTITLED = _gauge("nodeward_keys_entitled", ("key",), "Keys promised to pods, taken or not.")
KEYS_CHARGED = _gauge("nodeward_keys_charged", ("key",), "Keys that known pods hold.")
KEYS_FOREIGN = _gauge("nodeward_keys_foreign", ("key",), "Keys in use that no known pod holds.")
KEYS_ELSEWHERE = _gauge(
    "nodeward_keys_elsewhere", ("key", "class"), "Foreign keys whose cgroup was found, by the kind of holder."
)
KEYS_FREE = _gauge("nodeward_keys_free", ("key",), "Keys neither held, promised, foreign nor kept back.")
KEYS_BLIND = _gauge("nodeward_keys_blind", ("key",), "1 while a counter below zero hides which pod holds keys, else 0.")
KEYS_WRAPPED = _gauge("nodeward_keys_wrapped", ("key",), "1 while the node's counter is below zero, else 0.")
KEYS_AGE = _gauge("nodeward_keys_sample_age_seconds", ("key",), "Time since the counters were last read.")
KEYS_ORPHAN_AGE = _gauge(
    "nodeward_keys_orphan_age_seconds", ("key",), "How long a removed cgroup has held a key. Absent for none."
)
KEYS_LEAKED = _gauge("nodeward_keys_leaked", ("key",), "Keys held by removed cgroups for at least 15 minutes.")
KEYS_IDS = _gauge("nodeward_keys_ids", ("key", "state"), "Ids offered to kubelet, by state.")
KEYS_REFUSALS = _counter(
    "nodeward_keys_refusals_total", ("key", "reason"), "Requests of kubelet that were refused, by reason."
)
KEYS_WITHHELD = _gauge("nodeward_keys_withheld", ("key", "reason"), "1 while no id is offered, for this reason.")
KEYS_DELAYS = Family(
    "nodeward_keys_withholding_duration_seconds",
    "histogram",
    ("key",),
    "From the last sample without new foreign use until kubelet was told of fewer healthy ids.",
)
KEYS_PLUGIN = _gauge(
    "nodeward_keys_plugin_state", ("key", "state"), "1 for the state of the device plugin, 0 for the others."
)
KEYS_KUBELET_RESTARTS = _counter(
    "nodeward_keys_kubelet_restarts_total", ("key",), "How often kubelet's socket was replaced."
)
KEYS_JOURNAL_FAULT = _gauge(
    "nodeward_keys_journal_fault", ("key",), "1 while grants cannot be recorded, so none is given, else 0."
)
KEYS_JOURNAL_LOST = _gauge(
    "nodeward_keys_journal_lost", ("key",), "1 while ids are out whose journal was removed, else 0."
)
KEYS_QUOTES = _gauge(
    "nodeward_keys_quotes_answer", ("key",), "1 while the quote service answers, else 0. Absent if not asked."
)
KEYS_SHARE = _gauge("nodeward_keys_share_info", ("key", "mode", "nfd"), "1, with how NFD's number is shared.")
KEYS_SHARED = _gauge(
    "nodeward_keys_nfd", ("key", "kind"), "NFD's number: as wanted, and as in Nodeward's object (ours)."
)
CPUS_POLICY = _gauge("nodeward_cpus_policy_info", ("policy", "mode", "driver"), "1, with the policy in force.")
CPUS_ONLINE = _gauge("nodeward_cpus_online", (), "CPUs of the machine that are online.")
CPUS_EXCLUSIVE = _gauge("nodeward_cpus_exclusive", (), "CPUs that one container has for its own.")
CPUS_POOL = _gauge("nodeward_cpus_pool", ("pool",), "CPUs of the pool, shared by containers.")
CPUS_LENT = _gauge("nodeward_cpus_pool_lent", ("pool",), "Idle CPUs that containers of the pool may also use.")
CPUS_POOL_REQUESTED = _gauge("nodeward_cpus_pool_requested", ("pool",), "CPUs that containers request of the pool.")
CPUS_NUMA = _gauge("nodeward_cpus_numa", ("numa", "use"), "CPUs of the NUMA node, by use.")
CPUS_NUMA_REQUESTED = _gauge(
    "nodeward_cpus_numa_requested",
    ("numa",),
    "CPUs requested on the NUMA node; a pool's are spread evenly over its CPUs.",
)
CPUS_CONTAINERS = _gauge("nodeward_cpus_containers", ("kind",), "Containers, by the kind of CPUs they have.")
CPUS_STATE = _gauge(
    "nodeward_cpus_containers_state",
    ("state",),
    "Containers, by whether the kernel has the wanted CPUs.",
)
CPUS_DRIFTS = _counter("nodeward_cpus_drifts_total", (), "CPU sets that another process changed and Nodeward restored.")
CPUS_LATE = _counter(
    "nodeward_cpus_late_starts_total", (), "Programs started or refused while others were on their CPUs."
)
CPUS_REFUSED = _gauge("nodeward_cpus_settings_refused", (), "1 while newer settings of the policy do not fit, else 0.")
GATE_PODS = _gauge("nodeward_gate_pods", ("state",), "Pods that asked at their gate: open or shut.")
GATE_REFUSED = _counter(
    "nodeward_gate_refused_total", (), "Containers refused over NRI at a shut gate; in observe, those it would refuse."
)
GATE_RELAYED = _counter("nodeward_gate_relayed_total", ("outcome",), "Starts of gated pods at the relay, by outcome.")
BUILD = _gauge("nodeward_build_info", ("version",), "1, with the daemon's version.")
MODE = _gauge("nodeward_limits_mode", ("mode",), "1 for the mode in force, 0 for the others.")
CONDITION = _gauge(
    "nodeward_condition", ("code", "severity"), "1 while this condition is on the node, else 0; info is in no headline."
)
READY = _gauge("nodeward_ready", (), "1 while every needed source is synchronised, else 0.")
COMPONENT = _gauge("nodeward_component_ready", ("component",), "1 while this source is synchronised, else 0.")
COMPONENT_SINCE = _gauge(
    "nodeward_component_since_timestamp_seconds", ("component",), "When that began. Absent before the first word."
)
LINES = _gauge(
    "nodeward_multi_line_info", ("state",), "1, with the state of nri.multi_line: off, on, held or unverified."
)
SETTINGS_FAULTS = _gauge("nodeward_settings_faults", (), "Faults of newer settings, which were refused.")
SETTINGS_RESTART = _gauge("nodeward_settings_need_restart", (), "Settings that take effect only after a restart.")
EVENTS = _counter("nodeward_events_total", (), "Events decided on.")
REPAIRS = _gauge("nodeward_reconcile_repairs", (), "Limits repaired in the last five minutes.")
GOALS = _gauge("nodeward_reconcile_goals", (), "Values in the kernel that the daemon holds.")
UNREACHED = _gauge("nodeward_reconcile_goals_unreached", (), "Those not as wanted yet.")
QUARANTINED = _gauge("nodeward_reconcile_goals_quarantined", (), "Those whose file call hangs in the kernel.")
SAMPLE_AGE = _gauge(
    "nodeward_sample_age_seconds", (), "Time since the kernel's files were last read. Absent before that."
)
WATCH_AGE = _gauge("nodeward_watch_age_seconds", (), "Time since the API server last sent anything about pods.")
LAG_MAX = _gauge("nodeward_loop_lag_max_seconds", (), "Greatest delay of the event loop in the last minute.")
LAG_P99 = _gauge("nodeward_loop_lag_p99_seconds", (), "99th percentile of that delay.")
STALLS = _counter("nodeward_loop_stalls_total", (), "Delays of the event loop above 0.25 seconds.")
RESTARTS = _counter("nodeward_component_restarts_total", (), "How often a part of the daemon failed and was restarted.")
STUCK = _counter("nodeward_lane_jobs_stuck_total", (), "Batches of file calls that did not return in time.")
LANE_WAITING = _gauge("nodeward_lane_waiting_jobs", ("lane",), "Batches of file calls waiting for a thread.")
LANE_AGE = _gauge("nodeward_lane_age_seconds", ("lane",), "Time since the oldest batch was queued.")
LANE_HUNG = _gauge("nodeward_lane_hung_threads", ("lane",), "Threads that hang in a file call.")
NOT_RESTORABLE = _gauge("nodeward_not_restorable", (), "Changes that `nodeward uninstall` could not undo.")
STATE_UNREAD = _gauge("nodeward_state_unread", (), "1 if the undo list could not be read at the start, else 0.")
FILES_UNWRITTEN = _gauge("nodeward_files_unwritten", (), "Own files of which the last write failed.")
RECORD_DROPPED = _counter("nodeward_record_dropped_total", (), "Events missing in the record.")
FEATURE_FAULTS = _counter("nodeward_feature_faults_total", (), "Decisions that failed by a fault of Nodeward.")
DECIDE = Family("nodeward_decide_duration_seconds", "histogram", ("event",), "Duration of decisions, by event.")
ASKS = _counter("nodeward_asks_total", ("outcome",), "Questions of the runtime, by answer.")
KUBE_EVENTS = _counter(
    "nodeward_kube_events_total", ("outcome",), "Kubernetes Events on pods and the node, by outcome."
)
KUBE_EVENTS_LEFT_OUT = _counter(
    "nodeward_kube_events_left_out_total", (), "Events left out because there were too many."
)
LEFT_OUT = _gauge("nodeward_metrics_cgroups_left_out", (), "Cgroups not shown, beyond the most.")
RELAY_UP = _gauge(
    "nodeward_relay_up", (), "1 while a relay answers, 0 while it is missing. Absent if none is expected."
)
RELAY = _gauge("nodeward_relay_info", ("version",), "1 while a relay answers, with its version.")
RELAY_CALLS = _counter(
    "nodeward_relay_calls_total", ("method", "result"), "Relayed CRI calls that have ended, by gRPC status."
)
RELAY_DECISIONS = _counter("nodeward_relay_decisions_total", ("method", "outcome"), "Calls that were held, by outcome.")
RELAY_ADDED = Family(
    "nodeward_relay_added_duration_seconds",
    "histogram",
    ("how",),
    "How long calls waited in the relay.",
)
RELAY_CLIENTS = _gauge("nodeward_relay_clients", ("listen",), "Clients connected to this socket.")
RELAY_CONNECTIONS = _counter("nodeward_relay_connections_total", ("listen",), "Clients that ever connected.")
RELAY_RUNTIME = _gauge(
    "nodeward_relay_runtime_up", ("listen", "runtime"), "1 if the runtime answered the last client, else 0."
)
RELAY_UNSEEN = _counter(
    "nodeward_relay_unseen_connections_total", ("listen",), "Connections that the relay could not follow."
)
RELAY_UNDECIDED = _counter(
    "nodeward_relay_undecided_total", ("listen",), "Held calls not decided and answered by limits.on_error."
)
RELAY_FAULTS = _counter("nodeward_relay_faults_total", ("listen",), "Faults of the relay while calls passed.")
RELAY_QUEUE = _gauge("nodeward_relay_queue_bytes", ("queue",), "Bytes waiting: held, copied, or for the dump.")
RELAY_DUMP_TOLD = _counter("nodeward_relay_dump_told_total", (), "Messages and ends of calls given to the dump.")
RELAY_DUMP_LOST = _counter("nodeward_relay_dump_lost_total", (), "Messages for which the dump had no room.")
RELAY_DUMP_CUT = _counter(
    "nodeward_relay_dump_cut_total", (), "Messages too long for the dump or the relay's memory: it has only their size."
)
RELAY_LIMITS = _gauge("nodeward_relay_decides_limits", (), "1 if the relay decides limits at creation, else 0.")
RELAY_UNREAD = _counter(
    "nodeward_relay_unread_total",
    (),
    "Messages that the relay could not read.",
)
RELAY_CONFIG = _gauge(
    "nodeward_relay_configuration_faults",
    (),
    "Faults of the cluster's last configuration, which was refused. Absent if none is taken.",
)

FAMILIES = (*(value for value in list(globals().values()) if isinstance(value, Family)), *sandboxes.FAMILIES)
