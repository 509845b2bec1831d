package runnerstack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// recording has the calls of a public module, as tools/recordcalls recorded them.
type recording struct {
	Module, Version, Commit, Incomplete string
	Applied                             []applied // none in a recording that is older than the field
	Calls                               []struct {
		Operation, Action, Resource string
		Context                     map[string]any
	}
}

// applied is a plan that was applied. Calls are places in the recording's calls.
type applied struct {
	Operation string
	Changes   []struct{ Action, Type string }
	Calls     []int
}

func recordings(t *testing.T) map[string]recording {
	t.Helper()
	files, err := filepath.Glob("testdata/calls/*.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]recording{}
	for _, file := range files {
		var r recording
		readJSON(t, file, &r)
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = r
	}
	return out
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// roleOf is the role of the operation of a job on a Terraform module.
var roleOf = map[string]string{"plan": "ReadOnlyRole", "apply": "ProvisionRole", "destroy": "DeprovisionRole"}

// denied has the recorded calls that a stack with the default parameters denies on purpose, by
// module, operation and action. The parameter PlansReadData allows them.
var denied = map[string]string{
	"ssm-parameter plan ssm:GetParameter": "the parameter may be a secret, and plans read no data unless the customer lets them",
}

// asked is a question with its place in a recording.
type asked struct {
	infratest.Question
	module, operation string
}

// ask returns the questions of a recording: whether the role of the operation may make each
// call, in a stack with what an app with this module declares.
func (r recording) ask(t *testing.T, name string, more ...string) (out []asked) {
	t.Helper()
	services := map[string]bool{}
	for _, c := range r.Calls {
		if service, _, _ := strings.Cut(c.Action, ":"); service != "iam" {
			services[service+":*"] = true
		}
	}
	if len(services) > 0 {
		more = append(more, "AppActions", strings.Join(slices.Sorted(maps.Keys(services)), ","))
	}
	s := stack(t, more...)
	for _, c := range r.Calls {
		role := roleOf[c.Operation]
		q := infratest.Question{Principal: s.ARN(role), Action: c.Action, Resource: c.Resource, Account: infratest.Account, Context: c.Context,
			Identity: s.Policies(role), Boundary: s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)}
		if role == "ReadOnlyRole" {
			q.Identity = append(q.Identity, readOnlyAccess(t, services))
		}
		if strings.Contains(c.Resource, "::parameter/") { // of AWS
			q.Resource = ofAWS(c.Resource)
			for i, p := range q.Identity {
				q.Identity[i] = edited(t, p, ofAWS)
			}
		}
		if strings.HasPrefix(c.Action, "kms:") {
			q.ResourceP = accountsKeyPolicy
		}
		out = append(out, asked{q, name, c.Operation})
	}
	return out
}

// recordedReadOnlyAccess returns the actions of AWS's managed policy, as it was when the calls were
// recorded, for the services of the recorded modules.
func recordedReadOnlyAccess(t *testing.T) []string {
	t.Helper()
	var p struct{ Actions []string }
	readJSON(t, "testdata/calls/read-only/ReadOnlyAccess.json", &p)
	return p.Actions
}

// readOnlyAccess is that policy without the other services: the simulator is slow with thousands
// of actions.
func readOnlyAccess(t *testing.T, services map[string]bool) map[string]any {
	t.Helper()
	return policyOf(slices.DeleteFunc(recordedReadOnlyAccess(t), func(action string) bool {
		service, _, _ := strings.Cut(action, ":")
		return service != "iam" && !services[service+":*"]
	})...)
}

func questionsOf(list []asked) (out []infratest.Question) {
	for _, a := range list {
		out = append(out, a.Question)
	}
	return out
}

// OpenTofu and the provider hashicorp/aws planned, created, changed and removed these public
// modules, with the default tag of a runner. The role of each operation may make the calls of
// its operation.
func TestRecordedModulesAreNotDenied(t *testing.T) {
	complete := 0
	var all []asked
	for name, r := range recordings(t) {
		if r.Incomplete == "" {
			complete++
		}
		if len(r.Calls) == 0 || len(r.Commit) != 40 {
			t.Errorf("%s has no calls, or no commit", name)
		}
		inputs, err := os.ReadFile("testdata/calls/" + name + ".tf")
		if want := fmt.Sprintf("# %s %s %s\n", r.Module, r.Version, r.Commit); err != nil || !strings.HasPrefix(string(inputs), want) {
			t.Errorf("%s.tf does not start with %q: record it again, %v", name, want, err)
		}
		all = append(all, r.ask(t, name)...)
	}
	if complete < 10 {
		t.Errorf("%d modules were recorded from creation to removal, want 10 or more", complete)
	}
	seen := map[string]bool{}
	var reads []asked
	for i, allowed := range infratest.Ask(t, questionsOf(all)) {
		a := all[i]
		key := a.module + " " + a.operation + " " + a.Action
		if denied[key] != "" && !seen[key] {
			seen[key] = true
			for _, again := range recordings(t)[a.module].ask(t, a.module, "PlansReadData", "Yes") {
				if again.operation == a.operation && again.Action == a.Action {
					reads = append(reads, again)
				}
			}
		}
		if allowed == (denied[key] != "") {
			t.Errorf("%s: %s may %s on %s with %v: %t", a.module, a.operation, a.Action, a.Resource, a.Context, allowed)
		}
	}
	for i, allowed := range infratest.Ask(t, questionsOf(reads)) {
		if a := reads[i]; !allowed {
			t.Errorf("%s: %s may not %s on %s, even if plans may read data", a.module, a.operation, a.Action, a.Resource)
		}
	}
	for key := range denied {
		if !seen[key] {
			t.Errorf("denied has %q, which no recording has", key)
		}
	}
	t.Logf("%d calls of %d modules, %d of them complete", len(all), len(recordings(t)), complete)
}

// listed returns questions for the calls of modules that no server here plays whole, by module.
// They are listed by hand from the documentation of the provider and of AWS.
func listed(t *testing.T, s infratest.Stack) map[string][]infratest.Question {
	t.Helper()
	var calls struct {
		Modules map[string][]struct{ Action, Resource, Tags string }
	}
	readJSON(t, "testdata/listed-calls.json", &calls)
	tag := map[string]any{"aws:ResourceTag/fairlead_install": install}
	contexts := map[string]map[string]any{"own": tag, "new": {"aws:RequestTag/fairlead_install": install}, "none": nil}
	out := map[string][]infratest.Question{}
	for module, list := range calls.Modules {
		for _, c := range list {
			context, ok := contexts[c.Tags]
			if !ok {
				t.Fatalf("%s: tags are %q", module, c.Tags)
			}
			if c.Tags == "new" && regexp.MustCompile(`:(Add)?Tag|:AddTags`).MatchString(c.Action) {
				context = merge(context, tag) // AWS fills aws:ResourceTag with the tags of a request that makes the resource
			}
			q := infratest.Question{Principal: s.ARN("ProvisionRole"), Action: c.Action, Resource: c.Resource, Account: infratest.Account, Context: context,
				Identity: s.Policies("ProvisionRole"), Boundary: s.Resources["Boundary"].Properties["PolicyDocument"].(map[string]any)}
			if strings.HasPrefix(c.Action, "kms:") {
				q.ResourceP = accountsKeyPolicy
			}
			out[module] = append(out[module], q)
		}
	}
	return out
}

func TestListedModulesAreNotDenied(t *testing.T) {
	var questions []infratest.Question
	var of []string
	recorded, modules := recordings(t), listed(t, stack(t))
	for module, list := range modules {
		if r, ok := recorded[module]; ok && r.Incomplete == "" {
			t.Errorf("%s is recorded: remove it from the list", module)
		}
		for _, q := range list {
			questions, of = append(questions, q), append(of, module)
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		if !allowed {
			t.Errorf("the module %s may not %s on %s with %v", of[i], questions[i].Action, questions[i].Resource, questions[i].Context)
		}
	}
	t.Logf("%d calls of %d modules", len(questions), len(modules))
}
