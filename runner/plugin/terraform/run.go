package terraform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/proctree"
)

// maxSocketPath limits the path of the folder for temporary files. Providers make sockets there with about 20 more bytes
// of name, and the system limits a socket's path to 104 or 108 bytes.
const maxSocketPath = 80

// runner starts the tool through terraform-exec and ensures that it ends.
type runner struct {
	tf     *tfexec.Terraform
	mute   *tfexec.Terraform // its output does not reach the log
	tool   *tool
	notes  bool   // the started program writes the file pid
	pid    string // file with the process number of the running tool
	report string // file for the tool's JSON report, if it supports one
	grace  time.Duration
	errs   *head

	stdout io.Writer // the log
	stderr *both     // the log, and errs

	confine   func(func() error) error // runs the function that starts the tool
	env       map[string]string
	vars      map[string]events.SpecVar
	src       string // folder in which the tool runs
	workspace string
	dump      []byte       // the state that an apply printed because it could not save it
	announced bool         // an apply has announced a change
	own       atomic.Int64 // process number of a tool started without terraform-exec; 0: none
}

// newRunner returns a runner of the tool in dir on the given storage. The tool's output goes to log.
func (j *job) newRunner(dir string, state reached, log io.Writer) (*runner, error) {
	if bad := tfexec.ProhibitedEnv(j.spec.Env); len(bad) > 0 {
		return nil, plugin.Errorf(fairlead.ReasonEnvInvalid, "the job spec sets %s, which the runner sets itself", strings.Join(bad, ", "))
	}
	env := j.p.baseEnv(j.env.Workspace)
	if j.bare {
		// Collecting garbage takes a sixth of a run without providers, and such a run holds little memory. Providers
		// inherit the setting, and some of them hold gigabytes, so it is only for runs without providers.
		env["GOGC"] = "400"
	}
	maps.Copy(env, j.spec.Env)
	for _, k := range tfexec.ProhibitedEnv(env) {
		delete(env, k) // the operator passed it on, but it would break the plugin
	}
	tmp, err := j.tempDir()
	if err != nil {
		return nil, err
	}
	env["TMPDIR"] = tmp
	if err := os.MkdirAll(j.install(), 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of providers: %w", err)
	}
	env["TF_PLUGIN_CACHE_DIR"] = j.install()
	// Without it, a cached provider is downloaded again for each module without a lock file. It can make a lock file
	// incomplete for other platforms, but no lock file from here is used elsewhere.
	env["TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE"] = "1"
	env[pidVariable] = j.path("tool.pid")
	maps.Copy(env, state.env())
	j.env.Complete(env)

	r := &runner{tool: j.tool, notes: j.launch != j.tool.path, pid: env[pidVariable], report: j.path("report.json"), grace: j.spec.Grace.Duration(), errs: &head{}}
	for _, tf := range []**tfexec.Terraform{&r.tf, &r.mute} {
		if *tf, err = tfexec.NewTerraform(dir, j.launch); err != nil {
			return nil, fmt.Errorf("set up the tool: %w", err)
		}
		if err := errors.Join((*tf).SetEnv(env), (*tf).SetWaitDelay(r.grace+time.Second)); err != nil {
			return nil, fmt.Errorf("set up the tool: %w", err)
		}
	}
	r.stdout, r.stderr = log, &both{log, r.errs}
	r.tf.SetStdout(r.stdout)
	r.tf.SetStderr(r.stderr)
	r.env, r.vars, r.src, r.workspace = env, j.spec.Vars, dir, j.env.Workspace
	r.confine = j.confine(state.reach(), tmp)
	return r, nil
}

// tempDir returns the folder for the tool's temporary files. Only this job uses it.
func (j *job) tempDir() (string, error) {
	if dir := j.path("tmp"); len(dir) <= maxSocketPath {
		return dir, nil
	}
	if j.tmp == "" {
		dir, err := os.MkdirTemp("", "fairlead-")
		if err != nil {
			return "", fmt.Errorf("create a folder for temporary files: %w", err)
		}
		j.tmp = dir
	}
	return j.tmp, nil
}

// confine returns a function that starts tools confined. Of the runner's files they reach the job's workspace, what the
// storage needs, the tool and its configuration, and the providers; init may install the job's own.
func (j *job) confine(own confine.Own, tmp string) func(func() error) error {
	if j.env.Confine == nil {
		return func(f func() error) error { return f() }
	}
	own.Read = append(own.Read, j.tool.path, j.p.cfg.PluginCache)
	if j.p.cfg.CLIConfig != "" {
		own.Read = append(own.Read, j.p.cfg.CLIConfig)
	}
	own.Write = append(own.Write, j.env.Workspace, tmp, j.install())
	return func(f func() error) error { return j.env.Confine(own, f) }
}

// apply applies the saved plan, for do. terraform-exec would make the kernel kill the tool together with the step, and
// the tool could not save its state. So apply starts the command itself, otherwise like terraform-exec, without that.
func (r *runner) apply(ctx context.Context, plan string) error {
	c, t := &dumpCatcher{w: r.stderr}, &applyOutput{w: r.stdout}
	defer func() { r.dump, r.announced = c.end(), t.end() }()
	args := slices.Concat([]string{"apply", "-no-color", "-auto-approve", "-input=false"}, r.variables("apply"), []string{plan})
	env := r.env
	r.env = maps.Clone(env)
	maps.Copy(r.env, r.tool.kind.variablesOfApply(r.vars))
	defer func() { r.env = env }()
	if !proctree.SurvivorsSupported {
		stderr := r.stderr
		r.stderr = &both{c, &head{}}
		defer func() { r.stderr = stderr }()
		return r.start(ctx, t, args...)
	}
	return proctree.RunSurvivor(ctx, r.workspace, r.program(args...), t, c, r.began)
}

// variables returns kind.withVariables for this tool and workspace.
func (r *runner) variables(command string) []string {
	return r.tool.kind.withVariables(command, filepath.Join(r.workspace, variables))
}

func (r *runner) close() { os.Remove(r.pid) }

// toolError is a failed run of the tool.
type toolError struct {
	command   string
	code      *int
	signal    string
	stderr    string     // its beginning
	first     *diagnosis // the first error in its JSON report; nil: it has no report
	started   bool
	announced bool // for an apply: it has announced a change, so it may have made it
	err       error
}

func (e *toolError) Error() string {
	switch {
	case e.signal != "":
		return fmt.Sprintf("%s: the tool was killed by a signal: %s", e.command, e.signal)
	case e.code != nil:
		return fmt.Sprintf("%s: the tool exited with %d", e.command, *e.code)
	}
	return fmt.Sprintf("%s: the tool could not be run", e.command)
}

func (e *toolError) Unwrap() error { return e.err }

// do runs f, in which terraform-exec starts the tool once. terraform-exec interrupts the tool when ctx ends, and kills it
// after the grace period. do also ends the rest of the tool's process group: it could continue, and keep the pipes open
// that terraform-exec reads. When do returns, no process of the group is left. The error is a *toolError; it wraps ctx's
// error if ctx ended.
func (r *runner) do(ctx context.Context, command string, f func() error) error {
	os.Remove(r.pid)
	os.Remove(r.report)
	r.own.Store(0)
	r.errs.reset()
	r.announced = false
	done := make(chan error, 1)
	go func() { done <- r.confine(f) }()
	err := r.await(ctx, done)
	pid := r.running()
	reaped := false
	if pid > 0 {
		_, serr := proctree.Stat(pid)
		reaped = serr != nil
		killGroup(pid)
	}
	if err == nil {
		return nil
	}
	te := &toolError{command: command, stderr: colours().ReplaceAllString(r.errs.String(), ""), started: pid > 0 || !r.notes, announced: r.announced, first: firstError(r.report), err: err}
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			te.signal = ws.Signal().String()
		} else {
			code := ee.ExitCode()
			te.code = &code
		}
	} else if ctx.Err() != nil && reaped {
		// The tool had ended when the interrupt came. (terraform-exec abandons a tool that it started at the moment in
		// which ctx ended: that tool is not reaped, and has done nothing useful.)
		return nil
	}
	if ctx.Err() != nil {
		// Not joined with err: terraform-exec's error sometimes has an empty text.
		te.err = ctx.Err()
	}
	return te
}

// await waits for f. It handles what terraform-exec does not: the tool's process group.
func (r *runner) await(ctx context.Context, done <-chan error) error {
	const (
		calmly  = 500 * time.Millisecond
		closely = 20 * time.Millisecond
	)
	look := time.NewTicker(calmly)
	defer look.Stop()
	var deadline <-chan time.Time
	stopped := ctx.Done()
	ended := 0
	for {
		select {
		case err := <-done:
			return err
		case <-stopped:
			stopped = nil
			look.Reset(closely)
			deadline = time.After(r.grace)
		case <-deadline:
			deadline = nil
			if pid := r.running(); pid > 0 {
				killGroup(pid)
			}
		case <-look.C:
			// The tool has ended but terraform-exec still waits: another process of the tool's group keeps its output
			// open. The second look leaves time to read the tool's last output.
			pid := r.running()
			if p, err := proctree.Stat(pid); pid > 0 && err == nil && p.State == 'Z' {
				if ended++; ended >= 2 {
					killGroup(pid)
				}
			}
		}
	}
}

// running returns the process number of the tool that runs or just ended, or 0.
func (r *runner) running() int {
	if pid := r.own.Load(); pid > 0 {
		return int(pid)
	}
	b, err := os.ReadFile(r.pid)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return 0
	}
	return pid
}

// killGroup kills what is left of the tool's process group. terraform-exec makes a group only on Linux; elsewhere no group
// has this number, and nothing is killed.
func killGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }

// applyOutput passes on an apply's standard output, and records whether the tool has announced a change. The tool
// announces each change before it begins (`Creating...`, `Destroying...`). Any other line counts too, such as a warning,
// except the messages about acquiring and releasing the lock. Not safe for concurrent use.
type applyOutput struct {
	w         io.Writer
	line      []byte // the beginning of the last line
	announced bool
}

// lockLines are the lines that an apply may print before it begins.
var lockLines = []string{"Acquiring state lock.", "Releasing state lock."}

func (t *applyOutput) Write(p []byte) (int, error) {
	const enough = 64 // bytes that suffice to recognize a line
	for rest := p; len(rest) > 0 && !t.announced; {
		line, more, ends := bytes.Cut(rest, []byte{'\n'})
		t.line = append(t.line, line[:min(len(line), max(0, enough-len(t.line)))]...)
		if ends {
			t.end()
		}
		rest = more
	}
	return t.w.Write(p)
}

// end ends a line, and reports whether the tool has announced a change.
func (t *applyOutput) end() bool {
	line := strings.TrimSpace(string(t.line))
	t.line = t.line[:0]
	if line != "" && !slices.ContainsFunc(lockLines, func(s string) bool { return strings.HasPrefix(line, s) }) {
		t.announced = true
	}
	return t.announced
}

// both writes to two writers and returns the first one's error.
type both struct {
	a io.Writer
	b *head
}

func (w *both) Write(p []byte) (int, error) {
	w.b.Write(p)
	return w.a.Write(p)
}

// head keeps the beginning of its input: a tool's first error is the one that matters.
type head struct{ buf bytes.Buffer }

// maxDiagnostics limits how much of the tool's error output is kept for the message, in bytes.
const maxDiagnostics = 16 << 10

func (t *head) Write(p []byte) {
	if room := maxDiagnostics - t.buf.Len(); room > 0 {
		t.buf.Write(p[:min(room, len(p))])
	}
}

func (t *head) reset()         { t.buf.Reset() }
func (t *head) String() string { return t.buf.String() }
