package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
)

// Restored reports what AfterRestore changed.
type Restored struct {
	Generation  int64 // of the table, now
	Queues      int   // of runners, which exist now; 0 if the driver makes them at their first use
	Installs    int   // all installs
	Components  int   // components that exist in the backup, and are unknown now
	Deployments int   // deployments that were not finished in the backup, and are canceled now
	Blobs       int   // blobs that were deleted after the backup, and exist again
	// Lost has the components whose state or values are in a blob of which no bytes are left, as install/component.
	Lost []string
}

// restorer is the actor of the cancellations of AfterRestore.
var restorer = fairlead.Actor{Name: "ops restore"}

// ErrTableIsCopy means that a table is a copy of another table, and that AfterRestore has
// not made it safe to use.
var ErrTableIsCopy = errors.New("the table is a copy of another table")

// OpenTable returns the generation of the table with the name. The first call records the
// name in the table. A table that has another name on record is a copy: OpenTable refuses
// it with ErrTableIsCopy until AfterRestore has made it safe to use.
func (c *Control) OpenTable(ctx context.Context, name string) (generation int64, err error) {
	err = c.Transact(ctx, "open table "+name, func(tx *kernel.Tx) error {
		g, err := c.Store.Generation(ctx)
		switch generation = g.V.Number; {
		case err != nil || g.V.Table == name:
			return err
		case g.V.Table != "":
			return fmt.Errorf("open table %s: %w: %s", name, ErrTableIsCopy, g.V.Table)
		}
		g.V.Table = name
		tx.PutGeneration(g)
		return nil
	})
	return generation, err
}

// AfterRestore makes a table that was restored from a backup safe to use. Run it before
// the control plane serves the table. The table is the name of the table in its engine, as
// in OpenTable; "": the engine has no names. The table does not know the jobs after the
// backup, so AfterRestore does five things:
//
//   - It raises the generation, so that every session, launch token and lease from before
//     the restore is refused. The caller makes its Minter after AfterRestore.
//   - It cancels unfinished deployments: a plan of the backup can be outdated or applied.
//   - It marks each component that exists in the backup as unknown, so that its next plan
//     decides. Auto-approval does not cover changes of that plan. The same is true for the
//     first plan of a component that does not exist in the backup: jobs after it may have
//     made the component.
//   - It makes the blobs exist again that the table names and that were deleted after the backup, if the
//     blob store keeps deleted ones.
//   - It makes the queue of each runner and the place of each install's logs, unless they
//     exist. The sweep sends the wake-ups of queued jobs.
//
// It is safe to repeat after an error.
func (c *Control) AfterRestore(ctx context.Context, table string) (Restored, error) {
	var out Restored
	err := c.Transact(ctx, "raise the generation of the table", func(tx *kernel.Tx) error {
		g, err := c.Store.Generation(ctx)
		if err != nil {
			return err
		}
		// The time makes the number unique: two restores of one backup must not share a number.
		g.V = store.Generation{Number: max(g.V.Number+1, tx.Now.UnixMilli()), Restored: tx.Now, Table: g.V.Table, TrustsMoved: g.V.TrustsMoved}
		out.Generation = g.V.Number
		tx.PutGeneration(g)
		return nil
	})
	if err != nil {
		return out, err
	}
	orgs, err := c.Store.OrgNames(ctx)
	if err != nil {
		return out, err
	}
	if out.Queues, err = c.MakeQueues(ctx, orgs); err != nil {
		return out, err
	}
	for _, org := range orgs {
		if err := c.afterRestore(ctx, org, &out); err != nil {
			return out, err
		}
	}
	// The last write, because OpenTable then accepts the table.
	return out, c.Transact(ctx, "name the table "+table, func(tx *kernel.Tx) error {
		g, err := c.Store.Generation(ctx)
		if err != nil || g.V.Table == table {
			return err
		}
		g.V.Table = table
		tx.PutGeneration(g)
		return nil
	})
}

// afterRestore is the part of AfterRestore for one org.
func (c *Control) afterRestore(ctx context.Context, org fairlead.OrgID, out *Restored) error {
	installs := func(q fairlead.PageQuery) (store.Page[store.Install], error) { return c.Store.Installs(ctx, org, q) }
	for inst, err := range store.Pages(installs) {
		if err != nil {
			return fmt.Errorf("list the installs: %w", err)
		}
		out.Installs++
		if c.Records != nil {
			if err := c.Records.Make(ctx, inst.V.ID); err != nil {
				return fmt.Errorf("make the place of the logs of install %s: %w", inst.V.Name, err)
			}
		}
		for _, id := range slices.DeleteFunc(append([]fairlead.DeploymentID{inst.V.Active}, inst.V.Queue...), func(id fairlead.DeploymentID) bool { return id == "" }) {
			if _, err := c.EndDeployment(ctx, org, id, deployment.Cancel{By: restorer}); err != nil {
				return fmt.Errorf("cancel deployment %s of install %s: %w", id, inst.V.Name, err)
			}
			out.Deployments++
		}
		if err := c.revive(ctx, inst.V, out); err != nil {
			return fmt.Errorf("bring back the blobs of install %s: %w", inst.V.Name, err)
		}
		n, err := c.doubt(ctx, inst.V)
		out.Components += n
		if err != nil {
			return fmt.Errorf("mark the components of install %s: %w", inst.V.Name, err)
		}
	}
	return nil
}

// revive makes the current states of the install's components, and their values, exist again. Jobs after the backup have replaced
// them: a state is deleted when 20 newer ones exist, and a long apply writes one every few seconds.
func (c *Control) revive(ctx context.Context, inst store.Install, out *Restored) error {
	blobs, ok := c.Blobs.(blob.Reviver)
	if !ok {
		return nil
	}
	named := map[string][]string{} // keys of blobs by component
	heads, err := c.Store.States(ctx, inst.ID)
	if err != nil {
		return err
	}
	for _, h := range heads {
		named[h.V.Component] = append(named[h.V.Component], h.V.Blob)
	}
	components, err := c.Store.Components(ctx, inst.ID)
	if err != nil {
		return err
	}
	for _, k := range components {
		named[k.V.Name] = append(named[k.V.Name], k.V.VarsBlob, k.V.OutputsBlob)
	}
	for _, component := range slices.Sorted(maps.Keys(named)) {
		lost := false
		for _, key := range slices.DeleteFunc(named[component], func(key string) bool { return key == "" }) {
			revived, err := blobs.Revive(ctx, key)
			if errors.Is(err, blob.ErrNotFound) {
				lost = true
				continue
			}
			if err != nil {
				return err
			}
			if revived {
				out.Blobs++
			}
		}
		if lost {
			out.Lost = append(out.Lost, inst.Name+"/"+component)
		}
	}
	return nil
}

// doubt marks the install and each of its components as restored, so that a person approves
// the next plan of each. Components that exist become unknown; doubt returns their number. A
// component without a record, which an app version after the backup may have, has the mark of
// the install. Each component has its own commit, because an install has more components than
// one commit may change.
func (c *Control) doubt(ctx context.Context, inst store.Install) (int, error) {
	err := c.Transact(ctx, "mark install "+inst.Name, func(tx *kernel.Tx) error {
		now, err := c.Store.Install(ctx, inst.Org, inst.Name)
		if err != nil {
			return err
		}
		now.V.Restored = tx.Now
		tx.PutInstall(now)
		return nil
	})
	if err != nil {
		return 0, err
	}
	all, err := c.Store.Components(ctx, inst.ID)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, k := range all {
		marked := false
		err := c.Transact(ctx, "mark component "+k.V.Name, func(tx *kernel.Tx) error {
			now, err := tx.Component(inst.ID, k.V.Name)
			if err != nil {
				return err
			}
			now.V.Restored = tx.Now
			if marked = now.V.State != store.Absent; marked {
				now.V.State = store.Unknown
			}
			tx.PutComponent(now)
			return nil
		})
		if err != nil {
			return n, err
		}
		if marked {
			n++
		}
	}
	return n, nil
}
