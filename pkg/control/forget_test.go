package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// grown adds n components to the install acme, and a stored state for each component. The
// last component has the condition last. The other components are absent.
func (p *plane) grown(n int, last store.ComponentState) {
	p.t.Helper()
	in, err := p.Store.Install(p.ctx, org, "acme")
	if err != nil {
		p.t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("c%03d", i)
		key := "state/" + string(in.V.ID) + "/" + name + "/00000001-x"
		p.must("put", func() error { return p.Blobs.Put(p.ctx, key, nil) })
		k := store.Component{Install: in.V.ID, Name: name, State: store.Absent}
		if i == n-1 {
			k.State = last
		}
		var tx store.Tx
		tx.PutComponent(store.Stored[store.Component]{V: k})
		tx.PutState(store.Stored[store.StateHead]{V: store.StateHead{Org: org, Install: in.V.ID, Component: name, Blob: key}})
		if err := p.Store.Commit(p.ctx, "com_"+name, &tx); err != nil {
			p.t.Fatal(err)
		}
	}
}

// An install can be forgotten if it has so many components that one commit of 100 writes is
// not enough.
func TestInstallOfManyComponentsIsForgotten(t *testing.T) {
	const many = 120
	for name, row := range map[string]struct {
		last    store.ComponentState
		abandon bool
		code    fairlead.Code
	}{
		"all are absent":                {last: store.Absent},
		"one is present":                {last: store.Present, code: "install-not-empty"},
		"one is present, and abandoned": {last: store.Present, abandon: true},
		"one is unknown":                {last: store.Unknown, code: "install-not-empty"},
		"one is unknown, and abandoned": {last: store.Unknown, abandon: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(tiny)
				p.must("make an install", func() error {
					return errOf(p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "tiny"}, ""))
				})
				in, err := p.Store.Install(p.ctx, org, "acme")
				if err != nil {
					t.Fatal(err)
				}
				p.grown(many, row.last)
				expectCode(t, "the request to forget it", p.ForgetInstall(p.ctx, org, "acme", row.abandon), row.code)
				want := many
				if row.code == "" {
					want = 0
					if _, err := p.Store.Install(p.ctx, org, "acme"); fairlead.KindOf(err) != fairlead.KindNotFound {
						t.Errorf("the install: %v", err)
					}
				}
				comps, err := p.Store.Components(p.ctx, in.V.ID)
				if err != nil {
					t.Fatal(err)
				}
				heads, err := p.Store.States(p.ctx, in.V.ID)
				if err != nil || len(comps) != want || len(heads) != want || len(p.blobs("")) != want {
					t.Errorf("%d components, %d states in %d blobs are left, want %d of each, %v", len(comps), len(heads), len(p.blobs("")), want, err)
				}
			})
		})
	}
}
