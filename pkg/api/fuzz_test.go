package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// target is an operation with the data to send requests and check the answers.
type target struct {
	method, path string
	op           operation
	doc          document
	answers      map[string]*jsonschema.Schema // by status
}

// GoString is the form in which rapid prints the target of a failed run.
func (t target) GoString() string { return t.op.OperationID }

func targets(t *testing.T) []target {
	t.Helper()
	var out []target
	compilers := map[string]*jsonschema.Compiler{}
	eachOperation(t, func(doc document, method, path string, op operation) {
		name := "control.json"
		if strings.HasPrefix(path, "/runner/") {
			name = "runner.json"
		}
		c := compilers[name]
		if c == nil {
			c = jsonschema.NewCompiler()
			if err := c.AddResource(name, doc.raw); err != nil {
				t.Fatal(err)
			}
			compilers[name] = c
		}
		tg := target{method, path, op, doc, map[string]*jsonschema.Schema{}}
		for status, res := range op.Responses {
			if _, ok := res.Content["application/json"]; !ok || status[0] != '2' {
				continue
			}
			pointer := "#/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path) + "/" + strings.ToLower(method) +
				"/responses/" + status + "/content/application~1json/schema"
			s, err := c.Compile(name + pointer)
			if err != nil {
				t.Fatalf("schema of %s: %v", op.OperationID, err)
			}
			tg.answers[status] = s
		}
		out = append(out, tg)
	})
	return out
}

// The test sends random, almost valid requests in random order to a plane with jobs.
// No answer is an internal error, every problem is documented, and every success has
// the documented schema.
func TestEveryAnswerIsDocumented(t *testing.T) {
	all := targets(t)
	succeeded := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		c := &fuzzed{cast: newCast(t)}
		c.furnish()
		for range rapid.IntRange(8, 40).Draw(rt, "requests") {
			tg := rapid.SampledFrom(all).Draw(rt, "operation")
			if c.ask(rt, tg) {
				succeeded[tg.op.OperationID] = true
			}
		}
	})
	// If fewer operations succeed, the requests are not valid enough to test anything.
	// A short run sends fewer requests.
	least := len(all) / 2
	if testing.Short() {
		least = len(all) / 5
	}
	if len(succeeded) < least && !t.Failed() {
		t.Errorf("only %d of %d operations ever succeeded: %v", len(succeeded), len(all), succeeded)
	}
	t.Logf("%d of %d operations succeeded; these never did:", len(succeeded), len(all))
	for _, tg := range all {
		if !succeeded[tg.op.OperationID] {
			t.Log(tg.op.OperationID)
		}
	}
}

// fuzzed is a cast with one object of each kind that a path can name.
type fuzzed struct {
	*cast
	fixtures *strings.Replacer
}

// furnish creates these objects.
func (c *fuzzed) furnish() {
	c.t.Helper()
	c.install("idle")
	call[wire.Group](c.plane, "POST", "/v1/groups", c.api, wire.CreateGroupRequest{Path: "team"})
	call[wire.ServiceAccount](c.plane, "POST", "/v1/service-accounts", c.api, wire.CreateServiceAccountRequest{Name: "builds", ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: tokenRule}})
	call[wire.Webhook](c.plane, "POST", "/v1/webhooks", c.api, wire.CreateWebhookRequest{Name: "hook", URL: "https://203.0.113.9/hook"})
	rule := call[wire.RunnerRule](c.plane, "POST", "/v1/runner-rules", c.api, wire.CreateRunnerRuleRequest{Runner: "local", App: "shop"})
	runner := call[wire.Runner](c.plane, "GET", "/v1/runners/local", c.api, nil)
	call[wire.Token](c.plane, "POST", "/v1/tokens", c.api, wire.CreateTokenRequest{Name: "ci"})
	call[wire.User](c.plane, "POST", "/v1/users", c.api, wire.InviteUserRequest{Email: "eva@example.com", Roles: []wire.RoleBinding{{Role: "viewer"}}})
	c.fixtures = strings.NewReplacer("{token}", "ci", "{user}", "eva@example.com", "{issuer}", "work", "{org}", "default", "{signing_key}", "0123456789abcdef", "{account}", "builds", "{webhook}", "hook", "{chain}", "org", "{rule}", rule.ID, "{session}", runner.Sessions[0].ID)
}

// tokenRule is a valid rule.
var tokenRule = wire.TokenRule{Issuer: "https://issuer.test", Audience: "https://fairlead.test", Claims: map[string]string{"sub": "build"}}

// buildsAccount is a service account with a role in eu/prod.
var buildsAccount = wire.ServiceAccountSettings{TokenRule: tokenRule, Roles: []wire.RoleBinding{{Role: "viewer", Group: "eu/prod"}}}

// ask sends one request and reports whether it succeeded.
func (c *fuzzed) ask(rt *rapid.T, tg target) bool {
	g := generator{rt: rt, doc: tg.doc, cast: c.cast}
	scheme := tg.op.scheme()
	path, query := c.path(tg.path, scheme), url.Values{}
	path = c.fixtures.Replace(path)
	path = strings.Replace(path, "installs/acme", "installs/"+rapid.SampledFrom([]string{"acme", "idle"}).Draw(rt, "install"), 1)
	if g.rarely("strange path") {
		path = pathParam.ReplaceAllStringFunc(tg.path, func(string) string { return url.PathEscape(g.text()) })
	}
	var headers []string
	for _, p := range tg.op.Parameters {
		if p.In == "path" || !p.Required && rapid.Bool().Draw(rt, "leave "+p.Name) {
			continue
		}
		v := fmt.Sprint(g.value(p.Schema))
		if p.Name == "path" && rapid.Bool().Draw(rt, "known path") {
			v = "team"
		}
		if p.Name == "wait_seconds" {
			v = "0" // other tests cover waiting
		}
		if p.In == "query" {
			query.Set(p.Name, v)
		} else {
			headers = append(headers, p.Name, strings.Map(func(r rune) rune {
				if r < ' ' || r > '~' {
					return -1
				}
				return r
			}, v))
		}
	}
	var body any
	if tg.op.RequestBody != nil && !g.rarely("leave body") {
		if media, ok := tg.op.RequestBody.Content["application/json"]; ok {
			v := g.body(tg.op.OperationID, media.Schema)
			if m, ok := v.(map[string]any); ok && m["wait_seconds"] != nil {
				m["wait_seconds"] = 0
			}
			data, err := json.Marshal(v)
			if err != nil {
				rt.Fatal(err)
			}
			if body = string(data); g.rarely("cut body") {
				body = string(data[:len(data)/2])
			}
		} else {
			body = []byte(g.text())
		}
	}
	target := path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := request(c.t.Context(), tg.method, "http://fairlead.test"+target, c.token(scheme), body, headers...)
	if err != nil {
		return false // no HTTP client can send it
	}
	rec := httptest.NewRecorder()
	c.handler.ServeHTTP(rec, req)
	c.judge(rt, tg, target, body, result{rec.Result(), rec.Body.Bytes()})
	return rec.Code < 300
}

// internals are parts of messages that only a programmer of the control plane understands.
var internals = []string{"Go struct", "json: ", "goroutine ", "runtime error", "sqlite", "SQLITE", ".go:", "/v1.", "*api.", "*control."}

func (c *cast) judge(rt *rapid.T, tg target, path string, body any, res result) {
	what := fmt.Sprintf("%s %s with %.300v", tg.method, path, body)
	if res.StatusCode >= 500 {
		rt.Fatalf("%s: %d %s\n%s", what, res.StatusCode, short(res.body), c.log)
	}
	if strings.HasPrefix(path, "/v1/") && strings.Contains(string(res.body), secretInput) && !strings.Contains(fmt.Sprint(body), secretInput) {
		rt.Fatalf("%s: the answer has the secret of an install: %s", what, short(res.body))
	}
	for _, internal := range internals {
		if res.StatusCode >= 400 && strings.Contains(string(res.body), internal) {
			rt.Fatalf("%s: the answer shows the inside of the program, %q: %s", what, internal, short(res.body))
		}
	}
	if res.StatusCode == 423 && res.Header.Get("Content-Type") == "application/json" {
		return // the holder's lock info
	}
	if res.StatusCode >= 400 {
		var p wire.Problem
		if err := json.Unmarshal(res.body, &p); err != nil || res.Header.Get("Content-Type") != "application/problem+json" || p.Status != res.StatusCode {
			rt.Fatalf("%s: the answer %d is not a problem document: %s", what, res.StatusCode, short(res.body))
		}
		code := strings.TrimPrefix(p.Type, wire.ProblemType)
		if !slices.Contains(tg.op.Problems, code) && !slices.Contains([]string{"no-route", "method-not-allowed", "malformed-request"}, code) {
			rt.Fatalf("%s (%s): the problem %s is not documented", what, tg.op.OperationID, code)
		}
		return
	}
	status := strconv.Itoa(res.StatusCode)
	if _, ok := tg.op.Responses[status]; !ok {
		rt.Fatalf("%s: the status %s is not documented", what, status)
	}
	schema := tg.answers[status]
	if schema == nil || len(res.body) == 0 {
		return
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(res.body)))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		rt.Fatalf("%s: the answer %s does not match its schema: %v", what, short(res.body), err)
	}
}

// generator generates values of a schema, and sometimes values outside it.
type generator struct {
	rt   *rapid.T
	doc  document
	cast *cast
}

func (g generator) rarely(what string) bool { return rapid.IntRange(0, 19).Draw(g.rt, what) == 0 }

// text returns a random string or one with a meaning in this test.
func (g generator) text() string {
	known := []string{"", "shop", "acme", "other", "local", "web", "new-name", "deploy", g.cast.deployment, g.cast.claimed.Job, "a#b", "..", "\x00", "é\u202e",
		strings.Repeat("y", 300), g.cast.tokens["enrolment"], "sha256:" + strings.Repeat("0", 64), "bnVsbA", "WyJYIl0"}
	if rapid.Bool().Draw(g.rt, "known") {
		return rapid.SampledFrom(known).Draw(g.rt, "text")
	}
	return rapid.String().Draw(g.rt, "text")
}

// anything returns a JSON value of any type.
func (g generator) anything() any {
	return rapid.SampledFrom([]any{nil, true, -1, 0, 1.5, 1e30, "", "x", []any{}, []any{nil}, map[string]any{}, map[string]any{"a": map[string]any{}},
		json.Number("9223372036854775807"), strings.Repeat("z", 5000)}).Draw(g.rt, "anything")
}

func (g generator) value(s map[string]any) any {
	if g.rarely("stray") {
		return g.anything()
	}
	if ref, ok := s["$ref"].(string); ok {
		return g.value(g.doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
	}
	if list, ok := s["enum"].([]any); ok {
		return rapid.SampledFrom(list).Draw(g.rt, "enum")
	}
	kind, _ := s["type"].(string)
	if list, ok := s["type"].([]any); ok {
		kind, _ = rapid.SampledFrom(list).Draw(g.rt, "type").(string)
	}
	switch kind {
	case "string":
		if s["contentEncoding"] == "base64" {
			return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(g.rt, "bytes")
		}
		return g.text()
	case "integer", "number":
		return rapid.OneOf(rapid.Int64Range(-1, 30), rapid.Int64()).Draw(g.rt, "number")
	case "boolean":
		return rapid.Bool().Draw(g.rt, "bool")
	case "array":
		items, _ := s["items"].(map[string]any)
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(g.rt, "length") {
			out = append(out, g.value(items))
		}
		return out
	case "object":
		return g.object(s)
	}
	return g.anything()
}

// body returns a valid body, a valid body with one field replaced, or a random value
// of the schema.
func (g generator) body(operation string, schema map[string]any) any {
	c := g.cast
	var right any
	switch operation {
	case "publish-version":
		right = publication(c.t, shop)
	case "create-install":
		right = map[string]any{"name": "new-name", "app": "shop", "inputs": map[string]any{"password": "x"}}
	case "update-install":
		right = map[string]any{"inputs": map[string]any{"size": 3}}
	case "create-deployment":
		right = map[string]any{"kind": rapid.SampledFrom([]string{"deploy", "teardown"}).Draw(g.rt, "kind"), "auto_approve": true}
	case "enrol-runner":
		right = map[string]any{"token": c.tokens["enrolment"], "public_key": make([]byte, 32)}
	case "release-job", "report-died":
		right = map[string]any{"epoch": 1, "reason": "killed"}
		if operation == "release-job" {
			right = map[string]any{"epoch": 1}
		}
	case "create-group":
		right = map[string]any{"path": "team/east"}
	case "create-runner":
		right = map[string]any{"name": "another", "storage": "http"}
	case "create-runner-rule":
		right = map[string]any{"runner": "local", "app": "shop"}
	case "invite-user":
		right = wire.InviteUserRequest{Email: "adam@example.com", Roles: []wire.RoleBinding{{Role: "viewer"}}}
	case "set-login-issuer":
		right = wire.LoginIssuerRule{Issuer: "https://issuer.test", ClientID: "cli"}
	case "create-service-account":
		right = wire.CreateServiceAccountRequest{Name: "more-builds", ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: tokenRule}}
	case "update-service-account":
		right = wire.ServiceAccountSettings{TokenRule: tokenRule}
	case "create-token":
		right = map[string]any{"name": "another", "expires_at": time.Now().Add(time.Hour)}
	case "create-webhook":
		right = map[string]any{"name": "another", "url": "https://203.0.113.9/hook"}
	case "set-variables":
		right = map[string]any{"values": map[string]any{"TF_LOG": map[string]any{"value": "info"}}}
	case "start-job":
		right = map[string]any{"step_id": "step-1234"}
	case "finish-job":
		right = report(c.running, nil)
	case "lock-state", "release-state":
		right = map[string]any{"ID": "lock-1"}
	}
	if right == nil || rapid.Bool().Draw(g.rt, "of the schema") {
		return g.value(schema)
	}
	data, err := json.Marshal(right)
	if err != nil {
		g.rt.Fatal(err)
	}
	var raw map[string]json.RawMessage // keeps the bytes of the configuration: its digest counts
	if err := json.Unmarshal(data, &raw); err != nil {
		g.rt.Fatal(err)
	}
	m := map[string]any{}
	for name, v := range raw {
		m[name] = v
	}
	if rapid.Bool().Draw(g.rt, "but for one field") {
		for name := range sorted(m) {
			if rapid.Bool().Draw(g.rt, "this field") {
				m[name] = g.anything()
				break
			}
		}
	}
	return m
}

func (g generator) object(s map[string]any) map[string]any {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for name, p := range sorted(properties) {
		if slices.Contains(required, any(name)) && !g.rarely("leave "+name) || rapid.Bool().Draw(g.rt, "give "+name) {
			out[name] = g.value(p.(map[string]any))
		}
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		for range rapid.IntRange(0, 2).Draw(g.rt, "more") {
			out[g.text()] = g.value(more)
		}
	} else if g.rarely("unknown field") {
		out["unknown"] = 1
	}
	return out
}
