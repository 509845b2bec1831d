package pluginprotocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Event is a line of a program's standard output: one of the types in this file.
type Event interface {
	// event returns the event's name in JSON.
	event() string
	// check returns a message about an invalid event, or "".
	check() string
}

// Described is the answer to a describe.
type Described struct {
	Name       string      `json:"name"`
	Version    string      `json:"version"`
	Protocols  []int       `json:"protocols"`       // versions of the protocol, such as [1]
	Operations []Operation `json:"operations"`      // without describe
	Types      []string    `json:"types,omitempty"` // component types that the program serves; empty: it does not look at the type
}

// State is the begin or the end of a section.
type State string

// The states.
const (
	Begin State = "begin"
	End   State = "end"
)

// Section begins or ends a section of the log, which a person can fold. Sections do not nest.
type Section struct {
	Name   string `json:"name"` // lower-case letters, digits and hyphens
	State  State  `json:"state"`
	Failed bool   `json:"failed,omitempty"` // of an end
}

// Mutating is the statement that the first change begins. A program sends it before it sends the first request that changes an
// object.
type Mutating struct{}

// Change is a change of an object that the plan will make.
type Change struct {
	Change changeset.Change `json:"change"`
}

// OutputChange is a change of an output that the plan will make; the address is the output's name.
type OutputChange struct {
	Change changeset.Change `json:"change"`
}

// Base names the version of the component's record on which the plan was made.
type Base struct {
	Base changeset.Base `json:"base"`
}

// Output is an output of the component: after an apply, or of a plan without changes. A null value is no output.
type Output struct {
	Name      string          `json:"name"`
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive,omitempty"`
}

// Finished is the last event of an operation that succeeded.
type Finished struct {
	NoOp bool `json:"no_op,omitempty"` // of a plan: nothing has to be applied
}

// Failed is the last event of an operation that failed.
type Failed struct {
	Reason  fairlead.Reason `json:"reason"`  // one of Reasons, else the job fails with tool-failed
	Message string          `json:"message"` // what happened, to which object, and what to do next; no secret
}

// Ignored is an event of an unknown name that its program calls optional.
type Ignored struct{ Name string }

func (Described) event() string    { return "described" }
func (Section) event() string      { return "section" }
func (Mutating) event() string     { return "mutating" }
func (Change) event() string       { return "change" }
func (OutputChange) event() string { return "output_change" }
func (Base) event() string         { return "base" }
func (Output) event() string       { return "output" }
func (Finished) event() string     { return "finished" }
func (Failed) event() string       { return "failed" }
func (i Ignored) event() string    { return i.Name }

func (e Described) check() string {
	if e.Name == "" || e.Version == "" || len(e.Protocols) == 0 || len(e.Operations) == 0 {
		return "described needs a name, a version, protocols and operations"
	}
	return ""
}

func (e Section) check() string {
	if !sectionName.MatchString(e.Name) || e.State != Begin && e.State != End {
		return fmt.Sprintf("section needs a name of lower-case letters, digits and hyphens, and the state begin or end; it has %.100q and %.100q", e.Name, e.State)
	}
	return ""
}

func (Mutating) check() string { return "" }

func (e Change) check() string { return checkChange(e.Change) }

func (e OutputChange) check() string {
	if !outputName.MatchString(e.Change.Address) {
		return fmt.Sprintf("%.100q is not a valid name of an output", e.Change.Address)
	}
	return checkChange(e.Change)
}

func checkChange(c changeset.Change) string {
	switch {
	case c.Address == "":
		return "a change has no address"
	case !c.Action.Known():
		return fmt.Sprintf("the change of %.100q has the unknown action %.100q", c.Address, c.Action)
	}
	return ""
}

func (Base) check() string { return "" }

func (e Output) check() string {
	switch {
	case !outputName.MatchString(e.Name):
		return fmt.Sprintf("%.100q is not a valid name of an output", e.Name)
	case len(e.Value) == 0:
		return fmt.Sprintf("the output %s has no value", e.Name)
	}
	return ""
}

func (Finished) check() string { return "" }

func (e Failed) check() string {
	if e.Reason == "" || e.Message == "" {
		return "failed needs a reason and a message"
	}
	return ""
}

func (Ignored) check() string { return "" }

// Encode returns the event as a line. It refuses an event that the step would refuse; the error wraps ErrLineTooLong if the line is
// too long.
func Encode(e Event) ([]byte, error) {
	if text := e.check(); text != "" {
		return nil, fmt.Errorf("encode an event: %s", text)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode the event %s: %w", e.event(), err)
	}
	line := []byte(`{"event":"` + e.event() + `"`)
	if len(body) > len("{}") {
		line = append(line, ',')
	}
	line = append(append(line, body[1:]...), '\n')
	if len(line) > MaxLine {
		return nil, fmt.Errorf("encode the event %s: %w: it has %d bytes, %d are allowed", e.event(), ErrLineTooLong, len(line), MaxLine)
	}
	return line, nil
}

// Decode decodes a line. Numbers in changes have the type json.Number. The error is a *Violation. It refuses unknown
// fields, because a misspelt "sensitive" would show a secret.
func Decode(line []byte) (Event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return nil, violationf("a line of its standard output is not a JSON object: %.100q. Write logs to standard error", line)
	}
	var name string
	var optional bool
	if json.Unmarshal(fields["event"], &name) != nil || name == "" {
		return nil, violationf("a line of its standard output has no event: %.100q", line)
	}
	if raw, ok := fields["optional"]; ok && json.Unmarshal(raw, &optional) != nil {
		return nil, violationf("the event %.100q has a value of optional that is not true or false", name)
	}
	delete(fields, "event")
	delete(fields, "optional")
	switch name {
	case Described{}.event():
		return decode[Described](name, fields)
	case Section{}.event():
		return decode[Section](name, fields)
	case Mutating{}.event():
		return decode[Mutating](name, fields)
	case Change{}.event():
		return decode[Change](name, fields)
	case OutputChange{}.event():
		return decode[OutputChange](name, fields)
	case Base{}.event():
		return decode[Base](name, fields)
	case Output{}.event():
		return decode[Output](name, fields)
	case Finished{}.event():
		return decode[Finished](name, fields)
	case Failed{}.event():
		return decode[Failed](name, fields)
	}
	if optional {
		return Ignored{name}, nil
	}
	return nil, violationf("it sent the unknown event %.100q, which it does not call optional", name)
}

func decode[T Event](name string, fields map[string]json.RawMessage) (Event, error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, violationf("the event %s cannot be read: %v", name, fairlead.JSONError(err))
	}
	var e T
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return nil, violationf("the event %s cannot be read: %v", name, fairlead.JSONError(err))
	}
	if text := e.check(); text != "" {
		return nil, violationf("%s", text)
	}
	return e, nil
}

// Violation is output that the protocol does not allow.
type Violation struct{ Message string }

func (v *Violation) Error() string { return v.Message }

func violationf(format string, args ...any) *Violation {
	return &Violation{fmt.Sprintf(format, args...)}
}

// Reasons lists the reasons that a program can report.
func Reasons() []fairlead.Reason {
	return append(slices.Concat(fairlead.ClusterReasons(), fairlead.RegistryReasons()), fairlead.ReasonCanceled, fairlead.ReasonToolFailed, fairlead.ReasonToolMissing, fairlead.ReasonInitFailed,
		fairlead.ReasonDiskFull, fairlead.ReasonEnvInvalid, fairlead.ReasonArtifactInvalid, fairlead.ReasonPlanStale, fairlead.ReasonPlanElsewhere,
		fairlead.ReasonStateLocked, fairlead.ReasonOutputsTooLarge,
		fairlead.ReasonSpecMalformed, fairlead.ReasonSpecVersion, fairlead.ReasonSpecOperation, fairlead.ReasonSpecInvalid)
}
