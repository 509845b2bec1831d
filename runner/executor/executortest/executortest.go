// Package executortest is the conformance suite of executors. The driver's test
// calls Run with an executor that runs the program which Program builds.
package executortest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// Subject is a driver under test, with its optional features.
type Subject struct {
	// New returns an executor whose steps' folders are root/<id>. Each call
	// corresponds to a start of an agent. Steps run Program with the step's
	// arguments. If Remote is set and via is not nil, all requests go through via.
	New func(t *testing.T, root string, via func(http.RoundTripper) http.RoundTripper) executor.Executor

	// Remote means that a server starts the steps. The server may be unavailable.
	Remote bool

	// KeepsExit means that until Remove, each agent can learn how a step ended.
	KeepsExit bool

	// NoImage returns an executor whose image does not exist. nil: the driver uses
	// no images.
	NoImage func(t *testing.T, root string) executor.Executor

	// OwnImage returns an image by digest, in which a step of New can run, and the path of a file in
	// it; "" if the server only simulates images. The image sets ImageSetting, and ONLY to another value than the step has. nil: the driver
	// starts no step in an image of its own.
	OwnImage func(t *testing.T) (image, file string)

	// Memory is the memory limit of a step of New, in MiB; 0: unlimited.
	Memory int

	// Confined means that steps have no capabilities and cannot gain capabilities,
	// can write only in their folders and in /tmp, and cannot have 200 processes.
	Confined bool

	// Described returns the description of a step for a user who may describe the
	// step but not run commands in it. nil: there is no such description.
	Described func(t *testing.T, e executor.Executor, id string) string
}

// ImageSetting is an environment variable that the image of OwnImage sets.
const ImageSetting = "VENDORS_SETTING"

// limit bounds each operation of a test. Only a failing test reaches it.
const limit = 60 * time.Second

// Program builds the step that the suite runs, statically, and returns its path.
func Program(t testing.TB) string {
	t.Helper()
	return program.Build(t, "runner/executor/executortest/step")
}

// bench is the environment of one test.
type bench struct {
	t    *testing.T
	s    Subject
	root string
	id   string
	dir  string
	e    executor.Executor
}

func (s Subject) bench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, s: s, root: filepath.Join(t.TempDir(), "steps"), id: fmt.Sprintf("job_%d-1", time.Now().UnixNano())}
	b.dir = filepath.Join(b.root, b.id)
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.e = s.New(t, b.root, nil)
	return b
}

func (b *bench) step(behaviour ...string) executor.Step {
	return executor.Step{ID: b.id, Args: append([]string{"step", "--dir", b.dir}, behaviour...),
		Env: []string{"ONLY=this"}, Secrets: []string{"TOKEN=hush-" + b.id}}
}

func (b *bench) start(behaviour ...string) executor.Handle {
	b.t.Helper()
	return b.begin(b.step(behaviour...))
}

func (b *bench) begin(s executor.Step) executor.Handle {
	b.t.Helper()
	h, err := b.e.Start(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.cleanup(h)
	return h
}

func (b *bench) cleanup(h executor.Handle) {
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := errors.Join(h.Kill(ctx), b.e.Remove(ctx, b.id)); err != nil {
			b.t.Error(err)
		}
	})
}

// later returns the executor of the next agent.
func (b *bench) later() executor.Executor { return b.s.New(b.t, b.root, nil) }

// Run runs the conformance suite.
func Run(t *testing.T, s Subject) {
	for _, test := range []struct {
		name string
		run  func(*bench)
	}{
		{"Wait returns the exit code", func(b *bench) {
			h := b.start("exit", "23")
			x := wait(b.t, h)
			if x.Code == nil || *x.Code != 23 || x.Cause != fairlead.CauseExited || x.Signal != "" {
				b.t.Errorf("ended as %s", show(x))
			}
			if again := wait(b.t, h); show(again) != show(x) {
				b.t.Errorf("the second Wait returned %s, the first %s", show(again), show(x))
			}
		}},
		{"a step gets its own variables and not those of the agent", func(b *bench) {
			b.t.Setenv("AMBIENT_SECRET", "x")
			wait(b.t, b.start("environ"))
			env := b.read("environ")
			if strings.Contains(env, "AMBIENT_SECRET") {
				b.t.Errorf("the step got a variable of the agent: %s", env)
			}
			for _, want := range []string{"ONLY=this", "TOKEN=hush-" + b.id} {
				if !strings.Contains(env+"\n", want+"\n") {
					b.t.Errorf("the step did not get %s: %s", want, env)
				}
			}
		}},
		{"no secret is in the arguments or the description", func(b *bench) {
			wait(b.t, b.start("arguments"))
			if args := b.read("arguments"); strings.Contains(args, "hush") {
				b.t.Errorf("the arguments are %q", args)
			}
			if b.s.Described != nil {
				if d := b.s.Described(b.t, b.e, b.id); d == "" || strings.Contains(d, "hush") {
					b.t.Errorf("the description is empty or contains a secret: %s", d)
				}
			}
		}},
		{"Output returns all output, or its end", func(b *bench) {
			h := b.start("speak", "2000")
			if x := wait(b.t, h); x.Code == nil || *x.Code != 3 {
				b.t.Errorf("ended as %s", show(x))
			}
			all, err := h.Output(bounded(b.t), 1<<20)
			if err != nil || !strings.HasPrefix(all, "line 1 of 2000\n") || !strings.HasSuffix(strings.TrimSpace(all), "line 2000 of 2000") {
				b.t.Errorf("%v; %d bytes: %.200q", err, len(all), all)
			}
			end, err := h.Output(bounded(b.t), 100)
			if err != nil || len(end) > 100 || !strings.HasSuffix(strings.TrimSpace(end), "line 2000 of 2000") {
				b.t.Errorf("the end: %v; %d bytes: %.200q", err, len(end), end)
			}
		}},
		{"a step receives an interrupt", func(b *bench) {
			h := b.start("obey")
			b.await("ready")
			if err := h.Interrupt(); err != nil {
				b.t.Fatal(err)
			}
			if x := wait(b.t, h); x.Code == nil || *x.Code != 7 {
				b.t.Errorf("ended as %s", show(x))
			}
			if err := h.Interrupt(); err != nil {
				b.t.Errorf("an interrupt after the end: %v", err)
			}
		}},
		{"Kill kills a step that ignores interrupts", func(b *bench) {
			h := b.start("stubborn")
			b.await("ready")
			if err := h.Interrupt(); err != nil {
				b.t.Fatal(err)
			}
			if err := h.Kill(bounded(b.t)); err != nil {
				b.t.Fatal(err)
			}
			if b.alive("ready") {
				b.t.Error("Kill returned before the step was gone")
			}
			if x := wait(b.t, h); x.Code != nil || x.Signal != "killed" || x.Cause != fairlead.CauseKilled {
				b.t.Errorf("ended as %s", show(x))
			}
		}},
		{"Kill kills leftover processes, and Wait ignores them", func(b *bench) {
			h := b.start("leak")
			x := wait(b.t, h) // leftover processes may still hold its output open
			if x.Code == nil || *x.Code != 9 {
				b.t.Errorf("ended as %s", show(x))
			}
			if err := h.Kill(bounded(b.t)); err != nil {
				b.t.Fatal(err)
			}
			for _, name := range []string{"child", "escaped"} {
				if !b.ends(name) {
					b.t.Errorf("the %s process is alive", name)
				}
			}
		}},
		{"a step continues after the context of its start ends", func(b *bench) {
			ctx, cancel := context.WithCancel(b.t.Context())
			h, err := b.e.Start(ctx, b.step("until"))
			if err != nil {
				b.t.Fatal(err)
			}
			b.cleanup(h)
			b.await("ready")
			cancel()
			b.touch("go")
			if x := wait(b.t, h); x.Code == nil || *x.Code != 0 {
				b.t.Errorf("ended as %s", show(x))
			}
		}},
		{"another agent attaches and sees the end", func(b *bench) {
			b.start("until")
			b.await("ready")
			h, err := b.later().Attach(b.t.Context(), b.id)
			if err != nil {
				b.t.Fatal(err)
			}
			short, stop := context.WithCancel(b.t.Context())
			stop()
			if _, err := h.Wait(short); !errors.Is(err, context.Canceled) {
				b.t.Errorf("Wait on an ended context: %v", err)
			}
			b.touch("go")
			x := wait(b.t, h)
			if b.alive("ready") || !b.s.KeepsExit && x.Cause != fairlead.CauseVanished || b.s.KeepsExit && (x.Code == nil || *x.Code != 0) {
				b.t.Errorf("ended as %s", show(x))
			}
		}},
		{"another agent attaches, interrupts and kills", func(b *bench) {
			b.start("stubborn")
			b.await("ready")
			h, err := b.later().Attach(b.t.Context(), b.id)
			if err != nil {
				b.t.Fatal(err)
			}
			if err := errors.Join(h.Interrupt(), h.Kill(bounded(b.t))); err != nil {
				b.t.Fatal(err)
			}
			wait(b.t, h)
			if b.alive("ready") {
				b.t.Error("the step is alive")
			}
		}},
		{"another agent attaches to a step that has ended", func(b *bench) {
			wait(b.t, b.start("leak"))
			late, err := b.later().Attach(b.t.Context(), b.id)
			if gone := errors.Is(err, executor.ErrGone); gone == b.s.KeepsExit || err != nil && !gone {
				b.t.Fatalf("attached: %v", err)
			}
			if err := late.Kill(bounded(b.t)); err != nil {
				b.t.Fatal(err)
			}
			for _, name := range []string{"child", "escaped"} {
				if !b.ends(name) {
					b.t.Errorf("the %s process is alive", name)
				}
			}
			x := wait(b.t, late)
			if !b.s.KeepsExit && x.Cause != fairlead.CauseVanished || b.s.KeepsExit && (x.Code == nil || *x.Code != 9) {
				b.t.Errorf("ended as %s", show(x))
			}
		}},
		{"Remove works twice, and the step is gone", func(b *bench) {
			wait(b.t, b.start("exit", "0"))
			for range 2 {
				if err := b.e.Remove(bounded(b.t), b.id); err != nil {
					b.t.Fatal(err)
				}
			}
			if _, err := b.later().Attach(b.t.Context(), b.id); !errors.Is(err, executor.ErrGone) {
				b.t.Errorf("attached: %v", err)
			}
		}},
		{"a search finds a step that runs, and none that has ended", func(b *bench) {
			finder, ok := b.e.(executor.Finder)
			if !ok {
				return // its steps do not outlive the agent and its disk
			}
			found := func() bool {
				ids, err := finder.Find(b.t.Context())
				if err != nil {
					b.t.Fatal(err)
				}
				return slices.Contains(ids, b.id)
			}
			if found() {
				b.t.Error("found before its start")
			}
			h := b.start("obey")
			testserver.Until(b.t, "the search finds the step", found)
			if err := h.Kill(bounded(b.t)); err != nil {
				b.t.Fatal(err)
			}
			wait(b.t, h)
			testserver.Until(b.t, "the search does not find the ended step", func() bool { return !found() })
		}},
		{"a step that was never started is gone", func(b *bench) {
			h, err := b.e.Attach(b.t.Context(), b.id)
			if !errors.Is(err, executor.ErrGone) {
				b.t.Fatalf("attached: %v", err)
			}
			if x := wait(b.t, h); x.Cause != fairlead.CauseVanished {
				b.t.Errorf("ended as %s", show(x))
			}
			if err := errors.Join(h.Kill(bounded(b.t)), b.e.Remove(bounded(b.t), b.id)); err != nil {
				b.t.Error(err)
			}
		}},
		{"a failed start leaves nothing", func(b *bench) {
			if !b.e.Place().Shared {
				return // a step without a folder can start
			}
			if err := os.Remove(b.dir); err != nil {
				b.t.Fatal(err)
			}
			if _, err := b.e.Start(b.t.Context(), b.step("exit", "0")); err == nil {
				b.t.Error("started without a folder")
			}
			if _, err := b.later().Attach(b.t.Context(), b.id); !errors.Is(err, executor.ErrGone) {
				b.t.Errorf("attached: %v", err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(s.bench(t)) })
	}
	s.limits(t)
	s.images(t)
	s.launches(t)
}

// limits tests the memory limit and the confinement of steps.
func (s Subject) limits(t *testing.T) {
	if s.Memory > 0 {
		t.Run("a step that exceeds its memory limit is killed", func(t *testing.T) {
			b := s.bench(t)
			x := wait(t, b.start("eat", strconv.Itoa(4*s.Memory)))
			if x.Cause != fairlead.CauseOutOfMemory || x.Message == "" || x.Code != nil {
				t.Errorf("ended as %s", show(x))
			}
			if _, err := os.Stat(filepath.Join(b.dir, "eaten")); err == nil {
				t.Error("the step could use more than its memory limit")
			}
		})
	}
	if s.Memory > 0 {
		t.Run("a step has the size that its component asks for", func(t *testing.T) {
			b := s.bench(t)
			larger := b.step("eat", strconv.Itoa(2*s.Memory))
			larger.CPU, larger.Memory = 250, runnerspec.Size(8*s.Memory)<<20
			if x := wait(t, b.begin(larger)); x.Code == nil || *x.Code != 0 {
				t.Errorf("a step with twice the configured limit ended as %s, but it asked for eight times the limit", show(x))
			}
		})
	}
	if s.Confined {
		t.Run("a step is confined", func(t *testing.T) {
			b := s.bench(t)
			wait(t, b.start("confined"))
			got := b.read("confined")
			for _, want := range []string{"CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1",
				"write /: false", "write /tmp: true", "write " + b.dir + ": true", "200 processes: false"} {
				if !strings.Contains(got, want+"\n") {
					t.Errorf("%q is missing:\n%s", want, got)
				}
			}
		})
	}
}

// images tests steps in an image of their own.
func (s Subject) images(t *testing.T) {
	if s.OwnImage == nil {
		t.Run("the place has no images of a step's own", func(t *testing.T) {
			if s.bench(t).e.Place().OwnImages {
				t.Error("the place claims that it starts steps in an image of their own, and no image is tested")
			}
		})
		return
	}
	image, file := s.OwnImage(t)
	in := func(b *bench, behaviour ...string) executor.Handle {
		step := b.step(behaviour...)
		step.Image = image
		return b.begin(step)
	}
	t.Run("a step in its own image sees the files of the image", func(t *testing.T) {
		if file == "" {
			return
		}
		for of, want := range map[string]string{image: "true", "": "false"} {
			b := s.bench(t)
			step := b.step("see", file)
			step.Image = of
			if x := wait(t, b.begin(step)); x.Code == nil || *x.Code != 0 {
				t.Fatalf("ended as %s", show(x))
			}
			if got := b.read("see"); got != want {
				t.Errorf("in the image %q, the file %s is visible: %s", of, file, got)
			}
		}
	})
	t.Run("a step knows its own image, and which variables are of the image", func(t *testing.T) {
		b := s.bench(t)
		if !b.e.Place().OwnImages {
			t.Error("the place denies that it starts steps in an image of their own")
		}
		wait(t, in(b, "environ"))
		got := map[string]string{}
		for line := range strings.Lines(b.read("environ")) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			got[name] = value
		}
		if got[executor.ImageVariable] != image || got["ONLY"] != "this" || got["TOKEN"] != "hush-"+b.id || got[ImageSetting] == "" {
			t.Errorf("the step has the variables %q", got)
		}
		names := strings.Split(got[executor.OwnVariable], ",")
		for _, own := range []string{"ONLY", "TOKEN", "HOME", executor.ImageVariable} {
			if !slices.Contains(names, own) {
				t.Errorf("the variable %s does not count as the step's own: %q", own, names)
			}
		}
		if slices.Contains(names, ImageSetting) {
			t.Errorf("a variable of the image counts as the step's own: %q", names)
		}
	})
	t.Run("a step in its own image receives an interrupt and leaves nothing", func(t *testing.T) {
		b := s.bench(t)
		h := in(b, "obey")
		b.await("ready")
		if err := h.Interrupt(); err != nil {
			t.Fatal(err)
		}
		if x := wait(t, h); x.Code == nil || *x.Code != 7 {
			t.Errorf("ended as %s", show(x))
		}
		if err := b.e.Remove(bounded(t), b.id); err != nil {
			t.Fatal(err)
		}
	})
	if s.Confined {
		t.Run("a step in its own image is confined", func(t *testing.T) {
			b := s.bench(t)
			wait(t, in(b, "confined"))
			got := b.read("confined")
			for _, want := range []string{"CapEff: 0000000000000000", "NoNewPrivs: 1", "write /: false", "write " + executor.ImageFolder + ": false", "write " + b.dir + ": true"} {
				if !strings.Contains(got, want+"\n") {
					t.Errorf("%q is missing:\n%s", want, got)
				}
			}
		})
	}
	t.Run("a missing image of a step's own is reported in time, with its cause", func(t *testing.T) {
		b := s.bench(t)
		step := b.step("exit", "0")
		step.Image = "127.0.0.1:1/missing/tools@sha256:" + strings.Repeat("0", 64)
		cause, message := s.neverStarts(t, b, step)
		if cause != fairlead.CauseImageUnavailable || !strings.Contains(message, step.Image) {
			t.Errorf("cause %q, message %q", cause, message)
		}
	})
}

// neverStarts returns the cause and the message of a step that does not start.
func (s Subject) neverStarts(t *testing.T, b *bench, step executor.Step) (cause fairlead.Cause, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), executor.LaunchTime+tolerance)
	defer cancel()
	h, err := b.e.Start(ctx, step)
	if err != nil {
		if l, ok := errors.AsType[*executor.LaunchError](err); ok {
			return l.Cause, l.Error()
		}
		return "", err.Error()
	}
	b.cleanup(h)
	x, err := h.Wait(ctx)
	if err != nil {
		return "", err.Error()
	}
	return x.Cause, x.Message
}

// launches tests failing launches.
func (s Subject) launches(t *testing.T) {
	if s.NoImage != nil {
		t.Run("a missing image is reported in time, with its cause", func(t *testing.T) {
			t.Parallel()
			b := s.bench(t)
			b.e = s.NoImage(t, b.root)
			cause, message := s.neverStarts(t, b, b.step("exit", "0"))
			if cause != fairlead.CauseImagePull || message == "" {
				t.Errorf("cause %q, message %q", cause, message)
			}
		})
	}
	if !s.Remote {
		return
	}
	t.Run("a server that is unavailable for a moment delays a step", func(t *testing.T) {
		t.Parallel()
		b := s.bench(t)
		var refused atomic.Int64
		b.e = s.New(t, b.root, func(next http.RoundTripper) http.RoundTripper {
			return trip(func(r *http.Request) (*http.Response, error) {
				if refused.Add(1) <= 3 {
					return nil, syscall.ECONNREFUSED
				}
				return next.RoundTrip(r)
			})
		})
		if x := wait(t, b.start("exit", "5")); x.Code == nil || *x.Code != 5 {
			t.Errorf("ended as %s", show(x))
		}
	})
	t.Run("a server that stays unavailable is reported in time", func(t *testing.T) {
		t.Parallel()
		b := s.bench(t)
		b.e = s.New(t, b.root, func(http.RoundTripper) http.RoundTripper {
			return trip(func(r *http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED })
		})
		ctx, cancel := context.WithTimeout(t.Context(), executor.LaunchTime+tolerance)
		defer cancel()
		if h, err := b.e.Start(ctx, b.step("exit", "0")); err == nil {
			b.cleanup(h)
			t.Error("the step was started")
		} else if ctx.Err() != nil {
			t.Errorf("Start did not return in time: %v", err)
		}
	})
	t.Run("a start whose answers are lost starts one step", func(t *testing.T) {
		t.Parallel()
		b := s.bench(t)
		var lost atomic.Int64
		b.e = s.New(t, b.root, func(next http.RoundTripper) http.RoundTripper {
			seen := &paths{}
			return trip(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil && r.Method == http.MethodPost && seen.first(r.URL.Path+r.Header.Get("X-Amz-Target")) {
					lost.Add(1)
					resp.Body.Close()
					return nil, syscall.ECONNRESET
				}
				return resp, err
			})
		})
		h := b.start("count")
		if x := wait(t, h); x.Code == nil || *x.Code != 0 {
			t.Errorf("ended as %s", show(x))
		}
		if n := strings.Count(b.read("count"), "\n"); n != 1 || lost.Load() == 0 {
			t.Errorf("%d steps ran, %d answers were lost", n, lost.Load())
		}
	})
}

// tolerance is the extra time for a busy machine.
const tolerance = 10 * time.Second
