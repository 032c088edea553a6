// nristub is an NRI plugin on the Go stub that most plugins are made with, to compare Nodeward's answer time with:
//
//	nristub SOCKET
//
// It subscribes to what Nodeward subscribes to, decodes everything (the stub does) and answers a constant, as the bare
// Python plugin beside it. It must not be used for anything else.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const value = "sgx_epc 1048576"

// plugin has a method for each event that it subscribes to; that is how the stub knows.
type plugin struct{}

func (plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plugin) RunPodSandbox(context.Context, *api.PodSandbox) error    { return nil }
func (plugin) StopPodSandbox(context.Context, *api.PodSandbox) error   { return nil }
func (plugin) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (plugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjust := &api.ContainerAdjustment{}
	adjust.AddLinuxUnified("misc.max", value)
	return adjust, nil, nil
}

func (plugin) PostCreateContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }
func (plugin) PostStartContainer(context.Context, *api.PodSandbox, *api.Container) error  { return nil }

func (plugin) UpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container, _ *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	update := &api.ContainerUpdate{ContainerId: c.Id}
	update.AddLinuxUnified("misc.max", value)
	return []*api.ContainerUpdate{update}, nil
}

func (plugin) PostUpdateContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (plugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

// quiet keeps the stub's words about itself out of the bench's output.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(_ context.Context, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "nristub: "+format+"\n", args...)
}
func (q quiet) Errorf(ctx context.Context, format string, args ...any) { q.Warnf(ctx, format, args...) }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: nristub SOCKET")
		os.Exit(2)
	}
	s, err := stub.New(plugin{}, stub.WithPluginName("stub"), stub.WithPluginIdx("10"), stub.WithSocketPath(os.Args[1]),
		stub.WithLogger(quiet{}), stub.WithOnClose(func() { os.Exit(0) }))
	if err == nil {
		err = s.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nristub:", err)
		os.Exit(1)
	}
}
