package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/test/plane"
)

// hostile is an executor like docker whose jobs write files into their step's folder and then kill the step.
type hostile struct {
	data string
	fill func(dir string) // writes the job's files into the step's folder
}

// Place implements executor.Executor.
func (h *hostile) Place() executor.Place {
	return executor.Place{Data: h.data, Shared: true, KillFor: time.Second}
}

// Start implements executor.Executor.
func (h *hostile) Start(_ context.Context, s executor.Step) (executor.Handle, error) {
	h.fill(filepath.Join(h.data, stepsFolder, s.ID))
	return dead(s.ID), nil
}

// Attach implements executor.Executor.
func (h *hostile) Attach(_ context.Context, id string) (executor.Handle, error) { return dead(id), nil }

// Remove implements executor.Executor.
func (h *hostile) Remove(context.Context, string) error { return nil }

// dead is a step that was killed.
type dead string

// ID implements executor.Handle.
func (d dead) ID() string { return string(d) }

// Wait implements executor.Handle.
func (d dead) Wait(context.Context) (executor.Exit, error) {
	return executor.Exit{Signal: "killed", Cause: fairlead.CauseKilled}, nil
}

// Interrupt implements executor.Handle.
func (d dead) Interrupt() error { return nil }

// Kill implements executor.Handle.
func (d dead) Kill(context.Context) error { return nil }

// Output implements executor.Handle.
func (d dead) Output(context.Context, int) (string, error) { return "", nil }

// A job in a container can write any file into the folder of its step, such as a link to another file. The agent must not
// read or write this other file, and no file of the job may block the agent.
func TestAgentFollowsNoFileOfAStepsFolder(t *testing.T) {
	const secret = "the runner's secret"
	for name, plant := range map[string]func(path, secret string) error{
		"a symlink to the key":         func(path, secret string) error { return os.Symlink(secret, path) },
		"a symlink to an endless file": func(path, _ string) error { return os.Symlink("/dev/zero", path) },
		"a pipe without a writer":      func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"a folder":                     func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"a file as large as the disk":  func(path, _ string) error { return sparse(path, 1<<40) },
	} {
		t.Run(name, func(t *testing.T) {
			s := plane.New(t, plane.Options{})
			cfg := settings(t, s)
			cfg.StatusAddress = "127.0.0.1:0" // makes the agent also read the step's counts
			if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
				t.Fatal(err)
			}
			key := filepath.Join(cfg.Data, "key-of-the-test")
			if err := os.WriteFile(key, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			e := &hostile{data: cfg.Data, fill: func(dir string) {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Error(err)
				}
				for _, e := range entries {
					if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
						t.Error(err)
					}
				}
				for _, file := range []string{"step.json", "finished.new", "died.json", "died.json.new", "renew", "log-end.json", "tally.json",
					"stdout", "stderr", "log", "configuration.json", "process.json"} {
					if err := plant(filepath.Join(dir, file), key); err != nil {
						t.Error(err)
					}
				}
			}}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, cfg, quiet(), Options{Environ: os.Environ(), Executor: e}) }()
			j := s.UntilDied(s.Queue(events.JobSpec{Plugin: "check", Operation: "check", Timeout: 60, Grace: 1}))
			if strings.Contains(j.Died.Message, secret) || strings.Contains(string(j.Log), secret) {
				t.Errorf("the report of the death or the log holds the secret: %q, log %q", j.Died.Message, j.Log)
			}
			if j.Died.Reason != string(fairlead.CauseKilled) || j.Died.Log != nil {
				t.Errorf("the agent reported the death %+v, want reason %s", *j.Died, fairlead.CauseKilled)
			}
			if b, err := os.ReadFile(key); err != nil || string(b) != secret {
				t.Errorf("the runner's file holds %q, want %q: %v", b, secret, err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// sparse makes a file of size bytes that takes no disk space.
func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// The next agent reads the records that the previous agent kept. It ignores forged records in the step's folder, which
// the job can write.
func TestAJobCannotForgeTheRecordsOfItsAttempt(t *testing.T) {
	s := plane.New(t, plane.Options{})
	cfg := settings(t, s)
	e := &hostile{data: cfg.Data, fill: func(dir string) {
		forged := map[string]string{
			"died.json":          `{"epoch":1,"reason":"launch-failed","message":"forged"}`,
			"configuration.json": `{"revision":"forged","runner":{}}`,
			"step.json":          `{"v":1,"grace_ns":9000000000000000000}`,
		}
		for file, content := range forged {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Error(err)
			}
		}
	}}
	a, err := open(t.Context(), cfg, Options{Environ: os.Environ(), Executor: e}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	job := s.Queue(events.JobSpec{Plugin: "check", Operation: "check", Timeout: 60, Grace: 1})
	claim, err := a.work.next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := a.start(t.Context(), job+"-1", claim)
	if err != nil {
		t.Fatal(err)
	}
	a.lock.Close() // as if the agent was killed; now the next agent starts

	next, err := open(t.Context(), cfg, Options{Environ: os.Environ(), Executor: e}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer next.lock.Close()
	if err := next.reattach(t.Context()); err != nil {
		t.Fatal(err)
	}
	next.mu.Lock()
	if st := next.steps[h.ID()]; st != nil && st.grace > defaultGrace {
		t.Errorf("the step has a grace of %v, want at most %v", st.grace, defaultGrace)
	}
	next.mu.Unlock()
	next.running.Wait()
	if j := s.UntilDied(job); j.Died.Reason != string(fairlead.CauseKilled) || strings.Contains(j.Died.Message, "forged") {
		t.Errorf("the agent reported the death %+v, want reason %s", *j.Died, fairlead.CauseKilled)
	}
	for _, folder := range []string{stepsFolder, "attempts"} {
		if left, _ := os.ReadDir(filepath.Join(cfg.Data, folder)); len(left) != 0 {
			t.Errorf("the folder %s still holds %v", folder, left)
		}
	}
}
