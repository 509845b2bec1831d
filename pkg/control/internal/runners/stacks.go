package runners

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/store"
)

// The states of a customer's stack, derived from its runner's sessions.
const (
	StackWaiting = "waiting" // no runner has reported yet
	StackExpired = "expired" // no runner reported before the deadline of the first proof of its role
	StackOnline  = "online"
	StackStopped = "stopped" // the session that was last seen has ended: the stack was removed, or its runner stopped
	StackLost    = "lost"    // the heartbeats of the session that was last seen stopped
)

// Stack is a customer's stack with its state.
type Stack struct {
	fairlead.Actors
	Install     fairlead.InstallID
	InstallName string
	Runner      fairlead.RunnerID
	RunnerName  string
	Account     string
	Region      string // proposed to the customer; "": the customer chooses
	ExternalID  string // unique to this install; not a secret
	Report      *StackReport
	Reported    time.Time // when Report last changed
	Changes     []StackChange
	Left        []StackResource
	// States are those that the current stack takes over from an earlier one; if it has not
	// reported, or has stopped, those of Next. Zero: it makes its own bucket and key.
	States StackStates
	Next   StackStates // that a new stack takes over
	// Elsewhere is set if the states of the install are in the bucket of an earlier stack, and
	// the current one has another bucket.
	Elsewhere *ElsewhereStates

	Running []fairlead.JobID // jobs of its runner at its last heartbeat; none if it is not online

	State     string
	Since     time.Time // when the stack was prepared, or last seen after its first report; zero if online
	WaitUntil time.Time // deadline of the first proof of the runner's role; zero if there is none, or after the first report
}

// StackReport is what the customer's stack created, as its runner reports it.
type StackReport struct {
	ID          string // ARN of the CloudFormation stack
	Version     string
	Region      string
	Image       string
	StateBucket string
	StateKey    string
	Made        []string // madeBucket and madeKey: which of both the stack made
	Images      string
	Artifacts   string
	Boundary    string
	AppActions  []string          // IAM actions that the stack grants to the app; nil: not reported
	Roles       map[string]string // ARNs by operation

	OperationActions map[string][]string // those of AppActions that one operation has; without an entry it has all
}

// StackChange is the difference between two reports of a stack.
type StackChange struct {
	At   time.Time
	What []string // for people, one line for each field
}

// stackView renders a stack. The parameter held is the result of heldIn.
func stackView(s store.Stack, held string) Stack {
	out := Stack{Actors: s.Actors, Install: s.Install, InstallName: s.InstallName, Runner: s.Runner, RunnerName: s.RunnerName, Account: s.Account, Region: s.Region,
		ExternalID: s.ExternalID, Report: (*StackReport)(s.Report), Reported: s.Reported}
	for _, c := range s.Changes {
		out.Changes = append(out.Changes, StackChange(c))
	}
	out.Left, out.Next, out.Elsewhere = leftBy(s), nextStates(s, held), elsewhere(s, held)
	if out.States = out.Next; s.Report != nil {
		out.States = takenOver(s, held)
	}
	return out
}

// Stack returns the stack of an install, with its state from its runner's sessions.
func (f *Fleet) Stack(ctx context.Context, org fairlead.OrgID, install string) (Stack, error) {
	inst, err := f.Store.Install(ctx, org, install)
	if err != nil {
		return Stack{}, err
	}
	ref, err := f.Store.StackRef(ctx, inst.V.ID)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return Stack{}, noStack(install)
	}
	if err != nil {
		return Stack{}, err
	}
	// Read the sessions before the stack, so that the stack contains the report of each
	// session that was read.
	sessions, err := f.Store.Sessions(ctx, ref.V.Runner, 20)
	if err != nil {
		return Stack{}, err
	}
	runner, err := RunnerByID(f.Reading(ctx), ref.V.Runner)
	var r store.Stored[store.Stack]
	if err == nil {
		r, err = f.Store.Stack(ctx, ref.V.Runner)
	}
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return Stack{}, noStack(install) // the runner was deleted
	}
	if err != nil {
		return Stack{}, err
	}
	held, err := heldIn(f.Reading(ctx), inst.V, r.V)
	if err != nil {
		return Stack{}, err
	}
	return stackState(r.V, held, runner.Trust, sessions, f.Now(), sessionStates(f.Kernel, sessions)), nil
}

func noStack(install string) error {
	return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeStackNotFound,
		Message: fmt.Sprintf("install %s has no stack", install),
		Hint:    "{install.ready-stack} prepares it for one.",
		Args:    fairlead.Args{Install: install}}
}

// stackState renders a stack with its state. The sessions are sorted, the newest first.
// Before the first report of the stack, stackState ignores the sessions, because they
// belong to another stack. The parameter held is the result of heldIn.
func stackState(r store.Stack, held string, trust *awsiam.Trust, sessions []store.Stored[store.Session], now time.Time, states []string) Stack {
	out := stackView(r, held)
	out.State, out.Since = StackWaiting, r.Created
	if r.Report == nil {
		if trust != nil && trust.RoleID == "" {
			if out.WaitUntil = trust.PinBefore; !now.Before(out.WaitUntil) {
				out.State = StackExpired
			}
		}
		return out
	}
	out.State, out.Since = StackLost, r.Reported
	var last store.Session
	for i, s := range sessions {
		if states[i] == "online" {
			out.State, out.Since = StackOnline, time.Time{}
			for _, id := range s.V.Running {
				out.Running = append(out.Running, fairlead.JobID(id))
			}
			continue
		}
		if s.V.LastSeen.After(last.LastSeen) {
			last = s.V
		}
	}
	if out.State == StackOnline {
		slices.Sort(out.Running)
		return out
	}
	if last.LastSeen.After(out.Since) {
		out.Since = last.LastSeen
	}
	if last.Ended {
		out.State, out.States = StackStopped, out.Next
	}
	return out
}

// Stacks lists the stacks of an org by the names of their installs. A page before the
// last one may have fewer items than the limit, even none: an install may have no stack.
func (f *Fleet) Stacks(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Stack, string, error) {
	installs, err := f.Store.Installs(ctx, org, q)
	if err != nil {
		return nil, "", err
	}
	var list []Stack
	for _, in := range installs.Items {
		s, err := f.Stack(ctx, org, in.V.Name)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			continue // no stack, or the install was deleted meanwhile
		}
		if err != nil {
			return nil, "", err
		}
		list = append(list, s)
	}
	return list, installs.Next, nil
}
