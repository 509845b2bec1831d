package store_test

import (
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// An org that is older than the counts must not get a whole quota in addition to what it has.
func TestOrgOlderThanItsCountIsCounted(t *testing.T) {
	s := store.New(enginetest.Memory())
	of := store.Counted{Org: "org_1", Quota: fairlead.QuotaGroups}
	for n := range 3 {
		var tx store.Tx
		path, err := placement.ParsePath("group-" + strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		tx.PutGroup(store.Stored[store.Group]{V: store.Group{Org: "org_1", Path: path}})
		if changes := tx.Changes(); len(changes) != 1 || changes[0] != (store.Change{Counted: of, By: 1}) {
			t.Errorf("the commit changes the counts by %v", changes)
		}
		if err := s.Commit(t.Context(), "com_"+strconv.Itoa(n), &tx); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Count(t.Context(), of); err != nil || n.V.Number != 3 || n.Version != 0 {
		t.Errorf("the org has %+v groups, %v", n, err)
	}
	if n, err := s.Count(t.Context(), store.Counted{Org: "org_2", Quota: fairlead.QuotaGroups}); err != nil || n.V.Number != 0 {
		t.Errorf("another org has %+v groups, %v", n, err)
	}
}

// A commit counts what it makes and deletes. An update and an operator's shared item change no count.
func TestUpdatesChangeNoCount(t *testing.T) {
	var tx store.Tx
	tx.PutInstall(store.Stored[store.Install]{V: store.Install{Org: "org_1", Name: "a"}, Version: 2})
	tx.PutInstall(store.Stored[store.Install]{V: store.Install{Org: "org_1", Name: "b"}})
	tx.DeleteInstall(store.Stored[store.Install]{V: store.Install{Org: "org_1", Name: "c"}, Version: 1})
	tx.PutRunner(store.Stored[store.Runner]{V: store.Runner{Name: "shared"}})
	if changes := tx.Changes(); len(changes) != 0 {
		t.Errorf("the commit changes the counts by %v", changes)
	}
	tx.DeleteInstall(store.Stored[store.Install]{V: store.Install{Org: "org_1", Name: "d"}, Version: 1})
	if changes := tx.Changes(); len(changes) != 1 || changes[0].By != -1 {
		t.Errorf("the commit changes the counts by %v", changes)
	}
}
