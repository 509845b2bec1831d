package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/cancelmark/cancelmarktest"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/accesstest"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// chain is an app whose four components need each other in a row.
const chain = `fairlead: v1
name: shop
inputs:
  password: {type: string, sensitive: true, required: true}
components:
  a: {type: terraform, source: ./a}
  b: {type: terraform, source: ./b, depends_on: [a]}
  c: {type: terraform, source: ./c, depends_on: [b]}
  d: {type: terraform, source: ./d, depends_on: [c]}
`

// warmPlane is a plane whose agent starts steps ahead.
type warmPlane struct {
	*plane
	have []fairlead.WarmStepID
}

// newWarm returns a plane with an install of the chain, whose deployment has begun.
func newWarm(t *testing.T, in control.NewDeployment) (*warmPlane, fairlead.DeploymentID) {
	t.Helper()
	p := &warmPlane{plane: newPlane(t, enginetest.Memory())}
	p.publish(chain)
	p.install("acme")
	return p, p.deploy("acme", in, "first")
}

// claim claims the queued job, with the warm steps of the agent.
func (p *warmPlane) claim() control.Claim {
	p.t.Helper()
	c, err := p.Claim(p.ctx, p.session, 0, control.IntoWarmStep)
	if err != nil {
		p.t.Fatalf("claim: %v", err)
	}
	return c
}

// ahead starts steps for the jobs that follow the claimed job.
func (p *warmPlane) ahead(c control.Claim, most int) []control.WarmStep {
	p.t.Helper()
	steps, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{Job: c.ID, Epoch: c.Lease.Epoch, Most: most, Have: p.have})
	if err != nil {
		p.t.Fatalf("start ahead: %v", err)
	}
	for _, w := range steps {
		p.have = append(p.have, w.ID)
	}
	return steps
}

// await is the poll of a warm step by the step with the given id. The wait is 0.
func (p *warmPlane) await(w control.WarmStep, step string) (control.Claim, error) {
	p.t.Helper()
	h, err := p.AuthenticateWarm(w.Token)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.AwaitJob(p.ctx, h, step, false, 0)
}

func roles(steps []control.WarmStep) string {
	var out []string
	for _, w := range steps {
		out = append(out, string(w.Role))
	}
	return strings.Join(out, " ")
}

// A chain of four components has eight jobs. Seven of them find a step that was started with the first job.
func TestChainOfFourComponentsWaitsForOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, id := newWarm(t, control.NewDeployment{AutoApprove: true})
		tokens := map[fairlead.WarmStepID]control.WarmStep{}
		cold := 0
		for range 8 {
			c := p.claim()
			if c.WarmStep == "" {
				cold++
				p.step(c)
			} else {
				if c.LaunchToken != "" {
					t.Error("the agent got the launch token of a job that a warm step runs")
				}
				got, err := p.await(tokens[c.WarmStep], "step-of-"+string(c.WarmStep))
				if err != nil || got.ID != c.ID || got.LaunchToken == "" {
					t.Fatalf("the warm step gets %+v, %v, want job %s", got, err, c.ID)
				}
			}
			for _, w := range p.ahead(c, 8) {
				tokens[w.ID] = w
			}
			p.have = slices.DeleteFunc(p.have, func(id fairlead.WarmStepID) bool { return id == c.WarmStep })
			if c.WarmStep != "" {
				p.step(c)
			}
		}
		if cold != 1 || len(tokens) != 7 {
			t.Errorf("%d of 8 jobs waited for a start of their own, and %d steps were started ahead; want 1 and 7", cold, len(tokens))
		}
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the deployment is %s", d.State)
		}
	})
}

func TestStepsAreStartedOnlyForMissingOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		c := p.claim()
		if got := roles(p.ahead(c, 3)); got != "provision read-only provision" {
			t.Errorf("the first three steps have the roles %q", got)
		}
		if got := roles(p.ahead(c, 8)); got != "read-only provision read-only provision" {
			t.Errorf("the other steps have the roles %q", got)
		}
		if got := p.ahead(c, 8); len(got) > 0 {
			t.Errorf("%d more steps are to start, want none", len(got))
		}
		time.Sleep(control.WarmFor)
		if got := roles(p.ahead(c, 2)); got != "provision read-only" {
			t.Errorf("after the others expired, the roles are %q", got)
		}
	})
}

// Each row names why an agent gets no steps to start.
func TestStepsAreStartedOnlyForAnOwnClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{})
		c := p.claim()
		if got := p.ahead(c, 8); len(got) > 0 {
			t.Errorf("%d steps start ahead of an approval", len(got))
		}
		_, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{Job: c.ID, Epoch: c.Lease.Epoch + 1, Most: 8})
		if fairlead.CodeOf(err) != fairlead.CodeStaleEpoch {
			t.Errorf("another epoch: %v", err)
		}
		p.must("make a runner", func() error {
			return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "other", Storage: "http"})
		})
		p.enrolAt("other")
		_, err = p.StartAhead(p.ctx, p.session, control.AheadRequest{Job: c.ID, Epoch: c.Lease.Epoch, Most: 8})
		if fairlead.CodeOf(err) != fairlead.CodeJobNotFound {
			t.Errorf("an agent of another runner: %v", err)
		}
	})
}

func TestFirstJobsHaveWarmStepsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &warmPlane{plane: newPlane(t, enginetest.Memory())}
		p.publish(chain)
		p.install("acme")
		keep := func(n int) []control.WarmStep {
			steps, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: n, Most: 8, Have: p.have})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range steps {
				p.have = append(p.have, w.ID)
			}
			return steps
		}
		first := keep(2)
		if roles(first) != "read-only read-only" || len(keep(2)) > 0 {
			t.Fatalf("the steps for first jobs have the roles %q", roles(first))
		}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		if c := p.claim(); c.WarmStep != first[0].ID && c.WarmStep != first[1].ID {
			t.Errorf("the first job has the warm step %q, want %s or %s", c.WarmStep, first[0].ID, first[1].ID)
		}
		if got := keep(2); len(got) != 1 {
			t.Errorf("%d steps replace the one that was used, want 1", len(got))
		}
	})
}

// The step polls before and after each change; the row names what the poll must not give away.
func TestWarmTokenBuysOneLaunchTokenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		first := p.claim()
		w := p.ahead(first, 1)[0]
		if _, err := p.await(w, "step-1234"); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("before an assignment: %v, want ErrNoWork", err)
		}
		if _, err := p.await(w, "step-5678"); fairlead.CodeOf(err) != fairlead.CodeWarmTokenUsed {
			t.Errorf("another step with the same token: %v", err)
		}
		p.step(first)
		c := p.claim()
		if c.WarmStep != w.ID {
			t.Fatalf("the apply is assigned to %q, want %s", c.WarmStep, w.ID)
		}
		one, err := p.await(w, "step-1234")
		if err != nil || one.ID != c.ID || one.Lease.Epoch != c.Lease.Epoch {
			t.Fatalf("the warm step gets %+v, %v", one, err)
		}
		if again, err := p.await(w, "step-1234"); err != nil || again.LaunchToken != one.LaunchToken {
			t.Errorf("a repeated request gets another answer: %v", err)
		}
		if _, err := p.await(w, "step-5678"); fairlead.CodeOf(err) != fairlead.CodeWarmTokenUsed {
			t.Errorf("another step after the assignment: %v", err)
		}
		p.step(c)
		if _, err := p.await(w, "step-1234"); fairlead.CodeOf(err) != fairlead.CodeWarmStepOver {
			t.Errorf("after the job has ended: %v", err)
		}
	})
}

func TestTwoClaimsCannotShareAWarmStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &warmPlane{plane: newPlane(t, enginetest.Memory())}
		p.publish(strings.ReplaceAll(chain, ", depends_on: [a]", "")) // a and b are planned at once
		p.install("acme")
		steps, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: 1, Most: 1})
		if err != nil || len(steps) != 1 {
			t.Fatal(steps, err)
		}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		claims := make(chan control.Claim, 2)
		for range 2 { // two claims of one agent
			go func() { claims <- p.claim() }()
		}
		a, b := <-claims, <-claims
		if a.ID == b.ID || (a.WarmStep == "") == (b.WarmStep == "") || (a.LaunchToken == "") == (b.LaunchToken == "") {
			t.Errorf("the claims are %s with %q and %s with %q; want two jobs, one of them in the warm step", a.ID, a.WarmStep, b.ID, b.WarmStep)
		}
	})
}

// Each row names a job that a warm step must not get.
func TestWarmStepGetsOnlyAFittingJob(t *testing.T) {
	start := func(p *warmPlane) {
		steps, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: 1, Most: 1}) // for plans only
		if err != nil || len(steps) != 1 {
			p.t.Fatal(steps, err)
		}
	}
	for name, prepare := range map[string]func(p *warmPlane, c control.Claim){
		"a step of another role": func(p *warmPlane, _ control.Claim) { start(p) },
		"a step of another deployment": func(p *warmPlane, _ control.Claim) {
			p.install("other")
			p.deploy("other", control.NewDeployment{AutoApprove: true}, "other")
			p.ahead(p.claim(), 1)
		},
		"a step of another agent": func(p *warmPlane, c control.Claim) {
			p.ahead(c, 1)
			p.enrolAs("local", "another")
		},
		"a step that its agent ended": func(p *warmPlane, c control.Claim) {
			w := p.ahead(c, 1)[0]
			if _, err := p.EndWarmStep(p.ctx, p.session, w.ID); !errors.Is(err, control.ErrNoWork) {
				p.t.Fatal(err)
			}
			if _, err := p.await(w, "step-1234"); fairlead.CodeOf(err) != fairlead.CodeWarmStepOver {
				p.t.Errorf("the step of an ended warm step: %v", err)
			}
		},
		"a step that waited for too long": func(p *warmPlane, c control.Claim) {
			p.ahead(c, 1)
			time.Sleep(control.WarmFor)
		},
		"a step whose agent did not get the answer": func(p *warmPlane, c control.Claim) {
			p.ahead(c, 1)
			p.have = nil
			if _, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: 0, Most: 1}); err != nil {
				p.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
				c := p.claim()
				prepare(p, c)
				p.step(c)
				apply := p.claim()
				if apply.Operation != job.OpApply || apply.WarmStep != "" || apply.LaunchToken == "" {
					t.Errorf("the %s of %s is assigned to %q, want a step of its own", apply.Operation, apply.Component, apply.WarmStep)
				}
			})
		})
	}
}

// A step that waits costs as much as one that works. Its page states five minutes, so this test has its own number.
func TestWarmStepGetsNoJobAfterFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5 * time.Minute
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		w := p.ahead(p.claim(), 1)[0]
		if took := time.Until(w.Expires); took != limit {
			t.Errorf("the step waits for %s, want %s", took, limit)
		}
		time.Sleep(limit - time.Second)
		if _, err := p.await(w, "step-1234"); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("a second before its end, the step gets %v, want no job yet", err)
		}
		time.Sleep(time.Second)
		if _, err := p.await(w, "step-1234"); fairlead.CodeOf(err) != fairlead.CodeWarmStepOver {
			t.Errorf("after %s the step gets %v, want its end", limit, err)
		}
	})
}

// The size of a step is fixed when it starts. A job that needs more memory would be killed in a smaller one.
func TestSizedJobGetsAStepOfItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &warmPlane{plane: newPlane(t, enginetest.Memory())}
		p.publish(strings.NewReplacer("source: ./a}", "source: ./a, job: {cpu: 1, memory: 8Gi}}").Replace(chain))
		p.install("acme")
		first, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: 1, Most: 1})
		if err != nil || len(first) != 1 {
			t.Fatal(first, err)
		}
		p.have = []fairlead.WarmStepID{first[0].ID}
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		plan := p.claim()
		size := job.Size{CPU: 1000, Memory: 8 << 30}
		if plan.WarmStep != "" || plan.Size != size {
			t.Errorf("the plan of a is assigned to %q with the size %+v, want a step of its own with 1 CPU and 8 GiB", plan.WarmStep, plan.Size)
		}
		steps := p.ahead(plan, 3)
		if roles(steps) != "provision read-only provision" || steps[0].Size != size || steps[1].Size != (job.Size{}) || steps[2].Size != (job.Size{}) {
			t.Fatalf("the steps that start ahead are %+v, want the apply of a with its size, then the jobs of b without one", steps)
		}
		p.step(plan)
		if apply := p.claim(); apply.WarmStep != steps[0].ID {
			t.Errorf("the apply of a is assigned to %q, want the step of its size, %s", apply.WarmStep, steps[0].ID)
		}
	})
}

// An agent of another runner must neither use nor end a warm step.
func TestWarmStepOfAnotherRunnerIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		w := p.ahead(p.claim(), 1)[0]
		p.must("make a runner", func() error {
			return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "other", Storage: "http"})
		})
		p.enrolAt("other")
		if _, err := p.EndWarmStep(p.ctx, p.session, w.ID); fairlead.CodeOf(err) != fairlead.CodeWarmStepNotFound {
			t.Errorf("the end by another runner: %v", err)
		}
		if _, err := p.await(w, "step-1234"); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("the step does not wait any more: %v", err)
		}
	})
}

func TestWarmStepOfAnEndedDeploymentGetsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, id := newWarm(t, control.NewDeployment{AutoApprove: true})
		w := p.ahead(p.claim(), 1)[0]
		if _, err := p.await(w, "step-1234"); !errors.Is(err, control.ErrNoWork) {
			t.Fatal(err)
		}
		p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, id); return err })
		if _, err := p.await(w, "step-1234"); fairlead.CodeOf(err) != fairlead.CodeWarmStepOver {
			t.Errorf("the deployment was canceled: %v", err)
		}
	})
}

// An agent may lose the answer to its claim. The warm step may run the job then, so the agent must not kill it.
func TestEndOfAWarmStepFindsItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		first := p.claim()
		w := p.ahead(first, 1)[0]
		p.step(first)
		c := p.claim() // its answer is lost
		found, err := p.EndWarmStep(p.ctx, p.session, w.ID)
		if err != nil || found.ID != c.ID || found.Lease.Epoch != c.Lease.Epoch || found.LaunchToken != "" {
			t.Fatalf("the end of the warm step finds %+v, %v, want the claim without a launch token", found, err)
		}
		if got, err := p.await(w, "step-1234"); err != nil || got.LaunchToken == "" {
			t.Errorf("the step does not get its job any more: %v", err)
		}
		p.step(c)
		if _, err := p.EndWarmStep(p.ctx, p.session, w.ID); !errors.Is(err, control.ErrNoWork) {
			t.Errorf("after the job has ended: %v, want ErrNoWork", err)
		}
	})
}

// A warm step that dies after its assignment loses no job: the job is queued again, and another step runs it.
func TestDeadWarmStepDoesNotKeepItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, id := newWarm(t, control.NewDeployment{AutoApprove: true})
		first := p.claim()
		w := p.ahead(first, 1)[0]
		p.step(first)
		c := p.claim()
		p.died(control.Holder{Job: c.ID, Epoch: c.Lease.Epoch})
		if _, err := p.await(w, "step-1234"); fairlead.CodeOf(err) != fairlead.CodeWarmStepOver {
			t.Errorf("the claim was lost: %v", err)
		}
		p.have = nil
		p.work()
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the deployment is %s", d.State)
		}
	})
}

// On AWS a warm step looks for a marker instead of asking for its job. The claim that assigns the job writes the marker, and the
// credentials of the step are for its marker alone. Without markers the step asks, as before.
func TestAssignedJobHasAMarker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newWarm(t, control.NewDeployment{AutoApprove: true})
		marks, access := &cancelmarktest.Memory{}, &accesstest.Memory{}
		p.CancelMarks = marks
		plan := p.claim()
		steps := p.ahead(plan, 10)
		holder := func(w control.WarmStep) control.WarmHolder {
			h, err := p.AuthenticateWarm(w.Token)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		if _, err := p.WarmMarker(p.ctx, holder(steps[0])); fairlead.CodeOf(err) != fairlead.CodeNoMarker {
			t.Errorf("without access to AWS: %v", err)
		}
		p.Access = access
		shop, err := p.App(p.ctx, org, "shop")
		if err != nil {
			t.Fatal(err)
		}
		keys := map[fairlead.WarmStepID]string{}
		for _, w := range steps {
			got, err := p.WarmMarker(p.ctx, holder(w))
			if err != nil {
				t.Fatal(err)
			}
			want := identity.Scope{Runner: p.session.Runner, Install: w.Install, App: shop.ID, Warm: w.ID}
			if scopes := access.Scopes(); scopes[len(scopes)-1] != want || got.Cancel.Key == "" {
				t.Errorf("the step gets %+v, by %+v", got, scopes)
			}
			if keys[w.ID] = got.Cancel.Key; marks.Has(got.Cancel.Key) {
				t.Error("there is a marker before a job is assigned")
			}
		}
		p.step(plan)
		apply := p.claim()
		for id, key := range keys {
			if marks.Has(key) != (id == apply.WarmStep) {
				t.Errorf("step %s has a marker: %t; the apply is assigned to %s", id, marks.Has(key), apply.WarmStep)
			}
		}
		first, err := p.StartAhead(p.ctx, p.session, control.AheadRequest{First: 1, Most: 1, Have: p.have})
		if err != nil || len(first) != 1 {
			t.Fatalf("started %v, %v", first, err)
		}
		if _, err := p.WarmMarker(p.ctx, holder(first[0])); fairlead.CodeOf(err) != fairlead.CodeNoMarker {
			t.Errorf("a step for every install: %v", err)
		}
	})
}
