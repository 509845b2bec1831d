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

// daemon is a process of a job that has left all by which it could be known: its
// session, its parent, and its environment. It holds one end of a pipe, so the
// kernel says when it is gone.
type daemon struct {
	path string
	end  *os.File // the other end
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

// module has an apply that starts the daemon, runs the other commands, and then
// works until it is stopped.
func (d daemon) module(mark, also string) map[string]string {
	return module(`setsid env -i sh -c 'sh -c "exec 9>` + d.path + `; echo up >&9; exec sleep ` + mark + `" </dev/null >/dev/null 2>&1 &'; ` + also + `echo working; exec sleep ` + mark)
}

// up and gone report whether the daemon has begun and whether it has ended.
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

// An agent with a job that has started a daemon.
type daemonised struct {
	*agentProcess
	s    *plane.Plane
	job  string
	next func() *agentProcess // starts the next agent
}

// killStep does what a module can that knows its own step.
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

// A daemon that a job had started ran on, beside the next plan, after the job
// had killed its own step.
func TestADaemonOutlivesTheStepThatItsJobKills(t *testing.T) {
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
		"the step, which another agent has taken over": func(d *daemonised) {
			d.takeover()
			d.killStep()
		},
		"agent and step, of which no record is left": func(d *daemonised) {
			d.kill()
			d.killStep()
			for _, f := range d.glob("steps/*/process.json") {
				os.Remove(f)
			}
			d.next()
		},
	}
	kills["agent and step, of which the job has written another record"] = func(d *daemonised) {
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
		"the shim, which another agent has taken over": func(d *daemonised) {
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
		"the step, when all of it has left the group": func(d *daemonised) {
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
					if step := a.started(a.job + "-*")[0]; (step.Group == "") != strings.Contains(place, "shim") || (step.Shim == nil) == (step.Group == "") {
						t.Fatalf("the step is kept by %+v", step)
					}
					kill(a)
					s.UntilDied(a.job)
					if survived.Load() {
						t.Error("the daemon was alive when the death of the step was reported")
					}
					if left := alive(m); len(left) > 0 {
						t.Errorf("when the death was reported, these were alive: %q", left)
					}
					succeeded(t, s.UntilFinished(plan()))
				})
			}
		}
	}
}

// The same by the module itself, under an agent without rights: it reads the
// number of its step in /proc.
func TestAModuleStartsADaemonAndKillsItsStep(t *testing.T) {
	var d daemon
	var survived atomic.Bool
	s := plane.New(t, plane.Options{})
	s.Fail(proxy.Route(wire.ReportDied), -1, proxy.Before(func(*http.Request) { survived.Store(!d.gone()) }))
	a := startAs(t, s, unprivileged, "FAIRLEAD_ISOLATION=off") // which would not let it kill its step
	d = newDaemon(t, filepath.Dir(a.Data))
	m := mark()
	ref := s.Push(d.module(m, `read up <`+d.path+`; read _ _ _ step _ </proc/$PPID/stat; kill -9 $step; `))
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	job := s.Queue(applySpec("apply", "local", ref, plan))
	if died := s.UntilDied(job).Died; died.Signal != "killed" {
		t.Errorf("reported as %+v", *died)
	}
	if left := alive(m); survived.Load() || len(left) > 0 {
		t.Errorf("when the death was reported, these were alive: %q", left)
	}
}

// applyingIn is applying, and returns what queues the next plan of the component.
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

// beginIn has a process begin in the control group, if there is one.
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

// What a job's processes have orphaned, and has ended, is reaped by the agent
// when the step is gone: it would otherwise fill the table of processes.
func TestWhatAJobHasOrphanedIsReaped(t *testing.T) {
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t))
	ref := s.Push(module(`(setsid true &) | cat`)) // which waits for the orphan's end
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan))))
	s.Until("nothing left on disk", a.empty)
	all, err := proctree.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Parent == a.cmd.Process.Pid {
			t.Errorf("the agent has a child: %+v", p)
		}
	}
}
