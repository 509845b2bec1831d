package runnerstack_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/tools/page"
)

// A customer plans an update by the time that the pages give a job to end.
func TestPagesHaveTheTimesInWhichATaskDrains(t *testing.T) {
	s := stack(t)
	drain, err := time.ParseDuration(infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_DRAIN_FOR"])
	if err != nil {
		t.Fatal(err)
	}
	containers := s.Resources["RunnerTask"].Properties["ContainerDefinitions"].([]any)
	stop := fmt.Sprint(containers[0].(map[string]any)["StopTimeout"], " s")
	for _, file := range []string{"docs/operations/run-a-runner.md", "docs/vendor/runner-on-aws.md"} {
		page.Hold(t, file, "drain", fmt.Sprint(drain.Seconds(), " s"))
	}
	page.Hold(t, "docs/vendor/runner-on-aws.md", "stop", stop)
}
