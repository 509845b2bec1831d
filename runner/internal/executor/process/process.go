// Package process runs each step as a child process in a session of its own.
// The child's output goes to files, not pipes, and nothing ties its life to the
// agent's: an agent may be killed and replaced while its steps go on.
package process

import (
	"context"
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

	"github.com/fairlead/fairlead/runner/internal/executor"
	"github.com/fairlead/fairlead/runner/internal/proc"
	"github.com/fairlead/fairlead/runner/internal/regular"
	"github.com/fairlead/fairlead/runner/internal/stepdir"
)

// Executor starts steps below one folder. Safe for concurrent use.
type Executor struct {
	root string
	argv []string
}

// New returns an Executor whose steps' folders are root/<id>, made by the
// caller; root is a folder of the runner's data folder. argv is the runner's own program and the arguments that come before
// those of a step.
func New(root string, argv []string) *Executor {
	if len(argv) == 0 || !filepath.IsAbs(root) {
		panic("process.New: needs a program and an absolute path")
	}
	return &Executor{root: root, argv: argv}
}

// record is what a later agent needs to find the step again.
type record struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // guards against another process of the same number
	OOM   int64  `json:"oom_kills"`
}

const recordFile = "process.json"

// maxRecord bounds it, in bytes.
const maxRecord = 4 << 10

// killFor is how long Kill may take: processes that are killed end at once,
// unless the kernel itself holds them up.
const killFor = 20 * time.Second

// Place is the agent's own machine.
func (e *Executor) Place() executor.Place {
	return executor.Place{Data: filepath.Dir(e.root), Shared: true, Machine: true, KillFor: killFor}
}

func (e *Executor) mark(id string) string {
	return stepdir.MarkVariable + "=" + filepath.Join(e.root, id)
}

// Start starts the step.
func (e *Executor) Start(_ context.Context, s executor.Step) (executor.Handle, error) {
	dir := filepath.Join(e.root, s.ID)
	stdout, err := os.OpenFile(filepath.Join(dir, stepdir.StdoutFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	defer stdout.Close()
	stderr, err := os.OpenFile(filepath.Join(dir, stepdir.StderrFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	defer stderr.Close()

	// Not CommandContext: the end of the agent's context is not the step's end.
	cmd := exec.Command(e.argv[0], slices.Concat(e.argv[1:], s.Args)...)
	cmd.Dir = dir
	cmd.Env = slices.Concat(s.Env, s.Secrets, []string{e.mark(s.ID)})
	cmd.Stdout, cmd.Stderr = stdout, stderr // files: no pipe that a leaked process could hold open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	oom := oomKills()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	h := &handle{id: s.ID, dir: dir, mark: e.mark(s.ID), rec: record{PID: cmd.Process.Pid, OOM: oom}, done: make(chan struct{})}
	if p, err := proc.Stat(h.rec.PID); err == nil {
		h.rec.Start = p.Start
	}
	// Crashed before this is written: Attach finds the step by its mark.
	if err := writeRecord(dir, h.rec); err != nil {
		h.own(cmd)
		return nil, errors.Join(fmt.Errorf("start step %s: keep its process number: %w", s.ID, err), h.Kill(context.Background()))
	}
	h.own(cmd)
	return h, nil
}

// own waits for a child of ours in a goroutine that ends with the child.
func (h *handle) own(cmd *exec.Cmd) {
	go func() {
		err := cmd.Wait()
		h.end(exitOf(cmd.ProcessState, err, h.rec.OOM))
	}()
}

// Attach finds the step of an earlier agent.
func (e *Executor) Attach(ctx context.Context, id string) (executor.Handle, error) {
	h := &handle{id: id, dir: filepath.Join(e.root, id), mark: e.mark(id), done: make(chan struct{})}
	b, err := regular.Read(filepath.Join(e.root, id, recordFile), maxRecord)
	if err == nil && json.Unmarshal(b, &h.rec) == nil && proc.Alive(h.rec.PID, h.rec.Start) {
		h.watch(ctx)
		return h, nil
	}
	if h.rec.PID == 0 {
		// The agent died between starting the step and noting its number. Of a
		// step, which hides, the command line is all that can be read.
		ps, err := proc.All()
		if err != nil {
			return nil, fmt.Errorf("attach to step %s: %w", id, err)
		}
		for _, p := range ps {
			// What the step has started may lead a session, too; only the step was
			// called with its folder.
			if p.Session == p.PID && p.State != 'Z' && proc.HasArgument(p.PID, filepath.Join(e.root, id)) {
				h.rec.PID, h.rec.Start, h.rec.OOM = p.PID, p.Start, oomKills()
				h.watch(ctx)
				return h, writeRecord(filepath.Join(e.root, id), h.rec)
			}
		}
	}
	h.end(executor.Exit{Reason: executor.Vanished, Message: "the step ended while no agent was watching it"})
	return h, executor.ErrGone
}

// watch waits for a step that is not our child; ctx ends the watching alone.
func (h *handle) watch(ctx context.Context) {
	go func() {
		if proc.WaitGone(ctx, h.rec.PID, h.rec.Start) == nil {
			h.end(executor.Exit{Reason: executor.Vanished,
				Message: "the step ended after its agent was replaced, so nobody could see how"})
		}
	}()
}

func writeRecord(dir string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordFile))
}

// Remove has nothing to remove: what is kept is in the step's folder.
func (e *Executor) Remove(context.Context, string) error { return nil }

type handle struct {
	id   string
	dir  string
	mark string
	rec  record

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
	if h.ended() || !proc.Alive(h.rec.PID, h.rec.Start) {
		return nil
	}
	if err := syscall.Kill(h.rec.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("interrupt step %s: %w", h.id, err)
	}
	return nil
}

// Kill kills the session and whoever carries the step's mark.
func (h *handle) Kill(ctx context.Context) error {
	session := h.rec.PID
	if p, err := proc.Stat(session); err == nil && p.Start != h.rec.Start {
		session = 0 // the number belongs to somebody else now
	}
	if _, err := proc.KillAll(ctx, session, h.mark); err != nil {
		return fmt.Errorf("kill step %s: %w", h.id, err)
	}
	return nil
}

// Output reads the files that the step writes to, its errors last.
func (h *handle) Output(_ context.Context, limit int) (string, error) {
	dir := stepdir.Dir(h.dir)
	out, errs := dir.Tail(stepdir.StdoutFile, int64(limit)), dir.Tail(stepdir.StderrFile, int64(limit))
	both := out + errs
	return strings.ToValidUTF8(both[max(0, len(both)-limit):], "\uFFFD"), nil
}

func exitOf(st *os.ProcessState, err error, oomBefore int64) executor.Exit {
	if st == nil {
		return executor.Exit{Reason: executor.Vanished, Message: fmt.Sprint(err)}
	}
	ws, ok := st.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		code := st.ExitCode()
		return executor.Exit{Code: &code, Reason: executor.Exited}
	}
	x := executor.Exit{Signal: ws.Signal().String(), Reason: executor.Killed}
	if ws.Signal() == syscall.SIGKILL && oomKills() > oomBefore {
		x.Reason = executor.OutOfMemory
		x.Message = "the kernel killed a process of this runner because its memory ran out"
	}
	return x
}
