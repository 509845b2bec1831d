package runnerspec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The sides that configure a runner, as a field's tag "only" names them.
const (
	controlSide = "control plane"
	agentSide   = "agent"
)

// Agent is the file of an agent: how jobs are started on its machine, as far as
// the control plane's configuration of the runner does not say it.
type Agent struct {
	Final  bool          `json:"final,omitempty" doc:"Whether this file alone says how jobs are started, and the control plane's configuration is not followed. If absent: that configuration is merged over this file."`
	Runner Configuration `json:"runner_configuration" must:"true" alias:"runner configuration" doc:"How jobs are started, by its type, with the fields of a runner's configuration. Whatever the control plane's gives may be left out."`
}

// NoAgentFile is the Agent without a file.
func NoAgentFile() Agent { return Agent{Runner: &LocalRunner{Common: Common{Type: Local}}} }

// ParseAgent reads the file of an agent, YAML or JSON. What a whole configuration
// must have may be missing, and fields that only the control plane can act on
// are a problem. filename is what problems say. It never panics.
func ParseAgent(filename string, src []byte) (Agent, Problems) {
	c := newChecker(filename)
	c.side, c.file = agentSide, reflect.TypeFor[Agent]()
	root, ok := c.readFile(src, nil)
	if !ok {
		return Agent{}, c.result(nil).Problems
	}
	var a Agent
	c.Put("", yamlnode.Node{Place: yamlnode.Place{Line: 1, Column: 1}}) // of fields that are missing
	c.Struct(root, &a, "")
	if a.Runner != nil {
		c.runner(a.Runner)
		c.Problems = slices.DeleteFunc(c.Problems, func(p Problem) bool { return p.Code == "missing-field" })
	}
	c.Controls(root)
	if c.Given("runner_configuration.job.pass_env") { // of which an empty list is not the default
		if r, ok := a.Runner.(*ECSRunner); ok {
			r.Job.PassEnv = append([]string{}, r.Job.PassEnv...)
		} else if j := KubernetesJobOf(a.Runner); j != nil {
			j.PassEnv = append([]string{}, j.PassEnv...)
		}
	}
	return a, c.result(nil).Problems
}

// others calls f with the path of each field of r that only the other side may
// give, and with what to do.
func others(r Configuration, side string, f func(path, hint string)) {
	var walk func(v reflect.Value, where string)
	walk = func(v reflect.Value, where string) {
		v = reflect.Indirect(v)
		if v.Kind() != reflect.Struct {
			return
		}
		for _, t := range reflect.VisibleFields(v.Type()) {
			name, _, _ := strings.Cut(t.Tag.Get("json"), ",")
			field, path, only := v.FieldByIndex(t.Index), yamlnode.Join(where, name), t.Tag.Get("only")
			switch {
			case t.Anonymous || field.IsZero():
			case only == agentSide && only != side:
				f(path, "It is of the agent's machine: the agent's own file gives it.")
			case only == controlSide && only != side:
				f(path, "It is the control plane's to act on: the runner's configuration there gives it.")
			default:
				walk(field, path)
			}
		}
	}
	walk(reflect.ValueOf(r), "runner_configuration")
}

// Overlay returns the file of an agent with the control plane's configuration
// merged over it, as Update merges. One of the two may be of kind local, which
// everybody is without a configuration: it gives the other what all kinds have.
// file and told are not changed.
func Overlay(file, sent Configuration) (Configuration, error) {
	var wrong error
	others(sent, controlSide, func(path, _ string) {
		wrong = fmt.Errorf("%s cannot be given by the control plane", path)
	})
	if wrong != nil {
		return nil, wrong
	}
	if f, ok := file.(*ECSRunner); ok {
		if t, ok := sent.(*ECSRunner); ok && t.Job.Image != "" { // of which a task definition is made
			of := *f
			of.Job.TaskDefinition = ""
			file = &of
		}
	}
	base, top := tree(file), tree(sent)
	switch {
	case file.Kind().Executor() == sent.Kind().Executor():
	case file.Kind() == Local:
		base = ofAnyKind(base)
	case sent.Kind() == Local:
		top = ofAnyKind(top)
	default:
		return nil, fmt.Errorf("the runner is of kind %s, and the agent's file is for a runner of kind %s", sent.Kind(), file.Kind())
	}
	data, err := json.Marshal(newChecker("").Plain(merge(base, top)))
	if err != nil {
		return nil, fmt.Errorf("merge the runner's configuration over the agent's file: %w", err)
	}
	return DecodeRunner(data)
}

// ofAnyKind takes from a configuration of kind local what processes alone have.
func ofAnyKind(n yamlnode.Node) yamlnode.Node {
	n = without(n, "type")
	for i, f := range n.Fields {
		if f.Key == "job" {
			n.Fields[i].Value = without(without(f.Value, "folder"), "secrets")
		}
	}
	return n
}

// Shared returns what the configurations of all kinds have.
func Shared(r Configuration) (Common, JobCommon) { return *r.common(), *r.job() }

// KubernetesJobOf returns how the jobs of a runner run in a cluster; nil if they
// run elsewhere.
func KubernetesJobOf(r Configuration) *KubernetesJob {
	switch r := r.(type) {
	case *KubernetesRunner:
		return &r.Job
	case *EKSRunner:
		return &r.Job
	case *AKSRunner:
		return &r.Job
	case *GKERunner:
		return &r.Job
	}
	return nil
}
