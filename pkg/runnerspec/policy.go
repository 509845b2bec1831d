package runnerspec

import (
	"errors"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// ParsePolicy reads the reference to a policy. Of a Kubernetes store, the name is that of a ConfigMap and its key.
func ParsePolicy(from string) (Reference, error) {
	f := secretFrom.FindStringSubmatch(from)
	if f == nil {
		return Reference{}, errPolicy
	}
	r := Reference{Store: f[1] + f[3] + f[5] + f[8], Name: f[2] + f[4] + f[6] + f[7], Key: f[9], Text: from}
	if r.Key != "" || r.Store == StoreSecretsManager || strings.HasPrefix(r.Name, "arn:") && !secretARN.MatchString(r.Name) {
		return Reference{}, errPolicy
	}
	return r, nil
}

var errPolicy = errors.New("the policy must be a reference: file:/path, ssm:NAME, the whole ARN of an SSM parameter, or kubernetes:CONFIGMAP/KEY")

// StoreS3 is a prefix in a bucket, for a ledger.
const StoreS3 = "s3"

// Ledger is the location of a ledger.
type Ledger struct {
	Store string // StoreFile, StoreS3 or StoreKubernetes
	Name  string // path of the folder; bucket; namespace
	// Prefix begins the keys in a bucket; it has no slash at its ends. "": none.
	Prefix string
}

var ledgerAt = pattern.New(`^(?:(file):(/[^\x00\n]+)|(s3):([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9!_.'()-]+(?:/[A-Za-z0-9!_.'()-]+)*))?|(kubernetes):([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?))$`)

// ParseLedger reads the location of a ledger.
func ParseLedger(at string) (Ledger, error) {
	f := ledgerAt.FindStringSubmatch(at)
	if f == nil {
		return Ledger{}, errors.New("the ledger must be a location: file:/path, s3:BUCKET/PREFIX or kubernetes:NAMESPACE")
	}
	return Ledger{Store: f[1] + f[3] + f[6], Name: f[2] + f[4] + f[7], Prefix: f[5]}, nil
}

// policy checks the reference to a policy.
func (c *checker) policy(f yamlnode.Field, where string) {
	text, _ := f.Value.Value.(string)
	if _, err := ParsePolicy(text); err != nil {
		c.Report(where, "invalid-value", err.Error(), referenceHint(text))
	}
}

// ledger checks the location of a ledger.
func (c *checker) ledger(f yamlnode.Field, where string) {
	text, _ := f.Value.Value.(string)
	if _, err := ParseLedger(text); err != nil {
		c.Report(where, "invalid-value", err.Error(), "")
	}
}

// policyOfKind reports references that only jobs in a cluster can use in the file of another runner.
func (c *checker) policyOfKind(a Agent) {
	if a.Runner == nil || a.Runner.Kind().Executor() == ExecutorKubernetes {
		return
	}
	p, _ := ParsePolicy(a.Policy)
	l, _ := ParseLedger(a.Ledger)
	for field, store := range map[string]string{"policy": p.Store, "ledger": l.Store} {
		if store == StoreKubernetes {
			c.Report(field, "excluded", "the "+field+" is in a cluster, which only jobs in the cluster can read, and the file is for a runner of kind "+string(a.Runner.Kind()), "Write file:/path, or a place in AWS.")
		}
	}
}

// refuseTags makes the warnings about images by tag problems: who can move the tag would choose the code that enforces the policy.
func (c *checker) refuseTags() {
	for _, w := range c.warnings {
		if w.Code == imageByTag {
			w.Message += ", and this file has a policy, which the image must enforce"
			c.Problems = append(c.Problems, w)
		}
	}
}

// PolicyFolder is the folder of a pod in which a policy of a ConfigMap is. The mount hides a folder of an image with this name.
const PolicyFolder = "/run/fairlead-policy"

// InPod returns the reference with which a step in a pod reads the policy, and the ConfigMap and key that its pod must mount;
// configMap is "" if it needs none.
func (r Reference) InPod() (text, configMap, key string) {
	if r.Store != StoreKubernetes {
		return r.Text, "", ""
	}
	configMap, key, _ = strings.Cut(r.Name, "/")
	return StoreFile + ":" + PolicyFolder + "/" + key, configMap, key
}

// Settled returns an error that names the first setting with which the control plane's configuration sent would change what starts
// jobs, compared with the agent's file. With a policy, only the customer decides on those.
func Settled(file, sent Configuration) error {
	merged, err := Overlay(file, sent)
	if err != nil {
		return err
	}
	if file.Kind().Executor() != merged.Kind().Executor() {
		return errors.New("the customer's policy is enforced, so the control plane cannot set another kind of runner than the agent's file: write runner_configuration.type to the file")
	}
	was, is := tree(file), tree(merged)
	if path := changed(was, is, "runner_configuration"); path != "" {
		return errors.New("the customer's policy is enforced, so the control plane cannot set " + path + ": write it to the agent's file, or remove it from the runner's configuration")
	}
	return nil
}

// free reports whether the control plane may set a field under a policy: when and how many jobs run, and for how long. It sets
// job.environment in the spec of each job, where the policy decides on each variable.
func free(path string) bool {
	switch strings.TrimPrefix(path, "runner_configuration.") {
	case "type", "concurrency", "version", "channel", "builds", "job.timeout", "job.start_timeout", "job.no_output_timeout", "job.stop_grace", "job.warm_tasks", "job.environment", "job.keep_for":
		return true
	}
	return false
}

// changed returns the path of a value that differs in two configurations and that the control plane must not set; "" if there is
// none.
func changed(was, is yamlnode.Node, where string) string {
	if free(where) {
		return ""
	}
	if was.Shape == yamlnode.Map && is.Shape == yamlnode.Map {
		for _, f := range is.Fields {
			old, _ := was.Child(f.Key)
			if path := changed(old, f.Value, yamlnode.Join(where, f.Key)); path != "" {
				return path
			}
		}
		for _, f := range was.Fields {
			path := yamlnode.Join(where, f.Key)
			if _, ok := is.Child(f.Key); !ok && !free(path) {
				return path
			}
		}
		return ""
	}
	if is.Shape == yamlnode.Map && was.IsNull() {
		for _, f := range is.Fields {
			if path := changed(yamlnode.Node{}, f.Value, yamlnode.Join(where, f.Key)); path != "" {
				return path
			}
		}
		return ""
	}
	if same(was, is) {
		return ""
	}
	return where
}

// same reports whether two nodes have the same value.
func same(a, b yamlnode.Node) bool {
	if a.Shape != b.Shape || a.Value != b.Value || len(a.Items) != len(b.Items) || len(a.Fields) != len(b.Fields) {
		return false
	}
	for i := range a.Items {
		if !same(a.Items[i], b.Items[i]) {
			return false
		}
	}
	for _, f := range a.Fields {
		if g, ok := b.Child(f.Key); !ok || !same(f.Value, g) {
			return false
		}
	}
	return true
}
