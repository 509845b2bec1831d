package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// AccountLoginLife is how long the token of a service account is valid. GitHub's tokens are valid for five minutes, so it does not
// end with the platform's token.
const AccountLoginLife = time.Hour

// ServiceAccount is an identity of programs.
type ServiceAccount struct {
	fairlead.Actors
	ID               string
	Name             string
	Group            placement.Path
	Rule             TokenRule
	Bindings         []access.Binding // none: it is for runners only
	Created, Changed time.Time
	// Runners are the names of up to MaxShownRunners runners that have the account. Only the use case for one account sets it.
	Runners []string
}

// MaxShownRunners is the largest number of runners that a service account shows.
const MaxShownRunners = 100

func serviceAccountOf(a store.ServiceAccount) ServiceAccount {
	return ServiceAccount{Actors: a.Actors, ID: a.ID, Name: a.Name, Group: a.Group, Rule: a.Rule, Bindings: a.Bindings, Created: a.Created, Changed: a.Changed}
}

// NewServiceAccount is a request to create a service account.
type NewServiceAccount struct {
	Name  string `json:"name"`
	Group string `json:"group,omitempty"`
	AccountSettings
}

// AccountSettings are what can be changed of a service account.
type AccountSettings struct {
	Rule     TokenRule        `json:"rule"`
	Bindings []access.Binding `json:"bindings,omitempty"` // none: it is for runners only
}

// checkSettings returns the settings with the bindings that the caller may give.
func (c *Control) checkSettings(ctx context.Context, by access.Principal, in AccountSettings) (AccountSettings, error) {
	if err := c.CheckTokenRule(in.Rule); err != nil || len(in.Bindings) == 0 {
		in.Bindings = nil
		return in, err
	}
	if in.Rule.Bound {
		return in, fairlead.Invalid(fairlead.CodeInvalidOIDCTrust, "a service account with roles cannot ask for bound tokens: only agents of runners have a request to which a token is bound")
	}
	var err error
	if in.Bindings, err = c.grantable(ctx, by, in.Bindings, "give a service account"); err != nil {
		return in, err
	}
	if slices.ContainsFunc(in.Bindings, func(b access.Binding) bool { return b.Install != "" }) {
		return in, fairlead.Invalid(fairlead.CodeInvalidRole, "a service account has no role at one install: only people of the customer have")
	}
	return in, nil
}

// CreateServiceAccount creates a service account in a group. No caller gives a role that it does not have itself at the same place.
func (c *Control) CreateServiceAccount(ctx context.Context, by access.Principal, in NewServiceAccount, key string) (ServiceAccount, error) {
	if err := fairlead.CheckName("service account", in.Name); err != nil {
		return ServiceAccount{}, err
	}
	group, err := placement.ParsePath(in.Group)
	if err != nil {
		return ServiceAccount{}, err
	}
	if in.AccountSettings, err = c.checkSettings(ctx, by, in.AccountSettings); err != nil {
		return ServiceAccount{}, err
	}
	id, rev := c.IDs(fairlead.PrefixAccount), c.IDs(runners.PrefixAccountRev)
	var out ServiceAccount
	err = c.Transact(ctx, "create service account "+in.Name, func(tx *kernel.Tx) error {
		old, err := store.Optional(c.Store.ServiceAccount(ctx, by.Org, in.Name))
		if err != nil {
			return err
		}
		made, err := tx.Seen(kernel.Once{Org: by.Org, Route: "create-service-account", Key: key, Body: in}, id)
		switch {
		case err != nil:
			return err
		case old.Version > 0 && (old.V.ID == id || old.V.ID == made):
			out = serviceAccountOf(old.V)
			return nil // a repeated request, or our own earlier commit, whose outcome was unclear
		case old.Version > 0:
			e := fairlead.Conflict(fairlead.CodeServiceAccountExists, "there is a service account %q already", in.Name)
			e.Hint = "Choose another name, or change it with {account.update}."
			return e
		case made != "": // this request created the account, which was deleted afterwards
			return fairlead.NotFound(fairlead.CodeServiceAccountNotFound, in.Name)
		}
		if err := runners.EnterGroup(tx, by.Org, group); err != nil {
			return err
		}
		a := store.ServiceAccount{Actors: tx.Made(), ID: id, Org: by.Org, Name: in.Name, Group: group, Rev: rev, Rule: in.Rule, Bindings: in.Bindings, Created: tx.Now, Changed: tx.Now}
		tx.PutServiceAccount(store.Stored[store.ServiceAccount]{V: a})
		tx.PutMember(by.Org, store.Member{Group: group, Kind: store.MemberAccount, Name: in.Name})
		out = serviceAccountOf(a)
		return nil
	})
	if err != nil {
		return ServiceAccount{}, err
	}
	c.Logger.Info("a service account was created", "service_account", out.ID, "name", out.Name, "group", out.Group, "roles", access.Describe(out.Bindings), "by", by.Name)
	return out, nil
}

// ServiceAccounts lists service accounts by name, without their runners.
func (c *Control) ServiceAccounts(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]ServiceAccount, string, error) {
	p, err := c.Store.ServiceAccounts(ctx, org, q)
	return kernel.List(p, err, serviceAccountOf)
}

// ServiceAccount returns a service account with its runners.
func (c *Control) ServiceAccount(ctx context.Context, org fairlead.OrgID, name string) (ServiceAccount, error) {
	a, err := c.Store.ServiceAccount(ctx, org, name)
	if err != nil {
		return ServiceAccount{}, err
	}
	out := serviceAccountOf(a.V)
	out.Runners, err = c.runnersOf(ctx, a.V.ID, MaxShownRunners)
	return out, err
}

// runnersOf returns the names of up to limit runners that have the service account.
func (c *Control) runnersOf(ctx context.Context, account string, limit int) ([]string, error) {
	assigned, err := c.Store.Assignments(ctx, account, limit)
	names := make([]string, 0, len(assigned))
	for _, a := range assigned {
		names = append(names, a.V.Name)
	}
	slices.Sort(names)
	return names, err
}

// UpdateServiceAccount replaces the rule and the roles of a service account. A new rule ends the sessions and logins that the old
// one admitted. Roles hold from the next request on.
func (c *Control) UpdateServiceAccount(ctx context.Context, by access.Principal, name string, in AccountSettings) (ServiceAccount, error) {
	if _, err := c.changeableAccount(ctx, by, name); err != nil { // first: what follows reveals groups
		return ServiceAccount{}, err
	}
	in, err := c.checkSettings(ctx, by, in)
	if err != nil {
		return ServiceAccount{}, err
	}
	rev := c.IDs(runners.PrefixAccountRev)
	var out ServiceAccount
	err = c.Transact(ctx, "update service account "+name, func(tx *kernel.Tx) error {
		a, err := c.changeableAccount(ctx, by, name)
		if err != nil {
			return err
		}
		same := runners.SameTokenRule(a.V.Rule, in.Rule)
		if same && slices.Equal(a.V.Bindings, in.Bindings) {
			out = serviceAccountOf(a.V)
			return nil // nothing changes, so its sessions stay open
		}
		if !same {
			a.V.Rule, a.V.Rev = in.Rule, rev
		}
		a.V.Bindings, a.V.Changed = in.Bindings, tx.Now
		tx.PutServiceAccount(a)
		a.V.ChangedBy = tx.By
		out = serviceAccountOf(a.V)
		return nil
	})
	return out, err
}

// changeableAccount returns a service account that the caller may change: it may give each of its roles. Who changes the rule decides
// who acts as the account, so an owner of the account's group alone must not change one that can do more than this owner.
func (c *Control) changeableAccount(ctx context.Context, by access.Principal, name string) (store.Stored[store.ServiceAccount], error) {
	a, err := c.Store.ServiceAccount(ctx, by.Org, name)
	if err == nil && slices.ContainsFunc(a.V.Bindings, func(b access.Binding) bool { return !by.MayGrant(b) }) {
		err = &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeRoleMissing, Message: fmt.Sprintf("%s %s may not change service account %s, which is %s", by.Kind, by.Name, name, access.Describe(a.V.Bindings)),
			Hint: "Only an owner at each place of the account's roles changes it."}
	}
	return a, err
}

// DeleteServiceAccount deletes a service account that no runner has. Its logins are over at once.
func (c *Control) DeleteServiceAccount(ctx context.Context, by access.Principal, name string) error {
	err := c.Transact(ctx, "delete service account "+name, func(tx *kernel.Tx) error {
		a, err := c.changeableAccount(ctx, by, name)
		if err != nil {
			return tx.Deleted(err)
		}
		const named = 20
		used, err := c.runnersOf(ctx, a.V.ID, named)
		if err != nil {
			return err
		}
		if len(used) > 0 {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeServiceAccountInUse, Message: fmt.Sprintf("service account %s is assigned to the runners %s", name, strings.Join(used, ", ")),
				Hint: "Take it from them first: {runner.unassign}."}
		}
		// An assignment writes the account, so the version tells whether there is a new one.
		tx.DeleteServiceAccount(a)
		tx.DropMember(by.Org, store.Member{Group: a.V.Group, Kind: store.MemberAccount, Name: name})
		return nil
	})
	if err == nil {
		c.Logger.Info("a service account was deleted", "name", name, "by", by.Name)
	}
	return err
}

// AccountProof is the proof that a program is a service account.
type AccountProof struct {
	Org   fairlead.OrgID // "": the org of an embedded control plane
	Name  string         // of the service account
	Token string         // of the program's platform
}

// AccountLogin is a login of a service account. Token is the bearer token.
type AccountLogin struct {
	Token   string
	Expires time.Time
	Org     fairlead.OrgID
	Account ServiceAccount
}

// LogInServiceAccount gives a program with a token of its platform a token of the control plane, which permits what the roles of the
// service account permit at the time of a request. The platform's token is accepted once; a request with the same idempotency key
// may be repeated. An account that does not exist is refused as one whose rule names another issuer.
func (c *Control) LogInServiceAccount(ctx context.Context, in AccountProof, key string) (AccountLogin, error) {
	if err := fairlead.CheckName("service account", in.Name); err != nil {
		return AccountLogin{}, err
	}
	if in.Org == "" {
		in.Org = fairlead.DefaultOrg
	}
	if c.OIDC == nil {
		return AccountLogin{}, programRefused("issuer", "this control plane verifies no OIDC tokens")
	}
	a, err := store.Optional(c.Store.ServiceAccount(ctx, in.Org, in.Name))
	if err != nil {
		return AccountLogin{}, err
	}
	var rules []oidc.Trust
	if a.Version > 0 {
		rules = append(rules, a.V.Rule)
	}
	proven, err := c.OIDC.Verify(ctx, in.Token, "", rules)
	if refusal, ok := errors.AsType[*fairlead.Error](err); ok && refusal.Kind == fairlead.KindUnauthenticated {
		return AccountLogin{}, programRefused(refusal.Details["reason"], "%s", refusal.Message)
	}
	if err != nil {
		return AccountLogin{}, err
	}
	if len(a.V.Bindings) == 0 {
		return AccountLogin{}, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeRoleMissing, Message: fmt.Sprintf("service account %s has no roles: it is for runners only", in.Name),
			Hint: "An owner gives it roles with {account.update}."}
	}
	return c.logInAccount(ctx, a.V, proven, key)
}

// logInAccount makes the login of a service account whose platform's token was verified.
func (c *Control) logInAccount(ctx context.Context, verified store.ServiceAccount, proven oidc.Identity, key string) (AccountLogin, error) {
	id, random := c.IDs(fairlead.PrefixLogin), identity.NewToken(identity.PrefixAccount)
	secretOf := func(id string) string {
		if key == "" {
			return random
		}
		return c.Minter.Token(identity.PrefixAccount, string(verified.Org)+"\n"+key+"\n"+id)
	}
	out := AccountLogin{Org: verified.Org, Account: serviceAccountOf(verified)}
	err := c.Transact(ctx, "log in service account "+verified.Name, func(tx *kernel.Tx) error {
		made, err := tx.Seen(kernel.Once{Org: verified.Org, Route: "log-in-service-account", Key: key, Body: []string{verified.ID, proven.Use}}, id)
		if err != nil {
			return err
		}
		if made != "" {
			out.Token = secretOf(made)
			l, err := c.Store.Login(ctx, identity.Hash(out.Token))
			out.Expires = l.V.Expires
			return err
		}
		use, err := store.Optional(c.Store.TokenUse(ctx, proven.Use))
		if err != nil || use.V.Key == id {
			return err // "" and nil: our own earlier commit, whose outcome was unclear
		}
		if use.Version > 0 {
			return programRefused("replayed", "the OIDC token was used before")
		}
		a, err := store.Optional(c.Store.ServiceAccount(ctx, verified.Org, verified.Name))
		if err != nil {
			return err
		}
		if a.V.ID != verified.ID || a.V.Rev != verified.Rev {
			return programRefused("changed", "the service account has changed")
		}
		tx.CheckServiceAccount(a)
		out.Token, out.Expires = secretOf(id), tx.Now.Add(AccountLoginLife)
		tx.PutAccountLogin(identity.Hash(out.Token), store.Login{ID: id, Org: a.V.Org, Of: a.V.ID, Name: a.V.Name, Created: tx.Now, Expires: out.Expires, Rev: a.V.Rev, Subject: proven.Subject})
		tx.PutTokenUse(proven.Use, store.TokenUse{Key: id, Expires: proven.Expires})
		return nil
	})
	if err != nil {
		return AccountLogin{}, err
	}
	c.Logger.Info("a service account logged in", "service_account", verified.ID, "name", verified.Name, "subject", proven.Subject, "login", id)
	return out, nil
}

func programRefused(reason, format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeLoginRefused, Message: fmt.Sprintf(format, args...),
		Hint: "Request a new token from the platform, and log in with it once. {account.list} shows the issuer, the audience and the claims that each service account needs.", Details: map[string]string{"reason": reason}}
}

// authenticateAccount returns the principal of the token of a service account. The account is read each time, so that a change of
// its roles or its rule, and its deletion, take effect at once.
func (c *Control) authenticateAccount(ctx context.Context, token string) (access.Principal, error) {
	l, err := c.Store.Login(ctx, identity.Hash(token))
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return access.Principal{}, identity.Unauthenticated()
	}
	if err != nil {
		return access.Principal{}, err
	}
	a, err := store.Optional(c.Store.ServiceAccount(ctx, l.V.Org, l.V.Name))
	if err != nil {
		return access.Principal{}, err
	}
	if a.V.ID != l.V.Of || a.V.Rev != l.V.Rev || !c.Instant().Before(l.V.Expires) {
		return access.Principal{}, identity.NoLonger()
	}
	return access.Principal{Kind: access.ServiceAccount, ID: a.V.ID, Name: a.V.Name, Org: a.V.Org, Bindings: a.V.Bindings, Expires: l.V.Expires}, nil
}
