package runnerstack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// The seed opens each secret of the install. The agent and the steps, which are the runner's own programs, read it. A module of the
// vendor has the role of an operation, which must neither read the seed, nor change it, nor get at it by a tag, a copy or a policy,
// also if plans may read data and the app may use every service.
func TestToolsCannotReachTheSeed(t *testing.T) {
	const given = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:acme/seed-AbCdEf"
	made := stack(t, "PlansReadData", "Yes", "AppActions", "*")
	own := stack(t, "ExistingInstallKey", "acme/seed", "PlansReadData", "Yes", "AppActions", "*")
	processes := stack(t, "Isolation", "Process", "AppActions", "*")
	seed := made.ARN("InstallKeySeed")
	const key = "arn:aws:kms:eu-central-1:111122223333:key/of-the-customer"
	var questions []infratest.Question
	var what []string
	var want []bool
	ask := func(of infratest.Stack, role, action, resource string, context map[string]any, allowed bool, why string) {
		q := infratest.Question{Principal: of.ARN(role), Action: action, Resource: resource, Account: infratest.Account, Context: context,
			Identity: append(of.Policies(role), managed(t, of, role)...)}
		if slices.Contains(operationRoles, role) {
			q.Boundary = of.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
		}
		if resource == key { // KMS asks the key's policy first; this one lets IAM policies decide
			q.ResourceP = map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "kms:*", "Resource": "*",
				"Principal": map[string]any{"AWS": "arn:aws:iam::" + infratest.Account + ":root"}}}}
		}
		questions, what, want = append(questions, q), append(what, role+": "+why+" ("+action+" on "+resource+")"), append(want, allowed)
	}
	via := func(service string) map[string]any {
		return map[string]any{"kms:ViaService": service + ".eu-central-1.amazonaws.com"}
	}
	for _, role := range append([]string{"RunnerRole"}, stepRoles...) {
		ask(made, role, "secretsmanager:GetSecretValue", seed, nil, true, "the runner's own program reads the seed")
		ask(own, role, "secretsmanager:GetSecretValue", given, nil, true, "it reads the customer's seed")
		ask(own, role, "kms:Decrypt", key, via("secretsmanager"), true, "Secrets Manager opens the seed for it")
		ask(own, role, "kms:Decrypt", key, via("s3"), false, "it decrypts objects of the customer")
		ask(own, role, "secretsmanager:GetSecretValue", strings.Replace(given, "acme/seed", "acme/seed2", 1), nil, false, "it reads another secret")
		ask(made, role, "secretsmanager:PutSecretValue", seed, nil, false, "it changes the seed")
	}
	ask(processes, "RunnerRole", "secretsmanager:GetSecretValue", seed, nil, false, "processes of a module have the agent's role")
	tagged := map[string]any{"aws:RequestTag/fairlead_install": "ins_00000000000000000000000000"}
	for _, role := range append([]string{"ExecutionRole"}, operationRoles...) {
		for _, action := range []string{"GetSecretValue", "PutSecretValue", "UpdateSecret", "DeleteSecret", "TagResource", "UntagResource", "PutResourcePolicy",
			"ReplicateSecretToRegions", "RotateSecret", "UpdateSecretVersionStage", "RestoreSecret"} {
			for _, secret := range []string{seed, given} {
				ask(made, role, "secretsmanager:"+action, secret, tagged, false, "a tool reaches the seed")
			}
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("%s: %t, want %t", what[i], allowed, want[i])
		}
	}
}

// The agent's file names the seed that exists, and the secret that the stack makes has a seed that the runner accepts and that stays.
func TestSeedIsInTheAgentsFile(t *testing.T) {
	const key = "arn:aws:kms:eu-central-1:111122223333:key/0aa0aa00"
	for _, c := range []struct {
		what      string
		given     []string
		made      bool
		reference string
		kms       any
	}{
		{"by default the stack makes a seed", nil, true, "", nil},
		{"the key of the customer encrypts it", []string{"ExistingStateKey", key}, true, "", key},
		{"the seed of an earlier stack is used", []string{"ExistingInstallKey", "fairlead/ins_1/install-key-1"}, false, "secretsmanager:fairlead/ins_1/install-key-1", nil},
		{"jobs are processes, so there is no seed", []string{"Isolation", "Process"}, false, "none", nil},
	} {
		s := stack(t, c.given...)
		secret, made := s.Resources["InstallKeySeed"]
		if made != c.made {
			t.Fatalf("%s: the stack makes a secret: %t", c.what, made)
		}
		want := c.reference
		if made {
			want = fmt.Sprint("secretsmanager:", secret.Properties["Name"])
			g := secret.Properties["GenerateSecretString"].(map[string]any)
			length, ok := g["PasswordLength"].(float64)
			if !ok || g["ExcludePunctuation"] != true || g["IncludeSpace"] != false {
				t.Errorf("%s: the secret is generated by %v", c.what, g)
			}
			if _, err := installkey.NewRing(strings.Repeat("Aa0", int(length)/3+1)[:int(length)], fairlead.InstallID("ins_1")); err != nil {
				t.Errorf("%s: the runner refuses a seed of this length: %v", c.what, err)
			}
			if secret.DeletionPolicy != "RetainExceptOnCreate" || secret.Properties["KmsKeyId"] != c.kms || secret.Properties["Tags"] != nil {
				t.Errorf("%s: %+v", c.what, secret)
			}
		}
		text := infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_AGENT_CONFIG"]
		file, problems := runnerspec.ParseAgent("file", []byte(text))
		if c.reference == "none" {
			want = ""
		}
		if file.InstallKey != want || file.InstallKeyByDefault != made || strings.Contains(problems.Error(), "install_key") {
			t.Errorf("%s: install_key is %q, by default %t, want %q; %v", c.what, file.InstallKey, file.InstallKeyByDefault, want, problems)
		}
	}
}

// A seed is named, and no ARN: a secret in another account would have a seed that its owner knows.
func TestSeedIsInTheCustomersAccount(t *testing.T) {
	values := map[string]bool{"": true, "acme/seed": true, "fairlead/ins_1/install-key-0aa0-11": true, "arn:aws:secretsmanager:eu-central-1:444455556666:secret:x-AbCdEf": false,
		`a","policy":"file:/x`: false, "*": false, "a b": false}
	var list []string
	for v := range values {
		list = append(list, v)
	}
	slices.Sort(list)
	for i, accepted := range infratest.Accepts(t, synth(t).template, "ExistingInstallKey", list) {
		if accepted != values[list[i]] {
			t.Errorf("ExistingInstallKey=%s: accepted %t", list[i], accepted)
		}
	}
}
