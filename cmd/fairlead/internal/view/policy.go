package view

import (
	"time"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// PolicyProblems holds the problems of a customer's policy, if any.
type PolicyProblems struct {
	File     string
	Problems []yamlnode.Problem
}

// JSON returns {"valid", "problems"}.
func (d PolicyProblems) JSON() any {
	return struct {
		Valid    bool               `json:"valid"`
		Problems []yamlnode.Problem `json:"problems"`
	}{len(d.Problems) == 0, append([]yamlnode.Problem{}, d.Problems...)}
}

// Human writes one line for each problem.
func (d PolicyProblems) Human(p *Page) {
	for _, pr := range d.Problems {
		p.Line("%s", pr.String())
	}
	if len(d.Problems) == 0 {
		p.Line("%s %s is valid", Styled(p.Style.Good("✓")), d.File)
	}
}

// PolicyTest is what a policy decides about the plans of a ledger.
type PolicyTest struct {
	File        string             `json:"file"`
	Tested      int                `json:"tested"`      // number of plans
	Denied      int                `json:"denied"`      // by the policy
	Differences int                `json:"differences"` // plans that the runner's policy decided otherwise
	Plans       []PolicyPlan       `json:"plans"`
	Problems    []yamlnode.Problem `json:"problems,omitempty"` // of the policy; nothing was tested
}

// PolicyPlan is one plan of a ledger.
type PolicyPlan struct {
	At        time.Time      `json:"at"`
	Install   string         `json:"install,omitempty"`
	Component string         `json:"component"`
	Operation string         `json:"operation"`
	Job       string         `json:"job"`
	Before    PolicyDecision `json:"before"` // of the policy that the runner had
	Now       PolicyDecision `json:"now"`    // of the tested policy
}

// PolicyDecision is a decision about a plan.
type PolicyDecision struct {
	Decision string `json:"decision"` // allow, deny, needs-approval
	Rule     string `json:"rule,omitempty"`
	Line     int    `json:"line,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// JSON returns the test itself.
func (d PolicyTest) JSON() any { return d }

// Human writes the plans, and the numbers.
func (d PolicyTest) Human(p *Page) {
	for _, pr := range d.Problems {
		p.Line("%s", pr.String())
	}
	if len(d.Problems) > 0 {
		return
	}
	for _, pl := range d.Plans {
		p.Line("%s %s of %s on %s (%s): %s, was %s", pl.At.UTC().Format(time.DateTime), pl.Operation, pl.Component, pl.Install, pl.Job, pl.Now.text(), pl.Before.Decision)
		if pl.Now.Reason != "" {
			p.Line("    %s", pl.Now.Reason)
		}
	}
	p.Line("%d plans tested: %d denied, %d decided otherwise than before.", d.Tested, d.Denied, d.Differences)
}

func (d PolicyDecision) text() string {
	if d.Rule == "" {
		return d.Decision
	}
	return d.Decision + " by rule " + d.Rule
}
