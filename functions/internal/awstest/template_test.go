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

// The account that the template is deployed to. moto's has this number.
const (
	accountID = "123456789012"
	region    = "eu-central-1"
)

// template is a CloudFormation template as the CDK writes it.
type template struct {
	Parameters map[string]struct{ Default any }
	Mappings   map[string]map[string]map[string]string
	Conditions map[string]any
	Resources  map[string]resource
	Outputs    map[string]struct{ Value any }
}

type resource struct {
	Type       string
	Properties map[string]any
}

// made is what a reference to a resource gives.
type made struct {
	ref  string            // of Ref
	attr map[string]string // of Fn::GetAtt
}

// The templates: golden files of the stacks, which tests of the stacks hold to
// what is synthesised.
const (
	controlTemplate = "../../../infra/control/testdata/control.template.json"
	runnerTemplate  = "../../../infra/runnerstack/testdata/runner.template.json"
)

func synthesised(t *testing.T, file string) template {
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

// resolver gives intrinsic functions their values. An unknown one fails the
// test: what is not resolved would be deployed as something else.
type resolver struct {
	t    *testing.T
	tmpl template
	made map[string]made // by logical id
	// given are the parameters that have no default, or another value.
	given map[string]string
}

var placeholder = regexp.MustCompile(`\$\{([^}!]+)\}`)

// value resolves v, which is what a property holds.
func (r *resolver) value(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = r.value(v[i])
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
			out[k] = r.value(v[k])
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
		r.t.Fatalf("%v is no text", v)
		return ""
	}
}

func (r *resolver) call(name string, arg any) any {
	r.t.Helper()
	switch name {
	case "Ref":
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
	r.t.Fatalf("the template uses %s, which is not known here", name)
	return nil
}

// holds reports whether a condition of the template holds.
func (r *resolver) holds(name string) bool {
	r.t.Helper()
	c, ok := r.tmpl.Conditions[name]
	if !ok {
		r.t.Fatalf("there is no condition %s", name)
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
	r.t.Fatalf("%v is no condition that is known here", v)
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
		r.t.Fatalf("%s (%s) is referred to and has not been made", id, r.tmpl.Resources[id].Type)
	}
	return m.ref
}

func (r *resolver) attribute(id, attr string) string {
	r.t.Helper()
	v, ok := r.made[id].attr[attr]
	if !ok {
		r.t.Fatalf("%s.%s (%s) is referred to and has not been made", id, attr, r.tmpl.Resources[id].Type)
	}
	return v
}

// ofType returns the logical ids of the resources of a type, in order.
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

// as gives properties the shape of an SDK's input, by their names.
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
