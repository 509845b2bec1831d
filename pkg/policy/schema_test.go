package policy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/pkg/yamlnode/schematest"
	"github.com/fairlead/fairlead/tools/page"
)

func schema() []byte {
	return schematest.File(reflect.TypeFor[policy.Policy](), policy.Rules(), "https://raw.githubusercontent.com/fairlead/fairlead/main/docs/policy.schema.json", "Fairlead policy of a customer")
}

func TestCommittedSchemaIsCurrent(t *testing.T) {
	page.HoldFile(t, "docs/policy.schema.json", schema())
}

// The page lists each field with its documentation.
func TestReferencePageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("| field | |\n|---|---|\n")
	describe(&b, reflect.TypeFor[policy.Policy](), "")
	page.Hold(t, "docs/customer/policy.md", "fields", b.String())
}

func describe(b *strings.Builder, of reflect.Type, where string) {
	for _, f := range yamlnode.FieldsOf(of) {
		at := yamlnode.Join(where, f.Name)
		fmt.Fprintf(b, "| `%s` | %s |\n", at, strings.ReplaceAll(f.Doc, "|", `\|`))
		under := f.Type
		if under.Kind() == reflect.Pointer {
			under = under.Elem()
		}
		switch key := ""; under.Kind() {
		case reflect.Struct:
			describe(b, under, at)
		case reflect.Slice, reflect.Map:
			if _, noun := yamlnode.KeyOf(under.Elem()); noun != "" {
				key = "NAME"
			} else if under.Elem().Kind() == reflect.Struct {
				key = "POINTER"
			}
			if key != "" {
				describe(b, under.Elem(), at+"."+key)
			}
		}
	}
}

// An editor that knows the schema accepts each policy that the runner accepts, and finds unknown fields.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(src string) error {
		n, problems := yamlnode.Read([]byte(src))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return compiled.Validate(yamlnode.NewReader("", yamlnode.Rules{}).Plain(n))
	}
	for _, parts := range restrictions() {
		for _, part := range parts {
			if err := valid("version: 1\n" + part); err != nil {
				t.Errorf("%s: %v", part, err)
			}
		}
	}
	for _, src := range []string{"version: 2", "version: 1\nbudget: 1", "version: 1\ntypes: [pulumi]", "version: 1\ndeny: {r: {typos: [x]}}", "types: [terraform]"} {
		if valid(src) == nil {
			t.Errorf("the schema accepts %q", src)
		}
	}
	for name, src := range starters(t) {
		if err := valid(src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// starters returns the starter policies by file.
func starters(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../examples/policies/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found the starter policies %q (%v)", files, err)
	}
	all := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(b)
	}
	return all
}
