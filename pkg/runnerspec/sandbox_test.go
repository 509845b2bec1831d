package runnerspec_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/tools/page"
)

func TestEachRunnerFitsItsOwnSandbox(t *testing.T) {
	want := map[runnerspec.Kind]string{ // in the order of SandboxKinds; * for a warning
		runnerspec.AWSECS: "*aws-eks aws-ecs", runnerspec.AWSEKS: "aws-eks", runnerspec.AzureAKS: "azure-aks", runnerspec.GCPGKE: "gcp-gke",
		runnerspec.Kubernetes: "*aws-eks *azure-aks *gcp-gke kubernetes",
		runnerspec.Docker:     "*aws-eks *aws-ecs *azure-aks *gcp-gke *kubernetes", runnerspec.Local: "*aws-eks *aws-ecs *azure-aks *gcp-gke *kubernetes",
	}
	for _, k := range runnerspec.Kinds() {
		var got []string
		for _, s := range runnerspec.SandboxKinds() {
			switch f := runnerspec.FitOf(k, s); {
			case f.OK && f.Why != "":
				got = append(got, "*"+string(s))
			case f.OK:
				got = append(got, string(s))
			case f.Why == "":
				t.Errorf("a runner of kind %s is refused on %s without a reason", k, s)
			}
		}
		if got := strings.Join(got, " "); got != want[k] {
			t.Errorf("a runner of kind %s can run on %q, want %q", k, got, want[k])
		}
	}
	for _, f := range []runnerspec.Fit{runnerspec.FitOf("ec2", runnerspec.OnEKS), runnerspec.FitOf(runnerspec.Local, "vm")} {
		if f.OK || !strings.Contains(f.Why, "there is no") {
			t.Errorf("an unknown kind fits: %+v", f)
		}
	}
}

func TestSandboxTableIsOnThePage(t *testing.T) {
	page.Hold(t, "docs/reference/app-file.md", "sandboxes", "```\n"+runnerspec.SandboxMatrix()+"```\n")
}
