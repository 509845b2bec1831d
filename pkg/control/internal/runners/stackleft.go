package runners

import (
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
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
	Replaced bool   // the stack is not the current one, which does not use the resource
}

// StackStates name a state bucket and its key.
type StackStates struct{ Bucket, Key string }

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
