// Package agentstatus serves an agent's status over HTTP for its operator: liveness, readiness, and
// metrics for Prometheus. The status has its own address, and its responses contain no secret.
//
// All methods of a nil *Status do nothing. An agent without a status address uses a nil *Status.
package agentstatus

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/attempt"
)

// readyFor is how long an agent stays ready after the control plane's last response to a poll. A poll
// takes 20 s and times out after 35 s. So readyFor is the time of two failed polls and a pause.
const readyFor = 90 * time.Second

// Kind is a job's plugin and operation, as in its claim.
type Kind struct{ Plugin, Operation string }

// labels returns the labels of the kind. Unknown names become "other", so that a control plane cannot
// create time series without limit.
func (k Kind) labels() []string {
	operations := make([]string, len(job.Operations()))
	for i, o := range job.Operations() {
		operations[i] = string(o)
	}
	return []string{"plugin", oneOf(k.Plugin, append(component.Names(), "check")...), "operation", oneOf(k.Operation, operations...)}
}

func oneOf(s string, known ...string) string {
	for _, k := range known {
		if s == k {
			return s
		}
	}
	return "other"
}

// Now holds the agent's current values.
type Now struct {
	SessionSince time.Time // when the current session was opened; zero: no session
	Sessions     int       // number of sessions opened since the start
	Capacity     int       // number of slots
	Running      map[Kind]int
	Warm         int // number of steps that were started ahead and have no job
	Draining     bool
	Customer     string // the customer's mode
	Wanted       string // version that the control plane wants for this agent; "": any
}

func (n Now) full() bool {
	running := 0
	for _, i := range n.Running {
		running += i
	}
	return running >= n.Capacity
}

// Options of New. All but Version are required.
type Options struct {
	Version  string
	Runner   string           // the runner's ID
	Executor func() string    // name of the executor that starts new steps
	Look     func() Now       // returns the current values; safe for concurrent use
	Clock    func() time.Time // returns the time
}

// Status is the status of an agent. Safe for concurrent use.
type Status struct {
	look     func() Now
	clock    func() time.Time
	since    time.Time
	info     func() string // labels
	counters counters

	mu     sync.Mutex
	polled time.Time // when the control plane last answered a poll, or when NoRoom was last called
	beaten time.Time // when the control plane last accepted a heartbeat
}

// New returns the status of an agent that is about to start.
func New(o Options) *Status {
	s := &Status{look: o.Look, clock: o.Clock, since: o.Clock(), counters: counters{of: map[string]map[string]float64{}},
		info: func() string { return labelled("version", o.Version, "runner", o.Runner, "executor", o.Executor()) }}
	// Counters start at 0. If the first value of a counter were not 0, Prometheus' rate() would not
	// count that value.
	for _, result := range []string{"job", "empty", "error"} {
		s.counters.add(pollsTotal, 0, "result", result)
	}
	for _, name := range []string{renewalsTotal, lateTotal, logTotal} {
		s.counters.add(name, 0)
	}
	return s
}

// Claimed counts a claimed job.
func (s *Status) Claimed(k Kind) {
	if s != nil {
		s.counters.add(claimedTotal, 1, k.labels()...)
	}
}

// Ended counts an ended job of this agent, and adds the counts of its step.
func (s *Status) Ended(k Kind, result string, t attempt.Tally) {
	if s == nil {
		return
	}
	s.counters.add(endedTotal, 1, append(k.labels(), "result", result)...)
	s.counters.add(renewalsTotal, t.Renewals)
	s.counters.add(lateTotal, t.Late)
	s.counters.add(logTotal, t.LogBytes)
}

// Polled counts a poll for a job. err is nil if the poll claimed a job, client.ErrNoWork if there was
// none, and any other error if the poll failed.
func (s *Status) Polled(err error) {
	if s == nil {
		return
	}
	result := "job"
	switch {
	case errors.Is(err, client.ErrNoWork):
		result = "empty"
	case err != nil:
		s.counters.add(pollsTotal, 1, "result", "error")
		s.Failed("claim", err)
		return
	}
	s.counters.add(pollsTotal, 1, "result", result)
	s.NoRoom()
}

// NoRoom records that the agent does not have to poll at this moment: no slot is free, or a slot has
// just become free.
func (s *Status) NoRoom() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polled = s.clock()
}

// Beat records that the control plane accepted a heartbeat, or counts the error.
func (s *Status) Beat(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.Failed("heartbeat", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beaten = s.clock()
}

// Failed counts a failed request to the control plane. The parameter request is the purpose of the
// request, such as "claim".
func (s *Status) Failed(request string, err error) {
	if s != nil {
		s.counters.add(failuresTotal, 1, "request", request, "kind", kindOf(err))
	}
}

// kindOf returns the kind of an error. The kind shows who must act: the operator of the agent, of the
// agent's network, or of the control plane.
func kindOf(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		switch {
		case e.Status == 401, e.Status == 403:
			return "unauthorized"
		case e.Status == 429:
			return "throttled"
		case e.Status >= 500:
			return "server"
		}
		return "refused"
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "dns"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "tls"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "tls"
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "network"
}

// unready returns why the agent cannot take jobs now, or "" if the agent can take jobs.
func (s *Status) unready() string {
	now, n := s.clock(), s.look()
	s.mu.Lock()
	polled, beaten := s.polled, s.beaten
	s.mu.Unlock()
	var why []string
	if n.SessionSince.IsZero() {
		why = append(why, "there is no session with the control plane")
	}
	if n.Draining {
		why = append(why, "the agent is draining")
	}
	if n.full() && now.Sub(beaten) < readyFor {
		polled = now // a full agent does not poll; its accepted heartbeats show that the control plane responds
	}
	if polled.IsZero() && n.Sessions == 1 {
		polled = n.SessionSince // the first poll runs, which may take 20 s
	}
	if polled.IsZero() {
		why = append(why, "the control plane has answered no poll yet")
	} else if d := now.Sub(polled); d >= readyFor {
		why = append(why, "the control plane has answered no poll for "+d.Round(time.Second).String())
	}
	return strings.Join(why, "; ")
}
