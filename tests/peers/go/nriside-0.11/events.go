package main

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

const (
	nriVersion     = "0.11.0"
	runtimeVersion = "v2.2.1" // the containerd that carries this NRI
)

// lifecycle passes on the events that only inform: up to NRI 0.11 they are all one message with the event's number.
func (s *side) lifecycle(ctx context.Context, op string, pod *api.PodSandbox, container *api.Container) error {
	event := &adaptation.StateChangeEvent{Pod: pod, Container: container}
	calls := map[string]func(context.Context, *adaptation.StateChangeEvent) error{
		"run_pod": s.rt.RunPodSandbox, "stop_pod": s.rt.StopPodSandbox, "remove_pod": s.rt.RemovePodSandbox,
		"post_create": s.rt.PostCreateContainer, "start": s.rt.StartContainer, "post_start": s.rt.PostStartContainer,
		"post_update": s.rt.PostUpdateContainer, "remove": s.rt.RemoveContainer,
	}
	call, ok := calls[op]
	if !ok {
		return fmt.Errorf("unknown command %q", op)
	}
	return call(ctx, event)
}
