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

// reused is how many containers a bench without lives creates again and again, so that no plugin's memory of containers
// that never come to life grows with the number of calls.
const reused = 100

// bench creates containers one after another, as runtimes do: NRI holds one lock for all calls. Only CreateContainer is
// timed. They are named bench and belong to the populated pods in turn. With lives, each container is new, and is told of
// as created, starting, started, stopped and removed before the next one is created.
func (s *side) bench(calls, filler int, lives bool) (*benchmark, error) {
	if s.rt == nil || calls < 1 {
		return nil, fmt.Errorf("bench: needs an open socket and at least one call, got %d", calls)
	}
	taken := make([]int64, 0, calls)
	b := &benchmark{Calls: calls}
	for i := range calls {
		number := 1_000_000 + i
		if !lives {
			number = 1_000_000 + i%reused
		}
		pod := s.home(number)
		container := syntheticContainer(pod, number, filler)
		container.Name, container.State, container.Pid = "bench", api.ContainerState_CONTAINER_CREATED, 0
		// Made beforehand, so one deeper than where a plugin may look for containers that nobody told it of.
		container.Linux.CgroupsPath = pod.Linux.CgroupParent + "/bench/" + container.Id
		begin := time.Now()
		if _, err := s.rt.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: pod, Container: container}); err != nil {
			b.Failed++
		}
		taken = append(taken, time.Since(begin).Nanoseconds())
		if lives {
			if err := s.life(pod, container); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(taken)
	b.P50NS, b.P99NS, b.MaxNS = taken[calls/2], taken[min(calls-1, calls*99/100)], taken[calls-1]
	return b, nil
}

// home is the pod in which the bench's n-th container lives: a populated one, or else one of its own.
func (s *side) home(n int) *api.PodSandbox {
	s.worldMu.Lock()
	defer s.worldMu.Unlock()
	if len(s.pods) == 0 {
		return syntheticPod(n)
	}
	return s.pods[n%len(s.pods)]
}

// life tells of all that happens to a container after it was created, in the order of runtimes.
func (s *side) life(pod *api.PodSandbox, container *api.Container) error {
	ctx := context.Background()
	for _, op := range []string{"post_create", "start", "post_start"} {
		if op == "post_start" {
			container.State, container.Pid = api.ContainerState_CONTAINER_RUNNING, 4242
		}
		if err := s.lifecycle(ctx, op, pod, container); err != nil {
			return err
		}
	}
	container.State = api.ContainerState_CONTAINER_STOPPED
	if _, err := s.rt.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: container}); err != nil {
		return err
	}
	return s.lifecycle(ctx, "remove", pod, container)
}

// syntheticPod is a pod as the kubelet makes them; equal numbers make equal pods.
func syntheticPod(n int) *api.PodSandbox {
	uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", n)
	return &api.PodSandbox{
		Id: fmt.Sprintf("aa%062x", n), Name: fmt.Sprintf("pod-%d", n), Namespace: "default", Uid: uid,
		Labels: map[string]string{"app": "synthetic"}, Annotations: map[string]string{"example.com/number": fmt.Sprint(n)},
		RuntimeHandler: "runc",
		Linux:          &api.LinuxPodSandbox{CgroupParent: "/kubepods/burstable/pod" + uid},
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
