// katahost runs what Kata's Go runtime does on the host, by Kata's own libraries. JSON lines in, JSON lines out:
//
//	katahost paths   the cgroup paths that Kata makes of a sandbox's cgroupsPath; touches nothing
//	katahost size    the size of the VM that Kata reads out of a sandbox's annotations
//	katahost vm      the size of the VM that Kata makes of a sandbox's annotations over a configuration, or why it refuses
//	katahost place   makes the cgroups, puts processes into them, and takes them away at the end
//	katahost volumes FOLDER   calls the library of direct volumes, for those in that folder
//
// Under the name katart it is an OCI runtime (runtime.go), as containerd-shim-kata-v2 the long-lived process of a
// sandbox (shim.go).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/containerd/cgroups"
	cgroupsv2 "github.com/containerd/cgroups/v2"
	"github.com/kata-containers/kata-containers/src/runtime/pkg/oci"
	"github.com/kata-containers/kata-containers/src/runtime/pkg/resourcecontrol"
	"github.com/opencontainers/runc/libcontainer/cgroups/systemd"
	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	shimName     = "containerd-shim-kata-v2"
	overheadRoot = "/kata_overhead/" // resCtrlKataOverheadID, which virtcontainers does not export
	longestLine  = 1 << 20
)

// cell is a sandbox as its OCI spec and Kata's configuration have it.
type cell struct {
	CgroupsPath string `json:"cgroupsPath"`
	Only        bool   `json:"only"`
	ID          string `json:"id"`
}

// paths is where Kata puts that sandbox, below the root of each hierarchy.
type paths struct {
	Systemd  bool   `json:"systemd"` // whether Kata takes the path for one of systemd's
	V1       string `json:"v1"`
	V2       string `json:"v2"`
	Overhead string `json:"overhead"`
	Error    string `json:"error"`
}

// controllerPath is what createResourceController hands to the library.
func controllerPath(path string) (string, error) {
	if resourcecontrol.IsSystemdCgroup(path) {
		return path, nil
	}
	return resourcecontrol.RenameCgroupPath(path)
}

func (c cell) overhead() string {
	if c.Only {
		return ""
	}
	return overheadRoot + c.ID
}

func (c cell) read() (result paths) {
	path, err := controllerPath(c.CgroupsPath)
	result.Systemd, result.Overhead = resourcecontrol.IsSystemdCgroup(path), c.overhead()
	switch {
	case err != nil:
	case result.Systemd && c.Only:
		result.V1, result.V2, err = scopePaths(path)
	default:
		if result.V1, err = resourcecontrol.ValidCgroupPath(path, false, result.Systemd); err == nil {
			result.V2, err = resourcecontrol.ValidCgroupPath(path, true, result.Systemd)
		}
	}
	if err != nil {
		result.Error = err.Error()
	}
	return result
}

// scopePaths are the folders of a scope, as the libraries find them to load them.
func scopePaths(path string) (v1, v2 string, err error) {
	parts := strings.Split(path, ":")
	slice, unit := parts[0], parts[1]+"-"+parts[2]+".scope"
	expanded, err := systemd.ExpandSlice(slice)
	if err != nil {
		return "", "", err
	}
	if v1, err = cgroups.Slice(expanded, unit)(cgroups.Cpu); err != nil {
		return "", "", err
	}
	manager, err := cgroupsv2.LoadSystemd(slice, unit)
	if err != nil {
		return "", "", err
	}
	v2 = reflect.ValueOf(manager).Elem().FieldByName("path").String()
	return v1, strings.TrimPrefix(v2, "/sys/fs/cgroup"), nil
}

// size is that of a VM, on top of the configuration's.
type size struct {
	CPUs      float32 `json:"cpus"`
	MemoryMiB uint32  `json:"memoryMiB"`
}

func sizeOf(spec specs.Spec) size {
	cpus, memory := oci.CalculateSandboxSizing(&spec)
	return size{CPUs: cpus, MemoryMiB: memory}
}

// vm is a VM's size over its configuration.
type vm struct {
	Annotations       map[string]string `json:"annotations,omitempty"`
	EnableAnnotations []string          `json:"enableAnnotations,omitempty"`
	VCPUs             float32           `json:"vcpus"`
	MemoryMiB         uint32            `json:"memoryMiB"`
	Error             string            `json:"error"`
}

func vmOf(asked vm) vm {
	spec := specs.Spec{Annotations: asked.Annotations, Root: &specs.Root{}, Linux: &specs.Linux{}}
	spec.Process = &specs.Process{Capabilities: &specs.LinuxCapabilities{}}
	var config configuration
	qemu := &config.Hypervisor.Qemu
	qemu.DefaultVCPUs, qemu.DefaultMemory, qemu.EnableAnnotations = asked.VCPUs, asked.MemoryMiB, asked.EnableAnnotations
	made, err := sandboxConfig(spec, config, "", "vm", false)
	if err != nil {
		return vm{Error: err.Error()}
	}
	return vm{VCPUs: made.HypervisorConfig.NumVCPUsF, MemoryMiB: made.HypervisorConfig.MemorySize}
}

// each answers every line of stdin.
func each[Asked, Answered any](answer func(Asked) Answered) error {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		var asked Asked
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			return err
		}
		if err := out.Encode(answer(asked)); err != nil {
			return err
		}
	}
	return in.Err()
}

func run(name string, arguments []string) error {
	switch {
	case name == shimName:
		return shimMain()
	case name == "katart":
		return runtimeMain(arguments)
	case len(arguments) == 1 && arguments[0] == "paths":
		return each(cell.read)
	case len(arguments) == 1 && arguments[0] == "size":
		return each(sizeOf)
	case len(arguments) == 1 && arguments[0] == "vm":
		return each(vmOf)
	case len(arguments) == 1 && arguments[0] == "place":
		return place()
	case len(arguments) == 2 && arguments[0] == "volumes":
		return volumes(arguments[1])
	case len(arguments) == 2 && arguments[0] == "threads":
		return threads(arguments[1])
	}
	return fmt.Errorf("usage: katahost paths|size|vm|place, or by the name katart as an OCI runtime")
}

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(1)
	}
}
