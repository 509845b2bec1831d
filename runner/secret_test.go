package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// customer is a customer's AWS account with secrets, on a server that is compatible with AWS.
type customer struct {
	endpoint string
	env      []string // of a runner in the account
	ssm      *ssm.Client
	secrets  *secretsmanager.Client
}

func newCustomer(t *testing.T) customer {
	t.Helper()
	c := customer{endpoint: others.Endpoint(t)}
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: &c.endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKIACUSTOMER", "customer", "")}
	c.ssm, c.secrets = ssm.NewFromConfig(cfg), secretsmanager.NewFromConfig(cfg)
	c.env = []string{"AWS_ENDPOINT_URL_SSM=" + c.endpoint, "AWS_ENDPOINT_URL_SECRETS_MANAGER=" + c.endpoint, "AWS_REGION=eu-central-1",
		"AWS_ACCESS_KEY_ID=AKIARUNNER", "AWS_SECRET_ACCESS_KEY=the-runners-own-key", "AWS_MAX_ATTEMPTS=1"}
	return c
}

// parameter stores an encrypted parameter.
func (c customer) parameter(t *testing.T, name, value string) {
	t.Helper()
	if _, err := c.ssm.PutParameter(t.Context(), &ssm.PutParameterInput{Name: &name, Value: &value, Type: types.ParameterTypeSecureString, Overwrite: aws.Bool(true)}); err != nil {
		t.Fatal(err)
	}
}

// secret stores a secret and returns its ARN.
func (c customer) secret(t *testing.T, name, value string) string {
	t.Helper()
	out, err := c.secrets.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: &value})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = c.secrets.DeleteSecret(t.Context(), &secretsmanager.DeleteSecretInput{SecretId: &name, ForceDeleteWithoutRecovery: aws.Bool(true)})
	})
	return *out.ARN
}

// agentFile returns the variable with an agent's file that gives these secrets to jobs.
func agentFile(t *testing.T, secrets map[string]string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"final": true, "runner_configuration": map[string]any{"type": "local"}, "secrets": secrets})
	if err != nil {
		t.Fatal(err)
	}
	return "FAIRLEAD_AGENT_CONFIG=" + string(b)
}

const usesSecrets = `
variable "password" {
  type      = string
  sensitive = true
}
variable "other" {
  type    = string
  default = "none"
}
resource "terraform_data" "it" {
  input = nonsensitive(sha256(var.password))
  provisioner "local-exec" {
    command = "echo working with $GITHUB_TOKEN and $DEPLOY_KEY and $PASSWORD and $AWS_SECRET_ACCESS_KEY in the environment; echo \"argv: $(tr '\\0' ' ' </proc/$PPID/cmdline)\"; env"
    environment = { PASSWORD = nonsensitive(var.password) }
  }
}
output "hash" { value = terraform_data.it.input }
output "other" { value = var.other }
`

// A customer gives a secret to the component that needs it. The step reads it from the customer's store, and the tool
// gets it as a variable of the module or in its environment. The log masks it, and no file of the agent has it.
func TestCustomersSecretReachesOnlyItsTool(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.parameter(t, "/acme/github", "gh-0123456789abcdef")
	arn := c.secret(t, "acme/db", `{"username":"shop","password":"correct-battery-staple"}`)
	key := filepath.Join(t.TempDir(), "deploy-key")
	if err := os.WriteFile(key, []byte("deploy-key-of-acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", append(c.env, "FAIRLEAD_TOFU="+tool(t), agentFile(t, map[string]string{
		"web/var.password": arn + "#password", "GITHUB_TOKEN": "ssm:/acme/github", "web/DEPLOY_KEY": "file:" + key, "database/var.other": "ssm:/acme/github"}))...)
	hidden := []string{"gh-0123456789abcdef", "correct-battery-staple", "deploy-key-of-acme", "the-runners-own-key"}
	ref := s.Push(map[string]string{"main.tf": usesSecrets})
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	for path, d := range filesBelow(t, a.Data) {
		if strings.HasPrefix(path, "steps/") || strings.HasPrefix(path, "attempts/") {
			for _, secret := range hidden {
				if strings.Contains(d, secret) {
					t.Errorf("the agent's file %s has a secret", path)
				}
			}
		}
	}
	job := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan))))
	log := string(plan.Log) + string(job.Log)
	if !strings.Contains(log, "working with (sensitive) and (sensitive) and (sensitive) and in the environment") {
		t.Errorf("the tool has other variables; its log:\n%s", log)
	}
	if _, argv, ok := strings.Cut(log, "argv: "); !ok || strings.Contains(strings.SplitN(argv, "\n", 2)[0], "(sensitive)") {
		t.Errorf("a command line has a secret:\n%s", log)
	}
	for _, secret := range hidden {
		if strings.Contains(log, secret) {
			t.Errorf("the log has the secret %s:\n%s", secret, log)
		}
	}
	if got := string(job.Finish.Outputs["other"].Value); got != `"none"` {
		t.Errorf("the component has the secret of another one: %s", got)
	}
}

// A job without its secret does not start. Its report names the reference, and no secret.
func TestJobWithoutItsSecretFails(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.parameter(t, "/acme/plain", "hush-hush-hush")
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, []byte("hush\x00hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, row := range map[string]struct{ from, want string }{
		"a parameter that does not exist": {"ssm:/acme/none", "the customer's secret var.password cannot be read from ssm:/acme/none, so nothing was started: ParameterNotFound"},
		"a secret that does not exist":    {"secretsmanager:acme/none", "from secretsmanager:acme/none, so nothing was started: ResourceNotFoundException"},
		"a file that does not exist":      {"file:/nowhere/db", "from file:/nowhere/db, so nothing was started: open /nowhere/db: no such file"},
		"a folder":                        {"file:/proc", "it is not a regular file"},
		"a file with a NUL byte":          {"file:" + binary, "it contains a NUL byte"},
		"a field of a text":               {"ssm:/acme/plain#password", `it is no JSON object, so it has no field "password"`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := plane.New(t, plane.Options{})
			startAgent(t, s, "", append(c.env, "FAIRLEAD_TOFU="+tool(t), agentFile(t, map[string]string{"var.password": row.from}))...)
			f := s.UntilFinished(s.Queue(spec("plan", "local", s.Push(map[string]string{"main.tf": usesSecrets})))).Finish
			if f.Outcome != "failed" || f.Reason != "secret-unavailable" || f.Mutated || !strings.Contains(f.Message, row.want) || strings.Contains(f.Message, "hush") {
				t.Errorf("finished as %+v, want %s", *f, row.want)
			}
		})
	}
}

// The value of a variable in app.yaml is the vendor's. The customer's own secret replaces it.
func TestCustomersSecretReplacesTheVendorsValue(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(file, []byte("of-the-customer"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := plane.New(t, plane.Options{})
	startAgent(t, s, "", "FAIRLEAD_TOFU="+tool(t), agentFile(t, map[string]string{"var.other": "file:" + file}))
	ref := s.Push(map[string]string{"main.tf": "variable \"other\" {}\noutput \"hash\" { value = nonsensitive(sha256(var.other)) }"})
	plan := spec("plan", "local", ref)
	plan.Vars = map[string]events.SpecVar{"other": {Value: json.RawMessage(`"of-the-vendor"`)}}
	first := succeeded(t, s.UntilFinished(s.Queue(plan)))
	ap := applySpec("apply", "local", ref, first)
	ap.Vars = plan.Vars
	job := succeeded(t, s.UntilFinished(s.Queue(ap)))
	want := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte("of-the-customer"))))
	if got := string(job.Finish.Outputs["hash"].Value); got != want {
		t.Errorf("the output is %s, want the hash of the customer's secret, %s", got, want)
	}
}

// filesBelow returns the content of each regular file below a folder, by its path.
func filesBelow(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // steps remove their files while the test reads
		}
		if b, err := os.ReadFile(filepath.Join(folder, path)); err == nil {
			files[path] = string(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// In a customer's stack the step runs in a task of its own. It reads the secret with the task's credentials: the agent passes on
// the reference, and has no way to the store.
func TestTaskReadsCustomersSecret(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.parameter(t, "/acme/in-a-task", "only-for-the-task")
	cloud, env := tasksOf(t)
	cloud.Environ = append(cloud.Environ, c.env...)
	last := len(env) - 1
	env[last] = strings.TrimSuffix(env[last], "}") + `, final: true, secrets: {web/var.password: "ssm:/acme/in-a-task"}}`
	s := plane.New(t, plane.Options{})
	startProgram(t, s, program.Build(t, "runner", "-tags=clusters"), "", env...)
	ref := s.Push(map[string]string{"main.tf": "variable \"password\" {}\noutput \"hash\" { value = nonsensitive(sha256(var.password)) }"})
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "http", ref))))
	job := succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "http", ref, plan))))
	if got, want := string(job.Finish.Outputs["hash"].Value), fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte("only-for-the-task")))); got != want {
		t.Errorf("the output is %s, want %s", got, want)
	}
	received := strings.Join(cloud.Received(), "\n")
	if !strings.Contains(received, "ssm:/acme/in-a-task") || strings.Contains(received, "only-for-the-task") {
		t.Errorf("AWS received:\n%s", received)
	}
}
