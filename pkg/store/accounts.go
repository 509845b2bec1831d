package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// ServiceAccount is an identity of programs: of CI jobs, and of the agents of the runners to which it is assigned. A program proves
// it by an OIDC token of its platform that matches the rule. It is stored under its name.
type ServiceAccount struct {
	fairlead.Actors
	ID    string         `json:"id"`
	Org   fairlead.OrgID `json:"org"`
	Name  string         `json:"name"`
	Group placement.Path `json:"group,omitempty"` // whose owners manage it, and whose runners can have it; "": the org
	// Rev changes with each change of the rule. A session or a login of an older Rev is no longer valid.
	Rev  string     `json:"rev"`
	Rule oidc.Trust `json:"rule"`
	// Bindings are its roles; none: it is for runners only.
	Bindings []access.Binding `json:"bindings,omitempty"`
	Created  time.Time        `json:"created"`
	Changed  time.Time        `json:"changed"`
}

// Assignment is a runner that has a service account. An account with an Assignment cannot be deleted.
type Assignment struct {
	Runner fairlead.RunnerID `json:"runner"`
	Name   string            `json:"name"` // of the runner
	At     time.Time         `json:"at"`
}

// ServiceAccount returns an org's service account by its name.
func (s *Store) ServiceAccount(ctx context.Context, org fairlead.OrgID, name string) (Stored[ServiceAccount], error) {
	return get[ServiceAccount](ctx, s, serviceAccountKey(org, name), missing(fairlead.CodeServiceAccountNotFound, name))
}

// ServiceAccounts lists service accounts by name.
func (s *Store) ServiceAccounts(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[ServiceAccount], error) {
	return query[ServiceAccount](ctx, s, engine.Query{Partition: serviceAccountsPartition(org), After: q.After, Limit: q.Limit})
}

// PutServiceAccount writes a service account.
func (t *Tx) PutServiceAccount(r Stored[ServiceAccount]) {
	put(t, serviceAccountKey(r.V.Org, r.V.Name), r)
}

// CheckServiceAccount makes the commit fail if the service account has changed since it was read.
func (t *Tx) CheckServiceAccount(r Stored[ServiceAccount]) {
	t.check(serviceAccountKey(r.V.Org, r.V.Name), r.Version)
}

// DeleteServiceAccount removes a service account.
func (t *Tx) DeleteServiceAccount(r Stored[ServiceAccount]) {
	remove(t, serviceAccountKey(r.V.Org, r.V.Name), r)
}

// Assignments lists up to limit runners that have the service account; 0: all.
func (s *Store) Assignments(ctx context.Context, account string, limit int) ([]Stored[Assignment], error) {
	q := engine.Query{Partition: serviceAccountPartition(account), Prefix: assignmentPrefix, Limit: limit}
	if limit == 0 {
		return all[Assignment](ctx, s, q)
	}
	p, err := query[Assignment](ctx, s, q)
	return p.Items, err
}

// Assignment returns the assignment of a service account to a runner, with version 0 if there is none.
func (s *Store) Assignment(ctx context.Context, account string, runner fairlead.RunnerID) (Stored[Assignment], error) {
	return getOr(ctx, s, assignmentKey(account, runner), Assignment{Runner: runner})
}

// PutAssignment records that a runner has the service account. The write of the runner in the same commit has the precondition.
func (t *Tx) PutAssignment(account string, v Assignment) {
	put(t, assignmentKey(account, v.Runner), Stored[Assignment]{V: v, Version: anyVersion})
}

// DropAssignment records that a runner does not have the service account.
func (t *Tx) DropAssignment(account string, runner fairlead.RunnerID) {
	t.drop(assignmentKey(account, runner))
}

// PutAccountLogin writes the login of a service account. It expires with its token. There is no reference to it: a change of the
// account ends all its logins.
func (t *Tx) PutAccountLogin(hash string, v Login) {
	put(t, loginKey(hash), Stored[Login]{V: v}, expires(v.Expires))
}
