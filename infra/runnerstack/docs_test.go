package runnerstack_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/fairlead/fairlead/infra/internal/infratest"
)

// A customer plans an update by how long the pages say that a job is left to end.
func TestPagesSayForHowLongATaskDrains(t *testing.T) {
	s := stack(t)
	drainFor, err := time.ParseDuration(infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_DRAIN_FOR"])
	if err != nil {
		t.Fatal(err)
	}
	containers := s.Resources["RunnerTask"].Properties["ContainerDefinitions"].([]any)
	stop := fmt.Sprint(containers[0].(map[string]any)["StopTimeout"])
	drain := fmt.Sprint(drainFor.Seconds())
	for _, said := range []struct{ page, pattern, want string }{
		{"RUNNERS.md", `what still runs in it (\d+) s later is interrupted`, drain},
		{"RUNNERS.md", `run in the agent's task and have not ended after (\d+) s`, drain},
		{"AWS.md", `interrupts its tools after (\d+) s`, drain},
		{"AWS.md", `kills the old one (\d+) s after its SIGTERM`, stop},
	} {
		text, err := os.ReadFile("../../docs/" + said.page)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(said.pattern).FindStringSubmatch(string(text)); found == nil || found[1] != said.want {
			t.Errorf("docs/%s says %q, and it is %s s", said.page, found, said.want)
		}
	}
}
