package runners

import (
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Builder returns the runner that builds the org's apps: the first by name that is configured to build and is not
// disabled. A shared runner builds for no org, because a build runs tools on sources of the org beside those of others.
func Builder(tx *kernel.Tx, org fairlead.OrgID) (store.Stored[store.Runner], error) {
	all := func(q fairlead.PageQuery) (store.Page[store.Runner], error) { return tx.Store.Runners(tx.Ctx, org, q) }
	for r, err := range store.Pages(all) {
		if err != nil {
			return store.Stored[store.Runner]{}, err
		}
		if r.V.Builds && !r.V.InSandbox && !r.V.Leaving && r.V.VendorMode() != fairlead.ModeDisabled {
			return r, nil
		}
	}
	return store.Stored[store.Runner]{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeNoBuildRunner,
		Message: "no runner of the org builds apps",
		Hint:    "Set runner_configuration.builds to true in the configuration of one of your own runners ({runner.configure}). Its machine needs git."}
}
