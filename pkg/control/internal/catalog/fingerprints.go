package catalog

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/fingerprint"
	"github.com/fairlead/fairlead/pkg/store"
)

// fingerprintKey is a key of fingerprints. nil: there is none, and values get no fingerprint.
type fingerprintKey []byte

func installKeyContext(id fairlead.InstallID) string {
	return "install/" + string(id) + "/fingerprints"
}

// KeepFingerprintKey gives the install a key of fingerprints if it has none. The caller puts the install into the commit.
func KeepFingerprintKey(tx *kernel.Tx, inst *store.Install) error {
	if inst.FingerprintKey != nil {
		return nil
	}
	var err error
	if inst.FingerprintKey, err = newFingerprintKey(tx, installKeyContext(inst.ID)); err != nil {
		return fmt.Errorf("make the key of the fingerprints of install %s: %w", inst.Name, err)
	}
	return nil
}

// newFingerprintKey returns a new key, sealed.
func newFingerprintKey(tx *kernel.Tx, place string) ([]byte, error) {
	key := make([]byte, fingerprint.KeySize)
	for i := range key {
		key[i] = byte(tx.Pick(256))
	}
	return tx.Sealer.Seal(tx.Ctx, key, place)
}

// openFingerprintKey opens a key once in a Tx.
func openFingerprintKey(tx *kernel.Tx, sealed []byte, place string) (fingerprintKey, error) {
	if sealed == nil {
		return nil, nil
	}
	key, err := kernel.Cached(tx, "key "+place+" "+string(sealed), func() ([]byte, error) { return tx.Sealer.Open(tx.Ctx, sealed, place) })
	if err != nil {
		return nil, fmt.Errorf("open a key of fingerprints: %w", err)
	}
	return key, nil
}

func installFingerprintKey(tx *kernel.Tx, inst store.Install) (fingerprintKey, error) {
	return openFingerprintKey(tx, inst.FingerprintKey, installKeyContext(inst.ID))
}

// known returns what a record keeps of a value beside its sealed bytes. raw is the value as JSON.
func (k fingerprintKey) known(raw []byte, place string) store.Known {
	value, err := kernel.DecodeJSON(raw)
	if err != nil {
		return store.Known{} // the reader of the value reports it
	}
	out := store.Known{Type: string(appspec.TypeOf(value)), Size: len(raw)}
	if k != nil {
		// The error is that of a value that is nested too deep. Its sealed bytes stand in for its fingerprint.
		out.Fingerprint, _ = fingerprint.Of(k, place, value)
	}
	return out
}

// encrypted returns an encrypted value for a reader that passes it on to a step.
func encrypted(value []byte, known store.Known) appspec.Withheld {
	out := withheld(value, known)
	out.Encrypted = string(value)
	return out
}

// withheld returns what is known of a sealed or encrypted value. Without a fingerprint, its sealed bytes identify it: then an equal
// value that was sealed again counts as another one.
func withheld(sealed []byte, known store.Known) appspec.Withheld {
	out := appspec.Withheld{Type: appspec.Type(known.Type), Fingerprint: known.Fingerprint, Size: known.Size}
	if out.Fingerprint == "" {
		out.Fingerprint = "sealed " + digestOf(sealed)
	}
	return out
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// view decides what a reader gets of stored values.
type view int

const (
	// toCompare withholds sealed values, and all outputs of a component whose outputs are in a blob, because the blob is
	// sealed as a whole. It opens nothing.
	toCompare view = iota
	// toCheck withholds sealed values. It opens blobs of outputs, because they have plain outputs too.
	toCheck
	// toOpen withholds only what is encrypted, with its bytes.
	toOpen
)
