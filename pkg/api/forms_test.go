package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// A slot is a place in a request for strings of one schema: a parameter, a field of
// the body, an item of a list, or a value or key of an object.
type slot struct {
	tg     target
	in     string // path, query, header, field, item, value, key
	name   string
	schema map[string]any
}

// newForms returns a plane with one object of each kind that a request can name. Its
// API token is an operator's.
func newForms(t *testing.T) *fuzzed {
	t.Helper()
	c := &fuzzed{cast: newCast(t)}
	c.furnish()
	if err := c.RegisterOperator(t.Context(), fairlead.DefaultOrg, "admin", c.api); err != nil {
		t.Fatal(err)
	}
	return c
}

// slots returns all slots of all operations.
func slots(t *testing.T) (out []slot) {
	t.Helper()
	for _, tg := range targets(t) {
		for _, p := range tg.op.Parameters {
			if p.Schema["type"] == "string" {
				out = append(out, slot{tg, p.In, p.Name, p.Schema})
			}
		}
		body := tg.body()
		properties, _ := body["properties"].(map[string]any)
		for name, p := range sorted(properties) {
			s := tg.resolve(p)
			if isOf(s, "string") && s["contentEncoding"] == nil {
				out = append(out, slot{tg, "field", name, s})
			}
			for in, below := range map[string]string{"item": "items", "value": "additionalProperties", "key": "propertyNames"} {
				if b := tg.resolve(s[below]); isOf(b, "string") {
					out = append(out, slot{tg, in, name, b})
				}
			}
		}
	}
	return out
}

// body returns the schema of the JSON body; nil if there is none.
func (t target) body() map[string]any {
	if t.op.RequestBody == nil {
		return nil
	}
	return t.resolve(t.op.RequestBody.Content["application/json"].Schema)
}

func (t target) resolve(schema any) map[string]any {
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		return t.doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
	}
	return s
}

// isOf reports whether the schema permits values of the type.
func isOf(s map[string]any, kind string) bool {
	list, _ := s["type"].([]any)
	return s["type"] == kind || slices.Contains(list, any(kind))
}

// known returns names of existing objects and other valid values, by parameter or
// field.
func (c *fuzzed) known() map[string]any {
	return map[string]any{"app": "shop", "install": "idle", "runner": "local", "component": c.running.claim.Component, "group": "/", "path": "team",
		"name": "another", "kind": "deploy", "storage": "http", "url": "https://203.0.113.9/hook", "account": "123456789012", "version": "v1.2.3", "step_id": "step-1234",
		"epoch": 1, "expires_at": time.Now().Add(time.Hour), "token": "ci", "issuer": tokenRule.Issuer, "audience": tokenRule.Audience, "claims": tokenRule.Claims,
		"public_key": make([]byte, 32), "outcome": "failed", "reason": "killed"}
}

// fill returns a valid value of the schema.
func (c *fuzzed) fill(tg target, name string, schema any, seed int) any {
	s := tg.resolve(schema)
	if v, ok := c.known()[name]; ok && (tg.op.OperationID != "enrol-runner" || name != "token") && (s["enum"] == nil || slices.Contains(s["enum"].([]any), v)) {
		return v
	}
	if list, ok := s["enum"].([]any); ok {
		return list[0]
	}
	switch {
	case isOf(s, "string"):
		return valid(s, seed)
	case isOf(s, "integer"), isOf(s, "number"):
		return s["minimum"]
	case isOf(s, "boolean"):
		return false
	case isOf(s, "array"):
		return []any{c.fill(tg, "", s["items"], seed)}
	}
	out := map[string]any{}
	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for _, name := range required {
		out[name.(string)] = c.fill(tg, name.(string), properties[name.(string)], seed)
	}
	return out
}

// valid returns a string that the schema permits.
func valid(s map[string]any, seed int) string {
	if list, ok := s["enum"].([]any); ok {
		return list[seed%len(list)].(string)
	}
	if s["format"] == "date-time" {
		return time.Now().Add(time.Hour).Format(time.RFC3339)
	}
	pattern, _ := s["pattern"].(string)
	least, most := length(s)
	g := rapid.StringN(least, most, -1)
	if pattern != "" {
		g = rapid.StringMatching(pattern)
	}
	for n := range 1000 {
		if v := g.Example(1000*seed + n); len(v) <= most && len([]rune(v)) >= least {
			return v
		}
	}
	panic("found no string for the schema " + fmt.Sprint(s))
}

func length(s map[string]any) (least, most int) {
	number := func(name string, otherwise int) int {
		if v, ok := s[name]; ok {
			var n int
			if _, err := fmt.Sscan(fmt.Sprint(v), &n); err == nil {
				return n
			}
		}
		return otherwise
	}
	return number("minLength", 0), number("maxLength", 300)
}

// invalid returns strings that the schema does not permit.
func invalid(s map[string]any) (out []string) {
	pattern := regexp.MustCompile(s["pattern"].(string))
	_, most := length(s)
	for _, v := range []string{"A", "-", "a-", "1a", "a b", "a/b/", "/a", "a//b", "a.b", "a\n", "a\x00", "é", "..", "ab_", "*a*b**", "b=", "sha256:0", "fairlead", "fairlead..x", "http://a.test/", "12345678901x", strings.Repeat("a", 64), strings.Repeat("a", most+1)} {
		if !pattern.MatchString(v) || len(v) > most && s["maxLength"] != nil {
			out = append(out, v)
		}
	}
	for n := range 20 {
		if v := rapid.StringN(1, most, -1).Example(n); !pattern.MatchString(v) {
			out = append(out, v)
		}
	}
	return out
}

// put sends a request with value in the slot and valid values elsewhere. sent is
// false if no HTTP client can send such a request.
func (c *fuzzed) put(t *testing.T, s slot, value string, seed int) (res result, sent bool) {
	t.Helper()
	path, query := s.tg.path, url.Values{}
	var headers []string
	for _, p := range s.tg.op.Parameters {
		switch {
		case s.in == p.In && s.name == p.Name && p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(value), 1)
		case s.in == p.In && s.name == p.Name && p.In == "query":
			query.Set(p.Name, value)
		case s.in == p.In && s.name == p.Name:
			headers = append(headers, p.Name, value)
		case p.Required && p.In == "query":
			query.Set(p.Name, fmt.Sprint(c.fill(s.tg, p.Name, p.Schema, seed)))
		}
	}
	path = c.fixtures.Replace(c.path(path, s.tg.op.scheme()))
	path = strings.NewReplacer("installs/acme", "installs/idle", "{key}", "0123456789abcdef", "{signing_key}", "0123456789abcdef", "{channel}", "stable", "{delivery}", "evt_1").Replace(path)
	var body any
	if schema := s.tg.body(); schema != nil {
		b, ok := c.fill(s.tg, "", schema, seed).(map[string]any)
		if !ok {
			return result{}, false
		}
		properties, _ := schema["properties"].(map[string]any)
		of := s.tg.resolve(properties[s.name])
		if properties["name"] != nil {
			b["name"] = c.known()["name"]
		}
		switch s.in {
		case "field":
			b[s.name] = value
		case "item":
			b[s.name] = []any{value}
		case "value", "key":
			key := "a"
			if names, ok := of["propertyNames"].(map[string]any); ok {
				key = valid(names, seed)
			}
			v := c.fill(s.tg, "", of["additionalProperties"], seed)
			if s.in == "key" {
				key = value
			} else {
				v = value
			}
			b[s.name] = map[string]any{key: v}
		}
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		body = string(data)
	} else if s.tg.op.RequestBody != nil {
		body = []byte("{}")
	}
	target := "http://fairlead.test" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := request(t.Context(), s.tg.method, target, c.token(s.tg.op.scheme()), body, headers...)
	if err != nil {
		return result{}, false
	}
	rec := httptest.NewRecorder()
	c.handler.ServeHTTP(rec, req)
	return result{rec.Result(), rec.Body.Bytes()}, true
}

// ofItsForm are the codes of problems with the form of a string.
var ofItsForm = []string{"malformed-request", "invalid-request", "invalid-name", "invalid-group", "invalid-match", "invalid-label", "invalid-version", "invalid-image",
	"invalid-account", "invalid-region", "invalid-webhook-event", "invalid-webhook-url", "idempotency-key-too-long", "artifact-missing", "invalid-variable"}

// free are slots whose strings must meet more conditions than the documented pattern.
var free = map[string]string{
	"create-webhook url":            "a URL of RFC 3986",
	"create-webhook events":         "a type that exists",
	"put-stack region":              "an existing AWS region",
	"check-stack region":            "an existing AWS region",
	"set-variables values":          "some names are reserved",
	"create-runner text":            "a YAML document",
	"update-runner text":            "a YAML document",
	"create-runner file":            "permitted only with a document",
	"update-runner file":            "permitted only with a document",
	"create-runner aws_role":        "an ARN of IAM",
	"create-service-account issuer": "the URL of an issuer",
	"update-service-account issuer": "the URL of an issuer",
	"publish-version artifacts":     "an artifact for each component",
	"approve-deployment signatures": "a signed approval in base64",
}

func (s slot) String() string { return s.tg.op.OperationID + " " + s.name }

// Formerly 68 of 31,866 requests that the document permits were refused: names, paths
// of groups, cursors, events.
func TestValueAllowedByDocumentIsAccepted(t *testing.T) {
	c := newForms(t)
	asked, succeeded := map[string]bool{}, map[string]bool{}
	for _, s := range slots(t) {
		if s.in == "header" {
			continue // HTTP limits the bytes of a header
		}
		for seed := range 8 {
			value := valid(s.schema, seed)
			if s.in == "path" && strings.Trim(value, ".") == "" {
				continue // the URL would have another path
			}
			res, ok := c.put(t, s, value, seed)
			if !ok {
				continue
			}
			asked[s.String()] = true
			succeeded[s.String()] = succeeded[s.String()] || res.StatusCode < 300
			if res.StatusCode >= 400 && free[s.String()] == "" && res.StatusCode != http.StatusLocked && slices.Contains(ofItsForm, res.code(t)) {
				t.Errorf("%s (%s) %q is refused: %s", s, s.in, value, short(res.body))
				break
			}
		}
	}
	for name := range maps.Keys(free) {
		if !asked[name] {
			t.Errorf("there is no slot %s: delete it from the list", name)
		}
	}
	n := 0
	for _, ok := range succeeded {
		if ok {
			n++
		}
	}
	if n < len(asked)/4 {
		t.Errorf("requests succeed for only %d of %d slots", n, len(asked))
	}
}

func TestValueOutsideItsPatternIsRefused(t *testing.T) {
	c := newForms(t)
	tried := 0
	for _, s := range slots(t) {
		if s.schema["pattern"] == nil || s.in == "header" {
			continue
		}
		for _, value := range invalid(s.schema) {
			if s.in == "path" && (strings.Trim(value, ".") == "" || strings.Contains(value, "/")) {
				continue // the URL would have another path
			}
			res, ok := c.put(t, s, value, 1)
			if !ok {
				continue
			}
			tried++
			refusals := []int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity}
			switch {
			case s.tg.op.OperationID == "unlock-state": // there is no lock
				refusals = append(refusals, http.StatusConflict)
			case s.tg.op.OperationID == "put-stack": // no template is published
				refusals = append(refusals, http.StatusConflict)
			case s.in == "path" && strings.HasPrefix(s.tg.path, "/runner/"): // the path does not belong to the token's job
				refusals = append(refusals, http.StatusForbidden)
			}
			if !slices.Contains(refusals, res.StatusCode) {
				t.Errorf("%s (%s) %q: answer %d %s", s, s.in, value, res.StatusCode, short(res.body))
			}
		}
	}
	if tried < 1000 {
		t.Errorf("the test tried only %d strings", tried)
	}
}
