package runnerstack_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

const (
	secretARN    = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:acme/db-AbCdEf"
	parameterARN = "arn:aws:ssm:eu-central-1:111122223333:parameter/acme/github"
)

// stepRoles are the roles of the tasks of jobs.
var stepRoles = []string{"ReadOnlyStepRole", "ProvisionStepRole", "DeployStepRole", "DeprovisionStepRole"}

// The customer's secrets are for the steps of jobs. A step gives its tool only the secrets of its component, so the role
// that the tool has must not read them: with it any module could read all of them. The agent, which talks to the control
// plane, has no access either.
func TestOnlyStepsReadCustomersSecrets(t *testing.T) {
	s := stack(t, "JobSecrets", "database/var.password="+secretARN+"#password,GITHUB_TOKEN="+parameterARN, "PlansReadData", "Yes", "AppActions", "*")
	none := stack(t)
	boundary := s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)
	const key = "arn:aws:kms:eu-central-1:111122223333:key/of-the-customer"
	viaSecrets, viaS3 := map[string]any{"kms:ViaService": "secretsmanager.eu-central-1.amazonaws.com"}, map[string]any{"kms:ViaService": "s3.eu-central-1.amazonaws.com"}
	var questions []infratest.Question
	var what []string
	var want []bool
	ask := func(of infratest.Stack, role, action, resource string, context map[string]any, allowed bool, why string) {
		q := infratest.Question{Principal: of.ARN(role), Action: action, Resource: resource, Account: infratest.Account, Context: context,
			Identity: append(of.Policies(role), managed(t, of, role)...)}
		if slices.Contains(operationRoles, role) {
			q.Boundary = boundary
		}
		if resource == key { // KMS asks the key's policy first; this one, AWS's default, lets IAM policies decide
			q.ResourceP = map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": "kms:*", "Resource": "*",
				"Principal": map[string]any{"AWS": "arn:aws:iam::" + infratest.Account + ":root"}}}}
		}
		questions, what, want = append(questions, q), append(what, role+": "+why+" ("+action+" on "+resource+")"), append(want, allowed)
	}
	for _, role := range stepRoles {
		ask(s, role, "secretsmanager:GetSecretValue", secretARN, nil, true, "a step reads a given secret")
		ask(s, role, "ssm:GetParameter", parameterARN, nil, true, "a step reads a given parameter")
		ask(s, role, "kms:Decrypt", key, viaSecrets, true, "Secrets Manager opens a secret for the step")
		ask(s, role, "kms:Decrypt", key, viaS3, false, "a step decrypts the customer's objects")
		ask(s, role, "kms:Decrypt", key, nil, false, "a step decrypts what it has")
		ask(s, role, "secretsmanager:GetSecretValue", strings.Replace(secretARN, "acme/db", "payroll", 1), nil, false, "a step reads another secret")
		ask(s, role, "ssm:GetParameter", parameterARN+"-admin", nil, false, "a step reads another parameter")
		ask(s, role, "ssm:GetParametersByPath", parameterARN, nil, false, "a step searches for parameters")
		ask(s, role, "secretsmanager:PutSecretValue", secretARN, nil, false, "a step changes the secret")
		ask(none, role, "secretsmanager:GetSecretValue", secretARN, nil, false, "a step reads a secret that was not given")
		ask(none, role, "kms:Decrypt", key, viaSecrets, false, "Secrets Manager opens a secret that was not given")
	}
	for _, role := range append([]string{"RunnerRole", "ExecutionRole"}, operationRoles...) {
		ask(s, role, "secretsmanager:GetSecretValue", secretARN, nil, false, "the agent or a tool reads a secret of another component")
		ask(s, role, "ssm:GetParameter", parameterARN, nil, false, "the agent or a tool reads a parameter of another component")
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if allowed != want[i] {
			t.Errorf("%s: %t, want %t", what[i], allowed, want[i])
		}
	}
}

// The parameter becomes the secrets of the agent's file and the resources of the grant, for one secret and for eight.
func TestSecretsOfTheParameterAreGiven(t *testing.T) {
	for value, of := range map[string]map[string]string{
		"":                             {},
		"GITHUB_TOKEN=" + parameterARN: {"GITHUB_TOKEN": parameterARN},
		"database/var.password=" + secretARN + "#password,var.user=" + secretARN + "#username,A=" + parameterARN + "/1,B=" + parameterARN + "/2,C=" + parameterARN + "/3,D=" + parameterARN + "/4,E=" + parameterARN + "/5,F=" + parameterARN + "/6": {
			"database/var.password": secretARN + "#password", "var.user": secretARN + "#username", "A": parameterARN + "/1", "B": parameterARN + "/2", "C": parameterARN + "/3",
			"D": parameterARN + "/4", "E": parameterARN + "/5", "F": parameterARN + "/6"},
	} {
		s := stack(t, "JobSecrets", value)
		text := infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_AGENT_CONFIG"]
		file, problems := runnerspec.ParseAgent("file", []byte(text))
		// The names of the test's network are not those of AWS, so there are other problems.
		if strings.Contains(problems.Error(), "secrets") || !maps.Equal(file.Secrets, of) {
			t.Errorf("%q: the agent's file has the secrets %v, want %v; %v", value, file.Secrets, of, problems)
		}
		want, granted := map[string]bool{}, map[string]bool{}
		for _, reference := range of {
			arn, _, _ := strings.Cut(reference, "#")
			want[arn] = true
		}
		for _, st := range infratest.Statements(s.Resources["StepSecrets"].Properties["PolicyDocument"]) {
			if st["Sid"] == "ReadSecrets" {
				for _, arn := range st["Resource"].([]any) {
					granted[arn.(string)] = true
				}
			}
		}
		if !maps.Equal(granted, want) {
			t.Errorf("%q grants %v, want %v", value, granted, want)
		}
	}
	if _, ok := stack(t, "JobSecrets", "A="+parameterARN, "Isolation", "Process").Resources["StepSecrets"]; ok {
		t.Error("processes, which share one identity, get the secrets")
	}
}

// CloudFormation and the agent accept the same entries.
func TestParameterTakesOnlyReferences(t *testing.T) {
	values := map[string]bool{
		"":                                      true,
		"A=" + parameterARN:                     true,
		"web-1/var.a_b=" + secretARN + "#k.v":   true,
		"A=" + parameterARN + ",B=" + secretARN: true,
		"A=hush":                                false,
		"web/var.a=ARN":                         false, // the form in the vendor's link, for the customer to fill in
		"A=ssm:/acme/github":                    false,
		"A=file:/etc/shadow":                    false,
		"A=" + parameterARN + ",":               false,
		"a-b=" + parameterARN:                   false,
		"A=" + parameterARN + `"}`:              false,
		"A=" + secretARN + "=x":                 false,
		"A=arn:aws:s3:::bucket":                 false,
		"A=" + parameterARN + "*":               false,
		strings.Repeat("A="+parameterARN+",", wire.MaxStackSecrets-1) + "B=" + parameterARN: true,
		strings.Repeat("A="+parameterARN+",", wire.MaxStackSecrets) + "B=" + parameterARN:   false,
	}
	list := slices.Sorted(maps.Keys(values))
	for i, accepted := range infratest.Accepts(t, synth(t).template, wire.StackJobSecrets, list) {
		if accepted != values[list[i]] {
			t.Errorf("JobSecrets=%s: accepted %t", list[i], accepted)
		}
		for entry := range strings.SplitSeq(list[i], ",") {
			name, reference, _ := strings.Cut(entry, "=")
			if _, err := runnerspec.ParseSecret(name, reference); accepted && list[i] != "" && err != nil {
				t.Errorf("the template accepts %s, and the agent does not: %v", entry, err)
			}
		}
	}
}
