package catalog

import (
	"fmt"
	"maps"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/store"
)

// Moved is a secret of an install that a step has encrypted, so that the control plane can no longer open it.
type Moved struct {
	Encrypted
	Of string // digestOf the sealed bytes that it replaces
}

// Moving adds to values the inputs and variables of an install that the control plane sealed before the runner had a seed, or in an
// earlier release. A step encrypts them.
func Moving(tx *kernel.Tx, inst store.Install, r store.Runner, values jobvalues.Values) error {
	if inst.Key == nil && !r.Seeded {
		return nil
	}
	add := func(place string, in store.Input, sealedAt string) error {
		if in.Sealed == nil {
			return nil
		}
		raw, err := openInput(tx, in, sealedAt)
		if err != nil {
			return fmt.Errorf("open %s of install %s: %w", place, inst.Name, err)
		}
		value, err := kernel.DecodeJSON(raw)
		if err != nil {
			return fmt.Errorf("decode %s of install %s: %w", place, inst.Name, err)
		}
		values.AddMoving(place, value, digestOf(in.Sealed))
		return nil
	}
	for name, in := range inst.Inputs {
		if err := add(jobvalues.InputPlace(name), in, inputContext(inst.ID, name)); err != nil {
			return err
		}
	}
	if !inst.HasVars {
		return nil
	}
	scope := store.Scope{Kind: store.ScopeInstall, Name: string(inst.ID)}
	set, err := tx.Store.Variables(tx.Ctx, inst.Org, scope)
	if err != nil {
		return err
	}
	for name, in := range set.V.Values {
		if err := add(jobvalues.VariablePlace(name), in, variableContext(inst.Org, scope, name)); err != nil {
			return err
		}
	}
	return nil
}

// KeepMoved replaces sealed inputs and variables of an install by what a step encrypted. A value that has changed since the step got
// it stays as it is, and so does one that is encrypted with another key than that of the install: a person must compare a new key
// first.
func KeepMoved(tx *kernel.Tx, in store.Stored[store.Install], moved map[string]Moved) error {
	if in.V.Key == nil {
		return nil
	}
	public, err := installkey.ParsePublic(in.V.Key.Public)
	if err != nil {
		return err
	}
	scope := store.Scope{Kind: store.ScopeInstall, Name: string(in.V.ID)}
	set, err := tx.Store.Variables(tx.Ctx, in.V.Org, scope)
	if err != nil {
		return err
	}
	inputs, variables := maps.Clone(in.V.Inputs), maps.Clone(set.V.Values)
	changed := [2]bool{}
	for place, m := range moved {
		if !installkey.Sealed(m.Bytes) || len(m.Type) > maxKnown || len(m.Fingerprint) > maxKnown || m.Size < 0 || len(m.Bytes) > maxInline {
			return fairlead.Invalid(fairlead.CodeInvalidEncryptedValue, "%s of install %s is not an encrypted value", fairlead.Clip(place, 100), in.V.Name)
		}
		name, variable, ok := jobvalues.OfInstall(place)
		of, which := inputs, 0
		if variable {
			of, which = variables, 1
		}
		if sealed := of[name].Sealed; !ok || sealed == nil || digestOf(sealed) != m.Of || installkey.KeyOf(m.Bytes) != public.ID() {
			continue
		}
		of[name] = store.Input{Encrypted: m.Bytes, Known: m.known()}
		changed[which] = true
	}
	if in.V.Inputs = inputs; changed[0] {
		tx.PutInstall(in)
	}
	if set.V.Values = variables; changed[1] {
		tx.PutVariables(set)
	}
	return nil
}
