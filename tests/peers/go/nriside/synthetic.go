package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// benchmark is what one plugin costs the runtime. Only the first calls that failed are of interest: their number is.
type benchmark struct {
	Calls  int   `json:"calls"`
	Failed int   `json:"failed"`
	P50NS  int64 `json:"p50_ns"`
	P99NS  int64 `json:"p99_ns"`
	MaxNS  int64 `json:"max_ns"`
}

// bench creates containers one after another, as runtimes do: NRI holds one lock for all calls.
func (s *side) bench(calls, filler int) (*benchmark, error) {
	if s.rt == nil || calls < 1 {
		return nil, fmt.Errorf("bench: needs an open socket and at least one call, got %d", calls)
	}
	taken := make([]int64, 0, calls)
	b := &benchmark{Calls: calls}
	for i := range calls {
		pod := syntheticPod(1_000_000 + i)
		container := syntheticContainer(pod, 1_000_000+i, filler)
		container.State, container.Pid = api.ContainerState_CONTAINER_CREATED, 0
		begin := time.Now()
		if _, err := s.rt.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: pod, Container: container}); err != nil {
			b.Failed++
		}
		taken = append(taken, time.Since(begin).Nanoseconds())
	}
	slices.Sort(taken)
	b.P50NS, b.P99NS, b.MaxNS = taken[calls/2], taken[min(calls-1, calls*99/100)], taken[calls-1]
	return b, nil
}

// syntheticPod is a pod as the kubelet makes them; equal numbers make equal pods.
func syntheticPod(n int) *api.PodSandbox {
	return &api.PodSandbox{
		Id: fmt.Sprintf("aa%062x", n), Name: fmt.Sprintf("pod-%d", n), Namespace: "default",
		Uid:    fmt.Sprintf("%08x-0000-4000-8000-000000000000", n),
		Labels: map[string]string{"app": "synthetic"}, Annotations: map[string]string{"example.com/number": fmt.Sprint(n)},
		RuntimeHandler: "runc",
		Linux:          &api.LinuxPodSandbox{CgroupParent: fmt.Sprintf("/kubepods/burstable/pod%08x", n)},
	}
}

// syntheticContainer is a running container of the pod, with about filler bytes of environment.
func syntheticContainer(pod *api.PodSandbox, n, filler int) *api.Container {
	id := fmt.Sprintf("cc%062x", n)
	c := &api.Container{
		Id: id, PodSandboxId: pod.Id, Name: fmt.Sprintf("c-%d", n), State: api.ContainerState_CONTAINER_RUNNING,
		Pid: uint32(100_000 + n), Args: []string{"/bin/serve"}, Annotations: pod.Annotations,
		Linux: &api.LinuxContainer{
			CgroupsPath: pod.Linux.CgroupParent + "/" + id,
			Resources: &api.LinuxResources{
				Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(102)), Quota: api.Int64(int64(10_000)), Period: api.UInt64(uint64(100_000))},
				Memory: &api.LinuxMemory{Limit: api.Int64(int64(64 << 20))},
			},
		},
	}
	for i := 0; i < filler; i += 48 {
		c.Env = append(c.Env, fmt.Sprintf("SYNTHETIC_SERVICE_%06d_PORT=tcp://192.0.2.1:443", i))
	}
	return c
}
