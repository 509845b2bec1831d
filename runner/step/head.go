package step

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

// headTime bounds how long a job waits for the ledger to keep a head.
const headTime = 10 * time.Second

// keepHead keeps the head of the install's audit in the customer's ledger. A failure does not stop the job: an attacker gains
// nothing, because each later job brings a head of the same chain.
func (a *execution) keepHead(ctx context.Context, spec *events.JobSpec, g *guard) {
	if spec.Audit == nil || a.in.Ledger == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, headTime)
	defer cancel()
	var err error
	l := g.ledgerOrNil()
	if l == nil {
		l, err = a.openLedger(ctx)
	}
	if err == nil {
		err = record.KeepHead(ctx, l, record.Head{Chain: string(spec.Install), N: spec.Audit.N, Hash: spec.Audit.Hash, At: a.Now().UTC(), Job: string(spec.Job)})
	}
	if err != nil {
		a.Log.Warn("the head of the audit was not kept in the customer's ledger", "job", spec.Job, "err", err)
	}
}
