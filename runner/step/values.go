package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
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
		if err != nil {
			return valuesError(ctx, ref.Name, err)
		}
		if !ref.Matches(leaseToken, packed) {
			return plugin.Errorf(fairlead.ReasonValuesAltered, "the sensitive values of %s are not those that the job's spec names, so nothing was started: they may have been altered", ref.Name)
		}
		if err := values.Unpack(ref.Name, packed); err != nil {
			return &plugin.Error{Reason: fairlead.ReasonValuesAltered, Message: err.Error() + ", so nothing was started", Err: err}
		}
	}
	if err := values.Resolve(spec); err != nil {
		if _, ok := errors.AsType[*jobvalues.ReferenceError](err); ok {
			return &plugin.Error{Reason: fairlead.ReasonReferenceInvalid, Message: fmt.Sprintf("a reference to a sensitive value cannot be resolved, so nothing was started: %v", err), Err: err}
		}
		return &plugin.Error{Reason: fairlead.ReasonValuesMissing, Message: fmt.Sprintf("a sensitive value cannot be resolved, so nothing was started: %v", err), Err: err}
	}
	secrets.AddJSON(secretVars(*spec)...)
	return nil
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
