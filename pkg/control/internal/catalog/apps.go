package catalog

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/store"
)

// Version is an app version with its configuration.
type Version struct {
	fairlead.Actors
	ID        fairlead.VersionID
	Org       fairlead.OrgID
	App       string
	Names     []string           // in the order in which they were given; only App, Apps, Versions, Version and PublishVersion fill it
	Artifacts map[string]string  // digest by component, or by action with fairlead.ActionPrefix
	Builds    map[string]BuiltBy // of the components that are built
	Created   time.Time
	Spec      *appspec.App // shared by all readers of the version; do not change it
	New       bool         // this request created it
}

func versionView(v store.Version, spec *appspec.App) Version {
	return Version{Actors: v.Actors, ID: v.ID, Org: v.Org, App: v.App, Artifacts: v.Artifacts, Builds: buildsView(v.Builds), Created: v.Created, Spec: spec}
}

// App is an app with its newest version.
type App struct {
	fairlead.Actors
	ID          fairlead.AppID
	Name        string
	Description string
	Created     time.Time
	Newest      Version
}

// DigestPattern is the pattern of an artifact's digest.
const DigestPattern = `^sha256:[0-9a-f]{64}$`

var digestPattern = pattern.New(DigestPattern)

// partsOfVersion returns the configuration of a new version, and an artifact for each of its components and actions: the
// caller's, or that of a build.
func (cat *Catalog) partsOfVersion(ctx context.Context, org fairlead.OrgID, name string, in NewVersion) (*appspec.App, map[string]string, map[string]BuiltBy, error) {
	spec, err := ParseConfig(name, in.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	built, err := buildsOf(cat.Reading(ctx), org, spec, in.Builds, in.Folders)
	if err != nil {
		return nil, nil, nil, err
	}
	artifacts, builtBy := maps.Clone(in.Artifacts), map[string]BuiltBy{}
	if artifacts == nil {
		artifacts = map[string]string{}
	}
	for component, b := range built {
		if _, ok := in.Artifacts[component]; ok {
			return nil, nil, nil, fairlead.Invalid(fairlead.CodeArtifactUnknown, "the artifact of component %s is made by a build and cannot be given", component)
		}
		artifacts[component], builtBy[component] = b.Artifact, b.BuiltBy
	}
	parts := spec.Parts()
	for _, part := range parts {
		if !digestPattern.MatchString(artifacts[part.Name]) {
			return nil, nil, nil, fairlead.Invalid(fairlead.CodeArtifactMissing, "component %s has no sha256 digest of its artifact", part.Name)
		}
	}
	if len(artifacts) != len(parts) {
		return nil, nil, nil, fairlead.Invalid(fairlead.CodeArtifactUnknown, "there are %d artifacts for %d components and actions", len(artifacts), len(parts))
	}
	return spec, artifacts, builtBy, nil
}

// NewVersion is a version to publish.
type NewVersion struct {
	Config    []byte            // canonical JSON, see package appspec
	Artifacts map[string]string // digests of the artifacts that the caller pushed, by component
	// Builds are the jobs that built the other components. A built component without a job
	// has the artifact of an earlier build of the same commit.
	Builds map[string]fairlead.JobID
	// Folders are the digests of the packed folders that the caller pushed for components that are built from one, by
	// component.
	Folders map[string]string
	// Name is a name for the version; "": none. The name of another version of the app is
	// refused with the code "version-name-taken", and then nothing is published.
	Name string
}

// PublishVersion publishes a version of which no component is built.
func (cat *Catalog) PublishVersion(ctx context.Context, org fairlead.OrgID, name string, config []byte, artifacts map[string]string) (Version, error) {
	return cat.Publish(ctx, org, name, NewVersion{Config: config, Artifacts: artifacts})
}

// Publish stores an immutable version of the app. The version's identifier is a
// hash of its content. So publishing the same content again creates no second version.
// It makes the version the newest, and repairs its record if the record was altered.
func (cat *Catalog) Publish(ctx context.Context, org fairlead.OrgID, name string, in NewVersion) (Version, error) {
	if in.Name != "" {
		if err := fairlead.CheckVersionName(in.Name); err != nil {
			return Version{}, err
		}
	}
	spec, artifacts, builtBy, err := cat.partsOfVersion(ctx, org, name, in)
	if err != nil {
		return Version{}, err
	}
	canonical, err := spec.Canonical()
	if err != nil {
		return Version{}, fmt.Errorf("canonical configuration of app %s: %w", name, err)
	}
	id, err := events.VersionID(org, canonical, artifacts)
	if err != nil {
		return Version{}, err
	}
	var out Version
	err = cat.Transact(ctx, "publish app "+name, func(tx *kernel.Tx) error {
		made := store.Version{Actors: tx.Made(), ID: id, Org: org, App: name, Config: canonical, Artifacts: artifacts, Builds: recorded(builtBy), Created: tx.Now}
		isNew := false
		stored, err := cat.Store.Version(ctx, id)
		switch {
		case err == nil:
			made.Created, made.Actors = stored.V.Created, stored.V.Actors
			if err := repairVersion(tx, stored, &made); err != nil {
				return err
			}
		case fairlead.KindOf(err) == fairlead.KindNotFound:
			isNew = true
			tx.PutVersion(made)
		default:
			return err
		}
		out = versionView(made, spec)
		out.New = isNew
		app, err := store.Optional(cat.Store.App(ctx, org, name))
		if err != nil {
			return err
		}
		if app.V.Deleting {
			return deleting(name)
		}
		if app.Version == 0 {
			app.V = store.App{ID: newAppID(org, name), Org: org, Name: name, Created: tx.Now}
		}
		if app.V.Latest != id || app.V.Description != spec.Description {
			app.V.Latest, app.V.Description = id, spec.Description
			tx.PutApp(app)
			// An old release stored versions without a reference. Such a version gets
			// its reference when it becomes the newest again.
			tx.PutVersionRef(app.V.ID, made)
		}
		if out.Names, err = nameVersion(tx, app.V, id, in.Name); err != nil {
			return err
		}
		if !tx.Empty() {
			tx.CheckApp(app) // a deletion that has begun would miss what this commit writes
		}
		return nil
	})
	return out, err
}

// repairVersion writes a version that is published again, if its record was altered, or if the record names a build whose
// provenance a step would refuse. made gets the builds of the record.
func repairVersion(tx *kernel.Tx, stored store.Stored[store.Version], made *store.Version) error {
	v, err := verified(tx.Kernel, made.ID, stored.V)
	changed := fairlead.CodeOf(err) == fairlead.CodeVersionAltered
	if err != nil && !changed {
		return err
	}
	if !changed {
		if made.Builds, changed, err = keptBuilds(tx, v, made.Builds); err != nil {
			return err
		}
	}
	if changed {
		tx.RepairVersion(store.Stored[store.Version]{V: *made, Version: stored.Version})
	}
	return nil
}

// ReadVersion returns a version with its configuration. A version whose record was
// altered is refused with the code "version-altered".
func ReadVersion(tx *kernel.Tx, id fairlead.VersionID) (Version, error) {
	return kernel.Cached(tx, "version "+string(id), func() (Version, error) {
		r, err := tx.Store.Version(tx.Ctx, id)
		if err != nil {
			return Version{}, err
		}
		return verified(tx.Kernel, id, r.V)
	})
}

// verified parses the configuration of a version after recomputing the version's
// identifier. So a writer of the table without the signing key cannot make runners use
// another app's artifact. A version that was read before and has the same bytes is not
// parsed again, because most commits of a deployment read the same version.
func verified(k *kernel.Kernel, id fairlead.VersionID, v store.Version) (Version, error) {
	if kept, ok := k.Memo.Get(id); ok {
		if known, ok := kept.(parsed); ok && known.same(v) {
			return versionView(v, known.spec), nil
		}
	}
	spec, err := appspec.FromCanonical(v.Config)
	if err != nil {
		// The configuration was readable when it was published. If the version's
		// identifier still matches, this control plane probably has an older release
		// than the control plane that accepted the configuration.
		if made, merr := events.VersionID(v.Org, v.Config, v.Artifacts); merr == nil && made != id {
			return Version{}, altered(k, id, v, made)
		}
		return Version{}, fmt.Errorf("read configuration of version %s: %w", id, err)
	}
	canonical, err := spec.Canonical() // the table may store the same JSON with other escapes
	if err != nil {
		return Version{}, fmt.Errorf("canonical configuration of version %s: %w", id, err)
	}
	switch made, err := events.VersionID(v.Org, canonical, v.Artifacts); {
	case err != nil:
		return Version{}, err
	case made != id || v.ID != id:
		return Version{}, altered(k, id, v, made)
	}
	if len(v.Config) <= keptConfig {
		k.Memo.Add(id, parsed{v, spec})
	}
	return versionView(v, spec), nil
}

// altered returns the refusal of a version whose content was altered. The parameter made
// is the identifier of the altered content. altered also logs the fact, because the
// operator must know and the caller may not report it.
func altered(k *kernel.Kernel, id fairlead.VersionID, v store.Version, made fairlead.VersionID) error {
	k.Logger.Error("a version was altered in the table; it is not deployed", "org", v.Org, "app", v.App, "version", id, "content", made)
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeVersionAltered,
		Message: fmt.Sprintf("version %s of app %s was altered in the table: its content has the identifier %s", id, v.App, made),
		Hint:    "Publish the app again from the same folder, with {app.publish}: this writes the version's record again. Also find out who can write to the control plane's table, because the record was altered.",
		Details: map[string]string{"app": v.App, "version": string(id), "content": string(made)}}
}

// keptConfig is the size of the largest configuration that is cached, in bytes before
// parsing. A parsed configuration takes several times this size.
const keptConfig = 64 << 10

// parsed is a verified version.
type parsed struct {
	store.Version
	spec *appspec.App
}

// same reports whether o has the same content as v, so that the identifier of v is
// valid for o.
func (v parsed) same(o store.Version) bool {
	return v.ID == o.ID && v.Org == o.Org && bytes.Equal(v.Config, o.Config) && maps.Equal(v.Artifacts, o.Artifacts)
}

// App returns an app with its newest version.
func (cat *Catalog) App(ctx context.Context, org fairlead.OrgID, name string) (App, error) {
	tx := cat.Reading(ctx)
	a, err := ReadApp(tx, org, name)
	return a.withNames(tx, err)
}

// ReadApp returns an app with its newest version.
func ReadApp(tx *kernel.Tx, org fairlead.OrgID, name string) (App, error) {
	r, err := tx.Store.App(tx.Ctx, org, name)
	if err != nil {
		return App{}, err
	}
	return appOf(tx, r.V)
}

// Versions lists the versions of an app, newest first.
func (cat *Catalog) Versions(ctx context.Context, org fairlead.OrgID, name string, q fairlead.PageQuery) ([]Version, string, error) {
	a, err := cat.Store.App(ctx, org, name)
	if err != nil {
		return nil, "", err
	}
	p, err := cat.Store.Versions(ctx, a.V.ID, q)
	tx := cat.Reading(ctx)
	return kernel.TryList(p, err, func(v store.Version) (Version, error) {
		out, err := verified(cat.Kernel, v.ID, v)
		if err == nil {
			out.Names, err = VersionNames(tx, v.ID)
		}
		return out, err
	})
}

func appOf(tx *kernel.Tx, a store.App) (App, error) {
	v, err := ReadVersion(tx, a.Latest)
	return App{Actors: a.Actors, ID: a.ID, Name: a.Name, Description: a.Description, Created: a.Created, Newest: v}, err
}

// withNames returns the app with the names of its newest version.
func (a App) withNames(tx *kernel.Tx, err error) (App, error) {
	if err == nil {
		a.Newest.Names, err = VersionNames(tx, a.Newest.ID)
	}
	return a, err
}

// Apps lists apps by name.
func (cat *Catalog) Apps(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]App, string, error) {
	p, err := cat.Store.Apps(ctx, org, q)
	tx := cat.Reading(ctx)
	return kernel.TryList(p, err, func(a store.App) (App, error) {
		app, err := appOf(tx, a)
		return app.withNames(tx, err)
	})
}
