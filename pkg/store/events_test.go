package store

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/job"
)

// TestEventsFollowFromTheItem checks that a job has an event in each of its states.
// The time of the event is the time at which the state began.
func TestEventsFollowFromTheItem(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j := Job{Job: job.New("job_1", job.OpPlan, at)}
	steps := []struct {
		event job.Kind
		kind  string
		after time.Duration
	}{
		{job.Claim, "fairlead.job.claimed", 1 * time.Second},
		{job.Start, "fairlead.job.running", 2 * time.Second},
		{job.Die, "fairlead.job.queued", 3 * time.Second},
		{job.Claim, "fairlead.job.claimed", 10 * time.Second},
		{job.Start, "fairlead.job.running", 11 * time.Second},
		{job.Cancel, "fairlead.job.canceling", 12 * time.Second},
		{job.Stopped, "fairlead.job.canceled", 13 * time.Second},
	}
	if e := j.Event(1); e.Type != "fairlead.job.queued" || !e.Time.Equal(at) || e.Subject != "job_1" || e.Version != 1 {
		t.Errorf("a new job has the event %+v", e)
	}
	for i, s := range steps {
		next, err := job.Apply(j.Job, job.Event{Kind: s.event, At: at.Add(s.after), Epoch: j.Lease.Epoch, Step: "step-1"})
		if err != nil {
			t.Fatal(err)
		}
		j.Job = next
		if e := j.Event(int64(i) + 2); e.Type != s.kind || !e.Time.Equal(at.Add(s.after)) || e.Version != int64(i)+2 {
			t.Errorf("after %s the event is %+v", s.event, e)
		}
	}
	j.Stuck = &Stuck{At: at, Version: 9}
	if e, ok := j.StuckEvent(9); !ok || e.Type != "fairlead.job.stuck" || !e.Time.Equal(at) {
		t.Errorf("a stuck job has the event %+v", e)
	}
	if e, ok := j.StuckEvent(10); ok {
		t.Errorf("the next version repeats the stuck event: %+v", e)
	}
	d := Deployment{Deployment: deployment.Deployment{ID: "dep_1", State: deployment.Waiting}, Changed: at}
	if e := d.Event(4); e.Type != "fairlead.deployment.awaiting-approval" || e.Subject != "dep_1" || !e.Time.Equal(at) {
		t.Errorf("a deployment has the event %+v", e)
	}
}
