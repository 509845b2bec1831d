// Package record is what a ledger keeps of plans: their changes, and what the policy decided about them.
package record

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/runner/ledger"
)

// Most is how many plans a ledger keeps. It has up to a sixteenth more, because not each plan removes old ones.
const Most = 500

// keys begins the keys of plans: the digest of the saved plan, the time and the job follow.
const keys = "plans/"

// Standing begins the keys of standing approvals, which the customer puts into the ledger.
const Standing = "standing/"

// Plan is a plan in a ledger. Its values are masked as those of a change set.
type Plan struct {
	V          int                `json:"v"` // 1
	At         time.Time          `json:"at"`
	Install    string             `json:"install,omitempty"`
	Deployment string             `json:"deployment,omitempty"`
	Job        string             `json:"job"`
	Digest     string             `json:"digest"` // of the saved plan
	Component  string             `json:"component"`
	Type       string             `json:"type"`
	Operation  job.Operation      `json:"operation"`
	Storage    string             `json:"storage,omitempty"`
	Variables  []string           `json:"variables,omitempty"`
	Source     *policy.Source     `json:"source,omitempty"`
	Module     *policy.Module     `json:"module,omitempty"`
	Others     policy.Counts      `json:"others,omitzero"`
	Changes    []changeset.Change `json:"changes"`
	ChangeSet  string             `json:"change_set,omitempty"` // digest of what the plan reported, see approval.SetDigest
	Base       *changeset.Base    `json:"base,omitempty"`
	Effect     policy.Effect      `json:"effect"` // of the policy at that time
	Rule       string             `json:"rule,omitempty"`
	Reason     string             `json:"reason,omitempty"`
}

// Of returns the record of a decision about a plan.
func Of(q policy.Request, d policy.Decision, install, deployment, job, digest string) Plan {
	return Plan{V: 1, At: q.Now.UTC(), Install: install, Deployment: deployment, Job: job, Digest: digest, Component: q.Component, Type: q.Type,
		Operation: q.Operation, Storage: q.Storage, Variables: q.Variables, Source: q.Source, Module: q.Module, Others: q.Plan.Others, Changes: q.Plan.Changes,
		Effect: d.Effect, Rule: d.Rule, Reason: d.Reason}
}

// Request returns the request that another policy decides.
func (p Plan) Request() policy.Request {
	return policy.Request{Now: p.At, Operation: p.Operation, Component: p.Component, Type: p.Type, Storage: p.Storage, Variables: p.Variables, Source: p.Source, Module: p.Module,
		Plan: &policy.Plan{Changes: p.Changes, Others: p.Others}}
}

// Keep stores the record, and removes old ones from time to time. A job in a cluster may only add entries; old ones then stay until
// the customer removes them.
func Keep(ctx context.Context, l ledger.Ledger, p Plan, epoch int64) error {
	value, err := encode(p)
	if err != nil {
		return err
	}
	digest := strings.TrimPrefix(p.Digest, "sha256:")
	err = l.Create(ctx, fmt.Sprintf("%s%s/%s-%s-%d", keys, digest, p.At.Format(stamp), p.Job, epoch), value)
	if err != nil && !errors.Is(err, ledger.ErrExists) {
		return err
	}
	if !strings.HasPrefix(digest, "0") { // each sixteenth plan
		return nil
	}
	_ = trim(ctx, l) // the record is stored, and a ledger with more plans is as good
	return nil
}

// stamp is a time whose texts have the order of the times.
const stamp = "20060102T150405.000000000"

// trim removes all but the last plans.
func trim(ctx context.Context, l ledger.Ledger) error {
	all, err := l.Keys(ctx, keys)
	if err != nil {
		return err
	}
	if len(all) <= Most {
		return nil
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(timeOf(a), timeOf(b)) })
	for _, key := range all[:len(all)-Most] {
		if err := l.Remove(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func timeOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// Find returns the last plan of the component with the digest.
func Find(ctx context.Context, l ledger.Ledger, digest, component string) (p Plan, found bool, err error) {
	all, err := read(ctx, l, keys+strings.TrimPrefix(digest, "sha256:")+"/")
	for _, q := range all {
		if q.Component == component && q.Digest == digest {
			p, found = q, true
		}
	}
	return p, found, err
}

// Last returns the last plans, the oldest first.
func Last(ctx context.Context, l ledger.Ledger) ([]Plan, error) {
	all, err := read(ctx, l, keys)
	return all[max(0, len(all)-Most):], err
}

// read returns the plans below a prefix by time.
func read(ctx context.Context, l ledger.Ledger, prefix string) ([]Plan, error) {
	entries, err := l.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(entries, func(a, b ledger.Entry) int { return strings.Compare(timeOf(a.Key), timeOf(b.Key)) })
	all := make([]Plan, len(entries))
	for i, e := range entries {
		if all[i], err = decode(e.Value); err != nil {
			return nil, fmt.Errorf("read %s of the ledger: %w", e.Key, err)
		}
	}
	return all, nil
}

// encode returns the record, compressed. If it is too large, it has no values: a rule that reads one then denies.
func encode(p Plan) ([]byte, error) {
	for _, whole := range []bool{true, false} {
		if !whole {
			p.Changes = slices.Clone(p.Changes)
			for i := range p.Changes {
				c := &p.Changes[i]
				c.Before, c.After, c.Changed, c.Unknown, c.Sensitive, c.Omitted = nil, nil, nil, nil, nil, true
			}
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if err := errors.Join(json.NewEncoder(w).Encode(p), w.Close()); err != nil {
			return nil, fmt.Errorf("encode a plan for the ledger: %w", err)
		}
		if b.Len() <= ledger.MaxValue {
			return b.Bytes(), nil
		}
	}
	return nil, fmt.Errorf("the plan has %d changes, too many for the ledger", len(p.Changes))
}

// maxRecord bounds a record that is read, in bytes.
const maxRecord = 256 << 20

func decode(value []byte) (Plan, error) {
	var p Plan
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return p, err
	}
	dec := json.NewDecoder(io.LimitReader(r, maxRecord))
	dec.UseNumber()
	if err := dec.Decode(&p); err != nil {
		return p, err
	}
	if p.V != 1 {
		return p, fmt.Errorf("it has version %d, and this runner knows 1", p.V)
	}
	return p, nil
}
