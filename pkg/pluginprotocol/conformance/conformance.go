// Package conformance is the conformance suite of programs that are plugins. It starts a program as a step does, without a control
// plane and without the step's confinement, and checks what docs/reference/plugin-protocol.md requires. The program really applies
// and destroys what the spec describes.
package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// Spec is what the suite plans, applies and destroys. A text in Vars, Secrets and Options can have the placeholder ${folder}: an
// empty folder that exists until the end of the suite.
type Spec struct {
	Type           string                     `json:"type,omitempty"`            // of the component; "": plugin
	Source         string                     `json:"source,omitempty"`          // the component's folder; "": the program's folder
	Vars           map[string]json.RawMessage `json:"vars,omitempty"`            // variables
	Secrets        map[string]json.RawMessage `json:"secrets,omitempty"`         // sensitive variables
	Options        json.RawMessage            `json:"options,omitempty"`         // settings of the type, a JSON object
	Registry       *pluginprotocol.Registry   `json:"registry,omitempty"`        // of types that need one; the name of the component is appended to the repository
	PassEnv        []string                   `json:"pass_env,omitempty"`        // names of further environment variables that the program gets
	GraceSeconds   int64                      `json:"grace_seconds,omitempty"`   // time between cancel and kill; 0: 30
	TimeoutSeconds int64                      `json:"timeout_seconds,omitempty"` // longest run of one operation; 0: 300
}

func (s Spec) grace() time.Duration {
	if s.GraceSeconds > 0 {
		return time.Duration(s.GraceSeconds) * time.Second
	}
	return 30 * time.Second
}

func (s Spec) timeout() time.Duration {
	if s.TimeoutSeconds > 0 {
		return time.Duration(s.TimeoutSeconds) * time.Second
	}
	return 5 * time.Minute
}

// Result is how a check ended.
type Result string

// The results.
const (
	Passed  Result = "passed"
	Failed  Result = "failed"
	Skipped Result = "skipped" // because an earlier check failed, or the spec has nothing to check
)

// Check is one requirement.
type Check struct {
	Name    string `json:"name" doc:"What the program must do"`
	Result  Result `json:"result" doc:"passed, failed or skipped"`
	Message string `json:"message,omitempty" doc:"Why it failed or was skipped"`
	Log     string `json:"log,omitempty" doc:"Of a failed check: the end of the program's standard error"`
}

// Report is the result of the suite.
type Report struct {
	Program string  `json:"program" doc:"Path of the program"`
	Name    string  `json:"name,omitempty" doc:"Name of the plugin"`
	Version string  `json:"version,omitempty" doc:"Version of the plugin"`
	Passed  bool    `json:"passed" doc:"Whether no check failed"`
	Checks  []Check `json:"checks" doc:"The checks, in their order"`
}

type suite struct {
	spec    Spec
	program string // name of the program in spec.Source
	environ []string
	scratch string
	report  Report
	jobs    int
	blocked string // why the next checks cannot run
	odd     string // the first problem of the current check's runs that is one in each check
	leak    string // the first secret that a run has shown
}

// Run checks the program at a path. environ is the caller's environment, of which the program gets what a runner passes. The error
// is about the suite itself: the program cannot be started, or ctx has ended.
func Run(ctx context.Context, program string, spec Spec, environ []string) (Report, error) {
	path, err := filepath.Abs(program)
	if err != nil {
		return Report{}, fmt.Errorf("find the program: %w", err)
	}
	s := &suite{spec: spec, program: filepath.Base(path), environ: environ, report: Report{Program: program}}
	if s.spec.Type == "" {
		s.spec.Type = "plugin"
	}
	if s.spec.Source == "" {
		s.spec.Source = filepath.Dir(path)
	}
	if info, err := os.Stat(filepath.Join(s.spec.Source, s.program)); err != nil {
		return Report{}, &StartError{program, err}
	} else if !info.Mode().IsRegular() || info.Mode()&0o100 == 0 {
		return Report{}, &StartError{program, errors.New("it is no executable file")}
	}
	if s.scratch, err = os.MkdirTemp("", "fairlead-plugin-test-"); err != nil {
		return Report{}, fmt.Errorf("create the folder of the suite: %w", err)
	}
	defer os.RemoveAll(s.scratch)
	folder := filepath.Join(s.scratch, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return Report{}, fmt.Errorf("create the folder of the suite: %w", err)
	}
	if s.spec, err = s.spec.in(folder); err != nil {
		return Report{}, err
	}
	if err := s.all(ctx); err != nil {
		return Report{}, err
	}
	s.report.Passed = !slices.ContainsFunc(s.report.Checks, func(c Check) bool { return c.Result == Failed })
	return s.report, nil
}

// in returns the spec with the folder in place of its placeholder.
func (s Spec) in(folder string) (Spec, error) {
	text, err := json.Marshal(folder)
	if err != nil {
		return s, fmt.Errorf("encode the folder: %w", err)
	}
	fill := func(raw json.RawMessage) json.RawMessage {
		return bytes.ReplaceAll(raw, []byte("${folder}"), bytes.Trim(text, `"`))
	}
	for _, values := range []*map[string]json.RawMessage{&s.Vars, &s.Secrets} {
		filled := map[string]json.RawMessage{}
		for name, raw := range *values {
			filled[name] = fill(raw)
		}
		*values = filled
	}
	s.Options = fill(s.Options)
	return s, nil
}

// request returns the request of an operation on a component.
func (s *suite) request(op pluginprotocol.Operation, component, workspace string) pluginprotocol.Request {
	q := pluginprotocol.Request{Protocol: pluginprotocol.Version, Type: s.spec.Type, Operation: op, Job: fmt.Sprintf("job_%d", s.jobs), Epoch: 1,
		Install: "ins_conformance", InstallName: "conformance", Component: component, GraceSeconds: int64(s.spec.grace() / time.Second),
		Workspace: workspace, Plan: filepath.Join(workspace, "plan")}
	if s.spec.Registry != nil {
		at := *s.spec.Registry
		at.Repository += "/" + component
		q.Registry = &at
	}
	if op.Plans() {
		q.Source, q.Options, q.Vars = filepath.Join(workspace, "src"), s.spec.Options, map[string]pluginprotocol.Var{}
		for name, v := range s.spec.Vars {
			q.Vars[name] = pluginprotocol.Var{Value: v}
		}
		for name, v := range s.spec.Secrets {
			q.Vars[name] = pluginprotocol.Var{Value: v, Sensitive: true}
		}
	}
	return q
}

// do runs an operation of the component web.
func (s *suite) do(ctx context.Context, op pluginprotocol.Operation, saved []byte, stop stopWhen) (*outcome, error) {
	return s.on(ctx, op, "web", saved, stop)
}

func (s *suite) on(ctx context.Context, op pluginprotocol.Operation, component string, saved []byte, stop stopWhen) (*outcome, error) {
	s.jobs++
	var encoding error
	o, err := s.run(ctx, func(workspace string) ([]byte, pluginprotocol.Operation) {
		var line []byte
		line, encoding = s.request(op, component, workspace).Encode()
		return line, op
	}, saved, stop)
	if err := errors.Join(encoding, err); err != nil {
		return nil, err
	}
	s.examine(o)
	return o, nil
}

// raw runs the program with a line that is no valid request of a job.
func (s *suite) raw(ctx context.Context, line string) (*outcome, error) {
	o, err := s.run(ctx, func(string) ([]byte, pluginprotocol.Operation) { return []byte(line + "\n"), pluginprotocol.Describe }, nil, never)
	if err == nil {
		s.examine(o)
	}
	return o, err
}

// check runs a check and records it. A problem is the message of a failed check; "": it passed. A check of which later ones need the
// result has a consequence: the reason why these are skipped.
func (s *suite) check(name, consequence string, f func() (o *outcome, problem string, err error)) error {
	c := Check{Name: name, Result: Passed}
	if s.blocked != "" {
		c.Result, c.Message = Skipped, s.blocked
		s.report.Checks = append(s.report.Checks, c)
		return nil
	}
	s.odd = ""
	o, problem, err := f()
	if err != nil {
		return err
	}
	if problem = firstOf(problem, s.odd); problem != "" {
		c.Result, c.Message = Failed, s.hide(problem)
		s.blocked = consequence
		if o != nil {
			c.Log = s.hide(tail(o.log))
		}
	}
	s.report.Checks = append(s.report.Checks, c)
	return nil
}

func (s *suite) skip(name, why string) {
	s.report.Checks = append(s.report.Checks, Check{Name: name, Result: Skipped, Message: why})
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// tail returns the end of a log.
func tail(log string) string {
	const most = 2 << 10
	return strings.TrimSpace(log[max(0, len(log)-most):])
}

// hide masks the spec's secrets in a text of the report.
func (s *suite) hide(text string) string {
	for _, secret := range s.secrets() {
		text = strings.ReplaceAll(text, secret, "(sensitive)")
	}
	return text
}

// minSecret is the length of the shortest secret that is looked for, in bytes. A shorter one is in every output by chance.
const minSecret = 6

// secrets returns the texts in the sensitive variables.
func (s *suite) secrets() []string {
	var found []string
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case string:
			if len(v) >= minSecret {
				found = append(found, v)
				if quoted, err := json.Marshal(v); err == nil && string(quoted) != `"`+v+`"` {
					found = append(found, strings.Trim(string(quoted), `"`))
				}
			}
		case []any:
			for _, e := range v {
				collect(e)
			}
		case map[string]any:
			for _, e := range v {
				collect(e)
			}
		}
	}
	for _, raw := range s.spec.Secrets {
		var v any
		if json.Unmarshal(raw, &v) == nil {
			collect(v)
		}
	}
	return found
}

// examine records the problems that every run can have.
func (s *suite) examine(o *outcome) {
	if o.leftover {
		s.odd = firstOf(s.odd, "it left processes running after its end: a program must wait for the processes that it starts")
	}
	if len(o.extra) > 0 {
		s.odd = firstOf(s.odd, fmt.Sprintf("it wrote %s beside its workspace: a job must keep nothing there", strings.Join(o.extra, ", ")))
	}
	for _, secret := range s.secrets() {
		if strings.Contains(o.log, secret) {
			s.leak = firstOf(s.leak, fmt.Sprintf("standard error of the %s has the value of a sensitive variable", o.op))
		}
		for _, e := range o.events {
			if out, ok := e.(pluginprotocol.Output); ok && out.Sensitive {
				continue
			}
			line, err := pluginprotocol.Encode(e)
			if err == nil && strings.Contains(string(line), secret) {
				s.leak = firstOf(s.leak, fmt.Sprintf("an event of the %s that is no sensitive output has the value of a sensitive variable: %s", o.op, line))
			}
		}
	}
}

// unlessFinished returns the problem of a run that should have finished.
func unlessFinished(o *outcome) string {
	if _, ok := o.finished(); !ok {
		return o.String()
	}
	return ""
}

// unlessRefused returns the problem of a run that should have failed without a change.
func unlessRefused(o *outcome) string {
	switch _, failed := o.failed(); {
	case o.mutating():
		return "it sent mutating, and should have refused before any change"
	case !failed:
		return "it should have failed: " + o.String()
	}
	return ""
}

// unlessStopped returns the problem of a run that was asked to stop. The interrupt may end a plan at once, also before it can handle
// the interrupt: the step keeps nothing of it.
func unlessStopped(o *outcome) string {
	if o.op.Plans() && o.interrupted && !o.late {
		return ""
	}
	_, finished := o.finished()
	_, failed := o.failed()
	if !finished && !failed {
		return "asked to stop, it should have ended within the grace period with finished or failed: " + o.String()
	}
	return ""
}

// planned returns the events of a plan that a repetition must repeat, as lines.
func planned(o *outcome) (lines []string) {
	for _, e := range o.events {
		if _, ok := e.(pluginprotocol.Section); ok {
			continue
		}
		if line, err := pluginprotocol.Encode(e); err == nil {
			lines = append(lines, string(line))
		}
	}
	return lines
}

func noOp(o *outcome) bool {
	f, _ := o.finished()
	return f.NoOp
}

// stale returns the problem of a refusal that does not name its reason.
func stale(o *outcome) string {
	if f, ok := o.failed(); ok && f.Reason == fairlead.ReasonToolFailed {
		return fmt.Sprintf("it refused with the reason %s, but %s makes the step plan again", f.Reason, fairlead.ReasonPlanStale)
	}
	return ""
}
