package step

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/record"
	"github.com/fairlead/fairlead/runner/plugin"
)

// approver is a customer with a key, and a step whose policy asks for approvals by this key.
type approver struct {
	*execution
	key approval.FileKey
}

func newApprover(t *testing.T, rules ...string) *approver {
	t.Helper()
	key, _, err := approval.NewFileKey()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(key.Public().PEM())), "\n")
	return &approver{key: key, execution: underPolicy(t, "approvals: {all: {operations: [apply]}}\napprovers:\n  alice: |\n    "+strings.Join(lines, "\n    ")+"\n"+strings.Join(rules, "\n"))}
}

// base is what the plans of these tests were made on.
func base() *changeset.Base { return &changeset.Base{Lineage: "l-1", Revision: 4} }

// signed returns the signed approval of the plan of a job. change alters it before it is signed.
func (a *approver) signed(t *testing.T, spec events.JobSpec, b *changeset.Builder, plan string, change func(*approval.Plan)) []byte {
	t.Helper()
	digest, err := approval.SetDigest(b.Set(base()))
	if err != nil {
		t.Fatal(err)
	}
	p := approval.Plan{V: 1, ID: strings.Repeat("a", 16), IssuedAt: approval.At(time.Now()), ExpiresAt: approval.At(time.Now().Add(time.Hour)),
		Subject: approval.Subject{Install: spec.Install, Component: spec.Component, Operation: "apply", Artifact: spec.Artifact.Digest, ChangeSet: digest, Plan: plan}}
	p.SetBase(base())
	if change != nil {
		change(&p)
	}
	envelope, err := p.Sign(t.Context(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func approvedJob(n int, envelopes ...[]byte) events.JobSpec {
	spec := jobOf(n, "apply", "db")
	spec.Install, spec.Approvals = "ins_1", envelopes
	return spec
}

// A plan asks for an approval. A person signs it, and the apply changes something once. The control plane then tries the same
// approval again, in another deployment, and for a second step of the same attempt.
func TestApprovalIsForOneApply(t *testing.T) {
	a, plan, changes := newApprover(t), digestOf("plan"), deletions(t, 1)
	planning := approvedJob(1)
	planning.Operation = "plan"
	g := guardOf(t, a.execution, planning)
	if err := g.Planned(t.Context(), changes, base(), plan); err != nil || !strings.HasPrefix(g.asks, "approvals.all") {
		t.Fatalf("the plan asks for %q, %v", g.asks, err)
	}
	wantReason(t, "an apply without an approval", guardOf(t, a.execution, approvedJob(2)).Applies(t.Context(), changes, base(), plan), fairlead.ReasonApprovalMissing)
	spec := approvedJob(3, a.signed(t, approvedJob(3), changes, plan, nil))
	if err := guardOf(t, a.execution, spec).Applies(t.Context(), changes, base(), plan); err != nil {
		t.Fatalf("an approved apply: %v", err)
	}
	wantReason(t, "a second step of the same attempt", guardOf(t, a.execution, spec).Applies(t.Context(), changes, base(), plan), fairlead.ReasonApprovalMissing)
	spec.Job, spec.Deployment = "job_9", "dep_9"
	wantReason(t, "another deployment", guardOf(t, a.execution, spec).Applies(t.Context(), changes, base(), plan), fairlead.ReasonApprovalMissing)
}

// A wholly hostile control plane has each approval that a person ever signed, and all its own keys. Each row is an apply that it
// tries. None changes anything.
func TestHostileControlPlaneAppliesNothingUnapproved(t *testing.T) {
	a, plan := newApprover(t), digestOf("plan")
	stranger := newApprover(t)
	for name, c := range map[string]struct {
		envelope []byte
		changes  *changeset.Builder
		base     *changeset.Base
		plan     string
	}{
		"another plan under the same change set": {a.signed(t, approvedJob(1), deletions(t, 1), plan, nil), deletions(t, 1), base(), digestOf("other")},
		"other changes than the person saw":      {a.signed(t, approvedJob(1), deletions(t, 1), plan, nil), deletions(t, 2), base(), plan},
		"a state that has moved":                 {a.signed(t, approvedJob(1), deletions(t, 1), plan, nil), deletions(t, 1), &changeset.Base{Lineage: "l-1", Revision: 5}, plan},
		"another state":                          {a.signed(t, approvedJob(1), deletions(t, 1), plan, nil), deletions(t, 1), &changeset.Base{Lineage: "l-2", Revision: 4}, plan},
		"no state any more":                      {a.signed(t, approvedJob(1), deletions(t, 1), plan, nil), deletions(t, 1), nil, plan},
		"another install's approval":             {a.signed(t, approvedJob(1), deletions(t, 1), plan, func(p *approval.Plan) { p.Install = "ins_2" }), deletions(t, 1), base(), plan},
		"another component's approval":           {a.signed(t, approvedJob(1), deletions(t, 1), plan, func(p *approval.Plan) { p.Component = "web" }), deletions(t, 1), base(), plan},
		"the approval of other code":             {a.signed(t, approvedJob(1), deletions(t, 1), plan, func(p *approval.Plan) { p.Artifact = digestOf("code") }), deletions(t, 1), base(), plan},
		"the approval of a destroy":              {a.signed(t, approvedJob(1), deletions(t, 1), plan, func(p *approval.Plan) { p.Operation = "destroy" }), deletions(t, 1), base(), plan},
		"an approval that has expired": {a.signed(t, approvedJob(1), deletions(t, 1), plan, func(p *approval.Plan) {
			p.IssuedAt, p.ExpiresAt = approval.At(time.Now().Add(-2*time.Hour)), approval.At(time.Now().Add(-time.Hour))
		}), deletions(t, 1), base(), plan},
		"an approval by another key": {stranger.signed(t, approvedJob(1), deletions(t, 1), plan, nil), deletions(t, 1), base(), plan},
		"no approval":                {[]byte(`{"payload":"","payloadType":"application/vnd.fairlead.approval.v1+json","signatures":[]}`), deletions(t, 1), base(), plan},
	} {
		err := guardOf(t, a.execution, approvedJob(1, c.envelope)).Applies(t.Context(), c.changes, c.base, c.plan)
		wantReason(t, name, err, fairlead.ReasonApprovalMissing)
	}
}

// The control plane starts many steps at once with one approval: one of them applies.
func TestOneOfManyStepsUsesAnApproval(t *testing.T) {
	a, plan := newApprover(t), digestOf("plan")
	envelope := a.signed(t, approvedJob(1), deletions(t, 1), plan, nil)
	errs := make([]error, 12)
	var wg sync.WaitGroup
	for i := range errs {
		g, b := guardOf(t, a.execution, approvedJob(1+i%2, envelope)), deletions(t, 1)
		wg.Go(func() { errs[i] = g.Applies(t.Context(), b, base(), plan) })
	}
	wg.Wait()
	applied := 0
	for _, err := range errs {
		if err == nil {
			applied++
		} else {
			wantReason(t, "a step without the approval", err, fairlead.ReasonApprovalMissing)
		}
	}
	if applied != 1 {
		t.Errorf("%d steps applied with one approval", applied)
	}
}

// The customer puts a standing approval into the ledger: two applies in its scope need no person, and a third one does.
func TestStandingApprovalPermitsItsUses(t *testing.T) {
	a := newApprover(t)
	l, err := a.openLedger(t.Context())
	if err != nil {
		// the guard opens it in the same way
		t.Fatal(err)
	}
	s := approval.Standing{V: 1, ID: strings.Repeat("s", 16), Install: "ins_1", Components: []string{"db"}, Operations: []string{"apply"}, Actions: []string{"delete"}, Destroys: 1, Uses: 2,
		IssuedAt: approval.At(time.Now()), From: approval.At(time.Now().Add(-time.Hour)), Until: approval.At(time.Now().Add(time.Hour))}
	envelope, err := s.Sign(t.Context(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Create(t.Context(), record.Standing+s.ID, envelope); err != nil {
		t.Fatal(err)
	}
	planning := approvedJob(1)
	planning.Operation = "plan"
	g := guardOf(t, a.execution, planning)
	if err := g.Planned(t.Context(), deletions(t, 1), base(), digestOf("plan")); err != nil || g.asks != "" {
		t.Fatalf("a plan in the scope asks for %q, %v", g.asks, err)
	}
	wantReason(t, "an apply out of the scope", guardOf(t, a.execution, approvedJob(2)).Applies(t.Context(), deletions(t, 2), base(), digestOf("large")), fairlead.ReasonApprovalMissing)
	for n, want := range []fairlead.Reason{"", "", fairlead.ReasonApprovalMissing} {
		err := guardOf(t, a.execution, approvedJob(3+n)).Applies(t.Context(), deletions(t, 1), base(), digestOf(fmt.Sprint(n)))
		if e, _ := errors.AsType[*plugin.Error](err); (err != nil || want != "") && (e == nil || e.Reason != want) {
			t.Errorf("apply %d: %v, want the reason %q", n+1, err, want)
		}
	}
}

// blind is a ledger that nothing can list.
type blind struct{ ledger.Ledger }

func (blind) List(context.Context, string) ([]ledger.Entry, error) {
	return nil, errors.New("no list")
}
func (blind) Keys(context.Context, string) ([]string, error) { return nil, errors.New("no list") }

// In a customer's account each look at the ledger is a request to the cloud: an apply with a person's approval sends only the write
// that decides which step has the approval.
func TestApprovedApplyOnlyWritesToTheLedger(t *testing.T) {
	a, plan := newApprover(t), digestOf("plan")
	g := guardOf(t, a.execution, approvedJob(1, a.signed(t, approvedJob(1), deletions(t, 1), plan, nil)))
	g.ledger = blind{g.ledger}
	if err := g.Applies(t.Context(), deletions(t, 1), base(), plan); err != nil {
		t.Errorf("an approved apply: %v", err)
	}
}

// overtaken is a ledger in which another apply is admitted just before the first one of a step.
type overtaken struct {
	ledger.Ledger
	by []byte // its share; nil: it was admitted
}

func (o *overtaken) Create(ctx context.Context, key string, value []byte) error {
	if strings.HasPrefix(key, admittedKeys) && o.by != nil {
		err := o.Ledger.Create(ctx, key, o.by)
		if o.by = nil; err != nil {
			return err
		}
	}
	return o.Ledger.Create(ctx, key, value)
}

// Two applies of a deployment with a ceiling are admitted at once. The one that must count again still has its approval.
func TestOvertakenApplyUsesItsApprovalOnce(t *testing.T) {
	a, plan := newApprover(t, "ceilings: {deployment: {destroys: 5}}"), digestOf("plan")
	g := guardOf(t, a.execution, approvedJob(1, a.signed(t, approvedJob(1), deletions(t, 1), plan, nil)))
	share, err := guardOf(t, a.execution, approvedJob(2)).share(policy.Counts{Destroys: 1}, digestOf("other"))
	if err != nil {
		t.Fatal(err)
	}
	g.ledger = &overtaken{g.ledger, share}
	if err := g.Applies(t.Context(), deletions(t, 1), base(), plan); err != nil {
		t.Errorf("the apply that was overtaken: %v", err)
	}
}

// deaf is a ledger whose answers to Create are lost.
type deaf struct{ ledger.Ledger }

func (d deaf) Create(ctx context.Context, key string, value []byte) error {
	return errors.Join(d.Ledger.Create(ctx, key, value), errors.New("connection reset"))
}

// An approval whose use may be recorded is lost: to be sure that nothing is applied twice, nothing is applied.
func TestUnknownUseOfAnApprovalAppliesNothing(t *testing.T) {
	a, plan := newApprover(t), digestOf("plan")
	spec := approvedJob(1, a.signed(t, approvedJob(1), deletions(t, 1), plan, nil))
	g := guardOf(t, a.execution, spec)
	g.ledger = deaf{g.ledger}
	wantReason(t, "an apply with an unclear use", g.Applies(t.Context(), deletions(t, 1), base(), plan), fairlead.ReasonPolicyUnavailable)
	wantReason(t, "the apply again", guardOf(t, a.execution, spec).Applies(t.Context(), deletions(t, 1), base(), plan), fairlead.ReasonApprovalMissing)
}
