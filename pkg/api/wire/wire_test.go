package wire_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// routes reads every Route from the source of the package, so that the tests
// cannot miss one.
func routes(t *testing.T) map[string]wire.Route {
	t.Helper()
	all := map[string]wire.Route{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range files {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			lit, ok := spec.Values[0].(*ast.CompositeLit)
			if !ok || len(lit.Elts) != 3 {
				return true
			}
			var s [3]string
			for i, e := range lit.Elts {
				if s[i], err = strconv.Unquote(e.(*ast.BasicLit).Value); err != nil {
					t.Fatal(err)
				}
			}
			all[spec.Names[0].Name] = wire.Route{ID: s[0], Method: s[1], Path: s[2]}
			return true
		})
	}
	if all["GetPlan"] != wire.GetPlan || len(all) < 40 {
		t.Fatalf("found only %d routes in the source, or GetPlan differs", len(all))
	}
	return all
}

func TestRoutesAreDistinct(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
	seen := map[string]string{}
	mux := http.NewServeMux()
	for name, r := range routes(t) {
		if !id.MatchString(r.ID) {
			t.Errorf("%s: operation id %q is not kebab-case", name, r.ID)
		}
		if other, taken := seen[r.ID]; taken {
			t.Errorf("%s and %s have the same operation id %q", name, other, r.ID)
		}
		seen[r.ID] = name
		if !strings.HasPrefix(r.Path, "/v1/") && !strings.HasPrefix(r.Path, "/runner/v1/") {
			t.Errorf("%s: path %s does not start with /v1/ or /runner/v1/", name, r.Path)
		}
		mux.HandleFunc(r.Method+" "+r.Path, http.NotFound) // panics when two routes conflict
	}
}

func TestSessionStatementHoldsAllArguments(t *testing.T) {
	const want = "fairlead-session-v1\nnonce\nrun_01\nhost-1\n"
	if got := string(wire.SessionStatement("nonce", "run_01", "host-1")); got != want {
		t.Errorf("statement %q, want %q: deployed agents sign this text", got, want)
	}
	for _, other := range [][3]string{{"nonce2", "run_01", "host-1"}, {"nonce", "run_02", "host-1"}, {"nonce", "run_01", "host-2"}} {
		if string(wire.SessionStatement(other[0], other[1], other[2])) == want {
			t.Errorf("the arguments %q give the same statement", other)
		}
	}
}

func TestDeploymentIsDoneInFinalStatesOnly(t *testing.T) {
	field, _ := reflect.TypeFor[wire.Deployment]().FieldByName("State")
	final := map[string]bool{"succeeded": true, "failed": true, "canceled": true}
	for s := range strings.SplitSeq(field.Tag.Get("enum"), ",") {
		if got := (wire.Deployment{State: s}).Done(); got != final[s] {
			t.Errorf("Done of a deployment in state %s: %t", s, got)
		}
		delete(final, s)
	}
	if len(final) > 0 {
		t.Errorf("the API does not list the final states %v", final)
	}
}

func TestAbsentAndNullValuesDiffer(t *testing.T) {
	for want, v := range map[string]any{
		`{"items":null}`:                 wire.Page[int]{},
		`{"items":[1],"next":"c"}`:       wire.Page[int]{Items: []int{1}, Next: "c"},
		`{}`:                             wire.Output{},
		`{"value":null}`:                 wire.Output{Value: json.RawMessage("null")},
		`{"value":"x","sensitive":true}`: wire.FullOutput{Value: json.RawMessage(`"x"`), Sensitive: true},
		`{"title":"Gone","status":410,"type":""}`: wire.Problem{Title: "Gone", Status: 410},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got, expected any
		if json.Unmarshal(b, &got) != nil || json.Unmarshal([]byte(want), &expected) != nil || !reflect.DeepEqual(got, expected) {
			t.Errorf("JSON of %T: %s, want %s", v, b, want)
		}
	}
}
