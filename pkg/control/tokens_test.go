package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestTokensInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { tokenStory(newPlane(t, enginetest.Memory()), time.Sleep) })
}

func TestTokensOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	tokenStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep), c.sleep)
}

func TestTokensOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	tokenStory(newPlaneAt(t, dynamoTable(t, "tokens"), c.now, c.sleep), c.sleep)
}

// tokenStory creates, uses, lists and revokes API tokens. A token is valid until it expires
// or is revoked.
func tokenStory(p *plane, sleep func(time.Duration)) {
	p.t.Helper()
	admin := identity.NewToken(identity.PrefixAPI)
	p.must("register", func() error { return p.RegisterOperator(p.ctx, org, "admin", admin) })
	operator := p.user(admin)
	made := p.Now().Add(time.Hour)
	var ci control.Token
	for range 2 { // the first answer may be lost
		p.must("create", func() (err error) {
			was := ci.Secret
			ci, err = p.CreateToken(p.ctx, operator, control.NewToken{Name: "ci", Expires: made}, "key")
			if was != "" && ci.Secret != was {
				p.t.Errorf("the repeated request returned another token")
			}
			return err
		})
	}
	if u := p.user(ci.Secret); u.Operator || u.Org != org || control.UserOf(u).Token != (fairlead.Actor{Token: ci.ID, Name: "ci"}) {
		p.t.Errorf("the token's user is %+v", u)
	}
	if _, err := p.CreateToken(p.ctx, operator, control.NewToken{Name: "ci", Expires: made.Add(time.Second)}, "key"); fairlead.CodeOf(err) != "idempotency-key-reused" {
		p.t.Errorf("the key of another request: %v", err)
	}

	// The time of the last use is recorded at most once an hour.
	first := p.tokens()["ci"].Used
	if first.IsZero() {
		p.t.Error("the first use was not recorded")
	}
	sleep(30 * time.Minute)
	p.user(ci.Secret)
	if got := p.tokens()["ci"].Used; !got.Equal(first) {
		p.t.Errorf("a use within the hour was recorded: %s, %s", first, got)
	}
	sleep(30 * time.Minute)
	if _, err := p.AuthenticateUser(p.ctx, ci.Secret); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		p.t.Errorf("an expired token: %v", err)
	}
	p.user(admin)
	if got := p.tokens(); !got["admin"].Used.Equal(p.Now().Truncate(time.Millisecond)) || got["ci"].ID != ci.ID {
		p.t.Errorf("the tokens are %+v", got)
	}

	// Only operators can create and revoke the tokens of operators. The last token of an
	// operator cannot be revoked.
	var dev control.Token
	p.must("create", func() (err error) {
		dev, err = p.CreateToken(p.ctx, operator, control.NewToken{Name: "dev"}, "")
		return err
	})
	developer := p.user(dev.Secret)
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a developer creates an operator": {errOf(p.CreateToken(p.ctx, developer, control.NewToken{Name: "x", Operator: true}, "")), "operator-only"},
		"a developer revokes an operator": {p.RevokeToken(p.ctx, developer, "admin"), "operator-only"},
		"the last operator is revoked":    {p.RevokeToken(p.ctx, operator, operator.ID), "last-token"},
		"an unknown token":                {p.RevokeToken(p.ctx, operator, "unknown"), "token-not-found"},
		"a token of another org":          {p.RevokeToken(p.ctx, access.Principal{Org: "other", Operator: true, Bindings: access.OwnerOf()}, "dev"), "token-not-found"},
		"a name in use":                   {errOf(p.CreateToken(p.ctx, operator, control.NewToken{Name: "dev"}, "")), "token-exists"},
		"an invalid name":                 {errOf(p.CreateToken(p.ctx, operator, control.NewToken{Name: "tok_1"}, "")), "invalid-name"},
		"an expiry in the past":           {errOf(p.CreateToken(p.ctx, operator, control.NewToken{Name: "y", Expires: made}, "")), "invalid-expiry"},
		"a revoked token is registered":   {p.revoked(operator, dev.Secret), "unauthenticated"},
	} {
		expectCode(p.t, name, test.err, test.want)
	}
	if _, err := p.AuthenticateUser(p.ctx, dev.Secret); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		p.t.Errorf("a revoked token: %v", err)
	}

	// A second token is registered with the name of the first token, so a number is added to
	// its name in the list. Then the first token is revoked.
	other := identity.NewToken(identity.PrefixAPI)
	p.must("register", func() error { return p.RegisterOperator(p.ctx, org, "admin", other) })
	p.must("register again", func() error { return p.RegisterOperator(p.ctx, org, "admin", other) })
	if got := p.tokens(); got["admin-2"].ID == "" || len(got) != 3 {
		p.t.Errorf("the tokens are %+v", got)
	}
	p.must("revoke", func() error { return p.RevokeToken(p.ctx, p.user(other), "admin") })
	if _, err := p.AuthenticateUser(p.ctx, admin); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		p.t.Errorf("the first admin's token: %v", err)
	}
}

// user returns the user whom the token identifies.
func (p *plane) user(token string) (u access.Principal) {
	p.t.Helper()
	p.must("authenticate", func() (err error) { u, err = p.AuthenticateUser(p.ctx, token); return err })
	return u
}

// revoked revokes the token "dev", and then registers the same token again. It returns the
// error of the registration.
func (p *plane) revoked(by access.Principal, token string) error {
	p.must("revoke", func() error { return p.RevokeToken(p.ctx, by, "dev") })
	return p.RegisterToken(p.ctx, org, "dev", token)
}

// tokens returns the listed tokens by name.
func (p *plane) tokens() map[string]control.Token {
	p.t.Helper()
	out := map[string]control.Token{}
	for q := (fairlead.PageQuery{Limit: 1}); ; {
		page, next, err := p.Tokens(p.ctx, org, q)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, t := range page {
			out[t.Name] = t
		}
		if q.After = next; next == "" {
			return out
		}
	}
}

// ok returns a function that returns v, or fails the test if err is not nil.
func ok[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// An org has at most MaxTokens API tokens.
func TestNumberOfTokensIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		for i := range control.MaxTokens {
			name := "t" + strings.Repeat("x", i%50) + string(rune('a'+i/50))
			p.must("create", func() error {
				return errOf(p.CreateToken(p.ctx, access.Principal{Org: org, Bindings: access.OwnerOf()}, control.NewToken{Name: name}, ""))
			})
		}
		expectCode(t, "one more", errOf(p.CreateToken(p.ctx, access.Principal{Org: org, Bindings: access.OwnerOf()}, control.NewToken{Name: "more"}, "")), "too-many-tokens")
	})
}

// A token that an earlier release registered is not in the list of tokens, so it cannot be
// revoked. The next use of the token adds it to the list.
func TestUseListsATokenOfAnEarlierRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		old := identity.NewToken(identity.PrefixAPI)
		var tx store.Tx
		tx.PutToken(identity.Hash(old), store.Stored[store.Token]{V: store.Token{ID: "tok_old", Org: org, Name: "admin", Operator: true, Created: p.Now()}})
		if err := p.Store.Commit(p.ctx, "com_old", &tx); err != nil {
			t.Fatal(err)
		}
		p.must("register", func() error { return p.RegisterOperator(p.ctx, org, "admin", identity.NewToken(identity.PrefixAPI)) })
		operator := p.user(old)
		if got := p.tokens(); got["admin-2"].ID != "tok_old" {
			t.Errorf("the tokens are %+v", got)
		}
		p.must("revoke", func() error { return p.RevokeToken(p.ctx, operator, "admin-2") })
		if _, err := p.AuthenticateUser(p.ctx, old); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("after it was revoked: %v", err)
		}
	})
}

// A deployment records the API tokens that created, approved and canceled it.
func TestDeploymentRecordsItsActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		ci, carol := fairlead.Actor{Token: "tok_1", Name: "ci"}, fairlead.Actor{Token: "tok_2", Name: "carol"}
		first := ok(p.CreateDeployment(control.As(p.ctx, ci), org, "acme", control.NewDeployment{Kind: deployment.Deploy}, ""))(t)
		p.work()
		ok(p.ApproveDeployment(control.As(p.ctx, carol), org, first.ID, nil, nil))(t)
		d := ok(p.Deployment(p.ctx, org, first.ID))(t)
		if n := d.Node("network"); d.By != ci || n.Approved != carol || d.StopBy != (fairlead.Actor{}) {
			t.Errorf("the deployment was created by %v, approved by %v, canceled by %v", d.By, n.Approved, d.StopBy)
		}
		ok(p.CancelDeployment(control.As(p.ctx, carol), org, first.ID))(t)
		d = ok(p.Deployment(p.ctx, org, first.ID))(t)
		j := ok(p.Job(p.ctx, org, d.Node("network").ApplyJob))(t)
		if d.StopBy != carol || j.StopBy != carol {
			t.Errorf("the deployment was canceled by %v, its job by %v", d.StopBy, j.StopBy)
		}
		again := ok(p.RetryDeployment(control.As(p.ctx, ci), org, first.ID, ""))(t)
		if again.By != ci {
			t.Errorf("retried by %v", again.By)
		}
	})
}
