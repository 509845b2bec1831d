package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/runner/plugin"
)

// storage is a state storage.
type storage interface {
	lock() error
	read() (state, error)
	write(state) error
	unlock() error
}

// localState is a state on a host's disk. Its lock ends when the process that holds the lock
// ends.
type localState struct {
	doc    []byte
	holder *process
}

func (h *host) localState(key string) *localState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.states[key] == nil {
		h.states[key] = &localState{}
	}
	return h.states[key]
}

type localStore struct {
	r  *run
	at *localState
}

func (s *localStore) lock() error {
	s.r.p.cross(s.r.p.w.place(s.r.p.name, "lock"), 10*time.Microsecond, time.Millisecond)
	if s.at.holder != nil && s.at.holder.alive() {
		return plugin.Errorf("state-locked", "the state is locked by %s; wait for it", s.at.holder.name)
	}
	s.at.holder = s.r.p
	return nil
}

func (s *localStore) read() (st state, err error) {
	if s.at.doc != nil {
		err = json.Unmarshal(s.at.doc, &st)
	}
	return st, err
}

func (s *localStore) write(st state) (err error) {
	s.r.p.cross(s.r.p.w.place(s.r.p.name, "save"), 100*time.Microsecond, 100*time.Millisecond)
	s.at.doc, err = json.Marshal(st)
	return err
}

func (s *localStore) unlock() error {
	s.at.holder = nil
	return nil
}

// remoteState is a state at the control plane. The tool has its own connections to the control
// plane.
type remoteState struct {
	r     *run
	token string
}

// tries is the number of tries of OpenTofu's http backend, as the runner sets it.
const tries = 7

func (s *remoteState) call(method, path string, query url.Values, body any) (int, []byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	l := &link{p: s.r.p, host: s.r.step.h, fast: 200 * time.Microsecond, slow: 20 * time.Millisecond}
	var last error
	for try := range tries {
		if try > 0 {
			s.r.p.sleep(time.Duration(1<<(try-1)) * time.Second)
		}
		u := "https://control.example" + s.r.spec.State.Path + path
		if len(query) > 0 {
			u += "?" + query.Encode()
		}
		req, err := http.NewRequest(method, u, bytes.NewReader(raw))
		if err != nil {
			return 0, nil, err
		}
		req.SetBasicAuth(string(s.r.spec.Job), s.token)
		res, err := l.RoundTrip(req)
		if err != nil {
			last = err
			continue
		}
		b, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			last = err
		case res.StatusCode >= 500:
			last = fmt.Errorf("the control plane answered %s", res.Status)
		default:
			return res.StatusCode, b, nil
		}
	}
	return 0, nil, last
}

func (s *remoteState) lockID() string { return "lock-" + s.r.p.name }

func (s *remoteState) lock() error {
	code, b, err := s.call(http.MethodPut, "/lock", nil, map[string]string{"ID": s.lockID()})
	switch {
	case err != nil:
		return plugin.Errorf("state-unreachable", "the state cannot be locked: %v", err)
	case code == http.StatusOK:
		return nil
	}
	return plugin.Errorf("state-locked", "the state cannot be locked (%d): %.200s", code, b)
}

func (s *remoteState) read() (st state, err error) {
	code, b, err := s.call(http.MethodGet, "", nil, nil)
	switch {
	case err != nil:
		return st, plugin.Errorf("state-unreachable", "the state cannot be read: %v", err)
	case code == http.StatusNoContent:
		return st, nil
	case code == http.StatusOK:
		return st, json.Unmarshal(b, &st)
	}
	return st, plugin.Errorf("state-unreachable", "the state cannot be read (%d): %.200s", code, b)
}

func (s *remoteState) write(st state) error {
	code, b, err := s.call(http.MethodPost, "", url.Values{"ID": {s.lockID()}}, st)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the control plane answered %d: %.200s", code, b)
	}
	return err
}

func (s *remoteState) unlock() error {
	code, b, err := s.call(http.MethodDelete, "/lock", nil, map[string]string{"ID": s.lockID()})
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the control plane answered %d: %.200s", code, b)
	}
	return err
}

// planStore stores saved plans in the same place as the state: on the host or at the control
// plane.
type planStore struct {
	t       *tofu
	control *client.Client
	local   bool
}

func (t *tofu) plans(spec plugin.Spec, c *client.Client) planStore {
	return planStore{t, c, spec.State.Storage == "local"}
}

func (p planStore) put(ctx context.Context, spec plugin.Spec, b []byte) error {
	if p.local {
		p.t.step.h.mu.Lock()
		defer p.t.step.h.mu.Unlock()
		p.t.step.h.plans[string(spec.Job)] = b
		return nil
	}
	return p.again(ctx, func() error { return p.control.PutPlan(ctx, string(spec.Job), b) })
}

func (p planStore) get(ctx context.Context, spec plugin.Spec) (b []byte, err error) {
	if p.local {
		p.t.step.h.mu.Lock()
		defer p.t.step.h.mu.Unlock()
		b, ok := p.t.step.h.plans[string(spec.Plan.Job)]
		if !ok {
			return nil, plugin.Errorf("plan-missing", "the plan is not on this runner's disk; plan again")
		}
		return b, nil
	}
	err = p.again(ctx, func() (err error) { b, err = p.control.GetPlan(ctx, string(spec.Job)); return err })
	if client.HasCode(err, "plan-not-found") {
		p.t.step.h.w.planMissing(holder{spec.Job, spec.Epoch})
	}
	if err != nil {
		return nil, plugin.Errorf("plan-missing", "the saved plan cannot be read: %v; plan again", err)
	}
	return b, nil
}

// again calls do once. It does not repeat a failed request, because the client repeats it.
func (p planStore) again(_ context.Context, do func() error) error { return do() }
