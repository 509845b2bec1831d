package runners

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// NewStack is a request to prepare an install for a runner stack.
type NewStack struct {
	Account string `json:"account"`          // the customer's AWS account, 12 digits
	Region  string `json:"region,omitempty"` // proposed to the customer; "": any
	// Replace makes the control plane forget the current stack. Set it if the customer
	// removed the stack, or installs it in another account.
	Replace bool `json:"replace,omitempty"`
}

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
	// States are the bucket and the key that the next or the current stack takes over from
	// an earlier stack; zero: it makes its own.
	States StackStates

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
	Images      string
	Artifacts   string
	Boundary    string
	AppActions  []string          // IAM actions that the stack grants to the app; nil: not reported
	Roles       map[string]string // ARNs by operation
}

// Types of resources that outlive a stack.
const (
	LeftBucket   = "s3-bucket"
	LeftKey      = "kms-key"
	LeftBoundary = "iam-policy"
	LeftRoles    = "iam-roles"
)

// StackResource is a resource that outlives its stack.
type StackResource struct {
	Stack    string // ARN of the CloudFormation stack
	Type     string
	ID       string // name of a bucket, path of roles, otherwise an ARN
	Replaced bool   // the stack is not the current one, which does not use the resource
}

// StackStates name a state bucket and its key.
type StackStates struct{ Bucket, Key string }

// StackChange is the difference between two reports of a stack.
type StackChange struct {
	At   time.Time
	What []string // for people, one line for each field
}

func stackView(s store.Stack) Stack {
	out := Stack{Install: s.Install, InstallName: s.InstallName, Runner: s.Runner, RunnerName: s.RunnerName, Account: s.Account, Region: s.Region,
		ExternalID: s.ExternalID, Report: (*StackReport)(s.Report), Reported: s.Reported}
	for _, c := range s.Changes {
		out.Changes = append(out.Changes, StackChange(c))
	}
	out.Left, out.States = leftBy(s), statesOf(s)
	return out
}

// leftBy lists what stays, or has stayed, in the customer's account when a stack is
// deleted: first of the current stack, then of each earlier one.
func leftBy(s store.Stack) (left []StackResource) {
	known := map[string]bool{}
	add := func(r store.StackReport, replaced bool) {
		for _, res := range []StackResource{{Type: LeftBucket, ID: r.StateBucket}, {Type: LeftKey, ID: r.StateKey}, {Type: LeftBoundary, ID: r.Boundary}, {Type: LeftRoles, ID: awsiam.AppRolePath(s.Install)}} {
			place := res.Type + " " + res.ID
			if res.Type == LeftRoles {
				place += " " + awsiam.StackAccount(r.ID) // in another account the path is another place
			}
			if res.ID == "" || known[place] {
				continue
			}
			known[place] = true
			res.Stack, res.Replaced = r.ID, replaced
			left = append(left, res)
		}
	}
	if s.Report != nil {
		add(*s.Report, false)
	}
	for _, r := range s.Earlier {
		add(r, true)
	}
	return left
}

// statesOf returns the states that a stack takes over. Before the first report these are
// the states of the newest earlier stack, if they are in the account and region of the
// next stack.
func statesOf(s store.Stack) StackStates {
	for _, r := range s.Earlier {
		if s.Report != nil && s.Report.StateBucket == r.StateBucket ||
			s.Report == nil && awsiam.StackAccount(r.ID) == s.Account && (s.Region == "" || s.Region == r.Region) {
			return StackStates{Bucket: r.StateBucket, Key: r.StateKey}
		}
	}
	return StackStates{}
}

// maxEarlierStacks bounds the stored reports of earlier stacks.
const maxEarlierStacks = 10

// retire moves the report of the current stack to the earlier ones.
func retire(s *store.Stack) {
	if s.Report == nil {
		return
	}
	s.Earlier = append([]store.StackReport{*s.Report}, s.Earlier...)
	s.Earlier, s.Report = s.Earlier[:min(len(s.Earlier), maxEarlierStacks)], nil
}

// CreateStack prepares an install for a runner stack in the customer's account. It
// creates the external id, and allows the stack's runner role to open sessions of the
// install's runner. A repeated request only changes the region and restarts the wait
// for the role.
func (f *Fleet) CreateStack(ctx context.Context, org fairlead.OrgID, install string, in NewStack) (Stack, error) {
	if !awsiam.IsAccount(in.Account) {
		return Stack{}, fairlead.Invalid(fairlead.CodeInvalidAccount, "%.40q is not an AWS account id, which has 12 digits", in.Account)
	}
	partition, ok := awsiam.PartitionOf(in.Region)
	if !ok {
		return Stack{}, fairlead.Invalid(fairlead.CodeInvalidRegion, "%.40q is not an AWS region in which a runner can prove its role", in.Region)
	}
	if f.Partition != "" && partition != f.Partition {
		return Stack{}, fairlead.Invalid(fairlead.CodeInvalidRegion, "%s is in the AWS partition %s, but this control plane is in %s; accounts of another partition cannot read its image and template", in.Region, partition, f.Partition)
	}
	external := "fl-" + rand.Text()
	err := f.Transact(ctx, "ready install "+install+" for a stack", func(tx *kernel.Tx) error {
		inst, err := f.Store.Install(ctx, org, install)
		if err != nil {
			return err
		}
		runner, err := ServingRunner(tx, inst.V)
		if err != nil {
			return err
		}
		if runner.V.Shared() {
			return operatorOnly(fmt.Sprintf("runner %s is shared with every org, and cannot run in a customer's stack", runner.V.Name))
		}
		r, err := store.Optional(f.Store.Stack(ctx, runner.V.ID))
		if err != nil {
			return err
		}
		known := r.Version > 0
		if known && r.V.Install != inst.V.ID {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerServesAnother,
				Message: fmt.Sprintf("runner %s runs in the stack of install %s", runner.V.Name, r.V.InstallName),
				Hint:    "A stack is for one install: create a runner for this install, and create the install with that runner."}
		}
		if known && r.V.ExternalID == external {
			return nil // our own earlier commit, whose outcome was unclear
		}
		trust, err := awsiam.ParseTrust(awsiam.RunnerRole(partition, in.Account, inst.V.ID), "", tx.Now.Add(roleWait).Truncate(time.Second))
		if err != nil {
			return err
		}
		if !in.Replace {
			if trust, err = keepTrust(inst.V, runner.V, trust, known && r.V.Report == nil); err != nil {
				return err
			}
		}
		runner.V.Trust = &trust
		if !known {
			if r.V, err = newStack(tx, inst.V, runner.V); err != nil {
				return err
			}
			r.V.ExternalID = external
		}
		if r.V.Account != in.Account || in.Replace {
			retire(&r.V)
			r.V.Reported, r.V.Adopted = time.Time{}, false
		}
		r.V.Account, r.V.Region = in.Account, in.Region
		tx.PutStack(r)
		if err := adapt(tx, &runner.V, inst.V, r.V.Report == nil); err != nil {
			return err
		}
		tx.PutRunner(runner)
		return nil
	})
	if err != nil {
		return Stack{}, err
	}
	v, err := f.Stack(ctx, org, install)
	if err != nil {
		return v, err
	}
	if err := f.makeQueue(ctx, v.Runner, v.RunnerName); err != nil {
		return Stack{}, err
	}
	return v, nil
}

// keepTrust returns the new trust of the runner for a request that replaces no stack. If
// the request names the role that the runner trusts, and this role was proved, keepTrust
// keeps the current trust. It refuses another role, unless the parameter waiting is true:
// the stack of the trusted role has never reported.
func keepTrust(inst store.Install, r store.Runner, trust awsiam.Trust, waiting bool) (awsiam.Trust, error) {
	old := r.Trust
	if old == nil {
		return trust, nil
	}
	same := old.RoleARN() == trust.RoleARN()
	switch {
	case !same && !waiting:
		return trust, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeRunnerTrustsAnother,
			Message: fmt.Sprintf("runner %s trusts the role %s", r.Name, cmp.Or(old.RoleARN(), old.RoleID)),
			Hint:    "If that stack was removed or must be replaced: {install.replace-stack}. Its runner is then refused.",
			Args:    fairlead.Args{Install: inst.Name}}
	case same && old.RoleID != "":
		return *old, nil // a proved role stays fixed to its unique id
	}
	return trust, nil
}

// newStack returns the record of the install's first stack, and puts the reference from
// the install to the stack.
func newStack(tx *kernel.Tx, inst store.Install, r store.Runner) (store.Stack, error) {
	app, err := tx.Store.App(tx.Ctx, inst.Org, inst.App)
	if err != nil {
		return store.Stack{}, err
	}
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, inst.ID))
	if err != nil {
		return store.Stack{}, err
	}
	ref.V = store.StackRef{Runner: r.ID}
	tx.PutStackRef(inst.ID, ref)
	return store.Stack{Install: inst.ID, InstallName: inst.Name, Org: inst.Org, App: app.V.ID, Runner: r.ID, RunnerName: r.Name, Created: tx.Now}, nil
}

// adapt makes the runner one of a customer's stack: of kind aws-ecs, and for this install
// only if it serves the whole org. Otherwise other customers' jobs could run in this
// customer's account. It changes nothing if other installs use the runner. fresh is true
// before the first report of the stack. After it the kind stays: an agent of an older
// template may follow the control plane's configuration.
func adapt(tx *kernel.Tx, r *store.Runner, inst store.Install, fresh bool) error {
	others := false
	err := EachUse(tx, r.ID, func(_ store.RunnerUse, in store.Install) bool {
		others = in.ID != inst.ID
		return !others
	})
	if err != nil || others {
		return err
	}
	spec, err := specOf(tx, *r)
	if err != nil {
		return err
	}
	was := spec.Runner.Kind()
	if fresh {
		if problems := spec.ForStack(); len(problems) > 0 {
			return problems.Err()
		}
	}
	serves := r.Group == "" && r.Install == ""
	if serves {
		spec.Install = inst.Name
	}
	if !serves && spec.Runner.Kind() == was {
		return nil
	}
	return configure(tx, r, spec)
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
	return stackState(r.V, runner.Trust, sessions, f.Now(), sessionStates(f.Kernel, sessions)), nil
}

func noStack(install string) error {
	return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeStackNotFound,
		Message: fmt.Sprintf("install %s has no stack", install),
		Hint:    "{install.ready-stack} prepares it for one.",
		Args:    fairlead.Args{Install: install}}
}

// stackState renders a stack with its state. The sessions are sorted, the newest first.
// Before the first report of the stack, stackState ignores the sessions, because they
// belong to another stack.
func stackState(r store.Stack, trust *awsiam.Trust, sessions []store.Stored[store.Session], now time.Time, states []string) Stack {
	out := stackView(r)
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
			return out
		}
		if s.V.LastSeen.After(last.LastSeen) {
			last = s.V
		}
	}
	if last.LastSeen.After(out.Since) {
		out.Since = last.LastSeen
	}
	if last.Ended {
		out.State = StackStopped
	}
	return out
}

// SessionStack is a runner's report about the stack that contains it.
type SessionStack struct {
	Install    fairlead.InstallID // the parameter that the customer entered
	ExternalID string
	Report     StackReport
}

// maxStackChanges bounds the stored history of a stack.
const maxStackChanges = 20

// recordStack stores a runner's report about its stack, if the report changed. If the
// report cannot be true, recordStack returns an error, so that the session is refused. A
// runner with the parameters of another install would fail at its first job, and another
// person's runner could report false facts.
func recordStack(tx *kernel.Tx, r store.Runner, w SessionStack) (store.Stack, error) {
	s, err := tx.Store.Stack(tx.Ctx, r.ID)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return store.Stack{}, stackRefused("no stack was prepared for runner %s", r.Name)
	}
	if err != nil {
		return store.Stack{}, err
	}
	switch {
	case w.Install != s.V.Install:
		return store.Stack{}, stackRefused("the stack has the install id %.60q, and its runner serves %s", w.Install, s.V.Install)
	case w.ExternalID != s.V.ExternalID:
		return store.Stack{}, stackRefused("the external id of the stack is not the one of install %s", s.V.InstallName)
	}
	report := store.StackReport(w.Report)
	if err := checkReport(s.V, report); err != nil {
		return store.Stack{}, err
	}
	if s.V.Report != nil {
		what := changesOf(*s.V.Report, report)
		if len(what) == 0 {
			return s.V, nil // the usual case: nothing is written
		}
		s.V.Changes = append([]store.StackChange{{At: tx.Now, What: what}}, s.V.Changes...)
		s.V.Changes = s.V.Changes[:min(len(s.V.Changes), maxStackChanges)]
		if s.V.Report.ID != report.ID {
			retire(&s.V)
		}
	}
	s.V.Report, s.V.Reported = &report, tx.Now
	tx.PutStack(s)
	return s.V, nil
}

// adoptBucket configures the runner in a customer's stack to keep states in the bucket
// that the stack created. It does so once, at the stack's first report, before anything
// is deployed. By default the states stay with the customer. The vendor can update the
// runner to store them elsewhere.
func (f *Fleet) adoptBucket(ctx context.Context, r store.Runner) error {
	return f.Transact(ctx, "keep the states of runner "+r.Name+" in its stack", func(tx *kernel.Tx) error {
		s, err := store.Optional(f.Store.Stack(ctx, r.ID))
		if err != nil || s.V.Report == nil || s.V.Adopted {
			return err
		}
		runner, err := f.Store.Runner(ctx, r.Org, r.Name)
		if err != nil || runner.V.ID != r.ID {
			return err
		}
		inst, err := f.Store.Install(ctx, s.V.Org, s.V.InstallName)
		if err != nil {
			return err
		}
		tx.CheckInstall(inst) // fails the commit if a deployment starts meanwhile
		s.V.Adopted = true
		tx.PutStack(s)
		if runner.V.Storage != string(runnerspec.HTTPState) || runner.V.Install != inst.V.ID || inst.V.ID != s.V.Install || inst.V.Bound != nil {
			return nil
		}
		spec, err := specOf(tx, runner.V)
		if err != nil {
			return err
		}
		storage, err := json.Marshal(&runnerspec.S3Storage{StorageCommon: runnerspec.StorageCommon{Type: runnerspec.S3State},
			Bucket: s.V.Report.StateBucket, Region: s.V.Report.Region, KMSKeyID: s.V.Report.StateKey})
		if err != nil {
			return err
		}
		next := runnerspec.Update(spec, "stack", nil, "state_storage_configuration="+string(storage))
		if next.Spec == nil { // a stack that was not created from our template
			f.Logger.Warn("the bucket that a stack reports is not a valid state storage", "runner", r.Name, "problems", next.Problems.Err())
			return nil
		}
		if err := configure(tx, &runner.V, next.Spec); err != nil {
			return err
		}
		tx.PutRunner(runner)
		return nil
	})
}

// DropStack deletes the stack of an install, and the trust in its role.
func DropStack(tx *kernel.Tx, id fairlead.InstallID) error {
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, id))
	if err != nil || ref.Version == 0 {
		return err
	}
	tx.DeleteStackRef(id, ref)
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, ref.V.Runner))
	if err != nil || s.Version == 0 { // deleted with its runner
		return err
	}
	tx.DeleteStack(s)
	r, err := store.Optional(tx.Store.Runner(tx.Ctx, s.V.Org, s.V.RunnerName))
	if err == nil && r.V.ID == s.V.Runner {
		r.V.Trust = nil
		tx.PutRunner(r)
	}
	return err
}

// dropStackOf deletes the stack of the runner, and the install's reference to it.
func dropStackOf(tx *kernel.Tx, id fairlead.RunnerID) error {
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, id))
	if err != nil || s.Version == 0 {
		return err
	}
	tx.DeleteStack(s)
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, s.V.Install))
	if err == nil && ref.V.Runner == id { // if the runner differs, the install has another stack now
		tx.DeleteStackRef(s.V.Install, ref)
	}
	return err
}

func stackRefused(format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeStackRefused, Message: "the report of the stack is refused: " + fmt.Sprintf(format, args...),
		Hint: "{install.stack} prints the parameters that the customer's stack must have."}
}

// maxReported is the longest value in a report. AWS allows names of up to 2,048
// characters.
const maxReported = 2048

// checkReport refuses values that a stack in the customer's account cannot have
// created.
func checkReport(s store.Stack, r store.StackReport) error {
	if err := awsiam.CheckStack(s.Account, r.Region, r.ID, r.Roles); err != nil {
		return stackRefused("%s", err)
	}
	for name, value := range fieldsOf(r) {
		if len(value) > maxReported || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return stackRefused("its %s is too long, or contains control characters", name)
		}
	}
	return nil
}

// fieldsOf returns the values of a report by name.
func fieldsOf(r store.StackReport) map[string]string {
	all := map[string]string{"stack": r.ID, "template version": r.Version, "region": r.Region, "image": r.Image, "state bucket": r.StateBucket, "state key": r.StateKey,
		"image repository": r.Images, "artifact repository": r.Artifacts, "boundary": r.Boundary, "app actions": strings.Join(r.AppActions, ",")}
	for operation, role := range r.Roles {
		all["role "+operation] = role
	}
	return all
}

// changesOf lists the differences between two reports, sorted by name.
func changesOf(before, after store.StackReport) (what []string) {
	a, b := fieldsOf(before), fieldsOf(after)
	names := map[string]bool{}
	for n := range a {
		names[n] = true
	}
	for n := range b {
		names[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		switch {
		case a[n] == b[n]:
		case a[n] == "":
			what = append(what, fmt.Sprintf("%s: %s is new", n, b[n]))
		case b[n] == "":
			what = append(what, fmt.Sprintf("%s: %s was removed", n, a[n]))
		default:
			what = append(what, fmt.Sprintf("%s: %s, was %s", n, b[n], a[n]))
		}
	}
	return what
}

// GrantedActions returns the IAM actions that the customer's stack of an install grants to
// the app; nil if the install's runner is in no stack, or did not report them.
func GrantedActions(tx *kernel.Tx, inst store.Install) ([]string, error) {
	ref, err := store.Optional(tx.Store.StackRef(tx.Ctx, inst.ID))
	if err != nil || ref.Version == 0 || inst.Bound != nil && inst.Bound.Runner != ref.V.Runner {
		return nil, err
	}
	s, err := store.Optional(tx.Store.Stack(tx.Ctx, ref.V.Runner))
	if err != nil || s.V.Report == nil {
		return nil, err
	}
	return s.V.Report.AppActions, nil
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
