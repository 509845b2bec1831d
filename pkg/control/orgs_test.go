package control_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// An operator makes a second org. Both orgs use the same names for everything, and neither finds, changes or stops what the other
// has.
func TestTwoOrgsWithTheSameNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		w := newPeople(p)
		made, err := w.CreateOrg(w.ctx, w.operator, "team-two", "key")
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.CreateOrg(w.ctx, w.operator, "team-two", "key")
		if err != nil || again.First.Secret != made.First.Secret || again.Name != made.Name {
			t.Errorf("the repeated request returns %+v, %v", again, err)
		}
		owner := w.user(made.First.Secret)
		if owner.Org != "team-two" || owner.Operator || !owner.MayEverywhere(access.ManagePeople) || made.First.Expires.Sub(w.Instant()) != control.FirstTokenLife {
			t.Errorf("the first owner is %+v", owner)
		}
		for _, o := range []fairlead.OrgID{org, "team-two"} {
			w.must("make a group", func() error { _, err := w.CreateGroup(w.ctx, o, "eu", "", "g"+string(o)); return err })
			w.must("make a runner", func() error {
				_, err := w.CreateRunner(w.ctx, o, control.NewRunner{Name: "east", Storage: "http"}, "r"+string(o))
				return err
			})
			w.must("make a hook", func() error {
				_, err := w.CreateWebhook(w.ctx, o, control.NewWebhook{Name: "hook", URL: "https://203.0.113.9/" + string(o), Events: []string{"fairlead.job.canceled"}}, "h"+string(o))
				return err
			})
			w.invite(access.Principal{Kind: access.Token, ID: "tok", Org: o, Bindings: access.OwnerOf()}, control.NewUser{Email: "eva@example.com", Bindings: access.OwnerOf()})
			w.must("make a token", func() error {
				_, err := w.CreateToken(w.ctx, access.Principal{Kind: access.Token, ID: "tok", Org: o, Bindings: access.OwnerOf()}, control.NewToken{Name: "ci"}, "t"+string(o))
				return err
			})
		}
		east := w.Store
		a, err1 := east.Runner(w.ctx, org, "east")
		b, err2 := east.Runner(w.ctx, "team-two", "east")
		if err1 != nil || err2 != nil || a.V.ID == b.V.ID {
			t.Fatalf("the runners are %s and %s: %v, %v", a.V.ID, b.V.ID, err1, err2)
		}
		w.must("delete in one org", func() error { return w.DeleteRunner(w.ctx, control.UserOf(owner), "east") })
		if _, err := east.Runner(w.ctx, org, "east"); err != nil {
			t.Errorf("the runner of the other org is gone, too: %v", err)
		}
		w.must("revoke in one org", func() error { return w.RevokeToken(w.ctx, owner, "ci") })
		if got := w.tokens()["ci"]; got.ID == "" {
			t.Error("the token of the other org is gone, too")
		}

		// The org is deleted when it is empty. Its users and tokens end, and its name stays in use.
		eva, err := w.logIn("eva", control.LoginProof{Org: "team-two"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.AuthenticateUser(w.ctx, made.First.Secret); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("after the login of an owner the first token of the org is accepted: %v", err)
		}
		expectCode(t, "an org with objects is deleted", w.DeleteOrg(w.ctx, w.operator, "team-two"), fairlead.CodeOrgNotEmpty)
		w.must("delete the hook", func() error { return w.DeleteWebhook(w.ctx, "team-two", "hook") })
		w.must("delete the group", func() error { return w.DeleteGroup(w.ctx, "team-two", string(placement.Path("eu"))) })
		theirs := access.Principal{Kind: access.Token, ID: "tok_o", Org: "team-two", Bindings: access.OwnerOf()}
		w.must("create a service account", func() error {
			return errOf(w.CreateServiceAccount(w.ctx, theirs, control.NewServiceAccount{Name: "ci", AccountSettings: control.AccountSettings{Rule: w.rule(pipeline), Bindings: access.OwnerOf()}}, "ci"))
		})
		program, err := w.LogInServiceAccount(w.ctx, control.AccountProof{Org: "team-two", Name: "ci", Token: w.token(pipeline)}, "")
		if err != nil {
			t.Fatal(err)
		}
		w.user(program.Token)
		w.must("delete the org", func() error { return w.DeleteOrg(w.ctx, w.operator, "team-two") })
		w.refusedNow("a service account of the deleted org", program.Token)
		if _, err := w.AuthenticateUser(w.ctx, eva.Token); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
			t.Errorf("a user of the deleted org is accepted: %v", err)
		}
		w.mustLogIn("eva") // the other org's user is the only one left
		names, err := w.Store.OrgNames(w.ctx)
		if err != nil || !slices.Equal(names, []fairlead.OrgID{org}) {
			t.Errorf("the orgs are %v, %v", names, err)
		}
		for what, row := range map[string]struct {
			err  error
			code fairlead.Code
		}{
			"the name of a deleted org":     {errOf(w.CreateOrg(w.ctx, w.operator, "team-two", "")), fairlead.CodeOrgExists},
			"the name of the first org":     {errOf(w.CreateOrg(w.ctx, w.operator, string(org), "")), fairlead.CodeOrgExists},
			"a name that is none":           {errOf(w.CreateOrg(w.ctx, w.operator, "Team#2", "")), fairlead.CodeInvalidName},
			"an owner who is no operator":   {errOf(w.CreateOrg(w.ctx, owner, "third", "")), fairlead.CodeOperatorOnly},
			"a deletion by one":             {w.DeleteOrg(w.ctx, owner, "team-two"), fairlead.CodeOperatorOnly},
			"the deletion of a deleted org": {w.DeleteOrg(w.ctx, w.operator, "team-two"), fairlead.CodeOrgNotFound},
			"the deletion of the first org": {w.DeleteOrg(w.ctx, w.operator, string(org)), fairlead.CodeOrgNotEmpty},
		} {
			expectCode(t, what, row.err, row.code)
		}
	})
}

const oneComponent = "fairlead: v1\nname: shop\ncomponents:\n  network: {type: terraform, source: ./network}\n"

// A restore works on the installs of each org.
func TestRestoreWorksOnEachOrg(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPeople(newPlane(t, enginetest.Memory()))
		w.must("create", func() error { _, err := w.CreateOrg(w.ctx, w.operator, "team-two", "k"); return err })
		for _, o := range []fairlead.OrgID{org, "team-two"} {
			w.must("publish", func() error {
				_, err := w.Publish(w.ctx, o, "shop", control.NewVersion{Config: w.canonical(oneComponent), Artifacts: map[string]string{"network": "sha256:" + strings.Repeat("1", 64)}})
				return err
			})
			w.must("make a runner", func() error {
				_, err := w.CreateRunner(w.ctx, o, control.NewRunner{Name: "east", Storage: "http"}, "r"+string(o))
				return err
			})
			w.must("make an install", func() error {
				_, err := w.CreateInstall(w.ctx, o, control.NewInstall{Name: "acme", App: "shop", Runner: "east"}, "i"+string(o))
				return err
			})
		}
		restored, err := w.AfterRestore(w.ctx, "")
		if err != nil || restored.Installs != 2 {
			t.Errorf("the restore worked on %d installs, want those of both orgs: %v", restored.Installs, err)
		}
	})
}

// An org is made once, whatever the store does.
func TestOrgsUnderEveryFault(t *testing.T) {
	everyFault{least: 3}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		w := newPeople(newPlane(t, e))
		*armed = true
		var made control.Org
		w.must("create", func() (err error) { made, err = w.CreateOrg(w.ctx, w.operator, "team-two", "k"); return err })
		w.user(made.First.Secret)
		w.must("delete", func() error { return ignoreNotFound(w.DeleteOrg(w.ctx, w.operator, "team-two")) })
		w.must("ask", func() error {
			if _, err := w.AuthenticateUser(w.ctx, made.First.Secret); fairlead.KindOf(err) != fairlead.KindUnauthenticated {
				return err
			}
			return nil
		})
	})
}
