package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// Cause is why an approval does not permit an apply. Programs decide by it, people read the message of Refusal.
type Cause string

// The causes.
const (
	CauseMalformed  Cause = "malformed"    // not an approval, or one of a later version
	CauseSignature  Cause = "signature"    // no key of the customer's policy signed it
	CauseNotYet     Cause = "not-yet"      // its time has not begun
	CauseExpired    Cause = "expired"      // its time is over
	CauseOtherPlan  Cause = "other-plan"   // it approves something else
	CauseOutOfScope Cause = "out-of-scope" // a standing approval that does not cover the apply
)

// Refusal is the error of an approval that does not permit an apply.
type Refusal struct {
	Cause   Cause
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(cause Cause, format string, args ...any) error {
	return &Refusal{Cause: cause, Message: fmt.Sprintf(format, args...)}
}

// Use is a permitted apply. Before its first change, the step must record one of Keys in the customer's storage by a write
// that fails if the key exists: the first one that succeeds is this apply's. If all exist, the approval is used up.
type Use struct {
	ID       string   // of the approval
	Key      string   // ID of the customer's key that signed
	Standing bool     // the approval stands for several applies
	Keys     []string // in the order in which the step tries them
}

// Verify reports whether an envelope permits the apply of subject now. keys are the customer's keys from its policy, and set
// is the change set that the step derived from the saved plan. The error is a *Refusal.
func Verify(ctx context.Context, envelope []byte, keys []Public, subject Subject, set *changeset.Set, now time.Time) (Use, error) {
	if len(envelope) > MaxEnvelope {
		return Use{}, refuse(CauseMalformed, "the approval is larger than %d bytes", MaxEnvelope)
	}
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		return Use{}, refuse(CauseMalformed, "the approval is not a DSSE envelope")
	}
	switch env.PayloadType {
	case PlanPayloadType:
		var p Plan
		key, err := open(ctx, &env, keys, &p)
		if err != nil {
			return Use{}, err
		}
		return p.permits(subject, key, now)
	case StandingPayloadType:
		var s Standing
		key, err := open(ctx, &env, keys, &s)
		if err != nil {
			return Use{}, err
		}
		return s.permits(subject, set, key, now)
	}
	return Use{}, refuse(CauseMalformed, "the envelope contains %.100q, not an approval", env.PayloadType)
}

// document is a Plan or a Standing.
type document interface{ check() string }

// open verifies an envelope, decodes its payload into a document, and returns the ID of the key that signed it.
func open(ctx context.Context, env *dsse.Envelope, keys []Public, into document) (key string, err error) {
	if len(keys) == 0 {
		return "", refuse(CauseSignature, "the customer's policy names no key for approvals")
	}
	verifiers := make([]dsse.Verifier, len(keys))
	for i, k := range keys {
		verifiers[i] = dsseVerifier{k}
	}
	ev, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err != nil {
		return "", refuse(CauseSignature, "the keys of the customer's policy cannot verify: %v", err)
	}
	accepted, payload, err := ev.VerifyAndDecode(ctx, env)
	if err != nil {
		return "", refuse(CauseSignature, "no key of the customer's policy signed the approval")
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields() // an unknown field might be a restriction, which this step would ignore
	if err := dec.Decode(into); err != nil {
		return "", refuse(CauseMalformed, "the approval has a field that this runner does not know, or is damaged: update the runner, or approve again")
	}
	if again, err := canonical(into); err != nil || !bytes.Equal(again, payload) {
		return "", refuse(CauseMalformed, "the approval is not in the canonical form of RFC 8785: approve again")
	}
	if problem := into.check(); problem != "" {
		return "", refuse(CauseMalformed, "the approval is invalid: %s", problem)
	}
	return accepted[0].KeyID, nil
}

func (p Plan) permits(subject Subject, key string, now time.Time) (Use, error) {
	switch {
	case now.Add(clockSkew).Before(p.IssuedAt.Time):
		return Use{}, refuse(CauseNotYet, "the approval was issued at %s, which is in the future for this runner: check its clock", text(p.IssuedAt))
	case now.After(p.ExpiresAt.Time):
		return Use{}, refuse(CauseExpired, "the approval expired at %s: approve again", text(p.ExpiresAt))
	}
	for _, field := range []struct{ name, approved, asked string }{
		{"install", string(p.Install), string(subject.Install)},
		{"component", p.Component, subject.Component},
		{"operation", p.Operation, subject.Operation},
		{"artifact", p.Artifact, subject.Artifact},
		{"change set", p.ChangeSet, subject.ChangeSet},
		{"saved plan", p.Plan, subject.Plan},
		{"base's lineage", p.Lineage, subject.Lineage},
		{"base's revision", p.Revision, subject.Revision},
	} {
		if field.approved != field.asked {
			return Use{}, refuse(CauseOtherPlan, "the approval is for %s %s, and the apply is for %s: nothing was applied", field.name, quote(field.approved), quote(field.asked))
		}
	}
	return Use{ID: p.ID, Key: key, Keys: []string{p.ID}}, nil
}

func (s Standing) permits(subject Subject, set *changeset.Set, key string, now time.Time) (Use, error) {
	switch {
	case now.Before(s.From.Time):
		return Use{}, refuse(CauseNotYet, "the standing approval begins at %s", text(s.From))
	case now.After(s.Until.Time):
		return Use{}, refuse(CauseExpired, "the standing approval ended at %s", text(s.Until))
	case s.Install != subject.Install:
		return Use{}, refuse(CauseOutOfScope, "the standing approval is for install %s, and the apply is for %s", quote(string(s.Install)), quote(string(subject.Install)))
	case len(s.Components) > 0 && !slices.Contains(s.Components, subject.Component):
		return Use{}, refuse(CauseOutOfScope, "the standing approval does not cover component %s", quote(subject.Component))
	case !slices.Contains(s.Operations, subject.Operation):
		return Use{}, refuse(CauseOutOfScope, "the standing approval does not cover the operation %s", quote(subject.Operation))
	case set == nil || set.Omitted > 0:
		return Use{}, refuse(CauseOutOfScope, "the change set is not complete, so a standing approval cannot cover it: approve this plan")
	}
	destroys := 0
	for _, c := range set.Changes {
		if !slices.Contains(s.Actions, string(c.Action)) {
			return Use{}, refuse(CauseOutOfScope, "the standing approval does not cover the action %s of %s", quote(string(c.Action)), quote(c.Address))
		}
		if c.Action == changeset.Delete || c.Action == changeset.Replace {
			destroys++
		}
	}
	if destroys > s.Destroys {
		return Use{}, refuse(CauseOutOfScope, "the apply deletes or replaces %d objects, and the standing approval permits %d", destroys, s.Destroys)
	}
	u := Use{ID: s.ID, Key: key, Standing: true}
	for n := range s.Uses {
		u.Keys = append(u.Keys, fmt.Sprintf("%s-%d", s.ID, n+1))
	}
	return u, nil
}

// RefusalOf returns the cause of a refusal, or "" if err is none.
func RefusalOf(err error) Cause {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Cause
	}
	return ""
}

func text(m Moment) string { return m.UTC().Format(time.RFC3339) }

// quote limits texts of a document and of a plan in messages.
func quote(s string) string { return fmt.Sprintf("%.200q", s) }
