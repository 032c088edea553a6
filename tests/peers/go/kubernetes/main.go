// One binary for all of Kubernetes that tests need: the name by which it is called (a link) picks the component. Sharing
// one link step saves minutes and most of the space.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func component(name string) *cobra.Command {
	switch name {
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	}
	return nil
}

func main() {
	name := filepath.Base(os.Args[0])
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "cpuoracle":
		os.Exit(oracle(os.Stdin, os.Stdout))
	}
	command := component(name)
	if command == nil {
		fmt.Fprintln(os.Stderr, "unknown name", name, "- call this program by the name of a component")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
