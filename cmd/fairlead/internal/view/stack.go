package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Stack is a customer's runner stack.
type Stack wire.Stack

// JSON returns the wire.Stack.
func (s Stack) JSON() any { return wire.Stack(s) }

// StackState describes the state of a stack, and the time of the state.
func StackState(s wire.Stack) string {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return Time(*t)
	}
	switch s.State {
	case "waiting":
		if s.WaitsUntil == nil {
			return "waiting for its runner"
		}
		return "waiting for its runner until " + at(s.WaitsUntil)
	case "expired":
		return "expired: no runner connected before " + at(s.WaitsUntil)
	case "stopped":
		return "stopped: its runner logged out at " + at(s.Since) + "; the stack was deleted, or its runner was stopped"
	case "lost":
		return "lost: its runner was last seen at " + at(s.Since)
	}
	return s.State
}

// Human writes the state of the stack, what the stack has reported, and what the
// customer needs to create it.
func (s Stack) Human(p *Page) {
	p.Fields([2]string{"Install", s.Install}, [2]string{"Runner", s.Runner}, [2]string{"Account", s.Account}, [2]string{"Region", s.Region},
		[2]string{"State", StackState(wire.Stack(s))})
	if r := s.Report; r != nil {
		p.Gap()
		rows := [][]string{{"stack", r.StackID}, {"template version", r.Version}, {"region", r.Region}, {"image", orDash(r.Image)},
			{"state bucket", r.StateBucket}, {"state key", r.StateKey}, {"image repository", r.Images}, {"artifact repository", r.Artifacts}, {"boundary", r.Boundary}}
		for _, operation := range sortedKeys(r.Roles) {
			rows = append(rows, []string{"role " + operation, r.Roles[operation]})
		}
		p.Table([]string{"REPORTED", "VALUE"}, rows)
	}
	if len(s.Changes) > 0 {
		p.Gap()
		var rows [][]string
		for _, c := range s.Changes {
			rows = append(rows, []string{Time(c.At), strings.Join(c.What, "; ")})
		}
		p.Table([]string{"CHANGED", "WHAT"}, rows)
	}
	p.Gap()
	p.Line("Open this link in account %s, or send it to a person who may create stacks there:", s.Account)
	p.Line("  %s", s.QuickCreateURL)
	p.Gap()
	p.Line("Template: %s", s.TemplateURL)
	rows := make([][]string, len(s.Parameters))
	for i, q := range s.Parameters {
		rows[i] = []string{q.Name, q.Value}
	}
	p.Table([]string{"PARAMETER", "VALUE"}, rows)
	p.Line("%s", fmt.Sprintf("Acknowledge that the stack creates named IAM resources (CAPABILITY_NAMED_IAM). Stack name: %s", s.StackName))
}
