package control_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/control"
	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/config"
)

// Without the parameter, the stack has neither the service nor the function, and the control plane
// warns about runners that nothing serves.
func TestDirectLaunchIsOptional(t *testing.T) {
	values := given()
	values[control.ParameterDirect] = control.None
	without, err := synth(t).template.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	launches := func(s infratest.Stack) any {
		return s.Resources["ControlAPI"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)["FAIRLEAD_DIRECT_LAUNCH"]
	}
	if launches(without) != "off" || launches(stack(t)) != "on" {
		t.Errorf("the control plane reads %v without direct launch and %v with it, want off and on", launches(without), launches(stack(t)))
	}
	added := 0
	for id, r := range stack(t).Resources {
		_, there := without.Resources[id]
		if direct := strings.HasPrefix(id, "Direct"); direct == there {
			t.Errorf("%s (%s) exists without direct launch: %t", id, r.Type, there)
		} else if direct {
			added++
		}
	}
	if added < 20 {
		t.Errorf("direct launch adds %d resources", added)
	}
}

// The service's task has exactly the variables that its program reads, in an image of its own.
func TestDirectLaunchGetsDeclaredEnvironment(t *testing.T) {
	s := stack(t)
	got := infratest.TaskEnvironment(t, s, "DirectAgentsTask")
	var want []string
	for _, v := range config.Variables(&config.DirectLaunch{}) {
		want = append(want, v.Name)
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("the task sets %q, its program reads %q", slices.Sorted(maps.Keys(got)), want)
	}
	container := s.Resources["DirectAgentsTask"].Properties["ContainerDefinitions"].([]any)[0].(map[string]any)
	if image, _ := container["Image"].(string); !strings.HasSuffix(image, "@"+given()[control.ParameterDirect]) || container["Command"] != nil {
		t.Errorf("the task runs %v of the image %v", container["Command"], container["Image"])
	}
	if image := got["FAIRLEAD_RUNNER_IMAGE"]; !strings.HasSuffix(image, "@"+given()[control.ParameterDigest]) {
		t.Errorf("its jobs run in %s, want the runner's image", image)
	}
}
