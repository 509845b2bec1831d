package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// maxInline is the largest size of a component's outputs, and of its variables, inside
// the component's record, in bytes: each reader of the component reads the whole
// record. Larger values are stored in a sealed blob, which only readers of the values
// fetch.
const maxInline = 64 << 10

// MaxVars bounds the variables of one component, in bytes of JSON, because they are
// part of the job spec.
const MaxVars = job.MaxOutputs

// ValuesPrefix begins the keys of blobs with outputs or variables of components:
// values/<install>/<component>/<name>.
const ValuesPrefix = "values/"

func outputsContext(k store.Component) string {
	return "install/" + string(k.Install) + "/outputs/" + k.Name
}

// maxKnown is the longest type and fingerprint of an encrypted value, in bytes.
const maxKnown = 200

// CheckOutputs refuses outputs that are too large to store, and those that are encrypted in another format.
func CheckOutputs(id fairlead.JobID, given map[string]Output) error {
	for name, o := range given {
		if o.Encrypted == nil {
			continue
		}
		if !o.Sensitive || o.Value != nil || !installkey.Sealed(o.Encrypted.Bytes) || len(o.Encrypted.Type) > maxKnown || len(o.Encrypted.Fingerprint) > maxKnown {
			return fairlead.Invalid(fairlead.CodeInvalidEncryptedValue, "output %q of job %s is not an encrypted value", fairlead.Clip(name, 100), id)
		}
	}
	if size := sizeOf(given); size > job.MaxOutputs {
		return &fairlead.Error{Kind: fairlead.KindTooLarge, Code: fairlead.CodeOutputsTooLarge,
			Message: fmt.Sprintf("the outputs of job %s have %d bytes; a component may have %d", id, size, job.MaxOutputs)}
	}
	return nil
}

func sizeOf(outputs map[string]Output) int {
	size := 0
	for name, o := range outputs {
		size += len(name) + len(o.Value)
		if o.Encrypted != nil {
			size += len(o.Encrypted.Bytes)
		}
	}
	return size
}

// KeepOutputs replaces the outputs of a component of the install. It stores them in the record, with
// sensitive ones sealed and fingerprinted, or all of them in one sealed blob with one fingerprint.
func KeepOutputs(tx *kernel.Tx, inst store.Install, k *store.Component, given map[string]Output) error {
	key, err := installFingerprintKey(tx, inst)
	if err != nil {
		return err
	}
	k.Outputs, k.OutputsBlob, k.OutputsFingerprint = make(map[string]store.Output, len(given)), "", ""
	if sizeOf(given) > maxInline {
		compared := make(map[string]store.Output, len(given))
		for name, o := range given {
			k.Outputs[name] = o.stored()
			// Equal values that are encrypted again have other bytes.
			compared[name] = k.Outputs[name]
			if o.Encrypted != nil {
				compared[name] = store.Output{Sensitive: true, Known: withheldKnown(o.Encrypted)}
			}
		}
		raw, err := kernel.EncodeJSON(k.Outputs)
		if err != nil {
			return fmt.Errorf("encode outputs of component %s: %w", k.Name, err)
		}
		known, err := kernel.EncodeJSON(compared)
		if err != nil {
			return fmt.Errorf("encode outputs of component %s: %w", k.Name, err)
		}
		k.Outputs, k.OutputsFingerprint = nil, key.known(known, outputsContext(*k)).Fingerprint
		k.OutputsBlob, err = putValues(tx, *k, raw, outputsContext(*k))
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		o := given[name].stored()
		if o.Sensitive && o.Encrypted == nil {
			o.Value = nil
			place := outputContext(k.Install, k.Name, name)
			if o.Sealed, err = tx.Sealer.Seal(tx.Ctx, given[name].Value, place); err != nil {
				return fmt.Errorf("seal output %s of component %s: %w", name, k.Name, err)
			}
			o.Known = key.known(given[name].Value, place)
		}
		k.Outputs[name] = o
	}
	return nil
}

// stored returns the output as a record has it, before it is sealed.
func (o Output) stored() store.Output {
	out := store.Output{Value: o.Value, Sensitive: o.Sensitive}
	if o.Encrypted != nil {
		out.Encrypted, out.Known = o.Encrypted.Bytes, o.Encrypted.known()
	}
	return out
}

// withheldKnown returns what is known of an encrypted value, with a digest of its bytes if it has no fingerprint.
func withheldKnown(e *Encrypted) store.Known {
	known := e.known()
	known.Fingerprint = withheld(e.Bytes, known).Fingerprint
	return known
}

// outputsOf returns the component's outputs in their stored form: sensitive ones are
// encrypted, or sealed if they are from the record, and in the clear if they are from a blob. It
// reads the blob once.
func outputsOf(tx *kernel.Tx, k store.Component) (map[string]store.Output, error) {
	if k.OutputsBlob == "" {
		return k.Outputs, nil
	}
	if all, ok := tx.Outputs[k.OutputsBlob]; ok {
		return all, nil
	}
	raw, err := tx.OpenBlob(tx.Ctx, k.OutputsBlob, outputsContext(k))
	if err != nil {
		return nil, fmt.Errorf("read outputs of component %s: %w", k.Name, err)
	}
	var out map[string]store.Output
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("decode outputs of component %s: %w", k.Name, err)
	}
	if tx.Outputs == nil {
		tx.Outputs = map[string]map[string]store.Output{}
	}
	tx.Outputs[k.OutputsBlob] = out
	return out, nil
}

// openOutput returns the value of an output of the component.
func openOutput(tx *kernel.Tx, k store.Component, name string, o store.Output) ([]byte, error) {
	if o.Sealed == nil {
		return o.Value, nil
	}
	raw, err := tx.Sealer.Open(tx.Ctx, o.Sealed, outputContext(k.Install, k.Name, name))
	if err != nil {
		return nil, fmt.Errorf("open output %s of component %s: %w", name, k.Name, err)
	}
	return raw, nil
}

// KeepMade records what the component is made from: the variables, which a later destroy needs, and the digests of them and
// of the environment variables, which later deployments compare. tooLarge is the size of the variables if it is above
// MaxVars; then KeepMade has changed nothing. The caller has checked that each variable has a value.
func KeepMade(tx *kernel.Tx, inst store.Install, v Version, k *store.Component) (tooLarge int, err error) {
	comp, ok := v.Spec.Component(k.Name)
	if !ok {
		return 0, fmt.Errorf("version %s has no component %s", v.ID, k.Name)
	}
	record, err := made(tx, inst, v, comp)
	if err != nil {
		return 0, fmt.Errorf("resolve variables of component %s: %w", k.Name, err)
	}
	raw, err := kernel.EncodeJSON(record)
	if err != nil {
		return 0, fmt.Errorf("encode vars of component %s: %w", k.Name, err)
	}
	if len(raw) > MaxVars {
		return len(raw), nil
	}
	if err := keepVars(tx, k, raw); err != nil {
		return 0, err
	}
	if k.VarDigests, err = varDigests(tx, inst, v, comp, false); err != nil {
		return 0, err
	}
	runner, err := runners.ServingRunner(tx, inst)
	if err != nil {
		return 0, err
	}
	env, err := variablesFor(tx, inst, runner.V)
	if err != nil {
		return 0, err
	}
	k.EnvDigest, err = envDigest(env)
	return 0, err
}

// keepVars stores raw, as JSON, as the variables of the component's last apply.
func keepVars(tx *kernel.Tx, k *store.Component, raw []byte) (err error) {
	k.Vars, k.VarsBlob = nil, ""
	if len(raw) > maxInline {
		k.VarsBlob, err = putValues(tx, *k, raw, varsContext(k.Install, k.Name))
		return err
	}
	if k.Vars, err = tx.Sealer.Seal(tx.Ctx, raw, varsContext(k.Install, k.Name)); err != nil {
		return fmt.Errorf("seal vars of component %s: %w", k.Name, err)
	}
	return nil
}

// varsOf returns the variables of the component's last apply as JSON, or nil if there
// are none.
func varsOf(tx *kernel.Tx, k store.Component) (raw []byte, err error) {
	switch {
	case k.VarsBlob != "":
		return tx.OpenBlob(tx.Ctx, k.VarsBlob, varsContext(k.Install, k.Name))
	case k.Vars == nil:
		return nil, nil
	}
	return tx.Sealer.Open(tx.Ctx, k.Vars, varsContext(k.Install, k.Name))
}

// putValues stores values of the component in a blob, to which the commit must refer.
// CollectBlobs deletes the blobs of failed commits and replaced blobs later, because a
// reader may still have the key of a replaced one.
func putValues(tx *kernel.Tx, k store.Component, raw []byte, sealContext string) (key string, err error) {
	key = ValuesPrefix + string(k.Install) + "/" + k.Name + "/" + tx.IDs("w")
	return key, tx.SealBlob(tx.Ctx, key, raw, sealContext)
}
