package runners

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

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
	Own      bool   // a stack of the install made it; otherwise it may be the customer's own
	Replaced bool   // the stack is not the current one, which does not use the resource
}

// StackStates name a state bucket, its key and their region.
type StackStates struct{ Bucket, Key, Region string }

// What a stack reports to have made; a bucket or key that it did not make existed before.
const (
	madeBucket = "bucket"
	madeKey    = "key"
)

// leftBy lists what stays, or has stayed, in the customer's account when a stack is
// deleted: first of the current stack, then of each earlier one.
func leftBy(s store.Stack) (left []StackResource) {
	known := map[string]bool{}
	made := func(what string, same func(store.StackReport) bool) bool {
		return slices.ContainsFunc(reports(s), func(r store.StackReport) bool { return same(r) && slices.Contains(r.Made, what) })
	}
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
			res.Stack, res.Replaced, res.Own = r.ID, replaced, true
			switch res.Type {
			case LeftBucket:
				res.Own = made(madeBucket, func(of store.StackReport) bool { return of.StateBucket == res.ID })
			case LeftKey:
				res.Own = made(madeKey, func(of store.StackReport) bool { return of.StateKey == res.ID })
			}
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

// takenOver returns the states that the current stack takes over from an earlier stack in its
// account and region: those of the install, or those that it has already. The parameter held
// is as in nextStates.
func takenOver(s store.Stack, held string) StackStates {
	bucket := cmp.Or(held, s.Report.StateBucket)
	for _, r := range s.Earlier {
		if r.StateBucket == bucket && inPlace(r, *s.Report) {
			return statesOf(r)
		}
	}
	return StackStates{}
}

// nextStates returns the states that a new stack takes over, in the account and region of the
// current stack, or in those that were proposed for the next one. It prefers the bucket held,
// which has the states of the install; "": not known. Otherwise it takes the newest one.
func nextStates(s store.Stack, held string) StackStates {
	var there []store.StackReport
	for _, r := range reports(s) {
		if s.Report != nil && inPlace(r, *s.Report) ||
			s.Report == nil && awsiam.StackAccount(r.ID) == s.Account && (s.Region == "" || s.Region == r.Region) {
			there = append(there, r)
		}
	}
	if i := slices.IndexFunc(there, func(r store.StackReport) bool { return r.StateBucket == held }); i > 0 {
		there = there[i:]
	}
	if len(there) == 0 {
		return StackStates{}
	}
	return statesOf(there[0])
}

func statesOf(r store.StackReport) StackStates {
	return StackStates{Bucket: r.StateBucket, Key: r.StateKey, Region: r.Region}
}

// inPlace reports whether two stacks are in the same account and region.
func inPlace(a, b store.StackReport) bool {
	return awsiam.StackAccount(a.ID) == awsiam.StackAccount(b.ID) && a.Region == b.Region
}

// reports returns the reports of the current and the earlier stacks, newest first.
func reports(s store.Stack) []store.StackReport {
	if s.Report == nil {
		return s.Earlier
	}
	return append([]store.StackReport{*s.Report}, s.Earlier...)
}

// heldIn returns the bucket of one of the stacks that has states of the install; "" if there
// is none. The runner's configuration can name another storage than the bucket of a stack.
func heldIn(tx *kernel.Tx, inst store.Install, s store.Stack) (string, error) {
	if inst.Bound == nil || inst.Bound.Runner != s.Runner {
		return "", nil
	}
	storage, err := BoundStorage(*inst.Bound)
	if err != nil {
		return "", err
	}
	in, ok := storage.(*runnerspec.S3Storage)
	if !ok || !slices.ContainsFunc(reports(s), func(r store.StackReport) bool { return r.StateBucket == in.Bucket }) {
		return "", nil
	}
	if s.Report != nil && s.Report.StateBucket == in.Bucket {
		return in.Bucket, nil // the usual case: nothing else depends on whether there are states
	}
	names, err := StatefulComponents(tx, inst)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return in.Bucket, nil
}

// ElsewhereStates are the states of an install in the bucket of an earlier stack, while the
// current stack has another bucket.
type ElsewhereStates struct{ In, Has string }

// StatesElsewhere returns where the states of an install are if its stack s does not use them;
// nil if it does, or if it has not reported. The roles of the stack cannot read them, so each
// job would fail.
func StatesElsewhere(tx *kernel.Tx, inst store.Install, s store.Stack) (*ElsewhereStates, error) {
	held, err := heldIn(tx, inst, s)
	return elsewhere(s, held), err
}

// elsewhere is StatesElsewhere. The parameter held is the result of heldIn.
func elsewhere(s store.Stack, held string) *ElsewhereStates {
	if held == "" || s.Report == nil || s.Report.StateBucket == held {
		return nil
	}
	return &ElsewhereStates{In: held, Has: s.Report.StateBucket}
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
