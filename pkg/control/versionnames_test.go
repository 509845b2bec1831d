package control_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// described returns the app shop with another description, which makes another version.
func described(text string) string {
	return strings.Replace(shop, "name: shop\n", "name: shop\ndescription: "+text+"\n", 1)
}

func TestVersionNameMeansOneContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { versionNameStory(newPlane(t, enginetest.Memory())) })
}

func TestVersionNamesOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	versionNameStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestVersionNamesOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	versionNameStory(newPlaneAt(t, dynamoTable(t, "names"), c.now, c.sleep))
}

// versionNameStory publishes versions with names, and selects them by name wherever an identifier selects one.
func versionNameStory(p *plane) {
	t := p.t
	first := p.publishAs(described("one"), "v1.0.0")
	second := p.publishAs(described("two"), "v1.1.0")
	if !slices.Equal(first.Names, []string{"v1.0.0"}) || !second.New {
		t.Fatalf("published %v, new %v", first.Names, second.New)
	}

	// The same content keeps its name, and can get a second one.
	if again := p.publishAs(described("one"), "v1.0.0"); again.New || again.ID != first.ID {
		t.Errorf("the same content under the same name is version %s, new %v", again.ID, again.New)
	}
	if again := p.publishAs(described("one"), "v1.0.1"); !slices.Equal(again.Names, []string{"v1.0.0", "v1.0.1"}) {
		t.Errorf("names %v after a second name", again.Names)
	}

	// A name of another content is refused, and nothing is published.
	_, err := p.tryPublishAs(described("three"), "v1.1.0")
	expectCode(t, "a name of another version", err, "version-name-taken")
	if a, err := p.App(p.ctx, org, "shop"); err != nil || a.Newest.ID != first.ID {
		t.Errorf("the newest version is %s, %v after a refused name; want %s", a.Newest.ID, err, first.ID)
	}
	for _, bad := range []string{"ver_7cca6d766eef", strings.Repeat("ab", 32), "v 1", "-v1", "a/b", strings.Repeat("x", 65)} {
		_, err := p.tryPublishAs(described("three"), bad)
		expectCode(t, fmt.Sprintf("the name %q", bad), err, "invalid-name")
	}
	p.publishAs(strings.Replace(shop, "name: shop\n", "name: other\n", 1), "v1.1.0") // names are those of one app

	// A name selects its version for a deployment, and is shown where the version is shown.
	p.install("acme")
	id := p.deploy("acme", control.NewDeployment{Version: "v1.0.0", Ask: deployment.AskNever}, "by-name")
	p.work()
	d := p.deployment(id)
	if d.Version != first.ID || d.State != deployment.Succeeded || !slices.Contains(d.Names, "v1.0.0") {
		t.Errorf("deployed version %s named %v, state %s; want %s", d.Version, d.Names, d.State, first.ID)
	}
	list, _, err := p.Deployments(p.ctx, org, control.DeploymentFilter{}, fairlead.PageQuery{})
	if err != nil || len(list) != 1 || !slices.Contains(list[0].Names, "v1.0.1") {
		t.Errorf("listed %+v, %v", list, err)
	}
	in, err := p.Install(p.ctx, org, "acme")
	if err != nil || len(in.Components) != 4 || !slices.Contains(in.Components[0].Names, "v1.0.0") {
		t.Errorf("components %+v, %v", in.Components, err)
	}
	e, err := p.Effective(p.ctx, org, "acme")
	if err != nil || e.Version != first.ID || !slices.Contains(e.Names, "v1.0.0") {
		t.Errorf("the next deployment uses %s named %v, %v", e.Version, e.Names, err)
	}
	versions, _, err := p.Versions(p.ctx, org, "shop", fairlead.PageQuery{})
	if err != nil || len(versions) != 2 || !slices.Equal(versions[0].Names, []string{"v1.1.0"}) {
		t.Errorf("versions %+v, %v", versions, err)
	}
	for ref, want := range map[string]fairlead.VersionID{"v1.1.0": second.ID, string(first.ID): first.ID} {
		if v, err := p.Version(p.ctx, org, "shop", ref); err != nil || v.ID != want || len(v.Names) == 0 {
			t.Errorf("%s selects %s named %v, %v; want %s", ref, v.ID, v.Names, err, want)
		}
	}
	_, err = p.Version(p.ctx, "other", "shop", "v1.1.0")
	expectCode(t, "a name of another org", err, "app-not-found")
	_, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, Version: "v9"}, "")
	expectCode(t, "an unknown name", err, "version-not-found")

	// A version has a bounded number of names.
	for i := range 50 - 2 {
		p.publishAs(described("one"), fmt.Sprintf("nightly-%d", i))
	}
	_, err = p.tryPublishAs(described("one"), "nightly-48")
	expectCode(t, "the name number 51", err, "too-many-version-names")
}

// Of several publications that give one name to different content at the same time, one succeeds.
func TestOneOfTwoVersionsGetsTheName(t *testing.T) {
	t.Parallel()
	c := newClock()
	for name, p := range map[string]*plane{"SQLite": newPlaneAt(t, sqliteTable(t), c.now, c.sleep), "DynamoDB": newPlaneAt(t, dynamoTable(t, "race"+rand.Text()), c.now, c.sleep)} {
		t.Run(name, func(t *testing.T) {
			const writers = 4
			var ids [writers]fairlead.VersionID
			var errs [writers]error
			var wait sync.WaitGroup
			for i := range writers {
				wait.Go(func() {
					v, err := p.tryPublishAs(described(fmt.Sprint("content ", i)), "v2")
					ids[i], errs[i] = v.ID, err
				})
			}
			wait.Wait()
			winners := 0
			for i, err := range errs {
				if err == nil {
					winners++
					if v, err := p.Version(p.ctx, org, "shop", "v2"); err != nil || v.ID != ids[i] {
						t.Errorf("v2 selects %s, %v; the publication that succeeded made %s", v.ID, err, ids[i])
					}
				} else {
					expectCode(t, "a publication that came second", err, "version-name-taken")
				}
			}
			if winners != 1 {
				t.Errorf("%d publications got the name", winners)
			}
			if all, _, err := p.Versions(p.ctx, org, "shop", fairlead.PageQuery{}); err != nil || len(all) != 1 {
				t.Errorf("%d versions, %v; a refused publication stores none", len(all), err)
			}
		})
	}
}

// interleaved calls before once, before the next commit. Another writer's commit then comes between the reads and the
// commit of a use case.
type interleaved struct {
	engine.Engine
	before func()
}

// Commit implements engine.Engine.
func (e *interleaved) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	if before := e.before; before != nil {
		e.before = nil
		before()
	}
	return e.Engine.Commit(ctx, token, writes...)
}

// A publication that changes nothing but the name does not write the app's record, so only the name's own record decides.
func TestNameGivenMeanwhileIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &interleaved{Engine: enginetest.Memory()}
		p := newPlane(t, e)
		old, newest := p.publish(described("one")), p.publish(described("two"))
		e.before = func() { p.publishAs(described("one"), "v1"); p.publish(described("two")) }
		_, err := p.tryPublishAs(described("two"), "v1")
		expectCode(t, "a name that another version got meanwhile", err, "version-name-taken")
		if v, err := p.Version(p.ctx, org, "shop", "v1"); err != nil || v.ID != old.ID {
			t.Errorf("v1 selects %s, %v; want %s", v.ID, err, old.ID)
		}
		if v, err := p.Version(p.ctx, org, "shop", string(newest.ID)); err != nil || len(v.Names) > 0 {
			t.Errorf("the newest version has the names %v, %v", v.Names, err)
		}
	})
}
