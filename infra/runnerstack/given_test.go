package runnerstack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

// The console shows the parameters by group. It would show a parameter without a group at the
// end, below a heading of its own.
func TestEachParameterIsInOneGroup(t *testing.T) {
	metadata := synth(t).template.Raw["Metadata"].(map[string]any)["AWS::CloudFormation::Interface"].(map[string]any)
	parameters := synth(t).template.Raw["Parameters"].(map[string]any)
	groups := map[string]int{}
	for _, g := range metadata["ParameterGroups"].([]any) {
		group := g.(map[string]any)
		if label := group["Label"].(map[string]any)["default"]; label == "" || label == nil {
			t.Errorf("the group %v has no label", group)
		}
		for _, id := range group["Parameters"].([]any) {
			groups[id.(string)]++
			if _, ok := parameters[id.(string)]; !ok {
				t.Errorf("a group has %s, which is no parameter", id)
			}
		}
	}
	for id := range parameters {
		if groups[id] != 1 {
			t.Errorf("the parameter %s is in %d groups, want one", id, groups[id])
		}
	}
}

// AWS allows 5 VPCs a region, and a stack that would make the sixth fails. The form shows the
// way out where the customer chooses the network.
func TestFormNamesTheWayWithoutAVPC(t *testing.T) {
	network := synth(t).template.Raw["Parameters"].(map[string]any)["NetworkMode"].(map[string]any)
	for _, part := range []string{"5 VPCs a region", "ExistingVpc", "default VPC", "AssignPublicIp ENABLED"} {
		if !strings.Contains(fmt.Sprint(network["Description"]), part) {
			t.Errorf("the description of NetworkMode does not name %q: %v", part, network["Description"])
		}
	}
	if !slices.Contains(network["AllowedValues"].([]any), any("ExistingVpc")) {
		t.Errorf("NetworkMode does not allow ExistingVpc: %v", network["AllowedValues"])
	}
}

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
