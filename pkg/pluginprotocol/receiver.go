package pluginprotocol

import "bytes"

// Receiver reads a program's standard output: it decodes the lines, checks that their order is allowed, and passes the events
// on. Not safe for concurrent use.
type Receiver struct {
	op     Operation
	handle func(Event)

	line    []byte // the beginning of a line
	total   int    // bytes
	outputs map[string]bool
	section string // the open section
	last    Event  // Finished or Failed; nil: not yet
	wrong   error
	// Events that the program has sent.
	described, changes, base, mutates bool
}

// NewReceiver returns a Receiver of an operation's output. It passes every event to handle, except Ignored.
func NewReceiver(op Operation, handle func(Event)) *Receiver {
	return &Receiver{op: op, handle: handle, outputs: map[string]bool{}}
}

// Write reads a part of the output. The error is a *Violation; afterwards, Write ignores all output and returns the same
// error.
func (r *Receiver) Write(p []byte) (int, error) {
	if r.wrong != nil {
		return len(p), r.wrong
	}
	if r.total += len(p); r.total > MaxStream {
		r.wrong = violationf("it wrote more than %d bytes to its standard output", MaxStream)
		return len(p), r.wrong
	}
	for rest := p; len(rest) > 0; {
		line, more, ends := bytes.Cut(rest, []byte{'\n'})
		rest = more
		if len(r.line)+len(line) >= MaxLine {
			r.wrong = violationf("a line of its standard output is longer than %d bytes", MaxLine)
			return len(p), r.wrong
		}
		r.line = append(r.line, line...)
		if !ends {
			break
		}
		if r.wrong = r.accept(r.line); r.wrong != nil {
			return len(p), r.wrong
		}
		r.line = r.line[:0]
	}
	return len(p), nil
}

func (r *Receiver) accept(line []byte) error {
	e, err := Decode(line)
	if err == nil {
		err = r.order(e)
	}
	if err != nil {
		return err
	}
	if _, ok := e.(Ignored); !ok {
		r.handle(e)
	}
	return nil
}

// order checks that the event is allowed now.
func (r *Receiver) order(e Event) error {
	if r.last != nil {
		return violationf("it sent %s after %s, which must be the last event", e.event(), r.last.event())
	}
	allowed := true
	switch e := e.(type) {
	case Described:
		allowed = r.op == Describe && !r.described
		r.described = true
	case Section:
		expected := "" // the open section
		if e.State == End {
			expected = e.Name
		}
		if r.section != expected {
			return violationf("it sent the %s of section %s, but the open section is %q: sections do not nest", e.State, e.Name, r.section)
		}
		allowed, r.section = r.op != Describe, ""
		if e.State == Begin {
			r.section = e.Name
		}
	case Mutating:
		allowed = r.op.Mutates() && !r.mutates
		r.mutates = true
	case Change, OutputChange:
		allowed = r.op.Plans()
		r.changes = true
	case Base:
		allowed = r.op.Plans() && !r.base
		r.base = true
	case Output:
		allowed = r.op.Plans() || r.op.Mutates()
		if r.outputs[e.Name] {
			return violationf("it sent the output %s twice", e.Name)
		}
		r.outputs[e.Name] = true
	case Finished:
		switch {
		case r.op == Describe && !r.described:
			return violationf("it answered a describe without described")
		case e.NoOp && !r.op.Plans():
			return violationf("it finished a %s with no_op, which only plans have", r.op)
		case e.NoOp && r.changes:
			return violationf("it finished a %s with changes as no_op", r.op)
		}
		r.last = e
	case Failed:
		r.last = e
	}
	if !allowed {
		return violationf("it sent %s, which is not allowed now in a %s", e.event(), r.op)
	}
	return nil
}

// Mutating reports whether the program has sent mutating.
func (r *Receiver) Mutating() bool { return r.mutates }

// Section returns the name of the open section; "" if there is none.
func (r *Receiver) Section() string { return r.section }

// Close ends the output. It returns the last event: a Finished or a Failed, or nil if the program ended before it. The error is
// a *Violation.
func (r *Receiver) Close() (Event, error) {
	if r.wrong == nil && len(r.line) > 0 {
		r.wrong = violationf("its standard output ends in a line: %.100q", r.line)
	}
	return r.last, r.wrong
}
