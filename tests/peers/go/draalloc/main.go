// draalloc says what kube-scheduler's allocator makes of a node's ResourceSlice: for each line of stdin, a case in JSON,
// one line in JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const class = "of-the-case"

// posed is one case: the devices that a driver publishes, what of each is consumed already, by capacity, and what each
// claim, one after the other, asks of one device: amounts by capacity, empty for the device's default.
type posed struct {
	Driver   string                       `json:"driver"`
	Devices  []resourceapi.Device         `json:"devices"`
	Consumed map[string]map[string]string `json:"consumed"`
	Claims   []map[string]string          `json:"claims"`
}

// given is what became of one claim: the device and what it consumes of it; without a device it does not fit.
type given struct {
	Device   string            `json:"device"`
	Consumed map[string]string `json:"consumed"`
	Error    string            `json:"error"`
}

type classes struct{}

func (classes) Get(string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class}}, nil
}

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func amounts(of map[string]string) map[resourceapi.QualifiedName]resource.Quantity {
	found := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, text := range of {
		found[resourceapi.QualifiedName(name)] = resource.MustParse(text)
	}
	return found
}

func claim(number int, asked map[string]string) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
	}
	if len(asked) > 0 {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: amounts(asked)}
	}
	name := fmt.Sprintf("claim-%d", number)
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "request", Exactly: exactly}},
		}},
	}
}

func answer(ctx context.Context, of posed) ([]given, error) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: of.Driver, NodeName: &node.Name, Devices: of.Devices,
			Pool: resourceapi.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	consumed := structured.NewConsumedCapacityCollection()
	add := func(device string, what map[string]string) {
		id := structured.MakeDeviceID(of.Driver, node.Name, device)
		consumed.Insert(structured.NewDeviceConsumedCapacity(id, amounts(what)))
	}
	for device, what := range of.Consumed {
		add(device, what)
	}
	features := structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		DeviceBindingAndStatus: true, ConsumableCapacity: true, FractionalCapacityRange: true,
	}
	found := []given{}
	for number, asked := range of.Claims {
		state := structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       consumed,
		}
		cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})
		allocator, err := structured.NewAllocator(ctx, features, state, classes{}, []*resourceapi.ResourceSlice{slice}, cache)
		if err != nil {
			return nil, err
		}
		results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim(number, asked)})
		one := given{Consumed: map[string]string{}}
		if err != nil {
			one.Error = err.Error()
		} else if len(results) > 0 {
			result := results[0].Devices.Results[0]
			one.Device = result.Device
			for name, quantity := range result.ConsumedCapacity {
				one.Consumed[string(name)] = fmt.Sprint(quantity.Value())
			}
			add(one.Device, one.Consumed)
		}
		found = append(found, one)
	}
	return found, nil
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var of posed
		if err := json.Unmarshal(in.Bytes(), &of); err != nil {
			fmt.Fprintln(os.Stderr, "draalloc:", err)
			os.Exit(1)
		}
		found, err := answer(context.Background(), of)
		if err != nil {
			fmt.Fprintln(os.Stderr, "draalloc:", err)
			os.Exit(1)
		}
		if err := out.Encode(found); err != nil {
			os.Exit(1) // nobody listens any more
		}
	}
}
