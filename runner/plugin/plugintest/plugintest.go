// Package plugintest is the conformance suite of plugins.
package plugintest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Subject is a plugin under test.
type Subject struct {
	// New returns the plugin on a data folder.
	New func(data string) plugin.Plugin
	// Good returns a spec that succeeds. If the plugin has states, each spec has its own state. Specs of different n are
	// distinct.
	Good func(n int) plugin.Spec
	// Slow returns a spec whose job runs until it is stopped. The job writes "working" to its log and has a short Grace. nil:
	// the plugin has no such job.
	Slow func(t *testing.T, data string) plugin.Spec
	// Sources are the artifacts of the specs. The outer map's key is the digest; the inner map has file names and contents.
	Sources map[string]map[string]string
}

// limit bounds every wait in this suite. Only failing tests reach it.
const limit = 60 * time.Second

// Log is a log that tests can wait on. Safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{}
}

// NewLog returns an empty Log.
func NewLog() *Log { return &Log{more: make(chan struct{}, 1)} }

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *Log) until(t *testing.T, text string) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-timer.C:
			t.Fatalf("no %q in the log:\n%s", text, l)
		}
	}
}

// Env returns a plugin's Env without a control plane. Fetch takes artifacts from sources by digest; the part of a digest
// after # is the component's folder in the source. Env removes what the component's previous job left.
func Env(t *testing.T, data, attempt string, log *Log, sources map[string]map[string]string, spec plugin.Spec) plugin.Env {
	t.Helper()
	site := ""
	if spec.State != nil {
		install, component, _ := strings.Cut(spec.State.Key, "/")
		site = workspace.SiteOf(install, component)
	}
	held, err := workspace.Take(t.Context(), data, site, attempt, limit)
	if err == nil {
		err = held.Release() // the component's jobs run one after the other
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New("http://127.0.0.1:1", "", client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return plugin.Env{Attempt: attempt, Workspace: held.Path, Log: log, Mask: redact.New().String, Control: c,
		Fetch: func(_ context.Context, ref events.ArtifactRef, dst *os.Root) (string, error) {
			files, ok := sources[ref.Digest]
			if !ok {
				return "", plugin.Errorf(fairlead.ReasonArtifactMissing, "no artifact %s", ref.Digest)
			}
			for name, content := range files {
				if err := dst.MkdirAll(path.Dir(name), 0o700); err != nil {
					return "", err
				}
				perm := os.FileMode(0o600)
				if strings.HasPrefix(content, "#!") {
					perm = 0o700
				}
				if err := dst.WriteFile(name, []byte(content), perm); err != nil {
					return "", err
				}
			}
			_, folder, _ := strings.Cut(ref.Digest, "#")
			return path.Clean(folder), nil
		}}
}

// Run checks that a plugin conforms.
func Run(t *testing.T, s Subject) {
	t.Run("operations are declared once", func(t *testing.T) {
		seen := map[string]bool{}
		for _, op := range s.New(t.TempDir()).Operations() {
			if op == "" || seen[op] {
				t.Errorf("the plugin declares the operation %q, which is empty or repeated", op)
			}
			seen[op] = true
		}
		if len(seen) == 0 || !seen[s.Good(1).Operation] {
			t.Errorf("the plugin declares the operations %v, without that of the good spec", seen)
		}
	})

	t.Run("a good spec succeeds and logs", func(t *testing.T) {
		data, log := t.TempDir(), NewLog()
		spec := s.Good(1)
		if _, err := s.New(data).Run(t.Context(), spec, Env(t, data, "job_1-1", log, s.Sources, spec)); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if log.String() == "" {
			t.Error("the log is empty")
		}
	})

	t.Run("two jobs at once are independent", func(t *testing.T) {
		data := t.TempDir()
		p := s.New(data)
		var wg sync.WaitGroup
		for n, attempt := range []string{"job_1-1", "job_2-1"} {
			log, spec := NewLog(), s.Good(n)
			env := Env(t, data, attempt, log, s.Sources, spec)
			wg.Go(func() {
				if _, err := p.Run(t.Context(), spec, env); err != nil {
					t.Errorf("%s: %v\n%s", attempt, err, log)
				}
			})
		}
		wg.Wait()
	})

	t.Run("a canceled job does not start", func(t *testing.T) {
		data := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		spec := s.Good(1)
		res, err := s.New(data).Run(ctx, spec, Env(t, data, "job_1-1", NewLog(), s.Sources, spec))
		if !errors.Is(err, context.Canceled) || res.Mutated {
			t.Errorf("result %+v, error %v; want context.Canceled and no change", res, err)
		}
	})

	t.Run("a slow job stops within its grace", func(t *testing.T) {
		if s.Slow == nil {
			t.Skip("this plugin is never slow")
		}
		data, log := t.TempDir(), NewLog()
		spec := s.Slow(t, data)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := s.New(data).Run(ctx, spec, Env(t, data, "job_1-1", log, s.Sources, spec))
			done <- err
		}()
		log.until(t, "working")
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", err)
			}
		case <-time.After(spec.Grace.Duration() + limit):
			t.Fatal("the job did not end after its grace period")
		}
	})

	t.Run("kept files are private", func(t *testing.T) {
		data, log := t.TempDir(), NewLog()
		spec := s.Good(1)
		if _, err := s.New(data).Run(t.Context(), spec, Env(t, data, "job_1-1", log, s.Sources, spec)); err != nil {
			t.Fatal(err)
		}
		if err := workspace.Remove(data, "job_1-1"); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == data {
				return err
			}
			info, err := d.Info()
			// A private folder protects its content.
			if err == nil && d.IsDir() {
				if info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s has mode %v, want private", path, info.Mode())
				}
				return fs.SkipDir
			}
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v, want private", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
