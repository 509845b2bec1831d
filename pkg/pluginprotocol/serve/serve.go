// Package serve is for the main function of a plugin that is written in Go. It reads the request, runs the operation, and writes
// the events of package pluginprotocol to standard output. Logs belong on standard error.
//
//	func main() {
//		serve.Main(serve.Plugin{Name: "greeting", Version: "1.0.0", Operations: map[pluginprotocol.Operation]serve.Handler{
//			pluginprotocol.Plan: plan, pluginprotocol.Apply: apply, …
//		}})
//	}
package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// Handler runs one operation. Its context ends when the step asks the program to stop, when the step dies, or at an interrupt; the
// cause is a *Stopped. The handler then has the request's grace period to save its work. An error fails the operation: with the
// reason of a *Failure, else with tool-failed.
//
// A handler of a plan writes the saved plan to req.Plan. A handler of an apply reads it there, and has no other source of its
// input.
type Handler func(ctx context.Context, req pluginprotocol.Request, out *Emitter) error

// Plugin is what a program serves.
type Plugin struct {
	Name       string
	Version    string
	Types      []string // component types; empty: the handlers do not look at the type
	Operations map[pluginprotocol.Operation]Handler
}

// Failure is an error with a reason of pluginprotocol.Reasons. Message tells a person what happened, to what, and what to do next;
// it has no secret.
type Failure struct {
	Reason  fairlead.Reason
	Message string
	Err     error // cause; may be nil
}

func (f *Failure) Error() string { return f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Fail returns a *Failure.
func Fail(reason fairlead.Reason, format string, args ...any) error {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Stopped is the cause of the end of a handler's context.
type Stopped struct{ Reason string } // such as canceled

func (s *Stopped) Error() string { return "the operation was stopped: " + s.Reason }

// Main serves one operation and ends the process: with 0 if the operation succeeded, else with 1. It handles SIGINT and SIGTERM.
func Main(p Plugin) {
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM) // until the end: a late interrupt must not kill a program that has finished
	go func() {
		<-signals
		stop(&Stopped{"interrupted"})
	}()
	os.Exit(Run(ctx, p, os.Stdin, os.Stdout, os.Stderr))
}

// Run serves one operation and returns the exit code. A goroutine reads stdin until its end. stderr gets the stack of a panic.
func Run(ctx context.Context, p Plugin, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := &Emitter{w: stdout, broken: stop}
	err := p.serve(ctx, stop, bufio.NewReader(stdin), out, stderr)
	if err == nil {
		err = out.failure()
	}
	last := pluginprotocol.Event(pluginprotocol.Finished{NoOp: out.isNoOp()})
	if err != nil {
		last = failed(ctx, err)
	}
	if err := errors.Join(err, out.last(last)); err != nil {
		return 1
	}
	return 0
}

func (p Plugin) serve(ctx context.Context, stop context.CancelCauseFunc, stdin *bufio.Reader, out *Emitter, stderr io.Writer) error {
	line, err := pluginprotocol.ReadLine(stdin, pluginprotocol.MaxRequest)
	if err != nil {
		return Fail(fairlead.ReasonSpecMalformed, "standard input has no request: %v", err)
	}
	req, err := pluginprotocol.DecodeRequest(line)
	if refused, ok := errors.AsType[*pluginprotocol.RequestError](err); ok {
		return &Failure{Reason: refused.Reason, Message: refused.Message, Err: err}
	}
	if req.Operation == pluginprotocol.Describe {
		return out.send(p.describe())
	}
	handler, ok := p.Operations[req.Operation]
	switch {
	case !ok:
		return Fail(fairlead.ReasonSpecOperation, "the plugin %s has no operation %s", p.Name, req.Operation)
	case len(p.Types) > 0 && !slices.Contains(p.Types, req.Type):
		return Fail(fairlead.ReasonSpecInvalid, "the plugin %s does not serve components of type %.100q", p.Name, req.Type)
	}
	go awaitCancel(stdin, stop)
	return run(ctx, handler, req, out, stderr)
}

// awaitCancel ends the operation at a cancel line, and at the end of stdin: then the step is dead.
func awaitCancel(stdin *bufio.Reader, stop context.CancelCauseFunc) {
	for {
		line, err := pluginprotocol.ReadLine(stdin, pluginprotocol.MaxLine)
		if err != nil {
			stop(&Stopped{"the step has ended"})
			return
		}
		var c pluginprotocol.Control
		if json.Unmarshal(line, &c) == nil && c.Cancel != nil { // later versions may have other lines
			stop(&Stopped{c.Cancel.Reason})
		}
	}
}

func run(ctx context.Context, h Handler, req pluginprotocol.Request, out *Emitter, stderr io.Writer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(stderr, "panic: %v\n%s", r, debug.Stack())
			err = Fail(fairlead.ReasonToolFailed, "the plugin failed with an internal error, which the log shows: report it to the author of the plugin")
		}
	}()
	return h(ctx, req, out)
}

func (p Plugin) describe() pluginprotocol.Described {
	d := pluginprotocol.Described{Name: p.Name, Version: p.Version, Protocols: []int{pluginprotocol.Version}, Types: p.Types}
	for _, op := range pluginprotocol.Operations() {
		if _, ok := p.Operations[op]; ok {
			d.Operations = append(d.Operations, op)
		}
	}
	return d
}

// failed returns the last event of an operation that failed with err.
func failed(ctx context.Context, err error) pluginprotocol.Failed {
	f := pluginprotocol.Failed{Reason: fairlead.ReasonToolFailed, Message: fairlead.Clip(err.Error(), pluginprotocol.MaxMessage)}
	if e, ok := errors.AsType[*Failure](err); ok {
		f.Reason = e.Reason
	} else if cause, ok := errors.AsType[*Stopped](context.Cause(ctx)); ok {
		f.Reason, f.Message = fairlead.ReasonCanceled, fairlead.Clip(cause.Error()+": "+err.Error(), pluginprotocol.MaxMessage)
	} else if ctx.Err() != nil {
		f.Reason = fairlead.ReasonCanceled
	}
	if f.Message == "" {
		f.Message = "the operation failed; see the log"
	}
	return f
}

// Emitter sends events. After an error of a method, the operation fails, also if the handler ignores the error. Safe for
// concurrent use.
type Emitter struct {
	mu     sync.Mutex
	w      io.Writer
	broken context.CancelCauseFunc // ends the operation when w fails
	err    error                   // the first error
	noOp   bool
}

func (e *Emitter) send(ev pluginprotocol.Event) error {
	line, err := pluginprotocol.Encode(ev)
	if o, ok := ev.(pluginprotocol.Output); ok && errors.Is(err, pluginprotocol.ErrLineTooLong) {
		err = &Failure{Reason: fairlead.ReasonOutputsTooLarge, Err: err,
			Message: fmt.Sprintf("the output %s is too large for an event of %d bytes: keep large values in files or buckets, and output their location", o.Name, pluginprotocol.MaxLine)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		if _, err = e.w.Write(line); err != nil {
			err = fmt.Errorf("write an event: %w", err)
			e.broken(&Stopped{"the step does not read the events"})
		}
	}
	if e.err == nil {
		e.err = err
	}
	return err
}

// last sends the last event, also after an error.
func (e *Emitter) last(ev pluginprotocol.Event) error {
	line, err := pluginprotocol.Encode(ev)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err = e.w.Write(line)
	return err
}

func (e *Emitter) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *Emitter) isNoOp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.noOp
}

// Section runs f in a section of the log. Its name has lower-case letters, digits and hyphens. Sections do not nest.
func (e *Emitter) Section(name string, f func() error) error {
	if err := e.send(pluginprotocol.Section{Name: name, State: pluginprotocol.Begin}); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, e.send(pluginprotocol.Section{Name: name, State: pluginprotocol.End, Failed: err != nil}))
}

// Mutating states that the first change begins. A handler of an apply or destroy calls it once, before its first request that
// changes an object, and sends no such request if Mutating returns an error.
func (e *Emitter) Mutating() error { return e.send(pluginprotocol.Mutating{}) }

// Change sends a change of an object, with masked values.
func (e *Emitter) Change(c changeset.Change) error { return e.send(pluginprotocol.Change{Change: c}) }

// OutputChange sends a change of an output, with masked values; the address is the output's name.
func (e *Emitter) OutputChange(c changeset.Change) error {
	return e.send(pluginprotocol.OutputChange{Change: c})
}

// Base names the version of the component's record on which the plan is made.
func (e *Emitter) Base(b changeset.Base) error { return e.send(pluginprotocol.Base{Base: b}) }

// Output sends an output: a value that encoding/json encodes.
func (e *Emitter) Output(name string, value any, sensitive bool) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the output %s: %w", name, err)
	}
	return e.send(pluginprotocol.Output{Name: name, Value: raw, Sensitive: sensitive})
}

// NoOp makes the plan one without changes: nothing has to be applied.
func (e *Emitter) NoOp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noOp = true
}
