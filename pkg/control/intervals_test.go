package control_test

import (
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// At each heartbeat interval, the runner of a dead agent that has jobs is shown as lost within
// a minute. An idle agent of a metered control plane is shown as lost before 11 minutes are over. One
// missed heartbeat does not make the runner lost, because the agent has time to retry.
func TestADeadAgentIsShownInTime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		intervals control.Intervals
		running   []string
		every     time.Duration
		lost      time.Duration
	}{
		{"default intervals, an idle agent", control.Intervals{}, nil, 15 * time.Second, 45 * time.Second},
		{"default intervals, a busy agent", control.Intervals{}, []string{"job_1"}, 15 * time.Second, 45 * time.Second},
		{"metered intervals, an idle agent", control.Metered(), nil, 10 * time.Minute, 10*time.Minute + 45*time.Second},
		{"metered intervals, a busy agent", control.Metered(), []string{"job_1"}, 18 * time.Second, 54 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals = tt.intervals
				got := p.HeartbeatEvery()
				if tt.running == nil {
					got = p.IdleHeartbeatEvery()
				}
				if got != tt.every {
					t.Errorf("agents send a heartbeat every %s, want %s", got, tt.every)
				}
				p.must("send a heartbeat", func() error {
					return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4, Running: tt.running})
				})
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

// The event of a lost runner comes within 11 minutes also on AWS, where the sweep checks all
// runners only every 4 minutes. An agent whose heartbeats come in time is never lost.
func TestLostIdleRunnerIsReportedWithin11Minutes(t *testing.T) {
	const gap = 15 * time.Second // between two sweeps, on AWS
	for _, phase := range []time.Duration{0, 70 * time.Second, 130 * time.Second, 200 * time.Second} {
		t.Run(phase.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stream{Engine: enginetest.Memory()}
				p := newPlane(t, s)
				p.Intervals = control.Metered()
				lost := func() (n int) {
					for _, r := range s.since(0) {
						if h, err := store.Happening(r.Change); err == nil && h.Event != nil && h.Event.Type == "fairlead.runner.lost" {
							n++
						}
					}
					return n
				}
				sweeps := func(d time.Duration) (turned int) {
					for end := p.Now().Add(d); p.Now().Before(end); {
						p.sleep(gap)
						p.must("sweep", func() error { swept, err := p.Sweep(p.ctx); turned += swept.Lost; return err })
					}
					return turned
				}
				sweeps(phase)
				for range 3 {
					p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
					if sweeps(10*time.Minute) > 0 || lost() > 0 {
						t.Fatal("the runner is lost between two heartbeats")
					}
				}
				p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
				if n, reported := sweeps(11*time.Minute), lost(); n != 1 || reported != 1 {
					t.Errorf("11 minutes after its last heartbeat the sweep has found %d lost runners, and reported %d", n, reported)
				}
			})
		})
	}
}

// A queued job that no agent claims shows within 30 s that an idle agent is dead, if the
// agent reported a free slot. The rows that stay online have another reason not to claim.
func TestUnclaimedJobShowsADeadAgent(t *testing.T) {
	for _, tt := range []struct {
		name string
		last control.Heartbeat
		prep func(p *plane)
		then func(p *plane) // 14 s after the job was queued
		want string
	}{
		{"a free slot", control.Heartbeat{Capacity: 4}, nil, nil, "lost"},
		{"it sends a heartbeat later", control.Heartbeat{Capacity: 4}, nil, func(p *plane) {
			p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
		}, "online"},
		{"no free slot", control.Heartbeat{Capacity: 1, Running: []string{"job_1"}}, nil, nil, "online"},
		{"draining", control.Heartbeat{Capacity: 4, Draining: true}, nil, nil, "online"},
		{"paused by the customer", control.Heartbeat{Capacity: 4, Customer: &fairlead.CustomerMode{Mode: fairlead.ModePaused}}, nil, nil, "online"},
		{"it cannot start jobs", control.Heartbeat{Capacity: 4, Unhealthy: "no docker"}, nil, nil, "online"},
		{"paused by the vendor", control.Heartbeat{Capacity: 4}, func(p *plane) {
			p.must("pause", func() error { return errOf(p.SetRunnerMode(p.ctx, me, "local", fairlead.ModePaused)) })
		}, nil, "online"},
		{"the configuration pins another version", control.Heartbeat{Capacity: 4}, func(p *plane) {
			p.must("pin", func() error {
				return errOf(p.UpdateRunner(p.ctx, me, "local", control.RunnerFile{Set: []string{"runner_configuration.version=v9.9.9"}}))
			})
		}, nil, "online"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals = control.Metered()
				state := func() (s string) {
					p.must("read the runner", func() error { r, err := p.Control.Runner(p.ctx, org, "local"); s = r.State; return err })
					return s
				}
				if tt.prep != nil {
					tt.prep(p)
				}
				p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, tt.last) })
				p.sleep(5 * time.Second)
				p.must("ask for a job", func() error { return errOf(p.CheckRunner(p.ctx, me, "local", "")) })
				p.sleep(14 * time.Second)
				if tt.then != nil {
					tt.then(p)
				}
				p.must("sweep", func() error { return errOf(p.Sweep(p.ctx)) })
				if got := state(); got != "online" {
					t.Errorf("14 s after the job was queued the runner is %s, want online", got)
				}
				p.sleep(15 * time.Second) // the longest time between two sweeps on AWS; a busy agent is not lost yet
				p.must("sweep", func() error { return errOf(p.Sweep(p.ctx)) })
				if got := state(); got != tt.want {
					t.Errorf("29 s after the job was queued the runner is %s, want %s", got, tt.want)
				}
				p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, tt.last) })
				if got := state(); got != "online" {
					t.Errorf("after a heartbeat the runner is %s, want online", got)
				}
			})
		})
	}
}

// An idle agent claims a job and its host dies before the next heartbeat. The end of the lease
// shows that the agent is dead, so its runner is not online for the rest of the 11 minutes.
func TestExpiredLeaseShowsADeadAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.Intervals = control.Metered()
		p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, control.Heartbeat{Capacity: 4}) })
		p.must("ask for a job", func() error { return errOf(p.CheckRunner(p.ctx, me, "local", "")) })
		p.running()
		for range 5 {
			p.sleep(12 * time.Second)
			p.must("sweep", func() error { return errOf(p.Sweep(p.ctx)) })
		}
		if r, err := p.Control.Runner(p.ctx, org, "local"); err != nil || r.State != "lost" {
			t.Errorf("a minute after the claim the runner is %s, %v, want lost", r.State, err)
		}
	})
}

// An agent renews its session, and its old session gets no heartbeats any more. What the old
// session reported must not hide what the agent reports now.
func TestReplacedSessionIsNotOnlineForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.Intervals = control.Metered()
		pub, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		var token string
		p.must("make an enrolment", func() (err error) { token, _, err = p.CreateEnrolment(p.ctx, me, "local"); return })
		p.must("enrol", func() error { return errOf(p.Enrol(p.ctx, token, pub)) })
		paused := &fairlead.CustomerMode{Mode: fairlead.ModePaused}
		var last control.Session
		for _, report := range []control.Heartbeat{{Capacity: 4}, {Capacity: 2, Customer: paused}} {
			nonce := p.NewChallenge()
			p.must("open a session", func() error {
				opened, err := p.OpenSession(p.ctx, control.SessionProof{Runner: p.session.Runner, Nonce: nonce, PublicKey: pub,
					Statement: []byte(nonce), Signature: ed25519.Sign(key, []byte(nonce)), Instance: "host-1", Report: &report})
				last = opened.Session
				return err
			})
			p.sleep(time.Minute)
		}
		r, err := p.Control.Runner(p.ctx, org, "local")
		if err != nil || r.Customer != nil && r.Customer.Mode != fairlead.ModePaused {
			t.Fatalf("the runner is %+v, %v", r, err)
		}
		online := 0
		for _, s := range r.Sessions {
			if s.Instance == "host-1" && s.State == "online" {
				if online++; s.ID != last.ID || s.Capacity != 2 || s.Customer == nil {
					t.Errorf("online is %+v, want the newest session with the agent's report", s)
				}
			}
		}
		if online != 1 {
			t.Errorf("%d sessions of the agent are online, want its newest", online)
		}
	})
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

// On a platform that bills requests, a step sends its log every two seconds, a log that grows fast every
// five, and twice a second while a reader follows the log.
func TestFollowedLogIsSentMoreOften(t *testing.T) {
	for _, tt := range []struct {
		name           string
		intervals      control.Intervals
		alone, watched control.LogTerms
	}{
		{"default intervals: the step's own pace", control.Intervals{}, control.LogTerms{}, control.LogTerms{}},
		{"metered intervals: faster for a follower", control.Metered(), control.LogTerms{Every: 2 * time.Second, Bulk: 5 * time.Second}, control.LogTerms{Every: 500 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.Intervals = tt.intervals
				p.must("ask for a job", func() error { _, err := p.CheckRunner(p.ctx, me, "local", ""); return err })
				_, h := p.begin()
				if got := p.LogTerms(p.ctx, h); got != tt.alone {
					t.Errorf("without a reader a step sends its log on the terms %+v, want %+v", got, tt.alone)
				}
				read := make(chan error, 1)
				go func() {
					_, err := p.ReadLog(p.ctx, org, h.Job, h.Epoch, 0, 10*time.Second)
					read <- err
				}()
				synctest.Wait()
				if got := p.LogTerms(p.ctx, h); got != tt.watched {
					t.Errorf("with a reader a step sends its log on the terms %+v, want %+v", got, tt.watched)
				}
				if err := <-read; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// searches counts the searches of queues for dead letters.
type searches struct {
	queue.Queue
	n int
}

func (s *searches) DeadLetters(ctx context.Context, name string, most int) ([]queue.Message, error) {
	s.n++
	return s.Queue.DeadLetters(ctx, name, most)
}

// A search for dead letters costs a request and a write. On AWS the queue of a runner that acts on
// its wake-ups is searched once a day, and that of a runner whose job waits every hour.
func TestQueueIsSearchedForDeadLettersIfAJobWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		s := &searches{Queue: p.Queue}
		p.Queue, p.Intervals = s, control.Metered()
		pass := func(d time.Duration) int {
			before := s.n
			for end := p.Now().Add(d); p.Now().Before(end); {
				p.sleep(4 * time.Minute)
				p.must("sweep", func() error { return errOf(p.Sweep(p.ctx)) })
			}
			return s.n - before
		}
		if n := pass(23 * time.Hour); n != 0 {
			t.Errorf("%d searches in 23 hours without jobs, want none", n)
		}
		if n := pass(2 * time.Hour); n != 1 {
			t.Errorf("%d searches after a day without jobs, want one", n)
		}
		p.must("ask for a job", func() error { return errOf(p.CheckRunner(p.ctx, me, "local", "")) })
		if n := pass(30 * time.Minute); n != 1 {
			t.Errorf("%d searches in half an hour while a job waits, want one", n)
		}
	})
}

// On AWS the sweep reads an idle runner about once in each of its heartbeats, and finds within one sweep
// that the runner is lost: 11 minutes after its last heartbeat, also if its agent ended,
// because the next agent may be starting.
func TestIdleRunnerIsReadRarelyAndLostOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := enginetest.Meter(enginetest.Memory())
		p := newPlane(t, meter)
		p.Intervals = control.Metered()
		beat := func(h control.Heartbeat) {
			p.must("heartbeat", func() error { return p.HeartbeatSession(p.ctx, p.session, h) })
		}
		// pass sweeps as on AWS for d, and returns how many runners turned lost, and the read units of the sweeps.
		pass := func(d time.Duration) (lost int, reads float64) {
			for end := p.Now().Add(d); p.Now().Before(end); {
				p.sleep(12 * time.Second)
				meter.Reset()
				s, err := p.Sweep(p.ctx)
				if err != nil {
					t.Fatal(err)
				}
				lost, reads = lost+s.Lost, reads+meter.Total().Read-1.5 // each sweep asks for due jobs, for due schedules, and for expired plans
			}
			return lost, reads
		}
		beat(control.Heartbeat{Capacity: 4})
		pass(10 * time.Minute) // the first look at a new runner
		var sum float64
		for range 24 {
			beat(control.Heartbeat{Capacity: 4})
			lost, reads := pass(10 * time.Minute)
			if sum += reads; lost != 0 {
				t.Fatal("a runner that renews its session is lost")
			}
		}
		if hour := sum / 4; hour > 15 {
			t.Errorf("the sweep reads %.1f units in an hour for an idle runner, want at most 15", hour)
		}
		if lost, _ := pass(36 * time.Second); lost != 0 {
			t.Error("the runner is lost within 10 minutes and 45 s")
		}
		if lost, _ := pass(12 * time.Second); lost != 1 {
			t.Error("the next sweep after 10 minutes and 45 s does not find that the runner is lost")
		}
		beat(control.Heartbeat{Capacity: 4})
		pass(10 * time.Minute)
		beat(control.Heartbeat{Capacity: 4, Ending: true})
		if lost, _ := pass(11*time.Minute + 12*time.Second); lost != 1 {
			t.Error("the runner is not lost 11 minutes after its last agent ended")
		}
	})
}
