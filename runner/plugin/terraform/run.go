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
	tf         *tfexec.Terraform
	unlogged   *tfexec.Terraform // runs the same tool, but the tool's output does not reach the log
	tool       *tool
	writesPID  bool   // terraform-exec starts the launcher, which writes the file pid
	pid        string // file with the process number of the running tool
	report     string // file for the tool's JSON report, if it supports one
	grace      time.Duration
	stderrHead *headWriter

	stdout io.Writer  // the log
	stderr *teeWriter // the log, and stderrHead

	confine      func(func() error) error // runs the function that starts the tool
	env          map[string]string
	vars         map[string]events.SpecVar
	src          string // folder in which the tool runs
	workspace    string
	printedState []byte       // the state that an apply printed because it could not save it
	announced    bool         // an apply has announced a change
	ownPID       atomic.Int64 // process number of a tool started without terraform-exec; 0: none
}

// newRunner returns a runner of the tool in dir on the given storage. The tool's output goes to log.
func (j *job) newRunner(dir string, state access, log io.Writer) (*runner, error) {
	if bad := tfexec.ProhibitedEnv(j.spec.Env); len(bad) > 0 {
		return nil, plugin.Errorf(fairlead.ReasonEnvInvalid, "the job spec sets %s, which the runner sets itself", strings.Join(bad, ", "))
	}
	env := j.p.baseEnv(j.env.Workspace)
	if j.needsNothing {
		// In a run without providers, collecting garbage takes a sixth of the time, and the tool uses little memory.
		// Providers inherit the setting, and some providers use gigabytes, so only runs without providers get it.
		env["GOGC"] = "400"
	}
	maps.Copy(env, j.spec.Env)
	for _, k := range tfexec.ProhibitedEnv(env) {
		delete(env, k) // the operator passes this variable on, but terraform-exec refuses it
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
	// Without this setting, the tool downloads a cached provider again for each module without a lock file. With the
	// setting, a lock file can lack the hashes of other platforms. That is harmless, because a lock file that is made here
	// is not used on another platform.
	env["TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE"] = "1"
	env[pidVariable] = j.path("tool.pid")
	maps.Copy(env, state.env())
	j.env.Complete(env)

	r := &runner{tool: j.tool, writesPID: j.toolProgram != j.tool.path, pid: env[pidVariable], report: j.path("report.json"), grace: j.spec.Grace.Duration(), stderrHead: &headWriter{}}
	for _, tf := range []**tfexec.Terraform{&r.tf, &r.unlogged} {
		if *tf, err = tfexec.NewTerraform(dir, j.toolProgram); err != nil {
			return nil, fmt.Errorf("set up the tool: %w", err)
		}
		if err := errors.Join((*tf).SetEnv(env), (*tf).SetWaitDelay(r.grace+time.Second)); err != nil {
			return nil, fmt.Errorf("set up the tool: %w", err)
		}
	}
	r.stdout, r.stderr = log, &teeWriter{log, r.stderrHead}
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

// confine returns a function that starts tools confined. Of the runner's files, the tools can access the job's workspace,
// the files in the parameter own, which the storage needs, the tool and its configuration, and the providers. The tools can
// write to the folder into which init installs providers.
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

// apply applies the saved plan. The method do calls apply. terraform-exec would make the kernel kill the tool together with
// the step, and the tool could not save its state. So apply starts the command itself. It starts the command like
// terraform-exec, but a tool that it starts can outlive the step.
func (r *runner) apply(ctx context.Context, plan string) error {
	c, t := &dumpCatcher{w: r.stderr}, &applyOutput{w: r.stdout}
	defer func() { r.printedState, r.announced = c.end(), t.end() }()
	args := slices.Concat([]string{"apply", "-no-color", "-auto-approve", "-input=false"}, r.variables("apply"), []string{plan})
	env := r.env
	r.env = maps.Clone(env)
	maps.Copy(r.env, r.tool.kind.applyEnvironment(r.vars))
	defer func() { r.env = env }()
	if !proctree.SurvivorsSupported {
		stderr := r.stderr
		r.stderr = &teeWriter{c, &headWriter{}}
		defer func() { r.stderr = stderr }()
		return r.start(ctx, t, args...)
	}
	return proctree.RunSurvivor(ctx, r.workspace, r.program(args...), t, c, r.recordPID)
}

// variables returns the arguments that pass the variables to a command; see kind.withVariables.
func (r *runner) variables(command string) []string {
	return r.tool.kind.withVariables(command, filepath.Join(r.workspace, variables))
}

func (r *runner) close() { os.Remove(r.pid) }

// toolError is a failed run of the tool.
type toolError struct {
	command   string
	code      *int
	signal    string
	stderr    string     // the beginning of its standard error
	first     *diagnosis // the first error in its JSON report; nil: it has no report
	started   bool
	announced bool // the tool has announced a change, so it may have made the change; only an apply sets this field
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

// do runs f, which starts the tool once and interrupts it when ctx ends. do kills the tool after the grace period. It also
// kills the other processes of the tool's group, which could continue and keep the pipes open from which f reads. When do
// returns, no process of the group is left. The error is a *toolError. If ctx ended, it wraps ctx's error.
func (r *runner) do(ctx context.Context, command string, f func() error) error {
	os.Remove(r.pid)
	os.Remove(r.report)
	r.ownPID.Store(0)
	r.stderrHead.reset()
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
	te := &toolError{command: command, stderr: colours.ReplaceAllString(r.stderrHead.String(), ""), started: pid > 0 || !r.writesPID, announced: r.announced, first: firstError(r.report), err: err}
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			te.signal = ws.Signal().String()
		} else {
			code := ee.ExitCode()
			te.code = &code
		}
	} else if ctx.Err() != nil && reaped {
		// The tool had already ended when the interrupt came. A tool that was not reaped does not belong to this case:
		// terraform-exec started it at the moment in which ctx ended, and abandoned it before it did anything useful.
		return nil
	}
	if ctx.Err() != nil {
		// err is dropped: terraform-exec's error sometimes has an empty text.
		te.err = ctx.Err()
	}
	return te
}

// await waits for the end of f. It kills the tool's process group after the grace period, or when the tool has ended and
// other processes of the group keep its output open. terraform-exec does neither.
func (r *runner) await(ctx context.Context, done <-chan error) error {
	const (
		pollSlow = 500 * time.Millisecond
		pollFast = 20 * time.Millisecond
	)
	poll := time.NewTicker(pollSlow)
	defer poll.Stop()
	var deadline <-chan time.Time
	stopped := ctx.Done()
	ended := 0
	for {
		select {
		case err := <-done:
			return err
		case <-stopped:
			stopped = nil
			poll.Reset(pollFast)
			deadline = time.After(r.grace)
		case <-deadline:
			deadline = nil
			if pid := r.running(); pid > 0 {
				killGroup(pid)
			}
		case <-poll.C:
			// The tool has ended but terraform-exec still waits: another process of the tool's group keeps its output
			// open. The second check comes later, so there is time to read the tool's last output.
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
	if pid := r.ownPID.Load(); pid > 0 {
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

// killGroup kills the remaining processes of the tool's group. terraform-exec makes a group only on Linux; elsewhere no
// group has this number, and killGroup kills nothing.
func killGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }

// applyOutput passes on an apply's standard output, and records whether the tool has announced a change. The tool
// announces each change before it begins the change (`Creating...`, `Destroying...`). applyOutput treats every line as an
// announcement, even a warning. Only the messages about acquiring and releasing the lock are no announcements. Not safe for
// concurrent use.
type applyOutput struct {
	w         io.Writer
	line      []byte // the beginning of the last line
	announced bool
}

// lockLines are the beginnings of the lines that an apply may print before it begins to change resources.
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

// teeWriter writes to two writers and returns the error of the first writer.
type teeWriter struct {
	a io.Writer
	b *headWriter
}

func (w *teeWriter) Write(p []byte) (int, error) {
	w.b.Write(p)
	return w.a.Write(p)
}

// headWriter keeps the beginning of its input: a tool's first error is the one that matters.
type headWriter struct{ buf bytes.Buffer }

// maxDiagnostics limits how much of the tool's error output is kept for the message, in bytes.
const maxDiagnostics = 16 << 10

func (t *headWriter) Write(p []byte) {
	if room := maxDiagnostics - t.buf.Len(); room > 0 {
		t.buf.Write(p[:min(room, len(p))])
	}
}

func (t *headWriter) reset()         { t.buf.Reset() }
func (t *headWriter) String() string { return t.buf.String() }
