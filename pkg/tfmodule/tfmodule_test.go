package tfmodule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/tfmodule"
)

func TestFileNamesFollowTheToolsRules(t *testing.T) {
	for name, want := range map[string]struct {
		stem     string
		override bool
	}{
		"main.tf":                {"main", false},
		"override.tf":            {"override", true},
		"x_override.tofu":        {"x_override", true},
		"x_override.tf.json":     {"x_override", true},
		"z.z_override.tf":        {"z.z_override", true}, // the stem ends at the extension, not at the first dot
		"x_override.y.tf":        {"x_override.y", false},
		"override.tofu.json":     {"override", true},
		"notoverride.tf":         {"notoverride", false},
		".hidden_override.tf":    {".hidden_override.tf", false},
		"x_override.tf~":         {"x_override.tf~", false},
		"x_override.json":        {"x_override.json", false},
		"x_override.auto.tfvars": {"x_override.auto.tfvars", false},
	} {
		if stem, override := tfmodule.Stem(name), tfmodule.Override(name); stem != want.stem || override != want.override {
			t.Errorf("%s: stem %q, override %t", name, stem, override)
		}
	}
	got := tfmodule.Effective([]string{"a.tf", "b.tf", "b.tofu", "c.tf.json", "c.tofu", "d.tf.json", "d.tofu.json", "readme.md", ".x.tf"})
	if want := []string{"a.tf", "b.tofu", "c.tf.json", "c.tofu", "d.tofu.json"}; !slices.Equal(got, want) {
		t.Errorf("Effective: got %v, want %v", got, want)
	}
}

func TestBackendIsFoundInEverySyntax(t *testing.T) {
	for name, tc := range map[string]struct {
		file, src string
		want      bool
	}{
		"in HCL":                  {"a.tf", "terraform {\n  backend \"local\" {}\n}", true},
		"cloud":                   {"a.tf", "terraform {\n  cloud {}\n}", true},
		"a second block":          {"a.tofu", "terraform {}\nterraform {\n  backend \"s3\" {}\n}", true},
		"in JSON":                 {"a.tf.json", `{"terraform": {"backend": {"local": {}}}}`, true},
		"in JSON, in lists":       {"a.tf.json", `[{"terraform": [{"backend": [{"local": {}}]}]}]`, true},
		"in JSON, with escapes":   {"a.tofu.json", `{"terraform": {"back\u0065nd": {"local": {}}}}`, true},
		"a comment about it":      {"a.tf", "# backend \"local\" {}\nlocals { x = \"backend\" }", false},
		"a resource of that name": {"a.tf", "resource \"x_backend\" \"cloud\" {}", false},
		"a broken file":           {"a.tf", "terraform {", false},
		"a broken file in JSON":   {"a.tf.json", `{"terraform"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			body, _ := tfmodule.Parse(tc.file, []byte(tc.src))
			if _, found := tfmodule.Backend(body); found != tc.want {
				t.Errorf("found %t, want %t", found, tc.want)
			}
		})
	}
}

func TestCallsAreFoundInEverySyntax(t *testing.T) {
	for name, tc := range map[string]struct {
		file, src string
		want      string // NAME SOURCE LINE
	}{
		"on several lines":         {"main.tf", "module \"m\" {\n  source = \"./n\"\n  source_of = \"x\"\n}\n", "m ./n 2"},
		"on one line":              {"main.tofu", `module "m" { source = "../n" }`, "m ../n 1"},
		"in brackets":              {"main.tf", "module \"m\" {\n  source = (\n    \"../n\"\n  )\n}\n", "m ../n 2"},
		"with escapes":             {"main.tf", "module m {\n  source = \"../\\u006e\"\n}\n", "m ../n 2"},
		"after a syntax error":     {"main.tf", "resource {\n}\nx = = 1\nmodule \"m\" {\n  source = \"./n\"\n}\n", "m ./n 5"},
		"with a variable":          {"main.tf", "module \"m\" {\n  source = \"../${var.x}\"\n}\n", ""},
		"in another block":         {"main.tf", "resource \"a\" \"b\" {\n  source = \"./n\"\n}\n", ""},
		"in a nested object":       {"main.tf", "module \"m\" {\n  providers = { source = \"./n\" }\n}\n", ""},
		"in a comment":             {"main.tf", "/* module \"m\" {\n  source = \"./n\"\n} */\n", ""},
		"in JSON":                  {"main.tf.json", `{"module": {"m": {"source": "./n"}}}`, "m ./n 1"},
		"in JSON, with a variable": {"main.tf.json", `{"module": {"m": {"source": "./${var.n}"}}}`, ""},
		"in invalid JSON":          {"main.tf.json", `{"module": {"m": {"source": "./n"}}`, ""},
	} {
		var got []string
		for _, c := range tfmodule.Calls(tc.file, []byte(tc.src)) {
			got = append(got, fmt.Sprint(c.Name, " ", c.Source, " ", c.At.Line))
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
