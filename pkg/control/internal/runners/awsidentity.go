package runners

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/store"
)

// roleWait is how long a runner may wait for the first proof of a role that is
// known by its name only: a customer may need a change window to install it.
const roleWait = 7 * 24 * time.Hour

// AWSProof is an agent's proof of the AWS role that it has.
type AWSProof struct {
	awsiam.Proof
	// Audience is the host by which agents reach this control plane, as
	// awsiam.Audience gives it; not what the request says.
	Audience string
}

// proveRole returns the role that has made the proof, if the runner trusts it.
func (f *Fleet) proveRole(ctx context.Context, r store.Runner, p SessionProof) (awsiam.Identity, error) {
	if r.Trust == nil {
		return awsiam.Identity{}, sessionRefused()
	}
	if f.AWS == nil || p.AWS.Audience == "" {
		e := sessionRefused()
		e.Message = "this control plane verifies no AWS identities"
		e.Hint = "Enrol the agent with a token instead: {runner.enrol}."
		return awsiam.Identity{}, e
	}
	role, err := f.AWS.Verify(ctx, p.AWS.Proof, awsiam.Challenge{Nonce: p.Nonce, Audience: p.AWS.Audience, Statement: p.Statement})
	if err != nil {
		return awsiam.Identity{}, roleRefused(err)
	}
	_, err = r.Trust.Match(role, f.Now())
	return role, roleRefused(err)
}

// admitRole decides in a commit: the rule may have changed since the proof was
// sent to STS. A rule that was waiting for this role waits no more.
func admitRole(tx *kernel.Tx, r store.Runner, role awsiam.Identity) error {
	now, err := tx.Store.Runner(tx.Ctx, r.Org, r.Name)
	if err != nil {
		return err
	}
	if now.V.Trust == nil {
		return sessionRefused()
	}
	t, err := now.V.Trust.Match(role, tx.Now)
	if err != nil {
		return roleRefused(err)
	}
	if t != *now.V.Trust {
		now.V.Trust = &t
		tx.PutRunner(now)
	}
	return nil
}

// roleRefused says of a role what can be said to its holder. It tells nothing of the
// runner's rule but that this role does not meet it.
func roleRefused(err error) error {
	return proofRefused(err, "{runner.show} shows the role that the runner trusts.")
}

// proofRefused puts why a proof is not accepted into the refusal of a session.
func proofRefused(err error, hint string) error {
	e, ok := errors.AsType[*fairlead.Error](err)
	if !ok || e.Kind != fairlead.KindUnauthenticated {
		return err
	}
	out := sessionRefused()
	out.Message, out.Details, out.Err, out.Hint = e.Message, e.Details, e.Err, hint
	return out
}

// trustOf returns the rule of a new runner, nil if it has none.
func trustOf(in NewRunner, now time.Time) (*awsiam.Trust, error) {
	if in.AWSRole == "" && in.AWSRoleID == "" {
		return nil, nil
	}
	t, err := awsiam.ParseTrust(in.AWSRole, in.AWSRoleID, now.Add(roleWait).UTC().Truncate(time.Second))
	return &t, err
}
