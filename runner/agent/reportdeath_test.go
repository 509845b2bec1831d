package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/providers"
)

const attemptID = "job_1-1"

// agentOn is an agent on a data folder with one attempt, whose step is over.
func agentOn(t *testing.T, control http.RoundTripper, e executor.Executor) *Agent {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Version: "test", Random: func() float64 { return 0.5 }, Transport: control}
	base, err := newClient("https://control.example", o)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{cfg: config.Runner{Data: t.TempDir()}, options: o, log: quiet(), now: time.Now, steps: map[string]*step{},
		freed: make(chan struct{}, 1), beatNow: make(chan struct{}, 1)}
	by := &launcher{executor: e, place: e.Place()}
	a.executors = &executors{now: by, alone: by, of: map[string]*launcher{}, kept: a.kept, log: a.log}
	a.cache = providers.Open(filepath.Join(a.cfg.Data, "plugin-cache"), filepath.Join(a.cfg.Data, "providers.json"), a.log)
	a.session = newSession(base, identity{RunnerID: "run_1", key: key}, "test", o, a.executors, time.Now)
	for _, folder := range []string{stepsFolder, attemptsFolder} {
		if err := os.Mkdir(filepath.Join(a.cfg.Data, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.folders(attemptID, attempt.Input{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// counted is an executor whose removals fail at first.
type counted struct {
	hostile
	fails   int
	removed int
}

// Remove implements executor.Executor.
func (c *counted) Remove(context.Context, string) error {
	if c.removed++; c.removed <= c.fails {
		return errors.New("the engine does not answer")
	}
	return nil
}

// refusal answers with a problem document, or with a page of somebody else's.
func refusal(status int, code string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		if code == "" {
			return answer(r, status, struct{}{})
		}
		res, err := answer(r, status, wire.Problem{Type: wire.ProblemType + code, Title: code, Status: status})
		res.Header.Set("Content-Type", "application/problem+json")
		return res, err
	}
}

// moody is a control plane that refuses what is asked of it at first.
type moody struct {
	at       string // end of the path that it refuses
	answers  []func(*http.Request) (*http.Response, error)
	received func()
	taken    int // reports
}

// RoundTrip implements http.RoundTripper.
func (m *moody) RoundTrip(r *http.Request) (*http.Response, error) {
	m.received()
	if strings.HasSuffix(r.URL.Path, m.at) && len(m.answers) > 0 {
		next := m.answers[0]
		m.answers = m.answers[1:]
		return next(r)
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/died"):
		m.taken++
		return answer(r, http.StatusNoContent, nil)
	case strings.HasSuffix(r.URL.Path, "/sessions"):
		return answer(r, http.StatusOK, wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute)})
	}
	return answer(r, http.StatusOK, wire.Challenge{Nonce: "n"})
}

// A report is over when the control plane has taken it, or has said of the
// attempt itself that it hears no more of it. As long as merely no session is to
// be had, it is kept, with all that it is about.
func TestADeathWasOldNewsWhenNoSessionWasToBeHad(t *testing.T) {
	type answers = []func(*http.Request) (*http.Response, error)
	for name, tc := range map[string]struct {
		at      string
		answers answers
		taken   int
	}{
		"the clock has jumped: no session":         {"/sessions", answers{refusal(401, "session-refused"), refusal(401, "session-refused")}, 1},
		"a proxy lets no session through":          {"/sessions", answers{refusal(403, ""), refusal(404, "")}, 1},
		"no challenge is to be had":                {"/challenges", answers{refusal(422, "invalid-request"), refusal(409, "")}, 1},
		"the session has ended, and the next":      {"/died", answers{refusal(401, "unauthenticated"), refusal(401, "unauthenticated")}, 1},
		"a proxy lets no report through":           {"/died", answers{refusal(403, ""), refusal(409, ""), refusal(413, "")}, 1},
		"the session is forgotten":                 {"/died", answers{refusal(404, "session-not-found")}, 1},
		"another control plane knows no such path": {"/died", answers{refusal(404, "no-route")}, 1},
		"it fails":                      {"/died", answers{refusal(500, "internal"), refusal(503, "store-unavailable")}, 1},
		"the attempt is over":           {"/died", answers{refusal(409, "stale-epoch")}, 0},
		"there is no such job any more": {"/died", answers{refusal(404, "job-not-found")}, 0},
		"the report is none":            {"/died", answers{refusal(422, "invalid-reason")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &moody{at: tc.at, answers: tc.answers}
				a := agentOn(t, m, &counted{})
				m.received = func() {
					if d, there := a.kept(attemptID).Died(); !there || d.Reason != string(fairlead.CauseKilled) {
						t.Errorf("while it is not over, the report is %+v", d)
					}
				}
				a.reportDeath(t.Context(), attemptID, 1, wire.DiedRequest{Epoch: 1, Reason: string(fairlead.CauseKilled)})
				if m.taken != tc.taken || len(m.answers) != 0 {
					t.Errorf("taken %d times, and %d answers were not heard", m.taken, len(m.answers))
				}
				if left, _ := os.ReadDir(filepath.Join(a.cfg.Data, stepsFolder)); len(left) != 0 {
					t.Errorf("there is still %v", left)
				}
			})
		})
	}
}

// lingering is a step of which something cannot be killed at first.
type lingering struct {
	dead
	left *int
}

// Kill implements executor.Handle.
func (l lingering) Kill(context.Context) error {
	if *l.left == 0 {
		return nil
	}
	*l.left--
	return errors.New("kill process 7: operation not permitted")
}

// A death was reported, and another attempt could begin, while something of the
// step was alive that could not be killed in time.
func TestADeathIsReportedWhenNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 3
		m := &moody{received: func() {
			if left > 0 {
				t.Error("the control plane heard of it while something was alive")
			}
		}}
		a := agentOn(t, m, &counted{})
		a.watch(t.Context(), lingering{attemptID, &left}, 1)
		if m.taken != 1 || left != 0 {
			t.Errorf("reported %d times, left %d", m.taken, left)
		}
	})
}

// What could not be removed is removed later, by this agent, and nobody who
// waits for its steps waits for that.
func TestWhatCouldNotBeRemovedOnceStayedAndHeldUpADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counted{fails: 4}
		a := agentOn(t, &moody{}, e)
		if n, err := atWork(a.cfg.Data); n != 1 || err != nil {
			t.Errorf("%d are at work: %v", n, err)
		}
		a.remove(t.Context(), attemptID)
		if n, err := atWork(a.cfg.Data); n != 0 || err != nil {
			t.Errorf("what is over is waited for: %d, %v", n, err)
		}
		began := time.Now()
		a.background.Wait()
		if e.removed != 5 {
			t.Errorf("it was tried %d times", e.removed)
		}
		if took := time.Since(began); took < removeSoon || took > 10*time.Minute {
			t.Errorf("it took %s", took)
		}
		for _, folder := range []string{stepsFolder, attemptsFolder} {
			if left, _ := os.ReadDir(filepath.Join(a.cfg.Data, folder)); len(left) != 0 {
				t.Errorf("in %s there is still %v", folder, left)
			}
		}
	})
}

// An agent that ends leaves it to the next, which reports nothing twice.
func TestTheNextAgentRemovesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &counted{fails: 2}
		a := agentOn(t, nil, e)
		a.session = nil // nothing is said to the control plane
		agentCtx, end := context.WithCancel(t.Context())
		a.remove(agentCtx, attemptID)
		end()
		a.background.Wait()
		if e.removed != 1 {
			t.Errorf("it was tried %d times", e.removed)
		}
		a.recoverStep(t.Context(), attemptID, 1)()
		a.background.Wait()
		if left, _ := os.ReadDir(filepath.Join(a.cfg.Data, stepsFolder)); len(left) != 0 {
			t.Errorf("there is still %v after %d tries", left, e.removed)
		}
	})
}

// absent is a step of which there is nothing at first that could be interrupted.
type absent struct {
	dead
	misses int32
	asked  atomic.Int32
}

// Interrupt implements executor.Handle.
func (s *absent) Interrupt() error {
	if s.asked.Add(1) <= s.misses {
		return errors.New("the cluster has made no pod yet")
	}
	return nil
}

// The customer says once that nothing is to run; a step that could not update it
// then hears it as soon as it can, and not again.
func TestAStepThatCouldNotBeInterruptedYetWorkedOn(t *testing.T) {
	disabled, enabled := fairlead.CustomerMode{Mode: fairlead.ModeDisabled}, fairlead.CustomerMode{Mode: fairlead.ModeEnabled}
	for name, say := range map[string]func(ctx context.Context, a *Agent, s *absent){
		"the customer disables the agent": func(ctx context.Context, a *Agent, s *absent) {
			a.add(ctx, s, a.executors.now, attempt.Input{})
			a.setCustomerMode(ctx, disabled)
		},
		"the step was launched late": func(ctx context.Context, a *Agent, s *absent) {
			a.setCustomerMode(ctx, disabled)
			a.add(ctx, s, a.executors.now, attempt.Input{})
		},
		"a second signal": func(ctx context.Context, a *Agent, s *absent) {
			a.add(ctx, s, a.executors.now, attempt.Input{})
			stop, idle := make(chan os.Signal, 1), make(chan struct{})
			stop <- os.Interrupt
			time.AfterFunc(time.Minute, func() { close(idle) })
			a.awaitSteps(ctx, ctx, stop, idle)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &absent{dead: attemptID, misses: 3}
				a := agentOn(t, &moody{}, &counted{})
				say(t.Context(), a, s)
				a.background.Wait()
				if n := s.asked.Load(); n != 4 {
					t.Errorf("it was asked %d times", n)
				}
				for range 3 {
					a.setCustomerMode(t.Context(), enabled)
					a.setCustomerMode(t.Context(), disabled)
				}
				a.background.Wait()
				if n := s.asked.Load(); n != 4 {
					t.Errorf("having heard it, it was asked again, %d times in all", n)
				}
			})
		})
	}
	for name, end := range map[string]func(ctx context.Context, a *Agent){
		"the mode is set back": func(ctx context.Context, a *Agent) { a.setCustomerMode(ctx, enabled) },
		"the step is over":     func(_ context.Context, a *Agent) { a.gone(attemptID) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &absent{dead: attemptID, misses: 1 << 30}
				a := agentOn(t, &moody{}, &counted{})
				a.add(t.Context(), s, a.executors.now, attempt.Input{})
				a.setCustomerMode(t.Context(), disabled)
				synctest.Wait()
				end(t.Context(), a)
				a.background.Wait()
				if n := s.asked.Load(); n < 1 || n > 2 {
					t.Errorf("it was asked %d times", n)
				}
			})
		})
	}
}
