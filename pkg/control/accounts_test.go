package control_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestProgramsLogInInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { programStory(newPlatform(newPlane(t, enginetest.Memory())), time.Sleep) })
}

func TestProgramsLogInOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	programStory(newPlatform(newPlaneAt(t, sqliteTable(t), c.now, c.sleep)), c.sleep)
}

func TestProgramsLogInOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	programStory(newPlatform(newPlaneAt(t, dynamoTable(t, "programs"), c.now, c.sleep)), c.sleep)
}

const pipeline = "repo:acme/shop:ref:refs/heads/main"

// ci creates a service account with roles, for tokens of the pipeline.
func (p *platform) ci(name string, roles ...access.Binding) control.ServiceAccount {
	p.t.Helper()
	var out control.ServiceAccount
	p.must("create "+name, func() (err error) {
		out, err = p.CreateServiceAccount(p.ctx, owner, control.NewServiceAccount{Name: name, AccountSettings: control.AccountSettings{Rule: p.rule(pipeline), Bindings: roles}}, "create "+name)
		return err
	})
	return out
}

func (p *platform) program(account, token, key string) (control.AccountLogin, error) {
	return p.LogInServiceAccount(p.ctx, control.AccountProof{Name: account, Token: token}, key)
}

// refusedNow reports that the token is not accepted any more.
func (p *platform) refusedNow(what, token string) {
	p.t.Helper()
	if _, err := p.AuthenticateUser(p.ctx, token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		p.t.Errorf("%s: %v", what, err)
	}
}

// programStory lets a CI job log in, act, lose rights, and log in no more.
func programStory(p *platform, sleep func(time.Duration)) {
	t := p.t
	t.Helper()
	p.group("eu")
	ci := p.ci("ci", access.Binding{Role: access.Deployer, Group: "eu"})
	token := p.token(pipeline)
	var l control.AccountLogin
	p.must("log in", func() (err error) { l, err = p.program("ci", token, "first"); return err })
	if l.Expires.Sub(p.Instant()) != control.AccountLoginLife || !strings.HasPrefix(l.Token, identity.PrefixAccount+"_") {
		t.Errorf("the login is %+v", l)
	}
	who := p.user(l.Token)
	if who.Kind != access.ServiceAccount || who.ID != ci.ID || who.Name != "ci" || who.Operator || !who.May(access.Deploy, access.InstallObject(org, "eu", "shop")) || who.May(access.View, access.OrgObject(org)) {
		t.Errorf("the principal is %+v", who)
	}
	if got := control.UserOf(who).Token; got != (fairlead.Actor{Token: ci.ID, Name: "ci", Kind: "service-account"}) {
		t.Errorf("records name %+v", got)
	}

	// The same request may be repeated, because its answer may be lost. Another one may not use the token, also one of an agent.
	again, err := p.program("ci", token, "first")
	if err != nil || again.Token != l.Token || !again.Expires.Equal(l.Expires) {
		t.Errorf("the repeated request got another login: %v", err)
	}
	for what, key := range map[string]string{"another request": "second", "a request without a key": ""} {
		_, err := p.program("ci", token, key)
		if expectCode(t, what+" with the same token", err, "login-refused"); detail(err) != "replayed" {
			t.Errorf("%s: the reason is %s", what, detail(err))
		}
	}
	p.must("assign it", func() error { return p.assigns("local", "ci") })
	if _, _, err := p.open(p.runnerID("local"), token); detail(err) != "replayed" {
		t.Errorf("an agent with the token of a login: %v", err)
	}

	// A change of the roles holds at once. A new rule ends the login, and so does the deletion of the account.
	change := func(rule control.TokenRule, roles ...access.Binding) {
		p.must("update", func() error {
			return errOf(p.UpdateServiceAccount(p.ctx, owner, "ci", control.AccountSettings{Rule: rule, Bindings: roles}))
		})
	}
	change(p.rule(pipeline), access.Binding{Role: access.Viewer})
	if got := p.user(l.Token); got.May(access.Deploy, access.InstallObject(org, "eu", "shop")) || !got.May(access.View, access.OrgObject(org)) {
		t.Errorf("after the change it is %s", access.Describe(got.Bindings))
	}
	change(p.rule("repo:acme/shop:ref:refs/heads/*"), access.Binding{Role: access.Viewer})
	p.refusedNow("a login of the old rule", l.Token)
	sleep(time.Second)
	p.must("log in under the new rule", func() (err error) { l, err = p.program("ci", p.token(pipeline), "third"); return err })
	p.user(l.Token)
	p.must("take it from the runner", func() error { return p.removes("local", "ci") })
	p.must("delete", func() error { return ignoreNotFound(p.DeleteServiceAccount(p.ctx, owner, "ci")) })
	p.refusedNow("a login of a deleted account", l.Token)
	p.must("create it again", func() error {
		return errOf(p.CreateServiceAccount(p.ctx, owner, control.NewServiceAccount{Name: "ci", AccountSettings: control.AccountSettings{Rule: p.rule(pipeline), Bindings: access.OwnerOf()}}, "repeated"))
	})
	p.refusedNow("a login of the earlier account of this name", l.Token)

	// A login ends with time, and when the program logs out.
	sleep(time.Second)
	p.must("log in", func() (err error) { l, err = p.program("ci", p.token(pipeline), ""); return err })
	p.user(l.Token)
	p.must("log out", func() error { return p.EndLogin(p.ctx, l.Token) })
	p.refusedNow("a login that was ended", l.Token)
	sleep(time.Second)
	p.must("log in", func() (err error) { l, err = p.program("ci", p.token(pipeline), ""); return err })
	sleep(control.AccountLoginLife)
	p.refusedNow("a login of an hour ago", l.Token)
}

func TestProgramsThatProveTooLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.ci("ci", access.Binding{Role: access.Deployer})
		p.ci("runners-only")
		old := p.token(pipeline)
		p.sleep(2 * time.Hour)
		for what, row := range map[string]struct {
			account, token string
			org            fairlead.OrgID
			code           fairlead.Code
			why            string
		}{
			"a token of another repository":       {"ci", p.token("repo:mallory/shop:ref:refs/heads/main"), "", "login-refused", "claims"},
			"a token of another branch":           {"ci", p.token("repo:acme/shop:ref:refs/heads/evil"), "", "login-refused", "claims"},
			"a token for another audience":        {"ci", p.issuer.Token("https://other.example", map[string]any{"sub": pipeline}), "", "login-refused", "audience"},
			"a token that is bound to a session":  {"ci", p.issuer.Token(ours+"#"+bound, map[string]any{"sub": pipeline}), "", "login-refused", "audience"},
			"a token of two hours ago":            {"ci", old, "", "login-refused", "expired"},
			"no token":                            {"ci", "x", "", "login-refused", "malformed"},
			"an account that does not exist":      {"none", p.token(pipeline), "", "login-refused", "issuer"},
			"an account of another org":           {"ci", p.token(pipeline), "other", "login-refused", "issuer"},
			"an account without roles, by its CI": {"runners-only", p.token(pipeline), "", "role-missing", ""},
		} {
			_, err := p.LogInServiceAccount(p.ctx, control.AccountProof{Org: row.org, Name: row.account, Token: row.token}, "")
			expectCode(t, what, err, row.code)
			if row.why != "" && detail(err) != row.why {
				t.Errorf("%s: the reason is %q, want %q", what, detail(err), row.why)
			}
		}
		p.OIDC = nil
		_, err := p.program("ci", p.token(pipeline), "")
		expectCode(t, "a control plane that verifies no tokens", err, "login-refused")
	})
}

// An account gives its owner no more than the owner has: who changes the rule decides who acts as the account.
func TestNoAccountGivesMoreThanItsOwnerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		p.group("eu")
		p.ci("deployer", access.Binding{Role: access.Deployer})
		local := access.Principal{Kind: access.Token, ID: "tok_2", Name: "eu", Org: org, Bindings: []access.Binding{{Role: access.Owner, Group: "eu"}}}
		settings := func(roles ...access.Binding) control.AccountSettings {
			return control.AccountSettings{Rule: p.rule(pipeline), Bindings: roles}
		}
		create := func(by access.Principal, name, group string, in control.AccountSettings) error {
			return errOf(p.CreateServiceAccount(p.ctx, by, control.NewServiceAccount{Name: name, Group: group, AccountSettings: in}, ""))
		}
		boundRule := settings(access.Binding{Role: access.Viewer})
		boundRule.Rule.Bound = true
		for what, row := range map[string]struct {
			err  error
			code fairlead.Code
		}{
			"a role that the creator lacks":                {create(local, "a", "eu", settings(access.Binding{Role: access.Viewer})), "role-missing"},
			"a role at an install":                         {create(owner, "a", "", settings(access.Binding{Role: access.Viewer, Install: "ins_1"})), "invalid-role"},
			"roles and bound tokens":                       {create(owner, "a", "", boundRule), "invalid-oidc-trust"},
			"a group that does not exist":                  {create(owner, "a", "us", settings()), "group-not-found"},
			"an invalid name":                              {create(owner, "No Name", "", settings()), "invalid-name"},
			"a name in use":                                {create(owner, "deployer", "", settings()), "service-account-exists"},
			"a rule that each token matches":               {create(owner, "a", "", control.AccountSettings{Rule: p.rule("*")}), "invalid-oidc-trust"},
			"a role in a misspelled group":                 {create(owner, "a", "", settings(access.Binding{Role: access.Viewer, Group: "uk"})), "group-not-found"},
			"another rule for an account that can do more": {errOf(p.UpdateServiceAccount(p.ctx, local, "deployer", settings())), "role-missing"},
			"the deletion of an account that can do more":  {p.DeleteServiceAccount(p.ctx, local, "deployer"), "role-missing"},
			"an update of an unknown account":              {errOf(p.UpdateServiceAccount(p.ctx, owner, "none", settings())), "service-account-not-found"},
			"a deletion of an unknown account":             {p.DeleteServiceAccount(p.ctx, owner, "none"), "service-account-not-found"},
		} {
			expectCode(t, what, row.err, row.code)
		}
		if err := create(local, "mine", "eu", settings(access.Binding{Role: access.Deployer, Group: "eu"})); err != nil {
			t.Errorf("an owner of a group creates an account there: %v", err)
		}
		expectCode(t, "the deletion of the account's group", p.DeleteGroup(p.ctx, org, "eu"), "group-not-empty")
	})
}

// An account of a group is for the runners of this group and of those below it.
func TestServiceAccountsFitTheirRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(newPlane(t, enginetest.Memory()))
		for _, g := range []string{"eu", "eu/prod", "eu/prod/a", "us"} {
			p.group(g)
		}
		for name, group := range map[string]string{"of-the-org": "", "of-eu": "eu", "of-prod": "eu/prod", "of-us": "us"} {
			p.must("create", func() error {
				return errOf(p.CreateServiceAccount(p.ctx, owner, control.NewServiceAccount{Name: name, Group: group, AccountSettings: control.AccountSettings{Rule: p.rule(theRunner)}}, name))
			})
		}
		p.runner("child", fileOf("eu/prod/a", "http"))
		p.runner("above", fileOf("eu", "http"))
		operator := control.User{Org: org, Operator: true}
		if _, err := p.CreateSharedRunner(p.ctx, operator, control.NewRunner{Name: "shared", File: fileOf("", "http")}, ""); err != nil {
			t.Fatal(err)
		}
		for what, row := range map[string]struct {
			err  error
			code fairlead.Code
		}{
			"an account of the org":                {p.assigns("child", "of-the-org"), ""},
			"an account of a group above":          {p.assigns("child", "of-eu"), ""},
			"an account of the parent group":       {p.assigns("child", "of-prod"), ""},
			"an account of a sibling":              {p.assigns("child", "of-us"), "service-account-unfit"},
			"an account of a group below":          {p.assigns("above", "of-prod"), "service-account-unfit"},
			"a shared runner, by its operator":     {errOf(p.AssignServiceAccount(p.ctx, operator, "shared", "of-the-org")), "service-account-unfit"},
			"a shared runner, by a tenant":         {p.assigns("shared", "of-the-org"), "operator-only"},
			"an unknown account":                   {p.assigns("child", "none"), "service-account-not-found"},
			"an unknown runner":                    {p.assigns("none", "of-eu"), "runner-not-found"},
			"another tenant":                       {errOf(p.AssignServiceAccount(p.ctx, control.User{Org: "other"}, "child", "of-eu")), "runner-not-found"},
			"an account that the runner lacks":     {p.removes("child", "of-us"), "service-account-not-found"},
			"the end of a shared runner's session": {p.EndSession(p.ctx, me, "shared", "ses_x"), "operator-only"},
		} {
			expectCode(t, what, row.err, row.code)
		}
		_, bearer := p.opened("child", p.token(theRunner))
		p.must("send a heartbeat", func() error { return p.beat(bearer) })
		err := errOf(p.UpdateRunner(p.ctx, me, "child", fileOf("us", "http")))
		expectCode(t, "a move of the runner to a group that its accounts are not of", err, "service-account-unfit")
		shown, err := p.ServiceAccount(p.ctx, org, "of-eu")
		if err != nil || !slices.Equal(shown.Runners, []string{"child"}) {
			t.Errorf("the account shows the runners %v, %v", shown.Runners, err)
		}
	})
}

func TestRulesOfRunnersMoveOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	e := sqliteTable(t)
	moveStory(newPlatform(newPlaneAt(t, e, c.now, c.sleep)), e)
}

func TestRulesOfRunnersMoveOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	e := dynamoTable(t, "moverules")
	moveStory(newPlatform(newPlaneAt(t, e, c.now, c.sleep)), e)
}

// raw writes an item as the release before service accounts wrote it.
func (p *platform) raw(e engine.Engine, partition, sort, body string) {
	p.t.Helper()
	if err := e.Commit(p.ctx, p.IDs("com"), engine.Write{Op: engine.Put, If: engine.Any(), Item: engine.Item{Key: engine.Key{Partition: partition, Sort: sort}, Body: []byte(body)}}); err != nil {
		p.t.Fatal(err)
	}
}

// oldRules gives the runner rules of its own, as the release before service accounts wrote them.
func (p *platform) oldRules(e engine.Engine, partition, runner string, names ...string) {
	p.t.Helper()
	id := p.runnerID(runner)
	at, err := e.Get(p.ctx, engine.Key{Partition: partition, Sort: runner})
	if err != nil {
		p.t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(at.Body, &fields); err != nil {
		p.t.Fatal(err)
	}
	fields["trusts"] = names
	body, err := json.Marshal(fields)
	if err != nil {
		p.t.Fatal(err)
	}
	p.raw(e, partition, runner, `{"schema":"1.0",`+strings.TrimPrefix(strings.Replace(string(body), `,"schema":"1.0"`, "", 1), "{"))
	for _, name := range names {
		p.raw(e, "RUNNER#"+string(id), "TRUST#"+name, `{"schema":"1.0","created_by":{"token":"tok_9","name":"eva"},"changed_by":{"token":"tok_9","name":"eva"},"runner":"`+string(id)+`","name":"`+name+`","rev":"tru_`+name+
			`","rule":{"issuer":"`+p.issuer.URL+`","audience":"`+ours+`","claims":{"sub":"`+theRunner+`"}},"created":"2026-01-02T03:04:05Z","changed":"2026-01-02T03:04:05Z"}`)
	}
}

// moveStory makes service accounts of the rules that an earlier release kept with runners.
func moveStory(p *platform, e engine.Engine) {
	t := p.t
	t.Helper()
	p.group("eu")
	p.runner("acme", fileOf("eu", "http"))
	long := strings.Repeat("a", 60)
	p.runner(long, fileOf("", "http"))
	operator := control.User{Org: org, Operator: true}
	p.must("make a shared runner", func() error {
		return errOf(p.CreateSharedRunner(p.ctx, operator, control.NewRunner{Name: "shared", File: fileOf("", "http")}, "shared"))
	})
	p.must("create an account with the name", func() error { return p.account("acme-cluster", "another", "taken") })
	own := "ORG#" + string(org) + "#RUNNER"
	p.oldRules(e, own, "acme", "cluster", "other")
	p.oldRules(e, own, long, "cluster", "clusters")
	p.oldRules(e, "SHARED#RUNNER", "shared", "ours")

	// Before the move, the rules open sessions as before, and a session of the earlier release goes on.
	p.raw(e, "RUNNER#"+string(p.runnerID("acme")), "SESSION#ses_old", `{"schema":"1.0","id":"ses_old","org":"`+string(org)+`","runner":"`+string(p.runnerID("acme"))+`","agent":"k","instance":"pod","version":"v1","capacity":1,"expires":"`+
		p.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`","last_seen":"`+p.Now().UTC().Format(time.RFC3339)+`","trust":"cluster","trust_rev":"tru_cluster","subject":"x"}`)
	old := p.Minter.Mint(identity.Claims{Purpose: identity.Session, Subject: string(p.runnerID("acme")) + "/ses_old", Expires: p.Now().Add(time.Hour)})
	p.must("go on with the old session", func() error { return errOf(p.AuthenticateSession(p.ctx, old)) })
	token := p.token(theRunner)
	if s, _ := p.opened("acme", token); s.Trust != "cluster" {
		t.Errorf("before the move the session is %+v", s)
	}

	moved, err := p.MoveTrusts(p.ctx)
	if err != nil || moved != 4 {
		t.Fatalf("%d rules were moved, %v", moved, err)
	}
	accounts, _, err := p.ServiceAccounts(p.ctx, org, fairlead.PageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range accounts {
		names = append(names, a.Name)
		if a.Name == "acme-cluster-2" && (a.Group != "eu" || a.CreatedBy.Name != "eva" || a.Rule.Claims["sub"] != theRunner || !a.Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))) {
			t.Errorf("the account is %+v", a)
		}
	}
	if want := []string{long[:59] + "-2", long + "-cl", "acme-cluster", "acme-cluster-2", "acme-other"}; !slices.Equal(names, want) {
		t.Errorf("the accounts are %q, want %q", names, want)
	}
	r, err := p.Control.Runner(p.ctx, org, "acme")
	if err != nil || !slices.Equal(r.ServiceAccounts, []string{"acme-cluster-2", "acme-other"}) || len(r.Trusts) > 0 {
		t.Errorf("the runner has %v and %v, %v", r.ServiceAccounts, r.Trusts, err)
	}

	// The agent's session is over, and it opens another with the same token and key.
	if err := errOf(p.AuthenticateSession(p.ctx, old)); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		t.Errorf("the old session after the move: %v", err)
	}
	if s, _ := p.opened("acme", token); s.ServiceAccount != "acme-cluster-2" || s.Trust != "" {
		t.Errorf("after the move the session is %+v", s)
	}
	expectCode(t, "the deletion of a moved account", p.DeleteServiceAccount(p.ctx, owner, "acme-other"), "service-account-in-use")

	// A shared runner keeps its rule until the operator takes it away.
	if s, _ := p.opened("shared", p.token(theRunner)); s.Trust != "ours" {
		t.Errorf("the session of the shared runner is %+v", s)
	}
	p.must("take it away", func() error { return p.UnassignServiceAccount(p.ctx, operator, "shared", "ours") })
	_, _, err = p.open(p.runnerID("shared"), p.token(theRunner))
	expectCode(t, "a session of the shared runner", err, "session-refused")

	// To repeat the move changes nothing, also if its mark is missing.
	p.raw(e, "GENERATION", "GENERATION", `{"schema":"1.0","number":0,"restored":"0001-01-01T00:00:00Z"}`)
	for range 2 {
		if moved, err := p.MoveTrusts(p.ctx); moved != 0 || err != nil {
			t.Errorf("the repeated move moved %d, %v", moved, err)
		}
	}
	if now, _, err := p.ServiceAccounts(p.ctx, org, fairlead.PageQuery{}); err != nil || len(now) != len(accounts) {
		t.Errorf("after the repeated move there are %d accounts, %v", len(now), err)
	}
}

// When one runner cannot be moved, the others are, and its rules stay valid until the next attempt.
func TestRulesMoveDespiteAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Memory()
		p := newPlatform(newPlane(t, e))
		p.Quotas = fairlead.Quotas{fairlead.QuotaServiceAccounts: 1}
		own := "ORG#" + string(org) + "#RUNNER"
		p.runner("acme", fileOf("", "http"))
		p.oldRules(e, own, "acme", "a", "b")
		p.oldRules(e, own, "local", "c")
		if moved, err := p.MoveTrusts(context.Background()); moved != 1 || fairlead.CodeOf(err) != "quota-reached" {
			t.Errorf("%d rules were moved, %v", moved, err)
		}
		p.opened("acme", p.token(theRunner))
		p.opened("local", p.token(theRunner))
		p.Quotas = fairlead.Quotas{}
		if moved, err := p.MoveTrusts(context.Background()); moved != 2 || err != nil {
			t.Errorf("the next attempt moved %d, %v", moved, err)
		}
	})
}
