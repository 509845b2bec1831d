package step

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

// verify returns the job spec of the answer, which one of the keys signed that replace the pinned ones. Its error is a *events.Refusal.
func (a *execution) verify(ctx context.Context, started wire.Started) (events.JobSpec, error) {
	var pinned []ed25519.PublicKey
	for _, k := range a.in.Keys {
		pinned = append(pinned, ed25519.PublicKey(k.PublicKey))
	}
	var chain [][]byte
	for _, set := range started.KeySets {
		chain = append(chain, set)
	}
	trusted, err := events.Follow(ctx, pinned, chain)
	if err != nil {
		return events.JobSpec{}, err
	}
	spec, err := events.Verify(ctx, started.Envelope, trusted.Keys, events.Expect{
		Runner: a.in.Runner, Install: a.in.Install, InstallID: fairlead.InstallID(a.in.InstallID), Job: a.in.Job, Epoch: a.in.Epoch, Operation: a.in.Operation,
		Operations: a.Plugins.Operations(a.in.Plugin), Image: a.Image,
	}, a.Now())
	if err != nil {
		return events.JobSpec{}, err
	}
	return spec, a.keepKeySet(ctx, spec, pinned, trusted)
}

// keepKeySet refuses a control plane that hides or replaces a key set which a job of the same pinned keys has followed, and keeps the
// newest key set in the customer's ledger. A runner without a ledger cannot notice that.
func (a *execution) keepKeySet(ctx context.Context, spec events.JobSpec, pinned []ed25519.PublicKey, trusted events.Trusted) error {
	if a.in.Ledger == "" || job.Operation(spec.Operation).OfRunner() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, headTime)
	defer cancel()
	var followed []record.KeySet
	for _, f := range trusted.Followed {
		followed = append(followed, record.KeySet{Number: f.Number, Digest: f.Digest, At: a.Now().UTC(), Job: string(spec.Job)})
	}
	l, err := a.openLedger(ctx)
	if err == nil {
		err = record.KeepKeySet(ctx, l, events.IDsOf(pinned), followed)
	}
	switch lost, ok := errors.AsType[*record.LostKeySetError](err); {
	case ok:
		return &events.Refusal{Reason: fairlead.ReasonSpecSignature, Message: lost.Error()}
	case err != nil:
		return &events.Refusal{Reason: fairlead.ReasonPolicyUnavailable,
			Message: fmt.Sprintf("the keys of the control plane cannot be compared with the customer's ledger %s, so nothing was started: %v", a.in.Ledger, err)}
	}
	return nil
}
