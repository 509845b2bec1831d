package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// MaxTokens is the largest number of API tokens that an org can create.
const MaxTokens = 200

// tokenUsed is the precision of a token's last use. Recording each request would cost
// one commit for each request.
const tokenUsed = time.Hour

// NewToken is a request to create an API token.
type NewToken struct {
	Name     string    `json:"name"`
	Operator bool      `json:"operator,omitempty"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	// Bindings are its roles; none: owner of the org.
	Bindings []access.Binding `json:"bindings,omitempty"`
}

// Token is an API token. Secret is the bearer token. Only the answer to the request that
// creates the token contains Secret.
type Token struct {
	fairlead.Actors
	ID       string
	Name     string
	Operator bool // may change what all orgs share
	Bindings []access.Binding
	Created  time.Time
	Expires  time.Time // zero: never
	Used     time.Time // last use, precise to the hour; zero: never
	First    bool      // for the first login only
	Secret   string
}

func tokenOf(t store.Token) Token {
	return Token{Actors: t.Actors, ID: t.ID, Name: t.Name, Operator: t.Operator, Bindings: t.Roles(), Created: t.Created, Expires: t.Expires, Used: t.Used, First: t.First}
}

// CreateToken creates an API token. Only an operator creates an operator's token, and no
// caller gives a role that it does not have itself at the same place. The
// table stores only the token's hash. A repeated request with the same idempotency key
// computes the same token from the key.
func (c *Control) CreateToken(ctx context.Context, by access.Principal, in NewToken, key string) (Token, error) {
	if err := fairlead.CheckName("token", in.Name); err != nil {
		return Token{}, err
	}
	if !in.Expires.IsZero() && !in.Expires.After(c.Instant()) {
		return Token{}, fairlead.Invalid(fairlead.CodeInvalidExpiry, "the token would expire at %s, which is in the past", in.Expires.UTC().Format(time.RFC3339))
	}
	if in.Operator && !by.Operator {
		return Token{}, operatorOnly("only an operator creates a token of an operator")
	}
	var err error
	if in.Bindings, err = c.grantable(ctx, by, in.Bindings, "create a token with"); err != nil {
		return Token{}, err
	}
	if slices.ContainsFunc(in.Bindings, func(b access.Binding) bool { return b.Install != "" }) {
		return Token{}, fairlead.Invalid(fairlead.CodeInvalidRole, "a token has no role at one install: only people of the customer have")
	}
	in.Expires = in.Expires.UTC().Truncate(time.Millisecond)
	id := c.IDs(fairlead.PrefixToken)
	random := identity.NewToken(identity.PrefixAPI)
	secretOf := func(id string) string {
		if key == "" {
			return random
		}
		return c.Minter.Token(identity.PrefixAPI, string(by.Org)+"\n"+key+"\n"+id)
	}
	out := Token{}
	err = c.Transact(ctx, "create token "+in.Name, func(tx *kernel.Tx) error {
		// Read the tokens before the key. If an equal concurrent request commits between
		// the two reads, the second read finds its key.
		refs, err := c.Store.AllTokenRefs(ctx, by.Org)
		if err != nil {
			return err
		}
		named, err := c.Store.TokenRef(ctx, by.Org, in.Name)
		if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
			return err
		}
		made, err := tx.Seen(kernel.Once{Org: by.Org, Route: "create-token", Key: key, Body: in}, id)
		if err != nil {
			return err
		}
		if made != "" {
			secret := secretOf(made)
			r, err := c.Store.Token(ctx, identity.Hash(secret))
			out = tokenOf(r.V)
			out.Secret = secret
			return err
		}
		if named.V.ID == id {
			return nil // our own earlier commit, whose outcome was unclear
		}
		if named.V.ID != "" {
			return fairlead.Conflict(fairlead.CodeTokenExists, "there is a token %q already", in.Name)
		}
		if len(refs) >= MaxTokens {
			return fairlead.Conflict(fairlead.CodeTooManyTokens, "there are %d API tokens, the largest number allowed", len(refs))
		}
		t := store.Token{Actors: tx.Made(), ID: id, Org: by.Org, Name: in.Name, Operator: in.Operator, Bindings: in.Bindings, Created: tx.Now, Expires: in.Expires}
		out = tokenOf(t)
		out.Secret = secretOf(id)
		hash := identity.Hash(out.Secret)
		tx.PutToken(hash, store.Stored[store.Token]{V: t})
		tx.PutTokenRef(t.Org, t.Name, store.TokenRef{ID: id, Hash: hash})
		return nil
	})
	if err != nil {
		return Token{}, err
	}
	c.Logger.Info("an API token was created", "token", out.ID, "name", out.Name, "roles", access.Describe(out.Bindings), "by", by.Name)
	return out, nil
}

// MaxBindings is the largest number of roles of an API token.
const MaxBindings = 20

// grantable returns the bindings that a new token or a user gets, or an error if by may not give them; deed is for the error. A group must exist: a role in a
// group whose name is misspelled would permit nothing. An app need not, because the first token for its publication comes before it.
func (c *Control) grantable(ctx context.Context, by access.Principal, asked []access.Binding, deed string) ([]access.Binding, error) {
	if len(asked) == 0 {
		asked = access.OwnerOf()
	}
	if len(asked) > MaxBindings {
		return nil, fairlead.Invalid(fairlead.CodeInvalidRole, "a caller has at most %d roles", MaxBindings)
	}
	out := make([]access.Binding, 0, len(asked))
	for _, b := range asked {
		if b.InstallName != "" {
			id, err := c.visibleInstall(ctx, by, b.InstallName)
			if err != nil {
				return nil, err
			}
			b.Install = id
		}
		if err := b.Check(); err != nil {
			return nil, err
		}
		path, err := placement.ParsePath(string(b.Group))
		if err != nil {
			return nil, err
		}
		b.Group = path // "/" is the whole org
		if !by.MayGrant(b) && !mayBeFirst(by, b) {
			return nil, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeRoleMissing,
				Message: fmt.Sprintf("%s %s may not %s the role %s: it is %s", by.Kind, by.Name, deed, b, access.Describe(by.Bindings)),
				Hint:    "A caller gives roles only where it is an owner itself. Name a role and a place with {token.create}, or ask an owner of the org."}
		}
		if b.Group != "" {
			if _, err := c.Group(ctx, by.Org, b.Group.String()); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out, nil
}

func operatorOnly(message string) error {
	return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOperatorOnly, Message: message, Hint: "Use the token of an operator."}
}

// Tokens lists API tokens by name, including expired ones.
func (c *Control) Tokens(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Token, string, error) {
	refs, err := c.Store.TokenRefs(ctx, org, q)
	if err != nil {
		return nil, "", err
	}
	var out []Token
	for _, r := range refs.Items {
		t, err := c.Store.Token(ctx, r.V.Hash)
		if err != nil {
			return nil, "", fmt.Errorf("token %s: %w", r.V.ID, err)
		}
		if t.V.Revoked.IsZero() { // the token may be revoked after the page of references was read
			out = append(out, tokenOf(t.V))
		}
	}
	return out, refs.Next, nil
}

// Token returns an API token by its name or identifier. A token that the caller may not see is not found.
func (c *Control) Token(ctx context.Context, by access.Principal, which string) (Token, error) {
	refs, err := c.Store.AllTokenRefs(ctx, by.Org)
	if err != nil {
		return Token{}, err
	}
	for _, r := range refs {
		t, err := c.Store.Token(ctx, r.V.Hash)
		if err != nil {
			return Token{}, fmt.Errorf("token %s: %w", r.V.ID, err)
		}
		if (which == t.V.Name || which == t.V.ID) && t.V.Revoked.IsZero() && SeesToken(by, tokenOf(t.V)) {
			return tokenOf(t.V), nil
		}
	}
	return Token{}, fairlead.NotFound(fairlead.CodeTokenNotFound, which)
}

// SeesToken reports whether the caller may see and revoke the token: it may give all roles of the token, or the token is
// its own.
func SeesToken(by access.Principal, t Token) bool {
	return by.ID == t.ID || len(t.Bindings) > 0 && !slices.ContainsFunc(t.Bindings, func(b access.Binding) bool { return !by.MayGrant(b) })
}

// RevokeToken revokes an API token by its name or identifier. A token that the caller may not see is not found. RevokeToken
// refuses to revoke the last valid token of an owner of the org, and the last valid token of an operator. Without such a
// token, only a person with access to the control plane's machine or account could create
// a new token.
func (c *Control) RevokeToken(ctx context.Context, by access.Principal, which string) error {
	return c.Transact(ctx, "revoke token "+which, func(tx *kernel.Tx) error {
		refs, err := c.Store.AllTokenRefs(ctx, by.Org)
		if err != nil {
			return err
		}
		var ref store.Stored[store.TokenRef]
		var found store.Stored[store.Token]
		for _, r := range refs {
			t, err := c.Store.Token(ctx, r.V.Hash)
			if err != nil {
				return err
			}
			if which == t.V.Name || which == t.V.ID {
				ref, found = r, t
			}
		}
		if ref.V.ID == "" || !SeesToken(by, tokenOf(found.V)) {
			if tx.Again {
				return nil // our own earlier commit, whose outcome was unclear
			}
			return fairlead.NotFound(fairlead.CodeTokenNotFound, which)
		}
		if found.V.Operator && !by.Operator {
			return operatorOnly("token " + found.V.Name + " is an operator's")
		}
		others, operators, err := c.full(tx, by.Org, found.V.ID)
		if err != nil {
			return err
		}
		if found.V.Good(tx.Now) && (found.V.Owns() && others == 0 || found.V.Operator && operators == 0) {
			return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeLastToken,
				Message: fmt.Sprintf("token %s is the last one with full access to the control plane", found.V.Name),
				Hint:    "Create another one first: {token.create-operator}."}
		}
		found.V.Revoked = tx.Now
		tx.PutToken(ref.V.Hash, found)
		tx.DeleteTokenRef(by.Org, found.V.Name, ref)
		c.Logger.Info("an API token was revoked", "token", found.V.ID, "name", found.V.Name, "by", by.Name)
		return nil
	})
}

// noteUse records the use of a token. If an earlier release registered the token
// without a reference by name, noteUse adds the reference. A failure is logged, and the
// request continues.
func (c *Control) noteUse(ctx context.Context, hash string) {
	err := c.Transact(ctx, "record the use of a token", func(tx *kernel.Tx) error {
		r, err := c.Store.Token(ctx, hash)
		if err != nil || tx.Now.Sub(r.V.Used) < tokenUsed || !r.V.Good(tx.Now) {
			return err
		}
		r.V.Used = tx.Now
		if err := listToken(tx, &r.V, hash); err != nil {
			return err
		}
		tx.PutToken(hash, r)
		return nil
	})
	if err != nil {
		c.Logger.Warn("cannot record the use of an API token", "error", err)
	}
}

// listToken puts the reference by which the token is found by name. If the name is
// taken, the token gets the name with a number.
func listToken(tx *kernel.Tx, t *store.Token, hash string) error {
	base := strings.TrimRight(t.Name[:min(len(t.Name), fairlead.MaxName-4)], "-")
	for n, name := 2, t.Name; ; n, name = n+1, fmt.Sprintf("%s-%d", base, n) {
		r, err := tx.Store.TokenRef(tx.Ctx, t.Org, name)
		switch {
		case fairlead.KindOf(err) == fairlead.KindNotFound:
			t.Name = name
			tx.PutTokenRef(t.Org, name, store.TokenRef{ID: t.ID, Hash: hash})
			return nil
		case err != nil:
			return err
		case r.V.Hash == hash:
			t.Name = name
			return nil
		}
	}
}

// RegisterToken stores the hash of an org's API token, unless the token is already
// registered. If the token's name is taken, the token gets the name with a number.
func (c *Control) RegisterToken(ctx context.Context, org fairlead.OrgID, name, token string) error {
	return c.registerToken(ctx, kernel.User{Org: org}, name, token, false)
}

// RegisterOperator stores the hash of an operator's API token. The token belongs to the
// org, and can also change what all orgs share. A revoked or expired token is an error
// of KindUnauthenticated.
func (c *Control) RegisterOperator(ctx context.Context, org fairlead.OrgID, name, token string) error {
	return c.registerToken(ctx, kernel.User{Org: org, Operator: true}, name, token, false)
}

// FirstTokenLife is how long the token of the first start is valid.
const FirstTokenLife = 7 * 24 * time.Hour

// RegisterFirst is RegisterOperator for the token of the first start, which is for the first login: it ends after
// FirstTokenLife, and when an operator who owns the org logs in for the first time. A token that is registered already keeps its end.
func (c *Control) RegisterFirst(ctx context.Context, org fairlead.OrgID, name, token string) error {
	return c.registerToken(ctx, kernel.User{Org: org, Operator: true}, name, token, true)
}

// HasFullAccess reports whether a caller can do everything in the org and for all orgs: there are a valid token or a user who has
// logged in that own the org, and such of an operator.
func (c *Control) HasFullAccess(ctx context.Context, org fairlead.OrgID) (bool, error) {
	owners, operators, err := c.full(c.Reading(ctx), org, "")
	return owners > 0 && operators > 0, err
}

// endFirst revokes the first tokens that the user, an owner of the org, needs no more: those of an operator if the user is one.
func (c *Control) endFirst(tx *kernel.Tx, by store.User) error {
	refs, err := c.Store.AllTokenRefs(tx.Ctx, by.Org)
	if err != nil {
		return err
	}
	for _, r := range refs {
		t, err := c.Store.Token(tx.Ctx, r.V.Hash)
		if err != nil {
			return err
		}
		if t.V.First && (by.Operator || !t.V.Operator) {
			t.V.Revoked = tx.Now
			tx.PutToken(r.V.Hash, t)
			tx.DeleteTokenRef(by.Org, t.V.Name, r)
		}
	}
	return nil
}

func (c *Control) registerToken(ctx context.Context, of kernel.User, name, token string, first bool) error {
	hash := identity.Hash(token)
	id := c.IDs(fairlead.PrefixToken)
	return c.Transact(ctx, "register token "+name, func(tx *kernel.Tx) error {
		r, err := c.Store.Token(ctx, hash)
		changed := true
		switch {
		case err == nil && !r.V.Good(tx.Now):
			return identity.Unauthenticated()
		case err == nil:
			changed = of.Operator && !r.V.Operator
			r.V.Operator = r.V.Operator || of.Operator // a release without operators may have registered the token
		case fairlead.KindOf(err) != fairlead.KindNotFound:
			return err
		default:
			r.V = store.Token{ID: id, Org: of.Org, Name: name, Operator: of.Operator, Bindings: access.OwnerOf(), Created: tx.Now, First: first}
			if first {
				r.V.Expires = tx.Now.Add(FirstTokenLife)
			}
		}
		name := r.V.Name
		if err := listToken(tx, &r.V, hash); err != nil {
			return err
		}
		if changed || r.V.Name != name || !tx.Empty() {
			tx.PutToken(hash, r)
		}
		return nil
	})
}

// AuthenticateUser returns the principal of an API token, or of the token of a login of a user or a service account. It reads the token from the table
// each time, so that a revoked or expired token is refused at once.
func (c *Control) AuthenticateUser(ctx context.Context, token string) (access.Principal, error) {
	if strings.HasPrefix(token, identity.PrefixLogin+"_") {
		return c.authenticateLogin(ctx, token)
	}
	if strings.HasPrefix(token, identity.PrefixAccount+"_") {
		return c.authenticateAccount(ctx, token)
	}
	if !strings.HasPrefix(token, identity.PrefixAPI+"_") {
		return access.Principal{}, identity.Unauthenticated()
	}
	hash := identity.Hash(token)
	r, err := c.Store.Token(ctx, hash)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return access.Principal{}, identity.Unauthenticated()
	}
	if err == nil && !r.V.Good(c.Instant()) {
		return access.Principal{}, identity.NoLonger()
	}
	if err == nil && c.Instant().Sub(r.V.Used) >= tokenUsed {
		c.noteUse(ctx, hash)
	}
	if err != nil {
		return access.Principal{}, err
	}
	return access.Principal{Kind: access.Token, ID: r.V.ID, Name: r.V.Name, Org: r.V.Org, Operator: r.V.Operator, Bindings: r.V.Roles(), Expires: r.V.Expires}, nil
}

// UserOf returns the principal as use cases record it.
func UserOf(p access.Principal) User {
	a := fairlead.Actor{Token: p.ID, Name: p.Name}
	if p.Kind != access.Token {
		a.Kind = string(p.Kind)
	}
	return User{Org: p.Org, Operator: p.Operator, Token: a}
}
