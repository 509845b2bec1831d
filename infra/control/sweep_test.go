package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/job"
)

// What is promised: a dead host and a lost wake-up are noticed within a minute.
// Of that a part is left for what nobody bounds: when SQS delivers a message whose
// delay is over, how late a schedule is, how long a function takes to start.
const (
	noticedWithin = time.Minute
	leftForAWS    = 3 * time.Second
)

// A death is noticed by the first sweep after the lease has ended, a lost
// wake-up by the first after the time in which a job may be taken: so late at
// most as the greatest gap between two sweeps makes it.
func TestADeathIsNoticedWithinAMinute(t *testing.T) {
	s := stack(t)
	schedule := s.Resources["SweepSchedule"].Properties
	period, known := map[string]time.Duration{"rate(1 minute)": time.Minute}[fmt.Sprint(schedule["ScheduleExpression"])]
	if !known || schedule["State"] != "ENABLED" || !strings.Contains(fmt.Sprint(schedule["Targets"]), s.ARN("Sweep")) {
		t.Fatalf("the sweep has the schedule %v", schedule)
	}
	starts := []time.Duration{0}
	variables := s.Resources["Sweep"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
	for text := range strings.SplitSeq(variables["FAIRLEAD_SWEEP_DELAYS"].(string), ",") {
		delay, err := time.ParseDuration(text)
		if err != nil || delay%time.Second != 0 { // SQS's are of seconds
			t.Fatalf("a delay is %q, %v", text, err)
		}
		starts = append(starts, delay)
	}
	starts = append(starts, period)
	slices.Sort(starts)
	var gap time.Duration
	for i := 1; i < len(starts); i++ {
		gap = max(gap, starts[i]-starts[i-1])
	}
	for what, patience := range map[string]time.Duration{"a dead host": job.LeaseTTL, "a lost wake-up": job.ResendAfter} {
		if late := patience + gap + leftForAWS; late > noticedWithin {
			t.Errorf("%s is noticed after %s: %s, a gap of %s between sweeps, and %s of AWS's", what, late, patience, gap, leftForAWS)
		}
	}

	// What is sent must start the function, and must not start it when it is long
	// out of date.
	source, queue := s.Resources["SweepSource"].Properties, s.Resources["Sweeps"].Properties
	if source["EventSourceArn"] != s.ARN("Sweeps") || source["Enabled"] == false || source["MaximumBatchingWindowInSeconds"] != nil || queue["DelaySeconds"] != nil || queue["FifoQueue"] != nil {
		t.Errorf("the sweep is started by %v, from %v", source, queue)
	}
	longest := starts[len(starts)-2]
	if kept := time.Duration(queue["MessageRetentionPeriod"].(float64)) * time.Second; kept < 2*longest || kept > 5*time.Minute {
		t.Errorf("a message that is sent for in %s is kept for %s", longest, kept)
	}
	timeout := s.Resources["Sweep"].Properties["Timeout"].(float64)
	if hidden := queue["VisibilityTimeout"].(float64); hidden < timeout {
		t.Errorf("a message is hidden for %v s, and the function may take %v", hidden, timeout)
	}
	if redrive := fmt.Sprint(queue["RedrivePolicy"]); !strings.Contains(redrive, s.ARN("SweepDeadLetters")) {
		t.Errorf("nobody hears of a sweep that fails: %s", redrive)
	}
}
