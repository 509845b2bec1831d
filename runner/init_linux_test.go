package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// startInNamespace starts an agent in a PID namespace of its own, as a container does. before is
// a command that starts the agent; without one, the agent is process 1.
func startInNamespace(t *testing.T, s *plane.Plane, before ...string) *agentProcess {
	t.Helper()
	dir, data := foldersOf(t, unprivileged)
	const enter = `mount --make-rprivate / && mount -t proc proc /proc && exec setpriv --reuid=%d --regid=%d --clear-groups -- "$@"`
	args := append([]string{"-c", fmt.Sprintf(enter, unprivileged, unprivileged), "sh"}, before...)
	args = append(args, filepath.Join(dir, "runner"), "agent", "--url", s.URL(), "--data", data, "--log-level", "debug")
	cmd := exec.Command("sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true}
	// Fargate's kernel has no Landlock. With Landlock, the accesses that this test looks for would be refused.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/must-not-reach-a-tool", "GORACE=atexit_sleep_ms=0",
		"FAIRLEAD_ENROLMENT_TOKEN=" + s.EnrolmentToken(), "FAIRLEAD_TOFU=" + filepath.Join(dir, "tofu"), "FAIRLEAD_PASS_ENV=GORACE", "FAIRLEAD_ISOLATION=off"}
	return startCommand(t, cmd, data)
}

// lookAround prints for each process of the namespace which of its secrets the tool can open.
const lookAround = `for p in /proc/[0-9]*; do
	c=$(tr '\0' ' ' <$p/cmdline 2>/dev/null)
	[ -n "$c" ] || continue
	for n in environ mem; do
		if (exec 3<$p/$n) 2>/dev/null; then echo "open: $n of $c"; else echo "refused: $n of $c"; fi
	done
	if ls $p/fd >/dev/null 2>&1; then echo "open: fd of $c"; else echo "refused: fd of $c"; fi
done`

// With the init process of ECS, process 1 ran as the tools' user, with the whole environment of the
// container. A tool read there the address of the task role's credentials.
func TestToolReadsNoEnvironmentOfAContainer(t *testing.T) {
	t.Parallel()
	look := func(t *testing.T, before ...string) (log string, program string) {
		s := plane.New(t, plane.Options{})
		a := startInNamespace(t, s, before...)
		ref := s.Push(module(lookAround))
		plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
		log = string(succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan)))).Log)
		s.Until("the agent reaps every process that it adopted", func() bool { return len(zombies(t, a.cmd.Process.Pid)) == 0 })
		return log, filepath.Join(filepath.Dir(a.Data), "runner")
	}
	t.Run("the agent is process 1", func(t *testing.T) {
		log, program := look(t)
		for _, what := range []string{"environ", "mem", "fd"} {
			for _, of := range []string{" agent --url", " step --dir"} {
				if want := "refused: " + what + " of " + program + of; !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
			}
			if !strings.Contains(log, "open: "+what+" of "+filepath.Join(filepath.Dir(program), "tofu")+" apply") {
				t.Errorf("the tool does not see its own %s, so the test sees nothing:\n%s", what, log)
			}
		}
		for line := range strings.Lines(log) {
			if _, of, ok := strings.Cut(line, "open: "); ok && strings.Contains(of, program) {
				t.Errorf("a tool can open %s", of)
			}
		}
	})
	t.Run("planted: an init process", func(t *testing.T) {
		log, _ := look(t, "sh", "-c", `"$@" & wait $!`, "init")
		if !strings.Contains(log, "open: environ of sh -c \"$@\" & wait $! init") {
			t.Errorf("the environment of an init process is not found:\n%s", log)
		}
	})
}

// In a customer's stack the step is process 1 of its task, and adopts each process whose parent has ended. It must reap them while
// the apply runs: a module that starts many would fill the task's process table. It must leave the end of the tool to the
// goroutine that waits for it, else the job fails.
func TestStepReapsWhileTheApplyRuns(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can make a PID namespace")
	}
	cloud, env := tasksOf(t)
	step := program.Build(t, "runner")
	cloud.Command = func(c ecstest.Container) *exec.Cmd {
		// A container's first process also leads a session.
		cmd := exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", "--mount-proc", "setsid", step}, c.Args...)...)
		cmd.Env = c.Env
		return cmd
	}
	s := plane.New(t, plane.Options{})
	startProgram(t, s, program.Build(t, "runner", "-tags=clusters"), "", env...)
	// cat waits for the end of both orphans: one left the session of the tool, the other one is in the tool's group.
	ref := s.Push(module(`echo "process 1: $(tr '\0' ' ' </proc/1/cmdline)"
(setsid cat /dev/null & cat /dev/null &) | cat
left() { grep -h '^[0-9]* (.*) Z 1 ' /proc/[0-9]*/stat 2>/dev/null; }
for i in $(seq 100); do [ -n "$(left)" ] || break; sleep 0.1; done
echo "left: $(left)."`))
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "http", ref))))
	log := string(succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan)))).Log)
	if !strings.Contains(log, "process 1: "+step+" step --dir") {
		t.Errorf("the step is not process 1:\n%s", log)
	}
	if !strings.Contains(log, "left: .") {
		t.Errorf("the step does not reap what it adopts while the apply runs:\n%s", log)
	}
}

// zombies returns the children of a process that ended and were not reaped.
func zombies(t *testing.T, pid int) (found []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // ended meanwhile
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if strings.HasPrefix(rest, fmt.Sprintf("Z %d ", pid)) {
			found = append(found, string(b))
		}
	}
	return found
}
