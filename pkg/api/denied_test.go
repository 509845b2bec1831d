package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/identity/oidctest"
)

// ruled is what the test expects of a route of the control API: the right that a caller needs, and the object on which. It is
// written here a second time, by hand: a change of a rule in the code must be a change here too.
type ruled struct{ right, on string }

// The objects of the requests. All are the customer acme's, in the group eu/prod, or the app shop.
const (
	onInstall = "install"
	onApp     = "app"
	onFleet   = "fleet" // a runner, runner rule, service account or group of eu/prod
	onStack   = "stack" // the install, and the runner that a stack would run
	onOrg     = "org"
	onShared  = "shared"
	onToken   = "token"  // a token or a user: a viewer of the group eu/prod
	onNothing = "caller" // each caller may ask
)

// ruleOf has a row for each operation of the control API. A route without a row fails the test.
var ruleOf = map[string]ruled{
	"publish-version": {"edit-app", onApp}, "build-app": {"edit-app", onApp}, "open-registry": {"edit-app", onApp}, "delete-app": {"edit-app", onApp},
	"get-app": {"view", onApp}, "list-versions": {"view", onApp}, "get-version": {"view", onApp}, "get-provenance": {"view", onApp},

	"create-install": {"edit-install", onInstall}, "update-install": {"edit-install", onInstall}, "forget-install": {"edit-install", onInstall},
	"push-state": {"edit-install", onInstall}, "unlock-state": {"edit-install", onInstall}, "migrate-state": {"edit-install", onInstall},
	"refresh-runner": {"edit-install", onInstall}, "set-variables": {"edit-install", onInstall},
	"get-install": {"view", onInstall}, "list-actions": {"view", onInstall}, "explain-placement": {"view", onInstall}, "render-install": {"view", onInstall},
	"get-stack": {"view", onInstall}, "get-variables": {"view", onInstall}, "get-outputs": {"view-secrets", onInstall},
	"put-stack": {"manage-runners", onStack},

	"create-deployment": {"deploy", onInstall}, "retry-deployment": {"deploy", onInstall}, "run-action": {"deploy", onInstall},
	"approve-deployment": {"approve", onInstall}, "cancel-deployment": {"cancel", onInstall}, "cancel-job": {"cancel", onInstall},
	"get-deployment": {"view", onInstall}, "list-jobs": {"view", onInstall}, "list-deployments": {"view", onInstall}, "get-job": {"view", onInstall}, "read-job-log": {"view", onInstall},

	"create-runner": {"manage-runners", onFleet}, "update-runner": {"manage-runners", onFleet}, "delete-runner": {"manage-runners", onFleet}, "set-runner-mode": {"manage-runners", onFleet},
	"create-enrolment": {"manage-runners", onFleet}, "check-runner": {"manage-runners", onFleet}, "ask-runner-log": {"manage-runners", onFleet}, "end-session": {"manage-runners", onFleet},
	"revoke-agent": {"manage-runners", onFleet}, "assign-service-account": {"manage-runners", onFleet}, "unassign-service-account": {"manage-runners", onFleet},
	"create-service-account": {"manage-people", onFleet}, "update-service-account": {"manage-people", onFleet}, "delete-service-account": {"manage-people", onFleet},
	"create-runner-rule": {"manage-runners", onFleet}, "delete-runner-rule": {"manage-runners", onFleet},
	"create-group": {"manage-runners", onFleet}, "update-group": {"manage-runners", onFleet}, "delete-group": {"manage-runners", onFleet},
	"get-runner": {"view", onFleet}, "list-agents": {"view", onFleet}, "get-service-account": {"view", onFleet}, "get-group": {"view", onFleet},

	"set-runner-channel": {"operate", onShared}, "delete-runner-channel": {"operate", onShared}, "list-runner-channels": {"view", onShared},

	"get-limits": {"view", onOrg}, "get-audit": {"view", onOrg}, "list-audit-chains": {"view", onOrg}, "list-audit-entries": {"view", onOrg}, "list-audit-checkpoints": {"view", onOrg},
	"create-webhook": {"manage-webhooks", onOrg}, "delete-webhook": {"manage-webhooks", onOrg}, "rotate-webhook": {"manage-webhooks", onOrg}, "revoke-webhook-keys": {"manage-webhooks", onOrg}, "list-deliveries": {"manage-webhooks", onOrg}, "redeliver-webhook": {"manage-webhooks", onOrg},

	"create-token": {"manage-people", onToken}, "get-token": {"manage-people", onToken}, "revoke-token": {"manage-people", onToken},
	"invite-user": {"manage-people", onToken}, "get-user": {"manage-people", onToken}, "update-user": {"manage-people", onToken}, "delete-user": {"manage-people", onToken}, "end-logins": {"manage-people", onToken}, "create-login-link": {"manage-people", onToken},

	"set-login-issuer": {"operate", onShared}, "delete-login-issuer": {"operate", onShared}, "list-login-issuers": {"view", onShared},
	"list-keys": {"view", onShared}, "rotate-keys": {"operate", onShared}, "revoke-key": {"operate", onShared}, "put-key-set": {"operate", onShared},
	"create-org": {"operate", onShared}, "list-orgs": {"operate", onShared}, "get-org": {"operate", onShared}, "delete-org": {"operate", onShared},
	"log-out": {"", onNothing}, "get-caller": {"", onNothing}, "list-users": {"", onNothing},

	"upload-part": {"", onNothing}, "download-part": {"", onNothing}, "check-stack": {"", onNothing}, "list-apps": {"", onNothing}, "list-installs": {"", onNothing},
	"list-groups": {"", onNothing}, "list-runner-rules": {"", onNothing}, "list-runners": {"", onNothing}, "list-stacks": {"", onNothing}, "list-tokens": {"", onNothing}, "list-service-accounts": {"", onNothing}, "list-webhooks": {"", onNothing},
}

// rightsOf is the table of the page, a second time.
var rightsOf = map[string][]string{
	"owner":    {"view", "view-secrets", "deploy", "cancel", "approve", "edit-install", "edit-app", "manage-runners", "manage-webhooks", "manage-people"},
	"deployer": {"view", "view-secrets", "deploy", "cancel", "edit-install", "edit-app"},
	"approver": {"view", "cancel", "approve"},
	"viewer":   {"view"},
	"security": {"view", "manage-people"},
}

// placesOf has the places at which a role holds for an object.
var placesOf = map[string][]string{
	onInstall: {"", "group:eu", "group:eu/prod", "app:shop", "install:acme"}, onApp: {"", "app:shop"}, onFleet: {"", "group:eu", "group:eu/prod"}, onOrg: {""}, onStack: {"", "group:eu", "group:eu/prod"},
	onToken: {"", "group:eu", "group:eu/prod"},
}

// credential is a caller of the control API.
type credential struct {
	role, place string
	operator    bool
	stranger    bool // an owner of another org
	program     bool // has logged in as a service account
	token       string
}

func (c credential) String() string {
	if c.stranger {
		return "an owner of another org"
	}
	if c.operator {
		return "an operator, " + c.role + " of " + c.place
	}
	if c.program {
		return "a service account, " + c.role + " of " + c.place
	}
	return c.role + " of " + c.place
}

// may reports whether the test expects that the caller has the right on the object.
func (c credential) may(right, on string) bool {
	switch {
	case on == onNothing:
		return true
	case on == onShared:
		return right == "view" && !strings.HasPrefix(c.place, "install:") || c.operator
	case c.stranger:
		return false
	case on == onStack && right == "view":
		return c.may(right, onInstall)
	case on == onApp && right == "view" && strings.HasPrefix(c.place, "group:"):
		return true // apps are in no group
	}
	return slices.Contains(rightsOf[c.role], right) && slices.Contains(placesOf[on], c.place)
}

// world is an org with two customers, and one other org.
type world struct {
	*plane
	credentials                         []credential
	deployment, job, rule, key, session string
	account, webhook, victim, invited   func() // make the object again, if it is gone
	tried                               int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{plane: newPlane(t)}
	if err := w.RegisterOperator(t.Context(), fairlead.DefaultOrg, "admin", w.api); err != nil {
		t.Fatal(err)
	}
	for _, g := range []string{"eu", "eu/prod", "us"} {
		call[wire.Group](w.plane, "POST", "/v1/groups", w.api, wire.CreateGroupRequest{Path: g})
	}
	for _, app := range []string{"shop", "mail"} {
		call[wire.AppVersion](w.plane, "POST", "/v1/apps/"+app+"/versions", w.api, publication(t, strings.Replace(shop, "name: shop", "name: "+app, 1)))
	}
	for name, group := range map[string]string{"eu": "eu/prod", "us": "us"} {
		call[wire.Runner](w.plane, "POST", "/v1/runners", w.api, w.runnerIn(name, group))
	}
	in := map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}
	for _, i := range []wire.CreateInstallRequest{{Name: "acme", App: "shop", Group: "eu/prod", Inputs: in}, {Name: "globex", App: "mail", Group: "us", Inputs: in}} {
		call[wire.Install](w.plane, "POST", "/v1/installs", w.api, i)
		d := call[wire.Deployment](w.plane, "POST", "/v1/installs/"+i.Name+"/deployments", w.api, wire.CreateDeploymentRequest{Kind: "deploy"})
		if i.Name == "acme" {
			w.deployment = d.ID
			w.job = call[wire.Page[wire.Job]](w.plane, "GET", "/v1/jobs?deployment="+d.ID, w.api, nil).Items[0].ID
		}
	}
	w.plane.session("eu")
	w.key = call[wire.Page[wire.Agent]](w.plane, "GET", "/v1/runners/eu/agents", w.api, nil).Items[0].Key
	w.session = call[wire.Runner](w.plane, "GET", "/v1/runners/eu", w.api, nil).Sessions[0].ID
	w.rule = w.makeRule()
	call[wire.RunnerRule](w.plane, "POST", "/v1/runner-rules", w.api, wire.CreateRunnerRuleRequest{Runner: "us", Group: "us"})
	again := func(path string, body any) func() {
		return func() {
			if res := w.send("POST", path, w.api, body); res.StatusCode != 201 && res.StatusCode != 409 {
				t.Fatalf("%s: %d %s", path, res.StatusCode, short(res.body))
			}
		}
	}
	account := again("/v1/service-accounts", wire.CreateServiceAccountRequest{Name: "builds", Group: "eu/prod", ServiceAccountSettings: buildsAccount})
	w.account = func() {
		account()
		call[wire.Runner](w.plane, "PUT", "/v1/runners/eu/service-accounts/builds", w.api, nil)
	}
	w.webhook = again("/v1/webhooks", wire.CreateWebhookRequest{Name: "hook", URL: "https://203.0.113.9/hook"})
	w.victim = again("/v1/tokens", wire.CreateTokenRequest{Name: "victim", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}}})
	w.invited = again("/v1/users", wire.InviteUserRequest{Email: "victim@example.com", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}}})
	for _, role := range []string{"owner", "deployer", "approver", "viewer"} {
		for _, place := range []string{"", "group:eu", "group:us", "app:shop", "app:mail"} {
			w.credentials = append(w.credentials, w.credential(role, place))
		}
	}
	w.credentials = append(w.credentials, w.credential("viewer", "group:eu/prod"), w.programAt("deployer", "group:eu"), w.programAt("owner", "app:mail"))
	for _, role := range []string{"viewer", "security"} {
		for _, place := range []string{"install:acme", "install:globex"} {
			w.credentials = append(w.credentials, w.personAt(role, place))
		}
	}
	stranger := credential{stranger: true, token: identity.NewToken(identity.PrefixAPI)}
	if err := w.RegisterToken(t.Context(), "other", "admin", stranger.token); err != nil {
		t.Fatal(err)
	}
	w.credentials = append(w.credentials, stranger, credential{role: "owner", operator: true, token: w.api})
	return w
}

func (w *world) credential(role, place string) credential {
	w.t.Helper()
	for _, c := range w.credentials {
		if c.role == role && c.place == place && !c.operator && !c.program {
			return c
		}
	}
	in := wire.CreateTokenRequest{Name: role + "-" + strings.NewReplacer(":", "-", "/", "-").Replace(place+"-x"), Roles: []wire.RoleBinding{bindingAt(role, place)}}
	return credential{role: role, place: place, token: call[wire.Token](w.plane, "POST", "/v1/tokens", w.api, in).Token}
}

// programAt returns a program that has logged in as a service account.
func (w *world) programAt(role, place string) credential {
	w.t.Helper()
	issuer := oidctest.Unserved("https://issuer.example", time.Now)
	w.OIDC = oidc.NewVerifier(handled{issuer}, time.Now, oidc.Rules{})
	name := "program-" + role
	call[wire.ServiceAccount](w.plane, "POST", "/v1/service-accounts", w.api, wire.CreateServiceAccountRequest{Name: name, ServiceAccountSettings: wire.ServiceAccountSettings{
		TokenRule: wire.TokenRule{Issuer: issuer.URL, Audience: "fairlead", Claims: map[string]string{"sub": role}, Keys: issuer.KeySet()}, Roles: []wire.RoleBinding{bindingAt(role, place)}}})
	in := wire.LogInServiceAccountRequest{Token: issuer.Token("fairlead", map[string]any{"sub": role})}
	return credential{role: role, place: place, program: true, token: call[wire.ServiceAccountLogin](w.plane, "POST", "/v1/service-accounts/"+name+"/logins", "", in).Token}
}

// personAt returns a person of a customer, who has logged in with a link.
func (w *world) personAt(role, place string) credential {
	w.t.Helper()
	email := role + "@" + strings.TrimPrefix(place, "install:") + ".example"
	call[wire.User](w.plane, "POST", "/v1/users", w.api, wire.InviteUserRequest{Email: email, Roles: []wire.RoleBinding{bindingAt(role, place)}})
	link := call[wire.LoginLink](w.plane, "POST", "/v1/users/"+email+"/link", w.api, nil)
	return credential{role: role, place: place, token: call[wire.Login](w.plane, "POST", "/v1/logins/link", "", wire.UseLinkRequest{Token: link.Token}).Token}
}

func bindingAt(role, place string) wire.RoleBinding {
	kind, name, _ := strings.Cut(place, ":")
	return map[string]wire.RoleBinding{"": {Role: role}, "group": {Role: role, Group: name}, "app": {Role: role, App: name}, "install": {Role: role, Install: name}}[kind]
}

func (w *world) runnerIn(name, group string) wire.CreateRunnerRequest {
	return wire.CreateRunnerRequest{Name: name, RunnerConfigurationInput: wire.RunnerConfigurationInput{
		Text: "group: " + group + "\nrunner_configuration: {type: local, builds: true}\nstate_storage_configuration: {type: http}\n"}}
}

// makeRule makes the rule of eu/prod, or returns its identifier if it is there.
func (w *world) makeRule() string {
	w.send("POST", "/v1/runner-rules", w.api, wire.CreateRunnerRuleRequest{Runner: "eu", Group: "eu/prod"})
	for _, r := range call[wire.Page[wire.RunnerRule]](w.plane, "GET", "/v1/runner-rules", w.api, nil).Items {
		if r.Group == "eu/prod" {
			return r.ID
		}
	}
	w.t.Fatal("there is no rule")
	return ""
}

// restore makes what the last request may have removed.
func (w *world) restore() {
	w.makeRule()
	w.account()
	w.webhook()
	w.victim()
	w.invited()
}

// body returns the body of a request of the operation about acme's objects. Most bodies lead to a refusal after the rule, so that
// the objects stay.
func (w *world) body(c *fuzzed, tg target) any {
	in := map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}
	switch id := tg.op.OperationID; id {
	case "publish-version", "build-app":
		p := publication(w.t, shop)
		if id == "build-app" {
			return wire.BuildAppRequest{Config: p.Config}
		}
		return p
	case "create-install":
		return wire.CreateInstallRequest{Name: "acme", App: "shop", Group: "eu/prod", Inputs: in}
	case "create-deployment":
		return wire.CreateDeploymentRequest{Kind: "deploy", NoQueue: true}
	case "create-runner":
		return w.runnerIn("eu", "eu/prod")
	case "update-runner":
		return wire.UpdateRunnerRequest{RunnerConfigurationInput: wire.RunnerConfigurationInput{Set: []string{"description=x"}}}
	case "create-runner-rule":
		return wire.CreateRunnerRuleRequest{Runner: "eu", Group: "eu/prod"}
	case "create-group":
		return wire.CreateGroupRequest{Path: "eu/prod"}
	case "create-service-account":
		return wire.CreateServiceAccountRequest{Name: "builds", Group: "eu/prod", ServiceAccountSettings: buildsAccount}
	case "update-service-account":
		return buildsAccount
	case "create-webhook":
		return wire.CreateWebhookRequest{Name: "hook", URL: "https://203.0.113.9/hook"}
	case "create-token":
		return wire.CreateTokenRequest{Name: "victim", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}}}
	case "invite-user":
		return wire.InviteUserRequest{Email: "victim@example.com", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}}}
	case "create-org":
		return wire.CreateOrgRequest{Name: "team-two"}
	case "update-user":
		return wire.UpdateUserRequest{Roles: []wire.RoleBinding{{Role: "approver", Group: "eu/prod"}, {Role: "viewer", Group: "eu/prod"}}}
	case "set-login-issuer":
		return wire.LoginIssuerRule{Issuer: "https://203.0.113.9", ClientID: "x"}
	case "set-variables":
		return wire.SetVariablesRequest{Values: map[string]*wire.Variable{"A": {Value: "b"}}}
	case "push-state":
		return []byte(`{"version":4,"serial":1,"lineage":"l"}`)
	case "set-runner-mode":
		return wire.RunnerMode{Mode: "enabled"}
	}
	if schema := tg.body(); schema != nil {
		return c.fill(tg, "", schema, 1)
	}
	if tg.op.RequestBody != nil {
		return []byte("{}")
	}
	return nil
}

// queries are the parameters that name the object of a request, or make it need more.
var queries = map[string]url.Values{
	"get-group": {"path": {"eu/prod"}}, "update-group": {"path": {"eu/prod"}}, "delete-group": {"path": {"eu/prod"}},
	"get-variables": {"install": {"acme"}}, "set-variables": {"install": {"acme"}}, "get-outputs": {"show_sensitive": {"true"}}, "upload-part": {"size": {"2"}},
}

// ask sends the request of an operation about acme's objects.
func (w *world) ask(c *fuzzed, tg target, token string) result {
	w.tried++
	path := strings.NewReplacer("{app}", "shop", "{version}", "none", "{install}", "acme", "{component}", "network", "{deployment}", w.deployment, "{job}", w.job, "{runner}", "eu",
		"{rule}", w.rule, "{key}", w.key, "{session}", w.session, "{account}", "builds", "{webhook}", "hook", "{delivery}", "evt_1", "{token}", "victim", "{user}", "victim@example.com", "{issuer}", "work", "{org}", "none", "{channel}", "stable", "{signing_key}", "0123456789abcdef", "{chain}", "org",
		"{action}", "none", "{digest}", strings.Repeat("0", 64), "{part}", "0").Replace(tg.path)
	if strings.Contains(path, "{") {
		w.t.Fatalf("%s: the test has no object for the path %s", tg.op.OperationID, path)
	}
	query := maps.Clone(queries[tg.op.OperationID])
	if tg.op.OperationID == "list-deployments" {
		query = url.Values{"install": {"acme"}}
	}
	if tg.op.OperationID == "list-jobs" {
		query = url.Values{"deployment": {w.deployment}}
	}
	req, err := request(w.t.Context(), tg.method, "http://fairlead.test"+path+"?"+query.Encode(), token, w.body(c, tg))
	if err != nil {
		w.t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, req)
	return result{rec.Result(), rec.Body.Bytes()}
}

// absent are the operations whose object does not exist in this world although the caller may see it: a version, an action, a
// delivery, a stack, a log, a part, a channel, a component with a state.
var absent = []string{"get-version", "get-provenance", "run-action", "redeliver-webhook", "get-stack", "read-job-log", "download-part", "delete-runner-channel", "push-state", "delete-login-issuer", "get-org", "delete-org", "revoke-key"}

// ofTheCallersOrg are the operations that name nothing that exists, or an app, which an org can have under the name of another
// org's app: a stranger may ask, and changes its own org.
var ofTheCallersOrg = []string{"publish-version", "build-app", "open-registry", "create-install", "create-runner", "create-runner-rule", "create-group", "create-webhook", "create-token", "create-service-account", "get-limits", "get-audit", "list-audit-chains", "list-audit-entries", "list-audit-checkpoints", "invite-user",
	"put-stack"} // no template is published, which this route checks before it looks for the install

// Every route of the control API × each role at each place, another org, and an operator, generated from the document. A caller
// without the right is refused; if it may not see the object, the object is not found; and no other caller is refused.
func TestEveryRouteDeniesByItsRule(t *testing.T) {
	w := newWorld(t)
	c := &fuzzed{cast: &cast{plane: w.plane, tokens: map[string]string{}}}
	asked := map[string]bool{}
	for _, tg := range targets(t) {
		id := tg.op.OperationID
		if tg.op.scheme() != "apiToken" {
			continue
		}
		rule, ok := ruleOf[id]
		if !ok {
			t.Errorf("the route %s has no row in this test: who may call it?", id)
			continue
		}
		asked[id] = true
		if documented := tg.op.Rule == "object"; documented != (rule.on != onNothing && rule.on != onToken) || documented && !slices.Contains(tg.op.Rights, rule.right) {
			t.Errorf("%s: the document shows the rule %s with the rights %v, and the test expects %s", id, tg.op.Rule, tg.op.Rights, rule.right)
		}
		for _, allowed := range []bool{false, true} { // first those who change nothing
			for _, who := range w.credentials {
				if who.may(rule.right, rule.on) != allowed || who.stranger && slices.Contains(ofTheCallersOrg, id) || id == "log-out" && (strings.HasPrefix(who.place, "install:") || who.program) {
					continue // a login that logs out asks nothing more
				}
				if allowed {
					w.restore()
				}
				w.judge(tg, rule, who, w.ask(c, tg, who.token), allowed)
			}
		}
	}
	for id := range ruleOf {
		if !asked[id] {
			t.Errorf("there is no route %s: delete its row", id)
		}
	}
	if w.tried < 1500 {
		t.Errorf("the test sent only %d requests", w.tried)
	}
}

// judge checks the answer to one caller.
func (w *world) judge(tg target, rule ruled, who credential, res result, allowed bool) {
	id := tg.op.OperationID
	what := fmt.Sprintf("%s by %s: %d %s", id, who, res.StatusCode, short(res.body))
	if allowed {
		if res.StatusCode == 401 || res.StatusCode == 403 || res.StatusCode >= 500 || res.StatusCode == 404 && !slices.Contains(absent, id) {
			w.t.Errorf("%s\nwant: permitted", what)
		}
		return
	}
	if res.StatusCode < 400 {
		w.t.Errorf("%s\nwant: refused", what)
		return
	}
	code := res.code(w.t)
	if !slices.Contains(tg.op.Problems, code) {
		w.t.Errorf("%s\nthe problem is not documented", what)
	}
	tg.path = strings.ReplaceAll(tg.path, "{chain}", "org")                                                 // the answer is the same for each chain, also for one that does not exist
	creates := (strings.HasPrefix(id, "create-") || id == "invite-user") && !strings.Contains(tg.path, "{") // names no object that exists
	hidden := !who.may("view", rule.on) && !creates && rule.on != onOrg && rule.on != onShared && id != "create-token" && id != "invite-user" || who.stranger && strings.Contains(tg.path, "{") && rule.on != onShared ||
		rule.on == onToken && id != "create-token" && id != "invite-user" || rule.on == onOrg && strings.Contains(tg.path, "{") && !who.may("view", onOrg)
	want := []string{"role-missing", "operator-only"}
	if hidden {
		want = []string{"app-not-found", "install-not-found", "deployment-not-found", "job-not-found", "runner-not-found", "group-not-found", "rule-not-found", "token-not-found", "user-not-found", "webhook-not-found", "service-account-not-found"}
	}
	if !slices.Contains(want, code) {
		w.t.Errorf("%s\nwant one of %v", what, want)
	}
	for _, secret := range []string{"eu/prod", "globex"} {
		if hidden && strings.Contains(string(res.body), secret) && !strings.Contains(tg.path, "group") {
			w.t.Errorf("%s\nthe answer names %s", what, secret)
		}
	}
}

// A list has what the caller may see, and paging with each limit finds all of it.
func TestListsHoldWhatTheCallerSees(t *testing.T) {
	w := newWorld(t)
	w.restore()
	both, acme, globex := "acme globex", "acme", "globex"
	lists := map[string]struct {
		path string
		want map[string]string // names by place of a viewer
	}{
		"installs":     {"/v1/installs?", map[string]string{"": both, "group:eu": acme, "group:us": globex, "app:shop": acme, "app:mail": globex, "install:acme": acme}},
		"apps":         {"/v1/apps?", map[string]string{"": "mail shop", "group:eu": "mail shop", "group:us": "mail shop", "app:shop": "shop", "app:mail": "mail", "install:acme": ""}},
		"runners":      {"/v1/runners?", map[string]string{"": "eu local us", "group:eu": "eu", "group:us": "us", "app:shop": "", "app:mail": "", "install:acme": ""}},
		"groups":       {"/v1/groups?", map[string]string{"": "eu eu/prod us", "group:eu": "eu eu/prod", "group:us": "us", "app:shop": "", "app:mail": "", "install:acme": ""}},
		"rules":        {"/v1/runner-rules?", map[string]string{"": "eu us", "group:eu": "eu", "group:us": "us", "app:shop": "", "app:mail": "", "install:acme": ""}},
		"accounts":     {"/v1/service-accounts?", map[string]string{"": "builds program-deployer program-owner", "group:eu": "builds", "group:us": "", "app:shop": "", "app:mail": "", "install:acme": ""}},
		"webhooks":     {"/v1/webhooks?", map[string]string{"": "hook", "group:eu": "", "group:us": "", "app:shop": "", "app:mail": "", "install:acme": ""}},
		"deployments":  {"/v1/deployments?", map[string]string{"": both, "group:eu": acme, "group:us": globex, "app:shop": acme, "app:mail": globex, "install:acme": acme}},
		"jobs":         {"/v1/jobs?", map[string]string{"": both, "group:eu": acme, "group:us": globex, "app:shop": acme, "app:mail": globex, "install:acme": acme}},
		"other tokens": {"/v1/tokens?", map[string]string{"": "viewer--x", "group:eu": "viewer-group-eu-x", "group:us": "viewer-group-us-x", "app:shop": "viewer-app-shop-x", "app:mail": "viewer-app-mail-x", "install:acme": ""}},
	}
	for name, list := range sorted(lists) {
		for _, who := range w.credentials {
			want, ok := list.want[who.place]
			if who.role != "viewer" || !ok {
				if !who.stranger {
					continue
				}
				if want = ""; name == "other tokens" {
					want = "admin"
				}
			}
			for _, limit := range []int{1, 2, 50} {
				if got := w.names(list.path, who.token, limit); got != want {
					t.Errorf("%s by %s, %d a page: %q, want %q", name, who, limit, got, want)
				}
			}
		}
	}
}

// names reads a list page by page, and returns the different names of its items.
func (w *world) names(path, token string, limit int) string {
	w.t.Helper()
	found := map[string]bool{}
	for next := ""; ; {
		page := call[wire.Page[map[string]any]](w.plane, "GET", fmt.Sprintf("%slimit=%d&cursor=%s", path, limit, next), token, nil)
		if len(page.Items) > limit {
			w.t.Errorf("%s: a page has %d items, more than %d", path, len(page.Items), limit)
		}
		for _, it := range page.Items {
			for _, field := range []string{"install", "name", "path", "runner"} {
				if name, ok := it[field].(string); ok && name != "" {
					found[name] = true
					break
				}
			}
		}
		if next = page.Next; next == "" {
			return strings.Join(slices.Sorted(maps.Keys(found)), " ")
		}
	}
}

// A deployment of which a plan is applied without a person needs the right to approve, and so does its retry.
func TestUnattendedDeploymentNeedsBothRoles(t *testing.T) {
	w := newWorld(t)
	call[wire.Deployment](w.plane, "POST", "/v1/deployments/"+w.deployment+"/cancel", w.api, nil)
	both := call[wire.Token](w.plane, "POST", "/v1/tokens", w.api, wire.CreateTokenRequest{Name: "both", Roles: []wire.RoleBinding{{Role: "deployer", App: "shop"}, {Role: "approver", Group: "eu"}}}).Token
	deployer := w.credential("deployer", "group:eu/prod").token
	for _, row := range []struct {
		consequence string
		in          wire.CreateDeploymentRequest
		refused     bool
	}{
		{"auto-approval approves", wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true}, true},
		{"no question approves", wire.CreateDeploymentRequest{Kind: "deploy", Ask: "never"}, true},
		{"a question for some plans approves the others", wire.CreateDeploymentRequest{Kind: "teardown", Ask: "destroys"}, true},
		{"a question for each plan approves none", wire.CreateDeploymentRequest{Kind: "deploy", Ask: "always", AutoApprove: true}, false},
		{"a plan changes nothing", wire.CreateDeploymentRequest{Kind: "deploy", PlanOnly: true, AutoApprove: true}, false},
	} {
		res := w.send("POST", "/v1/installs/acme/deployments", deployer, row.in)
		if refused := res.StatusCode == 403 && res.code(t) == "role-missing"; refused != row.refused {
			t.Errorf("%s: %d %s", row.consequence, res.StatusCode, short(res.body))
		}
		if !row.refused {
			var d wire.Deployment
			if err := json.Unmarshal(res.body, &d); err != nil {
				t.Fatal(err)
			}
			call[wire.Deployment](w.plane, "POST", "/v1/deployments/"+d.ID+"/cancel", deployer, nil)
		}
	}
	d := call[wire.Deployment](w.plane, "POST", "/v1/installs/acme/deployments", both, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
	call[wire.Deployment](w.plane, "POST", "/v1/deployments/"+d.ID+"/cancel", both, nil)
	if code := w.send("POST", "/v1/deployments/"+d.ID+"/retry", deployer, nil).code(t); code != "role-missing" {
		t.Errorf("the retry by a deployer is refused with %s", code)
	}
	call[wire.Deployment](w.plane, "POST", "/v1/deployments/"+d.ID+"/retry", both, nil)
}

// A runner, a rule and an install name other objects: what these may be follows the caller too.
func TestNamedObjectsAreTheCallersToo(t *testing.T) {
	w := newWorld(t)
	owner, deployer := w.credential("owner", "group:eu/prod").token, w.credential("deployer", "group:eu").token
	in := map[string]json.RawMessage{"password": json.RawMessage(`"x"`)}
	for _, row := range []struct {
		consequence, method, path, token string
		body                             any
		code                             string
	}{
		{"an owner of a group makes no runner of another", "POST", "/v1/runners", owner, w.runnerIn("more", "us"), "role-missing"},
		{"an owner of a group makes no runner of the org", "POST", "/v1/runners", owner, wire.CreateRunnerRequest{Name: "more"}, "role-missing"},
		{"an owner of a group makes no shared runner", "POST", "/v1/runners", owner, wire.CreateRunnerRequest{Name: "more", Shared: true}, "operator-only"},
		{"an owner of a group moves no runner to another", "PATCH", "/v1/runners/eu", owner, wire.UpdateRunnerRequest{RunnerConfigurationInput: wire.RunnerConfigurationInput{Set: []string{"group=us"}}}, "role-missing"},
		{"an owner of a group makes no runner of its install in another", "POST", "/v1/runners", owner, wire.CreateRunnerRequest{Name: "more", RunnerConfigurationInput: wire.RunnerConfigurationInput{
			Text: "install: globex\nrunner_configuration: {type: local}\nstate_storage_configuration: {type: http}\n"}}, "role-missing"},
		{"an owner of a group makes no rule for all groups", "POST", "/v1/runner-rules", owner, wire.CreateRunnerRuleRequest{Runner: "eu", App: "shop"}, "role-missing"},
		{"a rule names no runner that the caller does not see", "POST", "/v1/runner-rules", owner, wire.CreateRunnerRuleRequest{Runner: "us", Group: "eu/prod/**"}, "runner-not-found"},
		{"a deployer of a group makes no install in another", "POST", "/v1/installs", deployer, wire.CreateInstallRequest{Name: "more", App: "shop", Group: "us", Inputs: in}, "role-missing"},
		{"a deployer of a group makes no install in the root group", "POST", "/v1/installs", deployer, wire.CreateInstallRequest{Name: "more", App: "shop", Inputs: in}, "role-missing"},
		{"an install names no runner that the caller does not see", "POST", "/v1/installs", deployer, wire.CreateInstallRequest{Name: "more", App: "shop", Group: "eu", Runner: "us", Inputs: in}, "runner-not-found"},
		{"variables of a group are for its deployers only", "PATCH", "/v1/variables?group=us", deployer, `{"values":{"A":{"value":"b"}}}`, "group-not-found"},
		{"variables of the root group are for all installs", "PATCH", "/v1/variables?group=/", deployer, `{"values":{"A":{"value":"b"}}}`, "group-not-found"},
		{"variables of a runner are for those who manage it", "PATCH", "/v1/variables?runner=eu", deployer, `{"values":{"A":{"value":"b"}}}`, "role-missing"},
		{"sensitive outputs are not for viewers", "GET", "/v1/installs/acme/outputs?show_sensitive=true", w.credential("viewer", "group:us").token, nil, "install-not-found"},
	} {
		if got := w.send(row.method, row.path, row.token, row.body).code(t); got != row.code {
			t.Errorf("%s: refused with %s, want %s", row.consequence, got, row.code)
		}
	}
	// What is within the group works, also with a runner of the org, which serves it and which the caller does not see.
	call[wire.Install](w.plane, "POST", "/v1/installs", deployer, wire.CreateInstallRequest{Name: "more", App: "shop", Group: "eu", Runner: "local", Inputs: in})
	call[wire.Runner](w.plane, "POST", "/v1/runners", owner, w.runnerIn("more", "eu/prod"))
}

// The registry of a control plane follows the roles as the API does.
func TestRegistryFollowsTheRoles(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		role, place, method, path string
		status                    int
	}{
		{"deployer", "app:shop", "PUT", "shop/web", 200}, {"deployer", "app:shop", "PUT", "mail/web", 403}, {"deployer", "app:shop", "GET", "mail/web", 403},
		{"deployer", "group:eu", "GET", "shop/web", 200}, {"deployer", "group:eu", "PUT", "shop/web", 403}, {"viewer", "", "GET", "shop/web", 200}, {"viewer", "", "PUT", "shop/web", 403},
	} {
		token := w.credential(row.role, row.place).token
		if res := w.send(row.method, "/v2/orgs/"+string(fairlead.DefaultOrg)+"/"+row.path+"/manifests/latest", token, nil); res.StatusCode != row.status {
			t.Errorf("%s of %q: %s %s is answered with %d, want %d", row.role, row.place, row.method, row.path, res.StatusCode, row.status)
		}
	}
}

// A token gives roles at its own place only, and shows only what it could have given.
func TestTokensGiveNoMoreThanTheyHave(t *testing.T) {
	w := newWorld(t)
	owner := w.credential("owner", "group:eu/prod").token
	for _, row := range []struct {
		consequence string
		token       string
		in          wire.CreateTokenRequest
		code        string
	}{
		{"no role above the group", owner, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu"}}}, "role-missing"},
		{"no role in the org", owner, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer"}}}, "role-missing"},
		{"no role in the org by a slash", owner, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer", Group: "/"}}}, "role-missing"},
		{"no role in an app", owner, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer", App: "shop"}}}, "role-missing"},
		{"no token without a role, which would be an owner", owner, wire.CreateTokenRequest{Name: "x"}, "role-missing"},
		{"not one good role beside a bad one", owner, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}, {Role: "viewer"}}}, "role-missing"},
		{"no operator", owner, wire.CreateTokenRequest{Name: "x", Operator: true, Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}}}, "operator-only"},
		{"no role in a group that does not exist", w.api, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer", Group: "nowhere"}}}, "group-not-found"},
		{"no role in a group and an app at once", w.api, wire.CreateTokenRequest{Name: "x", Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu", App: "shop"}}}, "invalid-role"},
	} {
		if got := w.send("POST", "/v1/tokens", row.token, row.in).code(t); got != row.code {
			t.Errorf("%s: refused with %s, want %s", row.consequence, got, row.code)
		}
	}
	made := call[wire.Token](w.plane, "POST", "/v1/tokens", owner, wire.CreateTokenRequest{Name: "intern", Roles: []wire.RoleBinding{{Role: "deployer", Group: "eu/prod"}}})
	if made.CreatedBy == nil || made.CreatedBy.Name != "owner-group-eu-prod-x" {
		t.Errorf("the token was created by %+v", made.CreatedBy)
	}
	// The last owner of the org stays, also if a group still has one.
	call[struct{}](w.plane, "DELETE", "/v1/tokens/owner--x", w.api, nil)
	if got := w.send("DELETE", "/v1/tokens/admin", w.api, nil).code(t); got != "last-token" {
		t.Errorf("the revocation of the last owner is refused with %s", got)
	}
}

// ofNoObject are the operations of the runner API whose request names no object, or whose credential is the only one. Other tests
// show what they refuse.
var ofNoObject = map[string]string{
	"enrol-runner": "TestIdentityNeedsAProof", "create-challenge": "TestIdentityNeedsAProof", "create-session": "TestIdentityNeedsAProof",
	"heartbeat-session": "the session is the object", "claim-job": "TestSessionIsRefusedForOtherRunnersJobs", "start-ahead": "the session is the object",
	"adopt-steps": "TestOnlyStepsOfGoneAgentsAreAdopted", "report-install-keys": "TestSecretInputsArriveEncrypted: a runner reports keys only of installs for which it was asked",
}

// Every operation of the runner API × the right kind of credential, for another job, install, component, warm step or runner.
func TestRunnerAPIDeniesOtherObjects(t *testing.T) {
	c := newCast(t)
	call[wire.Runner](c.plane, "POST", "/v1/runners", c.api, wire.CreateRunnerRequest{Name: "elsewhere"})
	stranger, another := c.session("elsewhere"), c.ahead()
	theirs := c.start(c.claimed) // a job of another install
	own := map[string]string{"sessionToken": stranger, "warmToken": c.tokens["warm"], "launchToken": c.claimed.LaunchToken, "leaseToken": c.running.lease, "stateLease": "basic:" + c.running.state}
	f := &fuzzed{cast: c}
	tried := 0
	for _, tg := range targets(t) {
		id, scheme := tg.op.OperationID, tg.op.scheme()
		if !strings.HasPrefix(tg.path, "/runner/") {
			continue
		}
		if tg.op.Rule == "" && scheme != "stateLease" {
			t.Errorf("%s has no rule", id)
		}
		if !strings.Contains(tg.path, "{") {
			if ofNoObject[id] == "" {
				t.Errorf("the path of %s names no object: what does its credential not reach, and which test shows it?", id)
			}
			continue
		}
		job := theirs.claim.Job
		if scheme == "launchToken" {
			job = c.running.claim.Job
		}
		warm := another.ID
		if scheme == "sessionToken" {
			warm = c.warm.ID
		}
		for _, at := range []struct{ install, component string }{{string(theirs.spec.Install), theirs.spec.Component}, {string(c.running.spec.Install), "elsewhere"}} {
			path := strings.NewReplacer("{job}", job, "{warm}", warm, "{install}", at.install, "{component}", at.component, "{digest}", strings.Repeat("0", 64), "{part}", "0", "{name}", "outputs").Replace(tg.path)
			query := url.Values{}
			for _, p := range tg.op.Parameters {
				if p.In == "query" && p.Required {
					query.Set(p.Name, fmt.Sprint(f.fill(tg, p.Name, p.Schema, 1)))
				}
			}
			var body any
			if schema := tg.body(); schema != nil && scheme != "stateLease" {
				body = f.fill(tg, "", schema, 1)
			} else if tg.op.RequestBody != nil {
				body = []byte(`{"ID":"lock-1"}`)
			}
			res := c.send(tg.method, path+"?"+query.Encode(), own[scheme], body)
			tried++
			if res.StatusCode < 400 || !slices.Contains([]string{"other-job", "other-state", "job-not-found", "warm-step-not-found"}, res.code(t)) {
				t.Errorf("%s %s by a %s of another: %d %s", tg.method, path, scheme, res.StatusCode, short(res.body))
			}
		}
	}
	if tried < 40 {
		t.Errorf("the test sent only %d requests", tried)
	}
}
