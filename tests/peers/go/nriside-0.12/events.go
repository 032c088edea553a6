package main

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/api"
)

const (
	nriVersion     = "0.12.5"
	runtimeVersion = "v2.4.2" // the containerd that carries this NRI
)

// lifecycle passes on the events that only inform: since NRI 0.12 each has a message and a call of its own.
func (s *side) lifecycle(ctx context.Context, op string, pod *api.PodSandbox, container *api.Container) error {
	switch op {
	case "run_pod":
		return s.rt.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod})
	case "stop_pod":
		return s.rt.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod})
	case "remove_pod":
		return s.rt.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod})
	case "post_create":
		return s.rt.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: pod, Container: container})
	case "start":
		return s.rt.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: container})
	case "post_start":
		return s.rt.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod, Container: container})
	case "post_update":
		return s.rt.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: pod, Container: container})
	case "remove":
		return s.rt.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: container})
	}
	return fmt.Errorf("unknown command %q", op)
}
