package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/job"
)

// A dead host and a lost wake-up must be noticed within a minute. A part of the minute
// is reserved for delays that AWS does not bound: the delivery of a delayed SQS
// message, a late schedule, the start of a function.
const (
	noticedWithin = time.Minute
	leftForAWS    = 3 * time.Second
)

// The first sweep after the end of the lease notices a dead host. The first sweep
// after the resend time notices a lost wake-up. So the largest gap between two sweeps
// limits the delay.
func TestDeadHostIsNoticedWithinAMinute(t *testing.T) {
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
		if err != nil || delay%time.Second != 0 { // SQS supports whole seconds
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
			t.Errorf("%s is noticed after %s: %s of its own limit, a gap of %s between sweeps, and %s reserved for AWS", what, late, patience, gap, leftForAWS)
		}
	}

	// After this time a queued job shows that an agent with a free slot is dead.
	if late := job.ResendAfter + gap + leftForAWS; late > 30*time.Second {
		t.Errorf("a job shows %s after it was queued that an agent is dead", late)
	}

	// A message must start the function. A message that is long out of date must not
	// start it.
	source, queue := s.Resources["SweepSource"].Properties, s.Resources["Sweeps"].Properties
	if source["EventSourceArn"] != s.ARN("Sweeps") || source["Enabled"] == false || source["MaximumBatchingWindowInSeconds"] != nil || queue["DelaySeconds"] != nil || queue["FifoQueue"] != nil {
		t.Errorf("the sweep's event source is %v, its queue %v", source, queue)
	}
	longest := starts[len(starts)-2]
	if kept := time.Duration(queue["MessageRetentionPeriod"].(float64)) * time.Second; kept < 2*longest || kept > 5*time.Minute {
		t.Errorf("a message with a delay of %s is kept for %s", longest, kept)
	}
	timeout := s.Resources["Sweep"].Properties["Timeout"].(float64)
	if hidden := queue["VisibilityTimeout"].(float64); hidden < timeout {
		t.Errorf("a message is hidden for %v s, but the function may take %v s", hidden, timeout)
	}
	if redrive := fmt.Sprint(queue["RedrivePolicy"]); !strings.Contains(redrive, s.ARN("SweepDeadLetters")) {
		t.Errorf("failed sweeps do not go to SweepDeadLetters: %s", redrive)
	}
}
