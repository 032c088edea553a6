package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	feature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// step is one line of the history that the oracle is fed: a machine, an arrival or a departure.
type step struct {
	Op        string            `json:"op"`       // machine, allocate, remove
	CPUs      []place           `json:"cpus"`     // machine: every logical CPU
	Reserved  []int             `json:"reserved"` // machine: CPUs kept for the system
	Keep      int               `json:"keep"`     // machine: how many to keep for it, where they are not named
	Options   map[string]string `json:"options"`  // machine: policy options of the kubelet, alpha ones too
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Role      string            `json:"role"`      // allocate: init, sidecar; else an ordinary container
	Milli     int64             `json:"milli"`     // allocate: thousandths of a CPU
	Burstable bool              `json:"burstable"` // allocate: the pod has no limits
	Affinity  []int             `json:"affinity"`  // allocate: the NUMA nodes that the topology manager wants; none: any
}

type place struct {
	CPU    int `json:"cpu"`
	Core   int `json:"core"`
	Socket int `json:"socket"`
	NUMA   int `json:"numa"`
	Uncore int `json:"uncore"`
}

// verdict is what the kubelet holds after the step. Sets are written as the kernel does: 0-3,8.
type verdict struct {
	Error  string `json:"error"`
	CPUs   string `json:"cpus"`
	Shared string `json:"shared"`
}

// oracleRun is the kubelet's static CPU manager policy with its state in memory.
type oracleRun struct {
	policy cpumanager.Policy
	state  state.State
	hints  *hints
}

// hints is the topology manager, as far as the policy asks it: the affinity of the next container is what a step says.
type hints struct{ next topologymanager.TopologyHint }

func (h *hints) GetAffinity(klog.Logger, string, string) topologymanager.TopologyHint { return h.next }
func (h *hints) GetPolicy() topologymanager.Policy                                    { return topologymanager.NewNonePolicy() }
func (h *hints) Name() string                                                         { return "container" }

func newOracleRun(s *step) (*oracleRun, error) {
	cores, sockets, nodes, caches := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	details := topology.CPUDetails{}
	for _, p := range s.CPUs {
		details[p.CPU] = topology.CPUInfo{CoreID: p.Core, SocketID: p.Socket, NUMANodeID: p.NUMA, UncoreCacheID: p.Uncore}
		cores[p.Core], sockets[p.Socket], nodes[p.NUMA], caches[p.Uncore] = true, true, true, true
	}
	machine := &topology.CPUTopology{NumCPUs: len(details), NumCores: len(cores), NumSockets: len(sockets),
		NumNUMANodes: len(nodes), NumUncoreCache: len(caches), CPUDetails: details}
	logger := klog.TODO()
	steered := &hints{}
	policy, err := cpumanager.NewStaticPolicy(logger, machine, max(len(s.Reserved), s.Keep), cpuset.New(s.Reserved...),
		steered, s.Options)
	if err != nil {
		return nil, err
	}
	run := &oracleRun{policy: policy, state: state.NewMemoryState(logger), hints: steered}
	return run, policy.Start(logger, run.state)
}

// asking is a pod with the one container that a step is about, as the policy looks at no other one.
func asking(s *step) (*v1.Pod, *v1.Container) {
	have := v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(s.Milli, resource.DecimalSI), v1.ResourceMemory: resource.MustParse("64Mi")}
	one := v1.Container{Name: s.Container, Resources: v1.ResourceRequirements{Requests: have, Limits: have}}
	if s.Burstable {
		one.Resources.Limits = nil
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: s.Pod, Namespace: "default", UID: types.UID(s.Pod)}}
	switch s.Role {
	case "sidecar":
		always := v1.ContainerRestartPolicyAlways
		one.RestartPolicy = &always
		fallthrough
	case "init":
		pod.Spec.InitContainers = []v1.Container{one}
		return pod, &pod.Spec.InitContainers[0]
	}
	pod.Spec.Containers = []v1.Container{one}
	return pod, &pod.Spec.Containers[0]
}

func (r *oracleRun) perform(s *step) (verdict, error) {
	logger := klog.TODO()
	var err error
	switch s.Op {
	case "allocate":
		r.hints.next = topologymanager.TopologyHint{}
		if len(s.Affinity) > 0 {
			if r.hints.next.NUMANodeAffinity, err = bitmask.NewBitMask(s.Affinity...); err != nil {
				return verdict{}, err
			}
		}
		pod, container := asking(s)
		err = r.policy.Allocate(logger, r.state, pod, container, lifecycle.AddOperation)
	case "remove":
		err = r.policy.RemoveContainer(logger, r.state, s.Pod, s.Container)
	default:
		err = fmt.Errorf("unknown step %q", s.Op)
	}
	v := verdict{Shared: r.state.GetDefaultCPUSet().String()}
	if own, ok := r.state.GetCPUSet(s.Pod, s.Container); ok {
		v.CPUs = own.String()
	}
	return v, err
}

// oracle answers each line of history with the kubelet's verdict, so that our own allocator can be compared with it.
func oracle(in io.Reader, out io.Writer) int {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := feature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"); err != nil {
		return 1
	}
	var run *oracleRun
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		s, v := &step{}, verdict{}
		err := json.Unmarshal(lines.Bytes(), s)
		switch {
		case err != nil:
		case s.Op == "machine":
			if run, err = newOracleRun(s); err == nil {
				v.Shared = run.state.GetDefaultCPUSet().String()
			}
		case run == nil:
			err = fmt.Errorf("the first step must be a machine, got %q", s.Op)
		default:
			v, err = run.perform(s)
		}
		if err != nil {
			v.Error = err.Error()
		}
		if err := answers.Encode(v); err != nil {
			return 1
		}
	}
	return 0
}
