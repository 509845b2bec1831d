package control_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestDeletedAppLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { deletionStory(newPlane(t, enginetest.Memory())) })
}

func TestDeletedAppLeavesNothingOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	deletionStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestDeletedAppLeavesNothingOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	deletionStory(newPlaneAt(t, dynamoTable(t, "delete"), c.now, c.sleep))
}

// deletionStory deletes an app after its last install was forgotten, and publishes another app of the same name.
func deletionStory(p *plane) {
	t := p.t
	first := p.publishAs(described("one"), "v1")
	p.publish(described("two"))
	p.must("set a variable", func() error {
		_, err := p.SetVariables(p.ctx, me, control.VariableScope{App: "shop"}, map[string]*control.Variable{"REGION": {Value: "eu"}})
		return err
	})
	p.install("acme")
	id := p.deploy("acme", control.NewDeployment{Version: "v1", Ask: deployment.AskNever}, "first")
	p.work()

	// An install prevents the deletion. Afterwards the app is as it was.
	err := p.DeleteApp(p.ctx, org, "shop")
	expectCode(t, "the deletion of an app with an install", err, "app-in-use")
	if e, ok := errors.AsType[*fairlead.Error](err); !ok || e.Details["installs"] != "acme" {
		t.Errorf("the refusal names %v", err)
	}
	p.publish(described("three"))
	p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever}, "down")
	p.work()
	p.must("forget", func() error { return p.ForgetInstall(p.ctx, org, "acme", false) })

	before := p.count(fairlead.QuotaApps)
	p.must("delete", func() error { return p.DeleteApp(p.ctx, org, "shop") })
	if after := p.count(fairlead.QuotaApps); after != before-1 {
		t.Errorf("the org has %d apps, before %d", after, before)
	}
	_, err = p.App(p.ctx, org, "shop")
	expectCode(t, "reading the app", err, "app-not-found")
	expectCode(t, "a second deletion", p.DeleteApp(p.ctx, org, "shop"), "app-not-found")
	_, err = p.Store.Version(p.ctx, first.ID)
	expectCode(t, "reading a version", err, "version-not-found")
	if named, err := p.NamedArtifacts()(p.ctx, control.Repository(org, "shop", "web"), first.Artifacts["web"]); err != nil || named {
		t.Errorf("an artifact of the app is in use: %v, %v", named, err)
	}
	if d := p.deployment(id); d.Version != first.ID || len(d.Names) > 0 {
		t.Errorf("the past deployment has version %s named %v", d.Version, d.Names)
	}

	// Another app of this name inherits nothing.
	again := p.publishAs(described("four"), "v1")
	if versions, _, err := p.Versions(p.ctx, org, "shop", fairlead.PageQuery{}); err != nil || len(versions) != 1 || versions[0].ID != again.ID {
		t.Errorf("the new app has the versions %v, %v", versions, err)
	}
	if vars, err := p.Variables(p.ctx, me, control.VariableScope{App: "shop"}); err != nil || len(vars) > 0 {
		t.Errorf("the new app has the variables %v, %v", vars, err)
	}
}

// wantNoVersions checks that the app has neither versions nor names of versions.
func (p *plane) wantNoVersions(id fairlead.AppID) {
	p.t.Helper()
	versions, err := p.Store.Versions(p.ctx, id, fairlead.PageQuery{})
	if err != nil || len(versions.Items) > 0 {
		p.t.Errorf("%d versions of the app are left, %v", len(versions.Items), err)
	}
	names, err := p.Store.NamesOfVersions(p.ctx, id, fairlead.PageQuery{})
	if err != nil || len(names.Items) > 0 {
		p.t.Errorf("%d names of versions are left, %v", len(names.Items), err)
	}
}

// count returns how many items of a quota the org has.
func (p *plane) count(q fairlead.Quota) int {
	p.t.Helper()
	c, err := p.Store.Count(p.ctx, store.Counted{Org: org, Quota: q})
	if err != nil {
		p.t.Fatal(err)
	}
	return c.V.Number
}

// brokenOff is an engine whose commits fail after the first n.
type brokenOff struct {
	engine.Engine
	n int
}

// Commit implements engine.Engine.
func (e *brokenOff) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	if e.n--; e.n < 0 {
		return errors.New("the process was killed")
	}
	return e.Engine.Commit(ctx, token, writes...)
}

// A deletion that is broken off after any of its commits can be repeated. Meanwhile the app is shown, and gets no version,
// install or variable, which the rest of the deletion would miss.
func TestBrokenOffDeletionIsRepeated(t *testing.T) {
	for done := 1; ; done++ {
		complete := false
		t.Run(fmt.Sprintf("after %d commits", done), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &brokenOff{Engine: enginetest.Memory(), n: 1 << 30}
				p := newPlane(t, e)
				for i := range 70 { // more than two commits delete
					p.publishAs(described(fmt.Sprint("content ", i)), fmt.Sprint("v", i))
				}
				app, err := p.App(p.ctx, org, "shop")
				if err != nil {
					t.Fatal(err)
				}
				e.n = done
				err = p.DeleteApp(p.ctx, org, "shop")
				e.n = 1 << 30
				if complete = err == nil; complete {
					return
				}
				if apps, _, err := p.Apps(p.ctx, org, fairlead.PageQuery{}); err != nil || len(apps) != 1 {
					t.Errorf("%d apps, %v; want the app that is being deleted", len(apps), err)
				}
				_, err = p.tryPublishAs(described("content 3"), "")
				expectCode(t, "a version", err, "app-deleting")
				_, err = p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Inputs: secretPassword()}, "")
				expectCode(t, "an install", err, "app-deleting")
				_, err = p.SetVariables(p.ctx, me, control.VariableScope{App: "shop"}, map[string]*control.Variable{"A": {Value: "b"}})
				expectCode(t, "a variable", err, "app-deleting")
				p.must("repeat the deletion", func() error { return p.DeleteApp(p.ctx, org, "shop") })
				p.wantNoVersions(app.ID)
			})
		})
		if complete {
			if done < 7 { // a mark, three for names, three for versions with the app
				t.Errorf("a deletion of 70 versions took %d commits: the test breaks off too few", done)
			}
			return
		}
	}
}

// An install that is created while the deletion begins is not lost: either the deletion or the creation is refused.
func TestInstallMadeMeanwhileKeepsItsApp(t *testing.T) {
	for consequence, begin := range map[string]func(*plane, *interleaved) (deleted, created error){
		"the creation comes between the reads and the mark of the deletion": func(p *plane, e *interleaved) (deleted, created error) {
			e.before = func() {
				created = errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Inputs: secretPassword()}, ""))
			}
			return p.DeleteApp(p.ctx, org, "shop"), created
		},
		"the deletion comes between the reads and the commit of the creation": func(p *plane, e *interleaved) (deleted, created error) {
			e.before = func() { deleted = p.DeleteApp(p.ctx, org, "shop") }
			return deleted, errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Inputs: secretPassword()}, ""))
		},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &interleaved{Engine: enginetest.Memory()}
				p := newPlane(t, e)
				p.publish(shop)
				begin(p, e)
				_, app := p.App(p.ctx, org, "shop")
				_, install := p.Install(p.ctx, org, "acme")
				if (app == nil) != (install == nil) {
					t.Errorf("the app: %v; the install: %v", app, install)
				}
				if app == nil {
					p.publish(described("after the refused deletion"))
				}
			})
		})
	}
}
