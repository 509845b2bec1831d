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

// roleWait is the time in which a role must prove itself for the first time, if the
// runner knows only the role's name and not its unique id. It is long, because a customer
// may need a change window to install the role.
const roleWait = 7 * 24 * time.Hour

// AWSProof is an agent's proof of its AWS role.
type AWSProof struct {
	awsiam.Proof
	// Audience is the host under which agents reach this control plane, from
	// awsiam.Audience. It must not come from the request.
	Audience string
}

// proveRole verifies the proof and returns the role. It returns an error if the proof is
// not valid, or if the runner does not trust the role.
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

// admitRole checks the role again in the commit, because the runner's rule may have
// changed while STS verified the proof. If the rule has only the role's
// name, the first role that matches fixes the rule to its unique id.
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

// roleRefused returns the refusal of a session for an error about its AWS role. The
// message does not reveal the runner's rule, only that the role does not match it.
func roleRefused(err error) error {
	return proofRefused(err, "{runner.show} shows the role that the runner trusts.")
}

// proofRefused returns the refusal of a session. If err is of KindUnauthenticated, the
// refusal has the message and details of err. proofRefused returns any other err
// unchanged.
func proofRefused(err error, hint string) error {
	e, ok := errors.AsType[*fairlead.Error](err)
	if !ok || e.Kind != fairlead.KindUnauthenticated {
		return err
	}
	out := sessionRefused()
	out.Message, out.Details, out.Err, out.Hint = e.Message, e.Details, e.Err, hint
	return out
}

// trustOf returns the AWS rule of a new runner, or nil if the request sets none.
func trustOf(in NewRunner, now time.Time) (*awsiam.Trust, error) {
	if in.AWSRole == "" && in.AWSRoleID == "" {
		return nil, nil
	}
	t, err := awsiam.ParseTrust(in.AWSRole, in.AWSRoleID, now.Add(roleWait).UTC().Truncate(time.Second))
	return &t, err
}
