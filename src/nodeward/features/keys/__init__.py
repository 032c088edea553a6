"""TEE keys: how many there are, which pods hold them, and how many may still be promised.

Comments name these facts and rules by their letters (K kernel, L kubelet, N NFD, D DRA, R Nodeward). `make explore`
plays small nodes against them.

K1: Only the real root has `misc.capacity`. `misc.current` includes cgroups below; the root has it since Linux 6.6.
K2: A key stays charged to the cgroup in which its VM began, also when that is removed.
K3: Refused charges are rolled back: counters overshoot briefly.
K4: Nothing notifies of changes; counters are polled.
K5: A refused TDX charge is taken back twice: 2^63 or more is negative.
K6: With ciphertext hiding SEV-SNP may use fewer ids than `sev_es` counts.
L1: A plugin serves, then registers. A restarted kubelet removes all sockets.
L2: `Allocate` names no pod; a refusal fails it. A refused `PreStartContainer` is tried again.
L3: Kubelet never reports that a device is free.
L4: Without the API server, only the checkpoint ties a device to a pod's UID.
L5: Kubelet can give one device to two pods (kubernetes/kubernetes#137534): count pods, not ids.
L6: A granted id stays `Healthy`, else a restarted kubelet does not admit its pod.
L7: Kubelet drops an absent resource from containers' requests, not from overhead.
N1: Without NFD's master a resource stays on the node.
N2: Objects count by name, after those of the master's namespace; the last value wins.
N3: Kata's rule publishes `@cpu.security.tdx.total_keys`; Nodeward's object sets it.
D1: Kubelet waits one second for a new driver's socket. It deletes a driver's slices at its start, and 30 s after its
    last connection.
D2: Prepare comes only before a pod's first sandbox, for 45 s; again after 60 to 90 s.
D3: A claim is free soon after Unprepare; after a forced deletion before it.
D4: With `allowMultipleAllocations` claims share a device; the scheduler subtracts each.
D5: A capacity of 0 is refused with `validValues: [1]`; without, it gives 0 keys.
D6: While a plugin offers a resource, no class serves it. Overhead is never a claim.
R1: `free = max(0, N - sum of max(a, c) - foreign - reserve)`, `foreign = max(0, U - sum of c)`: capacity `N`, root's
    counter `U`, a pod's promised `a` and charged `c`.
R2: If charges cannot be told apart: `free = max(0, N - U - sum of a - reserve)`.
R3: A sample reads root, pods, root, pods; the smaller `free` counts.
R4: Published numbers shrink at once and grow after samples that agree.
R5: An id is released after two views of kubelet without it, begun well after the grant.
R6: Others may take a granted key; `PreStartContainer` notices.
R7: A grant is on disk before its answer. After a loss kubelet's views come first.
R8: NFD's number: what pods ask by it, and what is free. For a last key Nodeward's pod loses.
R9: A claim device's capacity: what prepared claims have, and what more they may get. Plugin and claims offer no more
    than is free.
R10: Prepare reads the kernel again, and is on disk before its answer. Unprepare updates the scheduler first.
R11: The plugin gets no key that a scheduler's view of the last 30 s may have.
"""
