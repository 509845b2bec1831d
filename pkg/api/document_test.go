package api_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi-validator/schema_validation"

	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/tools/page"
)

func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

func TestCommittedDocumentsMatchHandlers(t *testing.T) {
	docs, err := api.Documents()
	if err != nil {
		t.Fatal(err)
	}
	page.HoldFile(t, "docs/reference/problems.md", problemsPage())
	for name, doc := range docs {
		page.HoldFile(t, "docs/openapi/"+name+".yaml", doc)
	}
	p := newPlane(t)
	for _, path := range []string{"/v1/openapi.yaml", "/runner/v1/openapi.yaml"} {
		if res := p.send("GET", path, "", nil); res.StatusCode != 200 || !bytes.Contains(res.body, []byte("openapi: 3.1")) {
			t.Errorf("GET %s: status %d", path, res.StatusCode)
		}
	}
}

// problemsPage returns docs/reference/problems.md.
func problemsPage() []byte {
	var b strings.Builder
	b.WriteString("# Problems\n\n" +
		"Generated from the code by `go generate ./pkg/api`; edit `pkg/api/catalogue.go` and generate again.\n\n" +
		"Every error of both APIs is a problem document (RFC 9457, `application/problem+json`). Its `type` is\n" +
		"`" + wire.ProblemType + "` and one of the codes below, and is stable. `detail` and `hint` are for people and\n" +
		"may change. `request_id` identifies the request in the control plane's log. If a code is not listed\n" +
		"here, use the status.\n\n" +
		"| type | status | meaning | what to do |\n|---|---|---|---|\n")
	for _, d := range api.Problems() {
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", d.Code, d.Status, d.Meaning, commandline.Text(d.Remedy, nil))
	}
	return []byte(b.String())
}

func TestDocumentsAreValidOpenAPI31(t *testing.T) {
	docs, err := api.Documents()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range docs {
		doc, err := libopenapi.NewDocument(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if doc.GetVersion() != "3.1.0" {
			t.Errorf("%s is OpenAPI %s", name, doc.GetVersion())
		}
		if _, err := doc.BuildV3Model(); err != nil { // it resolves every reference
			t.Errorf("%s: %v", name, err)
		}
		if ok, problems := schema_validation.ValidateOpenAPIDocument(doc); !ok {
			for _, p := range problems {
				t.Errorf("%s: %s: %s %v", name, p.Message, p.Reason, p.SchemaValidationErrors)
			}
		}
	}
}

// routes returns every wire.Route that package wire declares.
func routes(t *testing.T) map[string]wire.Route {
	t.Helper()
	out := map[string]wire.Route{}
	for _, file := range []string{"wire/accounts.go", "wire/audit.go", "wire/control.go", "wire/keys.go", "wire/limits.go", "wire/orgs.go", "wire/people.go", "wire/placement.go", "wire/runner.go", "wire/stack.go", "wire/tokens.go", "wire/webhooks.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if name, ok := lit.Type.(*ast.Ident); !ok || name.Name != "Route" {
				return true
			}
			var parts []string
			for _, e := range lit.Elts {
				s, err := strconv.Unquote(e.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, s)
			}
			out[parts[0]] = wire.Route{ID: parts[0], Method: parts[1], Path: parts[2]}
			return false
		})
	}
	if len(out) < 40 {
		t.Fatalf("found only %d routes in package wire", len(out))
	}
	return out
}

func TestEveryRouteIsServedAndDocumented(t *testing.T) {
	p := newPlane(t)
	left := routes(t)
	eachOperation(t, func(doc document, method, path string, op operation) {
		r, ok := left[op.OperationID]
		if !ok || r.Method != method || r.Path != path {
			t.Errorf("%s %s (%s) is documented but not a route of package wire: %+v", method, path, op.OperationID, r)
			return
		}
		delete(left, op.OperationID)
		res := p.send(method, pathParam.ReplaceAllString(path, "x"), "", nil)
		if res.StatusCode >= 400 {
			if c := res.code(t); c == "no-route" || c == "method-not-allowed" {
				t.Errorf("%s %s is documented but not served", method, path)
			}
		}
		if op.Summary == "" || len(op.Security) != 1 {
			t.Errorf("%s has no summary or no security", op.OperationID)
		}
		if s := op.scheme(); s != "" && doc.Components.Security[s] == nil {
			t.Errorf("%s refers to an unknown security scheme %q", op.OperationID, s)
		}
		success, problems := 0, 0
		for status, res := range op.Responses {
			switch {
			case strings.HasPrefix(status, "2"):
				success++
			case strings.HasPrefix(res.Ref, "#/components/responses/Problem"), status == "423":
				problems++
			default:
				t.Errorf("%s documents the status %s, which is neither a success nor a problem", op.OperationID, status)
			}
		}
		if success == 0 || problems == 0 || len(op.Problems) == 0 {
			t.Errorf("%s documents %d successes and %d problems", op.OperationID, success, problems)
		}
		for _, prm := range op.Parameters {
			if prm.In == "path" && !strings.Contains(path, "{"+prm.Name+"}") {
				t.Errorf("%s documents a path parameter %s that its path does not have", op.OperationID, prm.Name)
			}
		}
	})
	for id := range left {
		t.Errorf("route %s is not documented", id)
	}
}

var pathParam = regexp.MustCompile(`\{[a-z]+\}`)

// The test calls each method of the client by reflection, with minimal arguments, so
// it also covers methods that are added later.
func TestEveryClientMethodUsesDocumentedRoute(t *testing.T) {
	mux := http.NewServeMux()
	hit := map[string]bool{}
	eachOperation(t, func(_ document, method, path string, op operation) {
		mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
			hit[op.OperationID] = true
			for name := range r.URL.Query() {
				if !slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.In == "query" && p.Name == name }) {
					t.Errorf("the client sends to %s the query parameter %s, which is not documented", op.OperationID, name)
				}
			}
			if r.Header.Get(wire.HeaderIdempotencyKey) != "" && !slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.Name == wire.HeaderIdempotencyKey }) {
				t.Logf("the client sends to %s an Idempotency-Key that the operation ignores", op.OperationID)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}")) // the client may be gone
		})
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c, err := client.New(server.URL, "token", client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(c)
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for j := 2; j < m.Type.NumIn(); j++ {
			a := reflect.New(m.Type.In(j)).Elem()
			switch a.Kind() {
			case reflect.String:
				a.SetString("x")
			case reflect.Slice:
				a.Set(reflect.MakeSlice(a.Type(), 1, 1))
			}
			args = append(args, a)
		}
		if m.Name == "GetState" { // its last argument is a path from the job spec
			args[len(args)-1] = reflect.ValueOf(control.StatePath("x", "x"))
		}
		before := len(hit)
		out := v.Method(i).Call(args)
		if err, _ := out[len(out)-1].Interface().(error); err != nil && !strings.Contains(err.Error(), "unexpected end of JSON") {
			t.Errorf("%s: %v", m.Name, err)
		}
		if len(hit) == before && m.Name != "WaitDeployment" {
			t.Logf("%s calls an operation that another method calls, too", m.Name)
		}
	}
	eachOperation(t, func(_ document, _, _ string, op operation) {
		if !hit[op.OperationID] && op.scheme() != "stateLease" {
			t.Errorf("no method of the client calls %s", op.OperationID)
		}
	})
}

// offline holds codes of errors that no request gets, with the reason. They end the
// start of a process, or occur in a tool that works on files.
var offline = map[string]string{
	"cycle":                  "a published app has been checked",
	"duplicate-node":         "a published app has been checked",
	"unknown-node":           "a published app has been checked",
	"data-in-use":            "at the start of a server",
	"data-newer":             "at the start of a server",
	"key-file-damaged":       "at the start of a server",
	"key-file-exposed":       "at the start of a server",
	"key-file-missing":       "at the start of a server",
	"record-not-found":       "a missing record counts as an empty one",
	"runner-not-direct":      "only for the agent in the control plane's own process",
	"key-file-newer":         "at the start of a server",
	"key-file-unavailable":   "at the start of a server",
	"invalid-blob-prefix":    "at the start of a function on AWS",
	"invalid-bucket":         "at the start of a function on AWS",
	"invalid-log-options":    "at the start of a function on AWS",
	"invalid-max-receives":   "at the start of a function on AWS",
	"invalid-queue-options":  "at the start of a function on AWS",
	"invalid-queue-prefix":   "at the start of a function on AWS",
	"aws-unavailable":        "in an adapter for AWS that no API uses yet",
	"blob-broken-off":        "in an adapter for AWS that no API uses yet",
	"bucket-missing":         "in an adapter for AWS that no API uses yet",
	"invalid-log-event":      "in an adapter for AWS that no API uses yet",
	"invalid-log-stream":     "in an adapter for AWS that no API uses yet",
	"invalid-log-group":      "in an adapter for AWS that no API uses yet",
	"invalid-log-size":       "a moved log has a size",
	"log-not-movable":        "no API moves a log",
	"log-not-owned":          "only while log events are read from a log group",
	"webhook-address":        "the address is checked when an event is sent, and the error is stored with the delivery",
	"log-contended":          "in an adapter for AWS that no API uses yet",
	"log-events-rejected":    "in an adapter for AWS that no API uses yet",
	"queue-deleted-recently": "in an adapter for AWS that no API uses yet",
	"queue-not-found":        "in an adapter for AWS that no API uses yet",
	"append-too-large":       "the handler has the same limit and checks it first: body-too-large",
	"invalid-cursor":         "a negative offset into a log is refused as invalid-request",
	"message-too-large":      "a wake-up has a fixed size",
	"invalid-message":        "a wake-up has a body",
	"invalid-queue-name":     "the control plane names the queues",
	"invalid-limit":          "the control plane sets the limit",
	"invalid-offset":         "a negative offset is refused as invalid-request",
	"invalid-epoch":          "an epoch comes from a token or a listing",
	"invalid-job":            "a job is read before its log",
	"invalid-blob-key":       "the control plane names the blobs",
	"invalid-seal-context":   "the control plane names the contexts",
	"token-not-found":        "answered as unauthenticated",
	"enrolment-not-found":    "answered as enrolment-refused",
	"aws-identity-refused":   "answered as session-refused",
	"oidc-token-refused":     "answered as session-refused",
	"token-use-not-found":    "a token without a recorded use is new",
	"invalid-url":            "at the start of a server, or of an agent",
	"state-not-found":        "a missing state counts as empty",
	"slots-not-found":        "a runner without a record of slots has all slots free",
	"identity-not-found":     "an identity without an item has no open session",
	"variables-not-found":    "a missing record counts as no variables",

	"idempotency-key-not-found": "a missing key is new",
}

func TestEveryErrorCodeIsInTheCatalogue(t *testing.T) {
	constants := codeConstants(t)
	listed := map[string]bool{}
	for _, d := range api.Problems() {
		if d.Status < 400 || d.Meaning == "" || d.Remedy == "" {
			t.Errorf("problem %s has no error status, meaning or remedy", d.Code)
		}
		listed[string(d.Code)] = true
	}
	found := map[string]string{}
	// The packages that a request can reach.
	for _, dir := range []string{"../api", "../control", "../store", "../deployment", "../fairlead", "../identity", "../graph", "../job", "../placement", "../runnerspec",
		"../blob", "../joblog", "../queue", "../seal", "../sqlitedb", "../webhook"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if d != nil && (strings.HasSuffix(d.Name(), "test") || d.Name() == "client") {
					return filepath.SkipDir
				}
				return err
			}
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				for _, code := range codesIn(t, path, constants) {
					found[code] = path
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 60 {
		t.Fatalf("the scan found only %d codes", len(found))
	}
	for code, path := range sorted(found) {
		if !listed[code] && offline[code] == "" {
			t.Errorf("%s uses the code %q, which pkg/api/catalogue.go does not describe", path, code)
		}
	}
	for code := range listed {
		if _, ok := found[code]; !ok && code != "answer-too-large" && code != "invalid-config" && code != "invalid-inputs" && code != "invalid-install-key" && code != "state-storage-changes" {
			t.Errorf("no package uses the code %q: delete its problem", code)
		}
	}
}

// codeConstants returns the values of package fairlead's codes by their names.
func codeConstants(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../fairlead/code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			out[v.Names[0].Name], _ = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
	return out
}

// codesIn returns the codes of the errors in a file. It finds them in the field Code
// of literals, in the first argument of the error constructors, in return values and
// in assignments to a variable named code.
func codesIn(t *testing.T, path string, constants map[string]string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	add := func(e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok {
			e = s.Sel
		}
		if id, ok := e.(*ast.Ident); ok && constants[id.Name] != "" {
			out = append(out, constants[id.Name])
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Code" {
				add(n.Value)
			}
		case *ast.ReturnStmt:
			for _, e := range n.Results {
				add(e)
			}
		case *ast.AssignStmt:
			if k, ok := n.Lhs[0].(*ast.Ident); ok && k.Name == "code" && len(n.Rhs) == 1 {
				add(n.Rhs[0])
			}
		case *ast.CallExpr:
			name := ""
			switch fn := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = fn.Sel.Name
			case *ast.Ident:
				name = fn.Name
			}
			if len(n.Args) == 0 {
				return true
			}
			switch name {
			case "Invalid", "Conflict", "coded", "throttled", "limited", "NotFound", "missing":
				add(n.Args[0])
			}
		}
		return true
	})
	return out
}
