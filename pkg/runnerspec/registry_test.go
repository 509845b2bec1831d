package runnerspec_test

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// An update of a registry merges its fields; another type replaces them, and null removes the registry. A configuration that was stored
// reads back.
func TestRegistryIsUpdated(t *testing.T) {
	r := runnerspec.Parse("r", []byte(minimal(runnerspec.Local)+"registry: {type: oci, url: 'https://r.example.com/', prefix: acme, credentials: LOGIN}\n"))
	if r.Spec == nil {
		t.Fatal(r.Problems)
	}
	update := func(spec *runnerspec.Spec, patch string) *runnerspec.Spec {
		t.Helper()
		u := runnerspec.Update(spec, "p", []byte(patch))
		if u.Spec == nil {
			t.Fatalf("%s: %v", patch, u.Problems)
		}
		text, err := json.Marshal(u.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var stored runnerspec.Spec
		if err := json.Unmarshal(text, &stored); err != nil {
			t.Fatal(err)
		}
		return &stored
	}
	if got := update(r.Spec, "registry: {prefix: other}").Registry; got.URL() != "https://r.example.com" || got.Repository("ins_1A", "web") != "other/ins_1a/web" {
		t.Errorf("after a change of the prefix: %+v", got)
	}
	ecr := update(r.Spec, "registry: {type: ecr, account: '123456789012', region: eu-west-1}")
	if got := ecr.Registry; got.URL() != "https://123456789012.dkr.ecr.eu-west-1.amazonaws.com" || got.Repository("ins_1", "web") != "ins_1/web" {
		t.Errorf("after a change of the type: %+v", got)
	}
	if got := update(ecr, "registry:").Registry; got != nil {
		t.Errorf("after a removal: %+v", got)
	}
}
