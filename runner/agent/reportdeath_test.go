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

// agentOn returns an agent on a new data folder that holds one attempt, whose step has ended.
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

// failingRemover is an executor whose first removals fail.
type failingRemover struct {
	hostile
	fails   int // number of removals that fail
	removed int // number of all removals
}

// Remove implements executor.Executor.
func (c *failingRemover) Remove(context.Context, string) error {
	if c.removed++; c.removed <= c.fails {
		return errors.New("the engine does not answer")
	}
	return nil
}

// refusal answers with a problem document of the control plane. If code is empty, it answers with another body, like a
// proxy.
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

// refusing is a control plane that refuses the first requests of one path.
type refusing struct {
	at       string                                        // end of the refused path
	answers  []func(*http.Request) (*http.Response, error) // the refusals, in order
	received func()                                        // called for each request
	accepted int                                           // number of accepted reports
}

// RoundTrip implements http.RoundTripper.
func (m *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	m.received()
	if strings.HasSuffix(r.URL.Path, m.at) && len(m.answers) > 0 {
		next := m.answers[0]
		m.answers = m.answers[1:]
		return next(r)
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/died"):
		m.accepted++
		return answer(r, http.StatusNoContent, nil)
	case strings.HasSuffix(r.URL.Path, "/sessions"):
		return answer(r, http.StatusOK, wire.Session{Token: "t", ExpiresAt: time.Now().Add(15 * time.Minute)})
	}
	return answer(r, http.StatusOK, wire.Challenge{Nonce: "n"})
}

// The agent keeps the report of a death, and the attempt's files, until the control plane accepts the report or refuses
// the attempt itself. It retries if only the session fails, or if a proxy refuses the request.
func TestADeathIsReportedUntilItIsAcceptedOrRefused(t *testing.T) {
	type answers = []func(*http.Request) (*http.Response, error)
	for name, tc := range map[string]struct {
		at       string
		answers  answers
		accepted int
	}{
		"the session is refused, as after a clock jump": {"/sessions", answers{refusal(401, "session-refused"), refusal(401, "session-refused")}, 1},
		"a proxy refuses to open a session":             {"/sessions", answers{refusal(403, ""), refusal(404, "")}, 1},
		"the challenge is refused":                      {"/challenges", answers{refusal(422, "invalid-request"), refusal(409, "")}, 1},
		"two sessions are no longer valid":              {"/died", answers{refusal(401, "unauthenticated"), refusal(401, "unauthenticated")}, 1},
		"a proxy refuses the report":                    {"/died", answers{refusal(403, ""), refusal(409, ""), refusal(413, "")}, 1},
		"the control plane does not find the session":   {"/died", answers{refusal(404, "session-not-found")}, 1},
		"an older control plane has no such route":      {"/died", answers{refusal(404, "no-route")}, 1},
		"the control plane fails":                       {"/died", answers{refusal(500, "internal"), refusal(503, "store-unavailable")}, 1},
		"the attempt has ended":                         {"/died", answers{refusal(409, "stale-epoch")}, 0},
		"the job was deleted":                           {"/died", answers{refusal(404, "job-not-found")}, 0},
		"the report is invalid":                         {"/died", answers{refusal(422, "invalid-reason")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &refusing{at: tc.at, answers: tc.answers}
				a := agentOn(t, m, &failingRemover{})
				m.received = func() {
					if d, there := a.kept(attemptID).Died(); !there || d.Reason != string(fairlead.CauseKilled) {
						t.Errorf("the report on disk is %+v before the control plane accepted or refused it", d)
					}
				}
				a.reportDeath(t.Context(), attemptID, 1, wire.DiedRequest{Epoch: 1, Reason: string(fairlead.CauseKilled)})
				if m.accepted != tc.accepted || len(m.answers) != 0 {
					t.Errorf("%d reports were accepted, want %d; %d refusals were not used", m.accepted, tc.accepted, len(m.answers))
				}
				if left, _ := os.ReadDir(filepath.Join(a.cfg.Data, stepsFolder)); len(left) != 0 {
					t.Errorf("the steps' folder still holds %v", left)
				}
			})
		})
	}
}

// unkillable is a step whose first kills fail.
type unkillable struct {
	dead
	left *int // number of kills that still fail
}

// Kill implements executor.Handle.
func (l unkillable) Kill(context.Context) error {
	if *l.left == 0 {
		return nil
	}
	*l.left--
	return errors.New("kill process 7: operation not permitted")
}

// The agent reports a death only when every process of the step has ended: the control plane may start another attempt in
// response.
func TestADeathIsReportedWhenNoProcessIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 3
		m := &refusing{received: func() {
			if left > 0 {
				t.Error("the agent called the control plane while a process of the step was alive")
			}
		}}
		a := agentOn(t, m, &failingRemover{})
		a.watch(t.Context(), unkillable{attemptID, &left}, 1)
		if m.accepted != 1 || left != 0 {
			t.Errorf("%d reports were accepted, want 1; %d kills are left, want 0", m.accepted, left)
		}
	})
}

// The agent retries a failed removal in the background. A drain does not wait for it.
func TestAFailedRemovalIsRetriedAndDelaysNoDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &failingRemover{fails: 4}
		a := agentOn(t, &refusing{}, e)
		if n, err := atWork(a.cfg.Data); n != 1 || err != nil {
			t.Errorf("atWork = %d, want 1: %v", n, err)
		}
		a.remove(t.Context(), attemptID)
		if n, err := atWork(a.cfg.Data); n != 0 || err != nil {
			t.Errorf("atWork counts %d attempts that have ended, want 0: %v", n, err)
		}
		began := time.Now()
		a.background.Wait()
		if e.removed != 5 {
			t.Errorf("the agent tried %d removals, want 5", e.removed)
		}
		if took := time.Since(began); took < removeSoon || took > 10*time.Minute {
			t.Errorf("the removal took %s, want %s to 10m", took, removeSoon)
		}
		for _, folder := range []string{stepsFolder, attemptsFolder} {
			if left, _ := os.ReadDir(filepath.Join(a.cfg.Data, folder)); len(left) != 0 {
				t.Errorf("the folder %s still holds %v", folder, left)
			}
		}
	})
}

// If an agent ends before it could remove a finished step's files, the next agent removes them. It does not report the
// step's end again.
func TestTheNextAgentRemovesTheRemainingFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &failingRemover{fails: 2}
		a := agentOn(t, nil, e)
		a.session = nil // the agent must not call the control plane
		agentCtx, end := context.WithCancel(t.Context())
		a.remove(agentCtx, attemptID)
		end()
		a.background.Wait()
		if e.removed != 1 {
			t.Errorf("the agent tried %d removals, want 1", e.removed)
		}
		a.recoverStep(t.Context(), attemptID, 1)()
		a.background.Wait()
		if left, _ := os.ReadDir(filepath.Join(a.cfg.Data, stepsFolder)); len(left) != 0 {
			t.Errorf("the steps' folder still holds %v after %d removals", left, e.removed)
		}
	})
}

// unready is a step whose first interrupts fail, because its pod does not exist yet.
type unready struct {
	dead
	fails      int32        // number of interrupts that fail
	interrupts atomic.Int32 // number of all interrupts
}

// Interrupt implements executor.Handle.
func (s *unready) Interrupt() error {
	if s.interrupts.Add(1) <= s.fails {
		return errors.New("the cluster has made no pod yet")
	}
	return nil
}

// The customer disables the agent once, or a signal arrives once. The agent retries an interrupt that fails, and stops
// when the executor accepts the interrupt.
func TestAnInterruptIsRetriedUntilAccepted(t *testing.T) {
	disabled, enabled := fairlead.CustomerMode{Mode: fairlead.ModeDisabled}, fairlead.CustomerMode{Mode: fairlead.ModeEnabled}
	for name, stop := range map[string]func(ctx context.Context, a *Agent, s *unready){
		"the customer disables the agent": func(ctx context.Context, a *Agent, s *unready) {
			a.add(ctx, s, a.executors.now, attempt.Input{})
			a.setCustomerMode(ctx, disabled)
		},
		"the step starts after the mode change": func(ctx context.Context, a *Agent, s *unready) {
			a.setCustomerMode(ctx, disabled)
			a.add(ctx, s, a.executors.now, attempt.Input{})
		},
		"a second signal": func(ctx context.Context, a *Agent, s *unready) {
			a.add(ctx, s, a.executors.now, attempt.Input{})
			stop, idle := make(chan os.Signal, 1), make(chan struct{})
			stop <- os.Interrupt
			time.AfterFunc(time.Minute, func() { close(idle) })
			a.awaitSteps(ctx, ctx, stop, idle)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &unready{dead: attemptID, fails: 3}
				a := agentOn(t, &refusing{}, &failingRemover{})
				stop(t.Context(), a, s)
				a.background.Wait()
				if n := s.interrupts.Load(); n != 4 {
					t.Errorf("the agent sent %d interrupts, want 4", n)
				}
				for range 3 {
					a.setCustomerMode(t.Context(), enabled)
					a.setCustomerMode(t.Context(), disabled)
				}
				a.background.Wait()
				if n := s.interrupts.Load(); n != 4 {
					t.Errorf("the agent sent %d interrupts, want none after the accepted one, the fourth", n)
				}
			})
		})
	}
	for name, end := range map[string]func(ctx context.Context, a *Agent){
		"the customer enables the agent": func(ctx context.Context, a *Agent) { a.setCustomerMode(ctx, enabled) },
		"the step ends":                  func(_ context.Context, a *Agent) { a.gone(attemptID) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &unready{dead: attemptID, fails: 1 << 30}
				a := agentOn(t, &refusing{}, &failingRemover{})
				a.add(t.Context(), s, a.executors.now, attempt.Input{})
				a.setCustomerMode(t.Context(), disabled)
				synctest.Wait()
				end(t.Context(), a)
				a.background.Wait()
				if n := s.interrupts.Load(); n < 1 || n > 2 {
					t.Errorf("the agent sent %d interrupts, want 1 or 2", n)
				}
			})
		})
	}
}
