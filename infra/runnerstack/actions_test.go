package runnerstack_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/awsaction"
)

// The customer's console refuses the actions that would lift the boundary, and app.yaml
// refuses and accepts the same ones.
func TestAppActionsLiftNoBoundary(t *testing.T) {
	refused := []string{"*", "*:*", "", "iam", "lambda", "lambda:", ":Invoke", "lam*:Invoke", "i?m:*", "IAM:*", "Lambda:*", "s3:Get?", "s3: Get"}
	for _, service := range awsaction.Refused() {
		refused = append(refused, service+":*", service+":Get", service)
	}
	for _, must := range []string{"iam:*", "sts:*", "organizations:*", "account:*", "billing:*", "sso:*", "sso-directory:*", "identitystore:*"} {
		if !slices.Contains(refused, must) {
			t.Errorf("%s is not among the refused actions", must)
		}
	}
	template := synth(t).template
	values := append(slices.Clone(refused), "rds:Describe*", "execute-api:Invoke", "route53:*", "iamx:Get", "sso2:*")
	values = append(values, strings.Split(defaultActions(t, template), ",")...)
	for i, accepted := range infratest.Accepts(t, template, "AppActions", values) {
		if want := i >= len(refused); accepted != want {
			t.Errorf("the template accepts %q: %v, want %v", values[i], accepted, want)
		}
		if problem, _ := awsaction.Check(values[i]); (problem == "") != accepted {
			t.Errorf("%q: the template accepts it: %v, app.yaml: %q", values[i], accepted, problem)
		}
	}
}

func defaultActions(t *testing.T, template infratest.Template) string {
	t.Helper()
	p := template.Raw["Parameters"].(map[string]any)["AppActions"].(map[string]any)
	return p["Default"].(string)
}

// A customer reads in the form, before the creation, what the app may use: sentences beside the
// actions. They come from the vendor, so they grant nothing and the form says that.
func TestFormShowsWhatTheAppUses(t *testing.T) {
	parameters := synth(t).template.Raw["Parameters"].(map[string]any)
	uses := parameters[wire.StackAppUses].(map[string]any)
	if want := strings.Join(awsaction.Sentences(strings.Split(defaultActions(t, synth(t).template), ",")), " "); uses["Default"] != want {
		t.Errorf("for the default actions the form shows %q, want %q", uses["Default"], want)
	}
	if uses["MaxLength"] != float64(wire.MaxStackParameter) || !strings.Contains(uses["Description"].(string), "grants nothing") {
		t.Errorf("the parameter is %v", uses)
	}
	lie, plain := stack(t, wire.StackAppUses, "The app may use nothing."), stack(t)
	if !reflect.DeepEqual(lie.Resources, plain.Resources) {
		t.Error("the sentences change a resource of the stack")
	}
	if out, err := lie.Output("WhatTheAppUses"); err != nil || out != "The app may use nothing." {
		t.Errorf("the output is %v, %v", out, err)
	}
}

// An app that declares as much as app.yaml accepts still gets a stack: IAM accepts a
// boundary of at most 6,144 characters.
func TestLargestDeclarationFitsTheBoundary(t *testing.T) {
	var largest []string
	for size, i := 0, 0; ; i++ {
		action := fmt.Sprintf("service%02d:*", i)
		if size += awsaction.Size(action); size > awsaction.MaxSize {
			break
		}
		largest = append(largest, action)
	}
	if size := policySize(t, stack(t, "AppActions", strings.Join(largest, ",")).Resources["Boundary"]); size > 6144 {
		t.Errorf("the boundary has %d characters with %d actions", size, len(largest))
	}
	// The default list is no larger than a declaration may be.
	size := 0
	for _, action := range strings.Split(defaultActions(t, synth(t).template), ",") {
		size += awsaction.Size(action)
	}
	if size > awsaction.MaxSize {
		t.Errorf("the default has %d characters, a declaration may have %d", size, awsaction.MaxSize)
	}
}

// policySize returns the most characters that a managed policy can have in an account. AWS
// chooses longer names than Resolve, and some Regions have longer names.
func policySize(t *testing.T, policy infratest.Resource) int {
	t.Helper()
	text, err := json.Marshal(policy.Properties["PolicyDocument"])
	if err != nil {
		t.Fatal(err)
	}
	uuid := strings.Repeat("u", 36)
	longest := string(text)
	for _, name := range [][2]string{{"statebucket", strings.Repeat("b", 63)}, {"statekey", uuid}, {"/boundary-0", "/boundary-" + uuid}, {"stack/*/0", "stack/*/" + uuid}, {infratest.Region, "ap-southeast-1"}} {
		if !strings.Contains(longest, name[0]) {
			t.Fatalf("the policy has no %s: its size in an account is not known", name[0])
		}
		longest = strings.ReplaceAll(longest, name[0], name[1])
	}
	return len(longest)
}

// The parameter with the app's declaration is in the template under the name that
// `fairlead install stack` prints.
func TestTemplateTakesTheDeclaration(t *testing.T) {
	services := infratest.Statements(stack(t, wire.StackAppActions, "lambda:*,rds:Describe*").Resources["Boundary"].Properties["PolicyDocument"])[0]
	if got := fmt.Sprint(services["Action"]); got != "[lambda:* rds:Describe*]" {
		t.Errorf("the boundary allows %s", got)
	}
}
