package follow_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/follow"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/planetest"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// screen is what a person sees. Safe for concurrent use.
type screen struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{})} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(p)
	close(s.changed)
	s.changed = make(chan struct{})
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// await returns when the text can be seen.
func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		seen, changed := strings.Contains(s.buf.String(), text), s.changed
		s.mu.Unlock()
		if seen {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%q was not shown; the screen has:\n%s", text, s)
		}
	}
}

type story struct {
	*testing.T
	plane  *planetest.Plane
	screen *screen
	cancel context.CancelFunc
	ended  chan struct{}
	last   wire.Deployment
	err    error
}

// watch follows deployment dep_1 in the background.
func watch(t *testing.T, plane *planetest.Plane, change func(*follow.Options)) *story {
	c, err := client.New(plane.URL, "", client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &story{T: t, plane: plane, screen: newScreen(), cancel: cancel, ended: make(chan struct{})}
	now := time.Unix(0, 0)
	o := follow.Options{Client: c, Out: s.screen, Now: func() time.Time { return now }, Style: view.Style{}}
	if change != nil {
		change(&o)
	}
	first := plane.Deployment("dep_1")
	go func() {
		defer close(s.ended)
		s.last, s.err = follow.Deployment(ctx, first, o)
	}()
	t.Cleanup(func() { cancel(); <-s.ended })
	return s
}

func (s *story) end() {
	s.Helper()
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		s.Fatalf("still following; the screen has:\n%s", s.screen)
	}
}

func deployment(state string, components ...wire.DeploymentComponent) wire.Deployment {
	return wire.Deployment{ID: "dep_1", Install: "acme", App: "shop", Kind: "deploy", State: state, Components: components}
}

func component(name, state string) wire.DeploymentComponent {
	c := wire.DeploymentComponent{Name: name, State: state}
	if state != "pending" {
		c.PlanJob = "plan-" + name
	}
	switch state {
	case "awaiting-approval", "approved", "applying", "applied", "failed":
		c.Changes = &wire.Changes{Add: 2}
	}
	switch state {
	case "applying", "applied", "failed":
		c.Job = "apply-" + name
	}
	return c
}

func TestDeploymentIsShownFromPlanToApply(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("network", "planning"), component("db", "pending")))
	s := watch(t, plane, nil)
	plane.Log("plan-network", 1, "looking\nPlan: 2 to add\nno newline")
	s.screen.await(t, "Plan: 2")
	plane.EndLog("plan-network")
	plane.SetDeployment(deployment("running", component("network", "applying"), component("db", "pending")))
	plane.Log("apply-network", 1, "creating\n")
	s.screen.await(t, "creating")
	plane.EndLog("apply-network")
	plane.EndLog("plan-db")
	unchanged := component("db", "unchanged")
	plane.SetDeployment(deployment("succeeded", component("network", "applied"), unchanged))
	s.end()
	if s.err != nil || s.last.State != "succeeded" {
		t.Fatalf("got %v, %v", s.last.State, s.err)
	}
	want := `network ▸ planning
network │ looking
network │ Plan: 2 to add
network │ no newline
network ✓ planned: 2 to add (0.0 s)
network ▸ applying
network │ creating
network ✓ applied (0.0 s)
db      ✓ unchanged
`
	if got := s.screen.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestAnApprovedComponentWaitsUntilFewerAreAtWork(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("network", "applying"), component("db", "approved")))
	s := watch(t, plane, nil)
	s.screen.await(t, "approved")
	plane.EndLog("plan-network")
	plane.EndLog("apply-network")
	plane.EndLog("plan-db")
	plane.SetDeployment(deployment("running", component("network", "applied"), component("db", "applying")))
	s.screen.await(t, "db      ▸ applying")
	plane.EndLog("apply-db")
	plane.SetDeployment(deployment("succeeded", component("network", "applied"), component("db", "applied")))
	s.end()
	if s.err != nil {
		t.Fatal(s.err)
	}
	if got := s.screen.String(); !strings.Contains(got, "db      ▸ approved; others of this deployment are at work\n") || strings.Contains(got, "db      ✓ planned") {
		t.Errorf("the screen has:\n%s", got)
	}
}

func TestRestartOfTheControlPlaneRepeatsNothing(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("web", "planning")))
	plane.Log("plan-web", 1, "one\ntw")
	s := watch(t, plane, nil)
	s.screen.await(t, "one")
	// Both long polls wait; then everything breaks at once, in every way.
	plane.Await(t, wire.GetDeployment, 1)
	plane.CloseClientConnections()
	plane.Fail(planetest.Unavailable, planetest.Cut, planetest.Unavailable, planetest.Cut)
	plane.Log("plan-web", 1, "o\nthree\n")
	s.screen.await(t, "three")
	plane.EndLog("plan-web")
	plane.SetDeployment(deployment("succeeded", component("web", "planned")))
	s.end()
	if s.err != nil {
		t.Fatal(s.err)
	}
	for _, line := range []string{"│ one\n", "│ two\n", "│ three\n", "▸ planning", "✓ planned"} {
		if n := strings.Count(s.screen.String(), line); n != 1 {
			t.Errorf("%q is shown %d times, want once; the screen has:\n%s", line, n, s.screen)
		}
	}
}

func TestPatienceEnds(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("web", "pending")))
	clock := make(chan time.Time, 1)
	clock <- time.Unix(0, 0)
	s := watch(t, plane, func(o *follow.Options) {
		o.Now = func() time.Time { // a minute passes between any two looks
			now := <-clock
			clock <- now.Add(time.Minute)
			return now
		}
	})
	plane.Await(t, wire.GetDeployment, 1)
	plane.Fail(planetest.Unavailable, planetest.Unavailable, planetest.Unavailable)
	plane.SetDeployment(deployment("running", component("web", "pending")))
	plane.CloseClientConnections()
	s.end()
	if !client.HasStatus(s.err, 503) {
		t.Errorf("got %v, want the last answer of the control plane", s.err)
	}
	if n := strings.Count(s.screen.String(), "does not answer; trying again for 1 min 00 s"); n != 1 {
		t.Errorf("the person is told %d times:\n%s", n, s.screen)
	}
}

func TestRefusalIsNotRepeated(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("web", "pending")))
	plane.Fail(planetest.Internal)
	s := watch(t, plane, nil)
	s.end()
	if !client.HasStatus(s.err, 500) {
		t.Errorf("got %v, want the 500", s.err)
	}
}

func TestLogCannotControlTheTerminal(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("web", "planning")))
	s := watch(t, plane, nil)
	plane.Log("plan-web", 1, "\x1b[2J\x1b]0;owned\x07red\x1b[31m\r\nover\rwritten \u009b2J\xff\u202egnp\n")
	plane.EndLog("plan-web")
	plane.SetDeployment(deployment("succeeded", component("web", "planned")))
	s.end()
	want := "web ▸ planning\nweb │ red\nweb │ over\nweb │ written \uFFFD\uFFFDgnp\nweb ✓ planned (0.0 s)\n"
	if got := s.screen.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSecondAttemptIsToldApart(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("web", "planning")))
	s := watch(t, plane, nil)
	plane.Log("plan-web", 1, "first try, cut o")
	plane.Log("plan-web", 2, "second try\n")
	plane.EndLog("plan-web")
	s.screen.await(t, "second try")
	plane.SetDeployment(deployment("succeeded", component("web", "unchanged")))
	s.end()
	want := "web ▸ planning\nweb │ first try, cut o\nweb ! the job starts again: attempt 2\nweb │ second try\nweb ✓ unchanged (0.0 s)\n"
	if got := s.screen.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestApprovalIsOfThePlansThatWereShown(t *testing.T) {
	plane := planetest.New(t)
	plane.SetJob(wire.Job{ID: "plan-web", Plan: &wire.Plan{Digest: "sha256:1", Changes: wire.Changes{Add: 2},
		Summary: []byte(`{"resources":[{"address":"null_resource.a","actions":["create"]},{"address":"null_resource.\u001b[2Jb","actions":["delete","create"]},{"address":"null_resource.c","actions":["no-op"]}]}`)}})
	plane.EndLog("plan-web")
	plane.EndLog("apply-web")
	plane.SetDeployment(deployment("awaiting-approval", component("web", "awaiting-approval"), component("db", "pending")))
	var screenAtQuestion string
	var s *story
	asked := make(chan struct{})
	s = watch(t, plane, func(o *follow.Options) {
		o.Approve = func(context.Context, wire.Deployment) (bool, error) {
			<-asked
			screenAtQuestion = s.screen.String()
			return true, nil
		}
	})
	close(asked)
	plane.AwaitApproval(t)
	plane.SetDeployment(deployment("succeeded", component("web", "applied"), component("db", "pending")))
	s.end()
	if s.err != nil {
		t.Fatal(s.err)
	}
	if got := plane.Approved(); len(got) != 1 || len(got[0].Components) != 0 || len(got[0].Plans) != 1 || got[0].Plans["web"] != "sha256:1" {
		t.Errorf("approved %+v, want exactly the plan that was shown", got)
	}
	for _, want := range []string{"web: 2 to add", "  + null_resource.a\n", "-/+ null_resource.b\n"} {
		if !strings.Contains(screenAtQuestion, want) {
			t.Errorf("before the question %q is not shown:\n%s", want, screenAtQuestion)
		}
	}
	if strings.Contains(screenAtQuestion, "null_resource.c") {
		t.Errorf("a resource that does not change is shown:\n%s", screenAtQuestion)
	}
}

func TestNobodyToAskLeavesItWaiting(t *testing.T) {
	plane := planetest.New(t)
	plane.SetJob(wire.Job{ID: "plan-web", Plan: &wire.Plan{Changes: wire.Changes{Destroy: 1}}})
	plane.EndLog("plan-web")
	plane.SetDeployment(deployment("awaiting-approval", component("web", "awaiting-approval")))
	s := watch(t, plane, nil)
	s.end()
	if !errors.Is(s.err, follow.ErrWaiting) || len(plane.Approved()) > 0 {
		t.Errorf("got %v and approvals %v", s.err, plane.Approved())
	}
	if !strings.Contains(s.screen.String(), "web: 1 to destroy") {
		t.Errorf("the plan is not shown:\n%s", s.screen)
	}
}

func TestInterruptStopsFollowingOnly(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(deployment("running", component("web", "planning")))
	s := watch(t, plane, nil)
	plane.Await(t, wire.GetDeployment, 1)
	plane.Await(t, wire.ReadJobLog, 1)
	s.cancel()
	s.end()
	if !errors.Is(s.err, context.Canceled) {
		t.Errorf("got %v", s.err)
	}
}

func TestJobThatNobodyTakesIsExplained(t *testing.T) {
	plane := planetest.New(t)
	plane.SetJob(wire.Job{ID: "plan-web", State: "queued", Runner: "far-away"})
	plane.SetRunner(wire.Runner{Name: "far-away", State: "lost"})
	plane.SetDeployment(deployment("running", component("web", "planning")))
	s := watch(t, plane, func(o *follow.Options) { o.SlowClaim = time.Second })
	s.screen.await(t, "runner far-away is not reachable")
	plane.EndLog("plan-web")
	plane.SetDeployment(deployment("canceled", component("web", "canceled")))
	s.end()
	if s.err != nil {
		t.Error(s.err)
	}
}

func behind(state string) wire.Deployment {
	d := deployment("queued", component("web", "pending"))
	d.Ahead = &wire.DeploymentAhead{ID: "dep_0", State: state, Since: time.Unix(0, 0)}
	d.Message = "This deployment waits for deployment dep_0 of install acme, which is " + state
	return d
}

func TestQueuedBehindAnApprovalDoesNotWait(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(behind("running"))
	s := watch(t, plane, func(o *follow.Options) { o.Quiet = true })
	plane.Await(t, wire.GetDeployment, 1)
	plane.SetDeployment(behind("awaiting-approval")) // later than the command began to wait
	s.end()
	if !errors.Is(s.err, follow.ErrBehind) || s.last.Ahead.ID != "dep_0" {
		t.Errorf("it ended with %v, at %+v", s.err, s.last)
	}
	if s.screen.String() != "" {
		t.Errorf("quietly, it showed:\n%s", s.screen)
	}
}

func TestQuietNamesTheApprovalWaitedForOnce(t *testing.T) {
	plane := planetest.New(t)
	plane.SetDeployment(behind("awaiting-approval"))
	s := watch(t, plane, func(o *follow.Options) {
		o.Quiet = true
		o.Approve = func(context.Context, wire.Deployment) (bool, error) { return false, nil }
	})
	plane.Await(t, wire.GetDeployment, 1)
	plane.SetDeployment(behind("awaiting-approval"))
	plane.Await(t, wire.GetDeployment, 2)
	plane.SetDeployment(deployment("succeeded", component("web", "applied")))
	s.end()
	for _, want := range []string{"waits for deployment dep_0, which awaits approval since 1970-01-01 00:00:00 UTC", "`fairlead deployment approve dep_0`", "`fairlead deployment cancel dep_0`"} {
		if strings.Count(s.screen.String(), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, s.screen)
		}
	}
}

func TestJobOfADrainingRunnerNamesTheDraining(t *testing.T) {
	plane := planetest.New(t)
	plane.SetJob(wire.Job{ID: "plan-web", State: "queued", Runner: "local"})
	plane.SetRunner(wire.Runner{Name: "local", State: "online", Mode: "draining"})
	plane.SetDeployment(deployment("running", component("web", "planning")))
	s := watch(t, plane, func(o *follow.Options) { o.SlowClaim = time.Second })
	s.screen.await(t, "waits: runner local is draining. `fairlead runner enable local` lets it take work")
	plane.EndLog("plan-web")
	plane.SetDeployment(deployment("canceled", component("web", "canceled")))
	s.end()
}

func TestWarningOfALostApplyIsAboveTheQuestion(t *testing.T) {
	plane := planetest.New(t)
	d := deployment("awaiting-approval", component("web", "awaiting-approval"))
	d.AutoApprove = true
	d.Situations = []wire.Situation{
		{Kind: "runner-full", What: "Runner local runs as many jobs as it can."},
		{Kind: "lost", Component: "web", What: "The apply job_1 was lost.", Known: []string{"Its log ends where its step did."}, Next: []wire.NextStep{{Command: "fairlead job logs job_1", Effect: "shows what it had done"}}},
	}
	plane.SetDeployment(d)
	plane.SetJob(wire.Job{ID: "plan-web", Plan: &wire.Plan{Digest: "sha256:1"}})
	var s *story
	shown := make(chan string, 1)
	s = watch(t, plane, func(o *follow.Options) {
		o.Quiet = true
		screen := o.Out.(*screen)
		o.Approve = func(context.Context, wire.Deployment) (bool, error) {
			shown <- screen.String()
			return false, nil
		}
	})
	s.end()
	before := <-shown
	for _, want := range []string{"Auto-approval does not cover", "The apply job_1 was lost.", "Its log ends where its step did.", "`fairlead job logs job_1`"} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is not above the question:\n%s", want, before)
		}
	}
	if strings.Contains(before, "Runner local") {
		t.Errorf("what has nothing to do with it is there:\n%s", before)
	}
}
