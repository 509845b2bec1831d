package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// Repositories returns the prefix of an org's repositories in the control plane's own
// registry.
func Repositories(org fairlead.OrgID) string { return "orgs/" + string(org) + "/" }

// Repository returns the name of the repository of a component of the org's app, in the
// control plane's own registry.
func Repository(org fairlead.OrgID, app, component string) string {
	return Repositories(org) + app + "/" + component
}

// RepositoryOrg returns the part of a repository's name that identifies its org, in the
// control plane's own registry. It returns "" for a name that Repository cannot return.
func RepositoryOrg(repository string) string {
	org, _, _, ok := partsOf(repository)
	if !ok {
		return ""
	}
	return org
}

// InBuilt reports whether a clean path, which begins with the name of a repository in the
// control plane's own registry, is in a repository to which only builds push.
func InBuilt(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) > 4 && parts[0] == "orgs" && parts[4] == builtFolder
}

// partsOf splits a name that Repository returned.
func partsOf(repository string) (org, app, component string, ok bool) {
	parts := strings.Split(strings.TrimSuffix(repository, "/"+builtFolder), "/")
	if len(parts) != 4 || parts[0] != "orgs" {
		return "", "", "", false
	}
	return parts[1], parts[2], parts[3], true
}

// NamedArtifacts returns a function that reports whether any version of an app refers
// to the manifest with the digest in the repository, in the control plane's own
// registry. The function reads all versions of an app at its first call for the app,
// and caches their digests. Not safe for concurrent use.
func (cat *Catalog) NamedArtifacts() func(ctx context.Context, repository, digest string) (bool, error) {
	type source struct{ org, app string }
	named := map[source]map[string]bool{} // component and digest
	return func(ctx context.Context, repository, digest string) (bool, error) {
		org, app, component, ok := partsOf(repository)
		if !ok {
			return false, nil
		}
		of := source{org, app}
		if named[of] == nil {
			all, err := artifactsOf(cat.Reading(ctx), fairlead.OrgID(org), app)
			if err != nil {
				return false, fmt.Errorf("read the versions of app %s: %w", app, err)
			}
			named[of] = all
		}
		return named[of][component+"@"+digest], nil
	}
}

// artifactsOf returns the artifacts of all versions of an app, as "component@digest".
// It returns none for an app that does not exist.
func artifactsOf(tx *kernel.Tx, org fairlead.OrgID, app string) (map[string]bool, error) {
	a, err := store.Optional(tx.Store.App(tx.Ctx, org, app))
	if err != nil || a.Version == 0 {
		return map[string]bool{}, err
	}
	all, err := artifactsOfVersions(tx, a.V.ID)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// artifactsOfVersions is artifactsOf by the app's identifier. It also returns the packed folders of which images were built.
func artifactsOfVersions(tx *kernel.Tx, app fairlead.AppID) (map[string]bool, error) {
	all := map[string]bool{}
	versions := func(q fairlead.PageQuery) (store.Page[store.Version], error) {
		return tx.Store.Versions(tx.Ctx, app, q)
	}
	for v, err := range store.Pages(versions) {
		if err != nil {
			return nil, err
		}
		for component, digest := range v.V.Artifacts {
			all[component+"@"+digest] = true
		}
	}
	return all, nil
}

// newAppID returns the identifier of a new app. It is derived from the name, so that
// artifacts pushed before the first version belong to the app.
func newAppID(org fairlead.OrgID, name string) fairlead.AppID {
	sum := sha256.Sum256([]byte(string(org) + "\n" + name))
	return fairlead.AppID(fairlead.PrefixApp + "_" + hex.EncodeToString(sum[:])[:26])
}

// PushAccess is a registry with a login to push an app's artifacts.
type PushAccess struct {
	Host         string            // "": the control plane's own registry, where an API token is the login
	Repositories map[string]string // by component
	Images       map[string]string // by component, of the images that builds make; nil: they are where other built artifacts are
	identity.Login
}

// OpenForPush returns the repositories for the artifacts of an app's components, and a
// login for them. The app need not exist yet.
func (cat *Catalog) OpenForPush(ctx context.Context, org fairlead.OrgID, app string, components []string) (PushAccess, error) {
	if err := fairlead.CheckName("app", app); err != nil {
		return PushAccess{}, err
	}
	out := PushAccess{Repositories: map[string]string{}}
	for _, comp := range components {
		if err := appspec.CheckPart(comp); err != nil {
			return PushAccess{}, err
		}
		out.Repositories[comp] = Repository(org, app, comp)
	}
	id, err := appIDOf(cat.Reading(ctx), org, app)
	if err != nil {
		return PushAccess{}, err
	}
	if cat.Artifacts == nil {
		out.Images = map[string]string{}
		for _, comp := range components {
			out.Images[comp] = builtImages(org, id, comp)
		}
		return out, nil
	}
	out.Host = cat.Artifacts.Host()
	for comp := range out.Repositories {
		out.Repositories[comp] = cat.Artifacts.Repository(id, comp)
	}
	if out.Login, err = cat.Artifacts.OpenForPush(ctx, id, components); err != nil {
		return PushAccess{}, registryUnavailable(err)
	}
	return out, nil
}

func registryUnavailable(err error) error {
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeRegistryUnavailable, Message: "the artifact registry issues no login now", Hint: "Try again in a moment.", Err: err}
}

// RepositoryOf returns the repository of a component's artifact in the version.
func RepositoryOf(tx *kernel.Tx, v Version, component string) (string, error) {
	c, _ := v.Spec.Component(component)
	if c.Built() {
		return builtRepository(tx, v.Org, v.App, component, c.Build != nil)
	}
	name := artifactName(component, false)
	if tx.Artifacts == nil {
		return Repository(v.Org, v.App, name), nil
	}
	app, err := tx.Store.App(tx.Ctx, v.Org, v.App)
	if err != nil {
		return "", err
	}
	return tx.Artifacts.Repository(app.V.ID, name), nil
}

// ImageBuildAccess returns access to the service that builds the image of the holder's
// build job. If there is no such service, or the job builds no image, the error is of
// KindNotFound, and the step builds the image itself.
func (cat *Catalog) ImageBuildAccess(ctx context.Context, h kernel.Holder) (identity.Access, error) {
	tx := cat.Reading(ctx)
	r, err := tx.Held(ctx, h)
	if err != nil {
		return identity.Access{}, err
	}
	if cat.ImageBuilds == nil || r.V.Build == nil || r.V.Build.Image == nil {
		return identity.Access{}, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeNoImageBuilds,
			Message: fmt.Sprintf("no service of the control plane builds an image for job %s", h.Job), Hint: "Build the image on the runner."}
	}
	app, err := appIDOf(tx, r.V.Org, r.V.Build.App)
	if err != nil {
		return identity.Access{}, err
	}
	a, err := cat.ImageBuilds.BuildImage(ctx, app, h.Job, h.Epoch)
	if err != nil {
		return identity.Access{}, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeImageBuildsUnavailable, Message: "the control plane gives no access to the service that builds images now", Hint: "Try again in a moment.", Err: fmt.Errorf("job %s: %w", h.Job, err)}
	}
	return a, nil
}

// PullLogin returns the login with which the holder's job pulls its artifacts, or with
// which a build pushes its artifact. ok is
// false if the job's own token is the login.
func (cat *Catalog) PullLogin(ctx context.Context, h kernel.Holder) (l identity.Login, ok bool, err error) {
	if cat.Artifacts == nil || cat.Access == nil {
		_, err := cat.Held(ctx, h)
		return identity.Login{}, false, err
	}
	tx := cat.Reading(ctx)
	r, err := tx.Held(ctx, h)
	if err != nil {
		return identity.Login{}, false, err
	}
	j := r.V
	if b := j.Build; b != nil {
		app, err := appIDOf(tx, j.Org, b.App)
		if err != nil {
			return identity.Login{}, false, err
		}
		if l, err = cat.Artifacts.OpenForBuild(ctx, app, b.Component); err != nil {
			return identity.Login{}, false, registryUnavailable(fmt.Errorf("job %s: %w", h.Job, err))
		}
		return l, true, nil
	}
	v, err := ReadVersion(tx, j.Version)
	if err != nil {
		return identity.Login{}, false, err
	}
	app, err := cat.Store.App(ctx, v.Org, v.App)
	if err != nil {
		return identity.Login{}, false, err
	}
	a, err := cat.Access.Grant(ctx, identity.Scope{Runner: j.Runner, Install: j.Install, App: app.V.ID, Job: h.Job, Epoch: h.Epoch})
	if err == nil {
		l, err = cat.Artifacts.Login(ctx, a)
	}
	if err != nil {
		return identity.Login{}, false, registryUnavailable(fmt.Errorf("job %s: %w", h.Job, err))
	}
	return l, true, nil
}
