// Package pluginprotocol is version 1 of the protocol between a step and a plugin that is a program of its own.
//
// The step starts one process for each operation. Standard input has the request as one line of JSON; a later line may ask
// the program to stop. Standard output has the program's events, one a line. Standard error is the job's log.
// docs/reference/plugin-protocol.md describes the protocol for authors of plugins.
//
// The package is pure: it encodes, decodes and checks. Package serve is for a plugin that is written in Go.
package pluginprotocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// Version is the version of the protocol.
const Version = 1

// The limits, in bytes.
const (
	MaxLine    = 1 << 20  // one event with its newline
	MaxStream  = 64 << 20 // all of a program's standard output
	MaxRequest = 32 << 20 // the request with its newline; the variables of a component have at most 16 MiB
	MaxMessage = 4 << 10  // the message of a failure; a longer one is cut
	MaxPlan    = 64 << 20 // the saved plan; the storage can have a lower limit
)

// Operation is what a program does in one process.
type Operation string

// The operations.
const (
	Describe    Operation = "describe" // names the program and its operations; has no job
	Plan        Operation = "plan"
	PlanDestroy Operation = "plan-destroy"
	Apply       Operation = "apply"
	Destroy     Operation = "destroy"
)

// Operations lists the operations of a job.
func Operations() []Operation { return []Operation{Plan, PlanDestroy, Apply, Destroy} }

// Plans reports whether the operation writes a saved plan.
func (o Operation) Plans() bool { return o == Plan || o == PlanDestroy }

// Mutates reports whether the operation reads a saved plan and changes objects.
func (o Operation) Mutates() bool { return o == Apply || o == Destroy }

// Request is the first line of standard input. A describe has only Protocol and Operation.
type Request struct {
	Protocol     int             `json:"protocol"`       // 1
	Type         string          `json:"type,omitempty"` // of the component: one program can serve many types
	Operation    Operation       `json:"operation"`
	Job          string          `json:"job,omitempty"`
	Epoch        int64           `json:"epoch,omitempty"`
	Install      string          `json:"install,omitempty"` // identifier, never used again
	InstallName  string          `json:"install_name,omitempty"`
	Component    string          `json:"component,omitempty"`
	GraceSeconds int64           `json:"grace_seconds,omitempty"` // time between cancel and kill
	Workspace    string          `json:"workspace,omitempty"`     // absolute path of the job's folder, removed afterwards
	Source       string          `json:"source,omitempty"`        // absolute path of the component's source; only of plans
	Plan         string          `json:"plan,omitempty"`          // absolute path of the saved plan: a plan writes the file, an apply and a destroy read it
	Vars         map[string]Var  `json:"vars,omitempty"`          // the component's variables; only of plans
	Options      json.RawMessage `json:"options,omitempty"`       // settings of the type: a JSON object; only of plans
	Registry     *Registry       `json:"registry,omitempty"`      // of types whose objects are in the install's registry
	Image        *Image          `json:"image,omitempty"`         // of types whose artifact is an image; Source is then an empty folder
}

// Image is the image that a build has made of the component.
type Image struct {
	URL        string `json:"url"` // of the registry, such as https://registry.example.com
	Repository string `json:"repository"`
	Digest     string `json:"digest"`
	Login      string `json:"login,omitempty"` // as in Registry
	CA         string `json:"ca,omitempty"`    // as in Registry
}

// Registry is the component's repository in the registry of its install.
type Registry struct {
	Kind       string `json:"kind"`             // oci, ecr or control-plane
	URL        string `json:"url"`              // such as https://registry.example.com
	Repository string `json:"repository"`       // of this component only
	Login      string `json:"login,omitempty"`  // name of the environment variable with USER:PASSWORD or a Docker configuration; "": none
	CA         string `json:"ca,omitempty"`     // name of the environment variable with the certificates of the server, in PEM; "": those that the machine trusts
	Region     string `json:"region,omitempty"` // ecr
}

// Var is the value of one variable. A sensitive value must not appear in a log, a message or a change.
type Var struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive,omitempty"`
}

// Control is a later line of standard input.
type Control struct {
	Cancel *Cancel `json:"cancel,omitempty"`
}

// Cancel asks the program to stop within the grace period.
type Cancel struct {
	Reason string `json:"reason"` // such as canceled
}

// Encode returns the request as a line. It refuses a request that is longer than MaxRequest.
func (r Request) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request of a plugin: %w", err)
	}
	if len(b)+1 > MaxRequest {
		return nil, fmt.Errorf("encode the request of a plugin: it has %d bytes, %d are allowed", len(b)+1, MaxRequest)
	}
	return append(b, '\n'), nil
}

// Encode returns the line.
func (c Control) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // encoding a string cannot fail
	}
	return append(b, '\n')
}

// DecodeRequest decodes and checks the first line of standard input. The error is a *RequestError. A program ignores the
// fields that it does not know: later minor versions of the step can add some.
func DecodeRequest(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, requestErrorf(fairlead.ReasonSpecMalformed, "the first line of standard input is not a request: %v", fairlead.JSONError(err))
	}
	return r, r.check()
}

func (r Request) check() error {
	mutable := r.Operation.Plans() || r.Operation.Mutates()
	switch {
	case r.Protocol != Version:
		return requestErrorf(fairlead.ReasonSpecVersion, "the request has version %d of the protocol, this program supports %d: update the plugin", r.Protocol, Version)
	case r.Operation == Describe:
		return nil
	case !mutable:
		return requestErrorf(fairlead.ReasonSpecOperation, "the operation %.100q is unknown", r.Operation)
	case r.Job == "" || r.Install == "" || r.Component == "":
		return requestErrorf(fairlead.ReasonSpecInvalid, "the request of this %s names no job, no install or no component", r.Operation)
	case !filepath.IsAbs(r.Workspace) || !filepath.IsAbs(r.Plan):
		return requestErrorf(fairlead.ReasonSpecInvalid, "the paths of the workspace and of the plan must be absolute")
	case r.Operation.Plans() != (r.Source != "") || r.Source != "" && !filepath.IsAbs(r.Source):
		return requestErrorf(fairlead.ReasonSpecInvalid, "a plan has the absolute path of its source, and no other operation has one")
	case r.Operation.Mutates() && (len(r.Vars) > 0 || len(r.Options) > 0):
		return requestErrorf(fairlead.ReasonSpecInvalid, "this %s has variables or options, which only plans have", r.Operation)
	case len(r.Options) > 0 && !isObject(r.Options):
		return requestErrorf(fairlead.ReasonSpecInvalid, "the options are not a JSON object")
	}
	return nil
}

func isObject(b []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) }

// RequestError is a refused request, with the reason that the program reports.
type RequestError struct {
	Reason  fairlead.Reason
	Message string
}

func (e *RequestError) Error() string { return e.Message }

func requestErrorf(reason fairlead.Reason, format string, args ...any) *RequestError {
	return &RequestError{reason, fmt.Sprintf(format, args...)}
}

// ErrLineTooLong reports a line that is longer than its limit.
var ErrLineTooLong = errors.New("the line is too long")

// ReadLine reads a line of at most limit bytes, without its newline. The error is io.EOF if there is no line and
// io.ErrUnexpectedEOF if the input ends in a line.
func ReadLine(r io.ByteReader, limit int) ([]byte, error) {
	var line []byte
	for {
		c, err := r.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case c == '\n':
			return line, nil
		case len(line)+1 >= limit:
			return nil, ErrLineTooLong
		}
		line = append(line, c)
	}
}

// outputName matches the names that a reference to an output can have.
var outputName = pattern.New(`^[A-Za-z_][A-Za-z0-9_-]{0,125}$`)

// sectionName matches the names of sections.
var sectionName = pattern.New(`^[a-z][a-z0-9-]{0,31}$`)
