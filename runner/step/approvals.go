package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/record"
	"github.com/fairlead/fairlead/runner/plugin"
)

// takeFunc takes a use of an approval, or only checks that one is left. It reports whether one was left.
type takeFunc func(context.Context, approval.Use) (left bool, err error)

// approved returns the first approval that permits the apply of subject and has a use left: one that the control plane passed on, or
// a standing one of the ledger. The error has ReasonApprovalMissing if there is none.
func (g *guard) approved(ctx context.Context, subject approval.Subject, set *changeset.Set, d policy.Decision, take takeFunc) (approval.Use, error) {
	keys, _ := g.policy.ApprovalKeys()
	refused := "" // why the first one permits nothing: that of the person, if there is one
	first := func(envelopes [][]byte) (use approval.Use, found bool, broken error) {
		for _, envelope := range envelopes {
			use, err := approval.Verify(ctx, envelope, keys, subject, set, g.now())
			if err == nil {
				left, broken := take(ctx, use)
				if broken != nil || left {
					return use, true, broken
				}
				err = errors.New(usedUp(use))
			}
			if refused == "" {
				refused = ": " + err.Error()
			}
		}
		return approval.Use{}, false, nil
	}
	if use, found, err := first(g.spec.Approvals); found {
		return use, err
	}
	standing, err := g.ledger.List(ctx, record.Standing) // last, because it is a call of the cloud
	if err != nil {
		return approval.Use{}, g.unavailable(ctx, err)
	}
	var envelopes [][]byte
	for _, e := range standing {
		envelopes = append(envelopes, e.Value)
	}
	if use, found, err := first(envelopes); found {
		return use, err
	}
	return approval.Use{}, plugin.Errorf(fairlead.ReasonApprovalMissing, "the customer's policy asks for an approval of the customer: rule %s: %s%s", d.Place(), d.Reason, refused)
}

// isMissing reports whether an error of approved means that no approval permits the apply.
func isMissing(err error) bool {
	e, ok := errors.AsType[*plugin.Error](err)
	return ok && e.Reason == fairlead.ReasonApprovalMissing
}

func usedUp(use approval.Use) string {
	return fmt.Sprintf("the approval %s is used up: plan and approve again", use.ID)
}

// unused is the takeFunc that only checks.
func (g *guard) unused(ctx context.Context, use approval.Use) (bool, error) {
	keys, err := g.ledger.Keys(ctx, approvalKeys+use.ID+"/")
	if err != nil {
		return false, g.unavailable(ctx, err)
	}
	return len(keys) < len(use.Keys), nil
}

// used is an entry of the ledger: the use of an approval.
type used struct {
	Key       string         `json:"key"` // ID of the customer's key
	Component string         `json:"component"`
	Job       fairlead.JobID `json:"job"`
	Epoch     int64          `json:"epoch"`
	Step      string         `json:"step"`
	At        time.Time      `json:"at"`
}

// consume is the takeFunc that records the use in the ledger. Of several steps that use the last one, exactly one succeeds, also if a control
// plane starts several steps for one attempt. Nothing gives a use back: an apply that failed may have changed something.
func (g *guard) consume(ctx context.Context, use approval.Use) (left bool, err error) {
	value, err := json.Marshal(used{Key: use.Key, Component: g.spec.Component, Job: g.spec.Job, Epoch: g.spec.Epoch, Step: g.id, At: g.now()})
	if err != nil {
		return false, fmt.Errorf("encode an entry of the ledger: %w", err)
	}
	for _, key := range use.Keys {
		err := g.ledger.Create(ctx, approvalKeys+use.ID+"/"+key, value)
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, ledger.ErrExists):
			return false, g.unavailable(ctx, err) // the use may be recorded, and is lost
		}
	}
	return false, nil
}
