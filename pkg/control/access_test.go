package control_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/accesstest"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Each runner of an AWS control plane gets access: a session to its runner's queue, an
// attempt to the log and app of its job's install. It gets this only while its session or
// lease is valid.
func TestAccessIsForTheQueueOrTheJobsInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		g := &accesstest.Memory{}
		s.Access = g
		s.must("make another install", func() error {
			_, err := s.CreateInstall(s.ctx, org, control.NewInstall{Name: "globex", App: "tiny", Runner: "acme"}, "")
			return err
		})
		v := s.create(control.NewStack{Account: customer})
		session, err := s.open(firstReport(v))
		if err != nil {
			t.Fatal(err)
		}
		tiny, err := s.App(s.ctx, org, "tiny")
		if err != nil {
			t.Fatal(err)
		}
		app := tiny.ID
		for who, session := range map[string]control.Session{"a runner in a stack": session, "a runner in no stack": s.session} {
			want := identity.Scope{Runner: session.Runner, Queue: "runner-" + string(session.Runner)}
			if a := s.SessionAccess(s.ctx, session); a == nil || g.Scopes()[len(g.Scopes())-1] != want {
				t.Errorf("%s: the session gets %+v, by %+v", who, a, g.Scopes())
			}
		}

		// The runner has running jobs of two installs.
		attempt := func(install string) control.Holder {
			s.must("deploy", func() error {
				_, err := s.CreateDeployment(s.ctx, org, install, control.NewDeployment{Kind: deployment.Deploy}, "")
				return err
			})
			c, err := s.Claim(s.ctx, session, 0)
			if err != nil {
				t.Fatal(err)
			}
			h := control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
			if _, err := s.StartJob(s.ctx, h.Job, h.Epoch, "step-1234"); err != nil {
				t.Fatal(err)
			}
			return h
		}
		mine, other := attempt("acme"), attempt("globex")
		if a, err := s.AttemptAccess(s.ctx, mine); err != nil || a.LogGroup != "/"+string(v.Install) {
			t.Errorf("the attempt gets %+v, %v", a, err)
		}
		want := identity.Scope{Runner: s.runner.ID, Install: v.Install, App: app, Job: mine.Job, Epoch: mine.Epoch}
		if got := g.Scopes()[len(g.Scopes())-1]; got != want {
			t.Errorf("the attempt's access has the scope %+v", got)
		}
		globex, err := s.Install(s.ctx, org, "globex")
		if err != nil {
			t.Fatal(err)
		}
		if a, err := s.AttemptAccess(s.ctx, other); err != nil || a.LogGroup != "/"+string(globex.ID) || globex.ID == v.Install {
			t.Errorf("the job of another install gets %+v, %v", a, err)
		}
		stale := mine
		stale.Epoch++
		if _, err := s.AttemptAccess(s.ctx, stale); fairlead.CodeOf(err) != "stale-epoch" {
			t.Errorf("another epoch: %v", err)
		}
		s.must("finish", func() error {
			return s.FinishJob(s.ctx, mine, control.Report{Outcome: control.OutcomeFailed, Reason: "x"})
		})
		if _, err := s.AttemptAccess(s.ctx, mine); fairlead.CodeOf(err) != "stale-epoch" {
			t.Errorf("after the job's end: %v", err)
		}

		// If STS fails, a session is opened nevertheless, but without access.
		g.Fail(errors.New("STS does not answer"))
		if a := s.SessionAccess(s.ctx, session); a != nil {
			t.Errorf("without STS a session gets %+v", a)
		}
		if _, err := s.AttemptAccess(s.ctx, other); fairlead.CodeOf(err) != "log-access-unavailable" {
			t.Errorf("without STS the attempt: %v", err)
		}
		s.Access = nil
		if _, err := s.AttemptAccess(s.ctx, other); fairlead.CodeOf(err) != "no-log-access" || s.SessionAccess(s.ctx, session) != nil {
			t.Errorf("without a source of access: %v", err)
		}
	})
}

// An agent that receives the wake-up of a job itself can claim this job by its ID. The job
// can be claimed once.
func TestAJobIsClaimedByIDOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		session, err := s.open(nil)
		if err != nil {
			t.Fatal(err)
		}
		made, err := s.CheckRunner(s.ctx, me, "acme", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			who  string
			from control.Session
			id   fairlead.JobID
		}{
			{"another runner", s.session, made.ID}, {"an unknown job", session, "job_none"},
		} {
			if _, err := s.ClaimJob(s.ctx, tt.from, tt.id); !errors.Is(err, control.ErrNoWork) {
				t.Errorf("%s: %v", tt.who, err)
			}
		}
		for _, mode := range []fairlead.RunnerMode{fairlead.ModeDisabled, fairlead.ModeEnabled} {
			_, err := s.SetRunnerMode(s.ctx, control.User{Org: org}, "acme", mode)
			if err != nil {
				t.Fatal(err)
			}
			if mode == fairlead.ModeDisabled {
				if _, err := s.ClaimJob(s.ctx, session, made.ID); fairlead.CodeOf(err) != "runner-not-taking" {
					t.Errorf("a disabled runner: %v", err)
				}
			}
		}
		pin := func(version string) {
			t.Helper()
			if _, err := s.UpdateRunner(s.ctx, me, "acme", control.RunnerFile{Set: []string{"runner_configuration.version=" + version}}); err != nil {
				t.Fatal(err)
			}
		}
		pin("v9.9.9")
		var refusal *fairlead.Error
		if _, err := s.ClaimJob(s.ctx, session, made.ID); fairlead.CodeOf(err) != "runner-not-taking" || !errors.As(err, &refusal) || refusal.Details["pinned_version"] != "v9.9.9" {
			t.Errorf("an agent of another version than the pinned one: %v", err)
		}
		if _, err := s.Claim(s.ctx, session, 0); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("an agent of another version claims through the API: %v", err)
		}
		pin("null")
		c, err := s.ClaimJob(s.ctx, session, made.ID)
		if err != nil || c.ID != made.ID || c.State != job.Claimed || c.LaunchToken == "" {
			t.Fatalf("claimed %+v, %v", c, err)
		}
		if _, err := s.ClaimJob(s.ctx, session, made.ID); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("a repeated wake-up: %v", err)
		}
		if err := s.HeartbeatSession(s.ctx, session, control.Heartbeat{Draining: true}); err != nil {
			t.Fatal(err)
		}
		session.Draining = true
		if _, err := s.ClaimJob(s.ctx, session, made.ID); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("a draining session: %v", err)
		}
	})
}

// waiting is a granter and a transport to STS that knows when access was requested.
type waiting struct {
	*accesstest.Memory
	asked chan struct{}
	sts   http.RoundTripper
	ahead bool // the transport waits until access was requested
}

func (w *waiting) Grant(ctx context.Context, s identity.Scope) (identity.Access, error) {
	w.asked <- struct{}{}
	return w.Memory.Grant(ctx, s)
}

func (w *waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.ahead {
		<-w.asked
	}
	return w.sts.RoundTrip(r)
}

// On AWS a renewal asks STS for the caller's identity and for access to the queue at the same time. A
// first session, which a stranger can ask for, and the nonce of another runner cause no request for access.
func TestRenewalAsksForAccessWhileItsProofIsVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		w := &waiting{Memory: &accesstest.Memory{}, asked: make(chan struct{}, 1)}
		open := roleProofVia(p, func(sts http.RoundTripper) http.RoundTripper { w.sts = sts; return w })
		p.Access = w
		r, err := p.Runner(p.ctx, org, "role")
		if err != nil {
			t.Fatal(err)
		}
		challenge := p.NewChallenge()
		access := p.AccessAhead(p.ctx, control.SessionProof{Runner: r.ID, Nonce: challenge})
		first, err := open(challenge, "session", "host")
		if err != nil || len(w.asked) > 0 {
			t.Fatalf("the first session: %v, with %d requests for access before it was open", err, len(w.asked))
		}
		if a := access(p.ctx, first.Session); a == nil || a.Queue != "runner-"+string(r.ID) {
			t.Errorf("the first session gets the access %+v", a)
		}
		<-w.asked
		p.AccessAhead(p.ctx, control.SessionProof{Runner: p.session.Runner, Nonce: first.Renewal})
		synctest.Wait()
		if len(w.asked) > 0 {
			t.Error("the nonce of another runner causes a request for access")
		}

		w.ahead = true
		access = p.AccessAhead(p.ctx, control.SessionProof{Runner: r.ID, Nonce: first.Renewal})
		renewed, err := open(first.Renewal, "session", "host") // it waits for the request for access
		if err != nil {
			t.Fatal(err)
		}
		if a := access(p.ctx, renewed.Session); a == nil || a.Queue != "runner-"+string(r.ID) {
			t.Errorf("the renewal gets the access %+v", a)
		}
	})
}
