package control_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// props returns the props of the golden template: all defaults, and a domain.
func props() control.Props {
	return control.Props{
		Stage: "test", Functions: "testdata/functions", Domain: "fairlead.example.com",
		Certificate: "arn:aws:acm:eu-central-1:111122223333:certificate/0aa0aa00-0000-4000-8000-000000000000", HostedZone: "Z0000000000000000000",
	}
}

// given returns values of all parameters.
func given() map[string]string {
	return map[string]string{
		"BootstrapVersion": "/cdk-bootstrap/hnb659fds/version", control.ParameterReserves: control.Reserves, control.ParameterBudget: "500",
		control.ParameterAlarmEmail: "oncall@example.com", control.ParameterReaders: "444455556666",
		control.ParameterDigest: "sha256:" + strings.Repeat("0", 64), control.ParameterTemplate: strings.Repeat("1", 64),
		control.ParameterDirect:      "sha256:" + strings.Repeat("2", 64),
		control.ParameterShell:       "sha256:" + strings.Repeat("3", 64),
		control.ParameterSpare:       "eu-west-1/fairlead-test-spare-0/spare-blobs/spare-archive",
		control.ParameterBuildRunner: "run_" + strings.Repeat("0", 26), control.ParameterBuildKeys: strings.Repeat("A", 43) + "=",
	}
}

type synthesis struct {
	template infratest.Template
	findings []string
}

// synthesized synthesizes the stack of props once: it takes seconds.
var synthesized = sync.OnceValues(func() (synthesis, error) {
	dir, err := os.MkdirTemp("", "fairlead-control-")
	if err != nil {
		return synthesis{}, err
	}
	t, findings, err := infratest.Synth(dir, func(scope constructs.Construct) (awscdk.Stack, error) { return control.New(scope, props()) })
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
		_ = os.RemoveAll(s.template.File[:strings.LastIndexByte(s.template.File, '/')]) // a leftover folder is harmless
	}
	removeSpare()
	jsii.Close()
	os.Exit(code)
}

func TestTemplateIsAsReviewed(t *testing.T) {
	infratest.Golden(t, synth(t).template, "testdata/control.template.json")
}

func TestNag(t *testing.T) {
	for _, f := range synth(t).findings {
		t.Error(f)
	}
}
