package runners

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// MoveTrusts makes a service account of each rule for OIDC tokens that an earlier release kept with a runner, and assigns it to the
// runner. The account has the name RUNNER-RULE, and is of the runner's group. Sessions that such a rule opened end: their agents
// open others as the service account. The rules of runners in the sandbox stay, because their app sets them, and those of shared
// runners stay, because a shared runner takes no service account.
//
// Each runner is moved in one commit, so it is safe to repeat after an error, and several processes may do it at once. When all
// runners are moved, a mark in the table spares the next search.
func (f *Fleet) MoveTrusts(ctx context.Context) (moved int, err error) {
	g, err := f.Store.Generation(ctx)
	if err != nil || g.V.TrustsMoved {
		return 0, err
	}
	orgs, err := f.Store.OrgNames(ctx)
	if err != nil {
		return 0, err
	}
	var failed error
	for _, org := range orgs {
		runners := func(q fairlead.PageQuery) (store.Page[store.Runner], error) { return f.Store.Runners(ctx, org, q) }
		for r, err := range store.Pages(runners) {
			if err != nil {
				return moved, fmt.Errorf("list the runners of org %s: %w", org, err)
			}
			if !movable(r.V) {
				continue
			}
			n, err := f.moveTrusts(ctx, org, r.V.Name)
			moved += n
			failed = errors.Join(failed, err) // its rules are accepted as before
		}
	}
	if failed != nil {
		return moved, failed
	}
	return moved, f.Transact(ctx, "record that the rules of runners were moved", func(tx *kernel.Tx) error {
		g, err := f.Store.Generation(ctx)
		if err != nil || g.V.TrustsMoved {
			return err
		}
		g.V.TrustsMoved = true
		tx.PutGeneration(g)
		return nil
	})
}

// movable reports whether service accounts replace the runner's own rules.
func movable(r store.Runner) bool {
	return len(r.Trusts) > 0 && !r.InSandbox && !r.Shared()
}

// moveTrusts moves the rules of one runner.
func (f *Fleet) moveTrusts(ctx context.Context, org fairlead.OrgID, runner string) (moved int, err error) {
	err = f.Transact(ctx, "make service accounts of the rules of runner "+runner, func(tx *kernel.Tx) error {
		moved = 0
		r, err := store.Optional(f.Store.Runner(ctx, org, runner))
		if err != nil || !movable(r.V) {
			return err
		}
		group, err := groupOfRunner(tx, r.V)
		if err != nil {
			return err
		}
		trusts, err := f.Store.Trusts(ctx, r.V.ID)
		if err != nil {
			return err
		}
		taken := map[string]bool{}
		for _, t := range trusts {
			name, err := freeName(tx, org, runner+"-"+t.V.Name, taken)
			if err != nil {
				return err
			}
			taken[name] = true
			a := store.ServiceAccount{Actors: t.V.Actors, ID: f.IDs(fairlead.PrefixAccount), Org: org, Name: name, Group: group, Rev: t.V.Rev, Rule: t.V.Rule, Created: t.V.Created, Changed: t.V.Changed}
			tx.PutServiceAccount(store.Stored[store.ServiceAccount]{V: a})
			tx.PutMember(org, store.Member{Group: group, Kind: store.MemberAccount, Name: name})
			assign(tx, &r.V, a)
			tx.DropTrust(r.V.ID, t.V.Name)
		}
		moved, r.V.Trusts = len(trusts), nil
		tx.PutRunner(r)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if moved > 0 {
		f.Logger.Info("service accounts were made of the rules of a runner", "org", org, "runner", runner, "rules", moved)
	}
	return moved, nil
}

// freeName returns the name, cut to the limit of names, and with a number if an account has it.
func freeName(tx *kernel.Tx, org fairlead.OrgID, name string, taken map[string]bool) (string, error) {
	cut := func(most int) string { return strings.TrimRight(name[:min(len(name), most)], "-") }
	for n, free := 2, cut(fairlead.MaxName); ; n, free = n+1, fmt.Sprintf("%s-%d", cut(fairlead.MaxName-4), n) {
		r, err := store.Optional(tx.Store.ServiceAccount(tx.Ctx, org, free))
		if err != nil || r.Version == 0 && !taken[free] {
			return free, err
		}
	}
}
