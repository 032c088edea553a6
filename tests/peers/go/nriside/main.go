// nriside is the runtime's end of NRI and nothing else: containerd's own pkg/adaptation, with synthetic pods in place of
// a runtime. Tests of the plugin end drive it by JSON lines, one command a line on stdin, one answer a line on stdout.
// Lines with an "event" come unasked: the socket is ready, a plugin synchronized, the adaptation logged something.
//
// The same sources are built against several releases of NRI. What differs between them is in the file events.go beside
// each go.mod; scripts/build-peers puts the two together.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/log"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// lenient lets tests name fields that an older release of NRI does not have.
var lenient = protojson.UnmarshalOptions{DiscardUnknown: true}

// command is one line of stdin. Pod, Container and Resources are NRI messages in protobuf's JSON form.
type command struct {
	ID        int             `json:"id"`
	Op        string          `json:"op"`
	Pod       json.RawMessage `json:"pod"`
	Container json.RawMessage `json:"container"`
	Resources json.RawMessage `json:"resources"`

	AllPods       []json.RawMessage `json:"all_pods"`       // world: what a plugin is told when it synchronizes
	AllContainers []json.RawMessage `json:"all_containers"` // world

	Pods      int  `json:"pods"`       // populate: how many pods are known when a plugin synchronizes
	PerPod    int  `json:"per_pod"`    // populate: running containers in each of them
	Calls     int  `json:"calls"`      // bench: how many containers to create
	Lives     bool `json:"lives"`      // bench: each of them also starts, stops and is removed
	Filler    int  `json:"filler"`     // populate, bench: bytes of environment in each container, roughly
	TimeoutMS int  `json:"timeout_ms"` // listen: how long a plugin may take for an answer
}

// answer is one line of stdout in reply to a command.
type answer struct {
	ID      int               `json:"id"`
	Error   string            `json:"error"`
	NS      int64             `json:"ns"`
	Adjust  json.RawMessage   `json:"adjust,omitempty"`
	Updates []json.RawMessage `json:"updates,omitempty"`
	Plugins []string          `json:"plugins"`
	Bench   *benchmark        `json:"bench,omitempty"`
}

// side is the state of the runtime that is played.
type side struct {
	socket string
	empty  string // a folder without pre-installed plugins
	out    *json.Encoder
	outMu  sync.Mutex

	rt         *adaptation.Adaptation
	worldMu    sync.Mutex
	pods       []*api.PodSandbox
	containers []*api.Container
	preloaded  bool // the adaptation's own first synchronization, which has no plugin, is over
	known      roster
}

func (s *side) emit(line any) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	if err := s.out.Encode(line); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

// listen makes the adaptation, as a runtime that starts does. There is no way back but to end the process: an adaptation
// that is stopped leaves the connections of external plugins open.
func (s *side) listen(timeout time.Duration) error {
	if s.rt != nil {
		return fmt.Errorf("already listening on %s", s.socket)
	}
	if timeout > 0 {
		adaptation.SetPluginRequestTimeout(timeout)
	}
	s.worldMu.Lock()
	s.preloaded = false
	s.worldMu.Unlock()
	rt, err := adaptation.New("containerd", runtimeVersion, s.synchronize, s.unsolicited,
		adaptation.WithSocketPath(s.socket), adaptation.WithPluginPath(s.empty), adaptation.WithPluginConfigPath(s.empty))
	if err != nil {
		return err
	}
	if err := rt.Start(); err != nil {
		return err
	}
	s.rt = rt
	return nil
}

func (s *side) synchronize(ctx context.Context, send adaptation.SyncCB) error {
	s.worldMu.Lock()
	pods, containers, first := s.pods, s.containers, !s.preloaded
	s.preloaded = true
	s.worldMu.Unlock()
	begin := time.Now()
	updates, err := send(ctx, pods, containers)
	if !first {
		s.emit(map[string]any{"event": "synchronized", "pods": len(pods), "containers": len(containers),
			"bytes":   proto.Size(&api.SynchronizeRequest{Pods: pods, Containers: containers}),
			"updates": messages(updates), "error": text(err), "ns": time.Since(begin).Nanoseconds()})
	}
	return err
}

func (s *side) unsolicited(_ context.Context, updates []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
	s.emit(map[string]any{"event": "unsolicited", "updates": messages(updates)})
	return nil, nil
}

func (s *side) populate(pods, perPod, filler int) {
	s.worldMu.Lock()
	defer s.worldMu.Unlock()
	s.pods, s.containers = nil, nil
	for i := range pods {
		pod := syntheticPod(i)
		s.pods = append(s.pods, pod)
		for j := range perPod {
			s.containers = append(s.containers, syntheticContainer(pod, i*perPod+j, filler))
		}
	}
}

// world sets exactly what plugins are told when they synchronize.
func (s *side) world(c *command) error {
	pods, containers := []*api.PodSandbox{}, []*api.Container{}
	for _, raw := range c.AllPods {
		pod := &api.PodSandbox{}
		if err := lenient.Unmarshal(raw, pod); err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	for _, raw := range c.AllContainers {
		container := &api.Container{}
		if err := lenient.Unmarshal(raw, container); err != nil {
			return err
		}
		containers = append(containers, container)
	}
	s.worldMu.Lock()
	defer s.worldMu.Unlock()
	s.pods, s.containers = pods, containers
	return nil
}

// perform carries out one command.
func (s *side) perform(c *command) answer {
	a := answer{ID: c.ID}
	var err error
	begin := time.Now()
	switch c.Op {
	case "listen":
		err = s.listen(time.Duration(c.TimeoutMS) * time.Millisecond)
	case "populate":
		s.populate(c.Pods, c.PerPod, c.Filler)
	case "world":
		err = s.world(c)
	case "plugins":
	case "bench":
		a.Bench, err = s.bench(c.Calls, c.Filler, c.Lives)
	default:
		err = s.call(c, &a)
	}
	a.NS, a.Error, a.Plugins = time.Since(begin).Nanoseconds(), text(err), s.known.names()
	return a
}

// call passes one CRI event on to the plugins.
func (s *side) call(c *command, a *answer) error {
	if s.rt == nil {
		return fmt.Errorf("%s: not listening", c.Op)
	}
	pod, container, resources := &api.PodSandbox{}, &api.Container{}, &api.LinuxResources{}
	for raw, into := range map[*json.RawMessage]proto.Message{&c.Pod: pod, &c.Container: container, &c.Resources: resources} {
		if len(*raw) == 0 {
			continue
		}
		if err := lenient.Unmarshal(*raw, into); err != nil {
			return err
		}
	}
	ctx := context.Background()
	switch c.Op {
	case "create":
		r, err := s.rt.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: container})
		if err == nil && r.GetAdjust() != nil {
			a.Adjust = message(r.Adjust)
		}
		a.Updates = messages(r.GetUpdate())
		return err
	case "update":
		r, err := s.rt.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: pod, Container: container, LinuxResources: resources})
		a.Updates = messages(r.GetUpdate())
		return err
	case "stop":
		r, err := s.rt.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: container})
		a.Updates = messages(r.GetUpdate())
		return err
	}
	return s.lifecycle(ctx, c.Op, pod, container)
}

func message(m proto.Message) json.RawMessage {
	b, err := protojson.Marshal(m)
	if err != nil {
		b, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return b
}

func messages(updates []*api.ContainerUpdate) []json.RawMessage {
	all := []json.RawMessage{}
	for _, u := range updates {
		all = append(all, message(u))
	}
	return all
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// descriptors is every contract this program is linked with, NRI's and ttrpc's among them, as a FileDescriptorSet.
func descriptors() ([]byte, error) {
	set := &descriptorpb.FileDescriptorSet{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
		return true
	})
	return proto.Marshal(set)
}

func main() {
	socket := flag.String("socket", "", "unix socket to listen on")
	tell := flag.Bool("descriptors", false, "write a FileDescriptorSet of what is linked to stdout, and end")
	flag.Parse()
	if *tell {
		set, err := descriptors()
		if err == nil {
			_, err = os.Stdout.Write(set)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "nriside:", err)
			os.Exit(1)
		}
		return
	}
	empty, err := os.MkdirTemp("", "nriside")
	if err != nil {
		fmt.Fprintln(os.Stderr, "nriside:", err)
		os.Exit(1)
	}
	s := &side{socket: *socket, empty: empty, out: json.NewEncoder(os.Stdout)}
	log.Set(&journal{side: s})
	s.emit(map[string]any{"event": "ready", "nri": nriVersion})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		c := &command{}
		if err := json.Unmarshal(in.Bytes(), c); err != nil {
			s.emit(answer{ID: -1, Error: err.Error()})
			continue
		}
		s.emit(s.perform(c))
	}
	os.RemoveAll(empty) // stdin ended: the test is over
}
