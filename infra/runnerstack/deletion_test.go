package runnerstack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A customer deletes the stack while a job runs. The job's task outlives the agent, and ECS
// refuses to delete a cluster with an active task. CloudFormation deletes a resource after those
// that refer to it, so what the job needs must come after the cluster: a refused deletion then
// leaves the role of a running apply, which would otherwise end without its state.
func TestDeletionKeepsWhatRunningJobsNeed(t *testing.T) {
	network := []string{"PublicRoute", "PublicSubnet1", "PublicSubnet2", "InternetGatewayAttachment"}
	roles := []string{"ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyRole", "ProvisionStepRole", "DeployStepRole", "DeprovisionStepRole", "ReadOnlyStepRole",
		"ProvisionStepRolePolicy", "DeployStepRolePolicy", "DeprovisionStepRolePolicy", "ReadOnlyStepRolePolicy"}
	for name, tt := range map[string]struct {
		holds []string // conditions of the template
		want  []string
	}{
		"without NAT gateway": {[]string{"HasTasks", "HasNewVpc"}, slices.Concat(roles, network)},
		"with NAT gateway":    {[]string{"HasTasks", "HasNewVpc", "HasNat"}, slices.Concat(roles, []string{"PrivateRoute", "PrivateSubnet1", "PrivateSubnet2", "NatGateway"})},
		"existing VPC":        {[]string{"HasTasks"}, roles},
	} {
		t.Run(name, func(t *testing.T) {
			later := map[string]bool{}
			after(synth(t).template.Raw["Resources"].(map[string]any), "Cluster", tt.holds, later)
			for _, id := range tt.want {
				if !later[id] {
					t.Errorf("%s can be deleted before the cluster, so while a job runs", id)
				}
			}
			if tags := fmt.Sprint(stack(t).Resources["Cluster"].Properties["Tags"]); !strings.Contains(tags, "Key:fairlead-tasks Value:kept") {
				t.Errorf("a tag of the cluster has a value that can be too long: %s", tags)
			}
			if later["RunnerService"] {
				t.Error("the service is deleted after its cluster")
			}
			ofService := map[string]bool{}
			if after(synth(t).template.Raw["Resources"].(map[string]any), "RunnerService", tt.holds, ofService); !ofService["Cluster"] {
				t.Error("the cluster can be deleted before the service, which would start the agent again")
			}
		})
	}
}

// after adds the resources that CloudFormation deletes after the resource id, if the conditions
// hold and the others do not.
func after(resources map[string]any, id string, holds []string, out map[string]bool) {
	resource, ok := resources[id].(map[string]any)
	if !ok {
		return
	}
	for _, ref := range references(map[string]any{"": resource["Properties"], "DependsOn": resource["DependsOn"]}, holds) {
		if _, ok := resources[ref]; ok && !out[ref] {
			out[ref] = true
			after(resources, ref, holds, out)
		}
	}
}

// references returns the logical ids to which v refers, and those of DependsOn.
func references(v any, holds []string) (found []string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			found = append(found, references(item, holds)...)
		}
	case map[string]any:
		for key, value := range v {
			switch list, _ := value.([]any); {
			case key == "Ref":
				found = append(found, value.(string))
			case key == "Fn::GetAtt":
				found = append(found, list[0].(string))
			case key == "Fn::If" && slices.Contains(holds, list[0].(string)):
				found = append(found, references(list[1], holds)...)
			case key == "Fn::If":
				found = append(found, references(list[2], holds)...)
			case key == "DependsOn":
				for _, id := range list {
					found = append(found, id.(string))
				}
				if id, ok := value.(string); ok {
					found = append(found, id)
				}
			default:
				found = append(found, references(value, holds)...)
			}
		}
	}
	return found
}
