package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Runners is a listing of runners.
type Runners []wire.Runner

// JSON returns an array of wire.Runner.
func (rs Runners) JSON() any { return array(rs) }

// Human writes a table.
func (rs Runners) Human(p *Page) {
	table(p, []string{"NAME", "KIND", "SERVES", "STATE", "RUNNING", "STATE STORAGE", "LAST SEEN", "DESCRIPTION"}, rs, func(r wire.Runner) []string {
		running, capacity := 0, 0
		var seen time.Time
		for _, s := range r.Sessions {
			if s.State == "online" {
				running += len(s.Running)
				capacity += s.Capacity
			}
			if s.LastSeen.After(seen) {
				seen = s.LastSeen
			}
		}
		return []string{r.Name, r.Kind, serves(r), state(r), fmt.Sprintf("%d of %d", running, capacity), r.Storage, p.Ago(seen), r.Description}
	})
}

// state returns the state of a runner with the modes that the vendor and the
// customer have set.
func state(r wire.Runner) string {
	out := r.State
	if r.Customer != nil {
		out = r.Customer.Mode + " by the customer, " + out
	}
	if r.Mode != "" && r.Mode != "enabled" {
		out = r.Mode + ", " + out
	}
	return out
}

// customerMode renders the mode that a customer has set, or returns "" if the customer
// has set no mode.
func customerMode(w *wire.CustomerMode) string {
	if w == nil {
		return ""
	}
	out := w.Mode
	if w.Since != nil {
		out += " since " + Time(*w.Since)
	}
	if w.Reason != "" {
		out += ": " + w.Reason
	}
	return out
}

// serves returns the scope of a runner: every org, an org, a group or an install.
func serves(r wire.Runner) string {
	switch {
	case r.Shared:
		return "every org"
	case r.Group == "/":
		return "the whole org"
	case r.Group != "":
		return "group " + r.Group
	}
	return "one install"
}

// Runner is one runner.
type Runner wire.Runner

// JSON returns the wire.Runner.
func (r Runner) JSON() any { return wire.Runner(r) }

// Human writes the runner and its sessions.
func (r Runner) Human(p *Page) {
	p.Fields([2]string{"Runner", r.Name}, [2]string{"About", r.Description}, [2]string{"Kind", r.Kind}, [2]string{"Serves", serves(wire.Runner(r))}, [2]string{"State", state(wire.Runner(r))},
		[2]string{"Vendor's mode", cmp.Or(r.Mode, "enabled")}, [2]string{"Customer's mode", customerMode(r.Customer)}, [2]string{"Wanted version", wanted(r.Wanted)},
		[2]string{"State storage", r.Storage}, [2]string{"AWS role", awsRole(r.AWS, p)}, [2]string{"Service accounts", strings.Join(slices.Concat(r.ServiceAccounts, r.Trusts), ", ")}, [2]string{"Created", Time(r.CreatedAt)}, [2]string{"Id", r.ID})
	if len(r.Sessions) > 0 {
		p.Gap()
		r.sessions(p)
	}
	situations(p, r.Situations)
}

func (r Runner) sessions(p *Page) {
	table(p, []string{"AGENT", "STATE", "VERSION", "RUNNING", "CUSTOMER'S MODE", "LAST SEEN"}, r.Sessions, func(s wire.RunnerSession) []string {
		state := s.State
		if s.Draining && s.State == "online" {
			state = "draining"
		}
		customer := "-"
		if s.State == "online" {
			customer = cmp.Or(customerMode(s.Customer), "enabled")
		}
		return []string{s.Instance, state, s.Version, fmt.Sprintf("%d of %d", len(s.Running), s.Capacity), customer, p.Ago(s.LastSeen)}
	})
	for _, s := range r.Sessions {
		if s.WarmSteps > 0 && s.State == "online" {
			p.Line("agent %s: warm steps that wait for a job: %d", s.Instance, s.WarmSteps)
		}
		if s.Unhealthy != "" && s.State == "online" {
			p.Line("agent %s cannot start jobs: %s", s.Instance, s.Unhealthy)
		}
	}
	isolation(p, r.Sessions, wire.IsolationContainer, wire.IsolationLandlock, wire.IsolationNone)
}

// isolation writes how the processes of jobs are kept apart from the runner and from
// other jobs. It does this for each online agent whose isolation is in the list of.
func isolation(p *Page, sessions []wire.RunnerSession, of ...string) {
	for _, s := range sessions {
		if s.State != "online" || !slices.Contains(of, s.Isolation) {
			continue
		}
		p.Line("agent %s, isolation: %s", s.Instance, s.Isolation)
		if s.Isolation == wire.IsolationNone {
			p.Line("  Programs of its jobs can read the runner's key and the states of every")
			p.Line("  install. docs/reference/executors.md describes how to isolate them.")
		}
	}
}

// Enrolment is a new enrolment token.
type Enrolment struct {
	Runner    string
	Enrolment wire.Enrolment
}

// JSON returns the wire.Enrolment.
func (e Enrolment) JSON() any { return e.Enrolment }

// Human writes only the token, so that it can be piped.
func (e Enrolment) Human(p *Page) { p.Line("%s", e.Enrolment.Token) }

// Checked is the result of a runner check, with the runner's sessions at the end of the
// check.
type Checked struct {
	Job      wire.Job
	Sessions []wire.RunnerSession
}

// JSON returns the wire.Job.
func (c Checked) JSON() any { return c.Job }

// Human writes how long each phase took, and a warning for agents without isolation.
func (c Checked) Human(p *Page) {
	p.Line("%s Runner %s works: %s", Styled(p.Style.Good("✓")), c.Job.Runner, legs(c.Job))
	isolation(p, c.Sessions, wire.IsolationNone)
}

// RunnerLog holds the latest log lines of a runner's agent.
type RunnerLog struct {
	Runner string `json:"runner"`
	Job    string `json:"job"` // the job that fetched the log
	Text   string `json:"text"`
}

// JSON returns the runner, the job and the text.
func (l RunnerLog) JSON() any { return l }

// Human writes the text.
func (l RunnerLog) Human(p *Page) { p.Line("%s", strings.TrimSuffix(l.Text, "\n")) }

func legs(j wire.Job) string {
	if j.ClaimedAt == nil || j.StartedAt == nil || j.FinishedAt == nil {
		return "the check succeeded"
	}
	return fmt.Sprintf("claimed after %s, started after %s more, done after %s more",
		milliseconds(j.ClaimedAt.Sub(j.CreatedAt)), milliseconds(j.StartedAt.Sub(*j.ClaimedAt)), milliseconds(j.FinishedAt.Sub(*j.StartedAt)))
}

// awsRole describes the AWS role of the agents, or returns "" if there is no AWS role.
func awsRole(a *wire.RunnerAWSRole, p *Page) string {
	switch {
	case a == nil:
		return ""
	case a.RoleID != "":
		return fmt.Sprintf("%s (%s)", a.RoleARN, a.RoleID)
	case a.WaitsUntil != nil:
		return fmt.Sprintf("%s (waits for its first proof until %s)", a.RoleARN, Time(*a.WaitsUntil))
	}
	return a.RoleARN
}

// NewRunner is a new runner. The field Keys has the control plane's public keys if the
// runner does not enrol; otherwise it is empty.
type NewRunner struct {
	Runner wire.Runner
	Keys   []wire.VerificationKey
}

// JSON returns the wire.Runner. If the runner does not enrol, it has one more field,
// trusted_keys: the value of the agent's FAIRLEAD_TRUSTED_KEYS.
func (r NewRunner) JSON() any {
	return struct {
		wire.Runner
		TrustedKeys string `json:"trusted_keys,omitempty"`
	}{r.Runner, keyList(r.Keys)}
}

// Human writes one line and the next step.
func (r NewRunner) Human(p *Page) {
	p.Line("%s Created runner %s", Styled(p.Style.Good("✓")), r.Runner.Name)
	if r.Runner.AWS == nil {
		p.Line("  Enrol an agent with the token of `fairlead runner enrol %s`,", r.Runner.Name)
		p.Line("  or assign a service account, for tokens of the agent's platform: `fairlead runner assign %s SERVICE-ACCOUNT`.", r.Runner.Name)
		return
	}
	p.Line("  Start its agent with that AWS role and, besides FAIRLEAD_URL:")
	p.Line("  FAIRLEAD_IDENTITY=aws-iam")
	p.Line("  FAIRLEAD_RUNNER_ID=%s", r.Runner.ID)
	p.Line("  FAIRLEAD_TRUSTED_KEYS=%s", keyList(r.Keys))
}

// WhyWaiting explains why the runner does not claim a job. Where possible, it names a
// command that lets the runner start jobs, or a command that shows more.
func WhyWaiting(r wire.Runner) string {
	name := Cell(r.Name)
	online, draining, running, capacity := 0, 0, 0, 0
	for _, s := range r.Sessions {
		if s.State == "online" {
			online, running, capacity = online+1, running+len(s.Running), capacity+s.Capacity
			if s.Draining {
				draining++
			}
		}
	}
	more := fmt.Sprintf("`fairlead runner show %s` shows more", name)
	switch {
	case r.Mode != "" && r.Mode != "enabled":
		return fmt.Sprintf("waits: runner %s is %s. `fairlead runner enable %s` lets it start jobs", name, Cell(r.Mode), name)
	case r.State != "online":
		return fmt.Sprintf("waits: runner %s is %s. %s", name, Cell(runnerState(r.State)), more)
	case r.Customer != nil:
		return fmt.Sprintf("waits: the customer has set runner %s to %s; only the customer can enable it. %s", name, Cell(r.Customer.Mode), more)
	case online > 0 && draining == online:
		return fmt.Sprintf("waits: every agent of runner %s is draining. %s", name, more)
	case capacity > 0 && running >= capacity:
		return fmt.Sprintf("waits for a free slot on runner %s: it runs %d of %d jobs", name, running, capacity)
	}
	return fmt.Sprintf("waits for runner %s to claim it. %s", name, more)
}

func runnerState(state string) string {
	switch state {
	case "never-seen":
		return "not started yet"
	case "lost":
		return "not reachable"
	}
	return state
}
