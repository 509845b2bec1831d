package awstest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// A customer's policy in a parameter of SSM decides on the stack, though the control plane approves everything: without it nothing
// starts, what it denies is not applied, and what it wants signed is applied only with the customer's signature. The ledger is in the
// bucket of states.
//
// The test counts the requests to AWS that a job sends for it, beyond those of a job without policy, ledger, signature and encryption.
// A plan reads the policy and the seed, looks for a later key set, and keeps the head of the audit and its change set. An apply reads
// the policy and the seed, looks for a later key set, and keeps the head of the audit and the use of the approval.
func TestPolicyDecidesOnTheStack(t *testing.T) {
	skipIfShort(t)
	w := deployWorld(t)
	defer w.close()
	w.app("db", map[string]string{"main.tf": "variable \"size\" {\n  default = 1\n}\nresource \"terraform_data\" \"db\" {\n  input = var.size\n}\noutput \"size\" {\n  value = var.size\n}\n"})
	plain := w.measured("db", "plain", nil)
	defer plain.stop()
	before := plain.calls()
	w.cli("install", "deploy", "plain", "--auto-approve")
	without := since(plain.calls(), before)

	const name = "/acme/policy"
	m := w.measured("db", "acme", map[string]string{"Policy": name})
	defer m.stop()
	w.guard.AddPlainParameter(name)
	policy := func(text string) {
		t.Helper()
		_, err := ssm.NewFromConfig(w.account.config("SSM")).PutParameter(t.Context(), &ssm.PutParameterInput{Name: aws.String(name), Value: &text, Type: ssmtypes.ParameterTypeString, Overwrite: aws.Bool(true)})
		w.ok("store the policy", err)
	}
	refused := func(want string) {
		t.Helper()
		if text := w.fails("install", "deploy", "acme", "--auto-approve"); !strings.Contains(text, want) {
			t.Errorf("the deployment says %s, want %q", text, want)
		}
	}
	refused("the customer's policy cannot be read from ssm:" + name)
	policy("version: 1\noperations: [plan]\n")
	refused("denied by the customer's policy: rule operations (line 2)")
	if outputs := w.cli("install", "outputs", "acme", "--json"); strings.Contains(string(outputs), "size") {
		t.Errorf("an apply that the policy denies has outputs: %s", outputs)
	}

	key := filepath.Join(t.TempDir(), "alice.pem")
	public := strings.ReplaceAll(strings.TrimSpace(string(w.cli("approval", "new-key", key))), "\n", "\n    ")
	policy("version: 1\napprovals:\n  changes: {operations: [apply]}\napprovers:\n  alice: |\n    " + public + "\n")
	before = m.calls()
	d := ask[struct{ Deployment wire.Deployment }](w, "install", "deploy", "acme", "--auto-approve", "--detach").Deployment
	w.eventually("the plan waits for the customer", func() bool {
		return ask[wire.Deployment](w, "deployment", "show", d.ID).State == "awaiting-approval"
	})
	w.cli("approve", d.ID, "web", "--key", key, "--yes")
	if d = m.untilDone(t.Context(), ask[wire.Deployment](w, "deployment", "show", d.ID)); d.State != "succeeded" {
		t.Errorf("the signed deployment is %s: %s", d.State, d.Message)
	}
	with := since(m.calls(), before)
	for operation, most := range map[string]int{"plan": 5, "apply": 5} {
		extra, text := 0, ""
		for _, action := range slices.Sorted(maps.Keys(with[operation])) {
			n := max(0, with[operation][action]-without[operation][action])
			if action == "secretsmanager:GetSecretValue" {
				n = with[operation][action] // the seed, which the other job reads, too
			}
			extra += n
			text += fmt.Sprintf("\n%-40s %d, without %d", action, with[operation][action], without[operation][action])
		}
		if extra > most {
			t.Errorf("a job of %s sends %d further requests, want at most %d:%s", operation, extra, most, text)
		}
		t.Logf("a job of %s sends %d further requests:%s", operation, extra, text)
	}
}

// calls returns how many requests the steps and tools of each operation sent, by their main action.
func (m *measured) calls() map[string]map[string]int {
	out := map[string]map[string]int{}
	for operation, roles := range map[string][]string{"plan": {"ReadOnlyStepRole", "ReadOnlyRole"}, "apply": {"ProvisionStepRole", "ProvisionRole"}} {
		out[operation] = map[string]int{}
		for _, role := range roles {
			for action, n := range m.guard.Requests(m.customer.attribute(role, "Arn")) {
				out[operation][action] += n
			}
		}
	}
	return out
}

func since(now, before map[string]map[string]int) map[string]map[string]int {
	for operation, actions := range now {
		for action := range actions {
			actions[action] -= before[operation][action]
		}
	}
	return now
}

// fails runs the CLI, which must fail, and returns what it prints.
func (w *world) fails(args ...string) string {
	w.t.Helper()
	out, err := w.command(w.t.Context(), args...).CombinedOutput()
	if err == nil {
		w.t.Fatalf("fairlead %s succeeds:\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}
