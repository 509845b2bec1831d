package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/job"
)

func TestTheCommittedDocumentIsInStep(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	want, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "STATES.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/STATES.md is not what the code says: run go generate ./pkg/job")
	}
	out := filepath.Join(t.TempDir(), "STATES.md")
	if err := run([]string{out}); err != nil {
		t.Fatal(err)
	}
	if written, err := os.ReadFile(out); err != nil || !bytes.Equal(written, want) {
		t.Errorf("the command writes something else: %v", err)
	}
	if err := run(nil); err == nil {
		t.Error("without a file it says nothing")
	}
}

// The walk must have met every state, or the document would be silent on one.
func TestEveryStateOfADeploymentIsReached(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	_, components, _ := strings.Cut(string(doc), "### Components in a deployment")
	nodes, err := constants(filepath.Join(root, "pkg", "deployment", "deployment.go"), "NodeState")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		if s.Value != "pending" && !strings.Contains(components, "→ `"+s.Value+"`") {
			t.Errorf("no life of a deployment leads to %s", s.Value)
		}
	}
}

// The API spells the states out for its documents; they must be the same.
func TestTheAPIKnowsTheSameStates(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	values := func(file, typeName string) []string {
		cs, err := constants(filepath.Join(root, file), typeName)
		if err != nil {
			t.Fatal(err)
		}
		var vs []string
		for _, c := range cs {
			vs = append(vs, c.Value)
		}
		return vs
	}
	var ops []string
	for _, op := range job.Operations() {
		ops = append(ops, string(op))
	}
	for name, c := range map[string]struct {
		in    reflect.Type
		field string
		want  []string
	}{
		"jobs":        {reflect.TypeFor[wire.Job](), "State", values("pkg/job/job.go", "State")},
		"operations":  {reflect.TypeFor[wire.Job](), "Operation", ops},
		"deployments": {reflect.TypeFor[wire.Deployment](), "State", values("pkg/deployment/deployment.go", "State")},
		"components":  {reflect.TypeFor[wire.DeploymentComponent](), "State", values("pkg/deployment/deployment.go", "NodeState")},
		"kinds":       {reflect.TypeFor[wire.Deployment](), "Kind", values("pkg/deployment/deployment.go", "Kind")},
	} {
		f, _ := c.in.FieldByName(c.field)
		got := strings.Split(f.Tag.Get("enum"), ",")
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("the API's %s are %v, the code's %v", name, got, c.want)
		}
	}
}
