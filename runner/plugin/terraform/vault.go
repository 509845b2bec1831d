package terraform

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

// vault encrypts and opens the state of a component in the control plane. Without a key it changes nothing. Safe for
// concurrent use.
//
// Anyone who has the install's public key can encrypt a state for it, also the control plane. A person does so with
// push-state. And a state that is older than the key is in clear. A vault accepts both kinds only if anyone is set: for a
// plan, which changes nothing and whose changes a person or a policy sees, and for a move. The job then encrypts the state
// itself, so an apply finds only states that a holder of the seed has encrypted.
type vault struct {
	keys      installkey.Ring
	component string
	anyone    bool
	log       io.Writer // of the job

	mu      sync.Mutex
	noted   bool          // the log has a note about the origin of the state
	pending []byte        // the state that the tool has read, if it is not encrypted for the current key by a holder of the seed
	failure *plugin.Error // the first refusal
}

// newVault returns the vault for a state key, <install>/<component>, in a job of a plan, a move or an apply.
func newVault(keys installkey.Ring, key, operation string, log io.Writer) *vault {
	_, component, _ := strings.Cut(key, "/")
	return &vault{keys: keys, component: component, anyone: operation != opApply && operation != opDestroy, log: log}
}

// seal returns the state as the control plane stores it.
func (v *vault) seal(state []byte) ([]byte, error) {
	if v.keys.IsZero() {
		return state, nil
	}
	sealed, err := statefile.Seal(v.keys, v.component, state)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = nil
	return sealed, nil
}

// open returns the state in clear. The error is a *plugin.Error.
func (v *vault) open(stored []byte) ([]byte, error) {
	o, err := statefile.Open(v.keys, v.component, stored)
	own := o.Own || v.keys.IsZero()
	switch {
	case err != nil:
		return nil, v.refused(refusalOf(v.component, err))
	case !own && !v.anyone && o.Encrypted:
		return nil, v.refused(plugin.Errorf(fairlead.ReasonEncryptedForeign, "the stored state of %s was not encrypted by a step of this customer, so it was not used: a person pushed it, or another program wrote it. Plan again, and check the plan", v.component))
	case !own && !v.anyone:
		return nil, v.refused(plugin.Errorf(fairlead.ReasonEncryptedForeign, "the stored state of %s is not encrypted, so it was not used: it is older than the runner's key, or another program wrote it. Plan again, and check the plan", v.component))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pending = nil; !v.keys.IsZero() && !(o.Own && o.Current) {
		if v.pending = o.State; !v.noted {
			v.noted = true
			fmt.Fprintln(v.log, noteOf(o))
		}
	}
	return o.State, nil
}

// noteOf tells a person where a state comes from that will be encrypted again.
func noteOf(o statefile.Opened) string {
	switch {
	case o.Own:
		return "The stored state is encrypted for an earlier key of the install."
	case o.Encrypted:
		return "No step of this customer made the stored state: a person pushed it, or another program wrote it. Check the plan."
	}
	return "The stored state is not encrypted: the control plane can read it, and could have changed it. Check the plan."
}

// refusalOf returns the error of a job whose state does not open.
func refusalOf(component string, err error) *plugin.Error {
	e := &plugin.Error{Reason: fairlead.ReasonEncryptedDamaged, Err: err, Message: err.Error()}
	if f, ok := errors.AsType[*fairlead.Error](err); ok {
		e.Message = f.Message
	}
	if errors.Is(err, installkey.ErrUnknownKey) {
		e.Reason = fairlead.ReasonInstallKeyMissing
		e.Message = fmt.Sprintf("the stored state of %s is encrypted for a key of the install that this runner does not have. Add the earlier seed below the current one on the runner", component)
	}
	return e
}

func (v *vault) refused(e *plugin.Error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failure == nil {
		v.failure = e
	}
	return e
}

// refusal returns the first refusal, or nil.
func (v *vault) refusal() *plugin.Error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failure
}

// unsealed returns the state that the tool has read and that must be encrypted again, or nil.
func (v *vault) unsealed() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pending
}
