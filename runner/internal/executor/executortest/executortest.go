// Package executortest is what every executor must do. The driver's test calls
// Run, and its TestMain calls Main first: the test binary itself is the step.
package executortest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/internal/executor"
)

// Subject is a driver under test.
type Subject struct {
	// New returns an executor on root, as each start of an agent makes one.
	New func(root string) executor.Executor
}

// limit is how long anything here may take. It is for failing, not for passing.
const limit = 30 * time.Second

// Main is the step, if the process was started as one. It returns otherwise.
func Main() {
	if len(os.Args) < 4 || os.Args[1] != "step" {
		return
	}
	dir, behaviour := os.Args[3], os.Args[4]
	say := func(name string) {
		os.WriteFile(filepath.Join(dir, name+".new"), []byte(strconv.Itoa(os.Getpid())), 0o600)
		os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name))
	}
	forever := func() { time.Sleep(time.Hour) }
	switch {
	case behaviour == "exit":
		code, _ := strconv.Atoi(os.Args[5])
		os.Exit(code)
	case behaviour == "environ":
		os.WriteFile(filepath.Join(dir, "environ.new"), []byte(strings.Join(os.Environ(), "\n")), 0o600)
		os.Rename(filepath.Join(dir, "environ.new"), filepath.Join(dir, "environ"))
		os.Exit(0)
	case behaviour == "obey":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		say("ready")
		<-c
		os.Exit(7)
	case behaviour == "until":
		say("ready")
		for {
			if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
				os.Exit(0)
			}
			time.Sleep(5 * time.Millisecond)
		}
	case behaviour == "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		say("ready")
		forever()
	case behaviour == "leak":
		// A child in the session, one in a session of its own, both with our
		// output, and then we end.
		for _, c := range []struct {
			name string
			attr *syscall.SysProcAttr
		}{{"child", nil}, {"escaped", &syscall.SysProcAttr{Setsid: true}}} {
			cmd := exec.Command(os.Args[0], "step", "--dir", dir, "stay", c.name)
			cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, c.attr
			if err := cmd.Start(); err != nil {
				os.Exit(1)
			}
		}
		for {
			_, err1 := os.Stat(filepath.Join(dir, "child"))
			_, err2 := os.Stat(filepath.Join(dir, "escaped"))
			if err1 == nil && err2 == nil {
				os.Exit(9)
			}
			time.Sleep(5 * time.Millisecond)
		}
	case behaviour == "stay":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		say(os.Args[5])
		forever()
	}
	os.Exit(99)
}

// Run checks a driver.
func Run(t *testing.T, s Subject) {
	start := func(t *testing.T, behaviour ...string) (executor.Executor, executor.Handle, string, string) {
		t.Helper()
		root := t.TempDir()
		dir := filepath.Join(root, "job_1-1")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		e := s.New(root)
		h, err := e.Start(t.Context(), executor.Step{ID: "job_1-1", Args: append([]string{"step", "--dir", dir}, behaviour...),
			Env: []string{"ONLY=this", "PATH=" + os.Getenv("PATH")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Kill(context.Background()) })
		return e, h, root, dir
	}

	t.Run("the exit code is seen", func(t *testing.T) {
		_, h, _, _ := start(t, "exit", "23")
		x := wait(t, h)
		if x.Code == nil || *x.Code != 23 || x.Reason != executor.Exited || x.Signal != "" {
			t.Errorf("ended as %+v", x)
		}
		if again := wait(t, h); again != x {
			t.Errorf("seen again as %+v", again)
		}
	})

	t.Run("nothing ambient is in the environment", func(t *testing.T) {
		t.Setenv("AMBIENT_SECRET", "x")
		_, h, _, dir := start(t, "environ")
		wait(t, h)
		b, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || strings.Contains(string(b), "AMBIENT_SECRET") || !strings.Contains(string(b), "ONLY=this") {
			t.Errorf("%v: %s", err, b)
		}
	})

	t.Run("an interrupt is heard", func(t *testing.T) {
		_, h, _, dir := start(t, "obey")
		pidIn(t, dir, "ready")
		if err := h.Interrupt(); err != nil {
			t.Fatal(err)
		}
		if x := wait(t, h); x.Code == nil || *x.Code != 7 {
			t.Errorf("ended as %+v", x)
		}
		if err := h.Interrupt(); err != nil {
			t.Errorf("an interrupt after the end: %v", err)
		}
	})

	t.Run("what does not obey is killed", func(t *testing.T) {
		_, h, _, dir := start(t, "stubborn")
		pid := pidIn(t, dir, "ready")
		if err := h.Interrupt(); err != nil {
			t.Fatal(err)
		}
		if err := h.Kill(bounded(t)); err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Error("Kill returned before the step was gone")
		}
		if x := wait(t, h); x.Code != nil || x.Signal != "killed" || x.Reason != executor.Killed {
			t.Errorf("ended as %+v", x)
		}
	})

	t.Run("what a step has left is killed, and holds nobody up", func(t *testing.T) {
		_, h, _, dir := start(t, "leak")
		x := wait(t, h) // though its output is still held open
		if x.Code == nil || *x.Code != 9 {
			t.Errorf("ended as %+v", x)
		}
		if err := h.Kill(bounded(t)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"child", "escaped"} {
			if alive(pidIn(t, dir, name)) {
				t.Errorf("the %s process is alive", name)
			}
		}
	})

	t.Run("a step outlives the context that it was started with", func(t *testing.T) {
		root := t.TempDir()
		dir := filepath.Join(root, "job_1-1")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		h, err := s.New(root).Start(ctx, executor.Step{ID: "job_1-1", Args: []string{"step", "--dir", dir, "until"}})
		if err != nil {
			t.Fatal(err)
		}
		pidIn(t, dir, "ready")
		cancel()
		touch(t, dir, "go")
		if x := wait(t, h); x.Code == nil || *x.Code != 0 {
			t.Errorf("ended as %+v", x)
		}
	})

	t.Run("another agent attaches, and sees the end", func(t *testing.T) {
		_, _, root, dir := start(t, "until")
		pid := pidIn(t, dir, "ready")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h, err := s.New(root).Attach(ctx, "job_1-1")
		if err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithCancel(t.Context())
		stop()
		if _, err := h.Wait(short); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait on an ended context: %v", err)
		}
		touch(t, dir, "go")
		if x := wait(t, h); x.Reason != executor.Vanished || alive(pid) {
			t.Errorf("ended as %+v", x)
		}
	})

	t.Run("another agent attaches, interrupts and kills", func(t *testing.T) {
		_, _, root, dir := start(t, "stubborn")
		pid := pidIn(t, dir, "ready")
		h, err := s.New(root).Attach(t.Context(), "job_1-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(h.Interrupt(), h.Kill(bounded(t))); err != nil {
			t.Fatal(err)
		}
		wait(t, h)
		if alive(pid) {
			t.Error("the step is alive")
		}
	})

	t.Run("a step that is gone is known to be, and its rest is killed", func(t *testing.T) {
		_, h, root, dir := start(t, "leak")
		wait(t, h)
		late, err := s.New(root).Attach(t.Context(), "job_1-1")
		if !errors.Is(err, executor.ErrGone) {
			t.Fatalf("attached: %v", err)
		}
		if err := late.Kill(bounded(t)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"child", "escaped"} {
			if alive(pidIn(t, dir, name)) {
				t.Errorf("the %s process is alive", name)
			}
		}
		if x := wait(t, late); x.Reason != executor.Vanished {
			t.Errorf("ended as %+v", x)
		}
	})

	t.Run("a step that was never started is gone", func(t *testing.T) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "job_2-1"), 0o700); err != nil {
			t.Fatal(err)
		}
		h, err := s.New(root).Attach(t.Context(), "job_2-1")
		if !errors.Is(err, executor.ErrGone) {
			t.Fatalf("attached: %v", err)
		}
		if err := h.Kill(bounded(t)); err != nil {
			t.Error(err)
		}
	})

	t.Run("a step that cannot be started is an error", func(t *testing.T) {
		if _, err := s.New(t.TempDir()).Start(t.Context(), executor.Step{ID: "job_3-1"}); err == nil {
			t.Error("started without a folder")
		}
	})
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func wait(t *testing.T, h executor.Handle) executor.Exit {
	t.Helper()
	x, err := h.Wait(bounded(t))
	if err != nil {
		t.Fatalf("the end was not seen: %v", err)
	}
	return x
}

func touch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pidIn waits for a file with a process number.
func pidIn(t *testing.T, dir, name string) int {
	t.Helper()
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			pid, err := strconv.Atoi(string(b))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no process has said %q", name)
	return 0
}

// alive reports whether the process is there and no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(b), ") Z ")
}
