package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// maxVersionNames is the largest number of names of one version. A pipeline that publishes an unchanged app under a new
// name each day would otherwise make the list of names grow without end.
const maxVersionNames = 50

// nameVersion gives the app's version the name as, unless as is "", and returns all names of the version. It changes
// nothing if the version has the name already.
func nameVersion(tx *kernel.Tx, app store.App, id fairlead.VersionID, as string) ([]string, error) {
	names, err := tx.Store.VersionNames(tx.Ctx, id)
	if err != nil || as == "" {
		return names.V.Names, err
	}
	switch taken, err := store.Optional(tx.Store.VersionName(tx.Ctx, app.ID, as)); {
	case err != nil:
		return nil, err
	case taken.Version != 0 && taken.V.ID != id:
		return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeVersionNameTaken,
			Message: fmt.Sprintf("the name %s belongs to version %s of app %s, which has another content; a name never moves", as, taken.V.ID, app.Name),
			Hint:    "Publish it under another name, or without a name.",
			Details: map[string]string{"app": app.Name, "name": as, "version": string(taken.V.ID)}}
	case taken.Version != 0:
		return names.V.Names, nil
	case len(names.V.Names) >= maxVersionNames:
		return nil, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeTooManyVersionNames,
			Message: fmt.Sprintf("version %s of app %s has %d names already", id, app.Name, maxVersionNames),
			Hint:    "The version needs no further name: use one that it has.",
			Details: map[string]string{"app": app.Name, "version": string(id)}}
	}
	tx.PutVersionName(app.ID, store.VersionName{Name: as, ID: id, Created: tx.Now})
	names.V.Names = append(slices.Clone(names.V.Names), as)
	tx.PutVersionNames(id, names)
	return names.V.Names, nil
}

// VersionNames returns the names of a version, in the order in which they were given. It reads them once in a Tx.
func VersionNames(tx *kernel.Tx, id fairlead.VersionID) ([]string, error) {
	if id == "" {
		return nil, nil
	}
	return kernel.Cached(tx, "version names "+string(id), func() ([]string, error) {
		r, err := tx.Store.VersionNames(tx.Ctx, id)
		return r.V.Names, err
	})
}

// FindVersion returns the version of the org's app that ref selects: an identifier, or a name. A version of another org is
// reported as not found, even if its app has the same name.
func FindVersion(tx *kernel.Tx, org fairlead.OrgID, app, ref string) (Version, error) {
	id := fairlead.VersionID(ref)
	if !fairlead.LooksLikeVersionID(ref) {
		a, err := tx.Store.App(tx.Ctx, org, app)
		if err != nil {
			return Version{}, err
		}
		named, err := tx.Store.VersionName(tx.Ctx, a.V.ID, ref)
		if err != nil {
			return Version{}, err
		}
		id = named.V.ID
	}
	v, err := ReadVersion(tx, id)
	switch {
	case err != nil:
		return Version{}, err
	case v.Org != org:
		return Version{}, fairlead.NotFound(fairlead.CodeVersionNotFound, ref)
	case v.App != app: // within an org, an app's name is unique
		return Version{}, fairlead.Invalid(fairlead.CodeVersionOfOtherApp, "version %s is of app %s, not %s", ref, v.App, app)
	}
	return v, nil
}

// Version returns the version of the app that ref selects: an identifier, or a name.
func (cat *Catalog) Version(ctx context.Context, org fairlead.OrgID, app, ref string) (Version, error) {
	tx := cat.Reading(ctx)
	v, err := FindVersion(tx, org, app, ref)
	if err == nil {
		v.Names, err = VersionNames(tx, v.ID)
	}
	return v, err
}
