package runnerstack_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

// The template's vendor parameters are exactly the parameters that `fairlead install
// stack` prints. The runner's role has the name that the control plane expects.
func TestTemplateAsksForPrintedParameters(t *testing.T) {
	given := []string{wire.StackControlPlaneURL, wire.StackInstallID, wire.StackRunnerID, wire.StackExternalID, wire.StackTrustedKeys, wire.StackRunnerImage}
	s := stack(t)
	metadata := synth(t).template.Raw["Metadata"].(map[string]any)["AWS::CloudFormation::Interface"].(map[string]any)
	var asked []string
	for _, p := range metadata["ParameterGroups"].([]any)[0].(map[string]any)["Parameters"].([]any) {
		asked = append(asked, p.(string))
	}
	if !slices.Equal(asked, given) {
		t.Errorf("the template's vendor parameters are %q, `fairlead install stack` prints %q", asked, given)
	}
	parameters := synth(t).template.Raw["Parameters"].(map[string]any)
	for name, p := range parameters {
		if _, optional := p.(map[string]any)["Default"]; optional == slices.Contains(given, name) {
			t.Errorf("the parameter %s has a default although the vendor gives it, or has neither", name)
		}
	}
	p := s.Resources["RunnerRole"].Properties
	arn := "arn:aws:iam::111122223333:role" + p["Path"].(string) + p["RoleName"].(string)
	if want := awsiam.RunnerRole("aws", "111122223333", install); arn != want {
		t.Errorf("the runner's role is %s, but the control plane expects %s", arn, want)
	}
}
