package store

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Trust is a rule of a runner itself that sets which OIDC tokens can open its sessions. A runner in the sandbox has one, which its
// app sets. Other runners have service accounts; their own rules are from an earlier release.
type Trust struct {
	fairlead.Actors
	Runner fairlead.RunnerID `json:"runner"`
	Name   string            `json:"name"`
	// Rev changes with each change of the trust, and when a trust with this name is made
	// again. A session that was opened with an older Rev is no longer valid.
	Rev     string     `json:"rev"`
	Rule    oidc.Trust `json:"rule"`
	Created time.Time  `json:"created"`
	Changed time.Time  `json:"changed"`
}

// TokenUse is the first use of an OIDC token. After the first use, only the agent with
// this key can use the token.
type TokenUse struct {
	Key     string    `json:"key"` // key id of the agent
	Expires time.Time `json:"expires"`
}

// Trust returns a runner's trust by name.
func (s *Store) Trust(ctx context.Context, runner fairlead.RunnerID, name string) (Stored[Trust], error) {
	return get[Trust](ctx, s, trustKey(runner, name), missing(fairlead.CodeRecordNotFound, "rule "+name))
}

// Trusts lists a runner's trusts by name; there are at most a few.
func (s *Store) Trusts(ctx context.Context, runner fairlead.RunnerID) ([]Stored[Trust], error) {
	return all[Trust](ctx, s, engine.Query{Partition: runnerPartition(runner), Prefix: trustPrefix})
}

// PutTrust writes a trust.
func (t *Tx) PutTrust(r Stored[Trust]) { put(t, trustKey(r.V.Runner, r.V.Name), r) }

// CheckTrust makes the commit fail if the trust has changed since it was read.
func (t *Tx) CheckTrust(r Stored[Trust]) { t.check(trustKey(r.V.Runner, r.V.Name), r.Version) }

// DropTrust removes a trust if it exists. The write of the runner in the same
// commit has the precondition.
func (t *Tx) DropTrust(runner fairlead.RunnerID, name string) { t.drop(trustKey(runner, name)) }

// TokenUse returns the first use of a token.
func (s *Store) TokenUse(ctx context.Context, use string) (Stored[TokenUse], error) {
	return get[TokenUse](ctx, s, tokenUseKey(use), missing(fairlead.CodeTokenUseNotFound, "given"))
}

// PutTokenUse writes the first use of a token. The commit fails if the token was
// used. The record expires an hour after the token.
func (t *Tx) PutTokenUse(use string, v TokenUse) {
	put(t, tokenUseKey(use), Stored[TokenUse]{V: v}, expires(v.Expires.Add(time.Hour)))
}
