package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/cgroups"
	"github.com/kata-containers/kata-containers/src/runtime/pkg/oci"
	vc "github.com/kata-containers/kata-containers/src/runtime/virtcontainers"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// patience is how long the shim may take for one request; Kata itself gives a VM ten seconds to start.
const patience = 60 * time.Second

// entry is what the runtime remembers of a container, below its root. Sandbox is the id of its sandbox, Shim the process
// of that, and PID the process that containerd is told of.
type entry struct {
	ID      string    `json:"id"`
	PID     int       `json:"pid"`
	Shim    int       `json:"shim"`
	Bundle  string    `json:"bundle"`
	Sandbox string    `json:"sandbox"`
	Created time.Time `json:"created"`
	Started bool      `json:"started"`
}

// ociRuntime is one call of it.
type ociRuntime struct {
	root, log, bundle, pidFile, resources string
	systemd, force                        bool
}

func (r *ociRuntime) folder(id string) string { return filepath.Join(r.root, id) }

// flags are those of runc that containerd's shim passes; what makes no difference here is read and dropped.
func (r *ociRuntime) flags(command string) *flag.FlagSet {
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	if command == "katart" {
		set.StringVar(&r.root, "root", "/run/katart", "")
		set.StringVar(&r.log, "log", "", "")
		set.BoolVar(&r.systemd, "systemd-cgroup", false, "")
		set.String("log-format", "", "")
		set.Bool("debug", false, "")
		return set
	}
	set.StringVar(&r.bundle, "bundle", ".", "")
	set.StringVar(&r.pidFile, "pid-file", "", "")
	set.StringVar(&r.resources, "resources", "-", "")
	set.BoolVar(&r.force, "force", false, "")
	for _, dropped := range []string{"no-pivot", "no-new-keyring", "all"} {
		set.Bool(dropped, false, "")
	}
	return set
}

func runtimeMain(arguments []string) error {
	r := &ociRuntime{}
	global := r.flags("katart")
	if err := global.Parse(arguments); err != nil || global.NArg() == 0 {
		return errors.Join(err, errors.New("usage: katart [--root, --log, ...] COMMAND [...] ID"))
	}
	command := r.flags(global.Arg(0))
	if err := command.Parse(global.Args()[1:]); err != nil {
		return err
	}
	err := r.do(global.Arg(0), command.Args())
	if err != nil && r.log != "" { // where containerd looks for the reason
		line, _ := json.Marshal(map[string]string{"level": "error", "msg": err.Error(), "time": time.Now().Format(time.RFC3339)})
		_ = os.WriteFile(r.log, append(line, '\n'), 0o600)
	}
	return err
}

func (r *ociRuntime) do(command string, arguments []string) error {
	if command == "features" {
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"ociVersionMin": "1.0.0", "ociVersionMax": "1.1.0"})
	}
	if len(arguments) == 0 {
		return fmt.Errorf("%s: the id is missing", command)
	}
	id := arguments[0]
	if command == "workload" {
		return workload(arguments[1])
	}
	if command == "create" {
		return r.create(id)
	}
	known, err := r.read(id)
	if err != nil {
		if command == "delete" && r.force {
			return nil
		}
		return err
	}
	switch command {
	case "start":
		known.Started = true
		return errors.Join(r.ask(known, request{Do: "start", ID: id}), r.write(known))
	case "state":
		return json.NewEncoder(os.Stdout).Encode(known.state())
	case "update":
		resources, err := r.readResources()
		if err != nil {
			return err
		}
		return r.ask(known, request{Do: "update", ID: id, Resources: resources})
	case "kill":
		return r.kill(known, append(arguments, "15")[1])
	case "delete":
		return r.remove(known)
	}
	return fmt.Errorf("katart has no command %q", command)
}

// create starts the shim of a sandbox, or the process of a container and tells the shim of it.
func (r *ociRuntime) create(id string) error {
	bundle, err := filepath.Abs(r.bundle)
	if err != nil {
		return err
	}
	spec, err := readSpec(bundle)
	if err != nil {
		return err
	}
	kind, err := oci.ContainerType(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.root, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(r.folder(id), 0o700); err != nil {
		return err
	}
	made := &entry{ID: id, Bundle: bundle, Sandbox: id, Created: time.Now()}
	if kind == vc.PodContainer {
		err = r.createContainer(made, spec)
	} else {
		err = r.createSandbox(made)
	}
	if err == nil {
		err = r.write(made)
	}
	if err == nil && r.pidFile != "" {
		err = os.WriteFile(r.pidFile, []byte(strconv.Itoa(made.PID)), 0o600)
	}
	if err != nil {
		_ = os.RemoveAll(r.folder(id))
	}
	return err
}

// fork starts one of our own programs in a session of its own, without standard streams; it outlives this process.
func fork(program string, arguments, environment []string, files ...*os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := &exec.Cmd{
		Path: filepath.Join(filepath.Dir(self), program), Args: append([]string{program}, arguments...),
		Env: append(os.Environ(), environment...), ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return command, command.Start()
}

func (r *ociRuntime) createContainer(made *entry, spec specs.Spec) (err error) {
	if made.Sandbox, err = oci.SandboxID(spec); err != nil {
		return err
	}
	sandbox, err := r.read(made.Sandbox)
	if err != nil {
		return err
	}
	made.Shim = sandbox.Shim
	if err := r.ask(made, request{Do: "create", ID: made.ID, Bundle: made.Bundle}); err != nil {
		return err
	}
	return made.forkWorkload()
}

func (e *entry) forkWorkload() error {
	command, err := fork("katart", []string{"workload", e.ID, strconv.Itoa(e.Shim)}, nil)
	if err == nil {
		e.PID = command.Process.Pid
	}
	return err
}

// workload is what containerd takes for a container: a process that ends by a signal, or with the sandbox's shim.
func workload(shim string) error {
	pid, err := strconv.Atoi(shim)
	if err != nil {
		return err
	}
	descriptor, err := unix.PidfdOpen(pid, 0)
	for err == nil || err == unix.EINTR {
		var ended int
		ended, err = unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, -1)
		if ended != 0 {
			os.Exit(137)
		}
	}
	return err
}

// createSandbox waits for the first word of the shim. containerd is told of the shim, but not with cgroup v2: its own
// shim would pass all controllers on to that process's cgroup, which Kata does not.
func (r *ociRuntime) createSandbox(made *entry) error {
	said, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer said.Close()
	parent, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", os.Getppid()))
	arguments := []string{"-namespace", "k8s.io", "-address", address(string(parent)), "-id", made.ID}
	environment := []string{"KATART_FOLDER=" + r.folder(made.ID), "KATART_BUNDLE=" + made.Bundle}
	if r.systemd {
		environment = append(environment, "KATART_SYSTEMD=1")
	}
	command, err := fork(shimName, arguments, environment, says)
	says.Close()
	if err != nil {
		return err
	}
	made.Shim, made.PID = command.Process.Pid, command.Process.Pid
	_ = said.SetReadDeadline(time.Now().Add(patience))
	words, err := io.ReadAll(said)
	if err == nil && string(words) != "ready" {
		err = fmt.Errorf("the shim says %q", words)
	}
	if err == nil && cgroups.Mode() == cgroups.Unified {
		err = made.forkWorkload()
	}
	if err != nil {
		_ = syscall.Kill(made.Shim, syscall.SIGKILL)
	}
	return err
}

// address is that of containerd, as its own shim has it on the command line.
func address(cmdline string) string {
	parts := strings.Split(cmdline, "\x00")
	for index, part := range parts[:len(parts)-1] {
		if part == "-address" {
			return parts[index+1]
		}
	}
	return "/run/containerd/containerd.sock"
}

// kill ends a sandbox by way of its shim, which takes the VM down with it, and signals the process of a container.
func (r *ociRuntime) kill(known *entry, named string) error {
	number, err := strconv.Atoi(named)
	if err != nil {
		number = map[string]int{"KILL": 9, "TERM": 15, "INT": 2, "HUP": 1, "QUIT": 3}[strings.TrimPrefix(named, "SIG")]
	}
	if number == 0 || !alive(known.PID) {
		return errors.New("container not running")
	}
	if known.Sandbox == known.ID {
		return r.ask(known, request{Do: "stop", ID: known.ID, Signal: number})
	}
	return syscall.Kill(known.PID, syscall.Signal(number))
}

// remove forgets a container. What a shim left behind that was killed, Kata's own clean-up takes away.
func (r *ociRuntime) remove(known *entry) error {
	if alive(known.PID) {
		if !r.force {
			return fmt.Errorf("container %s is running", known.ID)
		}
		if err := r.kill(known, "9"); err != nil && known.Sandbox == known.ID {
			_ = syscall.Kill(known.Shim, syscall.SIGKILL)
		}
	}
	if known.Sandbox != known.ID {
		_ = r.ask(known, request{Do: "delete", ID: known.ID}) // its sandbox may be gone
	} else if _, err := os.Stat(filepath.Join("/run/vc/sbs", known.ID)); err == nil {
		if err := vc.CleanupContainer(mocked(), known.ID, known.ID, true); err != nil {
			return err
		}
	}
	return os.RemoveAll(r.folder(known.ID))
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, found := strings.Cut(string(text), ") ")
	return err == nil && pid != 0 && found && state[0] != 'Z'
}

func (e *entry) state() specs.State {
	status := specs.StateStopped
	if alive(e.PID) {
		status = specs.StateCreated
		if e.Started {
			status = specs.StateRunning
		}
	}
	return specs.State{Version: specs.Version, ID: e.ID, Status: status, Pid: e.PID, Bundle: e.Bundle}
}

func (r *ociRuntime) read(id string) (*entry, error) {
	text, err := os.ReadFile(filepath.Join(r.folder(id), "state.json"))
	if err != nil {
		return nil, fmt.Errorf("container %s does not exist: %w", id, err)
	}
	known := &entry{}
	return known, json.Unmarshal(text, known)
}

func (r *ociRuntime) write(known *entry) error {
	text, err := json.Marshal(known)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.folder(known.ID), "state.json"), text, 0o600)
}

func (r *ociRuntime) readResources() (*specs.LinuxResources, error) {
	in := os.Stdin
	if r.resources != "-" {
		var err error
		if in, err = os.Open(r.resources); err != nil {
			return nil, err
		}
	}
	resources := &specs.LinuxResources{}
	return resources, json.NewDecoder(io.LimitReader(in, longestLine)).Decode(resources)
}

// ask has the sandbox's shim do something, and waits until it is done.
func (r *ociRuntime) ask(known *entry, asked request) error {
	shim, err := net.Dial("unix", filepath.Join(r.folder(known.Sandbox), "shim.sock"))
	if err != nil {
		return err
	}
	defer shim.Close()
	_ = shim.SetDeadline(time.Now().Add(patience))
	if err := json.NewEncoder(shim).Encode(asked); err != nil {
		return err
	}
	var failed string
	if err := json.NewDecoder(shim).Decode(&failed); err != nil {
		return err
	}
	if failed != "" {
		return errors.New(failed)
	}
	return nil
}
