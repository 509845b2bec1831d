package terraform

import (
	"bytes"
	"io"
)

// dumpCatcher removes a state from an apply's standard error. If a tool can write neither its state nor a copy of the state,
// it prints the state. The printed state is the only record of the new resources. It holds secrets that the step does not
// know, so it must not get into the log.
//
// OpenTofu prints the state on one line, Terraform on many lines. Not safe for concurrent use.
type dumpCatcher struct {
	w          io.Writer
	dump       []byte // the last printed state; may be incomplete
	pending    []byte // output that may be a state, from the start of its first line
	insideLine bool   // inside a line that is not part of a state
	overflowed bool   // pending became too large, and its rest was dropped
}

// maxDump limits the size of a printed state, in bytes: dumpCatcher keeps it in memory.
const maxDump = 64 << 20

// stateRemoved replaces the state in the log.
const stateRemoved = "[fairlead: the tool printed its state here, because it could not save it; it is not kept in this log]\n"

var (
	compactState  = []byte(`{"version":`)
	indentedState = []byte("{\n  \"version\":")
	lastLine      = []byte("\n}\n")
)

func (c *dumpCatcher) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line := p
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			line = p[:i+1]
		}
		p = p[len(line):]
		if err := c.take(line); err != nil {
			return n, err
		}
	}
	return n, nil
}

// take handles a line or a part of a line.
func (c *dumpCatcher) take(line []byte) error {
	ends := line[len(line)-1] == '\n'
	if c.insideLine {
		c.insideLine = !ends
		_, err := c.w.Write(line)
		return err
	}
	c.pending = append(c.pending, line...)
	over := false
	switch {
	case bytes.HasPrefix(c.pending, compactState):
		over = ends
	case bytes.HasPrefix(c.pending, indentedState):
		over = bytes.HasSuffix(c.pending, lastLine)
	case bytes.HasPrefix(compactState, c.pending), bytes.HasPrefix(indentedState, c.pending):
		return nil // the pending output may become a state
	default:
		c.insideLine = !ends
		return c.flush()
	}
	if over {
		return c.keepState()
	}
	if len(c.pending) > maxDump {
		c.pending, c.overflowed = append(c.pending[:len(indentedState)], '\n'), true // keep the part that identifies the format, to find the end
	}
	return nil
}

func (c *dumpCatcher) flush() error {
	_, err := c.w.Write(c.pending)
	c.pending = c.pending[:0]
	return err
}

func (c *dumpCatcher) keepState() error {
	if c.dump = nil; !c.overflowed {
		c.dump = bytes.Clone(c.pending)
	}
	c.pending, c.overflowed = c.pending[:0], false
	_, err := io.WriteString(c.w, stateRemoved)
	return err
}

// end is called after all output was written. It returns the printed state, or nil if the tool printed no state. It passes on
// pending output that is not a state.
func (c *dumpCatcher) end() []byte {
	switch {
	case bytes.HasPrefix(c.pending, compactState), bytes.HasPrefix(c.pending, indentedState):
		c.keepState()
	case len(c.pending) > 0:
		c.flush()
	}
	return c.dump
}
