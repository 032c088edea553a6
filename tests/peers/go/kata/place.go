package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/kata-containers/kata-containers/src/runtime/pkg/resourcecontrol"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// asked is what to place. Without a pid, this process is the shim, and a child of it the VMM, with threads as vCPUs.
type asked struct {
	cell
	CPUs  string `json:"cpus"`
	VCPUs int    `json:"vcpus"`
	PID   int    `json:"pid"`
	TIDs  []int  `json:"tids"`
}

// thread is one that is told of, with its cgroup in each hierarchy by the hierarchy's controllers.
type thread struct {
	Role    string            `json:"role"`
	PID     int               `json:"pid"`
	TID     int               `json:"tid"`
	Cgroups map[string]string `json:"cgroups"`
}

type placed struct {
	Sandbox  string   `json:"sandbox"`
	Overhead string   `json:"overhead"`
	Threads  []thread `json:"threads"`
	Error    string   `json:"error"`
}

// placement does with the controllers what a sandbox of virtcontainers does, in its order.
type placement struct {
	asked
	sandbox, overhead resourcecontrol.ResourceController
	child             *exec.Cmd
}

// create makes the controllers and puts the first process into its own, before there is a VM. Kata's library panics
// where there is no systemd for a path in systemd's form.
func (p *placement) create() (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	path, err := controllerPath(p.CgroupsPath)
	if err != nil {
		return err
	}
	resources := specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: p.CPUs}}
	if p.sandbox, err = resourcecontrol.NewSandboxResourceController(path, &resources, p.Only); err != nil {
		return fmt.Errorf("sandbox controller: %w", err)
	}
	first := p.sandbox
	if !p.Only {
		p.overhead, err = resourcecontrol.NewResourceController(p.cell.overhead(), &specs.LinuxResources{})
		if err != nil {
			return fmt.Errorf("overhead controller: %w", err)
		}
		first = p.overhead
	}
	pid := p.PID
	if pid == 0 {
		pid = os.Getpid()
	}
	if err := first.AddProcess(pid); err != nil {
		return fmt.Errorf("AddProcess(%d): %w", pid, err)
	}
	if p.PID == 0 {
		return p.fork()
	}
	return nil
}

// fork starts the child, which inherits this process's cgroups as a VMM does.
func (p *placement) fork() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.child = exec.Command(program, "threads", strconv.Itoa(p.VCPUs))
	if _, err := p.child.StdinPipe(); err != nil { // its end is the child's end
		return err
	}
	out, err := p.child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.child.Start(); err != nil {
		return err
	}
	p.PID = p.child.Process.Pid
	return json.NewDecoder(out).Decode(&p.TIDs)
}

// update is what follows the start and each change of a container.
func (p *placement) update() error {
	if err := p.sandbox.UpdateCpuSet(p.CPUs, ""); err != nil {
		return fmt.Errorf("UpdateCpuSet: %w", err)
	}
	if p.Only {
		return nil
	}
	for _, tid := range p.TIDs {
		if err := p.sandbox.AddThread(tid); err != nil {
			return fmt.Errorf("AddThread(%d): %w", tid, err)
		}
	}
	return nil
}

// remove ends the child and takes the cgroups away; as with Kata, what fails leaves the rest where it is.
func (p *placement) remove() error {
	if p.child != nil {
		_ = p.child.Process.Kill()
		_ = p.child.Wait()
		p.child, p.PID = nil, 0
	}
	for _, controller := range []resourcecontrol.ResourceController{p.sandbox, p.overhead} {
		if controller == nil {
			continue
		}
		loaded, err := resourcecontrol.LoadResourceController(controller.ID())
		if err != nil {
			return fmt.Errorf("LoadResourceController(%q): %w", controller.ID(), err)
		}
		if err := loaded.MoveTo(loaded.Parent()); err != nil {
			return fmt.Errorf("MoveTo(%q): %w", loaded.Parent(), err)
		}
		if err := loaded.Delete(); err != nil {
			return fmt.Errorf("Delete(%q): %w", controller.ID(), err)
		}
	}
	p.sandbox, p.overhead = nil, nil
	return nil
}

func (p *placement) report(failed error) placed {
	result := placed{Threads: []thread{}}
	if failed != nil {
		result.Error = failed.Error()
	}
	if p.sandbox != nil {
		result.Sandbox = p.sandbox.ID()
	}
	if p.overhead != nil {
		result.Overhead = p.overhead.ID()
	}
	if p.child != nil || p.PID == 0 {
		result.Threads = append(result.Threads, threadsOf(os.Getpid(), "shim", nil)...)
	}
	if p.PID != 0 {
		result.Threads = append(result.Threads, threadsOf(p.PID, "vmm", p.TIDs)...)
	}
	return result
}

// threadsOf is what /proc says of a process that is still there.
func threadsOf(pid int, role string, vcpus []int) (found []thread) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pid))
	for _, file := range files {
		tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		one := thread{Role: role, PID: pid, TID: tid, Cgroups: map[string]string{}}
		for _, vcpu := range vcpus {
			if vcpu == tid {
				one.Role = "vcpu"
			}
		}
		text, _ := os.ReadFile(file)
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			if parts := strings.SplitN(line, ":", 3); len(parts) == 3 {
				one.Cgroups[parts[1]] = parts[2]
			}
		}
		found = append(found, one)
	}
	return found
}

// place reads a request and then words: report, update (as after a change), delete. Its end is a delete, too.
func place() error {
	in, out := bufio.NewReaderSize(os.Stdin, longestLine), json.NewEncoder(os.Stdout)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	p := &placement{}
	if err := json.Unmarshal(line, &p.asked); err != nil {
		return err
	}
	defer p.remove()
	if err = p.create(); err == nil {
		err = p.update()
	}
	for {
		if err := out.Encode(p.report(err)); err != nil {
			return err
		}
		word, failed := in.ReadString('\n')
		if failed == io.EOF {
			return nil
		}
		switch err = nil; strings.TrimSpace(word) {
		case "report":
		case "update":
			err = p.update()
		case "delete":
			err = p.remove()
		default:
			return fmt.Errorf("%q is none of report, update, delete", word)
		}
	}
}

// threads is the child: so many threads of their own, told by their ids, until stdin ends.
func threads(count string) error {
	number, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	tids, ids := []int{}, make(chan int)
	for range number {
		go func() {
			runtime.LockOSThread()
			ids <- unix.Gettid()
			select {}
		}()
		tids = append(tids, <-ids)
	}
	if err := json.NewEncoder(os.Stdout).Encode(tids); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
