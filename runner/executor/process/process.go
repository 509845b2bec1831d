// Package process runs each step as a process in a session of its own. The step's output goes to files, not to pipes. So
// an agent can be killed and replaced while its steps continue.
//
// The agent can find all processes of a job, even after their step is killed. If the agent can create a control group for
// the attempt, the job's processes cannot leave this group. Otherwise they stay below a shim, which is an additional
// process. Systems other than Linux have neither control groups nor shims: there the agent knows only the step's session.
package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/shim"
	"github.com/fairlead/fairlead/runner/proctree"
)

// Executor starts steps below one folder. Safe for concurrent use.
type Executor struct {
	root     string
	programs Programs
	orphans  *shim.Orphans
}

// Programs are the programs that run steps. Each has its first arguments; the arguments of a step follow them.
type Programs struct {
	Full  []string // runs every step
	Light []string // runs the steps that are executor.Step.Light, and starts sooner; nil: Full runs them
}

// of returns the program of a step.
func (p Programs) of(s executor.Step) []string {
	if s.Light && len(p.Light) > 0 {
		return p.Light
	}
	return p.Full
}

// New returns an Executor whose steps' folders are root/<id>, which the caller creates. root is a folder of the runner's
// data folder. orphans holds the processes that this process inherits from jobs of all its executors. nil: it inherits no
// processes.
func New(root string, programs Programs, orphans *shim.Orphans) *Executor {
	if len(programs.Full) == 0 || !filepath.IsAbs(root) {
		panic("process.New: needs a program and an absolute path")
	}
	return &Executor{root: root, programs: programs, orphans: orphans}
}

// record is what a later agent needs to find the step.
type record struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // start time; distinguishes the step from another process with the same number
	OOM   int64  `json:"oom_kills"`
	// Either the shim or the control group keeps together all processes that the step starts.
	Shim  *shim.Process  `json:"keeper,omitempty"`
	Group proctree.Group `json:"group,omitempty"`
}

const recordFile = "process.json"

// maxRecord limits the record file, in bytes.
const maxRecord = 4 << 10

// killFor bounds Kill: killed processes end at once unless the kernel delays them.
const killFor = 20 * time.Second

// Place is the agent's own machine.
func (e *Executor) Place() executor.Place {
	return executor.Place{Data: filepath.Dir(e.root), Shared: true, Machine: true, KillFor: killFor}
}

func (e *Executor) mark(id string) string {
	return attempt.MarkVariable + "=" + filepath.Join(e.root, id)
}

// Start starts the step.
func (e *Executor) Start(_ context.Context, s executor.Step) (executor.Handle, error) {
	dir := filepath.Join(e.root, s.ID)
	stdout, err := os.OpenFile(filepath.Join(dir, attempt.StdoutFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	defer stdout.Close()
	stderr, err := os.OpenFile(filepath.Join(dir, attempt.StderrFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	defer stderr.Close()

	// Not CommandContext: the step must outlive the agent's context.
	command := func() *exec.Cmd {
		argv := e.programs.of(s)
		cmd := exec.Command(argv[0], slices.Concat(argv[1:], s.Args)...)
		cmd.Dir = dir
		cmd.Env = slices.Concat(s.Env, s.Secrets, []string{e.mark(s.ID)})
		cmd.Stdout, cmd.Stderr = stdout, stderr // files: a leaked process could keep a pipe open
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd
	}
	h := e.handle(s.ID)
	h.rec.OOM = oomKills()
	own, err := e.start(h, command)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	// If the agent crashes before it writes the record, Attach finds the step by its arguments.
	err = writeRecord(dir, h.rec)
	go own()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start step %s: record its process number: %w", s.ID, err), h.Kill(context.Background()))
	}
	return h, nil
}

func (e *Executor) handle(id string) *handle {
	return &handle{id: id, dir: filepath.Join(e.root, id), mark: e.mark(id), orphans: e.orphans, done: make(chan struct{})}
}

// start starts the step in a control group or below a shim, and stores the group or the shim in the handle. The returned
// function own waits for the step's end and reports the end to the handle.
func (e *Executor) start(h *handle, command func() *exec.Cmd) (own func(), err error) {
	cmd := command()
	if g, err := proctree.MakeGroup(e.group(h.id)); err == nil {
		if err := startIn(g, cmd, e.orphans); err == nil {
			h.rec.Group = g
			return h.child(cmd), nil
		}
		// Some sandboxes of services do not permit to start a process in a control group.
		if err := g.Remove(context.Background()); err != nil {
			return nil, err
		}
		cmd = command()
	}
	if !shim.Supported {
		if err := e.orphans.Start(cmd); err != nil {
			return nil, err
		}
		return h.child(cmd), nil
	}
	k, err := shim.Start(cmd, e.orphans)
	if err != nil {
		return nil, err
	}
	h.kept, h.rec.Shim, h.rec.PID, h.rec.Start = k, &k.Shim, k.Step.PID, k.Step.Start
	return func() {
		status, seen := k.Wait()
		if !seen {
			h.end(shimKilled())
			return
		}
		h.end(exitOf(status, h.rec.OOM))
	}, nil
}

// child records the step, which is a child of this process, and returns the function that waits for it.
func (h *handle) child(cmd *exec.Cmd) func() {
	h.rec.PID = cmd.Process.Pid
	if p, err := proctree.Stat(h.rec.PID); err == nil {
		h.rec.Start = p.Start
	}
	return func() {
		err := h.orphans.Wait(cmd)
		status, ok := syscall.WaitStatus(0), false
		if cmd.ProcessState != nil {
			status, ok = cmd.ProcessState.Sys().(syscall.WaitStatus)
		}
		if !ok {
			h.end(executor.Exit{Cause: fairlead.CauseVanished, Message: fmt.Sprint(err)})
			return
		}
		h.end(exitOf(status, h.rec.OOM))
	}
}

// Groups is the prefix of the names of attempts' control groups.
const Groups = "fairlead-step-"

// group returns the name of an attempt's control group. Runners with different data folders use different names.
func (e *Executor) group(id string) string {
	sum := sha256.Sum256([]byte(e.root))
	return Groups + hex.EncodeToString(sum[:6]) + "-" + id
}

// Attach finds the step that an earlier agent started.
func (e *Executor) Attach(ctx context.Context, id string) (executor.Handle, error) {
	h, recorded, err := e.find(id)
	if err != nil {
		return nil, fmt.Errorf("attach to step %s: %w", id, err)
	}
	if h.rec.PID > 0 && proctree.Alive(h.rec.PID, h.rec.Start) {
		h.watch(ctx)
		if !recorded {
			err = writeRecord(h.dir, h.rec)
		}
		return h, err
	}
	h.end(executor.Exit{Cause: fairlead.CauseVanished, Message: "the step ended while no agent was watching it"})
	return h, executor.ErrGone
}

// read returns the recorded handle of a step, and whether there is a usable record.
func (e *Executor) read(id string) (h *handle, recorded bool) {
	h = e.handle(id)
	b, err := safefile.Read(filepath.Join(h.dir, recordFile), maxRecord)
	recorded = err == nil && json.Unmarshal(b, &h.rec) == nil && h.rec.PID > 0
	// A job may have written the record, so it is checked.
	if filepath.Base(string(h.rec.Group)) != e.group(id) {
		if h.rec.Group, err = proctree.FindGroup(e.group(id)); err != nil {
			h.rec.Group = ""
		}
	}
	if k := h.rec.Shim; k != nil && h.isOther(k.PID, k.Start) {
		h.rec.Shim = nil
	}
	if h.isOther(h.rec.PID, h.rec.Start) {
		h.rec.PID, recorded = 0, false
	}
	return h, recorded
}

// isOther reports whether a process is alive and is neither the step nor its shim, which both have the step's folder as an
// argument. Only Linux shows the arguments.
func (h *handle) isOther(pid int, start uint64) bool {
	return shim.Supported && proctree.Alive(pid, start) && !proctree.HasArgument(pid, h.dir)
}

// whole reports whether the recorded step is alive, and its recorded shim or control group exists.
func (h *handle) whole() bool {
	if !proctree.Alive(h.rec.PID, h.rec.Start) {
		return false
	}
	if k := h.rec.Shim; k != nil {
		return proctree.Alive(k.PID, k.Start)
	}
	_, err := os.Stat(string(h.rec.Group))
	return err == nil
}

// find returns the handle of a step, and whether it was recorded. It searches the processes if the agent died before it
// wrote the record, or if a job may have altered the record.
func (e *Executor) find(id string) (h *handle, recorded bool, err error) {
	h, recorded = e.read(id)
	if recorded && h.whole() {
		return h, true, nil
	}
	all, err := proctree.All()
	if err != nil {
		return nil, false, err
	}
	// The step or its shim leads a session. Both hide their environment and memory, so only the command line is readable.
	all = slices.DeleteFunc(all, func(p proctree.Info) bool { return p.State == 'Z' || !proctree.HasArgument(p.PID, h.dir) })
	leads := func(p proctree.Info) bool { return p.Session == p.PID }
	if i := slices.IndexFunc(all, func(p proctree.Info) bool { return leads(p) && proctree.HasArgument(p.PID, shim.Name) }); i >= 0 {
		h.rec.Shim = &shim.Process{PID: all[i].PID, Start: all[i].Start}
		leads = func(p proctree.Info) bool { return p.Parent == h.rec.Shim.PID }
	}
	if recorded {
		return h, true, nil
	}
	if i := slices.IndexFunc(all, leads); i >= 0 {
		h.rec.PID, h.rec.Start, h.rec.OOM = all[i].PID, all[i].Start, oomKills()
	}
	return h, false, nil
}

// shimKilled returns the Exit of a step whose shim was killed. Without the shim, only the step still knows all processes
// of the job, so the step is killed too.
func shimKilled() executor.Exit {
	return executor.Exit{Cause: fairlead.CauseKilled, Message: "the process that keeps the job's processes together was killed, so the step was killed too"}
}

// watch waits for a step that is not a child of this process. ctx ends only the watching.
func (h *handle) watch(ctx context.Context) {
	go func() {
		kept, killed := context.WithCancel(ctx)
		defer killed()
		if k := h.rec.Shim; k != nil {
			go func() {
				if proctree.WaitGone(kept, k.PID, k.Start) == nil {
					killed()
				}
			}()
		}
		err := proctree.WaitGone(kept, h.rec.PID, h.rec.Start)
		switch {
		case ctx.Err() != nil:
		case err != nil && proctree.Alive(h.rec.PID, h.rec.Start):
			h.end(shimKilled())
		default:
			h.end(executor.Exit{Cause: fairlead.CauseVanished,
				Message: "the step ended after its agent was replaced, so its exit code is unknown"})
		}
	}()
}

func writeRecord(dir string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return safefile.Replace(filepath.Join(dir, recordFile), b, 0o600)
}

// Remove removes the control group of the step. Before that it kills leftover processes, because a step may report and
// still leave processes running.
func (e *Executor) Remove(ctx context.Context, id string) error {
	h, _ := e.read(id)
	err := h.rec.end(ctx)
	if err == nil {
		err = h.rec.Group.Remove(ctx)
	}
	if err != nil {
		return fmt.Errorf("remove step %s: %w", id, err)
	}
	e.orphans.Reap() // ended children of the step that the step did not reap
	return nil
}

// end kills all processes in the step's control group or below its shim.
func (r record) end(ctx context.Context) error {
	if r.Shim != nil {
		return shim.Kill(ctx, *r.Shim)
	}
	return r.Group.Kill(ctx)
}

type handle struct {
	id   string
	dir  string
	mark string
	rec  record
	kept *shim.Started // nil: no shim, or the shim of an earlier agent
	// All steps share orphans: after a shim was killed, the agent does not know to which step an orphan belongs.
	orphans *shim.Orphans

	once sync.Once
	done chan struct{}
	exit executor.Exit // set before done is closed
}

func (h *handle) end(x executor.Exit) {
	h.once.Do(func() { h.exit = x; close(h.done) })
}

func (h *handle) ID() string { return h.id }

func (h *handle) Wait(ctx context.Context) (executor.Exit, error) {
	select {
	case <-h.done:
		return h.exit, nil
	case <-ctx.Done():
		return executor.Exit{}, ctx.Err()
	}
}

func (h *handle) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

func (h *handle) Interrupt() error {
	if h.ended() || !proctree.Alive(h.rec.PID, h.rec.Start) {
		return nil
	}
	if err := syscall.Kill(h.rec.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("interrupt step %s: %w", h.id, err)
	}
	return nil
}

// Kill kills all processes of the step: first those in the control group or below the shim. After that, processes of the
// step can be left only if the shim was killed, or if the system has neither groups nor shims.
func (h *handle) Kill(ctx context.Context) error {
	if h.kept != nil {
		if all, err := h.kept.Kill(ctx); err != nil || all {
			return err
		}
	} else if err := h.rec.end(ctx); err != nil {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	leader := shim.Process{PID: h.rec.PID, Start: h.rec.Start}
	if h.rec.Shim != nil {
		// A process of the step that has neither the session nor the mark below is a descendant of the step.
		if err := proctree.KillTree(ctx, h.rec.PID, h.rec.Start); err != nil {
			return fmt.Errorf("kill step %s: %w", h.id, err)
		}
		leader = *h.rec.Shim
	}
	session := leader.PID
	if p, err := proctree.Stat(session); err == nil && p.Start != leader.Start {
		session = 0 // another process has this number now
	}
	if _, err := proctree.KillAll(ctx, session, h.mark); err != nil {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	if err := h.orphans.Kill(ctx); err != nil {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	return nil
}

// Output reads the step's output files, standard error last.
func (h *handle) Output(_ context.Context, limit int) (string, error) {
	dir := attempt.Dir(h.dir)
	out, errs := dir.Tail(attempt.StdoutFile, int64(limit)), dir.Tail(attempt.StderrFile, int64(limit))
	both := out + errs
	return strings.ToValidUTF8(both[max(0, len(both)-limit):], "\uFFFD"), nil
}

func exitOf(ws syscall.WaitStatus, oomBefore int64) executor.Exit {
	if !ws.Signaled() {
		code := ws.ExitStatus()
		return executor.Exit{Code: &code, Cause: fairlead.CauseExited}
	}
	x := executor.Exit{Signal: ws.Signal().String(), Cause: fairlead.CauseKilled}
	if ws.Signal() == syscall.SIGKILL && oomKills() > oomBefore {
		x.Cause = fairlead.CauseOutOfMemory
		x.Message = "the kernel killed a process of this runner because memory ran out"
	}
	return x
}
