// Package runnerspec reads the configuration of a runner: its name, where its jobs run, and where the state of their
// tools is kept. It reports all problems of a file, with line, column and the nearest known name. It is pure: it does
// not check that the named resources exist.
package runnerspec

//go:generate env UPDATE_GOLDEN=1 go test -run TestReferencePageIsCurrent|TestCommittedSchemaIsCurrent .

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// MaxFileSize is the maximum size of a configuration, in bytes. A pod template of a hundred lines has 5 KB.
const MaxFileSize = 256 << 10

// StepContainer is the name of a job's only container: in the pod that a pod template overlays, and in a task
// definition of the customer.
const StepContainer = "step"

// reserved is the prefix of Fairlead's own environment variables.
const reserved = "FAIRLEAD_"

// Problem is one problem of a configuration.
type Problem = yamlnode.Problem

// Problems holds all problems, in the order of the file. Use Err to get an error: a nil Problems in an error variable
// is not a nil error.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return yamlnode.Lines(ps) }

// Err returns nil if there is no problem, otherwise a *fairlead.Error of KindInvalid with the code "invalid-runner" that
// wraps the problems.
func (ps Problems) Err() error {
	return yamlnode.Invalid(ps, fairlead.CodeInvalidRunner, "the runner's configuration", "")
}

// Spec is the configuration of a runner. Parse and Update return only valid configurations.
type Spec struct {
	ID          string        `json:"id,omitempty" check:"name" alias:"name" doc:"Name of the runner. The command line can set it instead."`
	Description string        `json:"description,omitempty" check:"description" doc:"Purpose of the runner."`
	Group       string        `json:"group,omitempty" check:"path" doc:"Path of the group that the runner serves: it runs the installs of this group and of the groups below. If absent: the installs of the whole org."`
	Install     string        `json:"install,omitempty" check:"name" doc:"Name of the only install that the runner serves. Cannot be combined with group."`
	Runner      Configuration `json:"runner_configuration" must:"true" alias:"runner configuration" doc:"Where jobs run, by type."`
	Storage     Storage       `json:"state_storage_configuration" must:"true" alias:"state_storage state storage" doc:"Where the states of installs are stored, by type."`
	Registry    ImageRegistry `json:"registry,omitempty" alias:"image_registry registry_configuration" doc:"Where the images of installs are stored, by type. If absent: apps with components of type image cannot be deployed there."`
}

// JobEndpoint returns the URL at which jobs reach the control plane; "" means the agent's own URL.
func (s *Spec) JobEndpoint() string { return s.Runner.job().Endpoint }

// Concurrency returns the most jobs that the runner may run at once, over all its agents; 0 means as many as the agents
// can hold.
func (s *Spec) Concurrency() int { return s.Runner.common().Concurrency }

// Builds reports whether the runner builds components of the org's apps.
func (s *Spec) Builds() bool { return s.Runner.common().Builds }

// Release returns the version for the runner's agents, or the update channel that sets it. Both are "" if any version
// is allowed.
func (s *Spec) Release() (version, channel string) {
	c := s.Runner.common()
	return c.Version, c.Channel
}

// JobTimeout returns the longest time of a job. It is 0 if only the job sets a timeout.
func (s *Spec) JobTimeout() time.Duration { return time.Duration(s.Runner.job().Timeout) }

// Environment returns the environment variables that the configuration sets for jobs, with the proxy's in upper and
// lower case. It leaves out variables that refer to secrets.
func (s *Spec) Environment() map[string]string {
	j := s.Runner.job()
	env := maps.Clone(j.Environment)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, j.Proxy.Environ())
	return env
}

// Result is the result of reading a configuration.
type Result struct {
	Spec     *Spec // nil if there are problems
	Problems Problems
	Warnings Problems // parts of the configuration that are allowed, but not recommended
}

// Parse reads a configuration in YAML or JSON, which may be empty if settings give all fields. Problems name the file
// filename. A setting is the path of a field, "=" and its value, YAML on one line, such as
// "runner_configuration.job.cpu=2"; it overrides the file. It never panics.
func Parse(filename string, src []byte, settings ...string) Result {
	c := newChecker(filename)
	root, ok := c.readFile(src, settings)
	if !ok {
		return c.result(nil)
	}
	return c.result(c.spec(root))
}

// Read is Parse for a document that was already read or converted. The file of a problem is filename, and its place is
// the place of a node of the document.
func Read(filename string, root yamlnode.Node, settings ...string) Result {
	c := newChecker(filename)
	if root = c.settings(root, settings); len(c.Problems) > 0 {
		return c.result(nil)
	}
	return c.result(c.spec(root))
}

// Update applies a patch and returns the resulting configuration. Maps are merged at every depth. All other values,
// also lists, are replaced. A null removes a field. A secret given as Masked keeps its value. If the patch has another
// type of state storage or of registry, all fields of the old one are removed. The identifier and the type of the runner cannot be
// changed. Update does not change current. Settings are as for Parse.
func Update(current *Spec, filename string, src []byte, settings ...string) Result {
	c := newChecker(filename)
	patch, ok := c.readFile(src, settings)
	if !ok {
		return c.result(nil)
	}
	base := tree(current)
	c.immutable(patch, "id", current.ID, "The ID of a runner cannot be changed.")
	if r, ok := patch.Child("runner_configuration"); ok {
		c.immutable(r, "type", string(current.Runner.Kind()), "Create another runner and refresh the installs.")
	}
	if s, ok := patch.Child("state_storage_configuration"); ok {
		if t, ok := s.Child("type"); ok && t.Value != string(current.Storage.Kind()) {
			base = without(base, "state_storage_configuration")
		}
	}
	if r, ok := patch.Child("registry"); ok {
		if t, ok := r.Child("type"); ok && current.Registry != nil && t.Value != string(current.Registry.Kind()) {
			base = without(base, "registry")
		}
	}
	if len(c.Problems) > 0 {
		return c.result(nil)
	}
	return c.result(c.spec(merge(base.Moved(patch.Place), patch)))
}

// tree returns a configuration as the nodes of its JSON.
func tree(v any) yamlnode.Node {
	data, err := json.Marshal(v)
	if err != nil {
		panic("runnerspec: encode a configuration: " + err.Error()) // cannot happen: it consists of strings and numbers
	}
	n, problems := yamlnode.ReadJSON(data)
	if len(problems) > 0 {
		panic("runnerspec: read an encoded configuration: " + problems[0].Message)
	}
	return n
}

// UnmarshalJSON reads the output of json.Marshal. The error is of fairlead.KindInvalid.
func (s *Spec) UnmarshalJSON(data []byte) error {
	r := Parse("runner", data)
	if r.Spec == nil {
		return r.Problems.Err()
	}
	*s = *r.Spec
	return nil
}

// immutable reports a change of a field that must not change.
func (c *checker) immutable(n yamlnode.Node, field, is, hint string) {
	if f, ok := n.Child(field); ok && f.Value != is {
		c.At(f.Place, "immutable-field", fmt.Sprintf("the field %q is %s and cannot be changed", field, yamlnode.Quote(is)), hint)
	}
}

func without(n yamlnode.Node, key string) yamlnode.Node {
	var fields []yamlnode.Field
	for _, f := range n.Fields {
		if f.Key != key {
			fields = append(fields, f)
		}
	}
	n.Fields = fields
	return n
}

// merge returns base with the patch applied. It keeps all repetitions of a field in the patch, so that they are
// reported.
func merge(base, patch yamlnode.Node) yamlnode.Node {
	switch {
	case patch.Value == Masked && !base.IsNull():
		return base
	case base.Shape != yamlnode.Map || patch.Shape != yamlnode.Map:
		return patch
	}
	out := patch
	out.Fields = nil
	given := map[string]bool{}
	for _, f := range patch.Fields {
		old, ok := base.Child(f.Key)
		if ok && !given[f.Key] {
			f.Value = merge(old, f.Value)
		}
		given[f.Key] = true
		if !f.Value.IsNull() {
			out.Fields = append(out.Fields, f)
		}
	}
	for _, f := range base.Fields {
		if !given[f.Key] {
			out.Fields = append(out.Fields, f)
		}
	}
	return out
}
