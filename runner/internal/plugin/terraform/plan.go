package terraform

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/internal/plugin"
)

// plan makes a plan, saves it, and says what is in it.
func (j *job) plan(ctx context.Context) (plugin.Result, error) {
	options, err := j.planOptions()
	if err != nil {
		return plugin.Result{}, err
	}
	if err := j.expectVersions(ctx); err != nil {
		return plugin.Result{}, err
	}
	ran, err := j.ensure(ctx)
	if err != nil {
		return j.result(err), err
	}
	changes := false
	learned := j.run.anticipate(ctx)
	defer learned()
	err = j.retryWithInit(ctx, ran, speaksOfInit, func() error {
		return j.run.do(ctx, "plan", func() (err error) {
			changes, err = j.run.tf.Plan(ctx, options...)
			return err
		})
	})
	if err != nil {
		return j.result(err), j.failed(err, plugin.ReasonToolFailed)
	}
	saved, err := os.ReadFile(j.path("plan"))
	if err != nil {
		return plugin.Result{}, fmt.Errorf("read the saved plan: %w", err)
	}
	var shown *tfjson.Plan
	// The plan was told in the log already; what `show` says is for us.
	learned()
	j.run.mute.SetStderr(j.run.stderr)
	err = j.run.do(ctx, "show", func() (err error) {
		shown, err = j.run.mute.ShowPlanFile(ctx, j.path("plan"), tfexec.JSONNumber(true))
		return err
	})
	if err != nil {
		return j.result(err), j.failed(err, plugin.ReasonToolFailed)
	}
	p := &wire.Plan{Digest: digest(saved), NoOp: !changes}
	if p.Changes, p.Summary, err = summarize(shown, j.env.Mask); err != nil {
		return plugin.Result{}, fmt.Errorf("summarize the plan: %w", err)
	}
	if err := j.state.putPlan(ctx, string(j.spec.Job), saved); err != nil {
		if ctx.Err() != nil {
			return plugin.Result{}, fmt.Errorf("save the plan: %w", ctx.Err())
		}
		return plugin.Result{}, &plugin.Error{Reason: ReasonPlanUnsaved, Err: err,
			Message: fmt.Sprintf("the plan could not be saved, so it cannot be applied: %v", err)}
	}
	res := plugin.Result{Plan: p, ExitCode: new(int)}
	if p.NoOp {
		if res.Outputs, err = plannedOutputs(shown); err != nil {
			return plugin.Result{}, fmt.Errorf("read the outputs: %w", err)
		}
		return res, nil // nobody applies it
	}
	j.carryOut()
	return res, nil
}

func (j *job) planOptions() ([]tfexec.PlanOption, error) {
	vars := make(map[string]json.RawMessage, len(j.spec.Vars))
	for name, v := range j.spec.Vars {
		vars[name] = v.Value
	}
	b, err := json.Marshal(vars)
	if err != nil {
		return nil, plugin.Errorf(ReasonSpecInvalid, "the job spec holds a variable that is not JSON")
	}
	// A file, not arguments: a command line is readable by every process.
	if err := os.WriteFile(j.path("vars.json"), b, 0o600); err != nil {
		return nil, fmt.Errorf("write the variables: %w", err)
	}
	return []tfexec.PlanOption{
		tfexec.Out(j.path("plan")), tfexec.VarFile(j.path("vars.json")), tfexec.Destroy(j.spec.Operation == opPlanDestroy),
	}, nil
}

// plannedOutputs returns the outputs as they are once the plan is applied,
// which for a plan without changes is now. An output that is null is left out,
// as the tools leave it out of the state, which is read after an apply.
func plannedOutputs(p *tfjson.Plan) (map[string]wire.FullOutput, error) {
	out := map[string]wire.FullOutput{}
	if p.PlannedValues == nil {
		return out, nil
	}
	for name, o := range p.PlannedValues.Outputs {
		if o.Value == nil {
			continue
		}
		v, err := json.Marshal(o.Value)
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", name, err)
		}
		out[name] = wire.FullOutput{Value: v, Sensitive: o.Sensitive}
	}
	return out, nil
}
