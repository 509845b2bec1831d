package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// all runs all checks in the order in which they need each other. The suite leaves nothing that the program has made, unless a check
// fails.
//
// long: one entry for each check
func (s *suite) all(ctx context.Context) error {
	var saved, applied []byte
	var first *outcome
	steps := []struct {
		name, consequence string
		run               func() (*outcome, string, error)
	}{
		{"describe names the plugin and its operations", "", func() (*outcome, string, error) {
			o, err := s.raw(ctx, `{"protocol":1,"operation":"describe"}`)
			if err != nil {
				return nil, "", err
			}
			return o, firstOf(unlessFinished(o), s.description(o)), nil
		}},
		{"an unknown operation is refused", "", func() (*outcome, string, error) { return s.refusal(ctx, `{"protocol":1,"operation":"conformance"}`) }},
		{"an unknown version of the protocol is refused", "", func() (*outcome, string, error) {
			return s.refusal(ctx, `{"protocol":1000000,"operation":"describe"}`)
		}},
		{"a line that is no request is refused", "", func() (*outcome, string, error) { return s.refusal(ctx, `conformance`) }},
		{"a plan finds what is missing and saves a plan", "the plan failed", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, never)
			if err != nil {
				return nil, "", err
			}
			first, saved = o, o.plan
			return o, firstOf(unlessFinished(o), unlessSaved(o), unlessChanges(o)), nil
		}},
		{"the same plan again has the same changes", "", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, never)
			if err != nil {
				return nil, "", err
			}
			problem := unlessFinished(o)
			if problem == "" && !slices.Equal(planned(first), planned(o)) {
				problem = fmt.Sprintf("the first plan sent\n%sand the second one\n%s", join(planned(first)), join(planned(o)))
			}
			return o, problem, nil
		}},
		{"a plan that is stopped ends within the grace period", "", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, atWork)
			if err != nil {
				return nil, "", err
			}
			return o, unlessStopped(o), nil
		}},
		{"a plan whose step dies ends within the grace period", "", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, stepDies)
			if err != nil {
				return nil, "", err
			}
			return o, unlessStopped(o), nil
		}},
		{"a damaged plan is refused", "", func() (*outcome, string, error) { return s.refused(ctx, "web", []byte("conformance")) }},
		{"a plan of another component is refused", "", func() (*outcome, string, error) { return s.refused(ctx, "other", saved) }},
		{"an apply of the saved plan finishes", "the apply failed", func() (*outcome, string, error) {
			applied = saved
			o, err := s.do(ctx, pluginprotocol.Apply, saved, never)
			if err != nil {
				return nil, "", err
			}
			problem := unlessFinished(o)
			if problem == "" && !o.mutating() {
				problem = "it finished without mutating, but the plan has changes: it must send mutating before its first change"
			}
			return o, problem, nil
		}},
		{"a plan after the apply finds no changes", "the plan after the apply found changes", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, never)
			if err != nil {
				return nil, "", err
			}
			problem := unlessFinished(o)
			if problem == "" && !noOp(o) {
				problem = "it finished without no_op, and sent\n" + join(planned(o))
			}
			return o, problem, nil
		}},
		{"an applied plan is stale and is refused", "", func() (*outcome, string, error) {
			o, problem, err := s.refused(ctx, "web", applied)
			if err == nil {
				problem = firstOf(problem, stale(o))
			}
			return o, problem, err
		}},
		{"a destroy of its saved plan finishes", "the destroy failed", func() (*outcome, string, error) { return s.remove(ctx) }},
		{"an apply that is stopped ends within the grace period", "", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, never)
			if err != nil || unlessFinished(o) != "" {
				return o, "the plan before it: " + unlessFinishedOf(o), err
			}
			if o, err = s.do(ctx, pluginprotocol.Apply, o.plan, atMutating); err != nil {
				return nil, "", err
			}
			return o, unlessStopped(o), nil
		}},
		{"a plan after the stopped apply completes it", "the stopped apply could not be completed", func() (*outcome, string, error) {
			o, err := s.do(ctx, pluginprotocol.Plan, nil, never)
			if err != nil || unlessFinished(o) != "" || noOp(o) {
				return o, unlessFinishedOf(o), err
			}
			if o, err = s.do(ctx, pluginprotocol.Apply, o.plan, never); err != nil || unlessFinished(o) != "" {
				return o, unlessFinishedOf(o), err
			}
			if o, err = s.do(ctx, pluginprotocol.Plan, nil, never); err != nil || unlessFinished(o) != "" {
				return o, unlessFinishedOf(o), err
			}
			if !noOp(o) {
				return o, "the plan after it has changes:\n" + join(planned(o)), nil
			}
			return o, "", nil
		}},
		{"a second destroy leaves nothing", "", func() (*outcome, string, error) {
			o, problem, err := s.remove(ctx)
			if err != nil || problem != "" {
				return o, problem, err
			}
			if o, err = s.do(ctx, pluginprotocol.PlanDestroy, nil, never); err != nil {
				return nil, "", err
			}
			if problem = unlessFinished(o); problem == "" && !noOp(o) {
				problem = "the plan to destroy after it is not no_op:\n" + join(planned(o))
			}
			return o, problem, nil
		}},
	}
	for _, step := range steps {
		if err := s.check(step.name, step.consequence, step.run); err != nil {
			return err
		}
	}
	const secrets = "no event and no log has a secret"
	if len(s.secrets()) == 0 {
		s.skip(secrets, fmt.Sprintf("the spec has no sensitive text of at least %d bytes: set one under secrets", minSecret))
		return nil
	}
	s.blocked = ""
	return s.check(secrets, "", func() (*outcome, string, error) { return nil, s.leak, nil })
}

// refusal returns the run of a line that the program must refuse.
func (s *suite) refusal(ctx context.Context, line string) (*outcome, string, error) {
	o, err := s.raw(ctx, line)
	if err != nil {
		return nil, "", err
	}
	return o, unlessRefused(o), nil
}

// refused returns the run of an apply that the program must refuse.
func (s *suite) refused(ctx context.Context, component string, plan []byte) (*outcome, string, error) {
	o, err := s.on(ctx, pluginprotocol.Apply, component, plan, never)
	if err != nil {
		return nil, "", err
	}
	return o, unlessRefused(o), nil
}

// remove plans a destroy and executes it.
func (s *suite) remove(ctx context.Context) (*outcome, string, error) {
	o, err := s.do(ctx, pluginprotocol.PlanDestroy, nil, never)
	if err != nil {
		return nil, "", err
	}
	if problem := firstOf(unlessFinished(o), unlessSaved(o), unlessChanges(o)); problem != "" {
		return o, "its plan: " + problem, nil
	}
	if o, err = s.do(ctx, pluginprotocol.Destroy, o.plan, never); err != nil {
		return nil, "", err
	}
	problem := unlessFinished(o)
	if problem == "" && !o.mutating() {
		problem = "it finished without mutating, but the plan has changes"
	}
	return o, problem, nil
}

func unlessFinishedOf(o *outcome) string {
	if o == nil {
		return ""
	}
	return unlessFinished(o)
}

func unlessSaved(o *outcome) string {
	if len(o.plan) == 0 {
		return "it saved no plan in the file that the request names"
	}
	return ""
}

func unlessChanges(o *outcome) string {
	for _, e := range o.events {
		if _, ok := e.(pluginprotocol.Change); ok {
			return ""
		}
	}
	return "it found no change: the suite needs a spec of something that does not exist before an apply, and that exists before a destroy"
}

func join(lines []string) (text string) {
	for _, l := range lines {
		text += l
	}
	return text
}

// description returns the problem of the answer to a describe, and records the plugin's name and version.
func (s *suite) description(o *outcome) string {
	for _, e := range o.events {
		d, ok := e.(pluginprotocol.Described)
		if !ok {
			continue
		}
		s.report.Name, s.report.Version = d.Name, d.Version
		if !slices.Contains(d.Protocols, pluginprotocol.Version) {
			return fmt.Sprintf("it supports the versions %v of the protocol, without %d", d.Protocols, pluginprotocol.Version)
		}
		for _, op := range pluginprotocol.Operations() {
			if !slices.Contains(d.Operations, op) {
				return fmt.Sprintf("it has the operations %v, without %s", d.Operations, op)
			}
		}
		if len(d.Types) > 0 && !slices.Contains(d.Types, s.spec.Type) {
			return fmt.Sprintf("it serves the types %v, without %s: set type in the spec", d.Types, s.spec.Type)
		}
	}
	return ""
}
