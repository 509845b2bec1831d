package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
)

// conversation is what a program sent in one process, and how the process ended.
type conversation struct {
	env      plugin.Env
	op       pluginprotocol.Operation
	receiver *pluginprotocol.Receiver
	stop     context.CancelCauseFunc // interrupts the program
	section  time.Time               // begin of the open section

	changes changeset.Builder
	base    *changeset.Base
	outputs map[string]wire.FullOutput
	noOp    bool
	err     error // the first change that cannot be encoded
	end     toolprocess.End
	mutated bool
	full    bool // the program reported a full disk
}

func (c *conversation) result() plugin.Result {
	return plugin.Result{Mutated: c.mutated, ExitCode: c.end.Code, DiskFull: c.full}
}

// converse runs the program. The conversation is valid also with an error.
func (r *run) converse(ctx context.Context, source string) (*conversation, error) {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &conversation{changes: changeset.Builder{KeepAll: r.env.Policy != nil}, env: r.env, op: r.op, stop: stop, outputs: map[string]wire.FullOutput{}}
	c.receiver = pluginprotocol.NewReceiver(r.op, c.accept)
	path, dir, readable, err := r.locate(source)
	if err != nil {
		return c, err
	}
	line, err := r.request(source).Encode()
	if err != nil {
		return c, err
	}
	in, err := newInput(line)
	if err != nil {
		return c, err
	}
	defer in.close()
	environ := toolprocess.Environment(r.p.env, r.p.cfg.PassEnv, r.spec, r.env.Workspace)
	r.env.Complete(environ)
	c.end = toolprocess.Process{Name: "the program " + path, Command: []string{path}, Dir: dir, Environ: environ, Workspace: r.env.Workspace, Readable: readable,
		Stdin: in.program, Stdout: c, Stderr: r.env.Log, Grace: r.spec.Grace.Duration(), Confine: r.env.Confine,
		Interrupting: func() { in.cancel(pluginprotocol.Cancel{Reason: string(fairlead.ReasonCanceled)}) }}.Run(inner)
	return c, c.judge(ctx, r.p.kind, context.Cause(inner))
}

// request returns the request of this job.
func (r *run) request(source string) pluginprotocol.Request {
	q := pluginprotocol.Request{Protocol: pluginprotocol.Version, Type: r.spec.Plugin, Operation: r.op, Job: string(r.spec.Job), Epoch: r.spec.Epoch,
		Install: string(r.spec.Install), InstallName: r.spec.InstallName, Component: r.spec.Component, GraceSeconds: int64(r.spec.Grace),
		Workspace: r.env.Workspace, Plan: r.path(planFile)}
	if at := r.spec.Registry; at != nil {
		q.Registry = &pluginprotocol.Registry{Kind: at.Kind, URL: at.URL, Repository: at.Repository, Login: at.Variable, CA: at.CA, Region: at.Region}
	}
	if i := r.env.Image; i != nil && r.p.kind.Dockerfile {
		q.Image = &pluginprotocol.Image{URL: i.URL, Repository: i.Repository, Digest: i.Digest, Login: i.Login, CA: i.CA}
	}
	if r.op.Plans() {
		q.Source, q.Vars = source, make(map[string]pluginprotocol.Var, len(r.spec.Vars))
		for name, v := range r.spec.Vars {
			q.Vars[name] = pluginprotocol.Var{Value: v.Value, Sensitive: v.Sensitive}
		}
		options := make(map[string]json.RawMessage, len(r.spec.Options))
		for name, v := range r.spec.Options {
			options[name] = v.Value
		}
		if len(options) > 0 {
			q.Options, _ = json.Marshal(options) // of JSON values
		}
	}
	return q
}

// Write receives a part of the program's standard output. A violation of the protocol stops the program, and the rest of its output
// is discarded.
func (c *conversation) Write(p []byte) (int, error) {
	if _, err := c.receiver.Write(p); err != nil {
		c.stop(err)
	}
	return len(p), nil
}

// accept takes an event. All texts of changes are masked again.
func (c *conversation) accept(e pluginprotocol.Event) {
	switch e := e.(type) {
	case pluginprotocol.Section:
		c.mark(e)
	case pluginprotocol.Change:
		c.err = errors.Join(c.err, c.changes.Add(e.Change.Masked(c.env.Mask)))
	case pluginprotocol.OutputChange:
		c.err = errors.Join(c.err, c.changes.Output(e.Change.Masked(c.env.Mask)))
	case pluginprotocol.Base:
		c.base = &changeset.Base{Lineage: c.env.Mask(e.Base.Lineage), Revision: e.Base.Revision}
	case pluginprotocol.Output:
		if string(e.Value) != "null" {
			c.outputs[e.Name] = wire.FullOutput{Value: e.Value, Sensitive: e.Sensitive || c.hasSecret(e.Value)}
		}
	case pluginprotocol.Finished:
		c.noOp = e.NoOp
	}
}

// hasSecret reports whether a value has one of the job's secrets in a text or a number. An output with a secret is one, also if the
// program does not mark it.
func (c *conversation) hasSecret(raw json.RawMessage) bool {
	if c.env.Mask(string(raw)) != string(raw) {
		return true
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return true
	}
	return len(changeset.Change{After: value}.Masked(c.env.Mask).Sensitive) > 0
}

func (c *conversation) mark(e pluginprotocol.Section) {
	if c.env.Mark == nil {
		return
	}
	m := wire.LogMark{Section: e.Name}
	if e.State == pluginprotocol.End {
		m.End, m.Failed, m.Millis = true, e.Failed, time.Since(c.section).Milliseconds()
	} else {
		c.section = time.Now()
	}
	c.env.Mark(m)
}

// judge returns why the operation failed, or nil. stopped is why the program was interrupted; nil: it was not.
func (c *conversation) judge(ctx context.Context, kind component.Type, stopped error) error {
	last, wrong := c.receiver.Close()
	if name := c.receiver.Section(); name != "" {
		c.mark(pluginprotocol.Section{Name: name, State: pluginprotocol.End, Failed: true})
	}
	failed, isFailed := last.(pluginprotocol.Failed)
	// Before mutating, a program has changed nothing. But a program that died, or that broke the protocol, may have changed something
	// without stating it, and its apply must not be repeated without a plan. Only an orderly failure is believed.
	orderly := isFailed && wrong == nil
	c.mutated = c.op.Mutates() && c.end.Started && (c.receiver.Mutating() || !orderly)
	failure := c.end.Failure(ctx)
	_, outOfOrder := errors.AsType[*pluginprotocol.Violation](stopped)
	switch {
	case !c.end.Started:
		return failure
	case outOfOrder:
		return violated(kind, stopped)
	case ctx.Err() != nil && c.end.Interrupted:
		if orderly {
			return &plugin.Error{Reason: fairlead.ReasonToolFailed, Err: failure, Message: c.end.Name + " was interrupted and reported: " + c.message(failed)}
		}
		return failure
	case last == nil && failure != nil:
		return failure // it was killed, or ended without a report
	case wrong != nil:
		return violated(kind, wrong)
	case isFailed:
		return c.failure(kind, failed)
	case last == nil:
		return violated(kind, &pluginprotocol.Violation{Message: "it ended without finished or failed"})
	case c.end.Code != nil && *c.end.Code != 0:
		return violated(kind, &pluginprotocol.Violation{Message: fmt.Sprintf("it sent finished and exited with %d", *c.end.Code)})
	case failure != nil:
		return failure
	}
	return c.err
}

// failure returns the error of an orderly failure. Its reason is the program's, unless it contradicts what the plugin knows: the
// advice for most reasons states that nothing was changed.
func (c *conversation) failure(kind component.Type, f pluginprotocol.Failed) error {
	message := c.message(f)
	switch f.Reason {
	case fairlead.ReasonSpecVersion, fairlead.ReasonSpecMalformed, fairlead.ReasonSpecOperation:
		if !c.mutated {
			return violated(kind, &pluginprotocol.Violation{Message: "it refused the request: " + message})
		}
	case fairlead.ReasonOutputsTooLarge:
		return plugin.Errorf(f.Reason, "%s", message)
	case fairlead.ReasonCanceled: // the step did not ask for it
	default:
		if slices.Contains(fairlead.ReasonsAfterChange(), f.Reason) || !c.mutated && slices.Contains(pluginprotocol.Reasons(), f.Reason) {
			c.full = f.Reason == fairlead.ReasonDiskFull
			return plugin.Errorf(f.Reason, "%s", message)
		}
	}
	return plugin.Errorf(fairlead.ReasonToolFailed, "%s", message)
}

func (c *conversation) message(f pluginprotocol.Failed) string {
	return fairlead.Clip(c.env.Mask(f.Message), pluginprotocol.MaxMessage)
}

// violated returns the error of a program that does not keep the protocol.
func violated(kind component.Type, err error) error {
	return &plugin.Error{Reason: fairlead.ReasonPluginProtocol, Err: err,
		Message: fmt.Sprintf("the plugin of type %s does not keep the protocol of plugins: %v. Its author can see the same with `fairlead plugin test`", kind.Name, err)}
}

// input is the standard input of a program.
type input struct {
	program  *os.File // the program's end
	w        *os.File
	canceled chan []byte   // the cancel line
	done     chan struct{} // closed when nothing more is written
}

// newInput returns an input that sends the line. It stays open until close, so that a program can see the step's end.
func newInput(line []byte) (*input, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	in := &input{program: r, w: w, canceled: make(chan []byte, 1), done: make(chan struct{})}
	go func() {
		defer close(in.done)
		if _, err := w.Write(line); err != nil { // the program has ended, or does not read
			return
		}
		if cancel, ok := <-in.canceled; ok {
			w.Write(cancel)
		}
	}()
	return in, nil
}

// cancelTime bounds writing the cancel line to a program that does not read its input. The interrupt follows.
const cancelTime = 100 * time.Millisecond

// cancel asks the program to stop. It must be called at most once, and not after close.
func (in *input) cancel(c pluginprotocol.Cancel) {
	in.canceled <- pluginprotocol.Control{Cancel: &c}.Encode()
	in.w.SetWriteDeadline(time.Now().Add(cancelTime))
	<-in.done
}

// close closes both ends.
func (in *input) close() {
	close(in.canceled)
	in.w.Close()
	in.program.Close()
	<-in.done
}
