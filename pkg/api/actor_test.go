package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// recording is an engine that keeps the writes of its commits.
type recording struct {
	engine.Engine
	mu     sync.Mutex
	writes []engine.Write
}

func (r *recording) Commit(ctx context.Context, token string, writes ...engine.Write) error {
	err := r.Engine.Commit(ctx, token, writes...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.writes = append(r.writes, writes...)
	}
	return err
}

// take returns the writes since the last call.
func (r *recording) take() []engine.Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.writes = nil }()
	return r.writes
}

// elsewhere are the routes that write nothing that names a caller, with the reason, and those whose record has a field of its own
// for the caller, with its test.
var elsewhere = map[string]string{
	"upload-part":        "a part is a blob that only its own token can use, and is deleted within a day",
	"open-registry":      "makes repositories and a login; the push that follows changes no record",
	"check-stack":        "changes nothing",
	"unlock-state":       "StateHead.Broken: TestPersonBreaksTheLockOfAnEndedJob",
	"push-state":         "StateHead.Pushed: TestUnsavedStateIsPushed",
	"approve-deployment": "Node.Approved: TestDeploymentRecordsItsActor",
	"cancel-deployment":  "Deployment.StopBy: TestDeploymentRecordsItsActor",
	"cancel-job":         "Job.StopBy: TestDeploymentRecordsItsActor",
	"run-action":         "a deployment: create-deployment",
	"put-stack":          "the stack: all tests of stacks of pkg/control check it",
	"revoke-key":         "KeySets, as rotate-keys: TestKeysRotateAndAreRevoked",
	"put-key-set":        "KeySets, as rotate-keys: TestSpareKeyElsewhereSignsTheChange",
	"redeliver-webhook":  "the delivery: TestEventsReachWebhooks",
	"migrate-state":      "a job, as check-runner",
	"refresh-runner":     "the install, as update-install",
	"build-app":          "a job, as check-runner",
	"log-out":            "ends the caller's own login: TestPeopleInMemory of pkg/control",
	"end-logins":         "deletes only logins: the log names the caller, as of delete-user",
}

// Each route that changes something leaves the caller's name: in the record that it writes, or in the log if it deletes the
// record. The rows are in the order of a story.
func TestEveryChangeNamesItsActor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	table := &recording{Engine: enginetest.Memory()}
	p := newPlaneOn(t, table, ln, http.DefaultTransport.(*http.Transport).Clone())
	if err := p.RegisterOperator(t.Context(), fairlead.DefaultOrg, "admin", p.api); err != nil {
		t.Fatal(err)
	}
	carol := call[wire.Token](p, "POST", "/v1/tokens", p.api, wire.CreateTokenRequest{Name: "carol", Operator: true})
	ids := map[string]string{}
	done := map[string]bool{}
	for _, row := range []struct {
		operation, path string
		body            any
	}{
		{"publish-version", "/v1/apps/shop/versions", publication(t, shop)},
		{"create-group", "/v1/groups", wire.CreateGroupRequest{Path: "eu"}},
		{"update-group", "/v1/group?path=eu", wire.UpdateGroupRequest{Description: "x"}},
		{"create-runner", "/v1/runners", wire.CreateRunnerRequest{Name: "far"}},
		{"update-runner", "/v1/runners/far", wire.UpdateRunnerRequest{RunnerConfigurationInput: wire.RunnerConfigurationInput{Set: []string{"description=x"}}}},
		{"set-runner-mode", "/v1/runners/far/mode", wire.RunnerMode{Mode: "paused"}},
		{"create-enrolment", "/v1/runners/far/enrolments", nil},
		{"create-service-account", "/v1/service-accounts", wire.CreateServiceAccountRequest{Name: "builds", ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: tokenRule}}},
		{"update-service-account", "/v1/service-accounts/builds", wire.ServiceAccountSettings{TokenRule: wire.TokenRule{Issuer: tokenRule.Issuer, Audience: tokenRule.Audience, Claims: map[string]string{"sub": "other"}}}},
		{"assign-service-account", "/v1/runners/far/service-accounts/builds", nil},
		{"create-runner-rule", "/v1/runner-rules", wire.CreateRunnerRuleRequest{Runner: "local", App: "shop"}},
		{"create-install", "/v1/installs", wire.CreateInstallRequest{Name: "acme", App: "shop", Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}}},
		{"update-install", "/v1/installs/acme", wire.UpdateInstallRequest{Inputs: map[string]json.RawMessage{"size": json.RawMessage(`3`)}}},
		{"set-variables", "/v1/variables?install=acme", wire.SetVariablesRequest{Values: map[string]*wire.Variable{"A": {Value: "b"}}}},
		{"create-deployment", "/v1/installs/acme/deployments", wire.CreateDeploymentRequest{Kind: "deploy"}},
		{"", "/v1/deployments/{create-deployment}/cancel", nil},
		{"retry-deployment", "/v1/deployments/{create-deployment}/retry", nil},
		{"", "/v1/deployments/{retry-deployment}/cancel", nil},
		{"check-runner", "/v1/runners/local/checks", nil},
		{"ask-runner-log", "/v1/runners/local/logs", nil},
		{"end-session", "/v1/runners/local/sessions/{session}", nil},
		{"revoke-agent", "/v1/runners/local/agents/{key}", nil},
		{"set-runner-channel", "/v1/runner-channels/stable", wire.SetRunnerChannelRequest{Version: "v1.2.3"}},
		{"create-webhook", "/v1/webhooks", wire.CreateWebhookRequest{Name: "hook", URL: "https://203.0.113.9/hook"}},
		{"create-token", "/v1/tokens", wire.CreateTokenRequest{Name: "ci"}},
		{"invite-user", "/v1/users", wire.InviteUserRequest{Email: "eva@example.com", Roles: []wire.RoleBinding{{Role: "viewer"}}}},
		{"update-user", "/v1/users/eva@example.com", wire.UpdateUserRequest{Roles: []wire.RoleBinding{{Role: "approver"}}}},
		{"", "/v1/users", wire.InviteUserRequest{Email: "sam@acme.example", Roles: []wire.RoleBinding{{Role: "security", Install: "acme"}}}},
		{"create-login-link", "/v1/users/sam@acme.example/link", nil},
		{"delete-user", "/v1/users/eva@example.com", nil},
		{"create-org", "/v1/orgs", wire.CreateOrgRequest{Name: "team-two"}},
		{"delete-org", "/v1/orgs/team-two", nil},
		{"rotate-keys", "/v1/keys/rotate", nil},
		{"set-login-issuer", "/v1/login-issuers/work", wire.LoginIssuerRule{Issuer: "https://issuer.example", ClientID: "x"}},
		{"delete-login-issuer", "/v1/login-issuers/work", nil},
		{"revoke-token", "/v1/tokens/ci", nil},
		{"rotate-webhook", "/v1/webhooks/hook/rotate", wire.RotateWebhookRequest{KeepHours: 1}},
		{"revoke-webhook-keys", "/v1/webhooks/hook/earlier-keys", nil},
		{"delete-webhook", "/v1/webhooks/hook", nil},
		{"delete-runner-channel", "/v1/runner-channels/stable", nil},
		{"forget-install", "/v1/installs/acme", nil},
		{"delete-runner-rule", "/v1/runner-rules/{create-runner-rule}", nil},
		{"unassign-service-account", "/v1/runners/far/service-accounts/builds", nil},
		{"delete-service-account", "/v1/service-accounts/builds", nil},
		{"delete-runner", "/v1/runners/far", nil},
		{"delete-group", "/v1/group?path=eu", nil},
		{"delete-app", "/v1/apps/shop", nil},
	} {
		if row.operation == "end-session" {
			p.session("local")
			ids["{session}"] = call[wire.Runner](p, "GET", "/v1/runners/local", p.api, nil).Sessions[0].ID
			ids["{key}"] = call[wire.Page[wire.Agent]](p, "GET", "/v1/runners/local/agents", p.api, nil).Items[0].Key
		}
		for name, id := range ids {
			row.path = strings.ReplaceAll(row.path, name, id)
		}
		method := "POST"
		eachOperation(t, func(_ document, m, _ string, op operation) {
			if op.OperationID == row.operation {
				method = m
			}
		})
		before := len(p.log.String())
		table.take()
		res := p.send(method, row.path, carol.Token, row.body)
		if res.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s", method, row.path, res.StatusCode, short(res.body))
		}
		var made struct{ ID string }
		_ = json.Unmarshal(res.body, &made) // some answers have no body
		ids["{"+row.operation+"}"] = made.ID
		done[row.operation] = true
		if bytes.Contains(res.body, []byte(`"created_at"`)) && !bytes.Contains(res.body, []byte(`ed_by":{"token":"`+carol.ID+`"`)) {
			t.Errorf("%s: the answer does not name the caller: %s", row.operation, short(res.body))
		}
		writes := table.take()
		if row.operation != "" && !noted(writes, carol.ID, row.operation) {
			t.Errorf("%s: the commit has no entry for the audit", row.operation)
		}
		if row.operation != "" && !names(writes, carol.ID) && !strings.Contains(p.log.String()[before:], "by=carol") {
			t.Errorf("%s: neither a record nor the log names the caller", row.operation)
		}
	}
	eachOperation(t, func(_ document, method, path string, op operation) {
		if op.scheme() == "apiToken" && method != "GET" && !done[op.OperationID] && elsewhere[op.OperationID] == "" {
			t.Errorf("%s %s changes something and has no row in this test: which record names the caller?", method, path)
		}
		if done[op.OperationID] && elsewhere[op.OperationID] != "" {
			t.Errorf("%s has a row: delete the reason", op.OperationID)
		}
	})
}

// noted reports whether a commit has a note for the audit with the actor and the operation.
func noted(writes []engine.Write, token, operation string) bool {
	return slices.ContainsFunc(writes, func(w engine.Write) bool {
		d, ok, err := store.Audit(engine.Change{Key: w.Item.Key, New: &w.Item})
		return err == nil && ok && d.Actor.ID == token && d.Action == operation && d.Request != "" && d.Object.Kind != "" && d.Org != ""
	})
}

// names reports whether a written record names the token.
func names(writes []engine.Write, token string) bool {
	return slices.ContainsFunc(writes, func(w engine.Write) bool { return bytes.Contains(w.Item.Body, []byte(`"token":"`+token+`"`)) })
}

// What an agent or the control plane changes keeps the names of the people who changed it before.
func TestAgentsLeaveTheActorsOfARecord(t *testing.T) {
	c := newCast(t)
	in := call[wire.Install](c.plane, "GET", "/v1/installs/acme", c.api, nil)
	if in.CreatedBy == nil || in.CreatedBy.Name != "admin" || in.ChangedBy == nil {
		t.Fatalf("the install was created by %+v and changed by %+v", in.CreatedBy, in.ChangedBy)
	}
	c.finish(c.running)
	after := call[wire.Install](c.plane, "GET", "/v1/installs/acme", c.api, nil)
	if after.CreatedBy == nil || *after.CreatedBy != *in.CreatedBy || after.ChangedBy == nil || *after.ChangedBy != *in.ChangedBy {
		t.Errorf("after a job the install was created by %+v and changed by %+v", after.CreatedBy, after.ChangedBy)
	}
}
