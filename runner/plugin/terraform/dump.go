package terraform

import (
	"bytes"
	"io"
)

// dumpCatcher takes a state out of what an apply writes to its standard error.
// A tool that can write its state nowhere, not even into a copy, prints it. The
// state holds secrets that the step does not know, so it must not get into the
// log; and it is the only one that knows what was made.
//
// OpenTofu prints it on one line, Terraform on many. Not safe for concurrent use.
type dumpCatcher struct {
	w    io.Writer
	dump []byte // the last one; perhaps torn
	held []byte // of a text that may be one, from the beginning of its first line
	mid  bool   // in a line that is none
	lost bool   // what is held had become too large, and the rest of it is dropped
}

// maxDump is the largest state that is caught, in bytes: it is held in memory.
const maxDump = 64 << 20

// caught is what the log says in the place of the state.
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

// take takes a line, or a piece of one.
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
		return nil // it may become one
	default:
		c.mid = !ends
		return c.flush()
	}
	if over {
		return c.keep()
	}
	if len(c.held) > maxDump {
		c.held, c.lost = append(c.held[:len(indentedState)], '\n'), true // its kind and its end are still told
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

// end returns the state, if one was printed, when all was written. What was held
// back and is none is passed on.
func (c *dumpCatcher) end() []byte {
	switch {
	case bytes.HasPrefix(c.held, compactState), bytes.HasPrefix(c.held, indentedState):
		c.keep()
	case len(c.held) > 0:
		c.flush()
	}
	return c.dump
}
