// podresources asks a PodResources socket as Kata's Go runtime does (virtcontainers, device_cold_plug.go), by the client
// of kubelet's module, and prints the CDI names that Kata would make: `resource_name=device_id`, one a line.
//
//	podresources SOCKET NAMESPACE NAME
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	mostBytes = 16 << 20
	within    = 10 * time.Second
)

func names(socket, namespace, name string) ([]string, error) {
	if found, err := os.Stat(socket); err != nil || found.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is no socket: Kata would go by annotations", socket)
	}
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostBytes)))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	answer, err := api.NewPodResourcesListerClient(connection).Get(ctx,
		&api.GetPodResourcesRequest{PodName: name, PodNamespace: namespace})
	if err != nil {
		return nil, err
	}
	if answer.PodResources == nil {
		return nil, fmt.Errorf("PodResources is nil")
	}
	var found []string
	for _, container := range answer.PodResources.Containers {
		for _, device := range container.Devices {
			for _, id := range device.DeviceIds {
				found = append(found, device.ResourceName+"="+id)
			}
		}
	}
	return found, nil
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: podresources SOCKET NAMESPACE NAME")
		os.Exit(2)
	}
	found, err := names(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, one := range found {
		fmt.Println(one)
	}
}
