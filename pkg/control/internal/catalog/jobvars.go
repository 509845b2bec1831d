package catalog

import (
	"fmt"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/store"
)

// JobVars are the variables of a job: Vars as its spec has them, and Values with the sensitive values to which Vars
// refers. The step fetches Values; the spec holds none of them.
type JobVars struct {
	Vars   map[string]events.SpecVar
	Values jobvalues.Values
}

// PlanJobVars returns the variables of a plan of the component.
func PlanJobVars(tx *kernel.Tx, inst store.Install, v Version, component string) (JobVars, error) {
	comp, ok := v.Spec.Component(component)
	if !ok {
		return JobVars{}, fmt.Errorf("version %s has no component %s", v.ID, component)
	}
	scope, err := scopeOf(tx, inst, v, comp, toCheck)
	if err != nil {
		return JobVars{}, err
	}
	known, err := outlinesIn(scope, comp)
	if err != nil {
		return JobVars{}, err
	}
	return jobVars(scope, comp.Values(), known, component, func() (*varScope, error) { return scopeOf(tx, inst, v, comp, toOpen) })
}

// RunJobVars returns the variables of a run of an action, and of its plan.
func RunJobVars(tx *kernel.Tx, inst store.Install, v Version, d store.Deployment, run deployment.Run) (JobVars, error) {
	known, scope, err := runOutlines(tx, inst, v, d, run, toCheck)
	if err != nil {
		return JobVars{}, err
	}
	a, _ := v.Spec.Action(run.Action) // runOutlines has found it
	return jobVars(scope, a.Part().Values(), known, run.Action, func() (*varScope, error) { return runScope(tx, inst, v, d, run, toOpen) })
}

// LastJobVars returns the variables of the component's last plan or apply. References to other components may no longer
// resolve, so its sensitive variables are values of their own.
func LastJobVars(tx *kernel.Tx, id fairlead.InstallID, component string) (JobVars, error) {
	last, err := lastVars(tx, id, component)
	if err != nil {
		return JobVars{}, err
	}
	out := JobVars{Vars: make(map[string]events.SpecVar, len(last)), Values: jobvalues.Values{}}
	for name, val := range last {
		switch {
		case val.Refs != nil:
			out.Vars[name] = events.SpecVar{Sensitive: true, Refs: val.Refs}
			out.addTargets(val.Targets)
		case val.Sensitive:
			out.Vars[name] = events.SpecVar{Sensitive: true, Last: true}
			out.Values.Add(events.ValuesLast, name, val.Value)
		default:
			if out.Vars[name], err = plainVar(appspec.Resolved{Value: val.Value}, name, component); err != nil {
				return JobVars{}, err
			}
		}
	}
	return out, nil
}

func (v JobVars) addTargets(of map[string]map[string]target) {
	for record, targets := range of {
		for name, t := range targets {
			if t.Encrypted != nil {
				v.Values.Add(record, name, t.Encrypted)
			} else {
				v.Values.Add(record, name, t.Value)
			}
		}
	}
}

// jobVars leaves the references to sensitive values in the variables, and collects their targets from the scope that open
// returns. The step follows the paths into them.
func jobVars(scope *varScope, values map[string]appspec.Value, known map[string]appspec.Outline, of string, open func() (*varScope, error)) (JobVars, error) {
	out := JobVars{Vars: make(map[string]events.SpecVar, len(known)), Values: jobvalues.Values{}}
	var targets *varScope
	for name, val := range known {
		if !val.Sensitive {
			var err error
			if out.Vars[name], err = plainVar(appspec.Resolved{Value: val.Value}, name, of); err != nil {
				return JobVars{}, err
			}
			continue
		}
		left, err := values[name].Withhold(scope.Scope)
		if scope.failed != nil {
			err = scope.failed
		}
		if err != nil {
			return JobVars{}, err
		}
		raw, err := left.MarshalJSON()
		if err != nil {
			return JobVars{}, fmt.Errorf("encode the references of variable %s of %s: %w", name, of, err)
		}
		out.Vars[name] = events.SpecVar{Sensitive: true, Refs: raw}
		for _, r := range left.References() {
			if targets == nil {
				if targets, err = open(); err != nil {
					return JobVars{}, err
				}
			}
			target, ok := targets.target(r)
			if targets.failed != nil {
				return JobVars{}, targets.failed
			}
			if !ok {
				return JobVars{}, fmt.Errorf("variable %s of %s has no target for %s", name, of, r)
			}
			record, key := jobvalues.NameOf(r)
			if w, ok := target.Value.(appspec.Withheld); ok {
				out.Values.Add(record, key, jobvalues.Encrypted(w.Encrypted))
			} else {
				out.Values.Add(record, key, target.Value)
			}
		}
	}
	return out, nil
}

func plainVar(val appspec.Resolved, name, of string) (events.SpecVar, error) {
	raw, err := kernel.EncodeJSON(val.Value)
	if err != nil {
		return events.SpecVar{}, fmt.Errorf("encode variable %s of %s: %w", name, of, err)
	}
	return events.SpecVar{Value: raw}, nil
}

// target returns the value that a reference names, without its path.
func (s *varScope) target(r appspec.Reference) (appspec.Resolved, bool) {
	switch r.Namespace {
	case appspec.Inputs:
		v, ok := s.Inputs[r.Name]
		return v, ok
	case appspec.Params:
		v, ok := s.Params[r.Name]
		return v, ok
	case appspec.Components:
		return s.Outputs(r.Name, r.Output)
	}
	return appspec.Resolved{}, false
}

// checkImage refuses a resolved image of a component or an action that does not name one image for ever. It is known only
// now if it is the output of another component.
func checkImage(part string, image any, sensitive bool) error {
	text, ok := image.(string)
	if ok && !sensitive && appspec.IsImage(text) {
		return nil
	}
	shown := "a secret"
	if !sensitive {
		shown = fmt.Sprintf("%.300q", fmt.Sprint(image))
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidImage,
		Message: fmt.Sprintf("the image of %s is %s, which is no reference by digest", part, shown),
		Hint:    "Refer to the output reference of a component of type image, or write HOST/NAME@sha256:DIGEST."}
}

// ImageOf returns the image in which a job with these variables runs; "": that of the runner.
func ImageOf(vars map[string]appspec.Outline) string {
	image, _ := vars[appspec.ImageValue].Value.(string)
	return image
}
