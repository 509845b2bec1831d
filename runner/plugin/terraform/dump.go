package terraform

import (
	"bytes"
	"io"
)

// dumpCatcher removes a state from an apply's standard error. A tool that cannot write its state anywhere, not even to a
// copy, prints it. The printed state is the only record of the new resources, and it holds secrets that the step does not
// know, so it must not get into the log.
//
// OpenTofu prints it on one line, Terraform on many lines. Not safe for concurrent use.
type dumpCatcher struct {
	w    io.Writer
	dump []byte // the last state; may be incomplete
	held []byte // output that may be a state, from the start of its first line
	mid  bool   // inside a line that is not part of a state
	lost bool   // held became too large, and its rest was dropped
}

// maxDump limits the size of a caught state, in bytes: it is held in memory.
const maxDump = 64 << 20

// caught replaces the state in the log.
const caught = "[fairlead: the tool printed its state here, because it could not save it; it is not kept in this log]\n"

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

// take handles a line or a part of one.
func (c *dumpCatcher) take(line []byte) error {
	ends := line[len(line)-1] == '\n'
	if c.mid {
		c.mid = !ends
		_, err := c.w.Write(line)
		return err
	}
	c.held = append(c.held, line...)
	over := false
	switch {
	case bytes.HasPrefix(c.held, compactState):
		over = ends
	case bytes.HasPrefix(c.held, indentedState):
		over = bytes.HasSuffix(c.held, lastLine)
	case bytes.HasPrefix(compactState, c.held), bytes.HasPrefix(indentedState, c.held):
		return nil // it may become a state
	default:
		c.mid = !ends
		return c.flush()
	}
	if over {
		return c.keep()
	}
	if len(c.held) > maxDump {
		c.held, c.lost = append(c.held[:len(indentedState)], '\n'), true // keep what identifies its format and its end
	}
	return nil
}

func (c *dumpCatcher) flush() error {
	_, err := c.w.Write(c.held)
	c.held = c.held[:0]
	return err
}

func (c *dumpCatcher) keep() error {
	if c.dump = nil; !c.lost {
		c.dump = bytes.Clone(c.held)
	}
	c.held, c.lost = c.held[:0], false
	_, err := io.WriteString(c.w, caught)
	return err
}

// end is called after all output was written. It returns the printed state, or nil if there is none, and passes on held
// output that is not a state.
func (c *dumpCatcher) end() []byte {
	switch {
	case bytes.HasPrefix(c.held, compactState), bytes.HasPrefix(c.held, indentedState):
		c.keep()
	case len(c.held) > 0:
		c.flush()
	}
	return c.dump
}
