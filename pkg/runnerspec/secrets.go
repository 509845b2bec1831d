package runnerspec

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// The stores from which a step reads a customer's secret.
const (
	StoreFile           = "file"           // a file that the step can read
	StoreSSM            = "ssm"            // a parameter of the AWS SSM Parameter Store
	StoreSecretsManager = "secretsmanager" // a secret of AWS Secrets Manager
	// StoreKubernetes is a key of a Secret in the namespace of a runner's jobs. The cluster itself reads it for the step.
	StoreKubernetes = "kubernetes"
)

// MaxSecrets limits the secrets of an agent's file. ECS limits the input of a task to 8,192 characters, and each
// reference is a part of this input.
const MaxSecrets = 20

// Reference names a secret. It does not contain the secret.
type Reference struct {
	Store string // a Store constant
	Name  string // path of the file; name or ARN of the parameter or of the secret; NAME/KEY of a Kubernetes Secret
	Key   string // field of a JSON object, which is the secret's value; "": the whole value
	Text  string // the reference as the customer wrote it
}

// OfAWS reports whether the secret is in a store of AWS, which a step reads with a client of AWS.
func (r Reference) OfAWS() bool { return r.Store == StoreSSM || r.Store == StoreSecretsManager }

// Region returns the AWS region in the reference, or "" if the reference has no region.
func (r Reference) Region() string {
	if parts := strings.SplitN(r.Name, ":", 5); len(parts) == 5 && parts[0] == "arn" {
		return parts[3]
	}
	return ""
}

// Variable returns the name of the environment variable in which the cluster gives the value of a Kubernetes Secret to a step. Equal
// references have equal variables. A name of a Secret has characters that a variable cannot have.
func (r Reference) Variable() string {
	return GivenPrefix + strings.ToUpper(hex.EncodeToString([]byte(r.Name)))
}

// GivenPrefix begins the names of the variables that Variable returns.
const GivenPrefix = reserved + "GIVEN_"

// JobSecret is a secret that a customer gives to the jobs of a component, or of all components. The tool gets the
// secret as the component's variable Variable or as the environment variable Environment; one of them is "".
type JobSecret struct {
	Component   string // "": all components
	Variable    string
	Environment string
	From        Reference
}

// Name returns the name under which an agent's file has the secret, without its component.
func (s JobSecret) Name() string {
	if s.Variable != "" {
		return variablePrefix + s.Variable
	}
	return s.Environment
}

const variablePrefix = "var."

// SecretVariable returns the variable of a component that a secret with this name sets, or "" if it sets an environment
// variable.
func SecretVariable(name string) string {
	if variable, ok := strings.CutPrefix(name, variablePrefix); ok {
		return variable
	}
	return ""
}

// OwnSecretName is the pattern of the name of a secret without a component.
const OwnSecretName = `^(var\.)?[A-Za-z_][A-Za-z0-9_]*$`

var (
	secretName = pattern.New(`^(?:([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)/)?(var\.)?([A-Za-z_][A-Za-z0-9_]*)$`)
	secretFrom = pattern.New(`^(?:(file):(/[^\x00\n#]+)|(ssm|secretsmanager):([^\s#]+)|(kubernetes):([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,253})|(arn:aws[a-z-]*:(ssm|secretsmanager):[^\s#]+))(?:#([A-Za-z0-9_.-]+))?$`)
	secretARN  = pattern.New(`^arn:aws[a-z-]*:(?:ssm:[a-z0-9-]+:[0-9]{12}:parameter/\S+|secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:\S+)$`)
)

// ParseSecret reads one entry of an agent's secrets. The errors do not quote the reference, because some people write
// the secret itself there by mistake.
func ParseSecret(name, from string) (JobSecret, error) {
	n := secretName.FindStringSubmatch(name)
	if n == nil {
		return JobSecret{}, fmt.Errorf("%s is not a valid name of a secret: use the name of an environment variable, or var.NAME for a variable of the component, with COMPONENT/ before it for one component only", yamlnode.Quote(name))
	}
	s := JobSecret{Component: n[1]}
	if n[2] != "" {
		s.Variable = n[3]
	} else {
		s.Environment = n[3]
	}
	var ok, whole bool
	if s.From, ok, whole = reference(from); !ok {
		return JobSecret{}, fmt.Errorf("the secret %s must be a reference: file:/path, kubernetes:SECRET/KEY, ssm:NAME, secretsmanager:NAME, or the ARN of a secret or parameter; #KEY after it takes one field of a JSON object", yamlnode.Quote(name))
	}
	if !whole {
		return JobSecret{}, fmt.Errorf("the secret %s must have the whole ARN of a Secrets Manager secret or of an SSM parameter, with region and account", yamlnode.Quote(name))
	}
	return s, nil
}

// ParseReference reads a reference to a secret. The errors do not quote it, for the reason that ParseSecret has.
func ParseReference(from string) (Reference, error) {
	r, ok, whole := reference(from)
	switch {
	case !ok:
		return Reference{}, errors.New("it must be a reference: file:/path, kubernetes:SECRET/KEY, ssm:NAME, secretsmanager:NAME, or the ARN of a secret or parameter; #KEY after it takes one field of a JSON object")
	case !whole:
		return Reference{}, errors.New("it must have the whole ARN of a Secrets Manager secret or of an SSM parameter, with region and account")
	}
	return r, nil
}

// reference reads a reference. ok is false if it is none, and whole is false if its ARN lacks a part.
func reference(from string) (r Reference, ok, whole bool) {
	f := secretFrom.FindStringSubmatch(from)
	if f == nil {
		return Reference{}, false, false
	}
	r = Reference{Store: f[1] + f[3] + f[5] + f[8], Name: f[2] + f[4] + f[6] + f[7], Key: f[9], Text: from}
	return r, true, !strings.HasPrefix(r.Name, "arn:") || secretARN.MatchString(r.Name)
}

// SecretsOf returns the secrets for the jobs of a component, sorted by name. A secret for the component takes precedence
// over a secret for all components.
func SecretsOf(secrets map[string]string, component string) ([]JobSecret, error) {
	by := map[string]JobSecret{}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		s, err := ParseSecret(name, secrets[name])
		if err != nil {
			return nil, err
		}
		if other, ok := by[s.Name()]; s.Component == component || s.Component == "" && (!ok || other.Component == "") {
			by[s.Name()] = s
		}
	}
	var of []JobSecret
	for _, name := range slices.Sorted(maps.Keys(by)) {
		of = append(of, by[name])
	}
	return of, nil
}

// SecretNameHint returns a hint for the misspelt name of a secret, such as "vars.password"; "" if the name is valid, or
// resembles no valid one.
func SecretNameHint(name string) string {
	component, own, ok := strings.Cut(name, "/")
	if !ok {
		component, own = "", name
	}
	prefix, variable, _ := strings.Cut(own, ".")
	fixed := variablePrefix + variable
	if component != "" {
		fixed = component + "/" + fixed
	}
	if secretName.MatchString(name) || !secretName.MatchString(fixed) || yamlnode.Nearest(prefix, []string{"var"}) == "" {
		return ""
	}
	return yamlnode.DidYouMean(name, "names", []string{fixed})
}

// referenceHint returns a hint for a reference to a misspelt store. It does not repeat what follows the store.
func referenceHint(from string) string {
	store, _, ok := strings.Cut(from, ":")
	if near := yamlnode.Nearest(store, []string{StoreFile, StoreSSM, StoreSecretsManager, StoreKubernetes}); ok && near != "" && near != store {
		return fmt.Sprintf("Did you mean %q?", near+":")
	}
	return ""
}

// NearestSecret returns the entry of secrets whose name a customer may have misspelt when it had to be the secret name of
// the component; "" if no entry resembles it.
func NearestSecret(secrets map[string]string, component, name string) string {
	var ofOne, ofAll []string
	for entry := range secrets {
		if strings.Contains(entry, "/") {
			ofOne = append(ofOne, entry)
		} else {
			ofAll = append(ofAll, entry)
		}
	}
	return cmp.Or(yamlnode.Nearest(component+"/"+name, ofOne), yamlnode.Nearest(name, ofAll))
}

// secret checks one entry of an agent's secrets.
func (c *checker) secret(f yamlnode.Field, where string) {
	s, err := ParseSecret(f.Key, f.Value.Value.(string))
	switch {
	case err != nil:
		hint := SecretNameHint(f.Key)
		if hint == "" {
			hint = referenceHint(f.Value.Value.(string))
		}
		c.Report(where, "invalid-value", err.Error(), cmp.Or(hint, "The file holds references to secrets, never secrets."))
	case strings.HasPrefix(strings.ToUpper(s.Environment), reserved):
		c.Report(where, "reserved-name", fmt.Sprintf("the variable %s is reserved", yamlnode.Quote(s.Environment)), "Variables that begin with "+reserved+" are set by Fairlead.")
	}
}

// secretsOfKind reports references to Kubernetes Secrets in the file of a runner whose jobs are not pods.
func (c *checker) secretsOfKind(a Agent) {
	if a.Runner == nil || a.Runner.Kind().Executor() == ExecutorKubernetes {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.Secrets)) {
		if s, err := ParseSecret(name, a.Secrets[name]); err == nil && s.From.Store == StoreKubernetes {
			c.Report(yamlnode.Join("secrets", name), "excluded", fmt.Sprintf("the secret %s is in a Kubernetes Secret, which only jobs in a cluster can get, and the file is for a runner of kind %s", yamlnode.Quote(name), a.Runner.Kind()),
				"For jobs in a cluster, set runner_configuration.type to kubernetes, or to the kind of the runner. For others, write file:/path, ssm:NAME or secretsmanager:NAME.")
		}
	}
}

// seed checks the reference to the seed of the install keys.
func (c *checker) seed(f yamlnode.Field, where string) {
	if _, err := ParseReference(f.Value.Value.(string)); err != nil {
		c.Report(where, "invalid-value", where+": "+err.Error(), cmp.Or(referenceHint(f.Value.Value.(string)), "The file holds a reference to the seed, never the seed."))
	}
}

// seedOfKind reports a seed in a Kubernetes Secret in the file of a runner whose jobs are not pods.
func (c *checker) seedOfKind(a Agent) {
	if a.Runner == nil || a.Runner.Kind().Executor() == ExecutorKubernetes {
		return
	}
	if r, err := ParseReference(a.InstallKey); err == nil && r.Store == StoreKubernetes {
		c.Report("install_key", "excluded", fmt.Sprintf("the seed is in a Kubernetes Secret, which only jobs in a cluster can get, and the file is for a runner of kind %s", a.Runner.Kind()),
			"For jobs in a cluster, set runner_configuration.type to kubernetes, or to the kind of the runner. For others, write file:/path, ssm:NAME or secretsmanager:NAME.")
	}
}
