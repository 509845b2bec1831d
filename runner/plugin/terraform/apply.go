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
)

// apply carries out the saved plan that the spec names, byte for byte.
func (j *job) apply(ctx context.Context) (plugin.Result, error) {
	b, size, err := j.approved(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := j.reserveSpace(size); err != nil {
		return plugin.Result{}, err
	}
	defer j.giveBack()
	if err := os.WriteFile(j.path("plan"), b.plan, 0o600); err != nil {
		return plugin.Result{}, fmt.Errorf("lay down the plan: %w", err)
	}
	ran := false
	if j.carryIn() {
		if err := j.checkBackend(); err != nil {
			return plugin.Result{}, err
		}
	} else {
		// Also of a module that needs nothing installed: its state may.
		if err := j.lockFromPlan(b.plan); err != nil {
			return plugin.Result{}, err
		}
		if ran, err = j.ensure(ctx); err != nil {
			return j.result(err), err
		}
	}
	err = j.retryWithInit(ctx, ran, wantsInit, func() error {
		if err := j.unpack(b); err != nil {
			return err
		}
		return j.run.do(ctx, "apply", func() error { return j.run.apply(ctx, j.path("plan")) })
	})
	if err != nil {
		res := j.result(err)
		failure := j.failed(err, fairlead.ReasonToolFailed)
		res.Mutated = began(err, failure)
		if err := j.rescueDump(j.run.dump); err != nil {
			failure = errors.Join(failure, err)
		}
		failure = j.salvage(&res, failure)
		return res, failure
	}
	res := plugin.Result{Mutated: true, ExitCode: new(int)}
	// What follows only reads: it must not make a failure of an apply that went
	// well, and a cancellation comes too late.
	after, done := outlasting(ctx, readFor, j.run.grace)
	defer done()
	if err := j.state.synced(); err != nil {
		return res, &plugin.Error{Reason: fairlead.ReasonStateUnsaved, Err: err,
			Message: fmt.Sprintf("the apply went well, but the folder of its state cannot be synced to disk: %v", err)}
	}
	values, err := j.outputs(after)
	if err != nil {
		return res, &plugin.Error{Reason: fairlead.ReasonToolFailed, Err: err,
			Message: fmt.Sprintf("the apply went well, but its outputs cannot be read: %v; plan again to read them", err)}
	}
	res.Outputs = outputs(values)
	if s, ok := j.state.(*local); ok {
		os.RemoveAll(s.planDir(string(j.spec.Plan.Job))) // a plan is applied once; what is left is pruned
	}
	return res, nil
}

// approved fetches the plan that the spec names, if it is the one that was approved
// and is good for this place. It returns its bundle, and the bytes of that.
func (j *job) approved(ctx context.Context) (bundle, int64, error) {
	saved, err := j.state.getPlan(ctx, string(j.spec.Plan.Job))
	if err != nil {
		if ctx.Err() != nil {
			return bundle{}, 0, fmt.Errorf("fetch the plan: %w", ctx.Err())
		}
		if _, ok := errors.AsType[*plugin.Error](err); ok {
			return bundle{}, 0, err
		}
		return bundle{}, 0, &plugin.Error{Reason: fairlead.ReasonPlanMissing, Err: err,
			Message: fmt.Sprintf("the saved plan could not be fetched: %v; try again", err)}
	}
	if got := plugin.Digest(saved); got != j.spec.Plan.Digest {
		return bundle{}, 0, plugin.Errorf(fairlead.ReasonPlanDigest,
			"the saved plan is %s, but %s was approved: nothing was applied; plan again", got, j.spec.Plan.Digest)
	}
	b, err := decodeBundle(saved)
	if err != nil {
		return bundle{}, 0, &plugin.Error{Reason: fairlead.ReasonPlanElsewhere, Err: err,
			Message: "the saved plan was made by another version of the runner. Nothing was applied: a new plan is needed"}
	}
	if b.dir != "" && b.dir != j.src {
		return bundle{}, 0, plugin.Errorf(fairlead.ReasonPlanElsewhere,
			"the plan was made in %s, which is part of it, and here its module is in %s. Nothing was applied: a new plan is needed", b.dir, j.src)
	}
	return b, int64(len(saved)), nil
}

// readFor bounds the reading of outputs after an apply, and how long a plan is
// saved or fetched. It is as long as a step repeats its report: until then the
// job may yet be told of as what it is.
const readFor = 15 * time.Minute

// outlasting returns a context with ctx's values that ends after limit, and before
// that when ctx has been over for as long as late: then the job was stopped, or
// its lease has run out, and its step waits no longer.
func outlasting(ctx context.Context, limit, late time.Duration) (context.Context, context.CancelFunc) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(late)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-after.Done():
		}
	})
	return after, func() { stop(); cancel() }
}

// began reports whether the tool may have begun to change something. It says no
// only where the tool checks before it begins.
func began(err, failure error) bool {
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
	case fairlead.ReasonPlanStale, fairlead.ReasonStateLocked, fairlead.ReasonInitFailed:
		return false
	}
	return !wantsInit(te)
}

// outputs reads all outputs: from the state itself, or through the tool if only
// that can read it.
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
	var out bytes.Buffer // sensitive values are in it
	err = j.run.do(ctx, "output", func() error {
		out.Reset()
		return j.run.start(ctx, &out, append([]string{"output", "-json", "-no-color"}, j.run.variables("output")...)...)
	})
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &values)
	}
	return values, err
}
