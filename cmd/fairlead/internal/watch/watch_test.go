package watch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/watch"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
)

// screen records the output that a person sees. It is safe for concurrent use.
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

// await waits until the text is on the screen.
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
	screen *screen
	cancel context.CancelFunc
	ended  chan struct{}
	last   wire.Deployment
	err    error
}

// begin follows a deployment in the background.
func begin(t *testing.T, p *plane.Plane, first wire.Deployment, change func(*watch.Options)) *story {
	ctx, cancel := context.WithCancel(t.Context())
	s := &story{T: t, screen: newScreen(), cancel: cancel, ended: make(chan struct{})}
	now := time.Unix(0, 0)
	o := watch.Options{Client: p.API, Out: s.screen, Now: func() time.Time { return now }, Style: view.Style{}}
	if change != nil {
		change(&o)
	}
	go func() {
		defer close(s.ended)
		s.last, s.err = watch.Deployment(ctx, first, o)
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

// The apps that are deployed.
const (
	one   = "fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: ./web}\n"
	two   = "fairlead: v1\nname: shop\ncomponents:\n  network: {type: terraform, source: ./n}\n  db: {type: terraform, source: ./d}\n"
	chain = "fairlead: v1\nname: shop\ncomponents:\n  network: {type: terraform, source: ./n}\n  db: {type: terraform, source: ./d, depends_on: [network]}\n"
)

var (
	planOnly = wire.CreateDeploymentRequest{PlanOnly: true}
	adding   = deployment.Changes{Add: 2}
	nothing  = deployment.Changes{}

	unavailable = proxy.Answer(http.StatusServiceUnavailable, "text/plain", "try later") // the answer of a gateway while its server restarts
)

func component(t *testing.T, d wire.Deployment, name string) wire.DeploymentComponent {
	t.Helper()
	for _, c := range d.Components {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("deployment %s has no component %s", d.ID, name)
	return wire.DeploymentComponent{}
}

// plans starts the plan job of a component.
func plans(t *testing.T, p *plane.Plane, d wire.Deployment, name string) *plane.Attempt {
	t.Helper()
	return p.Work(component(t, p.Deployment(d.ID), name).PlanJob)
}

// applies starts the apply job of a component.
func applies(t *testing.T, p *plane.Plane, d wire.Deployment, name string) *plane.Attempt {
	t.Helper()
	return p.Work(component(t, p.Deployment(d.ID), name).Job)
}

func TestDeploymentIsShownFromPlanToApply(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(chain, wire.CreateDeploymentRequest{AutoApprove: true})
	s := begin(t, p, d, nil)
	plan := plans(t, p, d, "network")
	plan.Log("looking\nPlan: 2 to add\nno newline")
	s.screen.await(t, "Plan: 2")
	plan.Planned(adding, "")
	apply := applies(t, p, d, "network")
	apply.Log("creating\n")
	s.screen.await(t, "creating")
	apply.Succeed()
	s.screen.await(t, "db      ▸ planning")
	plans(t, p, d, "db").Planned(nothing, "")
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
db      ▸ planning
db      ✓ unchanged (0.0 s)
`
	if got := s.screen.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestApprovedComponentWaitsForParallelism(t *testing.T) {
	p := plane.New(t, plane.Options{Parallelism: 1})
	d := p.Deploy(two, wire.CreateDeploymentRequest{})
	plans(t, p, d, "db").Planned(adding, "")
	plans(t, p, d, "network").Planned(adding, "")
	d, err := p.API.ApproveDeployment(t.Context(), d.ID, wire.ApproveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := "network", "db"
	if component(t, d, first).State == "approved" {
		first, second = second, first
	}
	s := begin(t, p, d, nil)
	s.screen.await(t, "approved")
	applies(t, p, d, first).Succeed()
	s.screen.await(t, fmt.Sprintf("%-7s ▸ applying", second))
	applies(t, p, d, second).Succeed()
	s.end()
	if s.err != nil {
		t.Fatal(s.err)
	}
	if got := s.screen.String(); !strings.Contains(got, fmt.Sprintf("%-7s ▸ approved; waits for other components of this deployment\n", second)) || strings.Contains(got, fmt.Sprintf("%-7s ✓ planned", second)) {
		t.Errorf("the screen has:\n%s", got)
	}
}

func TestRestartOfTheControlPlaneRepeatsNothing(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, planOnly)
	plan := plans(t, p, d, "web")
	plan.Log("one\ntw")
	s := begin(t, p, d, nil)
	s.screen.await(t, "one")
	// The long polls for the deployment and for the log wait. All connections now break,
	// in each possible way.
	p.Until("the follower waits for the deployment", func() bool { return p.Asked(wire.GetDeployment) > 1 })
	p.Next(unavailable, proxy.Cut, unavailable, proxy.Cut)
	p.CloseClientConnections()
	plan.Log("o\nthree\n")
	s.screen.await(t, "three")
	plan.Planned(adding, "")
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
	p := plane.New(t, plane.Options{})
	p.Deploy(one, planOnly)
	d := p.Deploy(one, planOnly) // waits for the first deployment and has no job
	clock := make(chan time.Time, 1)
	clock <- time.Unix(0, 0)
	p.Next(unavailable, unavailable, unavailable)
	s := begin(t, p, d, func(o *watch.Options) {
		o.Now = func() time.Time { // a minute passes between two calls
			now := <-clock
			clock <- now.Add(time.Minute)
			return now
		}
	})
	s.end()
	if !client.HasStatus(s.err, 503) {
		t.Errorf("got %v, want the last answer of the control plane", s.err)
	}
	if n := strings.Count(s.screen.String(), "does not answer; trying again for 1 min 00 s"); n != 1 {
		t.Errorf("the message is shown %d times:\n%s", n, s.screen)
	}
}

func TestRefusalIsNotRepeated(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, planOnly)
	p.Fail(proxy.Route(wire.GetDeployment), 1, plane.Refuse("internal"))
	s := begin(t, p, d, nil)
	s.end()
	if !client.HasStatus(s.err, 500) {
		t.Errorf("got %v, want the 500", s.err)
	}
}

func TestLogCannotControlTheTerminal(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, planOnly)
	s := begin(t, p, d, nil)
	plan := plans(t, p, d, "web")
	plan.Log("\x1b[2J\x1b]0;owned\x07red\x1b[31m\r\nover\rwritten \u009b2J\xff\u202egnp\n")
	plan.Planned(adding, "")
	s.end()
	want := "web ▸ planning\nweb │ red\nweb │ over\nweb │ written \uFFFD\uFFFDgnp\nweb ✓ planned: 2 to add (0.0 s)\n"
	if got := s.screen.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSecondAttemptIsAnnounced(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, planOnly)
	s := begin(t, p, d, nil)
	first := plans(t, p, d, "web")
	first.Log("first try, cut o")
	first.Die()
	second := plans(t, p, d, "web")
	second.Log("second try\n")
	s.screen.await(t, "second try")
	second.Planned(nothing, "")
	s.end()
	want := "web ▸ planning\nweb │ first try, cut o\nweb ! the job starts again: attempt 2\nweb │ second try\nweb ✓ unchanged (0.0 s)\n"
	if got := s.screen.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestApprovalCoversExactlyTheShownPlans(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(chain, wire.CreateDeploymentRequest{})
	plan := plans(t, p, d, "network")
	plan.Planned(adding, `{"resources":[{"address":"null_resource.a","actions":["create"]},{"address":"null_resource.\u001b[2Jb","actions":["delete","create"]},{"address":"null_resource.c","actions":["no-op"]}]}`)
	got := make(chan wire.ApproveRequest, 10)
	p.Fail(proxy.Route(wire.ApproveDeployment), -1, proxy.Before(func(r *http.Request) {
		var in wire.ApproveRequest
		b, err := io.ReadAll(r.Body)
		if err := errors.Join(err, json.Unmarshal(b, &in)); err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		got <- in
	}))
	var screenAtQuestion string
	var s *story
	asked := make(chan struct{})
	s = begin(t, p, p.Deployment(d.ID), func(o *watch.Options) {
		o.Approve = func(context.Context, wire.Deployment) (bool, error) {
			<-asked
			screenAtQuestion = s.screen.String()
			return true, nil
		}
	})
	close(asked)
	in := <-got
	s.screen.await(t, "applying")
	applies(t, p, d, "network").Succeed()
	plans(t, p, d, "db").Planned(nothing, "")
	s.end()
	if s.err != nil {
		t.Fatal(s.err)
	}
	if len(got) != 0 || len(in.Components) != 0 || len(in.Plans) != 1 || in.Plans["network"] != plan.Digest() {
		t.Errorf("approved %+v, want exactly the plan that was shown", in)
	}
	for _, want := range []string{"network: 2 to add", "  + null_resource.a\n", "-/+ null_resource.b\n"} {
		if !strings.Contains(screenAtQuestion, want) {
			t.Errorf("before the question %q is not shown:\n%s", want, screenAtQuestion)
		}
	}
	if strings.Contains(screenAtQuestion, "null_resource.c") {
		t.Errorf("a resource that does not change is shown:\n%s", screenAtQuestion)
	}
}

func TestDeploymentStaysWaitingWithoutAPerson(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, wire.CreateDeploymentRequest{})
	plans(t, p, d, "web").Planned(deployment.Changes{Destroy: 1}, "")
	s := begin(t, p, p.Deployment(d.ID), nil)
	s.end()
	if n := p.Asked(wire.ApproveDeployment); !errors.Is(s.err, watch.ErrWaiting) || n > 0 {
		t.Errorf("got %v and %d approvals", s.err, n)
	}
	if !strings.Contains(s.screen.String(), "web: 1 to destroy") {
		t.Errorf("the plan is not shown:\n%s", s.screen)
	}
}

func TestInterruptStopsFollowingOnly(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, planOnly)
	plans(t, p, d, "web")
	s := begin(t, p, d, nil)
	p.Until("the deployment is followed", func() bool { return p.Asked(wire.GetDeployment) > 1 && p.Asked(wire.ReadJobLog) > 0 })
	s.cancel()
	s.end()
	if !errors.Is(s.err, context.Canceled) {
		t.Errorf("got %v", s.err)
	}
}

func TestUnclaimedJobIsExplained(t *testing.T) {
	p := plane.New(t, plane.Options{})
	p.Work(check(t, p)) // an agent was online
	p.Advance(10 * time.Minute)
	d := p.Deploy(one, planOnly)
	s := begin(t, p, d, func(o *watch.Options) { o.SlowClaim = time.Second })
	s.screen.await(t, "runner here is not reachable")
	cancel(t, p, d)
	s.end()
	if s.err != nil {
		t.Error(s.err)
	}
}

func check(t *testing.T, p *plane.Plane) string {
	t.Helper()
	j, err := p.API.CheckRunner(t.Context(), plane.Runner)
	if err != nil {
		t.Fatal(err)
	}
	return j.ID
}

func cancel(t *testing.T, p *plane.Plane, d wire.Deployment) {
	t.Helper()
	if _, err := p.API.CancelDeployment(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
}

// behind creates the deployments ahead and d. The deployment d waits for ahead. The
// follower asks for the deployment every second.
func behind(t *testing.T, p *plane.Plane) (ahead, d wire.Deployment) {
	t.Helper()
	ahead = p.Deploy(one, wire.CreateDeploymentRequest{})
	d = p.Deploy(one, planOnly)
	p.Fail(proxy.Route(wire.GetDeployment), -1, proxy.Before(func(r *http.Request) {
		q := r.URL.Query()
		q.Set("wait_seconds", "1")
		r.URL.RawQuery = q.Encode()
	}))
	return ahead, d
}

func TestQueuedBehindAnApprovalDoesNotWait(t *testing.T) {
	p := plane.New(t, plane.Options{})
	ahead, d := behind(t, p)
	s := begin(t, p, d, func(o *watch.Options) { o.Quiet = true })
	p.Until("the deployment is followed", func() bool { return p.Asked(wire.GetDeployment) > 0 })
	plans(t, p, ahead, "web").Planned(adding, "") // after the command began to wait
	s.end()
	if !errors.Is(s.err, watch.ErrBehind) || s.last.Ahead.ID != ahead.ID {
		t.Errorf("it ended with %v, at %+v", s.err, s.last)
	}
	if s.screen.String() != "" {
		t.Errorf("with Quiet it showed:\n%s", s.screen)
	}
}

func TestQuietShowsAPendingApprovalOnce(t *testing.T) {
	p := plane.New(t, plane.Options{})
	ahead, d := behind(t, p)
	plans(t, p, ahead, "web").Planned(adding, "")
	d = p.Deployment(d.ID)
	asked := p.Asked(wire.GetDeployment)
	s := begin(t, p, d, func(o *watch.Options) {
		o.Quiet = true
		o.Approve = func(context.Context, wire.Deployment) (bool, error) { return false, nil }
	})
	p.Until("the follower asks again", func() bool { return p.Asked(wire.GetDeployment) > asked+1 })
	cancel(t, p, ahead)
	plans(t, p, d, "web").Planned(nothing, "")
	s.end()
	for _, want := range []string{"waits for deployment " + ahead.ID + ", which awaits approval since " + d.Ahead.Since.UTC().Format("2006-01-02 15:04:05 MST"),
		"`fairlead deployment approve " + ahead.ID + "`", "`fairlead deployment cancel " + ahead.ID + "`"} {
		if strings.Count(s.screen.String(), want) != 1 {
			t.Errorf("%q is not shown exactly once:\n%s", want, s.screen)
		}
	}
}

func TestJobOnADrainingRunnerIsExplained(t *testing.T) {
	p := plane.New(t, plane.Options{})
	p.Work(check(t, p)) // an agent is online
	d := p.Deploy(one, planOnly)
	if _, err := p.API.SetRunnerMode(t.Context(), plane.Runner, "draining"); err != nil {
		t.Fatal(err)
	}
	s := begin(t, p, d, func(o *watch.Options) { o.SlowClaim = time.Second })
	s.screen.await(t, "waits: runner here is draining. `fairlead runner enable here` lets it start jobs")
	cancel(t, p, d)
	s.end()
}

// ECS takes half a minute to start the task of a job. A person sees that the job starts, and since when.
func TestJobThatIsStartingIsExplained(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, planOnly)
	attempt := p.Claim(component(t, p.Deployment(d.ID), "web").PlanJob)
	s := begin(t, p, d, func(o *watch.Options) { o.SlowClaim = time.Second })
	s.screen.await(t, "starting on runner here for ")
	attempt.Start().Planned(nothing, "")
	s.end()
	if got := strings.Count(s.screen.String(), "starting on runner"); got != 1 {
		t.Errorf("the start is shown %d times, want once:\n%s", got, s.screen)
	}
}

func TestLostApplyIsShownBeforeTheQuestion(t *testing.T) {
	p := plane.New(t, plane.Options{})
	d := p.Deploy(one, wire.CreateDeploymentRequest{AutoApprove: true})
	plans(t, p, d, "web").Planned(adding, "")
	applies(t, p, d, "web").Die()
	plans(t, p, d, "web").Planned(adding, "")
	// Add a situation that is unrelated to the lost apply.
	p.Fail(proxy.Route(wire.GetDeployment), -1, proxy.Change(func(body []byte) []byte {
		var d wire.Deployment
		err := json.Unmarshal(body, &d)
		d.Situations = append([]wire.Situation{{Kind: "runner-full", What: "Runner local runs as many jobs as it can."}}, d.Situations...)
		b, merr := json.Marshal(d)
		if err := errors.Join(err, merr); err != nil {
			t.Error(err)
		}
		return b
	}))
	d = p.Deployment(d.ID)
	shown := make(chan string, 1)
	s := begin(t, p, d, func(o *watch.Options) {
		o.Quiet = true
		screen := o.Out.(*screen)
		o.Approve = func(context.Context, wire.Deployment) (bool, error) {
			shown <- screen.String()
			return false, nil
		}
	})
	s.end()
	before := <-shown
	if len(d.Situations) != 2 || d.Situations[1].Kind != "lost" {
		t.Fatalf("the deployment's situations are %+v", d.Situations)
	}
	lost := d.Situations[1]
	for _, want := range []string{"Auto-approval does not cover", lost.What, lost.Known[0], "`" + view.Command(*lost.Next[0].Action) + "`"} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is not above the question:\n%s", want, before)
		}
	}
	if strings.Contains(before, "Runner local") {
		t.Errorf("an unrelated situation is shown:\n%s", before)
	}
}
