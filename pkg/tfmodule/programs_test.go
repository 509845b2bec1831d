package tfmodule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/tfmodule"
)

// A plan runs what these constructs name, so a policy must see each before the plan.
func TestEachProgramOfAModuleIsFound(t *testing.T) {
	for name, c := range map[string]struct{ file, src, want string }{
		"a provisioner":                         {"main.tf", "resource \"a\" \"b\" {\n  provisioner \"local-exec\" {\n    command = \"x\"\n  }\n}", "local-exec main.tf:2"},
		"a provisioner of its own":              {"main.tf", "resource a b {\n  provisioner chef {}\n}", "chef main.tf:2"},
		"a provisioner in JSON":                 {"main.tf.json", `{"resource": {"a": {"b": {"provisioner": [{"remote-exec": {"inline": []}}]}}}}`, "remote-exec main.tf.json:1"},
		"a provisioner in an override":          {"x_override.tofu", "resource \"a\" \"b\" {\n  provisioner \"local-exec\" {}\n}", "local-exec x_override.tofu:2"},
		"a provisioner of a removed resource":   {"main.tf", "removed {\n  from = a.b\n  provisioner \"local-exec\" {\n    when = destroy\n  }\n}", "local-exec main.tf:3"},
		"a data source":                         {"main.tf", `data "external" "x" {}`, "external main.tf:1"},
		"a data source of a check":              {"main.tf", "check \"c\" {\n  data \"external\" \"x\" {}\n}", "external main.tf:2"},
		"a data source in JSON":                 {"main.tofu.json", `{"data": {"external": {"x": {"program": ["sh"]}}}}`, "external main.tofu.json:1"},
		"a key provider of the state":           {"main.tf", "terraform {\n  encryption {\n    key_provider \"external\" \"k\" {\n      command = [\"sh\"]\n    }\n  }\n}", "external main.tf:3"},
		"a method of the state's encryption":    {"main.tf", "terraform {\n  encryption {\n    method external k {}\n  }\n}", "external main.tf:3"},
		"a login of a provider":                 {"main.tf", "provider \"kubernetes\" {\n  exec {\n    command = \"sh\"\n  }\n}", "external main.tf:2"},
		"a login of a provider of charts":       {"main.tf", "provider \"helm\" {\n  kubernetes {\n    exec {\n      command = \"sh\"\n    }\n  }\n}", "external main.tf:3"},
		"a login of a newer provider":           {"main.tf", "provider \"helm\" {\n  kubernetes = {\n    exec = { command = \"sh\" }\n  }\n}", "external main.tf:2"},
		"nothing in a provider without a login": {"main.tf", "provider \"helm\" {\n  kubernetes = {\n    host = \"x\"\n  }\n}", ""},
		"nothing in an ordinary module":         {"main.tf", "terraform {\n  required_providers {\n    aws = { source = \"hashicorp/aws\" }\n  }\n}\nresource \"a\" \"external\" {}\nlocals {\n  local-exec = 1\n}", ""},
	} {
		var s tfmodule.Survey
		s.Read(c.file, []byte(c.src))
		var got []string
		for _, p := range s.Programs {
			got = append(got, p.Kind+" "+p.At)
		}
		if strings.Join(got, ", ") != c.want || c.want != "" && len(s.Unclear) > 0 {
			t.Errorf("%s: found %q, unclear %q, want %q", name, got, s.Unclear, c.want)
		}
	}
}

// What this version cannot read, a tool may run.
func TestWhatASurveyCannotReadIsUnclear(t *testing.T) {
	for name, c := range map[string]struct{ file, src string }{
		"no HCL":                            {"main.tf", `resource "a" {`},
		"no JSON":                           {"main.tf.json", `{`},
		"a block of a later tool":           {"main.tf", `action "local_command" "x" {}`},
		"a block of a later tool in JSON":   {"main.tf.json", `{"action": {"local_command": {"x": {}}}}`},
		"a source that is no constant":      {"main.tf", "module \"m\" {\n  source = var.place\n}"},
		"no source":                         {"main.tf", "module \"m\" {\n}"},
		"a nesting that could end the step": {"main.tf", "locals {\n  a = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n}"},
	} {
		var s tfmodule.Survey
		if s.Read(c.file, []byte(c.src)); len(s.Unclear) != 1 {
			t.Errorf("%s: unclear is %q", name, s.Unclear)
		}
	}
}

// No spelling of a repository evades a list of repositories.
func TestSourcesHaveOneSpelling(t *testing.T) {
	var s tfmodule.Survey
	for i, source := range []string{"./local", "../other", "github.com/acme/net//sub?ref=v1", "git::https://github.com/acme/net.git?ref=v2", "terraform-aws-modules/vpc/aws//modules/x",
		"registry.opentofu.org/terraform-aws-modules/vpc/aws", "https://example.com/m.zip?checksum=" + strings.Repeat("a", 64), "s3::https://s3.amazonaws.com/b/m.zip", "git::ssh://git@github.com/acme/net.git"} {
		s.Read("main.tf", fmt.Appendf(nil, "module \"m%d\" {\n  source = %q\n}", i, source))
	}
	want := []string{"git::https://github.com/acme/net.git", "git::ssh://git@github.com/acme/net.git", "https://example.com/m.zip", "registry.opentofu.org/terraform-aws-modules/vpc/aws", "s3::https://s3.amazonaws.com/b/m.zip"}
	if got := s.Remote(); !slices.Equal(got, want) || len(s.Unclear) > 0 {
		t.Errorf("got %q, want %q; unclear: %q", got, want, s.Unclear)
	}
}

func FuzzSurvey(f *testing.F) {
	f.Add("main.tf", `resource "a" "b" { provisioner "local-exec" {} }`)
	f.Add("main.tf.json", `{"provider": {"helm": {"kubernetes": {"exec": {}}}}}`)
	f.Add("main.tf", "provider \"helm\" {\n  kubernetes = {\n    exec = {}\n  }\n}")
	f.Fuzz(func(t *testing.T, name, src string) {
		var s tfmodule.Survey
		s.Read(name, []byte(src))
		s.Remote()
	})
}
