package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity"
)

const dockerConfig = `{"runner_configuration":{"type":"docker","job":{"registry":{"username":"me","password":"canary-password"}}},"state_storage_configuration":{"type":"http"}}`

// The API accepts a configuration as an object or as the text of a file. It returns
// the configuration without secrets. Its errors name the line and column.
func TestRunnerConfigurationIsCheckedAndMasked(t *testing.T) {
	p := newPlane(t)
	object := wire.RunnerConfigurationInput{Config: json.RawMessage(dockerConfig)}
	made := call[wire.Runner](p, "POST", "/v1/runners", p.api, wire.CreateRunnerRequest{Name: "build", RunnerConfigurationInput: object})
	if made.Kind != "docker" || made.Storage != "http" || made.Mode != "enabled" || made.Group != "/" || strings.Contains(string(made.Config), "canary") {
		t.Errorf("created runner %+v with config %s", made, made.Config)
	}
	text := wire.RunnerConfigurationInput{Text: "description: Ours.\nrunner_configuration:\n  concurrency: 3\n", File: "part.yaml", Set: []string{"runner_configuration.job.network=inner"}}
	changed := call[wire.Runner](p, "PATCH", "/v1/runners/build", p.api, wire.UpdateRunnerRequest{RunnerConfigurationInput: text})
	got := call[wire.Runner](p, "GET", "/v1/runners/build", p.api, nil)
	for _, want := range []string{`"description":"Ours."`, `"concurrency":3`, `"network":"inner"`, `"password":"(masked)"`} {
		if !strings.Contains(string(got.Config), want) || string(got.Config) != string(changed.Config) {
			t.Errorf("config %s, want %s in it; the answer to the change was %s", got.Config, want, changed.Config)
		}
	}
	for _, test := range []struct {
		consequence string
		in          wire.RunnerConfigurationInput
		where, what string
	}{
		{"an unknown field", wire.RunnerConfigurationInput{Text: "runner_configuration:\n  job:\n    netwrok: x\n", File: "r.yaml"}, "r.yaml:3:5", `Did you mean "network"?`},
		{"a wrong --set value", wire.RunnerConfigurationInput{Set: []string{"runner_configuration.type=local"}}, "--set runner_configuration.type:1:1", "cannot be changed"},
		{"invalid YAML", wire.RunnerConfigurationInput{Text: "a: [", File: "r.yaml"}, "r.yaml:1:4", ""},
		{"a storage that the runner kind does not support", wire.RunnerConfigurationInput{Config: json.RawMessage(`{"state_storage_configuration":{"type":"kubernetes","namespace":"n"}}`)}, "runner:1:", "its jobs do not run in a cluster"},
	} {
		problem := p.send("PATCH", "/v1/runners/build", p.api, wire.UpdateRunnerRequest{RunnerConfigurationInput: test.in}).problem(t)
		if !strings.HasSuffix(problem.Type, ":invalid-runner") || len(problem.Errors) == 0 || !strings.HasPrefix(problem.Errors[0].Location, test.where) ||
			!strings.Contains(fmt.Sprint(problem.Errors), test.what) {
			t.Errorf("%s is refused with %+v", test.consequence, problem)
		}
	}
	for _, in := range []wire.RunnerConfigurationInput{{Config: json.RawMessage(`[]`)}, {Config: json.RawMessage(`{}`), Text: "a: b"}} {
		if got := p.send("PATCH", "/v1/runners/build", p.api, wire.UpdateRunnerRequest{RunnerConfigurationInput: in}).code(t); got != "invalid-runner" {
			t.Errorf("%+v is refused with %s", in, got)
		}
	}
	if strings.Contains(p.log.String(), "canary") {
		t.Error("the log holds a password")
	}
	call[struct{}](p, "DELETE", "/v1/runners/build", p.api, nil)
	if got := p.send("GET", "/v1/runners/build", p.api, nil).code(t); got != "runner-not-found" {
		t.Errorf("a deleted runner is refused with %s", got)
	}
}

// If an import fails in a shell pipe, "runner create" gets an empty file. That must not
// create a runner with default settings.
func TestEmptyRunnerConfigurationIsRefused(t *testing.T) {
	p := newPlane(t)
	for _, text := range []string{"", "\n \n"} {
		in := wire.CreateRunnerRequest{Name: "wide", RunnerConfigurationInput: wire.RunnerConfigurationInput{File: "stdin", Text: text}}
		if got := p.send("POST", "/v1/runners", p.api, in).code(t); got != "invalid-runner" {
			t.Errorf("%q is refused with %s", text, got)
		}
	}
	if got := p.send("GET", "/v1/runners/wide", p.api, nil).code(t); got != "runner-not-found" {
		t.Errorf("the runner exists: %s", got)
	}
	call[wire.Runner](p, "POST", "/v1/runners", p.api, wire.CreateRunnerRequest{Name: "wide"}) // without a file
}

// A tenant's token can neither change a shared runner nor see its configuration and
// sessions.
func TestTenantCannotChangeOrInspectSharedRunner(t *testing.T) {
	p := newPlane(t)
	operator, tenant := identity.NewToken(identity.PrefixAPI), identity.NewToken(identity.PrefixAPI)
	if err := p.RegisterOperator(t.Context(), "vendor", "operator", operator); err != nil {
		t.Fatal(err)
	}
	if err := p.RegisterToken(t.Context(), "other", "tenant", tenant); err != nil {
		t.Fatal(err)
	}
	in := wire.CreateRunnerRequest{Name: "common", Shared: true, RunnerConfigurationInput: wire.RunnerConfigurationInput{Config: json.RawMessage(dockerConfig)}}
	if got := p.send("POST", "/v1/runners", tenant, in).code(t); got != "operator-only" {
		t.Errorf("a tenant's shared runner is refused with %s", got)
	}
	made := call[wire.Runner](p, "POST", "/v1/runners", operator, in)
	if !made.Shared || len(made.Config) == 0 {
		t.Errorf("the operator's shared runner: %+v", made)
	}
	for _, change := range []struct {
		method, path string
		body         any
	}{
		{"PATCH", "/v1/runners/common", wire.UpdateRunnerRequest{RunnerConfigurationInput: wire.RunnerConfigurationInput{Set: []string{"description=x"}}}},
		{"PUT", "/v1/runners/common/mode", wire.RunnerMode{Mode: "disabled"}},
		{"POST", "/v1/runners/common/enrolments", nil},
		{"POST", "/v1/runners/common/checks", nil},
		{"PATCH", "/v1/variables?runner=common", `{"values":{"A":{"value":"b"}}}`},
		{"GET", "/v1/variables?runner=common", nil},
		{"DELETE", "/v1/runners/common", nil},
	} {
		if got := p.send(change.method, change.path, tenant, change.body).code(t); got != "operator-only" {
			t.Errorf("%s %s by a tenant is refused with %s", change.method, change.path, got)
		}
	}
	seen := call[wire.Runner](p, "GET", "/v1/runners/common", tenant, nil)
	listed := call[wire.Page[wire.Runner]](p, "GET", "/v1/runners", tenant, nil)
	if !seen.Shared || len(seen.Config)+len(seen.Sessions) > 0 || len(listed.Items) != 1 || listed.Items[0].Name != "common" {
		t.Errorf("a tenant sees %+v, and lists %+v", seen, listed)
	}
	// Two orgs can have different runners of the same name.
	call[wire.Runner](p, "POST", "/v1/runners", tenant, wire.CreateRunnerRequest{Name: "local"})
	call[wire.Runner](p, "PUT", "/v1/runners/local/mode", tenant, wire.RunnerMode{Mode: "disabled"})
	if got := call[wire.Runner](p, "GET", "/v1/runners/local", p.api, nil); got.Mode != "enabled" {
		t.Errorf("the mode of another tenant's runner of the same name became %s", got.Mode)
	}
}

// The API explains which runner an install gets. If it refuses a refresh, the problem
// names the runner that the refresh would choose.
func TestPlacementIsExplained(t *testing.T) {
	p := newPlane(t)
	p.publish()
	call[wire.Group](p, "POST", "/v1/groups", p.api, wire.CreateGroupRequest{Path: "eu"})
	call[wire.Runner](p, "POST", "/v1/runners", p.api, wire.CreateRunnerRequest{Name: "frankfurt", RunnerConfigurationInput: wire.RunnerConfigurationInput{
		Text: "group: eu\nrunner_configuration: {type: local}\nstate_storage_configuration: {type: local}\n"}})
	in := wire.CreateInstallRequest{Name: "one", App: "shop", Group: "eu", Labels: map[string]string{"env": "prod"},
		Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}}
	if got := call[wire.Install](p, "POST", "/v1/installs", p.api, in); got.Runner != "" || got.Bound || got.Group != "eu" || got.Labels["env"] != "prod" {
		t.Errorf("created install %+v", got)
	}
	e := call[wire.Placement](p, "GET", "/v1/installs/one/placement", p.api, nil)
	if e.Runner != "frankfurt" || e.Level != "group" || len(e.Candidates) != 2 || !e.Candidates[0].Won || e.Candidates[1].Runner != "local" || e.Candidates[1].Why == "" {
		t.Errorf("placement %+v", e)
	}
	p.deploy("one")
	call[wire.RunnerRule](p, "POST", "/v1/runner-rules", p.api, wire.CreateRunnerRuleRequest{Labels: map[string]string{"env": "p*"}, Runner: "local"})
	problem := p.send("POST", "/v1/installs/one/refresh-runner", p.api, wire.RefreshRunnerRequest{DryRun: true}).problem(t)
	if !strings.HasSuffix(problem.Type, ":deployment-runs") || problem.Details["runner"] != "local" || problem.Details["changed"] != "true" {
		t.Errorf("problem of a refresh during a deployment: %+v", problem)
	}
	call[wire.Runner](p, "PUT", "/v1/runners/local/mode", p.api, wire.RunnerMode{Mode: "draining"})
	e = call[wire.Placement](p, "GET", "/v1/installs/one/placement", p.api, nil)
	if e.Refused == nil || e.Refused.Code != "runner-unavailable" || e.Bound != "frankfurt" {
		t.Errorf("placement on a draining runner: %+v", e)
	}
}
