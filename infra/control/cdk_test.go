package control_test

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/tools/deployment"
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
	if got := strings.TrimSpace(infratest.CDK(t, "ls", "-c", functions, "-c", "spare=true")); got != "fairlead-prod-spare" {
		t.Errorf("cdk ls -c spare=true prints %q", got)
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

// A vendor deploys the same commit again, from another machine, with a plain cdk deploy. It builds the functions, which a
// fresh checkout lacks, and CloudFormation gets the same template with the same assets: an empty change set. Otherwise each
// deployment would replace every function. The same is true for a plain cdk deploy after make deploy.
func TestCheckoutsOfACommitDeployTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds all functions in two checkouts; make test-all runs it")
	}
	var outputs []string
	var root string
	for _, name := range []string{"first", "a-second-checkout"} {
		source := cmp.Or(root, "../..") // the second checkout is of the first one's commit
		root = filepath.Join(t.TempDir(), name)
		if text, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "--no-tags", source, root).CombinedOutput(); err != nil {
			t.Fatalf("clone the repository: %v\n%s", err, text)
		}
		if name == "first" { // one checkout has a tag and a file that git does not know, as an operator's has
			if text, err := exec.CommandContext(t.Context(), "git", "-C", root, "tag", "v9.9.9").CombinedOutput(); err != nil {
				t.Fatalf("tag the commit: %v\n%s", err, text)
			}
			if err := os.WriteFile(filepath.Join(root, "notes.txt"), []byte("by hand"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := filepath.Join(root, "bin", "infra")
		infratest.CDKIn(t, root, "synth", "--quiet", "--output", out)
		for _, function := range control.Functions {
			if _, err := os.Stat(filepath.Join(root, "bin", "functions", function, "bootstrap")); err != nil {
				t.Errorf("cdk synth in a fresh checkout did not build a function: %v", err)
			}
		}
		outputs = append(outputs, out)
	}
	// make deploy in the second checkout, after the stack was created
	out := filepath.Join(t.TempDir(), "made")
	infratest.CDKIn(t, root, append([]string{"synth", "fairlead-prod", "--quiet", "--output", out}, deployment.Context(root, "prod")...)...)
	outputs = append(outputs, out)
	for _, name := range []string{"fairlead-prod.template.json", "fairlead-prod.assets.json", "fairlead-runner.yaml"} {
		first, err := os.ReadFile(filepath.Join(outputs[0], name))
		if err != nil {
			t.Fatal(err)
		}
		for i, what := range []string{"in another checkout", "by make deploy"} {
			other, err := os.ReadFile(filepath.Join(outputs[i+1], name))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, other) {
				t.Errorf("%s differs if the same commit is deployed %s", name, what)
			}
		}
	}
}
