package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
)

// apply applies the saved plan that the spec names, byte for byte.
func (j *job) apply(ctx context.Context) (plugin.Result, error) {
	b, size, err := j.approvedPlan(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := j.reserveSpace(size); err != nil {
		return plugin.Result{}, err
	}
	defer j.releaseReserve()
	if err := os.WriteFile(j.path("plan"), b.plan, 0o600); err != nil {
		return plugin.Result{}, fmt.Errorf("write the plan: %w", err)
	}
	ran := false
	j.planned = &b
	if j.takeInit() {
		if err := j.checkBackend(); err != nil {
			return plugin.Result{}, err
		}
	} else {
		// A module that needs nothing installed gets the lock file, too, because its state may need providers.
		if err := j.lockFromPlan(b.plan); err != nil {
			return plugin.Result{}, err
		}
		if ran, err = j.ensure(ctx); err != nil {
			return j.result(err), err
		}
	}
	err = j.retryWithInit(ctx, ran, asksForInit, func() error {
		if err := j.unpack(b); err != nil {
			return err
		}
		if err := j.judgePlan(ctx, b); err != nil {
			return err
		}
		return j.run.do(ctx, "apply", func() error { return j.run.apply(ctx, j.path("plan")) })
	})
	if err != nil {
		res := j.result(err)
		failure := j.failed(err, fairlead.ReasonToolFailed)
		res.Mutated = mayHaveChanged(err, failure)
		if err := j.rescueDump(j.run.printedState); err != nil {
			failure = errors.Join(failure, err)
		}
		failure = j.salvage(&res, failure)
		return res, failure
	}
	res := plugin.Result{Mutated: true, ExitCode: new(int)}
	// The code below only reads. A short outage or a cancellation must not turn a succeeded apply into a failure.
	after, done := continueAfter(ctx, transferTimeout, j.run.grace)
	defer done()
	if err := j.state.synced(); err != nil {
		return res, &plugin.Error{Reason: fairlead.ReasonStateUnsaved, Err: err,
			Message: fmt.Sprintf("the apply succeeded, but the folder of its state cannot be synced to disk: %v", err)}
	}
	values, err := j.outputs(after)
	if err != nil {
		return res, &plugin.Error{Reason: fairlead.ReasonToolFailed, Err: err,
			Message: fmt.Sprintf("the apply succeeded, but its outputs cannot be read: %v; plan again to read them", err)}
	}
	res.Outputs = outputs(values)
	j.state.saved().Applied(string(j.spec.Plan.Job))
	return res, nil
}

// approvedPlan fetches the plan that the spec names. It refuses a plan that is not the approved one or that does not fit this
// folder. It returns the bundle and its size in bytes.
func (j *job) approvedPlan(ctx context.Context) (bundle, int64, error) {
	saved, err := planstore.Approved(ctx, j.state.saved(), j.spec, j.env.Keys)
	if err != nil {
		return bundle{}, 0, err
	}
	b, err := decodeBundle(saved)
	if err != nil {
		return bundle{}, 0, &plugin.Error{Reason: fairlead.ReasonPlanElsewhere, Err: err,
			Message: "the saved plan was made by another version of the runner. Nothing was applied: a new plan is needed"}
	}
	if b.dir != "" && b.dir != j.src {
		return bundle{}, 0, plugin.Errorf(fairlead.ReasonPlanElsewhere,
			"the plan contains its module's path %s, but the module is now in %s. Nothing was applied: a new plan is needed", b.dir, j.src)
	}
	return b, int64(len(saved)), nil
}

// transferTimeout bounds reading outputs after an apply. It equals the time for which a step
// repeats its report.
const transferTimeout = 15 * time.Minute

// continueAfter returns a context with ctx's values that continues after ctx has ended. The context ends after limit, or
// when the duration grace has passed since the end of ctx. ctx ends when the job is stopped or its lease has expired, and
// the step waits only for grace.
func continueAfter(ctx context.Context, limit, grace time.Duration) (context.Context, context.CancelFunc) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-after.Done():
		}
	})
	return after, func() { stop(); cancel() }
}

// mayHaveChanged reports whether a failed apply may have changed resources. It returns false only if the tool certainly
// failed before its first change.
func mayHaveChanged(err, failure error) bool {
	te, ok := errors.AsType[*toolError](err)
	if !ok {
		return false // init failed
	}
	if te.command != "apply" || !te.started {
		return false
	}
	if te.announced {
		return true
	}
	switch plugin.ReasonOf(failure) {
	case fairlead.ReasonPlanStale, fairlead.ReasonStateLocked, fairlead.ReasonInitFailed,
		fairlead.ReasonInstallKeyMissing, fairlead.ReasonEncryptedDamaged, fairlead.ReasonEncryptedForeign: // the tool got no state
		return false
	}
	return !asksForInit(te)
}

// outputs reads all outputs from the state itself, or through the tool if only the tool can read the state.
func (j *job) outputs(ctx context.Context) (map[string]outputValue, error) {
	state, err := j.state.readState(ctx)
	if err == nil {
		var values map[string]outputValue
		if values, err = outputsOf(state); err == nil {
			return values, nil
		}
	}
	if !errors.Is(err, errThroughTool) {
		return nil, err
	}
	values := map[string]outputValue{}
	var out bytes.Buffer // contains sensitive values, so it must not get into the log
	err = j.run.do(ctx, "output", func() error {
		out.Reset()
		return j.run.start(ctx, &out, append([]string{"output", "-json", "-no-color"}, j.run.variables("output")...)...)
	})
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &values)
	}
	return values, err
}
