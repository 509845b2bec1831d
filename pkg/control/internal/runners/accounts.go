package runners

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// TokenRule says which OIDC tokens a service account accepts, or a runner in the sandbox.
type TokenRule = oidc.Trust

// PrefixAccountRev begins the revisions of the rules of service accounts.
const PrefixAccountRev = "tru"

// CheckTokenRule returns an error if the rule is not valid on this control plane.
func (f *Fleet) CheckTokenRule(rule TokenRule) error {
	var rules oidc.Rules
	if f.OIDC != nil {
		rules = f.OIDC.Rules()
	}
	return rule.Check(rules)
}

// SameTokenRule reports whether two rules are equal.
func SameTokenRule(a, b TokenRule) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// AssignServiceAccount lets agents open sessions of the runner as the service account, which must be of the runner's group or of one
// above it. A shared runner takes none: the owners of one org would decide who runs the jobs of all.
func (f *Fleet) AssignServiceAccount(ctx context.Context, by kernel.User, runner, account string) (Runner, error) {
	err := f.Transact(ctx, "assign service account "+account+" to runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		if r.V.Shared() {
			return unfit("runner %s is shared with every org: a shared runner takes no service account", runner)
		}
		a, err := f.Store.ServiceAccount(ctx, r.V.Org, account)
		switch {
		case err != nil:
			return err
		case slices.Contains(r.V.ServiceAccounts, account):
			return nil // it has the account, also after our own earlier commit whose outcome was unclear
		case r.V.Leaving:
			return Leaving(r.V)
		case len(r.V.ServiceAccounts)+len(r.V.Trusts) >= oidc.MaxTrusts:
			return fairlead.Conflict(fairlead.CodeTooManyServiceAccounts, "runner %s has %d service accounts, the largest number allowed", runner, oidc.MaxTrusts)
		}
		group, err := groupOfRunner(tx, r.V)
		if err != nil {
			return err
		}
		if err := fits(runner, group, a.V); err != nil {
			return err
		}
		assign(tx, &r.V, a.V)
		tx.PutRunner(r)
		// This write makes a concurrent deletion of the account fail, and repeat its search for assignments.
		tx.PutServiceAccount(a)
		return nil
	})
	if err != nil {
		return Runner{}, err
	}
	return f.Runner(ctx, by.Org, runner)
}

// assign adds the account to the runner. The caller puts the runner into the commit.
func assign(tx *kernel.Tx, r *store.Runner, a store.ServiceAccount) {
	tx.PutAssignment(a.ID, store.Assignment{Runner: r.ID, Name: r.Name, At: tx.Now})
	r.ServiceAccounts = append(slices.Clone(r.ServiceAccounts), a.Name)
	slices.Sort(r.ServiceAccounts)
}

func unfit(format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeServiceAccountUnfit, Message: fmt.Sprintf(format, args...),
		Hint: "Assign a service account of the runner's group, or of a group above it: {account.list}."}
}

// fits returns an error unless the account is of the group in which the runner is, or of a group above it.
func fits(runner string, group placement.Path, a store.ServiceAccount) error {
	if a.Group.Contains(group) {
		return nil
	}
	return unfit("service account %s is of group %s, and runner %s is in group %s", a.Name, a.Group, runner, group)
}

// groupOfRunner returns the group that the runner serves, or in which its only install is.
func groupOfRunner(tx *kernel.Tx, r store.Runner) (placement.Path, error) {
	if r.Install == "" {
		return r.Group, nil
	}
	var named struct {
		Install string `json:"install"`
	}
	if err := json.Unmarshal(r.Config, &named); err != nil {
		return "", fmt.Errorf("read the configuration of runner %s: %w", r.Name, err)
	}
	in, err := store.Optional(tx.Store.Install(tx.Ctx, r.Org, named.Install))
	if err != nil || in.V.ID != r.Install { // it was forgotten
		return "", err
	}
	return in.V.Group, nil
}

// accountsFit returns an error unless all service accounts of a runner are of its group, or of groups above it.
func accountsFit(tx *kernel.Tx, accounts []string, org fairlead.OrgID, runner string, group placement.Path) error {
	for _, name := range accounts {
		a, err := tx.Store.ServiceAccount(tx.Ctx, org, name)
		if err != nil {
			return err
		}
		if err := fits(runner, group, a.V); err != nil {
			return err
		}
	}
	return nil
}

// UnassignServiceAccount takes the service account from the runner, and ends the sessions that agents opened as it. A shared
// runner can have a rule of an earlier release: its name is accepted too.
func (f *Fleet) UnassignServiceAccount(ctx context.Context, by kernel.User, runner, account string) error {
	return f.Transact(ctx, "unassign service account "+account+" from runner "+runner, func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		has := func(n string) bool { return n == account }
		switch {
		case slices.Contains(r.V.ServiceAccounts, account):
			a, err := f.Store.ServiceAccount(ctx, r.V.Org, account)
			if err != nil {
				return err
			}
			tx.DropAssignment(a.V.ID, r.V.ID)
			r.V.ServiceAccounts = slices.DeleteFunc(slices.Clone(r.V.ServiceAccounts), has)
		case r.V.Shared() && slices.Contains(r.V.Trusts, account):
			tx.DropTrust(r.V.ID, account)
			r.V.Trusts = slices.DeleteFunc(slices.Clone(r.V.Trusts), has)
		default:
			return tx.Deleted(fairlead.NotFound(fairlead.CodeServiceAccountNotFound, account))
		}
		tx.PutRunner(r)
		return nil
	})
}

// dropAssignments records that a runner that is deleted has no service account.
func dropAssignments(tx *kernel.Tx, r store.Runner) error {
	for _, name := range r.ServiceAccounts {
		a, err := tx.Store.ServiceAccount(tx.Ctx, r.Org, name)
		if err != nil {
			return err
		}
		tx.DropAssignment(a.V.ID, r.ID)
	}
	return nil
}

// OIDCProof authenticates an agent by an OIDC token of its platform. The agent signs
// the request and the token with a key of its own.
type OIDCProof struct {
	Token string
	// Binding is the audience that makes a token valid for this request only. It is
	// empty if this control plane does not know the host under which agents reach it.
	Binding string
}

// accepts is a rule for OIDC tokens that a runner has: of a service account, or its own.
type accepts struct {
	account string // name of the service account; "": it is the runner's own rule
	trust   string // name of the own rule
	rev     string
	rule    TokenRule
}

// tokenProof is a verified token.
type tokenProof struct {
	oidc.Identity
	by  accepts
	key string // key id of the token's holder
}

// accepted returns the rules of a runner.
func (f *Fleet) accepted(ctx context.Context, r store.Runner) ([]accepts, error) {
	var out []accepts
	for _, name := range r.ServiceAccounts {
		a, err := f.Store.ServiceAccount(ctx, r.Org, name)
		if err != nil {
			return nil, err
		}
		out = append(out, accepts{account: name, rev: a.V.Rev, rule: a.V.Rule})
	}
	if len(r.Trusts) == 0 {
		return out, nil
	}
	trusts, err := f.Store.Trusts(ctx, r.ID)
	for _, t := range trusts {
		out = append(out, accepts{trust: t.V.Name, rev: t.V.Rev, rule: t.V.Rule})
	}
	return out, err
}

// proveToken verifies the agent's token and returns the identity in the token. It returns
// an error if the token is not valid, or if no rule of the runner accepts it.
func (f *Fleet) proveToken(ctx context.Context, r store.Runner, p SessionProof) (tokenProof, error) {
	var out tokenProof
	if f.OIDC == nil || p.OIDC.Binding == "" {
		e := sessionRefused()
		e.Message = "this control plane verifies no OIDC tokens"
		return out, e
	}
	var err error
	if out.key, err = heldKey(p); err != nil {
		return out, err
	}
	accepted, err := f.accepted(ctx, r)
	if err != nil {
		return out, err
	}
	if len(accepted) == 0 {
		return out, sessionRefused()
	}
	rules := make([]TokenRule, len(accepted))
	for i, a := range accepted {
		rules[i] = a.rule
	}
	if out.Identity, err = f.OIDC.Verify(ctx, p.OIDC.Token, p.OIDC.Binding, rules); err != nil {
		return out, tokenRefused(err)
	}
	out.by = accepted[out.Identity.Trust]
	return out, nil
}

// admitToken checks in the commit that the rule has not changed since the token was
// verified, and that no other key has used the token.
//
// Until a token expires, it is valid only for the key of its first holder. If a token
// were accepted only once, which is the purpose of its claim jti, an agent that restarts
// could open no session until its platform writes the next token. Kubernetes takes most
// of an hour to write it. If a token were accepted for any key, a person who can read the
// token file could act as the runner. A token whose audience is OIDCProof.Binding is valid
// for this request only, so its use is not recorded.
func admitToken(tx *kernel.Tx, runner store.Runner, p tokenProof) error {
	still, err := stillAccepted(tx, runner.Org, runner.ID, p.by)
	if err != nil {
		return err
	}
	if !still {
		return sessionRefused()
	}
	if p.Bound {
		return nil
	}
	use, err := tx.Store.TokenUse(tx.Ctx, p.Use)
	switch {
	case fairlead.KindOf(err) == fairlead.KindNotFound:
		tx.PutTokenUse(p.Use, store.TokenUse{Key: p.key, Expires: p.Expires})
		return nil
	case err != nil:
		return err
	case use.V.Key != p.key:
		return tokenRefused(&fairlead.Error{Kind: fairlead.KindUnauthenticated, Message: "the OIDC token is not accepted: another agent has used it",
			Details: map[string]string{"reason": "replayed"}})
	}
	return nil // the same holder uses the token again
}

// stillAccepted reports whether the runner has the rule, and the rule has not changed. The commit depends on the record of the rule.
func stillAccepted(tx *kernel.Tx, org fairlead.OrgID, runner fairlead.RunnerID, by accepts) (bool, error) {
	if by.account == "" {
		t, err := store.Optional(tx.Store.Trust(tx.Ctx, runner, by.trust))
		if err != nil || t.Version == 0 || t.V.Rev != by.rev {
			return false, err
		}
		tx.CheckTrust(t)
		return true, nil
	}
	a, err := store.Optional(tx.Store.ServiceAccount(tx.Ctx, org, by.account))
	if err != nil || a.Version == 0 || a.V.Rev != by.rev {
		return false, err
	}
	assigned, err := tx.Store.Assignment(tx.Ctx, a.V.ID, runner)
	if err != nil || assigned.Version == 0 {
		return false, err
	}
	tx.CheckServiceAccount(a)
	return true, nil
}

// tokenRefused returns the refusal of a session for an error about its OIDC token. The
// message contains only facts that the token's holder may know.
func tokenRefused(err error) error {
	return proofRefused(err, "{account.list} shows whose tokens each service account accepts, and {runner.show} those of the runner.")
}

// stands returns an error if the rule or key that opened the session is no longer valid:
// the rule was changed, the service account was taken from the runner, or the key was revoked. For a session of an AWS role
// it always returns nil.
// The rule or key is read for each request, so that a change of a rule and the revocation of a key
// take effect at once.
func stands(tx *kernel.Tx, s store.Session) error {
	if s.Enrolled {
		return enrolled(tx, s)
	}
	if s.Trust == "" && s.Account == "" {
		return nil
	}
	still, err := stillAccepted(tx, s.Org, s.Runner, accepts{account: s.Account, trust: s.Trust, rev: s.TrustRev})
	if err != nil {
		return fmt.Errorf("read the rule of session %s: %w", s.ID, err)
	}
	if !still {
		return identity.NoLonger()
	}
	return nil
}

// StandsStill returns an error if the session is no longer valid. A request that has
// waited calls StandsStill before it continues.
func StandsStill(tx *kernel.Tx, s Session) error {
	_, err := standing(tx, s.Runner, s.ID)
	return err
}

// standing returns the session, or an error if it has ended or its rule or key is no
// longer valid.
func standing(tx *kernel.Tx, runner fairlead.RunnerID, id fairlead.SessionID) (store.Session, error) {
	r, err := store.Optional(tx.Store.Session(tx.Ctx, runner, id))
	switch {
	case err != nil:
		return store.Session{}, err
	case r.Version == 0 || r.V.Ended:
		return store.Session{}, identity.NoLonger()
	}
	return r.V, stands(tx, r.V)
}

// AuthenticateSession returns the session of a session token. It reads the session from
// the table each time, so that ending the session takes effect at once.
func (f *Fleet) AuthenticateSession(ctx context.Context, token string) (Session, error) {
	claims, err := f.Minter.Read(token, f.Now(), identity.Session)
	if err != nil {
		return Session{}, err
	}
	runner, session, _ := strings.Cut(claims.Subject, "/")
	s, err := standing(f.Reading(ctx), fairlead.RunnerID(runner), fairlead.SessionID(session))
	if err != nil {
		return Session{}, err
	}
	return sessionOf(f.Kernel, s), nil
}

// EndSession ends an agent's session and invalidates its token. Use it if a
// session token leaked. The agent itself opens a new session, if it can still
// authenticate.
func (f *Fleet) EndSession(ctx context.Context, by kernel.User, runner string, id fairlead.SessionID) error {
	return f.Transact(ctx, "end session "+string(id), func(tx *kernel.Tx) error {
		r, err := OwnRunner(tx, by, runner)
		if err != nil {
			return err
		}
		s, err := f.Store.Session(ctx, r.V.ID, id)
		if err != nil || s.V.Ended {
			return err
		}
		s.V.Ended = true
		tx.PutSession(s)
		return nil
	})
}
