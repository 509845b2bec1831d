package runnerstack_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/infra/runnerstack"
)

type synthesis struct {
	template infratest.Template
	findings []string
}

// synthesized synthesizes the stack once: it takes seconds.
var synthesized = sync.OnceValues(func() (synthesis, error) {
	dir, err := os.MkdirTemp("", "fairlead-runnerstack-")
	if err != nil {
		return synthesis{}, err
	}
	t, findings, err := infratest.Synth(dir, func(scope constructs.Construct) (awscdk.Stack, error) { return runnerstack.New(scope) })
	return synthesis{t, findings}, err
})

func synth(t *testing.T) synthesis {
	t.Helper()
	s, err := synthesized()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMain(m *testing.M) {
	code := m.Run()
	if s, err := synthesized(); err == nil {
		_ = os.RemoveAll(filepath.Dir(s.template.File)) // a leftover folder is harmless
	}
	jsii.Close()
	os.Exit(code)
}

func TestTemplateIsAsReviewed(t *testing.T) {
	infratest.Golden(t, synth(t).template, "testdata/runner.template.json")
}

func TestNag(t *testing.T) {
	for _, f := range synth(t).findings {
		t.Error(f)
	}
}
