package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/proctree/proctreetest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
)

// daemon is a process of a job that cannot be identified: it has left its session, its parent and its environment. It keeps
// one end of a pipe open, so the kernel reports when the daemon ends.
type daemon struct {
	path string
	end  *os.File // the other end of the pipe
}

func newDaemon(t *testing.T, folder string) daemon {
	t.Helper()
	d := daemon{path: filepath.Join(folder, "pipe")}
	err := errors.Join(unix.Mkfifo(d.path, 0o600), os.Chmod(d.path, 0o666))
	if err != nil {
		t.Fatal(err)
	}
	if d.end, err = os.OpenFile(d.path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.end.Close() })
	return d
}

// module returns a module whose apply starts the daemon, runs the other commands, and then runs until it is stopped.
func (d daemon) module(mark, also string) map[string]string {
	return module(`setsid env -i sh -c 'sh -c "exec 9>` + d.path + `; echo up >&9; exec sleep ` + mark + `" </dev/null >/dev/null 2>&1 &'; ` + also + `echo working; exec sleep ` + mark)
}

// up and gone report whether the daemon has started and whether it has ended.
func (d daemon) up() bool   { return d.polled(unix.POLLIN) }
func (d daemon) gone() bool { return d.polled(unix.POLLHUP) }

func (d daemon) polled(event int16) (set bool) {
	c, err := d.end.SyscallConn()
	if err != nil {
		return false
	}
	c.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, 0); err == nil {
			set = p[0].Revents&event != 0
		}
	})
	return set
}

// daemonised is an agent with a job that has started a daemon.
type daemonised struct {
	*agentProcess
	s    *plane.Plane
	job  string
	next func() *agentProcess // starts the next agent
}

// killStep kills the step, as a module can that knows the step's process number.
func (d *daemonised) killStep() { syscall.Kill(d.stepPID(d.job), syscall.SIGKILL) }

func (d *daemonised) shim() int { return d.started(d.job + "-*")[0].Shim.PID }

// takeover replaces the agent.
func (d *daemonised) takeover() {
	d.kill()
	_, beats := d.s.Counts()
	d.next()
	d.s.Until("the next agent watches the step", func() bool {
		_, now := d.s.Counts()
		return now > beats && len(d.s.LastBeat().Running) == 1
	})
}

// After a job has killed its own step, the job's daemon must not run while the next plan runs.
func TestNoDaemonOutlivesAKilledStep(t *testing.T) {
	kills := map[string]func(*daemonised){
		"the step": (*daemonised).killStep,
		"the step, then the agent": func(d *daemonised) {
			d.killStep()
			d.kill()
			d.next()
		},
		"the agent, then the step": func(d *daemonised) {
			d.kill()
			d.killStep()
			d.next()
		},
		"the step, after another agent attached to it": func(d *daemonised) {
			d.takeover()
			d.killStep()
		},
		"agent and step, and the record is deleted": func(d *daemonised) {
			d.kill()
			d.killStep()
			for _, f := range d.glob("steps/*/process.json") {
				os.Remove(f)
			}
			d.next()
		},
	}
	kills["agent and step, and the job wrote another record"] = func(d *daemonised) {
		d.kill()
		d.killStep()
		bystander := exec.Command("sleep", "3000")
		if err := bystander.Start(); err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { bystander.Process.Kill(); bystander.Wait() })
		for _, f := range d.glob("steps/*/process.json") {
			p, err := proctree.Stat(bystander.Process.Pid)
			other := fmt.Sprintf(`{"pid":%d,"start":%d,"keeper":{"pid":%[1]d,"start":%[2]d},"group":"/nowhere"}`, p.PID, p.Start)
			if err := errors.Join(err, os.WriteFile(f, []byte(other), 0o600)); err != nil {
				t.Error(err)
			}
		}
		d.next()
	}
	ofShims := map[string]func(*daemonised){
		"the shim": func(d *daemonised) { syscall.Kill(d.shim(), syscall.SIGKILL) },
		"the shim, then the step": func(d *daemonised) {
			syscall.Kill(d.shim(), syscall.SIGKILL)
			d.killStep()
		},
		"the step, then the shim": func(d *daemonised) {
			d.killStep()
			syscall.Kill(d.shim(), syscall.SIGKILL)
		},
		"the shim, after another agent attached to it": func(d *daemonised) {
			d.takeover()
			syscall.Kill(d.shim(), syscall.SIGKILL)
		},
		"the step, and the shim stopped before it": func(d *daemonised) {
			syscall.Kill(d.shim(), syscall.SIGSTOP)
			d.killStep()
		},
		"agent and step, and the shim stopped before them": func(d *daemonised) {
			syscall.Kill(d.shim(), syscall.SIGSTOP)
			d.killStep()
			d.kill()
			d.next()
		},
	}
	ofGroups := map[string]func(*daemonised){
		"the step, after its processes left the group": func(d *daemonised) {
			own := d.started(d.job + "-*")[0].Group
			b, err := os.ReadFile(filepath.Join(string(own), "cgroup.procs"))
			if err != nil {
				t.Error(err)
			}
			for pid := range strings.FieldsSeq(string(b)) {
				if err := os.WriteFile(filepath.Join(filepath.Dir(string(own)), "cgroup.procs"), []byte(pid), 0); err != nil {
					t.Error(err)
				}
			}
			d.killStep()
		},
	}
	for place, tc := range map[string]struct {
		group func(testing.TB) proctree.Group // the agent's own
		kills []map[string]func(*daemonised)
	}{
		"in a control group": {proctreetest.Group, []map[string]func(*daemonised){kills, ofGroups}},
		"below a shim":       {proctreetest.Barren, []map[string]func(*daemonised){kills, ofShims}},
	} {
		for _, kills := range tc.kills {
			for name, kill := range kills {
				t.Run(place+"/killed: "+name, func(t *testing.T) {
					t.Parallel()
					m, d := mark(), newDaemon(t, t.TempDir())
					var survived atomic.Bool
					s := plane.New(t, plane.Options{})
					s.Fail(proxy.Route(wire.ReportDied), -1, proxy.Before(func(*http.Request) { survived.Store(!d.gone()) }))
					attr := beginIn(t, tc.group(t))
					data := t.TempDir()
					start := func(env ...string) *agentProcess {
						return startWith(t, s.URL(), "", data, attr, append(env, "FAIRLEAD_TOFU="+tool(t))...)
					}
					a := &daemonised{s: s, agentProcess: start("FAIRLEAD_ENROLMENT_TOKEN=" + s.EnrolmentToken()), next: func() *agentProcess { return start() }}
					var plan func() string
					a.job, plan = applyingIn(t, s, d.module(m, ""))
					s.Until("the daemon is up", d.up)
					a.stepPID(a.job) // the daemon can be up before the agent has recorded the step
					if step := a.started(a.job + "-*")[0]; (step.Group == "") != strings.Contains(place, "shim") || (step.Shim == nil) == (step.Group == "") {
						t.Fatalf("the step is kept together by %+v", step)
					}
					kill(a)
					s.UntilDied(a.job)
					if survived.Load() {
						t.Error("the daemon was alive when the death of the step was reported")
					}
					if left := alive(m); len(left) > 0 {
						t.Errorf("processes alive when the death was reported: %q", left)
					}
					succeeded(t, s.UntilFinished(plan()))
				})
			}
		}
	}
}

// Under an agent without privileges, a module kills its step: it reads the step's process number from /proc. The module's
// daemon must not outlive the step.
func TestNoDaemonOutlivesAStepItsModuleKilled(t *testing.T) {
	t.Parallel()
	var d daemon
	var survived atomic.Bool
	s := plane.New(t, plane.Options{})
	s.Fail(proxy.Route(wire.ReportDied), -1, proxy.Before(func(*http.Request) { survived.Store(!d.gone()) }))
	a := startAs(t, s, unprivileged, "FAIRLEAD_ISOLATION=off") // isolation would prevent the kill
	d = newDaemon(t, filepath.Dir(a.Data))
	m := mark()
	ref := s.Push(d.module(m, `read up <`+d.path+`; read _ _ _ step _ </proc/$PPID/stat; kill -9 $step; `))
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	job := s.Queue(applySpec("apply", "local", ref, plan))
	if died := s.UntilDied(job).Died; died.Signal != "killed" {
		t.Errorf("reported as %+v", *died)
	}
	if left := alive(m); survived.Load() || len(left) > 0 {
		t.Errorf("processes alive when the death was reported: %q", left)
	}
}

// applyingIn is like applying, and also returns a function that queues the component's next plan.
func applyingIn(t *testing.T, s *plane.Plane, files map[string]string) (job string, plan func() string) {
	t.Helper()
	ref := s.Push(files)
	first := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	ap := applySpec("apply", "local", ref, first)
	ap.Grace = 2
	job = s.Queue(ap)
	s.UntilLog(job, "working")
	return job, func() string { return s.Queue(spec("plan", "local", ref)) }
}

// beginIn returns attributes that start a process in the control group, or nil without a group.
func beginIn(t *testing.T, g proctree.Group) *syscall.SysProcAttr {
	t.Helper()
	if g == "" {
		return nil
	}
	f, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
}

// The agent reaps orphaned processes of a job that have ended, once the step is gone. Otherwise they would fill the process
// table.
func TestOrphansOfAJobAreReaped(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	ref := s.Push(module(`(setsid true &) | cat`)) // waits for the orphan's end
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan))))
	s.Until("nothing left on disk", a.empty)
	all, err := proctree.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Parent == a.cmd.Process.Pid {
			t.Errorf("the agent still has a child: %+v", p)
		}
	}
}
