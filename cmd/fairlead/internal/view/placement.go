package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Configuration is the configuration of a runner.
type Configuration json.RawMessage

// JSON returns the configuration.
func (c Configuration) JSON() any { return json.RawMessage(c) }

// Human writes YAML. A person can edit it and send it back.
func (c Configuration) Human(p *Page) {
	for line := range strings.Lines(string(YAML(json.RawMessage(c)))) {
		p.Line("%s", strings.TrimRight(line, "\n"))
	}
}

// YAML converts JSON to YAML and keeps the order of the fields.
func YAML(data json.RawMessage) []byte {
	text, err := yaml.JSONToYAML(data)
	if err != nil {
		return data // JSON is valid YAML
	}
	return text
}

// RunnerMode is a runner after its mode was set.
type RunnerMode wire.Runner

// JSON returns the wire.Runner.
func (r RunnerMode) JSON() any { return wire.Runner(r) }

// Human writes one line, and the number of jobs that still run.
func (r RunnerMode) Human(p *Page) {
	p.Line("%s Runner %s is %s", Styled(p.Style.Good("✓")), r.Name, r.Mode)
	running := 0
	for _, s := range r.Sessions {
		if s.State == "online" {
			running += len(s.Running)
		}
	}
	if r.Mode != "enabled" && running > 0 {
		p.Line("  Jobs still running: %d. `fairlead runner show %s` shows when they have ended.", running, r.Name)
	}
}

// Placement is the choice of the runner that serves an install.
type Placement wire.Placement

// JSON returns the wire.Placement.
func (e Placement) JSON() any { return wire.Placement(e) }

// Human writes the decision, and each candidate with the reason for or against it.
func (e Placement) Human(p *Page) {
	switch {
	case e.Refused != nil:
		p.Line("install %s: %s", e.Install, e.Refused.Message)
	case e.Rule != "":
		p.Line("install %s: runner %s, by rule %s", e.Install, e.Runner, e.Rule)
	default:
		p.Line("install %s: runner %s (%s)", e.Install, e.Runner, e.Level)
	}
	switch e.Bound {
	case "":
	case e.Runner:
		p.Line("bound to it")
	default:
		p.Line("bound to runner %s until it is refreshed", e.Bound)
	}
	if serves := cmp.Or(e.Bound, e.Runner); e.Mode != "" && e.Mode != "enabled" {
		p.Line("runner %s starts no jobs: the vendor has set it to %s", serves, e.Mode)
	}
	if serves := cmp.Or(e.Bound, e.Runner); e.Customer != nil {
		p.Line("runner %s starts no jobs: the customer has set it to %s", serves, customerMode(e.Customer))
	}
	table(p, []string{"", "BY", "CANDIDATE", "WHY"}, e.Candidates, func(c wire.Candidate) []string {
		mark, what := "-", c.Runner
		if c.Won {
			mark = "*"
		}
		if c.Rule != "" {
			what = fmt.Sprintf("%s: %s -> %s", c.Rule, c.Match, cmp.Or(c.Runner, "?"))
		}
		return []string{mark, c.Level, what, c.Why}
	})
	if e.Refused != nil && e.Refused.Hint != "" {
		p.Line("%s", Hint(e.Refused.Hint, e.Refused.Actions))
	}
}

// Refreshed is the result of a placement refresh.
type Refreshed struct {
	Install string
	DryRun  bool
	Answer  wire.RefreshedRunner
}

// JSON returns the wire.RefreshedRunner.
func (r Refreshed) JSON() any { return r.Answer }

// Human writes one line.
func (r Refreshed) Human(p *Page) {
	switch {
	case !r.Answer.Bound:
		p.Line("The first deployment binds install %s to a runner; the current rules choose runner %s", r.Install, r.Answer.Runner)
	case !r.Answer.Changed && !r.Answer.StorageChanged:
		p.Line("Install %s stays on runner %s", r.Install, r.Answer.Runner)
	case r.DryRun:
		p.Line("Install %s would be on runner %s", r.Install, r.Answer.Runner)
	default:
		p.Line("%s Install %s is now on runner %s", Styled(p.Style.Good("✓")), r.Install, r.Answer.Runner)
	}
}

// Rules is a listing of rules.
type Rules []wire.RunnerRule

// JSON returns an array of wire.RunnerRule.
func (rs Rules) JSON() any { return array(rs) }

// Human writes a table.
func (rs Rules) Human(p *Page) {
	table(p, []string{"RULE", "MATCHES", "RUNNER", "CREATED"}, rs, func(r wire.RunnerRule) []string { return []string{r.ID, r.Match, r.Runner, p.Ago(r.CreatedAt)} })
}

// Groups is a listing of groups.
type Groups []wire.Group

// JSON returns an array of wire.Group.
func (gs Groups) JSON() any { return array(gs) }

// Human writes a table.
func (gs Groups) Human(p *Page) {
	table(p, []string{"GROUP", "DESCRIPTION"}, gs, func(g wire.Group) []string { return []string{g.Path, g.Description} })
}

// Group is one group.
type Group wire.Group

// JSON returns the wire.Group.
func (g Group) JSON() any { return wire.Group(g) }

// Human writes its fields.
func (g Group) Human(p *Page) {
	created := ""
	if g.CreatedAt != nil {
		created = Time(*g.CreatedAt)
	}
	p.Fields([2]string{"Group", g.Path}, [2]string{"About", g.Description}, [2]string{"Created", created})
}

// Variables are environment variables of jobs.
type Variables wire.Variables

// JSON returns the wire.Variables.
func (v Variables) JSON() any { return wire.Variables(v) }

// Human writes a table. It shows a sensitive value as "(sensitive)".
func (v Variables) Human(p *Page) {
	var rows [][]string
	for _, name := range sortedKeys(v.Values) {
		value := v.Values[name].Value
		if v.Values[name].Sensitive {
			value = "(sensitive)"
		}
		rows = append(rows, []string{name, value})
	}
	p.Table([]string{"VARIABLE", "VALUE"}, rows)
}

// Possible reports whether a runner of one kind may use a state storage, or run on a sandbox.
type Possible struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"` // the reason if OK is false, or a warning
}

// Matrix lists the state storages that each kind of runner may use, or the sandboxes on which it can run.
type Matrix struct {
	Text    string
	Runners map[string]map[string]Possible
}

// JSON returns {runner: {state storage or sandbox: {"ok", "why"}}}.
func (m Matrix) JSON() any { return m.Runners }

// Human writes a table with notes.
func (m Matrix) Human(p *Page) {
	for line := range strings.Lines(m.Text) {
		p.Line("%s", strings.TrimRight(line, "\n"))
	}
}
