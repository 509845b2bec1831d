package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// deleteAtOnce is how many names or versions one commit deletes. A commit has room for 100 writes, of which one checks the
// app.
const deleteAtOnce = 99 / store.DropVersionWrites

// namedInUse is how many installs the refusal of a deletion names.
const namedInUse = 10

// DeleteApp deletes an app with all its versions, their names, and the variables that are set on the app. It refuses with the
// code "app-in-use" while an install uses the app. The artifacts of the app's components are then named by no version, so the
// collection of the control plane's own registry deletes them.
//
// The deletion takes several commits. The first marks the app, so that it gets no version, install or variable any more. If
// the process dies between two commits, the app is still there, and a repeated request completes the deletion.
func (cat *Catalog) DeleteApp(ctx context.Context, org fairlead.OrgID, name string) error {
	d := deletion{org: org, name: name}
	for !d.done {
		if err := cat.Transact(ctx, "delete app "+name, d.next); err != nil {
			return err
		}
		if d.refused != nil {
			return d.refused
		}
	}
	return nil
}

// deletion is the progress of one request to delete an app.
type deletion struct {
	org     fairlead.OrgID
	name    string
	begun   bool  // this request has seen or made the mark
	unused  bool  // no install used the app after it was marked
	refused error // why the app is not deleted
	done    bool
}

// next puts the next writes of the deletion into tx.
func (d *deletion) next(tx *kernel.Tx) error {
	d.refused = nil
	app, err := tx.Store.App(tx.Ctx, d.org, d.name)
	if d.begun && fairlead.KindOf(err) == fairlead.KindNotFound {
		d.done = true // by an earlier try of this commit, or by another request
		return nil
	}
	if err != nil {
		return err
	}
	if !d.unused {
		users, err := installsOf(tx, d.org, d.name)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			d.refused = inUse(d.name, users)
			if app.V.Deleting {
				app.V.Deleting = false
				tx.PutApp(app)
			}
			return nil
		}
		if !app.V.Deleting {
			app.V.Deleting = true
			tx.PutApp(app)
			return nil // an install may have been created after installsOf: the next call looks again
		}
		d.begun, d.unused = true, true
	}
	names, err := tx.Store.NamesOfVersions(tx.Ctx, app.V.ID, fairlead.PageQuery{Limit: deleteAtOnce})
	if err != nil {
		return err
	}
	for _, n := range names.Items {
		tx.DropVersionName(app.V.ID, n.V.Name)
	}
	if len(names.Items) > 0 {
		tx.CheckApp(app)
		return nil
	}
	versions, err := tx.Store.Versions(tx.Ctx, app.V.ID, fairlead.PageQuery{Limit: deleteAtOnce})
	if err != nil {
		return err
	}
	// The newest version is deleted with the app: until then the app can be shown.
	for _, v := range versions.Items {
		if v.V.ID != app.V.Latest {
			tx.DropVersion(app.V.ID, v.V)
		}
	}
	if !tx.Empty() {
		tx.CheckApp(app)
		return nil
	}
	newest, err := store.Optional(tx.Store.Version(tx.Ctx, app.V.Latest))
	if err != nil {
		return err
	}
	if newest.Version != 0 {
		tx.DropVersion(app.V.ID, newest.V)
	}
	tx.DropVariables(d.org, store.Scope{Kind: store.ScopeApp, Name: d.name})
	tx.DeleteApp(app)
	d.begun = true
	tx.OnCommit(func(context.Context) { d.done = true })
	return nil
}

// installsOf returns the names of installs of the app: all, or more than namedInUse.
func installsOf(tx *kernel.Tx, org fairlead.OrgID, app string) ([]string, error) {
	var names []string
	installs := func(q fairlead.PageQuery) (store.Page[store.Install], error) {
		return tx.Store.Installs(tx.Ctx, org, q)
	}
	for in, err := range store.Pages(installs) {
		if err != nil {
			return nil, err
		}
		if in.V.App == app {
			if names = append(names, in.V.Name); len(names) > namedInUse {
				break
			}
		}
	}
	return names, nil
}

func inUse(app string, installs []string) error {
	more := ""
	if len(installs) > namedInUse {
		installs, more = installs[:namedInUse], " and more"
	}
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeAppInUse,
		Message: fmt.Sprintf("app %s is used by the installs %s%s", app, strings.Join(installs, ", "), more),
		Hint:    "Tear down each with {install.teardown}, and delete its records with {install.forget}.",
		Details: map[string]string{"app": app, "installs": strings.Join(installs, ",")}}
}

func deleting(app string) error {
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeAppDeleting,
		Message: fmt.Sprintf("the deletion of app %s has begun, and did not complete", app),
		Hint:    "Repeat the deletion with {app.delete}. Then the name is free.",
		Details: map[string]string{"app": app}}
}

// useApp is ReadApp for a commit after which something refers to the app. The commit fails if the deletion of the app begins
// meanwhile.
func useApp(tx *kernel.Tx, org fairlead.OrgID, name string) (App, error) {
	r, err := tx.Store.App(tx.Ctx, org, name)
	if err != nil {
		return App{}, err
	}
	if r.V.Deleting {
		return App{}, deleting(name)
	}
	tx.CheckApp(r)
	return appOf(tx, r.V)
}
