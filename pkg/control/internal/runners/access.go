package runners

import (
	"context"
	"strings"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// SessionAccess returns credentials with which the session reads its runner's queue
// directly, or nil if the control plane has no such credentials or cannot get them: then
// the session claims through the API. The credentials name no install, because a runner
// may serve many. They are for agents of every kind, wherever they run. A failure to get
// credentials is logged and does not stop the runner.
func (f *Fleet) SessionAccess(ctx context.Context, s Session) *identity.Access {
	if f.Access == nil {
		return nil
	}
	a, err := f.Access.Grant(ctx, identity.Scope{Runner: s.Runner, Queue: kernel.QueueName(s.Runner)})
	if err != nil {
		f.Logger.Warn("cannot grant a session access to its queue; it claims through the API", "runner", s.Runner, "error", err)
		return nil
	}
	return &a
}

// AccessAhead returns SessionAccess for the session that the proof's request will open. If the request
// renews a session, the access is requested already, while the proof is verified: both ask STS, and on
// AWS each waiting millisecond of a function is billed. The renewal's nonce is a secret of the agent,
// so a stranger cannot cause the request. The caller must drop the access if the session is refused.
func (f *Fleet) AccessAhead(ctx context.Context, p SessionProof) func(context.Context, Session) *identity.Access {
	nonce, err := f.Minter.Read(p.Nonce, f.Now(), identity.Renewal)
	of, id, _ := strings.Cut(nonce.Subject, renewalSeparator)
	if f.Access == nil || err != nil || of != string(p.Runner) {
		return f.SessionAccess
	}
	access := make(chan *identity.Access, 1)
	go func() { access <- f.SessionAccess(ctx, Session{Runner: p.Runner, ID: fairlead.SessionID(id)}) }()
	return func(context.Context, Session) *identity.Access { return <-access }
}
