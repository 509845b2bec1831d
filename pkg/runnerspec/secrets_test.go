package runnerspec_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

func secretsFile(kind, name, from string) []byte {
	return fmt.Appendf(nil, "{runner_configuration: {type: %s}, secrets: {%q: %q}}", kind, name, from)
}

// A customer writes references into the agent's file. A mistake is reported at its place, and the message does not repeat
// the value, because it may be the secret itself.
func TestSecretsAreReferences(t *testing.T) {
	const whole = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:acme/db-AbCdEf"
	for _, c := range []struct {
		name, from string
		want       runnerspec.JobSecret
	}{
		{"GITHUB_TOKEN", "file:/run/secrets/github", runnerspec.JobSecret{Environment: "GITHUB_TOKEN", From: runnerspec.Reference{Store: "file", Name: "/run/secrets/github"}}},
		{"var.password", "ssm:/acme/db", runnerspec.JobSecret{Variable: "password", From: runnerspec.Reference{Store: "ssm", Name: "/acme/db"}}},
		{"database/var.password", whole + "#password", runnerspec.JobSecret{Component: "database", Variable: "password", From: runnerspec.Reference{Store: "secretsmanager", Name: whole, Key: "password"}}},
		{"web/TOKEN", "secretsmanager:acme/web", runnerspec.JobSecret{Component: "web", Environment: "TOKEN", From: runnerspec.Reference{Store: "secretsmanager", Name: "acme/web"}}},
		{"web/TOKEN", "kubernetes:acme.web/GITHUB_TOKEN#token", runnerspec.JobSecret{Component: "web", Environment: "TOKEN", From: runnerspec.Reference{Store: "kubernetes", Name: "acme.web/GITHUB_TOKEN", Key: "token"}}},
		{"TOKEN", "ssm:arn:aws:ssm:eu-west-1:123456789012:parameter/acme/db", runnerspec.JobSecret{Environment: "TOKEN", From: runnerspec.Reference{Store: "ssm", Name: "arn:aws:ssm:eu-west-1:123456789012:parameter/acme/db"}}},
	} {
		kind := "local"
		if c.want.From.Store == runnerspec.StoreKubernetes {
			kind = "kubernetes"
		}
		a, problems := runnerspec.ParseAgent("agent.yaml", secretsFile(kind, c.name, c.from))
		if len(problems) > 0 || a.Secrets[c.name] != c.from {
			t.Errorf("%s: %v", c.name, problems)
		}
		c.want.From.Text = c.from
		if got, err := runnerspec.ParseSecret(c.name, c.from); err != nil || got != c.want {
			t.Errorf("%s is read as %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct{ what, name, from, want string }{
		{"the secret itself", "TOKEN", "hush-hush", `must be a reference: file:/path`},
		{"a relative path", "TOKEN", "file:hush", `must be a reference`},
		{"the ARN of something else", "TOKEN", "arn:aws:s3:::hush", `must be a reference`},
		{"an ARN without an account", "TOKEN", "arn:aws:ssm:eu-west-1::parameter/hush", `must have the whole ARN`},
		{"a name with a hyphen", "my-token", "file:/hush", `"my-token" is not a valid name of a secret`},
		{"a component in capitals", "Web/TOKEN", "file:/hush", `is not a valid name of a secret`},
		{"a Secret without its key", "TOKEN", "kubernetes:hush", `must be a reference: file:/path, kubernetes:SECRET/KEY`},
		{"a Secret with its namespace", "TOKEN", "kubernetes:hush/hush/hush", `must be a reference`},
		{"a Secret in capitals", "TOKEN", "kubernetes:Hush/key", `must be a reference`},
		{"a Secret for processes", "TOKEN", "kubernetes:hush/key", `agent.yaml:1:49: the secret "TOKEN" is in a Kubernetes Secret, which only jobs in a cluster can get, and the file is for a runner of kind local [excluded]`},
		{"a variable of Fairlead", "FAIRLEAD_TOFU", "file:/hush", `agent.yaml:1:49: the variable "FAIRLEAD_TOFU" is reserved [reserved-name]`},
	} {
		_, problems := runnerspec.ParseAgent("agent.yaml", secretsFile("local", c.name, c.from))
		if text := problems.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "hush") {
			t.Errorf("%s: got %v, want %s", c.what, problems, c.want)
		}
	}
	many := "{runner_configuration: {type: local}, secrets: {"
	for i := range 21 {
		many += fmt.Sprintf("A%d: 'file:/a', ", i)
	}
	if _, problems := runnerspec.ParseAgent("agent.yaml", []byte(many+"}}")); !strings.Contains(problems.Error(), "at most 20") {
		t.Errorf("21 secrets: %v", problems)
	}
}

// A misspelt entry of the agent's file is reported at its line, with a suggestion that does not repeat the value.
func TestMisspeltSecretIsReportedAtItsPlace(t *testing.T) {
	for _, c := range []struct{ what, file, want string }{
		{"a seed in place of its reference", "runner_configuration: {type: local}\ninstall_key: hunter2\n", `agent.yaml:2:14: install_key: it must be a reference: file:/path, kubernetes:SECRET/KEY, ssm:NAME, secretsmanager:NAME, or the ARN of a secret or parameter; #KEY after it takes one field of a JSON object [invalid-value]. The file holds a reference to the seed, never the seed.`},
		{"a seed in a part of an ARN", "runner_configuration: {type: local}\ninstall_key: arn:aws:secretsmanager:seed\n", `agent.yaml:2:14: install_key: it must have the whole ARN of a Secrets Manager secret or of an SSM parameter, with region and account [invalid-value]. The file holds a reference to the seed, never the seed.`},
		{"a seed that only pods can get", "runner_configuration: {type: local}\ninstall_key: kubernetes:fairlead/seed\n", `agent.yaml:2:14: the seed is in a Kubernetes Secret, which only jobs in a cluster can get, and the file is for a runner of kind local [excluded]. For jobs in a cluster, set runner_configuration.type to kubernetes, or to the kind of the runner. For others, write file:/path, ssm:NAME or secretsmanager:NAME.`},
		{"the field", "runner_configuration: {type: local}\nsecret:\n  TOKEN: file:/hush\n", `agent.yaml:2:1: the file has no field "secret" [unknown-field]. Did you mean "secrets"?`},
		{"a variable", "runner_configuration: {type: local}\nsecrets:\n  TOKEN: file:/hush\n  db/vars.password: file:/hush\n", `agent.yaml:4:3: "db/vars.password" is not a valid name of a secret: use`},
		{"a variable", "runner_configuration: {type: local}\nsecrets:\n  TOKEN: file:/hush\n  db/vars.password: file:/hush\n", `[invalid-value]. Did you mean "db/var.password"?`},
		{"the store", "runner_configuration: {type: local}\nsecrets:\n  TOKEN: secretmanager:hush\n", `agent.yaml:3:3: the secret "TOKEN" must be a reference`},
		{"the store", "runner_configuration: {type: local}\nsecrets:\n  TOKEN: secretmanager:hush\n", `[invalid-value]. Did you mean "secretsmanager:"?`},
	} {
		_, problems := runnerspec.ParseAgent("agent.yaml", []byte(c.file))
		if text := problems.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "hush") {
			t.Errorf("%s is misspelt: got %s, want %s", c.what, text, c.want)
		}
	}
	entries := map[string]string{"databse/var.password": "", "TOKN": "", "web/KEY": ""}
	for name, want := range map[string]string{"var.password": "databse/var.password", "TOKEN": "TOKN", "LICENCE": ""} {
		if got := runnerspec.NearestSecret(entries, "database", name); got != want {
			t.Errorf("database/%s is missing: suggested %q, want %q", name, got, want)
		}
	}
}

// A reference to a Kubernetes Secret is refused for each kind whose jobs are not pods.
func TestKubernetesSecretNeedsPods(t *testing.T) {
	for _, kind := range runnerspec.Kinds() {
		_, problems := runnerspec.ParseAgent("agent.yaml", secretsFile(string(kind), "TOKEN", "kubernetes:acme/token"))
		refused := strings.Contains(problems.Error(), "and the file is for a runner of kind "+string(kind))
		if want := kind.Executor() != runnerspec.ExecutorKubernetes; refused != want {
			t.Errorf("kind %s: refused is %v, want %v: %v", kind, refused, want, problems)
		}
	}
}

// Different Secrets have different variables, and names that Kubernetes allows make names of variables.
func TestEachKubernetesSecretHasItsVariable(t *testing.T) {
	seen := map[string]string{}
	for _, from := range []string{"kubernetes:a.b/c", "kubernetes:a-b/c", "kubernetes:a/b.c", "kubernetes:a/b-c", "kubernetes:a/b_c", "kubernetes:a/B_C"} {
		s, err := runnerspec.ParseSecret("TOKEN", from)
		if err != nil {
			t.Fatal(err)
		}
		v := s.From.Variable()
		if other, twice := seen[v]; twice || !regexp.MustCompile(`^FAIRLEAD_GIVEN_[0-9A-F]+$`).MatchString(v) {
			t.Errorf("%s has the variable %s, like %q", from, v, other)
		}
		seen[v] = from
	}
}

// Only the customer gives secrets: the control plane's configuration has no such field.
func TestControlPlaneGivesNoCustomerSecret(t *testing.T) {
	const file = "{runner_configuration: {type: local}, state_storage_configuration: {type: http}, secrets: {A: 'file:/etc/shadow'}}"
	if r := runnerspec.Parse("r", []byte(file)); r.Spec != nil || !strings.Contains(r.Problems.Error(), `the file has no field "secrets"`) {
		t.Errorf("got %v", r.Problems)
	}
	const job = "{runner_configuration: {type: local, job: {secrets: {A: 'ssm:/acme/db'}}}, state_storage_configuration: {type: http}}"
	if r := runnerspec.Parse("r", []byte(job)); r.Spec != nil {
		t.Error("job.secrets of the control plane takes a reference that the step reads")
	}
}

func TestComponentsGetTheirOwnSecrets(t *testing.T) {
	secrets := map[string]string{"TOKEN": "file:/all", "web/TOKEN": "file:/web", "database/var.password": "file:/db", "var.TOKEN": "file:/variable"}
	for component, want := range map[string]string{
		"web":      "TOKEN from file:/web, var.TOKEN from file:/variable",
		"database": "TOKEN from file:/all, var.TOKEN from file:/variable, var.password from file:/db",
		"other":    "TOKEN from file:/all, var.TOKEN from file:/variable",
	} {
		of, err := runnerspec.SecretsOf(secrets, component)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range of {
			got = append(got, s.Name()+" from "+s.From.Text)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s gets %s, want %s", component, text, want)
		}
	}
}
