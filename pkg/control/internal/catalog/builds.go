package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/component"
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

// BuildOf returns what a build of the component makes. folder is the digest of the component's packed folder, if its source
// is in the app's folder.
func BuildOf(app string, c appspec.Component, folder string) events.Build {
	vars := slices.Collect(maps.Keys(c.Vars))
	for _, secret := range c.Secrets {
		if name := runnerspec.SecretVariable(secret); name != "" {
			vars = append(vars, name)
		}
	}
	slices.Sort(vars)
	out := events.Build{App: app, Component: c.Name, Type: c.Type, Source: c.Source, From: events.Origin(c.From()), Vars: vars, Logins: c.Logins}
	if k := c.Build; k != nil {
		out.Image = &events.ImageBuild{Dockerfile: k.Dockerfile, Target: k.Target, Platforms: k.Platforms, Args: k.Args, Go: (*events.GoProgram)(k.Go)}
	}
	if out.From.Kind == events.OriginFolder {
		out.Source, out.From.Ref = ".", folder // the packed folder is the component's
	}
	return out
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
	// the digest of the archive of a chart or module, or of the packed folder of the app.
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

// A build whose artifact no version has yet, such as one for the lock of a closed app, is found among the newest jobs. The registry
// keeps such an artifact for a day.
const (
	recentJobs  = 100
	recentBuild = 12 * time.Hour
)

// BuiltBefore returns an earlier build of the component, from the app's newest versions, or else from the newest jobs. ok is false if there is none,
// or if the component's ref is a tag or branch of git, which may name another commit now. folder is as in BuildOf.
func BuiltBefore(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, folder string) (b Built, ok bool, err error) {
	if !c.SameBuild(c) {
		return Built{}, false, nil
	}
	a, err := store.Optional(tx.Store.App(tx.Ctx, org, app))
	if err != nil {
		return Built{}, false, err
	}
	if a.Version == 0 {
		return builtByJob(tx, org, app, c, folder)
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
		if !has || !old.SameBuild(c) || c.InFolder() && by.Revision != folder {
			continue
		}
		b := Built{v.Artifacts[c.Name], BuiltBy(by)}
		if ok, err := proven(tx, org, app, c, b); err != nil || ok {
			return b, ok, err
		}
	}
	return builtByJob(tx, org, app, c, folder)
}

// builtByJob returns a build of the component that ended a short time ago.
func builtByJob(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, folder string) (Built, bool, error) {
	newest, err := tx.Store.Jobs(tx.Ctx, org, fairlead.PageQuery{Limit: recentJobs})
	if err != nil {
		return Built{}, false, err
	}
	t, _ := component.Of(c.Type)
	for _, j := range newest.Items {
		if j.V.Build == nil || j.V.State != job.Succeeded || j.V.Build.App != app || j.V.Build.Component != c.Name || tx.Now.Sub(j.V.Finished) > recentBuild {
			continue
		}
		if t.Module && !slices.Equal(j.V.Build.Vars, BuildOf(app, c, folder).Vars) {
			continue // the build compared the module with other variables
		}
		if b, ok, err := buildOf(tx, org, app, c, folder, j.V.ID); err != nil || ok {
			return b, ok, err
		}
	}
	return Built{}, false, nil
}

// FoldersOf refuses digests of packed folders that are not exactly those of the components that are built from one.
func FoldersOf(spec *appspec.App, folders map[string]string) error {
	n := 0
	for _, c := range spec.Components {
		if !c.Built() || !c.InFolder() {
			continue
		}
		if n++; !digestPattern.MatchString(folders[c.Name]) {
			return fairlead.Invalid(fairlead.CodeArtifactMissing, "component %s is built from the app's folder and has no sha256 digest of its packed folder", c.Name)
		}
	}
	if len(folders) != n {
		return fairlead.Invalid(fairlead.CodeArtifactUnknown, "there are %d packed folders for %d components that are built from one", len(folders), n)
	}
	return nil
}

// buildsOf returns the artifacts of the components that are built: of the named jobs, else of earlier builds. folders are
// the digests of packed folders, by component.
func buildsOf(tx *kernel.Tx, org fairlead.OrgID, spec *appspec.App, jobs map[string]fairlead.JobID, folders map[string]string) (map[string]Built, error) {
	if err := FoldersOf(spec, folders); err != nil {
		return nil, err
	}
	out := map[string]Built{}
	for _, c := range spec.Components {
		if !c.Built() {
			continue
		}
		b, ok, err := buildOf(tx, org, spec.Name, c, folders[c.Name], jobs[c.Name])
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
func buildOf(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, folder string, id fairlead.JobID) (Built, bool, error) {
	if id == "" {
		return BuiltBefore(tx, org, app, c, folder)
	}
	r, err := tx.Store.Job(tx.Ctx, id)
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
		return Built{}, false, err
	}
	b := r.V.Build
	if err != nil || r.V.Org != org || b == nil || r.V.State != job.Succeeded {
		return Built{}, false, nil
	}
	want := BuildOf(app, c, folder)
	want.Org = b.Org
	same := b.Same(want) && b.From.Credentials == want.From.Credentials && maps.Equal(b.Logins, want.Logins)
	built := Built{b.Artifact, BuiltBy{Job: id, Revision: b.Revision}}
	if !same {
		return built, false, nil
	}
	ok, err := proven(tx, org, app, c, built)
	return built, ok, err
}

// JobRepositories are the repositories of the control plane's own registry that a job may use.
type JobRepositories struct {
	Read  []string // artifacts and images
	Write string   // also read; "": none. Only a build has one
}

// JobRepositories returns the repositories for the artifact of the holder's job.
func (cat *Catalog) JobRepositories(ctx context.Context, h kernel.Holder) (JobRepositories, error) {
	tx := cat.Reading(ctx)
	r, err := tx.Held(ctx, h)
	if err != nil {
		return JobRepositories{}, err
	}
	if b := r.V.Build; b != nil {
		var out JobRepositories
		if b.From.Kind == events.OriginFolder {
			out.Read = []string{Repository(r.V.Org, b.App, b.Component)}
		}
		out.Write, err = BuildRepository(tx, r.V.Org, b.Build)
		return out, err
	}
	v, err := ReadVersion(tx, r.V.Version)
	if err != nil {
		return JobRepositories{}, err
	}
	return JobRepositories{Read: []string{Repository(v.Org, v.App, r.V.Component)}}, nil
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
	return builtRepository(tx, org, b.App, b.Component, b.Image != nil)
}

// FolderRepository returns the repository of the packed folder from which a build is made.
func FolderRepository(tx *kernel.Tx, org fairlead.OrgID, b events.Build) (string, error) {
	if tx.Artifacts == nil {
		return Repository(org, b.App, b.Component), nil
	}
	id, err := appIDOf(tx, org, b.App)
	if err != nil {
		return "", err
	}
	return tx.Artifacts.Repository(id, b.Component), nil
}

// builtRepository returns the repository of what builds of a component make. The control plane's own registry of artifacts
// holds no images: they are in its registry of images.
func builtRepository(tx *kernel.Tx, org fairlead.OrgID, app, component string, image bool) (string, error) {
	name := artifactName(component, true)
	if tx.Artifacts == nil && !image {
		return Repository(org, app, name), nil
	}
	id, err := appIDOf(tx, org, app)
	switch {
	case err != nil:
		return "", err
	case tx.Artifacts == nil:
		return builtImages(org, id, component), nil
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
