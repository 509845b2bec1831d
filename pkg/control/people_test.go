package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestPeopleInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { peopleStory(newPlane(t, enginetest.Memory()), time.Sleep) })
}

func TestPeopleOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	peopleStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep), c.sleep)
}

func TestPeopleOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	peopleStory(newPlaneAt(t, dynamoTable(t, "people"), c.now, c.sleep), c.sleep)
}

// people is a plane with an issuer at which people log in.
type people struct {
	*platform
	operator access.Principal
}

const client = "fairlead-cli"

func newPeople(p *plane) *people {
	w := &people{platform: newPlatform(p)}
	token := identity.NewToken(identity.PrefixAPI)
	w.must("register", func() error { return w.RegisterOperator(w.ctx, org, "admin", token) })
	w.operator = w.user(token)
	w.must("set the issuer", func() error {
		_, err := w.SetLoginIssuer(w.ctx, control.UserOf(w.operator), "work", control.IssuerRule{Issuer: w.issuer.URL, ID: client})
		return err
	})
	return w
}

// idToken returns an ID token of a person whose subject is the name. more replaces claims.
func (w *people) idToken(name string, more map[string]any) string {
	all := map[string]any{"sub": name, "email": name + "@example.com", "email_verified": true, "name": name}
	for k, v := range more {
		all[k] = v
	}
	return w.issuer.Token(client, all)
}

// begin returns the nonce of a new login.
func (w *people) begin() (nonce string) {
	w.t.Helper()
	w.must("begin a login", func() error {
		b, err := w.BeginLogin(w.ctx)
		nonce = b.Nonce
		if err == nil && (len(b.Issuers) != 1 || b.Issuers[0].Rule.ID != client) {
			w.t.Errorf("the issuers are %+v", b.Issuers)
		}
		return err
	})
	return nonce
}

// logIn logs a person in, as a browser does.
func (w *people) logIn(name string, in control.LoginProof) (control.LoggedIn, error) {
	w.t.Helper()
	in.Issuer, in.Nonce = "work", w.begin()
	in.IDToken = w.idToken(name, map[string]any{"nonce": in.Nonce})
	return w.LogIn(w.ctx, in)
}

func (w *people) mustLogIn(name string) (l control.LoggedIn) {
	w.t.Helper()
	w.must("log in "+name, func() (err error) { l, err = w.logIn(name, control.LoginProof{}); return err })
	return l
}

func (w *people) invite(by access.Principal, in control.NewUser) (u control.Person) {
	w.t.Helper()
	w.must("invite "+in.Email, func() (err error) {
		u, err = w.InviteUser(w.ctx, by, in, "invite "+string(by.Org)+in.Email)
		return err
	})
	return u
}

func viewers(group placement.Path) []access.Binding {
	return []access.Binding{{Role: access.Viewer, Group: group}}
}

// peopleStory invites people, who log in, are changed, and leave.
func peopleStory(p *plane, sleep func(time.Duration)) {
	p.t.Helper()
	w := newPeople(p)
	w.must("make a group", func() error { _, err := w.CreateGroup(w.ctx, org, "eu", "", "eu"); return err })
	invited := w.invite(w.operator, control.NewUser{Email: "Eva@Example.com", Operator: true, Bindings: access.OwnerOf()})
	if again := w.invite(w.operator, control.NewUser{Email: "Eva@Example.com", Operator: true, Bindings: access.OwnerOf()}); again.ID != invited.ID || invited.Email != "eva@example.com" {
		w.t.Errorf("the repeated invitation made %+v, want %+v", again, invited)
	}
	w.invite(w.operator, control.NewUser{Email: "adam@example.com", Bindings: viewers("eu")})

	// Both log in. Each is what the invitation says, and records name them.
	eva, adam := w.mustLogIn("eva"), w.mustLogIn("adam")
	who := w.user(eva.Token)
	if who.Kind != access.User || who.ID != invited.ID || who.Name != "eva@example.com" || !who.Operator || !who.MayEverywhere(access.ManagePeople) || !who.Expires.Equal(eva.Expires) {
		w.t.Errorf("eva's principal is %+v", who)
	}
	if got := control.UserOf(who).Token; got != (fairlead.Actor{Token: invited.ID, Name: "eva@example.com", Kind: "user"}) {
		w.t.Errorf("records name %+v", got)
	}
	if got := w.user(adam.Token); got.MayEverywhere(access.View) || !got.May(access.View, access.GroupObject(org, "eu")) || got.Operator {
		w.t.Errorf("adam's principal is %+v", got)
	}
	if eva.Token == adam.Token || eva.Expires.Sub(w.Instant()) != control.LoginLife {
		w.t.Errorf("the logins are %+v and %+v", eva, adam)
	}

	// A change of the roles holds at once. The last owner who has logged in stays, when there is no token any more.
	w.must("update", func() error {
		_, err := w.UpdateUser(w.ctx, who, "adam@example.com", control.UserChange{Bindings: []access.Binding{{Role: access.Deployer, Group: "eu"}}})
		return err
	})
	if got := w.user(adam.Token); !got.May(access.Deploy, access.InstallObject(org, "eu", "shop")) {
		w.t.Errorf("adam is %s after the change", access.Describe(got.Bindings))
	}
	w.must("revoke the token of the start", func() error { return w.RevokeToken(w.ctx, who, "admin") })
	no := false
	for what, err := range map[string]error{
		"delete the last owner": w.DeleteUser(w.ctx, who, "eva@example.com"),
		"change the last owner": errOf(w.UpdateUser(w.ctx, who, invited.ID, control.UserChange{Bindings: viewers("eu")})),
		"end the last operator": errOf(w.UpdateUser(w.ctx, who, invited.ID, control.UserChange{Operator: &no})),
	} {
		expectCode(w.t, what, err, fairlead.CodeLastOwner)
	}

	// A person has as many logins as permitted. One more ends the oldest.
	var logins []control.LoggedIn
	for range 20 {
		sleep(time.Second)
		logins = append(logins, w.mustLogIn("adam"))
	}
	if _, err := w.AuthenticateUser(w.ctx, adam.Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		w.t.Errorf("the oldest of 21 logins is still accepted: %v", err)
	}
	w.user(logins[0].Token)
	w.must("log out", func() error { return w.EndLogin(w.ctx, logins[0].Token) })
	w.must("log out again", func() error { return w.EndLogin(w.ctx, logins[0].Token) })
	if _, err := w.AuthenticateUser(w.ctx, logins[0].Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		w.t.Errorf("after logging out the token is accepted: %v", err)
	}
	shown, err := w.User(w.ctx, who, "adam@example.com")
	if err != nil || len(shown.Logins) != 19 {
		w.t.Errorf("adam has %d logins, %v", len(shown.Logins), err)
	}
	w.must("end all", func() error { return w.EndLogins(w.ctx, who, "adam@example.com") })
	if _, err := w.AuthenticateUser(w.ctx, logins[5].Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		w.t.Errorf("after all logins were ended one is accepted: %v", err)
	}

	// A user who is deleted and invited again is another user: a login of the first is not one of the second.
	old := w.mustLogIn("adam")
	w.must("delete", func() error { return ignoreNotFound(w.DeleteUser(w.ctx, who, "adam@example.com")) })
	_, err = w.logIn("adam", control.LoginProof{})
	expectCode(w.t, "a deleted user logs in", err, fairlead.CodeNotInvited)
	w.must("invite again", func() error {
		_, err := w.InviteUser(w.ctx, who, control.NewUser{Email: "adam@example.com", Bindings: access.OwnerOf()}, "again")
		return err
	})
	if _, err := w.AuthenticateUser(w.ctx, old.Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		w.t.Errorf("the login of the deleted user is accepted: %v", err)
	}

	// A login ends with time.
	sleep(control.LoginLife)
	if _, err := w.AuthenticateUser(w.ctx, eva.Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		w.t.Errorf("after %s the login is accepted: %v", control.LoginLife, err)
	}
	w.user(w.mustLogIn("eva").Token)
}

// Each row is a login that must be refused.
func TestLoginsThatProveTooLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPeople(newPlane(t, enginetest.Memory()))
		w.invite(w.operator, control.NewUser{Email: "eva@example.com", Bindings: access.OwnerOf()})
		w.mustLogIn("eva") // now eva is known by her subject
		used := w.idToken("eva", nil)
		w.must("log in without a nonce, as in the device flow", func() error { _, err := w.LogIn(w.ctx, control.LoginProof{Issuer: "work", IDToken: used}); return err })
		late, slow := w.idToken("eva", map[string]any{"exp": w.Now().Add(time.Hour).Unix()}), w.begin()
		time.Sleep(11 * time.Minute)
		nonce := w.begin()
		for what, row := range map[string]struct {
			in   control.LoginProof
			code fairlead.Code
			why  string
		}{
			"a token that was used":                          {control.LoginProof{IDToken: used}, fairlead.CodeLoginRefused, "expired"},
			"a token of another login":                       {control.LoginProof{IDToken: w.idToken("eva", map[string]any{"nonce": nonce}), Nonce: w.begin()}, fairlead.CodeLoginRefused, "nonce"},
			"a token with a nonce, presented without it":     {control.LoginProof{IDToken: w.idToken("eva", map[string]any{"nonce": nonce})}, fairlead.CodeLoginRefused, "nonce"},
			"a token without the nonce":                      {control.LoginProof{IDToken: w.idToken("eva", nil), Nonce: nonce}, fairlead.CodeLoginRefused, "nonce"},
			"a nonce that the control plane did not make":    {control.LoginProof{IDToken: w.idToken("eva", map[string]any{"nonce": "mine"}), Nonce: "mine"}, fairlead.CodeLoginRefused, "nonce"},
			"a nonce of another purpose":                     {control.LoginProof{IDToken: w.idToken("eva", map[string]any{"nonce": w.NewChallenge()}), Nonce: w.NewChallenge()}, fairlead.CodeLoginRefused, "nonce"},
			"a nonce of an hour ago":                         {control.LoginProof{IDToken: w.idToken("eva", map[string]any{"nonce": slow}), Nonce: slow}, fairlead.CodeLoginRefused, "nonce"},
			"a token without a nonce, of eleven minutes ago": {control.LoginProof{IDToken: late}, fairlead.CodeLoginRefused, "expired"},
			"another person with eva's email":                {control.LoginProof{IDToken: w.idToken("mallory", map[string]any{"email": "eva@example.com"})}, fairlead.CodeLoginRefused, "other-subject"},
			"a person who was not invited":                   {control.LoginProof{IDToken: w.idToken("mallory", nil)}, fairlead.CodeNotInvited, ""},
			"an invited email that is not verified":          {control.LoginProof{IDToken: w.idToken("mallory", map[string]any{"email": "eva@example.com", "email_verified": false})}, fairlead.CodeNotInvited, ""},
			"another org":                                    {control.LoginProof{IDToken: w.idToken("eva", nil), Org: "other"}, fairlead.CodeNotInvited, ""},
			"an issuer that is not set":                      {control.LoginProof{Issuer: "home", IDToken: w.idToken("eva", nil)}, fairlead.CodeIssuerNotFound, ""},
			"no ID token":                                    {control.LoginProof{IDToken: "x"}, fairlead.CodeLoginRefused, "malformed"},
		} {
			if row.in.Issuer == "" {
				row.in.Issuer = "work"
			}
			_, err := w.LogIn(w.ctx, row.in)
			expectCode(t, what, err, row.code)
			if got := reasonOf(err); got != row.why {
				t.Errorf("%s: the reason is %q, want %q", what, got, row.why)
			}
		}
		// A person keeps the user when the email changes at the issuer.
		w.must("log in with a new email", func() error {
			_, err := w.LogIn(w.ctx, control.LoginProof{Issuer: "work", IDToken: w.idToken("eva", map[string]any{"email": "eva.married@example.com"})})
			return err
		})
		again := w.idToken("eva", nil)
		w.must("log in", func() error { _, err := w.LogIn(w.ctx, control.LoginProof{Issuer: "work", IDToken: again}); return err })
		_, err := w.LogIn(w.ctx, control.LoginProof{Issuer: "work", IDToken: again})
		expectCode(t, "the same token twice", err, fairlead.CodeLoginRefused)
	})
}

func reasonOf(err error) string {
	if e, ok := err.(*fairlead.Error); ok {
		return e.Details["reason"]
	}
	return ""
}

// A person whom two orgs have invited names one. What the person is in one org is nothing in the other.
func TestAPersonOfTwoOrgsNamesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPeople(newPlane(t, enginetest.Memory()))
		other := access.Principal{Kind: access.Token, ID: "tok_o", Org: "other", Bindings: access.OwnerOf()}
		w.invite(w.operator, control.NewUser{Email: "eva@example.com", Bindings: access.OwnerOf()})
		w.invite(other, control.NewUser{Email: "eva@example.com", Bindings: []access.Binding{{Role: access.Viewer}}})
		_, err := w.logIn("eva", control.LoginProof{})
		expectCode(t, "no org is named", err, fairlead.CodeOrgAmbiguous)
		for name, may := range map[fairlead.OrgID]bool{org: true, "other": false} {
			l, err := w.logIn("eva", control.LoginProof{Org: name})
			if err != nil || l.Org != name {
				t.Fatalf("the login to %s is one to %s: %v", name, l.Org, err)
			}
			if who := w.user(l.Token); who.Org != name || who.MayEverywhere(access.Deploy) != may {
				t.Errorf("in %s eva is %+v", name, who)
			}
		}
		if us, _, err := w.Users(w.ctx, "other", fairlead.PageQuery{}); err != nil || len(us) != 1 || us[0].Bindings[0].Role != access.Viewer {
			t.Errorf("the users of the other org are %+v, %v", us, err)
		}
		expectCode(t, "an owner deletes a user of another org", w.DeleteUser(w.ctx, other, w.mustUser("eva@example.com").ID), fairlead.CodeUserNotFound)
	})
}

func (w *people) mustUser(email string) (u control.Person) {
	w.must("get "+email, func() (err error) { u, err = w.User(w.ctx, w.operator, email); return err })
	return u
}

// No caller invites a person with more than it has itself, and none changes a person who has more.
func TestInvitationsGiveNoMoreThanTheGiverHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPeople(newPlane(t, enginetest.Memory()))
		for _, g := range []string{"eu", "us"} {
			w.must("make a group", func() error { _, err := w.CreateGroup(w.ctx, org, g, "", g); return err })
		}
		w.invite(w.operator, control.NewUser{Email: "boss@example.com", Operator: true, Bindings: access.OwnerOf()})
		w.invite(w.operator, control.NewUser{Email: "lead@example.com", Bindings: []access.Binding{{Role: access.Owner, Group: "eu"}}})
		lead := w.user(w.mustLogIn("lead").Token)
		yes := true
		for what, row := range map[string]struct {
			err  error
			code fairlead.Code
		}{
			"an owner of the org":       {errOf(w.InviteUser(w.ctx, lead, control.NewUser{Email: "x@example.com", Bindings: access.OwnerOf()}, "")), fairlead.CodeRoleMissing},
			"a viewer of another group": {errOf(w.InviteUser(w.ctx, lead, control.NewUser{Email: "x@example.com", Bindings: []access.Binding{{Role: access.Viewer, Group: "us"}}}, "")), fairlead.CodeRoleMissing},
			"an operator":               {errOf(w.InviteUser(w.ctx, lead, control.NewUser{Email: "x@example.com", Operator: true, Bindings: viewers("eu")}, "")), fairlead.CodeOperatorOnly},
			"more for itself":           {errOf(w.UpdateUser(w.ctx, lead, "lead@example.com", control.UserChange{Bindings: access.OwnerOf()})), fairlead.CodeRoleMissing},
			"operator of itself":        {errOf(w.UpdateUser(w.ctx, lead, "lead@example.com", control.UserChange{Operator: &yes})), fairlead.CodeOperatorOnly},
			"a user above":              {w.DeleteUser(w.ctx, lead, "boss@example.com"), fairlead.CodeUserNotFound},
			"the logins of one above":   {w.EndLogins(w.ctx, lead, "boss@example.com"), fairlead.CodeUserNotFound},
			"no email":                  {errOf(w.InviteUser(w.ctx, lead, control.NewUser{Email: "x", Bindings: viewers("eu")}, "")), fairlead.CodeInvalidEmail},
			"an email that breaks keys": {errOf(w.InviteUser(w.ctx, lead, control.NewUser{Email: "a#b@example.com", Bindings: viewers("eu")}, "")), fairlead.CodeInvalidEmail},
			"an issuer":                 {errOf(w.SetLoginIssuer(w.ctx, control.UserOf(lead), "mine", control.IssuerRule{Issuer: "https://mine.example", ID: "x"})), fairlead.CodeOperatorOnly},
			"the end of an issuer":      {w.DeleteLoginIssuer(w.ctx, control.UserOf(lead), "work"), fairlead.CodeOperatorOnly},
		} {
			expectCode(t, what, row.err, row.code)
		}
		w.must("invite", func() error {
			_, err := w.InviteUser(w.ctx, lead, control.NewUser{Email: "y@example.com", Bindings: viewers("eu")}, "")
			return err
		})
	})
}

// A person logs in, changes and leaves, whatever the store does.
func TestPeopleUnderEveryFault(t *testing.T) {
	everyFault{least: 5}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		w := newPeople(newPlane(t, e))
		*armed = true
		w.invite(w.operator, control.NewUser{Email: "eva@example.com", Bindings: access.OwnerOf()})
		eva := w.mustLogIn("eva")
		who := w.user(eva.Token)
		w.must("log out", func() error { return w.EndLogin(w.ctx, eva.Token) })
		w.must("ask after the end", func() error {
			if _, err := w.AuthenticateUser(w.ctx, eva.Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
				return err
			}
			return nil
		})
		again := w.mustLogIn("eva")
		w.must("delete", func() error { return ignoreNotFound(w.DeleteUser(w.ctx, w.operator, who.ID)) })
		w.must("ask after the deletion", func() error {
			_, err := w.AuthenticateUser(w.ctx, again.Token)
			if err == nil {
				t.Error("the login of a deleted user is accepted")
			}
			if fairlead.KindOf(err) == fairlead.KindUnauthenticated {
				return nil
			}
			return err
		})
	})
}

// The token of the first start is for the first login of an operator who owns the org, or for a week. The next start does not
// move its end.
func TestFirstTokenEndsWithTheFirstLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPeople(newPlane(t, enginetest.Memory()))
		first, second := identity.NewToken(identity.PrefixAPI), identity.NewToken(identity.PrefixAPI)
		w.must("register", func() error { return w.RegisterFirst(w.ctx, org, "first", first) })
		if got := w.tokens()["first"]; !got.First || !got.Operator || got.Expires.Sub(w.Instant()) != control.FirstTokenLife {
			t.Errorf("the first token is %+v", got)
		}
		time.Sleep(time.Hour)
		w.must("register at the next start", func() error { return w.RegisterFirst(w.ctx, org, "first", first) })
		if got := w.tokens()["first"]; got.Expires.Sub(w.Instant()) != control.FirstTokenLife-time.Hour {
			t.Errorf("the next start moves the end to %s", got.Expires)
		}
		by := w.user(first)
		w.invite(by, control.NewUser{Email: "adam@example.com", Bindings: access.OwnerOf()})
		w.invite(by, control.NewUser{Email: "carol@example.com", Operator: true, Bindings: []access.Binding{{Role: access.Viewer}}})
		w.invite(by, control.NewUser{Email: "eva@example.com", Operator: true, Bindings: access.OwnerOf()})
		w.mustLogIn("adam")
		w.mustLogIn("carol")
		w.user(first) // neither can do everything
		w.mustLogIn("eva")
		if _, err := w.AuthenticateUser(w.ctx, first); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("after the login of an owner who is an operator the first token is accepted: %v", err)
		}
		if full, err := w.HasFullAccess(w.ctx, org); !full || err != nil {
			t.Errorf("nothing has full access: %v", err)
		}
		w.user(w.mustLogIn("eva").Token)
		expectCode(t, "the next start registers it again", w.RegisterFirst(w.ctx, org, "first", first), fairlead.CodeUnauthenticated)

		w.must("register", func() error { return w.RegisterFirst(w.ctx, "new", "first", second) })
		time.Sleep(control.FirstTokenLife)
		if _, err := w.AuthenticateUser(w.ctx, second); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("after a week the first token is accepted: %v", err)
		}
		if full, err := w.HasFullAccess(w.ctx, "new"); full || err != nil {
			t.Errorf("an expired token has full access: %v", err)
		}
	})
}
