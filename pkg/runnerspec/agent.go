package runnerspec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The sides that configure a runner. A field's tag "only" holds one of them.
const (
	controlSide = "control plane"
	agentSide   = "agent"
)

// Agent is an agent's own file. It configures how the agent starts jobs on its machine. The control plane's
// configuration overrides the file unless Final is set.
type Agent struct {
	Final  bool          `json:"final,omitempty" doc:"Whether the agent ignores the control plane's configuration and uses only this file. If absent: that configuration is merged over this file."`
	Runner Configuration `json:"runner_configuration" must:"true" alias:"runner configuration" doc:"How the agent starts jobs, by type, with the fields of a runner's configuration. Fields that the control plane's configuration sets may be absent."`
	// Secrets are references, by the names that ParseSecret accepts. The control plane cannot set or see them.
	Secrets map[string]string `json:"secrets,omitempty" check:"secret" doc:"The customer's own secrets for jobs, at most 20. The name is that of an environment variable, or var.NAME for a variable of the component; COMPONENT/ before it gives the secret to one component only. The value is a reference: file:/path, kubernetes:SECRET/KEY (only Kubernetes kinds), ssm:NAME, secretsmanager:NAME, or an ARN, with #KEY for one field of a JSON object. The job's step reads it; the control plane neither sees nor sets it."`
	// Policy is a reference that ParsePolicy accepts. The control plane cannot set or see it.
	Policy string `json:"policy,omitempty" check:"policy" doc:"The customer's policy, which decides what jobs may do: file:/path, ssm:NAME or the ARN of a parameter, kubernetes:CONFIGMAP/KEY (only Kubernetes kinds). The job's step reads and enforces it. With it, the control plane cannot set what starts jobs: images, accounts, pod templates, mounts, networks."`
	// Ledger is a location that ParseLedger accepts.
	Ledger string `json:"ledger,omitempty" check:"ledger" doc:"Where steps keep what the policy decides about several jobs, and the last change sets: file:/path, s3:BUCKET/PREFIX, or kubernetes:NAMESPACE (only Kubernetes kinds). If absent: the folder ledger of the runner's data folder, for jobs on the agent's machine; none for others."`
	// InstallKey is a reference, as in Secrets. The control plane cannot set or see it.
	InstallKey string `json:"install_key,omitempty" check:"reference" doc:"Where the seed of the install keys is: a reference like those of secrets. Steps encrypt secrets with keys that come from it, so that the control plane cannot read them. If absent: for steps that are processes or containers on the agent's machine, the file install-key.seed in the agent's data folder, if there is one (fairlead-runner install-key rotate, or the variable FAIRLEAD_MAKE_INSTALL_KEY); otherwise there is no seed, and the control plane can read the secrets."`
	// InstallKeyByDefault is set by what installs the runner, such as the stack, if it made the seed.
	InstallKeyByDefault bool `json:"install_key_by_default,omitempty" doc:"Whether a runner in the sandbox of an app does not have the seed of install_key. Jobs of an app with such a runner then encrypt nothing, because the two runners could not read each other's values."`
}

// NoAgentFile returns the Agent of an agent without a file.
func NoAgentFile() Agent { return Agent{Runner: &LocalRunner{Common: Common{Type: Local}}} }

// ParseAgent reads an agent's file, YAML or JSON. Fields that a whole configuration requires may be missing. Fields
// that only the control plane can act on are reported. Problems name the file filename. It never panics.
func ParseAgent(filename string, src []byte) (Agent, Problems) {
	c := newChecker(filename)
	c.side, c.file = agentSide, reflect.TypeFor[Agent]()
	root, ok := c.readFile(src, nil)
	if !ok {
		return Agent{}, c.result(nil).Problems
	}
	var a Agent
	c.Put("", yamlnode.Node{Place: yamlnode.Place{Line: 1, Column: 1}}) // the place of missing fields
	c.Struct(root, &a, "")
	if len(a.Secrets) > MaxSecrets {
		c.Report("secrets", "invalid-value", fmt.Sprintf("secrets has %d entries, and at most %d are allowed", len(a.Secrets), MaxSecrets), "Store several values in one secret, as fields of a JSON object.")
	}
	c.secretsOfKind(a)
	c.policyOfKind(a)
	c.seedOfKind(a)
	if a.Runner != nil {
		c.runner(a.Runner)
		c.Problems = slices.DeleteFunc(c.Problems, func(p Problem) bool { return p.Code == "missing-field" })
	}
	if a.Policy != "" {
		c.refuseTags()
	}
	c.Controls(root)
	if c.Given("runner_configuration.job.pass_env") { // an empty list differs from the default
		if r, ok := a.Runner.(*ECSRunner); ok {
			r.Job.PassEnv = append([]string{}, r.Job.PassEnv...)
		} else if j := KubernetesJobOf(a.Runner); j != nil {
			j.PassEnv = append([]string{}, j.PassEnv...)
		}
	}
	return a, c.result(nil).Problems
}

// others calls f for each field that is set in r and that the given side does not own. f gets the path and a hint.
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
				f(path, "It depends on the agent's machine: set it in the agent's own file.")
			case only == controlSide && only != side:
				f(path, "The control plane uses it: set it in the runner's configuration there.")
			default:
				walk(field, path)
			}
		}
	}
	walk(reflect.ValueOf(r), "runner_configuration")
}

// Overlay merges the control plane's configuration sent over the agent's file, as Update merges. If file or sent is of
// kind local, the default kind, and the other is not, the local one adds only the fields that all kinds share. file and
// sent are not changed.
func Overlay(file, sent Configuration) (Configuration, error) {
	var wrong error
	others(sent, controlSide, func(path, _ string) {
		wrong = fmt.Errorf("the control plane cannot set %s", path)
	})
	if wrong != nil {
		return nil, wrong
	}
	if f, ok := file.(*ECSRunner); ok {
		if t, ok := sent.(*ECSRunner); ok && t.Job.Image != "" { // the agent makes a task definition from the image
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
		return nil, fmt.Errorf("the runner is of kind %s, but the agent's file is for a runner of kind %s", sent.Kind(), file.Kind())
	}
	data, err := json.Marshal(newChecker("").Plain(merge(base, top)))
	if err != nil {
		return nil, fmt.Errorf("merge the runner's configuration over the agent's file: %w", err)
	}
	return DecodeRunner(data)
}

// ofAnyKind removes the fields of a local configuration that only processes have.
func ofAnyKind(n yamlnode.Node) yamlnode.Node {
	n = without(n, "type")
	for i, f := range n.Fields {
		if f.Key == "job" {
			n.Fields[i].Value = without(without(f.Value, "folder"), "secrets")
		}
	}
	return n
}

// Shared returns the parts that the configurations of all kinds have.
func Shared(r Configuration) (Common, JobCommon) { return *r.common(), *r.job() }

// KubernetesJobOf returns the Kubernetes settings of a runner's jobs, or nil if they run outside Kubernetes.
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
