package catalog

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Version is an app version with its configuration.
type Version struct {
	store.Version
	Spec *appspec.App // shared by all who read the version: not to be changed
	New  bool         // this request made it
}

// App is an app with its newest version.
type App struct {
	store.App
	Newest Version
}

// DigestPattern is the regular expression of an artifact's digest.
const DigestPattern = `^sha256:[0-9a-f]{64}$`

var digestPattern = regexp.MustCompile(DigestPattern)

// PublishVersion stores an immutable version of the app. Its identifier is
// made from its content, so publishing the same again changes nothing but
// which version is the newest, and mends the record of one that was altered.
func (cat *Catalog) PublishVersion(ctx context.Context, org fairlead.OrgID, name string, config []byte, artifacts map[string]string) (Version, error) {
	if err := fairlead.CheckName("app", name); err != nil {
		return Version{}, err
	}
	spec, err := appspec.FromCanonical(config)
	if err != nil {
		return Version{}, &fairlead.Error{Kind: fairlead.KindInvalid, Code: "invalid-config",
			Message: "the app's configuration is not valid: " + err.Error(), Hint: "Run `fairlead app validate` on its folder."}
	}
	if spec.Name != name {
		return Version{}, fairlead.Invalid("app-name-mismatch", "the configuration is of app %q, not %q", spec.Name, name)
	}
	for _, comp := range spec.Components {
		if !digestPattern.MatchString(artifacts[comp.Name]) {
			return Version{}, fairlead.Invalid("artifact-missing", "component %s comes without the sha256 digest of its artifact", comp.Name)
		}
	}
	if len(artifacts) != len(spec.Components) {
		return Version{}, fairlead.Invalid("artifact-unknown", "there are %d artifacts for %d components", len(artifacts), len(spec.Components))
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
		out = Version{Spec: spec}
		stored, err := cat.Store.Version(ctx, id)
		switch {
		case err == nil:
			out.Version = stored.V
			if _, err := verified(tx.Kernel, id, stored.V); fairlead.CodeOf(err) == CodeVersionAltered {
				out.Version = store.Version{ID: id, Org: org, App: name, Config: canonical, Artifacts: artifacts, Created: stored.V.Created}
				tx.MendVersion(store.Stored[store.Version]{V: out.Version, Version: stored.Version})
			}
		case fairlead.KindOf(err) == fairlead.KindNotFound:
			out.New = true
			out.Version = store.Version{ID: id, Org: org, App: name, Config: canonical, Artifacts: artifacts, Created: tx.Now}
			tx.PutVersion(out.Version)
		default:
			return err
		}
		app, err := cat.Store.App(ctx, org, name)
		if fairlead.KindOf(err) == fairlead.KindNotFound {
			app, err = store.Stored[store.App]{V: store.App{ID: newAppID(org, name), Org: org, Name: name, Created: tx.Now}}, nil
		}
		if err != nil {
			return err
		}
		if app.V.Latest != id || app.V.Description != spec.Description {
			app.V.Latest, app.V.Description = id, spec.Description
			tx.PutApp(app)
			// A version that was published before there were references gets its
			// own when it becomes the newest again.
			tx.PutVersionRef(app.V.ID, out.Version)
		}
		return nil
	})
	return out, err
}

// ReadVersion returns a version with its configuration. One whose record was altered is
// refused with the code "version-altered".
func ReadVersion(tx *kernel.Tx, id fairlead.VersionID) (Version, error) {
	r, err := tx.Store.Version(tx.Ctx, id)
	if err != nil {
		return Version{}, err
	}
	return verified(tx.Kernel, id, r.V)
}

// verified reads the configuration of a version. It recomputes the identifier, so
// that a writer of the table, without the signing key, cannot make runners take
// another app's artifact for this version's. A version that was read before, and is
// byte for byte what it was, is not parsed again: most commits of a deployment read
// the same one.
func verified(k *kernel.Kernel, id fairlead.VersionID, v store.Version) (Version, error) {
	if kept, ok := k.Memo.Get(id); ok {
		if known, ok := kept.(Version); ok && known.same(v) {
			return Version{Version: v, Spec: known.Spec}, nil
		}
	}
	spec, err := appspec.FromCanonical(v.Config)
	if err != nil {
		// What was published could be read. It still may be what was published, and
		// this release older than the one that took it.
		if made, merr := events.VersionID(v.Org, v.Config, v.Artifacts); merr == nil && made != id {
			return Version{}, altered(k, id, v, made)
		}
		return Version{}, fmt.Errorf("read configuration of version %s: %w", id, err)
	}
	canonical, err := spec.Canonical() // the table may hold the same JSON with other escapes
	if err != nil {
		return Version{}, fmt.Errorf("canonical configuration of version %s: %w", id, err)
	}
	switch made, err := events.VersionID(v.Org, canonical, v.Artifacts); {
	case err != nil:
		return Version{}, err
	case made != id || v.ID != id:
		return Version{}, altered(k, id, v, made)
	}
	out := Version{Version: v, Spec: spec}
	if len(v.Config) <= keptConfig {
		k.Memo.Add(id, out)
	}
	return out, nil
}

// CodeVersionAltered is the code of a refusal to use a version whose record was
// altered, and the reason of a job or a component that failed for it.
const CodeVersionAltered = "version-altered"

// altered refuses a version whose content has the identifier made. The operator has
// to learn of it, and a caller may keep it to itself.
func altered(k *kernel.Kernel, id fairlead.VersionID, v store.Version, made fairlead.VersionID) error {
	k.Logger.Error("a version was altered in the table; nothing of it is deployed", "org", v.Org, "app", v.App, "version", id, "content", made)
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: CodeVersionAltered,
		Message: fmt.Sprintf("version %s of app %s was altered in the table: its content has the identifier %s", id, v.App, made),
		Hint:    "Publish the app again from the same folder, with `fairlead app apply FOLDER`: that writes the record anew. And find out who can write the control plane's table.",
		Details: map[string]string{"app": v.App, "version": string(id), "content": string(made)}}
}

// keptConfig is the largest configuration of a version that is kept parsed, which takes
// a few times that.
const keptConfig = 64 << 10

// same reports whether the identifier of v, which was verified, holds for o, too.
func (v Version) same(o store.Version) bool {
	return v.ID == o.ID && v.Org == o.Org && bytes.Equal(v.Config, o.Config) && maps.Equal(v.Artifacts, o.Artifacts)
}

// App returns an app with its newest version.
func (cat *Catalog) App(ctx context.Context, org fairlead.OrgID, name string) (App, error) {
	return ReadApp(cat.Reading(ctx), org, name)
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
	if err != nil {
		return nil, "", err
	}
	versions := make([]Version, 0, len(p.Items))
	for _, r := range p.Items {
		v, err := verified(cat.Kernel, r.V.ID, r.V)
		if err != nil {
			return nil, "", err
		}
		versions = append(versions, v)
	}
	return versions, p.Next, nil
}

func appOf(tx *kernel.Tx, a store.App) (App, error) {
	v, err := ReadVersion(tx, a.Latest)
	return App{App: a, Newest: v}, err
}

// Apps lists apps by name.
func (cat *Catalog) Apps(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]App, string, error) {
	p, err := cat.Store.Apps(ctx, org, q)
	if err != nil {
		return nil, "", err
	}
	apps := make([]App, 0, len(p.Items))
	for _, r := range p.Items {
		a, err := appOf(cat.Reading(ctx), r.V)
		if err != nil {
			return nil, "", err
		}
		apps = append(apps, a)
	}
	return apps, p.Next, nil
}
