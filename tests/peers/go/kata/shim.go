package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/BurntSushi/toml"
	"github.com/kata-containers/kata-containers/src/runtime/pkg/oci"
	vc "github.com/kata-containers/kata-containers/src/runtime/virtcontainers"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
)

// configuration is what we read of Kata's, by its own names; virtcontainers has no reader of it.
type configuration struct {
	Hypervisor struct {
		Qemu struct {
			Path          string  `toml:"path"`
			Kernel        string  `toml:"kernel"`
			Image         string  `toml:"image"`
			DefaultVCPUs  float32 `toml:"default_vcpus"`
			DefaultMemory uint32  `toml:"default_memory"`
			MemPrealloc   bool    `toml:"enable_mem_prealloc"`

			EnableAnnotations []string `toml:"enable_annotations"`
		} `toml:"qemu"`
	} `toml:"hypervisor"`
	Runtime struct {
		SandboxCgroupOnly bool `toml:"sandbox_cgroup_only"`
	} `toml:"runtime"`
}

// request is what the runtime asks the shim of its sandbox.
type request struct {
	Do        string                `json:"do"`
	ID        string                `json:"id"`
	Bundle    string                `json:"bundle"`
	Signal    int                   `json:"signal"`
	Resources *specs.LinuxResources `json:"resources"`
}

// shim is the process of a sandbox.
type shim struct {
	sandbox vc.VCSandbox
	context context.Context
}

// mocked is a context in which sandboxes have an agent that does nothing: the guest need not boot.
func mocked() context.Context {
	return vc.WithNewAgentFunc(context.Background(), vc.NewMockAgent)
}

func readSpec(bundle string) (spec specs.Spec, err error) {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return spec, err
	}
	return spec, json.Unmarshal(text, &spec)
}

// readConfiguration reads the file and, over it, its drop-ins by name.
func readConfiguration(path string) (config configuration, err error) {
	dropIns, err := filepath.Glob(filepath.Join(filepath.Dir(path), "config.d", "*.toml"))
	if err != nil {
		return config, err
	}
	for _, file := range append([]string{path}, dropIns...) {
		if _, err := toml.DecodeFile(file, &config); err != nil {
			return config, fmt.Errorf("%s: %w", file, err)
		}
	}
	return config, nil
}

// sandboxConfig is Kata's own reading of the spec, over that configuration. The VM has its size from the start: what is
// plugged in later needs an agent.
func sandboxConfig(spec specs.Spec, config configuration, bundle, id string, systemd bool) (vc.SandboxConfig, error) {
	if spec.Linux.Resources == nil {
		spec.Linux.Resources = &specs.LinuxResources{}
	}
	qemu := config.Hypervisor.Qemu
	sized := sizeOf(spec)
	runtime := oci.RuntimeConfig{
		HypervisorType: vc.QemuHypervisor,
		HypervisorConfig: vc.HypervisorConfig{
			EnableAnnotations: qemu.EnableAnnotations, HypervisorPath: qemu.Path, HypervisorPathList: []string{qemu.Path},
			KernelPath: qemu.Kernel, ImagePath: qemu.Image, RootfsType: "ext4", HypervisorMachineType: vc.QemuQ35,
			NumVCPUsF: max(qemu.DefaultVCPUs, 1), MemorySize: qemu.DefaultMemory, MemPrealloc: qemu.MemPrealloc,
			MemSlots: 2, DefaultBridges: 1, SharedFS: "virtio-9p", BlockDeviceDriver: "virtio-scsi",
			DisableVhostNet: true, DisableImageNvdimm: true, EntropySource: "/dev/urandom",
		},
		SandboxCgroupOnly: config.Runtime.SandboxCgroupOnly, StaticSandboxResourceMgmt: true, DisableNewNetNs: true,
		SandboxCPUs: sized.CPUs, SandboxMemMB: sized.MemoryMiB,
	}
	made, err := oci.SandboxConfig(spec, runtime, bundle, id, false, systemd)
	made.HypervisorConfig.DefaultMaxVCPUs = made.HypervisorConfig.NumVCPUs()
	return made, err
}

func shimMain() error {
	folder, bundle := os.Getenv("KATART_FOLDER"), os.Getenv("KATART_BUNDLE")
	log, err := os.Create(filepath.Join(bundle, "kata.log"))
	if err != nil {
		return err
	}
	logger := logrus.New()
	logger.SetOutput(log)
	vc.SetLogger(context.Background(), logrus.NewEntry(logger))
	oci.SetLogger(context.Background(), logrus.NewEntry(logger))
	says := os.NewFile(3, "ready")
	s := &shim{context: mocked()}
	listener, err := s.create(folder, bundle)
	if err != nil {
		fmt.Fprint(says, err)
		return err
	}
	fmt.Fprint(says, "ready")
	says.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		s.stop(syscall.SIGTERM)
	}()
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		s.serve(connection)
	}
}

func (s *shim) create(folder, bundle string) (net.Listener, error) {
	spec, err := readSpec(bundle)
	if err != nil {
		return nil, err
	}
	path := oci.GetSandboxConfigPath(spec.Annotations)
	if path == "" {
		path = os.Getenv("KATA_CONF_FILE")
	}
	config, err := readConfiguration(path)
	if err != nil {
		return nil, err
	}
	made, err := sandboxConfig(spec, config, bundle, filepath.Base(folder), os.Getenv("KATART_SYSTEMD") != "")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", filepath.Join(folder, "shim.sock"))
	if err != nil {
		return nil, err
	}
	s.sandbox, err = vc.CreateSandbox(s.context, made, nil, nil)
	return listener, err
}

// serve answers one request, with an empty text if all is well. A stop is answered before the process ends.
func (s *shim) serve(connection net.Conn) {
	defer connection.Close()
	var asked request
	err := json.NewDecoder(io.LimitReader(connection, longestLine)).Decode(&asked)
	if err == nil {
		err = s.do(asked)
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	_ = json.NewEncoder(connection).Encode(said)
	if asked.Do == "stop" {
		os.Exit(128 + asked.Signal)
	}
}

func (s *shim) do(asked request) error {
	switch asked.Do {
	case "start":
		if asked.ID != s.sandbox.ID() {
			_, err := s.sandbox.StartContainer(s.context, asked.ID)
			return err
		}
		return s.start()
	case "create":
		spec, err := readSpec(asked.Bundle)
		if err != nil {
			return err
		}
		made, err := oci.ContainerConfig(spec, asked.Bundle, asked.ID, false)
		if err != nil {
			return err
		}
		_, err = s.sandbox.CreateContainer(s.context, made)
		return err
	case "update":
		return s.sandbox.UpdateContainer(s.context, asked.ID, *asked.Resources)
	case "delete":
		if _, err := s.sandbox.StopContainer(s.context, asked.ID, true); err != nil {
			return err
		}
		_, err := s.sandbox.DeleteContainer(s.context, asked.ID)
		return err
	case "stop":
		return s.remove()
	}
	return fmt.Errorf("the shim does not know %q", asked.Do)
}

// start has Kata look after the VM, too: a sandbox whose VM has died is taken away.
func (s *shim) start() error {
	if err := s.sandbox.Start(s.context); err != nil {
		return err
	}
	died, err := s.sandbox.Monitor(s.context)
	if err != nil {
		return err
	}
	go func() {
		if err := <-died; err != nil { // without an error it is the end of the watch
			s.stop(syscall.SIGKILL)
		}
	}()
	return nil
}

func (s *shim) stop(by syscall.Signal) {
	_ = s.remove()
	os.Exit(128 + int(by))
}

func (s *shim) remove() error {
	if err := s.sandbox.Stop(s.context, true); err != nil {
		return err
	}
	return s.sandbox.Delete(s.context)
}
