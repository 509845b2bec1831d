package awstest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The account that the template is deployed to. moto uses this account number.
const (
	accountID = "123456789012"
	region    = "eu-central-1"
)

// template is a CloudFormation template from the CDK.
type template struct {
	Parameters map[string]parameter
	Mappings   map[string]map[string]map[string]string
	Conditions map[string]any
	Resources  map[string]resource
	Outputs    map[string]output
}

type parameter struct {
	Type    string
	Default any
}

type output struct {
	Value     any
	Condition string // "": the output always exists
}

type resource struct {
	Type       string
	Condition  string // "": the resource always exists
	Properties map[string]any

	DeletionPolicy string
}

// made has the values of the references to a created resource.
type made struct {
	ref  string            // the value of Ref
	attr map[string]string // the values of Fn::GetAtt
}

// The templates are the golden files of the stacks. The stacks' own tests compare
// them with the synthesized templates.
const (
	controlTemplate = "../../../infra/control/testdata/control.template.json"
	runnerTemplate  = "../../../infra/runnerstack/testdata/runner.template.json"
)

func readTemplate(t testing.TB, file string) template {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out template
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// resolver evaluates the intrinsic functions of a template. An unknown function
// fails the test, so that the test never deploys a wrong value.
type resolver struct {
	t     testing.TB
	tmpl  template
	made  map[string]made   // by logical id
	given map[string]string // values of parameters; a parameter without a value here has its default
}

// absent is the value of AWS::NoValue; value removes it from lists and maps.
type absent struct{}

var placeholder = regexp.MustCompile(`\$\{([^}!]+)\}`)

// value resolves all functions in v, the value of a property.
func (r *resolver) value(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, len(v))
		for i := range v {
			if value := r.value(v[i]); value != (absent{}) {
				out = append(out, value)
			}
		}
		return out
	case map[string]any:
		if len(v) == 1 {
			for name, arg := range v {
				if name == "Ref" || strings.HasPrefix(name, "Fn::") {
					return r.call(name, arg)
				}
			}
		}
		out := map[string]any{}
		for k := range v {
			if value := r.value(v[k]); value != (absent{}) {
				out[k] = value
			}
		}
		return out
	}
	return v
}

// text resolves v to a string.
func (r *resolver) text(v any) string {
	r.t.Helper()
	switch v := r.value(v).(type) {
	case string:
		return v
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	default:
		r.t.Fatalf("%v is not a string", v)
		return ""
	}
}

func (r *resolver) call(name string, arg any) any {
	r.t.Helper()
	switch name {
	case "Ref":
		if arg == "AWS::NoValue" {
			return absent{}
		}
		if id := arg.(string); r.tmpl.Parameters[id].Type == "CommaDelimitedList" {
			return r.value(map[string]any{"Fn::Split": []any{",", r.ref(id)}})
		}
		return r.ref(arg.(string))
	case "Fn::GetAtt":
		list := arg.([]any)
		return r.attribute(list[0].(string), list[1].(string))
	case "Fn::If":
		list := arg.([]any)
		if r.holds(list[0].(string)) {
			return r.value(list[1])
		}
		return r.value(list[2])
	case "Fn::FindInMap":
		list := arg.([]any)
		return r.tmpl.Mappings[list[0].(string)][r.text(list[1])][r.text(list[2])]
	case "Fn::Split":
		list := arg.([]any)
		var parts []any
		for part := range strings.SplitSeq(r.text(list[1]), list[0].(string)) {
			parts = append(parts, part)
		}
		return parts
	case "Fn::Select":
		list := arg.([]any)
		i, err := strconv.Atoi(r.text(list[0]))
		if err != nil {
			r.t.Fatalf("select element %v: %v", list[0], err)
		}
		return r.value(list[1]).([]any)[i]
	case "Fn::Join":
		list := arg.([]any)
		var parts []string
		for _, p := range r.value(list[1]).([]any) {
			parts = append(parts, r.text(p))
		}
		return strings.Join(parts, list[0].(string))
	case "Fn::Sub":
		return placeholder.ReplaceAllStringFunc(arg.(string), func(p string) string {
			name := strings.Trim(p, "${}")
			if id, attr, ok := strings.Cut(name, "."); ok {
				return r.attribute(id, attr)
			}
			return r.ref(name)
		})
	}
	r.t.Fatalf("the template uses %s, which this test does not support", name)
	return nil
}

// holds reports whether a condition of the template holds.
func (r *resolver) holds(name string) bool {
	r.t.Helper()
	c, ok := r.tmpl.Conditions[name]
	if !ok {
		r.t.Fatalf("the template has no condition %s", name)
	}
	return r.true(c)
}

func (r *resolver) true(v any) bool {
	r.t.Helper()
	for name, arg := range v.(map[string]any) {
		list, _ := arg.([]any)
		switch name {
		case "Condition":
			return r.holds(arg.(string))
		case "Fn::Equals":
			return r.text(list[0]) == r.text(list[1])
		case "Fn::Not":
			return !r.true(list[0])
		case "Fn::And":
			return !slices.ContainsFunc(list, func(v any) bool { return !r.true(v) })
		case "Fn::Or":
			return slices.ContainsFunc(list, r.true)
		}
	}
	r.t.Fatalf("the template uses the condition %v, which this test does not support", v)
	return false
}

func (r *resolver) ref(id string) string {
	r.t.Helper()
	if v, ok := r.given[id]; ok {
		return v
	}
	switch id {
	case "AWS::Region":
		return region
	case "AWS::AccountId":
		return accountID
	case "AWS::Partition":
		return "aws"
	case "AWS::URLSuffix":
		return "amazonaws.com"
	}
	if p, ok := r.tmpl.Parameters[id]; ok {
		return fmt.Sprint(p.Default)
	}
	m, ok := r.made[id]
	if !ok {
		r.t.Fatalf("the template refers to %s (%s), which the test has not created", id, r.tmpl.Resources[id].Type)
	}
	return m.ref
}

func (r *resolver) attribute(id, attr string) string {
	r.t.Helper()
	v, ok := r.made[id].attr[attr]
	if !ok {
		r.t.Fatalf("the template refers to %s.%s (%s), which the test has not created", id, attr, r.tmpl.Resources[id].Type)
	}
	return v
}

// ofType returns the sorted logical ids of the resources of a type.
func (t template) ofType(kind string) []string {
	var ids []string
	for id, res := range t.Resources {
		if res.Type == kind {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// as converts properties to an SDK's input by the names of their fields.
func as[T any](r *resolver, properties map[string]any) T {
	r.t.Helper()
	var out T
	text, err := json.Marshal(r.value(properties))
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
	return out
}
