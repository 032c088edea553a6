"""What each setting means, in one place: `nodeward config schema` and docs/settings.md are made of it.

Promises a text for every setting, for a person who edits the file. Must not be imported where a daemon starts: only
the schema needs it.
"""

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "node_name": "The node's name in the API server. Empty: the variable `NODE_NAME`, else the host name.",
    "state_dir": "The undo list, pods as last known, last good settings. It must survive a restart of the machine.",
    "run_dir": "The lock of the one instance, and the operators' socket `nodeward.sock`.",
    "limits.mode": "`enforce`; `observe`: decide and show, write and refuse nothing; `off`: neither.",
    "limits.on_error": "What a fault of this domain means for the container that waits: `pass` starts it, `refuse` "
    "refuses it.",
    "limits.strict": "`true`: a container of a pod that declares nothing gets 0. `false`: it is left alone.",
    "limits.unsupported": "A declared resource that this kernel lacks: `allow-unenforced` starts the container, "
    "`refuse` refuses it.",
    "limits.unknown_pod": "A container whose pod is not known in time: `unlimited`, `zero` (both corrected later) or "
    "`refuse`.",
    "limits.resources": "Extended resources of pods, and the misc controller's name of each.",
    "ledger.mode": "`observe`: count TEE keys and show who holds them; `enforce`: also offer them to kubelet and share "
    "them through NFD, where a row of `ledger.keys` says so; `off`: neither.",
    "ledger.keys": "The kinds of key, by the misc controller's name, a row each.",
    "ledger.keys.*.resources": "Every extended resource that promises such a key, whoever publishes it.",
    "ledger.keys.*.capacity_from": "Who says how many there are: `misc`: the kernel; `nfd`: Node Feature Discovery; "
    "`fixed`: `capacity`.",
    "ledger.keys.*.capacity": "The number itself, where `misc.capacity` is hidden, or fewer than it says; 0: what the "
    "kernel says.",
    "ledger.keys.*.reserve": "This many keys are never called free, and are listed as unhealthy.",
    "ledger.keys.*.publisher": "`device-plugin`: Nodeward offers the keys to kubelet, in mode `enforce`.",
    "ledger.keys.*.publish": "The one of `resources` that is offered. Never a name below `intel.com`, `amd.com`, "
    "`kubernetes.io` or `katacontainers.io`.",
    "ledger.keys.*.attestation": "When the service that makes quotes does not answer: `observe`: say so; `enforce`: "
    "withhold ids that are not granted, and let pods wait to start; `off`: do not ask it.",
    "ledger.keys.*.attestation_socket": "Where that service listens.",
    "ledger.keys.*.share": "How Kata, which reads NFD's number, is told of the keys: `own`, `override`, `split`, "
    "`shared`, `auto`.",
    "ledger.keys.*.split": "With `share: split`: how many keys are Nodeward's.",
    "ledger.kubelet_dir": "Where kubelet keeps its folder `device-plugins`, whatever its `--root-dir` is. The only "
    "thing written there is the socket of a `publisher: device-plugin`.",
    "ledger.kubelet_root": "Kubelet's `--root-dir`, where that is another folder: its sockets `pods-api`, "
    "`pod-resources` and `plugins_registry` are below it.",
    "pods.on_error": "As `limits.on_error`, for what is known of pods.",
    "pods.wait_ms": "How long one create may wait for a pod that is not known yet, 0 to 1000 milliseconds.",
    "pods.wait_budget_ms": "All such waits in any ten seconds, 0 to 5000 milliseconds. NRI handles one request at a "
    "time.",
    "cpus.mode": "How the policy's CPUs are given: `enforce`; `observe`: decide and show, write nothing; `off`: "
    "neither.",
    "cpus.driver": "Who carries the decisions to the runtime: `nri` (needs `nri.enabled`), or `relay`, for a runtime "
    "without NRI.",
    "cpus.on_error": "As `limits.on_error`, for CPUs; also while no settings of the policy have fitted the machine.",
    "cpus.on_late": "A container whose own CPUs others still use after `cpus.late_ms`: `start` it, or `refuse` it.",
    "cpus.late_ms": "How long a program waits until others are off its own CPUs, in milliseconds: 1 to 1000 with "
    "`nri`, 1 to 4000 with `relay`.",
    "cpus.memory": "`follow`: a new container may use the memory of the NUMA nodes of its CPUs; `policy`: the same "
    "where the policy has `pinMemory: true`; `off`: memory nodes are left as they are.",
    "policy.active": "The policy by which containers get CPUs; `nodeward policies` lists them. Also `Active`.",
    "policy.available": "The CPUs that containers may have: `cpuset:0-7` or `exclude-cpuset:0`. Empty: all that are "
    "online. Also `AvailableResources: {CPU: ...}`.",
    "policy.reserved": "The CPUs kept for the system: `cpuset:0,32`, or how many (`2`; `750m` is one). Also "
    "`ReservedResources: {CPU: ...}`.",
    "policy.static.relaxed_isolation": "`true`: with `static`, every container with CPUs of its own gets CPUs that "
    "the kernel isolates, if there are enough.",
    "policy.static.options": 'Options of kubelet\'s CPU manager, such as `full-pcpus-only: "true"`; `nodeward policies '
    "static` explains each.",
    "policy.balloons.pin_cpu": "Whether containers are held to the CPUs of their balloons. Also `PinCPU`, `pinCPU`, "
    "and so for each key below.",
    "policy.balloons.reserved_pool_namespaces": "Namespaces, besides kube-system, whose containers run in the balloon "
    "of the reserved CPUs.",
    "policy.balloons.allocator_topology_balancing": "`true`: a new balloon is made where most CPUs are free; `false`: "
    "where fewest are.",
    "policy.balloons.prefer_spread_on_physical_cores": "`true`: balloons get the first thread of each core before any "
    "second one.",
    "policy.balloons.preserve": "Expressions: containers for which one holds are left alone. Also "
    "`preserve: {matchExpressions: [...]}`.",
    "policy.balloons.balloon_types": "The types of balloons.",
    "policy.balloons.pin_memory": "Whether new containers are held to the memory near the CPUs of their balloons; see "
    "`cpus.memory`.",
    "policy.balloons.scheduling_classes": "How the kernel schedules containers of a type.",
    "policy.podpools.pin_cpu": "Whether containers are held to the CPUs of their pools.",
    "policy.podpools.pools": 'The pools, such as `{name: fast, cpu: 4, max_pods: 2, instances: "50%"}`.',
    "policy.podpools.pin_memory": "Whether new containers are held to the memory near the CPUs of their pools.",
    "policy.static_pools.pools": "The lists of CPUs. Also a table by name, `pools: {shared: {cpuLists: [{Socket: 0, "
    "Cpuset: 0-3}]}}`.",
    "policy.dynamic_pools.pin_cpu": "Whether containers are held to the CPUs of their pools.",
    "policy.dynamic_pools.reserved_pool_namespaces": "Namespaces, besides kube-system, whose containers run on the "
    "reserved CPUs.",
    "policy.dynamic_pools.dynamic_pool_types": "The pools besides `reserved` and `shared`, such as `{name: web, "
    "namespaces: [web]}`.",
    "policy.dynamic_pools.pin_memory": "Whether new containers are held to the memory near the CPUs of their pools.",
    "sandboxes.mode": "VM sandboxes: `observe`: show where they are, what they cost and whether they fit; `enforce`: "
    "also set the limit of a pod's cgroup where nobody has (a CRI runtime without kubelet); `off`: neither.",
    "sandboxes.period_ms": "How often they are read, 200 to 60000 milliseconds.",
    "sandboxes.profiles": "By whose rules a runtime handler places processes, where that is not recognised: "
    "`HANDLER: document`, `kata-go` or `kata-rs`.",
    "sandboxes.tight_percent": "A pod is `tight` where less of its memory limit than this is left for its VM, 0 to 50 "
    "per cent.",
    "sandboxes.samples": "Samples of a RuntimeClass before an overhead is recommended, 10 to 100000.",
    "sizing.mode": "Sizes of VMs by what their pods request, given by the relay: `observe`: decide and say; "
    "`enforce`: also send; `off`: neither.",
    "sizing.unlimited": 'CPUs of a pod that has containers without a CPU limit: `request`: their requests; `"4"`: '
    "this many, in quotes; `50%`: of what a VM may have; `all`. Never fewer than requested.",
    "sizing.keep_cpus": "CPUs of the machine that no VM is enlarged into, 0 to 4096. The Node object's allocatable "
    "CPUs bound it too.",
    "sizing.keep_memory_mib": "The same of memory, in MiB.",
    "sizing.handlers": "The runtime handlers whose pods are sized. Empty: those that start VMs by the runtime's "
    "configuration.",
    "sizing.queues": "`true`: VMs of runtime-rs get a queue of their network and block devices for each vCPU, up to 8, "
    "where Kata's configuration allows it.",
    "gate.mode": "Pods that start only once their conditions are met: `observe`: decide and say; `enforce`: also "
    "refuse; `off`: neither.",
    "gate.handlers": "By runtime handler the conditions of its pods: `HANDLER: [key, quotes, verdict]`.",
    "gate.at": "What the relay holds: `sandbox`: RunPodSandbox; `container`: CreateContainer, where the VM must run "
    "before it can prove what it is.",
    "gate.wait_s": "The relay holds a call this many seconds, 0 to 5. Then it refuses, and kubelet tries again.",
    "gate.uids": "The users whose processes may set verdicts, 1 to 64 of them. All but root must be in `podapi.uids` "
    "too.",
    "nri.enabled": "Be an NRI plugin. Without it no annotation is read, and containers are found by their cgroups, up "
    "to a period after their start.",
    "nri.socket": "The runtime's NRI socket.",
    "nri.plugin_name": "The name under which the runtime knows the plugin.",
    "nri.plugin_index": "Two digits, in quotes. Plugins are called in this order.",
    "nri.multi_line": "`true`: the runtime is given several misc resources in one value. Every OCI runtime of the node "
    "must accept that (runc 1.2, crun 1.18). `false`: the first by the runtime, the others by the daemon at the start.",
    "hook.enabled": "Answer the OCI hook `nodeward-oci-hook`, and leave it what it needs while no daemon answers.",
    "hook.folder": "The hook's socket `hook.sock`, its settings `hook.json`, and `pods/UID.json` for each pod. The "
    "hook's `--folder` names the same.",
    "kube.enabled": "Watch this node's pods. Without it only annotations say what was promised.",
    "kube.events": "Write Kubernetes Events on pods about their limits, and on the node about its TEE keys.",
    "kube.kubeconfig": "A kubeconfig with token, token file or client certificate; `exec` is refused. Empty: "
    "in-cluster. It is read at the start; the files that it names are followed.",
    "kube.url": "An address instead of a kubeconfig; it wins if both are set.",
    "kube.token_file": "The token's file, with `kube.url`.",
    "kube.ca_file": "The certificate authority's file, with `kube.url`.",
    "policy_objects.enabled": "`true`: the `BalloonsPolicy` object of nri-plugins that is for this node replaces the "
    "section `policy`. Needs `kube.enabled`, NRI and `deploy/node/policy-objects.yaml`.",
    "policy_objects.namespace": "The namespace of these objects.",
    "topology_objects.enabled": "Write this node's `NodeResourceTopology` object, for NUMA-aware schedulers. Needs "
    "`kube.enabled`, `cpus.driver: nri` and `deploy/node/topology-objects.yaml`.",
    "cgroups.root": "Where the cgroup trees are mounted: the cgroup2 tree itself, or the folder of the v1 hierarchies.",
    "cgroups.kubelet_root": "Kubelet's `--cgroup-root`. Containers that no event tells of are looked for below it. "
    "`/kubelet` means `/kubelet/kubepods` and, with systemd, `/kubelet.slice/kubelet-kubepods.slice`.",
    "cgroups.period_s": "Seconds between two readings, 0.1 to 3600. After two and a half periods a reading is `stale`.",
    "record.path": "Where to record events and decisions, for `nodeward replay`. Empty: nowhere. With the systemd "
    "unit, a path below `state_dir`.",
    "record.max_bytes": "The record begins anew at this size.",
    "metrics.enabled": "Serve `/metrics` for Prometheus.",
    "metrics.listen": "Where: `HOST:PORT`, `[::1]:9743`, or `:9743` for every address. There is no TLS and no login.",
    "podapi.enabled": "Serve what is known of this node's pods, without secrets, over HTTP and gRPC.",
    "podapi.socket": "Its unix socket for HTTP and JSON; empty: `podapi.sock` in `run_dir`.",
    "podapi.grpc_socket": "Its unix socket for gRPC, which only root can open; empty: `podapi-grpc.sock` in `run_dir`.",
    "podapi.uids": "The users whose processes may ask over HTTP, 1 to 64 of them.",
    "cold_plug.enabled": "Serve PodResources for VM runtimes, with the devices of DRA claims.",
    "cold_plug.socket": "Its unix socket; empty: `pod-resources.sock` in `run_dir`.",
    "agent.config_socket": "Where the process of `cpus.driver` takes a cluster's configuration from `nodeward agent`, "
    "in place of the section `policy`. Empty: no socket.",
    "webhook.address": "Where `nodeward webhook` listens. Empty: every address, of both families.",
    "webhook.port": "Its port; 0 takes a free one and says so in the log.",
    "webhook.certificate_file": "Its certificate, PEM. A new one is used within seconds, unless it cannot be used; "
    "the log says why.",
    "webhook.key_file": "The certificate's key, PEM, without a password.",
    "webhook.required_plugin": "An NRI plugin, such as `nodeward`, that every pod with a declared limit is to require, "
    "by the annotation `required-plugins.noderesource.dev`. Empty: that annotation is left alone.",
    "webhook.annotate": "The annotations with each container's requests and limits that it writes on every pod, each "
    "at the path of its name: `noderesource.dev/resources`, `intel.com/resources`.",
    "webhook.max_connections": "Connections at once, 16 to 100000; fewer where the hard limit of descriptors is lower. "
    "Each costs some 35 KiB, more after a large pod.",
    "webhook.request_s": "Seconds in which a request must have arrived, and its answer be taken, 0.5 to 60.",
    "webhook.close_s": "Seconds for what has begun when the webhook is stopped, 0 to 600.",
    "relay.listen": "Where kubelet connects to `nodeward relay`.",
    "relay.runtime": "The runtime's socket.",
    "relay.image_listen": "Where kubelet connects for images, if those are a service of their own.",
    "relay.image": "That service's socket; empty: the runtime's.",
    "relay.limits": "`true`: the relay decides limits, by the section `limits`, for a runtime without NRI. Not "
    "together with `nri.enabled`.",
    "relay.count_calls": "`false`: calls are not counted by method and result, which saves up to a tenth of a small "
    "call's processor time.",
    "relay.vm_checkpoint": "`refuse`: CheckpointContainer of a container in a VM is refused with the reason.",
    "relay.vm_resize": "`refuse`: a change of CPU or memory of a VM whose size is fixed is refused.",
    "relay.record": "Where the relay records events and decisions; another file than `record.path`. Empty: nowhere. "
    "With the systemd unit, a path below `/var/log/nodeward`.",
    "dump.file": "Where `nodeward relay` writes what passes through it; empty: nowhere.",
    "dump.rules": "Which methods, and how much of them: `[level:]method[,...]`.",
    "dump.max_bytes": "Beyond this the file is begun anew, and the older one is kept as FILE.1.",
    "dump.show": "What is not blanked: `credentials`, `environment`, `commands`, `annotations`.",
}
"""By the setting's dotted path; `*` stands for a name that the operator chooses."""
