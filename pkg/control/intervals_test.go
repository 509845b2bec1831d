package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// However rarely agents speak, a dead one is shown within a minute, and one that
// is alive is not shown as lost for a single word that got lost on the way.
func TestADeadAgentIsShownWithinAMinute(t *testing.T) {
	for _, tt := range []struct {
		name      string
		intervals control.Intervals
		every     time.Duration
		lost      time.Duration
	}{
		{"by default, after three missed heartbeats", control.Intervals{}, 15 * time.Second, 45 * time.Second},
		{"where each is paid for, after one and what the agent makes of it", control.Metered(), 36 * time.Second, 55 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals = tt.intervals
				if got := p.HeartbeatEvery(); got != tt.every {
					t.Errorf("agents are told to speak every %s, want %s", got, tt.every)
				}
				p.must("say how it is", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
				state := func() (s string) {
					p.must("look at the runner", func() error { r, err := p.Control.Runner(p.ctx, org, "local"); s = r.State; return err })
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

// An agent that was killed leaves a session that nobody ends. It is shown as lost
// for a day, in which somebody may ask what became of it, and then no more,
// whether or not the engine has dropped it; this one never does.
func TestAGhostIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		look := func() (r control.Runner) {
			p.must("look at the runner", func() (err error) { r, err = p.Control.Runner(p.ctx, org, "local"); return err })
			return r
		}
		ghost := p.session.ID
		p.sleep(23 * time.Hour)
		if r := look(); r.State != "lost" || len(r.Sessions) != 1 {
			t.Errorf("within a day it is %s, with %d sessions", r.State, len(r.Sessions))
		}
		p.sleep(control.SessionTTL + time.Hour + time.Second)
		if r := look(); r.State != "never-seen" || len(r.Sessions) != 0 {
			t.Errorf("after a day it is %s, with %d sessions", r.State, len(r.Sessions))
		}
		if situations, err := p.RunnerSituations(p.ctx, look()); err != nil || len(situations) != 1 || !strings.Contains(situations[0].What, "was online in the last day") {
			t.Errorf("it is said %+v, %v", situations, err)
		}
		p.enrol()
		p.must("say how it is", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
		if r := look(); r.State != "online" || len(r.Sessions) != 1 || r.Sessions[0].ID == ghost {
			t.Errorf("when the next one is there it is %s, with %d sessions", r.State, len(r.Sessions))
		}
	})
}

// A renewal waits for a cancelation, unless waiting is paid for.
func TestARenewalIsAnsweredAtOnceWhereWaitingIsPaidFor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt bool
		took   time.Duration
	}{{"by default it waits", false, 15 * time.Second}, {"it is answered at once", true, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals.Prompt = tt.prompt
				p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
				_, h := p.begin()
				began := time.Now()
				p.must("renew", func() error { _, err := p.RenewLease(p.ctx, h, 0, 15*time.Second); return err })
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
			})
		})
	}
}
