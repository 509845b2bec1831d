package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
)

// resolve fetches the sensitive values that the spec names, compares them with the spec's digests, and sets the
// variables of spec. The log masks each value before the tool gets it.
func (a *execution) resolve(ctx context.Context, c *client.Client, leaseToken string, spec *events.JobSpec, secrets *redact.Set) error {
	values := jobvalues.Values{}
	for _, ref := range spec.Values {
		packed, err := retry.Do(ctx, a.quick(startRetryTime), func(ctx context.Context) ([]byte, error) {
			return c.GetValues(ctx, string(a.in.Job), ref.Name)
		})
		if ref.Name == events.ValuesMove {
			a.move(ref, leaseToken, packed, err)
			continue
		}
		if err != nil {
			return valuesError(ctx, ref.Name, err)
		}
		if !ref.Matches(leaseToken, packed) {
			return plugin.Errorf(fairlead.ReasonValuesAltered, "the sensitive values of %s are not those that the job's spec names, so nothing was started: they may have been altered", ref.Name)
		}
		err = values.Unpack(ref.Name, packed, ref.Encrypted, a.open)
		if _, ok := errors.AsType[*jobvalues.OpenError](err); ok {
			return &plugin.Error{Reason: fairlead.ReasonValuesEncrypted, Message: fmt.Sprintf("a sensitive value cannot be opened, so nothing was started: %v", err), Err: err}
		}
		if err != nil {
			return &plugin.Error{Reason: fairlead.ReasonValuesAltered, Message: err.Error() + ", so nothing was started", Err: err}
		}
	}
	if err := values.Resolve(spec); err != nil {
		if _, ok := errors.AsType[*jobvalues.ReferenceError](err); ok {
			return &plugin.Error{Reason: fairlead.ReasonReferenceInvalid, Message: fmt.Sprintf("a reference to a sensitive value cannot be resolved, so nothing was started: %v", err), Err: err}
		}
		return &plugin.Error{Reason: fairlead.ReasonValuesMissing, Message: fmt.Sprintf("a sensitive value cannot be resolved, so nothing was started: %v", err), Err: err}
	}
	secrets.AddJSON(secretsOf(*spec)...)
	return nil
}

// move encrypts the secrets that the control plane sealed in an earlier release, or before the runner had a seed. The job does not
// need them, so a failure leaves them to the next job. The control plane chose the values: they get no proof of their origin.
func (a *execution) move(ref events.ValuesRef, leaseToken string, packed []byte, err error) {
	if a.keys.IsZero() {
		return
	}
	if err == nil && !ref.Matches(leaseToken, packed) {
		err = errors.New("they have changed since the job started")
	}
	var moved map[string]jobvalues.Moved
	if err == nil {
		moved, err = jobvalues.Move(packed, a.keys.Current().Public().Seal, a.keys.Current().FingerprintKey())
	}
	if err != nil {
		a.Log.Warn("the stored secrets of the install are not encrypted by this job", "job", a.in.Job, "err", err)
		return
	}
	a.moved = make(map[string]wire.Moved, len(moved))
	for place, m := range moved {
		a.moved[place] = wire.Moved{Encrypted: wire.Encrypted{Bytes: m.Encrypted, Type: m.Type, Size: m.Size, Fingerprint: m.Fingerprint}, Of: m.Of}
	}
}

// open opens an encrypted value of the install. Outputs come from steps, so an output that anyone else encrypted is refused.
func (a *execution) open(place string, sealed []byte) ([]byte, error) {
	if jobvalues.OfSteps(place) {
		return a.keys.OpenOwn(place, sealed)
	}
	return a.keys.Open(place, sealed)
}

// encrypt encrypts the sensitive outputs of a report, if the runner has a seed. If it cannot, the report has no outputs and the
// job fails: the control plane must not read them.
func (a *execution) encrypt(report *wire.FinishRequest) {
	if a.keys.IsZero() {
		return
	}
	report.Key = a.keys.Current().Public().String()
	report.Moved = a.moved
	out := make(map[string]wire.FullOutput, len(report.Outputs))
	for name, o := range report.Outputs {
		if !o.Sensitive {
			out[name] = o
			continue
		}
		e, err := jobvalues.Encrypt(a.keys.Seal, jobvalues.Place(events.ValuesOutputs+a.in.Component, name), o.Value, a.keys.Current().FingerprintKey())
		if err != nil {
			a.Log.Error("cannot encrypt an output", "job", a.in.Job, "output", name, "err", err)
			report.Outputs, report.Plan, report.Outcome, report.Reason = nil, nil, "failed", string(fairlead.ReasonInternal)
			report.Message = fmt.Sprintf("the output %s cannot be encrypted, so no output was stored", name)
			return
		}
		out[name] = wire.FullOutput{Sensitive: true, Encrypted: &wire.Encrypted{Bytes: e.Encrypted, Type: e.Type, Size: e.Size, Fingerprint: e.Fingerprint}}
	}
	if report.Outputs != nil {
		report.Outputs = out
	}
}

// valuesError returns the error of a request for values.
func valuesError(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("fetch the sensitive values of %s: %w", name, ctx.Err())
	}
	reason := fairlead.ReasonValuesUnavailable
	if client.HasCode(err, fairlead.CodeValuesNotFound) {
		reason = fairlead.ReasonValuesMissing
	}
	why := err.Error()
	if e, ok := errors.AsType[*client.Error](err); ok {
		why = e.Detail
	}
	return &plugin.Error{Reason: reason, Message: fmt.Sprintf("the control plane does not return the sensitive values of %s, so nothing was started: %s", name, why), Err: err}
}
