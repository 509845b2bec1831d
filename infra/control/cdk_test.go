package control_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// cdk.json is in the root of the repository. A vendor runs cdk synth, diff and
// deploy in that folder. This test runs the same CLI version that make deploy pins.
func TestCDKWorksInTheRoot(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles and runs all of infra again; make test-all runs it")
	}
	functions := "functions=infra/control/testdata/functions" // bin/functions may not be built
	if got := strings.TrimSpace(infratest.CDK(t, "ls", "-c", functions)); got != "fairlead-prod" {
		t.Errorf("cdk ls prints %q", got)
	}
	out := t.TempDir()
	infratest.CDK(t, "synth", "--quiet", "--output", out, "-c", functions, "-c", "stage=test")
	for _, name := range []string{"fairlead-test.template.json", "fairlead-runner.yaml"} {
		template, err := infratest.Read(filepath.Join(out, name))
		if err != nil || len(template.Resources) < 10 {
			t.Errorf("%s has %d resources: %v", name, len(template.Resources), err)
		}
	}
	pinned, err := os.ReadFile("../../tools/infra/package.json")
	if err != nil {
		t.Fatal(err)
	}
	deploys, err := os.ReadFile("../../tools/deployment/deployment.go")
	if err != nil {
		t.Fatal(err)
	}
	const version = "2.1148.1"
	if !strings.Contains(string(pinned), `"aws-cdk": "`+version+`"`) || !strings.Contains(string(deploys), `const CDK = "aws-cdk@`+version+`"`) {
		t.Errorf("tools/infra/package.json and make deploy do not both pin the CDK's CLI %s", version)
	}
}
