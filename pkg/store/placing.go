package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Records of placement: groups, members, variables, and the installs that use a runner.

// Group is a group of installs and runners. The root group has no record.
type Group struct {
	fairlead.Actors
	Org         fairlead.OrgID `json:"org"`
	Path        placement.Path `json:"path"`
	Description string         `json:"description,omitempty"`
	Leaving     bool           `json:"leaving,omitempty"` // it is being deleted: it takes no new members
	Made        string         `json:"made"`              // identifies the request that made it
	Created     time.Time      `json:"created"`
}

// Kinds of members of a group.
const (
	MemberInstall = "INSTALL"
	MemberRunner  = "RUNNER"
	MemberAccount = "SERVICEACCOUNT"
)

// Member is an install, a runner or a service account in a group. A group with members cannot be
// deleted. The root group can never be deleted, so it has no list of members.
type Member struct {
	Group placement.Path `json:"group"`
	Kind  string         `json:"kind"`
	Name  string         `json:"name"`
}

// Kinds of scopes of variables. Later kinds override earlier ones.
const (
	ScopeRunner  = "RUNNER"  // by identifier
	ScopeGroup   = "GROUP"   // by path
	ScopeApp     = "APP"     // by name
	ScopeInstall = "INSTALL" // by identifier
)

// Scope is the runner, group, app or install that variables are set on.
type Scope struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Variables are the environment variables that are set on one scope, for its jobs.
type Variables struct {
	fairlead.Actors
	Org    fairlead.OrgID   `json:"org"` // empty: a shared runner
	Of     Scope            `json:"of"`
	Values map[string]Input `json:"values"`
	// FingerprintKey is the sealed key of the fingerprints of sensitive values.
	FingerprintKey []byte `json:"fingerprint_key,omitempty"`
}

// AllRunners lists every runner of an org, for placement; with org "" every shared
// runner.
func (s *Store) AllRunners(ctx context.Context, org fairlead.OrgID) ([]Stored[Runner], error) {
	return all[Runner](ctx, s, engine.Query{Partition: runnersPartition(org)})
}

// RunnerUses lists the installs that use a runner, or are about to use it.
func (s *Store) RunnerUses(ctx context.Context, id fairlead.RunnerID, q fairlead.PageQuery) (Page[RunnerUse], error) {
	return query[RunnerUse](ctx, s, engine.Query{Partition: runnerPartition(id), Prefix: usePrefix, After: q.After, Limit: q.Limit})
}

// PutRunnerUse records that the install uses the runner, or is about to use it.
func (t *Tx) PutRunnerUse(id fairlead.RunnerID, in Install, now time.Time) {
	put(t, runnerUseKey(id, in.ID), Stored[RunnerUse]{V: RunnerUse{Org: in.Org, Install: in.ID, Name: in.Name, At: now}, Version: anyVersion})
}

// DropRunnerUse records that the install no longer uses the runner.
func (t *Tx) DropRunnerUse(id fairlead.RunnerID, install fairlead.InstallID) {
	t.drop(runnerUseKey(id, install))
}

// RunnerRule returns the rule with this match. The match of a rule is its
// placement.Rule.Key.
func (s *Store) RunnerRule(ctx context.Context, org fairlead.OrgID, match string) (Stored[RunnerRule], error) {
	return get[RunnerRule](ctx, s, ruleKey(org, match), missing(fairlead.CodeRuleNotFound, match))
}

// RunnerRuleByPrefix returns the first rule whose key begins with prefix. The
// caller gives a prefix that is long enough to be unique.
func (s *Store) RunnerRuleByPrefix(ctx context.Context, org fairlead.OrgID, prefix string) (Stored[RunnerRule], error) {
	p, err := query[RunnerRule](ctx, s, engine.Query{Partition: rulesPartition(org), Prefix: prefix, Limit: 1})
	if err == nil && len(p.Items) == 0 {
		err = fairlead.NotFound(fairlead.CodeRuleNotFound, prefix)
	}
	if err != nil {
		return Stored[RunnerRule]{}, err
	}
	return p.Items[0], nil
}

// RunnerRules lists rules, in the order of their keys.
func (s *Store) RunnerRules(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[RunnerRule], error) {
	return query[RunnerRule](ctx, s, engine.Query{Partition: rulesPartition(org), After: q.After, Limit: q.Limit})
}

// AllRunnerRules lists every rule of an org, for placement.
func (s *Store) AllRunnerRules(ctx context.Context, org fairlead.OrgID) ([]Stored[RunnerRule], error) {
	return all[RunnerRule](ctx, s, engine.Query{Partition: rulesPartition(org)})
}

// PutRunnerRule writes a rule under its match. With version 0 the commit fails if
// the match has a rule.
func (t *Tx) PutRunnerRule(r Stored[RunnerRule]) {
	put(t, ruleKey(r.V.Org, r.V.Key()), r)
}

// DeleteRunnerRule removes a rule.
func (t *Tx) DeleteRunnerRule(r Stored[RunnerRule]) {
	remove(t, ruleKey(r.V.Org, r.V.Key()), r)
}

// Group returns a group by its path.
func (s *Store) Group(ctx context.Context, org fairlead.OrgID, path placement.Path) (Stored[Group], error) {
	return get[Group](ctx, s, groupKey(org, path), missing(fairlead.CodeGroupNotFound, path.String()))
}

// Groups lists groups by path. Subgroups come after their group.
func (s *Store) Groups(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) (Page[Group], error) {
	return query[Group](ctx, s, engine.Query{Partition: groupsPartition(org), After: q.After, Limit: q.Limit})
}

// GroupsBelow lists up to limit groups below a group, at any depth.
func (s *Store) GroupsBelow(ctx context.Context, org fairlead.OrgID, path placement.Path, limit int) ([]Stored[Group], error) {
	p, err := query[Group](ctx, s, engine.Query{Partition: groupsPartition(org), Prefix: path.String() + "/", Limit: limit})
	return p.Items, err
}

// PutGroup writes a group.
func (t *Tx) PutGroup(r Stored[Group]) { put(t, groupKey(r.V.Org, r.V.Path), r) }

// DeleteGroup removes a group.
func (t *Tx) DeleteGroup(r Stored[Group]) { remove(t, groupKey(r.V.Org, r.V.Path), r) }

// CheckGroup makes the commit fail if the group has changed since it was read.
func (t *Tx) CheckGroup(r Stored[Group]) { t.check(groupKey(r.V.Org, r.V.Path), r.Version) }

// Members lists up to limit members of a group, without the members of its subgroups.
func (s *Store) Members(ctx context.Context, org fairlead.OrgID, path placement.Path, limit int) ([]Stored[Member], error) {
	p, err := query[Member](ctx, s, engine.Query{Partition: membersPartition(org), Prefix: path.String() + "#", Limit: limit})
	return p.Items, err
}

// PutMember adds a member to its group. The root group has no list of members.
func (t *Tx) PutMember(org fairlead.OrgID, m Member) {
	if m.Group != "" {
		put(t, memberKey(org, m), Stored[Member]{V: m, Version: anyVersion})
	}
}

// DropMember removes a member from its group.
func (t *Tx) DropMember(org fairlead.OrgID, m Member) {
	if m.Group != "" {
		t.drop(memberKey(org, m))
	}
}

// Variables returns the variables of a scope, with version 0 if there are none.
func (s *Store) Variables(ctx context.Context, org fairlead.OrgID, of Scope) (Stored[Variables], error) {
	return getOr(ctx, s, varsKey(org, of), Variables{Org: org, Of: of})
}

// PutVariables writes the variables of a scope.
func (t *Tx) PutVariables(r Stored[Variables]) { put(t, varsKey(r.V.Org, r.V.Of), r) }

// DropVariables removes the variables of a scope.
func (t *Tx) DropVariables(org fairlead.OrgID, of Scope) { t.drop(varsKey(org, of)) }
