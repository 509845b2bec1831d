package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Stack is the runner stack of an install in the customer's account. It holds what
// the customer was asked to create, and what the runner in the stack reported.
type Stack struct {
	fairlead.Actors
	Install     fairlead.InstallID `json:"install"`
	InstallName string             `json:"install_name"`
	Org         fairlead.OrgID     `json:"org"`
	App         fairlead.AppID     `json:"app"`
	Runner      fairlead.RunnerID  `json:"runner"`
	RunnerName  string             `json:"runner_name"`
	Account     string             `json:"account"`
	Region      string             `json:"region,omitempty"` // proposed to the customer; "": the customer chooses
	ExternalID  string             `json:"external_id"`      // used by this install only; not a secret
	Created     time.Time          `json:"created"`
	Report      *StackReport       `json:"report,omitempty"` // the runner's last report; nil: none yet
	Reported    time.Time          `json:"reported,omitzero"`
	// Adopted is set after the runner's configuration was changed to keep states in the
	// stack's bucket, or after the decision to leave the configuration unchanged.
	Adopted bool `json:"adopted,omitempty"`
	// Earlier holds the last reports of earlier stacks of the install, newest first. Their
	// buckets and keys outlive them.
	Earlier []StackReport `json:"earlier,omitempty"`
	Changes []StackChange `json:"changes,omitempty"` // differences between reports, newest first
}

// StackReport is what the runner reports of the resources in the customer's stack.
type StackReport struct {
	ID          string            `json:"id"` // ARN of the CloudFormation stack
	Version     string            `json:"version"`
	Region      string            `json:"region"`
	Image       string            `json:"image,omitempty"`
	StateBucket string            `json:"state_bucket"`
	StateKey    string            `json:"state_key"`
	Made        []string          `json:"made,omitempty"` // bucket, key: which of both the stack made; the others existed before
	Images      string            `json:"images"`
	Artifacts   string            `json:"artifacts"`
	Boundary    string            `json:"boundary"`
	AppActions  []string          `json:"app_actions,omitempty"` // IAM actions that the stack grants to the app; nil: not reported
	Roles       map[string]string `json:"roles"`                 // ARNs by operation

	OperationActions map[string][]string `json:"operation_actions,omitempty"` // those of AppActions that one operation has; without an entry it has all
}

// StackChange is a difference between two reports of a stack.
type StackChange struct {
	At   time.Time `json:"at"`
	What []string  `json:"what"` // text for people, one line for each changed field
}

// StackRef is the reference from an install to its stack.
type StackRef struct {
	Runner fairlead.RunnerID `json:"runner"`
}

// Stack returns the stack of the runner.
func (s *Store) Stack(ctx context.Context, runner fairlead.RunnerID) (Stored[Stack], error) {
	return get[Stack](ctx, s, stackKey(runner), missing(fairlead.CodeStackNotFound, string(runner)))
}

// PutStack writes a stack.
func (t *Tx) PutStack(r Stored[Stack]) { put(t, stackKey(r.V.Runner), r) }

// DeleteStack removes a stack.
func (t *Tx) DeleteStack(r Stored[Stack]) { remove(t, stackKey(r.V.Runner), r) }

// DeleteStackRef removes the reference to the install's stack.
func (t *Tx) DeleteStackRef(id fairlead.InstallID, r Stored[StackRef]) {
	remove(t, stackRefKey(id), r)
}

// StackRef returns the reference to the install's stack.
func (s *Store) StackRef(ctx context.Context, id fairlead.InstallID) (Stored[StackRef], error) {
	return get[StackRef](ctx, s, stackRefKey(id), missing(fairlead.CodeStackNotFound, string(id)))
}

// PutStackRef writes the reference to the install's stack.
func (t *Tx) PutStackRef(id fairlead.InstallID, r Stored[StackRef]) {
	put(t, stackRefKey(id), r)
}
