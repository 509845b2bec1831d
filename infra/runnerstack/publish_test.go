package runnerstack_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/infra/runnerstack"
)

// published writes the published template to a file, and returns it.
func published(t *testing.T) infratest.Template {
	t.Helper()
	synthesized, err := os.ReadFile(synth(t).template.File)
	if err != nil {
		t.Fatal(err)
	}
	text, err := runnerstack.Publish(synthesized)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), runnerstack.ID+".yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	template, err := infratest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// Tests check the synthesized template, and customers install the published one.
func TestPublishedTemplateIsTheTestedOne(t *testing.T) {
	tested, readable := synth(t).template, published(t)
	for _, section := range []string{"Description", "Parameters", "Rules", "Mappings", "Conditions", "Metadata"} {
		if !reflect.DeepEqual(tested.Raw[section], readable.Raw[section]) {
			t.Errorf("the published template has another section %s:\n%v\nwant\n%v", section, readable.Raw[section], tested.Raw[section])
		}
	}
	tested.Resources = maps.Clone(tested.Resources)                   // other tests use the same synthesis
	for _, template := range []infratest.Template{tested, readable} { // outputs are resolved as properties are
		for name, out := range template.Raw["Outputs"].(map[string]any) {
			template.Resources["output "+name] = infratest.Resource{Properties: out.(map[string]any)}
		}
	}
	for _, values := range [][]string{nil, {"Isolation", "Process", "NetworkMode", "NewVpcNat"}, {"NetworkMode", "ExistingVpc", "VpcId", "vpc-0a", "SubnetIds", "subnet-1"},
		{"RunnerState", "Disabled", "PlansReadData", "Yes"}} {
		want, err := tested.Resolve(given(values...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readable.Resolve(given(values...))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Resources) != len(want.Resources) {
			t.Errorf("with %v the published template makes %d resources, want %d", values, len(got.Resources), len(want.Resources))
		}
		for id, r := range want.Resources {
			if !reflect.DeepEqual(got.Resources[id], r) {
				t.Errorf("with %v the published %s is\n%v\nwant\n%v", values, id, got.Resources[id], r)
			}
		}
	}
}

func TestCloudFormationReadsThePublishedTemplate(t *testing.T) {
	template := published(t)
	infratest.Lint(t, template, nil)
	content, err := json.Marshal(infratest.ReadYAML11(t, template.File))
	if err != nil {
		t.Fatal(err)
	}
	var asRead map[string]any
	if err := json.Unmarshal(content, &asRead); err != nil || !reflect.DeepEqual(asRead, template.Raw) {
		t.Errorf("by the rules of YAML 1.1 the template has other values (%v)", err)
	}
	info, err := os.Stat(template.File)
	if err != nil || info.Size() > 1<<20 {
		t.Errorf("the template has %d bytes; CloudFormation reads 1 MB from a bucket (%v)", info.Size(), err)
	}
}

// A customer's reviewer sees what each resource is for, above the resource.
func TestEachResourceIsExplained(t *testing.T) {
	template := published(t)
	text, err := os.ReadFile(template.File)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "cdk_nag") {
		t.Error("the published template contains cdk-nag metadata")
	}
	comments := yaml.CommentMap{}
	var any any
	if err := yaml.UnmarshalWithOptions(text, &any, yaml.CommentToMap(comments)); err != nil {
		t.Fatal(err)
	}
	explained := 0
	for id := range template.Resources {
		if !runnerstack.Explains(id) {
			t.Errorf("the table comments has no row for %s", id)
		}
		if len(comments["$.Resources."+id]) > 0 {
			explained++
		}
	}
	if explained < 20 {
		t.Errorf("%d resources have a comment in the published template, want at least 20", explained)
	}
	for _, sid := range []string{"RunnerStays", "NothingWhileDisabled", "OtherInstallsStayOut"} {
		if n := strings.Count(string(text), "Sid: "+sid); n == 0 || n > strings.Count(string(text), runnerstack.Reason(sid)) {
			t.Errorf("%d statements %s, and fewer comments", n, sid)
		}
	}
}
