package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
)

func logSpec() events.JobSpec {
	return events.JobSpec{Operation: "agent-log", Timeout: 60, Grace: 5}
}

// A vendor that has no access to the agent's machine can request the agent's own log.
func TestAgentSharesItsLog(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "")
	earlier := s.Queue(checkSpec())
	s.UntilFinished(earlier)
	j := s.UntilFinished(s.Queue(logSpec()))
	if j.Finish.Outcome != "succeeded" || !hasLine(j.Log, "msg=enrolled") || !hasLine(j.Log, `msg="step launched" job=`+earlier) {
		t.Errorf("ended as %+v with the log\n%s", *j.Finish, j.Log)
	}
	s.Until("nothing left on disk", a.empty)

	// A job whose launch token was revoked does not affect other jobs.
	held := s.HoldRequests(proxy.Route(wire.StartJob))
	other := s.Queue(logSpec())
	held.Arrived(t)
	s.Expire(other)
	held.Release()
	s.UntilFinished(s.Queue(checkSpec()))
}

// The operator decides whether the agent shares its log.
func TestAgentCanRefuseToShareItsLog(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAgent(t, s, "", "FAIRLEAD_SHARE_LOG=false")
	j := s.UntilFinished(s.Queue(logSpec()))
	if j.Finish.Outcome != "failed" || j.Finish.Reason != "log-not-shared" || !strings.Contains(j.Finish.Message, "FAIRLEAD_SHARE_LOG") || hasLine(j.Log, "msg=") {
		t.Errorf("ended as %+v with the log\n%s", *j.Finish, j.Log)
	}
	s.Until("nothing left on disk", a.empty)
	s.UntilFinished(s.Queue(checkSpec()))
}
