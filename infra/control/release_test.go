package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// A caller that invokes a function without its alias gets a new version at once, and may keep
// getting it after a rollback.
func TestEveryCallerInvokesTheAlias(t *testing.T) {
	s := stack(t)
	callers := map[string]int{}
	check := func(kind, id string, function any) {
		callers[kind]++
		if text := fmt.Sprint(function); !strings.HasSuffix(text, ":live") {
			t.Errorf("%s invokes %s, want an alias", id, text)
		}
	}
	for id, r := range s.Resources {
		p := r.Properties
		switch r.Type {
		case "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Permission":
			check(r.Type, id, p["FunctionName"])
		case "AWS::ApiGatewayV2::Integration":
			check(r.Type, id, p["IntegrationUri"])
		case "AWS::Lambda::EventInvokeConfig":
			callers[r.Type]++
			if p["Qualifier"] != "live" {
				t.Errorf("the failures of the alias do not go to %s", id)
			}
		case "AWS::Events::Rule":
			for _, target := range p["Targets"].([]any) {
				if arn := fmt.Sprint(target.(map[string]any)["Arn"]); strings.HasPrefix(arn, "arn:aws:lambda:") {
					check(r.Type, id, arn)
				}
			}
		}
	}
	check("subscription", "an install's log group", s.Resources["ControlAPI"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["FAIRLEAD_LOG_SUBSCRIBER"])
	for _, kind := range []string{"AWS::Lambda::EventSourceMapping", "AWS::Lambda::Permission", "AWS::ApiGatewayV2::Integration", "AWS::Lambda::EventInvokeConfig", "AWS::Events::Rule"} {
		if callers[kind] < 2 {
			t.Errorf("the stack has %d resources of type %s", callers[kind], kind)
		}
	}
}

// CodeDeploy moves each alias step by step, and goes back if the alarm of the new version fires.
func TestBrokenReleaseGoesBack(t *testing.T) {
	s := stack(t)
	aliases := 0
	for id, r := range s.Resources {
		if r.Type != "AWS::Lambda::Alias" {
			continue
		}
		aliases++
		name := strings.TrimSuffix(id, "Alias")
		update, _ := r.UpdatePolicy["CodeDeployLambdaAliasUpdate"].(map[string]any)
		if want := map[string]any{"Ref": name + "Releases"}; fmt.Sprint(update["DeploymentGroupName"]) != fmt.Sprint(want) {
			t.Errorf("CloudFormation moves the alias of %s with %v, want the deployment group %v", name, update, want)
		}
		group := fmt.Sprint(s.Resources[name+"Releases"].Properties)
		for _, want := range []string{"Canary10Percent5Minutes", "DEPLOYMENT_STOP_ON_ALARM", "WITH_TRAFFIC_CONTROL", "Name:" + strings.ToLower(name) + "canaryalarm"} {
			if !strings.Contains(group, want) {
				t.Errorf("the releases of %s lack %s: %s", name, want, group)
			}
		}
		if api := strings.HasSuffix(name, "API"); api != strings.Contains(group, "apierrorsalarm") {
			t.Errorf("the releases of %s watch the API's errors: %t, want %t", name, !api, api)
		}
		alarm := s.Resources[name+"CanaryAlarm"].Properties
		if text := fmt.Sprint(alarm["Dimensions"]); !strings.Contains(text, "Version-of-"+strings.ToLower(name)+"version") || alarm["Threshold"] != 0. {
			t.Errorf("the alarm of a release of %s does not watch the new version's first error: %v", name, alarm)
		}
	}
	if aliases != len(control.Functions) {
		t.Errorf("the stack has %d aliases of %d functions", aliases, len(control.Functions))
	}
}

// CloudFormation publishes a version if its description changes, and Lambda refuses to publish the
// same version twice. So the description changes with the code or the configuration of its own
// function, also by a parameter, and with nothing else.
func TestVersionChangesWithItsFunction(t *testing.T) {
	shortrun.OneDayIn(t, 3, 1)
	descriptions := func(p control.Props, values map[string]string) map[string]string {
		template, err := infratest.SynthVariant(t.TempDir(), func(scope constructs.Construct) (awscdk.Stack, error) { return control.New(scope, p) })
		if err != nil {
			t.Fatal(err)
		}
		s, err := template.Resolve(values)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]string{}
		for id, r := range s.Resources {
			if r.Type == "AWS::Lambda::Version" {
				list[id] = fmt.Sprint(r.Properties["Description"])
				if len(list[id]) > 256 {
					t.Errorf("the description of %s has %d characters", id, len(list[id]))
				}
			}
		}
		return list
	}
	changed := func(before, after map[string]string) (ids []string) {
		for id := range before {
			if before[id] != after[id] {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		return ids
	}
	same := descriptions(props(), given())
	otherImage, otherMail := given(), given()
	otherImage[control.ParameterDigest] = "sha256:" + strings.Repeat("9", 64)
	otherMail[control.ParameterAlarmEmail], otherMail[control.ParameterReserves] = "night@example.com", control.ReservesNot
	moreMemory, moreAlarms, atOnce := props(), props(), props()
	moreMemory.MemoryMB, moreAlarms.StuckJobs, atOnce.AllAtOnce = 512, 9, true
	for _, tt := range []struct {
		name  string
		after map[string]string
		want  int
	}{
		{"the same stack", descriptions(props(), given()), 0},
		{"another published image", descriptions(props(), otherImage), 1},
		{"another mail address, and no reserved executions", descriptions(props(), otherMail), 0},
		{"more memory", descriptions(moreMemory, given()), len(control.Functions)},
		{"another alarm", descriptions(moreAlarms, given()), 0},
		{"no canary, as in the first update of a deployment that changes the table or the key", descriptions(atOnce, given()), 0},
	} {
		if ids := changed(same, tt.after); len(ids) != tt.want || tt.want == 1 && ids[0] != "ControlAPIVersion" {
			t.Errorf("%s: the versions %q are published, want %d", tt.name, ids, tt.want)
		}
	}
}

// While CloudFormation moves the aliases one after the other, old and new versions of the functions are invoked. An old version
// must not serve the old table then: it would renew leases that the restored table refuses. A version keeps its environment but not its
// permissions. CloudFormation changes a function's role first, because the function refers to it.
func TestOldVersionsLoseTheTableBeforeNewOnesServe(t *testing.T) {
	values := given()
	values[control.ParameterTable] = "restored/stream/2026-11-25T19:30:00.000"
	s, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	own, restored := s.ARN("Table"), "arn:aws:dynamodb:eu-central-1:111122223333:table/restored"
	var questions []infratest.Question
	for id, r := range synth(t).template.Resources {
		if r.Type != "AWS::Lambda::Function" {
			continue
		}
		reference, _ := r.Properties["Role"].(map[string]any)["Fn::GetAtt"].([]any)
		if len(reference) != 2 {
			t.Fatalf("%s does not refer to its role, so CloudFormation may change it first: %v", id, r.Properties["Role"])
		}
		role := fmt.Sprint(reference[0])
		for _, action := range []string{"GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem", "GetRecords"} {
			for _, table := range []string{own, restored} {
				if action == "GetRecords" {
					table += "/stream/2026-11-25T19:30:00.000"
				}
				questions = append(questions, infratest.Question{Principal: s.ARN(role), Action: "dynamodb:" + action, Resource: table, Account: infratest.Account, Identity: s.Policies(role)})
			}
		}
	}
	serving := map[string]bool{} // roles that may use the restored table
	for i, allowed := range infratest.Ask(t, questions) {
		q := questions[i]
		if allowed && strings.HasPrefix(q.Resource, own) {
			t.Errorf("%s may still %s on %s", q.Principal, q.Action, q.Resource)
		}
		if allowed && strings.HasPrefix(q.Resource, restored) {
			serving[q.Principal] = true
		}
	}
	if len(serving) != len(control.Functions) {
		t.Errorf("%d of %d functions may use the restored table", len(serving), len(control.Functions))
	}
}

// A vendor must be able to deploy a fix, or the spare signing key, although the alarm of the API is on: CodeDeploy starts no
// release then. `make deploy` uses this synthesis for both. CloudFormation moves the aliases itself.
func TestCanaryCanBeSwitchedOff(t *testing.T) {
	p, err := control.FromContext(func(key string) string {
		return map[string]string{"stage": "test", "functions": "testdata/functions", "canary": "false"}[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	template, err := infratest.SynthVariant(t.TempDir(), func(scope constructs.Construct) (awscdk.Stack, error) { return control.New(scope, p) })
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(template.Raw)
	if err != nil || strings.Contains(string(text), "CodeDeploy") || strings.Contains(string(text), "Canary") {
		t.Errorf("the stack still has parts of CodeDeploy, %v", err)
	}
	aliases := 0
	for id, r := range template.Resources {
		if r.Type == "AWS::Lambda::Alias" {
			if aliases++; len(r.UpdatePolicy) > 0 {
				t.Errorf("the alias %s waits for %v", id, r.UpdatePolicy)
			}
		}
	}
	if aliases != len(control.Functions) {
		t.Errorf("the stack has %d aliases of %d functions", aliases, len(control.Functions))
	}
}
