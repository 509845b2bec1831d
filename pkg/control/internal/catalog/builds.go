package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
)

// builtFolder is the last part of the name of a repository of built artifacts. Only builds push there. A person's token
// pushes to the component's other repository. No component has such a name, because the name before it is the component's.
const builtFolder = "built"

// artifactName returns the name of a component's artifacts below its app.
func artifactName(component string, built bool) string {
	if built {
		return component + "/" + builtFolder
	}
	return component
}

// BuildOf returns what a build of the component makes.
func BuildOf(app string, c appspec.Component) events.Build {
	vars := slices.Collect(maps.Keys(c.Vars))
	for _, secret := range c.Secrets {
		if name := runnerspec.SecretVariable(secret); name != "" {
			vars = append(vars, name)
		}
	}
	slices.Sort(vars)
	return events.Build{App: app, Component: c.Name, Type: c.Type, Source: c.Source, From: events.Origin(c.From()), Vars: vars}
}

// ParseConfig reads the canonical configuration of the app.
func ParseConfig(name string, config []byte) (*appspec.App, error) {
	if err := fairlead.CheckName("app", name); err != nil {
		return nil, err
	}
	spec, err := appspec.FromCanonical(config)
	if err != nil {
		return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidConfig,
			Message: "the app's configuration is not valid: " + err.Error(), Hint: "Run {app.validate} on its folder."}
	}
	if spec.Name != name {
		return nil, fairlead.Invalid(fairlead.CodeAppNameMismatch, "the configuration is of app %q, not %q", spec.Name, name)
	}
	return spec, nil
}

// BuiltBy is the build that made an artifact.
type BuiltBy struct {
	Job fairlead.JobID
	// Revision is what was built: the commit of a git repository, as hexadecimal digits, or
	// the digest of the archive of a chart or module.
	Revision string
}

// Built is an artifact that a build made.
type Built struct {
	Artifact string // digest
	BuiltBy
}

// recorded returns the builds of a version as its record has them.
func recorded(builds map[string]BuiltBy) map[string]store.BuiltBy {
	out := make(map[string]store.BuiltBy, len(builds))
	for component, b := range builds {
		out[component] = store.BuiltBy(b)
	}
	return out
}

// buildsView returns the builds of a version's record.
func buildsView(builds map[string]store.BuiltBy) map[string]BuiltBy {
	out := make(map[string]BuiltBy, len(builds))
	for component, b := range builds {
		out[component] = BuiltBy(b)
	}
	return out
}

// recentVersions is how many versions of an app are searched for an earlier build of a component. A build is quick, and
// its result is the same, so a build that is not found costs only time.
const recentVersions = 10

// BuiltBefore returns an earlier build of the component, from the app's newest versions. ok is false if there is none,
// or if the component's ref is a tag or branch of git, which may name another commit now.
func BuiltBefore(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component) (b Built, ok bool, err error) {
	if !c.SameBuild(c) {
		return Built{}, false, nil
	}
	a, err := store.Optional(tx.Store.App(tx.Ctx, org, app))
	if err != nil || a.Version == 0 {
		return Built{}, false, err
	}
	recent, err := tx.Store.Versions(tx.Ctx, a.V.ID, fairlead.PageQuery{Limit: recentVersions})
	if err != nil {
		return Built{}, false, err
	}
	for _, r := range recent.Items {
		by, has := r.V.Builds[c.Name]
		if !has {
			continue
		}
		v, err := verified(tx.Kernel, r.V.ID, r.V)
		if fairlead.CodeOf(err) == fairlead.CodeVersionAltered {
			continue // its artifacts cannot be trusted
		}
		if err != nil {
			return Built{}, false, err
		}
		old, has := v.Spec.Component(c.Name)
		if !has || !old.SameBuild(c) {
			continue
		}
		b := Built{v.Artifacts[c.Name], BuiltBy(by)}
		if ok, err := proven(tx, org, app, c, b); err != nil || ok {
			return b, ok, err
		}
	}
	return Built{}, false, nil
}

// buildsOf returns the artifacts of the components that are built: of the named jobs, else of earlier builds.
func buildsOf(tx *kernel.Tx, org fairlead.OrgID, spec *appspec.App, jobs map[string]fairlead.JobID) (map[string]Built, error) {
	out := map[string]Built{}
	for _, c := range spec.Components {
		if !c.Built() {
			continue
		}
		b, ok, err := buildOf(tx, org, spec.Name, c, jobs[c.Name])
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeBuildMissing,
				Message: fmt.Sprintf("component %s has no build that succeeded", c.Name), Hint: "{app.publish} builds the components and then publishes the app."}
		}
		out[c.Name] = b
	}
	for name := range jobs {
		if _, ok := out[name]; !ok {
			return nil, fairlead.Invalid(fairlead.CodeArtifactUnknown, "component %s is not built", name)
		}
	}
	return out, nil
}

// buildOf returns the artifact of one component. The job may be a build of the same component in another version of the
// app: what counts is that it built these sources.
func buildOf(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, id fairlead.JobID) (Built, bool, error) {
	if id == "" {
		return BuiltBefore(tx, org, app, c)
	}
	r, err := tx.Store.Job(tx.Ctx, id)
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
		return Built{}, false, err
	}
	b := r.V.Build
	if err != nil || r.V.Org != org || b == nil || r.V.State != job.Succeeded {
		return Built{}, false, nil
	}
	want := BuildOf(app, c)
	same := b.App == want.App && b.Component == want.Component && b.Type == want.Type && b.Source == want.Source && b.From == want.From
	built := Built{b.Artifact, BuiltBy{Job: id, Revision: b.Revision}}
	if !same {
		return built, false, nil
	}
	ok, err := proven(tx, org, app, c, built)
	return built, ok, err
}

// JobRepository returns the only repository of the control plane's own registry that the job of the lease's holder may
// use. push reports whether the job may push to it: only a build may.
func (cat *Catalog) JobRepository(ctx context.Context, h kernel.Holder) (repository string, push bool, err error) {
	tx := cat.Reading(ctx)
	r, err := tx.Held(ctx, h)
	if err != nil {
		return "", false, err
	}
	if b := r.V.Build; b != nil {
		return Repository(r.V.Org, b.App, artifactName(b.Component, true)), true, nil
	}
	v, err := ReadVersion(tx, r.V.Version)
	if err != nil {
		return "", false, err
	}
	return Repository(v.Org, v.App, r.V.Component), false, nil
}

// MakeBuildRepositories creates the missing repositories of the app's built artifacts. The control plane's own registry
// needs none.
func (cat *Catalog) MakeBuildRepositories(ctx context.Context, org fairlead.OrgID, app *appspec.App) error {
	var names []string
	for _, c := range app.Components {
		if c.Built() {
			names = append(names, artifactName(c.Name, true))
		}
	}
	if cat.Artifacts == nil || len(names) == 0 {
		return nil
	}
	id, err := appIDOf(cat.Reading(ctx), org, app.Name)
	if err != nil {
		return err
	}
	if err := cat.Artifacts.Make(ctx, id, names); err != nil {
		return registryUnavailable(err)
	}
	return nil
}

// BuildRepository returns the repository to which a build of the org pushes.
func BuildRepository(tx *kernel.Tx, org fairlead.OrgID, b events.Build) (string, error) {
	name := artifactName(b.Component, true)
	if tx.Artifacts == nil {
		return Repository(org, b.App, name), nil
	}
	id, err := appIDOf(tx, org, b.App)
	if err != nil {
		return "", err
	}
	return tx.Artifacts.Repository(id, name), nil
}

// appIDOf returns the identifier of the app, which need not exist yet.
func appIDOf(tx *kernel.Tx, org fairlead.OrgID, app string) (fairlead.AppID, error) {
	r, err := store.Optional(tx.Store.App(tx.Ctx, org, app))
	if err != nil || r.Version == 0 {
		return newAppID(org, app), err
	}
	return r.V.ID, nil
}
