package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
)

// plan makes and saves a plan, and builds its change set.
//
// long: it is one sequence, in which the policy must be asked between two steps.
func (j *job) plan(ctx context.Context) (plugin.Result, error) {
	if err := j.expectVersions(ctx); err != nil {
		return plugin.Result{}, err
	}
	ran, err := j.ensure(ctx)
	if err != nil {
		return j.result(err), err
	}
	changes := false
	var before map[string]fileVersion
	var fetched []changeset.Module
	args := []string{"plan", "-no-color", "-input=false", "-detailed-exitcode", "-out=" + j.path("plan"), "-var-file=" + j.path(variables)}
	if j.spec.Operation == opPlanDestroy {
		args = append(args, "-destroy")
	}
	args = append(args, j.tool.kind.reportArgs(j.run.report)...)
	err = j.retryWithInit(ctx, ran, mentionsInit, func() (err error) {
		if before, err = j.snapshotFiles(); err != nil {
			return err
		}
		fetched = j.fetchedModules()
		if err := j.judgeModule(); err != nil {
			return err
		}
		return j.run.do(ctx, "plan", func() error {
			err := j.run.start(ctx, j.run.stdout, args...)
			ee, ended := errors.AsType[*exec.ExitError](err)
			if changes = ended && ee.ExitCode() == planHasChanges; changes {
				return nil
			}
			return err
		})
	})
	if err != nil {
		return j.result(err), j.failed(err, fairlead.ReasonToolFailed)
	}
	var b bundle
	if b.plan, err = os.ReadFile(j.path("plan")); err != nil {
		return plugin.Result{}, fmt.Errorf("read the saved plan: %w", err)
	}
	b.modules = j.carryModules(before, fetched)
	if b.files, b.removed, err = j.pack(before, int64(len(b.plan))); err != nil {
		return plugin.Result{}, err
	}
	var shown *shownPlan
	known := false
	if !changes {
		shown, known = describeUnchanged(b.plan, j.spec.Operation == opPlanDestroy)
	}
	if !known {
		if shown, err = j.show(ctx); err != nil {
			return j.result(err), j.failed(err, fairlead.ReasonToolFailed)
		}
	}
	if shown.hasPath {
		b.dir = j.src
	}
	saved, err := b.encode()
	if err != nil {
		return plugin.Result{}, fmt.Errorf("pack the plan: %w", err)
	}
	set, err := changesOf(shown, j.env.Mask, j.env.Policy != nil)
	if err != nil {
		return plugin.Result{}, fmt.Errorf("build the change set: %w", err)
	}
	set.Fetch(fetched)
	var judge func(digest string) error
	if j.env.Policy != nil {
		judge = func(digest string) error { return j.env.Policy.Planned(ctx, set, baseOf(b.plan), digest) }
	}
	digest, err := planstore.Save(ctx, j.state.saved(), j.spec, j.env.Keys, saved, judge)
	if err != nil {
		return plugin.Result{}, err
	}
	p := plugin.Planned(digest, !changes, set, baseOf(b.plan))
	res := plugin.Result{Plan: p, ExitCode: new(int)}
	if p.NoOp {
		res.Outputs = plannedOutputs(shown)
		return res, nil // a plan without changes is never applied
	}
	j.keepInit()
	return res, nil
}

// planHasChanges is the exit code of a successful plan with changes, with -detailed-exitcode.
const planHasChanges = 2

// shownPlan is the decoded part of the tool's plan description. It omits the state, and the values of the configuration, which may be
// numbers that no library can read.
type shownPlan struct {
	FormatVersion   string                    `json:"format_version"`
	ResourceChanges []*tfjson.ResourceChange  `json:"resource_changes"`
	OutputChanges   map[string]*tfjson.Change `json:"output_changes"`
	PlannedValues   struct {
		Outputs map[string]outputValue `json:"outputs"`
	} `json:"planned_values"`

	Configuration struct {
		Root shownModule `json:"root_module"`
	} `json:"configuration"`

	hasPath bool // the plan contains the module's path, so it is valid only there
}

// show has the tool describe the saved plan as JSON. The output does not go to the log, which already has the plan.
func (j *job) show(ctx context.Context) (*shownPlan, error) {
	var out bytes.Buffer
	err := j.run.do(ctx, "show", func() error {
		out.Reset()
		return j.run.start(ctx, &out, slices.Concat([]string{"show", "-json", "-no-color"}, j.run.variables("show"), []string{j.path("plan")})...)
	})
	if err != nil {
		return nil, err
	}
	var p shownPlan
	if p.hasPath, err = namesPath(out.Bytes(), j.src); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(&out)
	dec.UseNumber()
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("read the tool's plan description: %w", err)
	}
	if major, _, _ := strings.Cut(p.FormatVersion, "."); major != "1" {
		return nil, fmt.Errorf("read the tool's plan description: it has version %q, this runner supports 1", p.FormatVersion)
	}
	return &p, nil
}

// describeUnchanged describes a plan without changes, without running the tool. The tool would start each provider again,
// which takes a third of the plan's time if the provider is large. Only the outputs matter. They are the outputs of the state
// in the plan file. A plan to destroy without changes has no outputs. known is false if the plan file is encrypted.
func describeUnchanged(plan []byte, destroys bool) (p *shownPlan, known bool) {
	if destroys {
		return &shownPlan{}, true
	}
	state, err := memberOf(plan, stateInPlan, maxStateInPlan)
	if err != nil || len(state) == 0 {
		return nil, false
	}
	p = &shownPlan{}
	p.PlannedValues.Outputs, err = outputsOf(state)
	return p, err == nil
}

// baseOf returns the state on which a plan was made, or nil if there was none, or if the plan file is encrypted.
func baseOf(plan []byte) *changeset.Base {
	state, err := memberOf(plan, stateInPlan, maxStateInPlan)
	if err != nil {
		return nil
	}
	var s struct {
		Lineage string `json:"lineage"`
		Serial  int64  `json:"serial"`
	}
	if json.Unmarshal(state, &s) != nil || s.Lineage == "" {
		return nil
	}
	return &changeset.Base{Lineage: s.Lineage, Revision: s.Serial}
}

const (
	stateInPlan    = "tfstate" // the refreshed state, in a plan file
	maxStateInPlan = 256 << 20 // bytes
)

// namesPath reports whether a plan description contains path in a value, or an expression that uses the path and whose
// value may be a digest of it.
func namesPath(description []byte, path string) (bool, error) {
	text, err := json.Marshal(path)
	if err != nil {
		return false, fmt.Errorf("look for the module's path in the plan: %w", err)
	}
	return bytes.Contains(description, bytes.Trim(text, `"`)) || bytes.Contains(description, []byte(`"path.cwd"`)), nil
}

// plannedOutputs returns the outputs after the plan is applied. For a plan without changes it returns the current outputs.
// It omits null outputs, because the tools omit them from the state.
func plannedOutputs(p *shownPlan) map[string]wire.FullOutput {
	out := map[string]wire.FullOutput{}
	for name, o := range p.PlannedValues.Outputs {
		if len(o.Value) > 0 && string(o.Value) != "null" {
			out[name] = wire.FullOutput{Value: o.Value, Sensitive: o.Sensitive}
		}
	}
	return out
}
