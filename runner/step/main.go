// Package step runs one job. It trades its launch token for the signed job spec, verifies the spec, runs the plugin,
// ships the log, renews the lease and reports the outcome. It is a separate process, so that a job can harm neither the
// agent nor another job.
//
// Exit codes: 0 if the control plane has the report, whether the job succeeded or not; 1 after an internal fault; 2 if the
// arguments are wrong; 3 if another attempt owns the lease; 4 if the control plane gave no job spec for the launch token;
// 5 if the report could not be delivered; 7 if the step was started ahead and got no job.
package step

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/transport"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/internal/secretsource"
	"github.com/fairlead/fairlead/runner/ledger/places"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/check"
	"github.com/fairlead/fairlead/runner/plugin/program"
	"github.com/fairlead/fairlead/runner/plugin/script"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Options of Main.
type Options struct {
	Version string    // version of the runner; "" if unknown
	Stderr  io.Writer // for faults; the agent reports its last lines
	Environ []string  // "name=value"; Main takes the launch token from it
	Parts   Parts     // the zero value: the program runs only jobs that need none of them
}

// Main runs `runner step` and returns its exit code. It handles the process's signals and adopts orphaned descendants, so
// call it once, in a process that does nothing else.
func Main(ctx context.Context, args []string, o Options) int {
	fs := flag.NewFlagSet("step", flag.ContinueOnError)
	fs.SetOutput(o.Stderr)
	path := fs.String("dir", "", "the step's folder, made by the agent")
	if err := fs.Parse(args); err != nil || *path == "" || fs.NArg() > 0 {
		fmt.Fprintln(o.Stderr, "usage: step --dir DIR (started by the agent, not by a person)")
		return attempt.ExitUsage
	}
	own, err := ownImage(o.Environ)
	if err != nil {
		fmt.Fprintln(o.Stderr, err)
		return attempt.ExitUsage
	}
	debug.SetGCPercent(400) // a step is short and holds little memory: collecting garbage costs more than it frees
	debug.SetMemoryLimit(64 << 20)

	var token, input, seed string
	var env []string
	given := map[string]string{}
	for _, v := range own.environ {
		if t, ok := strings.CutPrefix(v, attempt.TokenVariable+"="); ok {
			token = t
		} else if t, ok := strings.CutPrefix(v, executor.InputVariable+"="); ok {
			input = t
		} else if t, ok := strings.CutPrefix(v, attempt.SeedVariable+"="); ok {
			seed = t
		} else if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, runnerspec.GivenPrefix) {
			given[name] = value
			os.Unsetenv(name)
		} else {
			env = append(env, v)
		}
	}
	os.Unsetenv(attempt.TokenVariable) // no child inherits it; it is valid only once, for the start
	os.Unsetenv(executor.InputVariable)
	os.Unsetenv(attempt.SeedVariable)

	dir := attempt.Dir(*path)
	if input != "" {
		if _, err := attempt.Receive(*path, []byte(input)); err != nil {
			fmt.Fprintln(o.Stderr, err)
			return exitOf(err, attempt.ExitUsage)
		}
	}
	in, err := dir.Input()
	if err != nil {
		fmt.Fprintln(o.Stderr, err)
		return attempt.ExitUsage
	}
	log := slog.New(slog.NewTextHandler(o.Stderr, nil))
	// The tool runs as the same user. It must not read the launch token from this process. It must also not read
	// credentials that the environment refers to, such as the credentials of the runner's own role.
	if err := proctree.Hide(); err != nil {
		log.Warn("a tool can read the step's environment and memory", "err", err)
	}
	if err := proctree.BecomeSubreaper(); err != nil {
		log.Warn("processes that detach from the tool may outlive the job", "err", err)
	}
	// In a task of its own, the step is process 1. Without this, the ended processes of a long apply fill the process table.
	reaping, stopReaping := context.WithCancel(ctx)
	defer stopReaping()
	go proctree.ReapAdopted(reaping)

	// The transport keeps connections open. The control plane may also be the registry: a pull shortly after the start
	// then reuses the connection.
	connections, err := transport.New(in.CA)
	if err != nil {
		log.Error("cannot use the CA certificates that the agent trusts", "err", err)
		return attempt.ExitUsage
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, stopSignals(own.image)...)
	defer signal.Stop(signals)
	parts := o.Parts
	parts.ReadSecret = secretsource.Source{Given: given, AWS: parts.ReadSecret}.Read
	parts.OpenLedger = places.Opener{Bucket: parts.OpenLedger}.Open
	return Run(ctx, dir, in, token, Env{Version: o.Version, Image: own.image, Plugins: Plugins(dir, in, env, own.variables, parts), Log: log, Now: time.Now, Random: mathrand.Float64, NewID: randomID,
		Signals: signals, Transport: connections, Signal: proctree.SignalDescendants, Kill: proctree.KillDescendants,
		Parts: parts, Seed: seed, Secrets: valuesOf(in.SecretEnv, env), Confine: confined(in, env)})
}

// exitOf returns the step's exit code for err. If the disk is full, it is ExitDiskFull, so that the agent can report the
// full disk. For all other errors it is the parameter otherwise.
func exitOf(err error, otherwise int) int {
	if workspace.DiskFull(err) {
		return attempt.ExitDiskFull
	}
	return otherwise
}

// valuesOf returns the non-empty values of the variables with these names.
func valuesOf(names, env []string) []string {
	var values []string
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(names, name) && value != "" {
			values = append(values, value)
		}
	}
	return values
}

// Work runs jobs. In a step it is a plugin.Registry. The agent has another implementation, which sends the agent's log.
type Work interface {
	// Operations lists the operations of a plugin; none if the plugin is unknown.
	Operations(plugin string) []string
	// Names lists the plugins, for messages.
	Names() string
	// Run is like Run of plugin.Plugin.
	Run(ctx context.Context, spec plugin.Spec, env plugin.Env) (plugin.Result, error)
}

// Env is what a step gets from its process and machine. Every field but Version, Parts, Seed, Image, Secrets and Confine is
// required.
type Env struct {
	Version   string
	Plugins   Work
	Log       *slog.Logger // of the step itself; the job's log is separate
	Now       func() time.Time
	Random    func() float64    // in [0, 1), varies pauses
	NewID     func() string     // returns an ID of this step for the control plane, unique in every call
	Signals   <-chan os.Signal  // the first one interrupts the job
	Transport http.RoundTripper // for all requests of the step itself
	Signal    func()            // kills all processes that the job started, without waiting
	// Kill kills all processes that the job started, until none is left or ctx ends. It returns the number of killed
	// processes.
	Kill func(ctx context.Context) (int, error)
	Parts
	// Seed has the seeds of the install keys, for a step whose input names no place of them; "": there are none.
	Seed    string
	Image   string   // the image in which the step runs, by digest; "": that of the runner
	Secrets []string // values that no log may show, besides those of the job spec
	// Confine becomes the plugin's Env.Confine.
	Confine func(own confine.Own, f func() error) error
}

// Run runs the step whose folder is dir and returns its exit code.
func Run(ctx context.Context, dir attempt.Dir, in attempt.Input, token string, s Env) int {
	a := &execution{in: in, dir: dir, Env: s}
	if in.Warm != nil {
		launch, err := a.awaitJob(ctx, token)
		if err != nil {
			a.Log.Info("the step was started ahead and gets no job", "warm", in.Warm.ID, "err", err)
			return exitOf(err, attempt.ExitUnassigned)
		}
		token = launch
	}
	return a.run(ctx, token)
}

// Plugins returns the runner's plugins, configured for the step in dir. image has the variables of the step's own image.
func Plugins(dir attempt.Dir, in attempt.Input, env, image []string, parts Parts) plugin.Registry {
	mirror, _ := providers.ParseMirror(in.Mirror) // the agent refuses to start with a wrong one
	tf := terraform.New(terraform.Config{
		Data: in.Data, Work: in.WorkIn(), Tool: in.Tofu, PluginCache: in.PluginCache, Providers: in.Providers, Mirror: mirror, Buckets: parts.Buckets, Programs: programs(in), Install: dir.Path(providers.Private),
		CLIConfig: in.CLIConfig, PassEnv: in.PassEnv, Environ: env, CA: in.CA,
	})
	registry := plugin.Registry{
		check.Name:     check.Plugin{},
		terraform.Name: tf,
		script.Name:    script.New(script.Config{PassEnv: in.PassEnv, Environ: env, Image: image}),
	}
	if parts.Plugins != nil {
		maps.Copy(registry, parts.Plugins(in.PassEnv, env))
	}
	for _, t := range component.Types() {
		if t.Protocol {
			registry[t.Name] = program.New(t, program.Config{Folder: programs(in), PassEnv: in.PassEnv, Environ: env, OpenPlans: tf.OpenPlans})
		}
	}
	return registry
}

// programs returns the folder of the plugins' programs that belong to the runner: the operator's, else the folder plugins beside
// this program.
func programs(in attempt.Input) string {
	folder := in.Programs
	if folder == "" {
		self, err := os.Executable()
		if err != nil {
			return "" // no program is found there, and the job's message names it
		}
		folder = filepath.Join(filepath.Dir(self), "plugins")
	}
	if absolute, err := filepath.Abs(folder); err == nil {
		return absolute
	}
	return folder
}

func randomID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}
