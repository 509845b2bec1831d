package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// At each heartbeat interval, the runner of a dead agent is shown as lost within a minute.
// One missed heartbeat does not make the runner lost, because the agent has time to retry.
func TestADeadAgentIsShownWithinAMinute(t *testing.T) {
	for _, tt := range []struct {
		name      string
		intervals control.Intervals
		every     time.Duration
		lost      time.Duration
	}{
		{"default intervals, after three missed heartbeats", control.Intervals{}, 15 * time.Second, 45 * time.Second},
		{"metered intervals, after one heartbeat and its retries", control.Metered(), 36 * time.Second, 55 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals = tt.intervals
				if got := p.HeartbeatEvery(); got != tt.every {
					t.Errorf("agents send a heartbeat every %s, want %s", got, tt.every)
				}
				p.must("send a heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
				state := func() (s string) {
					p.must("read the runner", func() error { r, err := p.Control.Runner(p.ctx, org, "local"); s = r.State; return err })
					return s
				}
				p.sleep(tt.lost - time.Second)
				if got := state(); got != "online" {
					t.Errorf("after %s it is %s, want online", tt.lost-time.Second, got)
				}
				p.sleep(2 * time.Second)
				if got := state(); got != "lost" {
					t.Errorf("after %s it is %s, want lost", tt.lost+time.Second, got)
				}
			})
		})
	}
}

// A killed agent does not end its session. The session expires, is listed as lost for one
// more day, and is not listed after that. This is also true if the engine keeps the expired
// record, as this engine does.
func TestLostSessionIsListedForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		look := func() (r control.Runner) {
			p.must("read the runner", func() (err error) { r, err = p.Control.Runner(p.ctx, org, "local"); return err })
			return r
		}
		expired := p.session.ID
		p.sleep(23 * time.Hour)
		if r := look(); r.State != "lost" || len(r.Sessions) != 1 {
			t.Errorf("within a day the runner is %s, with %d sessions", r.State, len(r.Sessions))
		}
		p.sleep(control.SessionTTL + time.Hour + time.Second)
		if r := look(); r.State != "never-seen" || len(r.Sessions) != 0 {
			t.Errorf("after a day the runner is %s, with %d sessions", r.State, len(r.Sessions))
		}
		if situations, err := p.RunnerSituations(p.ctx, look()); err != nil || len(situations) != 1 || !strings.Contains(situations[0].What, "was online in the last day") {
			t.Errorf("the situations are %+v, %v", situations, err)
		}
		p.enrol()
		p.must("send a heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
		if r := look(); r.State != "online" || len(r.Sessions) != 1 || r.Sessions[0].ID == expired {
			t.Errorf("with the next agent the runner is %s, with %d sessions", r.State, len(r.Sessions))
		}
	})
}

// The answer to a renewal waits for a cancelation of the job. With Intervals.Prompt, the
// answer does not wait.
func TestPromptRenewalDoesNotWait(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt bool
		took   time.Duration
	}{{"a renewal waits by default", false, 15 * time.Second}, {"a prompt renewal does not wait", true, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals.Prompt = tt.prompt
				p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
				_, h := p.begin()
				began := time.Now()
				p.must("renew", func() error { _, err := p.RenewLease(p.ctx, h, 0, 15*time.Second); return err })
				if took := time.Since(began); took != tt.took {
					t.Errorf("the renewal took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

// On a platform that bills requests, a step sends its log every two seconds, and twice a
// second while a reader follows the log.
func TestFollowedLogIsSentMoreOften(t *testing.T) {
	for _, tt := range []struct {
		name           string
		intervals      control.Intervals
		alone, watched time.Duration
	}{
		{"default intervals: the step's own pace", control.Intervals{}, 0, 0},
		{"metered intervals: faster for a follower", control.Metered(), 2 * time.Second, 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals = tt.intervals
				p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
				_, h := p.begin()
				if got := p.LogEvery(p.ctx, h); got != tt.alone {
					t.Errorf("without a reader a step sends its log every %s, want %s", got, tt.alone)
				}
				read := make(chan error, 1)
				go func() {
					_, err := p.ReadLog(p.ctx, org, h.Job, h.Epoch, 0, 10*time.Second)
					read <- err
				}()
				synctest.Wait()
				if got := p.LogEvery(p.ctx, h); got != tt.watched {
					t.Errorf("with a reader a step sends its log every %s, want %s", got, tt.watched)
				}
				if err := <-read; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
