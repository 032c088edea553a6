"""What each setting means, in one place: `nodeward config schema` and docs/settings.md are made of it.

Promises a text for every setting, for a person who edits the file. Must not be imported where a daemon starts: only
the schema needs it.
"""

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "node_name": "The node's name in the API server. Empty: `NODE_NAME`, else the host name.",
    "state_dir": "Undo list, pods as last known, last good settings. It must survive a restart of the machine.",
    "run_dir": "The lock of the one instance, and the socket `nodeward.sock`.",
    "limits.mode": "`enforce`; `observe`: decide and show only; `off`: neither.",
    "limits.on_error": "After a fault, `pass` starts the container that waits, `refuse` refuses it.",
    "limits.strict": "`true`: a container of a pod that declares nothing gets 0. `false`: it is left alone.",
    "limits.unsupported": "A declared resource that this kernel lacks: `allow-unenforced` starts the container, "
    "`refuse` refuses it.",
    "limits.unknown_pod": "A container whose pod is not known in time: `unlimited`, `zero` (both corrected later) "
    "or `refuse`.",
    "limits.resources": "Extended resources of pods, and the misc controller's name of each.",
    "keys.mode": "`observe`: count TEE keys and show holders; `enforce`: also offer and share them as "
    "`keys.kinds` says; `off`: neither.",
    "keys.kinds": "The kinds of key, by the misc controller's name.",
    "keys.kinds.*.resources": "Every extended resource that promises such a key.",
    "keys.kinds.*.capacity_from": "Who says how many there are: `misc` (the kernel), `nfd`, or `fixed` (`capacity`).",
    "keys.kinds.*.capacity": "The number itself, if `misc.capacity` is hidden or says more; 0: the kernel's.",
    "keys.kinds.*.reserve": "This many keys are never free, and are listed as unhealthy.",
    "keys.kinds.*.publisher": "`device-plugin`: Nodeward offers the keys to kubelet, in mode `enforce`.",
    "keys.kinds.*.publish": "The one of `resources` that is offered. Never a name below `intel.com`, `amd.com`, "
    "`kubernetes.io` or `katacontainers.io`.",
    "keys.kinds.*.attestation": "When the quote service does not answer: `observe`: say so; `enforce`: withhold "
    "ids that are not granted, and let pods wait; `off`: do not ask it.",
    "keys.kinds.*.attestation_socket": "The quote service's socket.",
    "keys.kinds.*.devices": "Device nodes that each container with a key gets from the `device-plugin`, such as "
    "`/dev/sev`.",
    "keys.kinds.*.share": "How Kata, which reads NFD's number, is told of the keys: `own`, `override`, `split`, "
    "`shared`. `auto`: `override` while NFD works on this node, else `own`.",
    "keys.kinds.*.split": "With `share: split`: how many keys are Nodeward's.",
    "keys.kubelet_dir": "The folder of `device-plugins`, whatever kubelet's `--root-dir` is. Only the socket of a "
    "`publisher` is written there.",
    "keys.kubelet_root": "Kubelet's `--root-dir`, with `pods-api`, `pod-resources` and `plugins_registry`.",
    "pods.on_error": "As `limits.on_error`, for what is known of pods.",
    "pods.wait_ms": "How long one create may wait for a pod that is not known yet, 0 to 1000.",
    "pods.wait_budget_ms": "All such waits in any ten seconds, 0 to 5000. NRI handles one request at a time.",
    "cpus.mode": "`enforce` the policy's CPUs; `observe`: decide and show only; `off`: neither.",
    "cpus.driver": "What sends the decisions to the runtime: `nri` (needs `nri.enabled`), or `relay`, for a runtime "
    "without NRI (needs `nri.enabled: false`).",
    "cpus.on_error": "As `limits.on_error`, for CPUs; also while no settings of the policy fit the machine.",
    "cpus.on_late": "A container whose own CPUs others still use after `cpus.late_ms`: `start` or `refuse` it.",
    "cpus.late_ms": "How long a program waits for others to leave its CPUs: 1 to 1000 with `nri`, 1 to 4000 with "
    "`relay`.",
    "cpus.memory": "Memory nodes: `follow` the container's CPUs; `policy`: if the policy has `pinMemory: true`; "
    "`off`: left as they are.",
    "policy.active": "The policy; `nodeward policies` lists them. Also `Active`.",
    "policy.available": "The CPUs for containers: `cpuset:0-7` or `exclude-cpuset:0`. Empty: all online. Also "
    "`AvailableResources: {CPU: ...}`.",
    "policy.reserved": "The CPUs for the system: `cpuset:0,32`, or how many (`2`; `750m` is one). Also "
    "`ReservedResources: {CPU: ...}`.",
    "policy.static.relaxed_isolation": "`true`: containers with CPUs of their own get kernel-isolated CPUs if there "
    "are enough.",
    "policy.static.options": 'Options of kubelet\'s CPU manager, such as `full-pcpus-only: "true"`; `nodeward '
    "policies static` explains each.",
    "policy.balloons.pin_cpu": "Whether containers are held to the CPUs of their balloons. Also `PinCPU`, `pinCPU`, "
    "and so for each key below.",
    "policy.balloons.reserved_pool_namespaces": "Namespaces, besides kube-system, that run in the reserved balloon.",
    "policy.balloons.allocator_topology_balancing": "`true`: a new balloon is made where most CPUs are free; "
    "`false`: where fewest are.",
    "policy.balloons.prefer_spread_on_physical_cores": "`true`: balloons get the first thread of each core before "
    "any second one.",
    "policy.balloons.preserve": "Expressions: matching containers are left alone. Also `preserve: "
    "{matchExpressions: [...]}`.",
    "policy.balloons.balloon_types": "The types of balloons.",
    "policy.balloons.pin_memory": "Whether new containers are held to the memory near their CPUs; see `cpus.memory`.",
    "policy.balloons.scheduling_classes": "How the kernel schedules containers of a type.",
    "policy.podpools.pin_cpu": "Whether containers are held to the CPUs of their pools.",
    "policy.podpools.pools": 'The pools, such as `{name: fast, cpu: 4, max_pods: 2, instances: "50%"}`.',
    "policy.podpools.pin_memory": "Whether new containers are held to the memory near their CPUs.",
    "policy.static_pools.pools": "The lists of CPUs. Also a table by name, `pools: {shared: {cpuLists: [{Socket: 0, "
    "Cpuset: 0-3}]}}`.",
    "policy.static_pools.label_node": "Whether `nodeward agent`, which pushes this, gives the node the label "
    "`cmk.intel.com/cmk-node=true`.",
    "policy.static_pools.taint_node": "Whether it gives the node the taint `cmk=true:NoSchedule`.",
    "policy.dynamic_pools.pin_cpu": "Whether containers are held to the CPUs of their pools.",
    "policy.dynamic_pools.reserved_pool_namespaces": "Namespaces, besides kube-system, that run on the reserved CPUs.",
    "policy.dynamic_pools.dynamic_pool_types": "The pools besides `reserved` and `shared`, such as `{name: web, "
    "namespaces: [web]}`.",
    "policy.dynamic_pools.pin_memory": "Whether new containers are held to the memory near their CPUs.",
    "sandboxes.mode": "VM sandboxes: `observe`: show place, cost and fit; `enforce`: also set a pod's limit where "
    "nobody has (a runtime without kubelet); `off`: neither.",
    "sandboxes.period_ms": "How often they are read, 200 to 60000.",
    "sandboxes.profiles": "The placement rules of a handler that is not recognised: `HANDLER: document`, `kata-go` "
    "or `kata-rs`.",
    "sandboxes.tight_percent": "A pod is `tight` if less of its memory limit is left for its VM, 0 to 50 per cent.",
    "sandboxes.samples": "Samples of a RuntimeClass before an overhead is recommended, 10 to 100000.",
    "sizing.mode": "VMs sized by requests, through the relay: `observe`: decide and say; `enforce`: also send; "
    "`off`: neither.",
    "sizing.unlimited": 'CPUs of a pod with containers without CPU limit: `request`, `"4"` in quotes, `50%` of what '
    "a VM may have, or `all`. Never fewer than requested.",
    "sizing.keep_cpus": "CPUs that no VM is enlarged into, 0 to 4096. The node's allocatable CPUs bound it too.",
    "sizing.keep_memory_mib": "The same of memory, in MiB.",
    "sizing.handlers": "The handlers whose pods are sized. Empty: those that start VMs.",
    "sizing.queues": "`true`: VMs of runtime-rs get a network and a block queue per vCPU, up to 8, if Kata's "
    "configuration allows it.",
    "gate.mode": "Pods that start once their conditions are met: `observe`: decide and say; `enforce`: also refuse; "
    "`off`: neither.",
    "gate.handlers": "The conditions of a handler's pods: `HANDLER: [key, quotes, verdict]`.",
    "gate.at": "The call that is held: `sandbox`: RunPodSandbox; `container`: CreateContainer, if the VM must run "
    "to prove what it is.",
    "gate.wait_s": "The relay holds a call this many seconds, 0 to 5, then refuses; kubelet tries again.",
    "gate.uids": "The users who may set verdicts, 1 to 64. All but root must be in `podapi.uids` too.",
    "nri.enabled": "Be an NRI plugin. Without it no annotation is read, and containers are found up to a period late.",
    "nri.socket": "The runtime's NRI socket.",
    "nri.plugin_name": "The plugin's name in the runtime.",
    "nri.plugin_index": "Two digits, in quotes: the order of plugins.",
    "nri.multi_line": "`true`: several misc resources in one value; every OCI runtime must accept that (runc 1.2, "
    "crun 1.18). `false`: the daemon writes all but the first.",
    "hook.enabled": "Answer the OCI hook `nodeward-oci-hook`, and leave it what it needs while no daemon answers.",
    "hook.folder": "The hook's `hook.sock`, `hook.json` and `pods/UID.json`; the same as its `--folder`.",
    "kube.enabled": "Watch this node's pods. Without it only annotations count.",
    "kube.events": "Write Kubernetes Events on pods about limits, and on the node about TEE keys.",
    "kube.kubeconfig": "A kubeconfig with token, token file or client certificate; `exec` is refused. Empty: "
    "in-cluster.",
    "kube.url": "An address instead of a kubeconfig; it wins if both are set.",
    "kube.token_file": "The token's file, with `kube.url`.",
    "kube.ca_file": "The certificate authority's file, with `kube.url`.",
    "policy_objects.enabled": "The node's `BalloonsPolicy` object replaces the section `policy`. Needs "
    "`kube.enabled`, NRI and `deploy/node/policy-objects.yaml`.",
    "policy_objects.namespace": "The namespace of these objects.",
    "topology_objects.enabled": "Write this node's `NodeResourceTopology`. Needs `kube.enabled` "
    "and `deploy/node/topology-objects.yaml`.",
    "cgroups.root": "The mounted cgroup2 tree, or the folder of the v1 hierarchies.",
    "cgroups.kubelet_root": "Kubelet's `--cgroup-root`. `/kubelet` means `/kubelet/kubepods`, with systemd "
    "`/kubelet.slice/kubelet-kubepods.slice`.",
    "cgroups.period_s": "Seconds between two readings, 0.1 to 3600. After two and a half periods a reading is `stale`.",
    "record.path": "Record events and decisions for `nodeward replay`. Empty: do not. With the systemd unit, below "
    "`state_dir`.",
    "record.max_bytes": "The record begins anew at this size.",
    "metrics.enabled": "Serve `/metrics` for Prometheus.",
    "metrics.listen": "`HOST:PORT`, `[::1]:9743`, or `:9743` for every address. There is no TLS and no login.",
    "podapi.enabled": "Serve what is known of this node's pods, without secrets, over HTTP and gRPC.",
    "podapi.socket": "The socket for HTTP and JSON; empty: `podapi.sock` in `run_dir`.",
    "podapi.grpc_socket": "The socket for gRPC, for root only; empty: `podapi-grpc.sock` in `run_dir`.",
    "podapi.uids": "The users who may ask over HTTP, 1 to 64.",
    "cold_plug.enabled": "Serve PodResources for VM runtimes, with the devices of DRA claims.",
    "cold_plug.socket": "The socket; empty: `pod-resources.sock` in `run_dir`.",
    "agent.config_socket": "Where the process of `cpus.driver` takes a configuration from `nodeward agent`, not the "
    "section `policy`. Empty: no socket.",
    "webhook.address": "Where `nodeward webhook` listens. Empty: every address.",
    "webhook.port": "Its port; 0 takes a free one and the log names it.",
    "webhook.certificate_file": "Its certificate, PEM; followed.",
    "webhook.key_file": "The certificate's key, PEM, without a password; followed.",
    "webhook.required_plugin": "An NRI plugin, such as `nodeward`, that pods with limits must require. Empty: the "
    "annotation for it is left alone.",
    "webhook.annotate": "Annotations with requests and limits on every pod: `noderesource.dev/resources`, "
    "`intel.com/resources`.",
    "webhook.max_connections": "Connections at once, 16 to 100000, some 35 KiB each; fewer where open files are "
    "limited.",
    "webhook.request_s": "Seconds for a request to arrive, and for its answer to be taken, 0.5 to 60.",
    "webhook.close_s": "Seconds for what has begun when the webhook stops, 0 to 600.",
    "relay.listen": "Where kubelet connects to `nodeward relay`.",
    "relay.runtime": "The runtime's socket.",
    "relay.image_listen": "Where kubelet connects for images, if that is another service.",
    "relay.image": "That service's socket; empty: the runtime's.",
    "relay.limits": "`true`: limits are given by the relay, for a runtime without NRI. Not with `nri.enabled`.",
    "relay.count_calls": "`false`: calls are not counted, which saves processor time.",
    "relay.vm_checkpoint": "`refuse`: CheckpointContainer in a VM is refused with the reason.",
    "relay.vm_resize": "`refuse`: a change of CPU or memory of a VM of fixed size is refused.",
    "relay.own_namespace": "Nodeward's own namespace: its pods start without a decision while no daemon answers, also "
    "where `on_error` is `refuse`.",
    "dump.file": "The dump of `nodeward relay`; empty: none.",
    "dump.rules": "Which methods, and how much of them: `[level:]method[,...]`.",
    "dump.max_bytes": "Beyond this the file begins anew, and the old one is kept as FILE.1.",
    "dump.show": "What is not blanked: `credentials`, `environment`, `commands`, `annotations`.",
}
"""By the setting's dotted path; `*` stands for a name that the operator chooses."""
