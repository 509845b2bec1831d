package catalog

import (
	"fmt"
	"strings"

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
	resolved, scope, err := resolveIn(tx, inst, v, comp)
	if err != nil {
		return JobVars{}, err
	}
	return jobVars(scope, comp.Values(), resolved, component)
}

// RunJobVars returns the variables of a run of an action, and of its plan.
func RunJobVars(tx *kernel.Tx, inst store.Install, v Version, d store.Deployment, run deployment.Run) (JobVars, error) {
	resolved, scope, err := runVars(tx, inst, v, d, run)
	if err != nil {
		return JobVars{}, err
	}
	a, _ := v.Spec.Action(run.Action) // runVars has found it
	return jobVars(scope, a.Part().Values(), resolved, run.Action)
}

// LastJobVars returns the variables of the component's last plan or apply. References to other components may no longer
// resolve, so its sensitive variables are values of their own.
func LastJobVars(tx *kernel.Tx, id fairlead.InstallID, component string) (JobVars, error) {
	last, err := LastVars(tx, id, component)
	if err != nil {
		return JobVars{}, err
	}
	out := JobVars{Vars: make(map[string]events.SpecVar, len(last)), Values: jobvalues.Values{}}
	for name, val := range last {
		if val.Sensitive {
			out.Vars[name] = events.SpecVar{Sensitive: true, Last: true}
			out.Values.Add(events.ValuesLast, name, val.Value)
			continue
		}
		if out.Vars[name], err = plainVar(val, name, component); err != nil {
			return JobVars{}, err
		}
	}
	return out, nil
}

// jobVars leaves the references to sensitive values in the variables, and collects their targets.
func jobVars(scope *varScope, values map[string]appspec.Value, resolved map[string]appspec.Resolved, of string) (JobVars, error) {
	out := JobVars{Vars: make(map[string]events.SpecVar, len(resolved)), Values: jobvalues.Values{}}
	for name, val := range resolved {
		if !val.Sensitive {
			var err error
			if out.Vars[name], err = plainVar(val, name, of); err != nil {
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
			target, ok := scope.target(r)
			if !ok {
				return JobVars{}, fmt.Errorf("variable %s of %s has no target for %s", name, of, r)
			}
			record, key := jobvalues.NameOf(r)
			out.Values.Add(record, key, target.Value)
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

// resolveIn computes the variables of the component, and returns the scope in which they are resolved.
func resolveIn(tx *kernel.Tx, inst store.Install, v Version, comp appspec.Component) (map[string]appspec.Resolved, *varScope, error) {
	scope, err := scopeOf(tx, inst, v, comp)
	if err != nil {
		return nil, nil, err
	}
	out := make(map[string]appspec.Resolved, len(comp.Values()))
	for name, value := range comp.Values() {
		if out[name], err = scope.value(value); err != nil {
			return nil, nil, err
		}
		if option, ok := strings.CutPrefix(name, appspec.OptionPrefix); ok && out[name].Sensitive {
			return nil, nil, appspec.SensitiveOption(comp.Name, option)
		}
		if variable, ok := strings.CutPrefix(name, appspec.EnvPrefix); ok {
			text, err := appspec.EnvText(out[name].Value)
			if err != nil {
				return nil, nil, fairlead.Invalid(fairlead.CodeInvalidVariable, "the environment variable %s of component %s %v", variable, comp.Name, err)
			}
			out[name] = appspec.Resolved{Value: text, Sensitive: out[name].Sensitive}
		}
		if name == appspec.ImageValue {
			if err := checkImage(comp.Name, out[name]); err != nil {
				return nil, nil, err
			}
		}
	}
	return out, scope, nil
}

// checkImage refuses a resolved image of a component or an action that does not name one image for ever. It is known only
// now if it is the output of another component.
func checkImage(part string, image appspec.Resolved) error {
	text, ok := image.Value.(string)
	if ok && !image.Sensitive && appspec.IsImage(text) {
		return nil
	}
	shown := "a secret"
	if !image.Sensitive {
		shown = fmt.Sprintf("%.300q", fmt.Sprint(image.Value))
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidImage,
		Message: fmt.Sprintf("the image of %s is %s, which is no reference by digest", part, shown),
		Hint:    "Refer to the output reference of a component of type image, or write HOST/NAME@sha256:DIGEST."}
}

// ImageOf returns the image in which a job with these variables runs; "": that of the runner.
func ImageOf(vars map[string]appspec.Resolved) string {
	image, _ := vars[appspec.ImageValue].Value.(string)
	return image
}
