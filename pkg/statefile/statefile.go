// Package statefile encrypts Terraform states for the control plane, which stores them and cannot open them. The package is
// pure.
//
// An encrypted state is a JSON object. The fields that the control plane compares stay in clear:
//
//	{
//	  "version": 1000,
//	  "serial": 7,
//	  "lineage": "…",
//	  "encrypted_for_install": {
//	    "version": 4,
//	    "state": "…"
//	  }
//	}
//
// The field state is sealed (package installkey), in base64. Its place is "state/<component>". Before it is sealed, it is a
// line with the fields in clear, which Open compares, then the state, both compressed. The inner version is that of the state. No tool knows the version 1000. So a tool that gets the object refuses it, and does
// not take it for a state without resources, which would make it create every resource again.
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
)

// EncryptedVersion is the format version of an encrypted state.
const EncryptedVersion = 1000

// MaxState is the largest state that Open returns, in bytes.
const MaxState = 256 << 20

// Head is what everyone may know of a state.
type Head struct {
	Version int64 // of the state's format; 0: it has none, as one that OpenTofu encrypts
	Serial  int64
	Lineage string // "": the tool has never saved the state
	Key     string // the id of the key for which the state is encrypted, as installkey.Public.ID returns it; "": the state is in clear
}

type file struct {
	Version   int64      `json:"version"`
	Serial    int64      `json:"serial"`
	Lineage   string     `json:"lineage"`
	Encrypted *encrypted `json:"encrypted_for_install,omitempty"`
}

type encrypted struct {
	Version int64  `json:"version"`
	State   []byte `json:"state"`
}

func parse(stored []byte) (file, Head, error) {
	var f file
	if err := json.Unmarshal(stored, &f); err != nil {
		return f, Head{}, fmt.Errorf("read a state: %w", err)
	}
	h := Head{Version: f.Version, Serial: f.Serial, Lineage: f.Lineage}
	if f.Encrypted == nil {
		return f, h, nil
	}
	h.Version, h.Key = f.Encrypted.Version, installkey.KeyOf(f.Encrypted.State)
	if f.Version != EncryptedVersion || h.Key == "" {
		return f, Head{}, errors.New("read a state: its encrypted part has an unknown format")
	}
	return f, h, nil
}

// Read returns the head of a stored state. The error reports bytes that are no state.
func Read(stored []byte) (Head, error) {
	_, h, err := parse(stored)
	return h, err
}

// line returns the fields in clear as the first line of the sealed value.
func (h Head) line() []byte { return fmt.Appendf(nil, "%d %d %q\n", h.Version, h.Serial, h.Lineage) }

// Sealer seals a value: an installkey.Ring or an installkey.Public.
type Sealer interface {
	Seal(place string, value []byte) ([]byte, error)
}

func placeOf(component string) string { return "state/" + component }

// Seal encrypts a component's state.
func Seal(with Sealer, component string, state []byte) ([]byte, error) {
	_, h, err := parse(state)
	if err == nil && h.Key != "" {
		err = errors.New("it is encrypted already")
	}
	if err != nil {
		return nil, fmt.Errorf("encrypt the state of %s: %w", component, err)
	}
	small, err := installkey.Compress(append(h.line(), state...))
	if err != nil {
		return nil, fmt.Errorf("encrypt the state of %s: %w", component, err)
	}
	sealed, err := with.Seal(placeOf(component), small)
	if err != nil {
		return nil, fmt.Errorf("encrypt the state of %s: %w", component, err)
	}
	return json.Marshal(file{Version: EncryptedVersion, Serial: h.Serial, Lineage: h.Lineage, Encrypted: &encrypted{Version: h.Version, State: sealed}})
}

// Opened is a state in clear, and where it comes from.
type Opened struct {
	State     []byte
	Encrypted bool // it was encrypted
	Own       bool // a holder of the seed encrypted it
	Current   bool // it is encrypted for the current key of the ring
}

// Open returns the state of a component that is stored. The error is one of package installkey: it wraps ErrUnknownKey or
// ErrDamaged. Anyone could have made a state that is not Own: the caller decides whether to use it.
func Open(keys installkey.Ring, component string, stored []byte) (Opened, error) {
	f, h, err := parse(stored)
	if err != nil {
		return Opened{}, damaged(component, err)
	}
	if f.Encrypted == nil {
		return Opened{State: stored}, nil
	}
	o := Opened{Encrypted: true, Own: true, Current: !keys.IsZero() && keys.Current().Public().ID() == h.Key}
	small, err := keys.OpenOwn(placeOf(component), f.Encrypted.State)
	if errors.Is(err, installkey.ErrForeign) {
		o.Own = false
		small, err = keys.Open(placeOf(component), f.Encrypted.State)
	}
	if err != nil {
		return Opened{}, err
	}
	value, err := installkey.Decompress(small, MaxState)
	if err != nil {
		return Opened{}, damaged(component, err)
	}
	state, same := bytes.CutPrefix(value, h.line())
	if !same {
		return Opened{}, damaged(component, errors.New("its fields in clear differ from the encrypted state"))
	}
	o.State = state
	return o, nil
}

func damaged(component string, why error) error {
	return &fairlead.Error{Kind: fairlead.KindInternal, Code: fairlead.CodeEncryptedValueDamaged,
		Message: fmt.Sprintf("the stored state of component %s is damaged: %v", component, why),
		Hint:    "The state was changed after it was stored. Find out who can write to the control plane's storage. Then push a copy of the state.", Err: errors.Join(installkey.ErrDamaged, why)}
}
