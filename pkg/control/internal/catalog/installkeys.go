package catalog

import (
	"context"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/store"
)

// ReportKeys records the public keys of installs that an agent of their runner reports. It ignores installs whose keys are not
// wanted from this runner, and those of installs whose jobs two runners run: a person would encrypt with a key that one of them may
// not have. A job that uses the key reports it.
func (cat *Catalog) ReportKeys(ctx context.Context, s runners.Session, keys map[fairlead.InstallID]string) error {
	for id, public := range keys {
		if _, err := installkey.ParsePublic(public); err != nil {
			return err
		}
		if err := cat.Transact(ctx, "record the key of install "+string(id), func(tx *kernel.Tx) error {
			n, err := tx.Store.RunnerName(ctx, s.Runner)
			if err != nil {
				return err
			}
			r, err := tx.Store.Runner(ctx, n.V.Org, n.V.Name)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(r.V.KeysWanted, func(w store.WantedKey) bool { return w.Install == id })
			if i < 0 {
				return nil
			}
			w := r.V.KeysWanted[i]
			r.V.KeysWanted = slices.Delete(slices.Clone(r.V.KeysWanted), i, i+1)
			tx.PutRunner(r)
			in, err := store.Optional(tx.Store.Install(ctx, w.Org, w.Name))
			if err != nil || in.V.ID != id {
				return err // the install was forgotten
			}
			app, err := ReadApp(tx, w.Org, in.V.App)
			if err != nil || severalRunners(app.Newest.Spec) {
				return err
			}
			if runners.KeepKey(&in.V, store.InstallKey{Public: public, Since: tx.Now, Runner: s.Runner, Session: s.ID}) {
				tx.PutInstall(in)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
