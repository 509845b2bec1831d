// Package plugintest is the conformance suite of plugins.
package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
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
	// Slow returns a spec whose job runs until it is stopped. The job writes "working" to its log and has a short Grace, and the spec
	// has a sensitive variable with a text. nil:
	// the plugin has no such job.
	Slow func(t *testing.T, data string) plugin.Spec
	// Stubborn is as Slow, and its tool ignores the interrupt. nil: the plugin has no such job, or Slow is one.
	Stubborn func(t *testing.T, data string) plugin.Spec
	// Outputs returns a spec that succeeds, and the outputs that its job returns. nil: the plugin has no outputs.
	Outputs func(t *testing.T, data string) (plugin.Spec, map[string]wire.FullOutput)
	// Keeps reports whether a stopped job may leave a file of the data folder; nil: none.
	Keeps func(path string) bool
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
	var values []json.RawMessage
	for _, v := range spec.Vars {
		if v.Sensitive {
			values = append(values, v.Value)
		}
	}
	secrets := redact.New(values...)
	var out io.Writer = log // without secrets, the log's last bytes need no Close
	if len(values) > 0 {
		out = secrets.NewWriter(log)
	}
	return plugin.Env{Attempt: attempt, Workspace: held.Path, Log: out, Mask: secrets.String, Control: c,
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

	for name, slow := range map[string]func(*testing.T, string) plugin.Spec{"a slow job": s.Slow, "a tool that ignores the interrupt": s.Stubborn} {
		t.Run(name+" stops within its grace and keeps nothing", func(t *testing.T) {
			if slow == nil {
				t.Skip("this plugin has no such job")
			}
			data := t.TempDir()
			spec := slow(t, data)
			before := files(t, data)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := s.whileWorking(t, ctx, data, spec, func(plugin.Env) { cancel() })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want context.Canceled", err)
			}
			if err := workspace.Remove(data, "job_1-1"); err != nil {
				t.Fatal(err)
			}
			for path := range files(t, data) {
				if !before[path] && (s.Keeps == nil || !s.Keeps(path)) {
					t.Errorf("the stopped job keeps %s", path)
				}
			}
		})
	}

	t.Run("a killed tool is a typed failure", func(t *testing.T) {
		if s.Slow == nil {
			t.Skip("this plugin has no tool")
		}
		data := t.TempDir()
		spec := s.Slow(t, data)
		res, err := s.whileWorking(t, t.Context(), data, spec, func(env plugin.Env) {
			b, err := os.ReadFile(filepath.Join(env.Workspace, "tool.pid"))
			pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
			if err := errors.Join(err, perr); err != nil || pid <= 1 {
				t.Errorf("the workspace does not name the tool's process: %v", err)
				return
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		if plugin.ReasonOf(err) != fairlead.ReasonToolKilled || res.Mutated != job.Operation(spec.Operation).Mutates() || res.ExitCode != nil {
			t.Errorf("result %+v, error %v; want tool-killed, and a change only of an operation that mutates", res, err)
		}
	})

	t.Run("a secret is shown nowhere", func(t *testing.T) {
		if len(s.Sources) == 0 {
			t.Skip("this plugin has no variables")
		}
		const secret = "plugintest-5ecret-value"
		data, log := t.TempDir(), NewLog()
		spec := s.Good(1)
		spec.Vars = maps.Clone(spec.Vars)
		if spec.Vars == nil {
			spec.Vars = map[string]events.SpecVar{}
		}
		spec.Vars["plugintest_secret"] = events.SpecVar{Value: json.RawMessage(`"` + secret + `"`), Sensitive: true}
		res, err := s.New(data).Run(t.Context(), spec, Env(t, data, "job_1-1", log, s.Sources, spec))
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		shown, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String()+string(shown), secret) {
			t.Errorf("the secret is in the log or in the result:\n%s\n%s", log, shown)
		}
	})

	t.Run("a secret is in no command line", func(t *testing.T) {
		if s.Slow == nil || runtime.GOOS != "linux" {
			t.Skip("this plugin has no tool, or the system has no /proc")
		}
		data := t.TempDir()
		spec := s.Slow(t, data)
		var secrets [][]byte
		for _, v := range spec.Vars {
			var text string
			if v.Sensitive && json.Unmarshal(v.Value, &text) == nil {
				secrets = append(secrets, []byte(text))
			}
		}
		if len(secrets) == 0 {
			t.Fatal("the slow spec has no sensitive text: this suite looks for one")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.whileWorking(t, ctx, data, spec, func(plugin.Env) {
			defer cancel()
			lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil || len(lines) == 0 {
				t.Errorf("no process is listed: %v", err)
			}
			for _, line := range lines {
				b, _ := os.ReadFile(line) // a process may have ended
				for _, secret := range secrets {
					if bytes.Contains(b, secret) {
						t.Errorf("%s has a secret: %q", line, b)
					}
				}
			}
		})
	})

	t.Run("the customer's policy is asked before a plan is saved and before a change", func(t *testing.T) { underPolicy(t, s) })

	t.Run("outputs keep their types", func(t *testing.T) {
		if s.Outputs == nil {
			t.Skip("this plugin has no outputs")
		}
		data, log := t.TempDir(), NewLog()
		spec, want := s.Outputs(t, data)
		res, err := s.New(data).Run(t.Context(), spec, Env(t, data, "job_1-1", log, s.Sources, spec))
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if len(res.Outputs) != len(want) {
			t.Errorf("outputs %v, want %v", res.Outputs, want)
		}
		for name, w := range want {
			var got bytes.Buffer
			if err := json.Compact(&got, res.Outputs[name].Value); err != nil || got.String() != string(w.Value) || res.Outputs[name].Sensitive != w.Sensitive {
				t.Errorf("the output %s is %s (sensitive: %v), want %s (%v)", name, &got, res.Outputs[name].Sensitive, w.Value, w.Sensitive)
			}
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

// judge is a customer's policy that records the digests for which it is asked.
type judge struct {
	planned, applied []string
	refuses          string // the method that denies: "planned", "applies"; "": none
	changes          []changeset.Change
}

func (j *judge) Module(policy.Module) error { return nil }

func (j *judge) Planned(_ context.Context, b *changeset.Builder, _ *changeset.Base, digest string) error {
	j.planned, j.changes = append(j.planned, digest), b.All()
	return j.answer("planned")
}

func (j *judge) Applies(_ context.Context, _ *changeset.Builder, _ *changeset.Base, digest string) error {
	j.applied = append(j.applied, digest)
	return j.answer("applies")
}

func (j *judge) answer(method string) error {
	if j.refuses == method {
		return plugin.Errorf(fairlead.ReasonPolicyDenied, "denied by the policy of the suite")
	}
	return nil
}

// underPolicy checks that a plugin asks the customer's policy. A plugin that does not ask would change an account without the
// approval that the policy demands. A plugin whose good spec is no plan has nothing to ask.
func underPolicy(t *testing.T, s Subject) {
	data, plan := t.TempDir(), s.Good(1)
	if !job.Operation(plan.Operation).Plans() {
		return
	}
	plan.Job = "job_1"
	run := func(spec plugin.Spec, j *judge) (plugin.Result, error) {
		t.Helper()
		env := Env(t, data, string(spec.Job)+"-1", NewLog(), s.Sources, spec)
		env.Policy = j
		return s.New(data).Run(t.Context(), spec, env)
	}
	allows := &judge{}
	res, err := run(plan, allows)
	if err != nil {
		t.Fatal(err)
	}
	if len(allows.planned) != 1 || allows.planned[0] != res.Plan.Digest || len(allows.applied) != 0 || len(allows.changes) == 0 && !res.Plan.NoOp {
		t.Errorf("the plan %s asked the policy about the plans %v with %d changes, and about the applies %v", res.Plan.Digest, allows.planned, len(allows.changes), allows.applied)
	}
	if res, err := run(plan, &judge{refuses: "planned"}); plugin.ReasonOf(err) != fairlead.ReasonPolicyDenied || res.Plan != nil {
		t.Errorf("a denied plan: %+v, %v", res.Plan, err)
	}
	apply := plan
	apply.Job, apply.Operation = "job_2", string(job.Operation(plan.Operation).Mutation())
	apply.Plan = &events.PlanRef{Job: plan.Job, Digest: res.Plan.Digest}
	denies := &judge{refuses: "applies"}
	if res, err := run(apply, denies); plugin.ReasonOf(err) != fairlead.ReasonPolicyDenied || res.Mutated || len(denies.applied) != 1 || denies.applied[0] != apply.Plan.Digest {
		t.Errorf("a denied apply: changed %t, %v; the policy was asked about %v", res.Mutated, err, denies.applied)
	}
}

// whileWorking runs a slow spec, calls then when the job works, and returns the job's end.
func (s Subject) whileWorking(t *testing.T, ctx context.Context, data string, spec plugin.Spec, then func(plugin.Env)) (plugin.Result, error) {
	t.Helper()
	log := NewLog()
	env := Env(t, data, "job_1-1", log, s.Sources, spec)
	type end struct {
		res plugin.Result
		err error
	}
	done := make(chan end, 1)
	go func() {
		res, err := s.New(data).Run(ctx, spec, env)
		done <- end{res, err}
	}()
	log.until(t, "working")
	then(env)
	select {
	case e := <-done:
		return e.res, e.err
	case <-time.After(spec.Grace.Duration() + limit):
		t.Fatal("the job did not end after its grace period")
	}
	return plugin.Result{}, nil
}

// files returns the paths of the files below a folder.
func files(t *testing.T, folder string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
