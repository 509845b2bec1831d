// Package agentstatus tells whoever runs an agent how it is: whether it lives,
// whether it can take work, and numbers for Prometheus. It is asked over HTTP
// at an address of its own, and says nothing that is secret.
//
// All methods of a nil *Status do nothing: an agent that nobody asks counts
// nothing.
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

// lately is how long ago the control plane may have answered for the agent to
// count as ready: a poll takes 20 s, and one that gets no answer is given up
// after 35 s, so this is two polls that failed and a pause.
const lately = 90 * time.Second

// Kind is what a job is, in the words of its claim.
type Kind struct{ Plugin, Operation string }

// labels bounds what a control plane can make the metrics grow by.
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

// Now is an agent at one moment.
type Now struct {
	SessionSince time.Time // when the session was made; zero: there is none
	Sessions     int       // made since the start
	Capacity     int       // most steps at once
	Running      map[Kind]int
	Draining     bool
	Customer     string // the mode that the customer has set
	Wanted       string // version that the agent is to run; "": any
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
	Runner   string           // id
	Executor func() string    // what starts the steps to come
	Look     func() Now       // safe for concurrent use
	Clock    func() time.Time // what the time is
}

// Status is how an agent is. Safe for concurrent use.
type Status struct {
	look     func() Now
	clock    func() time.Time
	since    time.Time
	info     func() string // labels
	counters counters

	mu     sync.Mutex
	polled time.Time // when the control plane last answered a poll, or there was no room to poll for
	beaten time.Time // when it last took a heartbeat
}

// New returns the status of an agent that is about to start.
func New(o Options) *Status {
	s := &Status{look: o.Look, clock: o.Clock, since: o.Clock(), counters: counters{of: map[string]map[string]float64{}},
		info: func() string { return labelled("version", o.Version, "runner", o.Runner, "executor", o.Executor()) }}
	// A counter that appears with its first value hides that value from rates.
	for _, result := range []string{"job", "empty", "error"} {
		s.counters.add(pollsTotal, 0, "result", result)
	}
	for _, name := range []string{renewalsTotal, lateTotal, logTotal} {
		s.counters.add(name, 0)
	}
	return s
}

// Claimed counts a job that was claimed.
func (s *Status) Claimed(k Kind) {
	if s != nil {
		s.counters.add(claimedTotal, 1, k.labels()...)
	}
}

// Ended counts a job that has ended here, and what its step has counted.
func (s *Status) Ended(k Kind, result string, t attempt.Tally) {
	if s == nil {
		return
	}
	s.counters.add(endedTotal, 1, append(k.labels(), "result", result)...)
	s.counters.add(renewalsTotal, t.Renewals)
	s.counters.add(lateTotal, t.Late)
	s.counters.add(logTotal, t.LogBytes)
}

// Polled counts a question for work that was answered or failed: err is nil if
// it brought a job, client.ErrNoWork if there was none.
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

// NoRoom says that no poll is due: there is no room for another job, or there
// is again as of now.
func (s *Status) NoRoom() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polled = s.clock()
}

// Beat says that the control plane took a heartbeat, or why it did not.
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

// Failed counts a request to the control plane that failed.
func (s *Status) Failed(request string, err error) {
	if s != nil {
		s.counters.add(failuresTotal, 1, "request", request, "kind", kindOf(err))
	}
}

// kindOf sorts errors by who has to do something about them.
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

// unready returns why the agent can take no work now; nothing if it can.
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
	if n.full() && now.Sub(beaten) < lately {
		polled = now // it need not poll, and its heartbeats are taken
	}
	if polled.IsZero() && n.Sessions == 1 {
		polled = n.SessionSince // the first poll, which may take 20 s, is under way
	}
	if polled.IsZero() {
		why = append(why, "the control plane has answered no poll yet")
	} else if d := now.Sub(polled); d >= lately {
		why = append(why, "the control plane has answered no poll for "+d.Round(time.Second).String())
	}
	return strings.Join(why, "; ")
}
