package catalog

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Provenance is the signed statement about the build of a component's artifact.
type Provenance struct {
	Version fairlead.VersionID
	events.Provenance
	Envelope []byte // DSSE, as JSON
}

// Provenance returns the provenance of a component of the app's version that ref selects: an identifier, or a name. One of
// keys has signed it. A provenance that is missing has the code "provenance-not-found"; one that is invalid has the code
// "provenance-invalid".
func (cat *Catalog) Provenance(ctx context.Context, org fairlead.OrgID, app, ref, component string, keys []ed25519.PublicKey) (Provenance, error) {
	tx := cat.Reading(ctx)
	v, err := FindVersion(tx, org, app, ref)
	if err != nil {
		return Provenance{}, err
	}
	c, ok := v.Spec.Component(component)
	if !ok {
		return Provenance{}, fairlead.NotFound(fairlead.CodeComponentNotFound, component)
	}
	if !c.Built() {
		return Provenance{}, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeProvenanceNotFound,
			Message: fmt.Sprintf("component %s of app %s is packed from the app's folder: no build made its artifact", component, app),
			Hint:    "{app.show} shows which components are built."}
	}
	built, err := BuiltRef(tx, v, c)
	if err != nil {
		return Provenance{}, err
	}
	if built.Provenance == nil {
		return Provenance{}, &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeProvenanceNotFound,
			Message: fmt.Sprintf("the artifact of component %s of app %s has no provenance", component, app),
			Hint:    "Publish the app again with {app.publish}: a build makes the artifact and its provenance."}
	}
	p, err := opened(ctx, *built, v.Artifacts[component], keys)
	if r, ok := errors.AsType[*events.Refusal](err); ok {
		return Provenance{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeProvenanceInvalid,
			Message: fmt.Sprintf("component %s of app %s: %s", component, app, r.Message),
			Hint:    "Publish the app again with {app.publish}. Also find out who can write to the control plane's table.", Err: err}
	}
	return Provenance{Version: v.ID, Provenance: p, Envelope: built.Provenance}, err
}

// opened returns the verified provenance of the artifact. Its error is an *events.Refusal.
func opened(ctx context.Context, built events.BuiltRef, artifact string, keys []ed25519.PublicKey) (events.Provenance, error) {
	p, err := events.OpenProvenance(ctx, built.Provenance, keys)
	if err == nil {
		err = p.Check(built.Build, built.Revision, artifact)
	}
	return p, err
}

// BuiltRef returns where the artifact of a built component comes from. The job that built it has the provenance. A build
// of an earlier control plane has none.
func BuiltRef(tx *kernel.Tx, v Version, c appspec.Component) (*events.BuiltRef, error) {
	by := v.Builds[c.Name]
	return builtRef(tx, v.Org, v.App, c, by)
}

func builtRef(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, by BuiltBy) (*events.BuiltRef, error) {
	out := &events.BuiltRef{Build: BuildOf(app, c, by.Revision).Public(), Revision: by.Revision}
	out.Build.Org = org
	if by.Job == "" {
		return out, nil
	}
	r, err := tx.Store.Job(tx.Ctx, by.Job)
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
		return nil, err
	}
	if r.V.Build != nil && r.V.Org == org {
		out.Provenance = r.V.Build.Provenance
	}
	return out, nil
}

// proven reports whether a key of the control plane signed that the build made the artifact of the component. A build
// that is not proven is not used for a version, because each step would refuse its artifact.
func proven(tx *kernel.Tx, org fairlead.OrgID, app string, c appspec.Component, b Built) (bool, error) {
	built, err := builtRef(tx, org, app, c, b.BuiltBy)
	if err != nil {
		return false, err
	}
	signing, err := tx.Signing(tx.Ctx)
	if err != nil {
		return false, err
	}
	_, err = opened(tx.Ctx, *built, b.Artifact, signing.Set.Public())
	return err == nil, nil
}

// keptBuilds returns the builds of a version that is published again: those of its record, and the new one in place of each
// that is not proven. The artifacts are the same.
func keptBuilds(tx *kernel.Tx, v Version, made map[string]store.BuiltBy) (kept map[string]store.BuiltBy, changed bool, err error) {
	kept = recorded(v.Builds)
	for name, by := range made {
		c, _ := v.Spec.Component(name)
		ok, err := proven(tx, v.Org, v.App, c, Built{v.Artifacts[name], v.Builds[name]})
		if err != nil {
			return nil, false, err
		}
		if !ok {
			kept[name], changed = by, true
		}
	}
	return kept, changed, nil
}
