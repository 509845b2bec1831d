package control_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/test/canary"
)

// twoRoots is an app with two components that start at once. Both use the input.
const twoRoots = `fairlead: v1
name: shop
inputs: {password: {type: string, sensitive: true, required: true}}
components:
  one: {type: terraform, source: ./one, vars: {password: "${inputs.password}"}}
  two: {type: terraform, source: ./two, vars: {password: "${inputs.password}"}}
`

// earlier is a plane with the table of a runner without a seed: the control plane sealed the inputs and variables of the install.
type earlier struct {
	*plane
	engine  *enginetest.MemoryEngine
	search  *canary.Search
	install fairlead.InstallID
}

func newEarlier(t *testing.T, app string) *earlier {
	t.Helper()
	p := &earlier{engine: enginetest.Memory()}
	p.plane = newPlane(t, p.engine)
	secret := bytes.Repeat([]byte{7}, seal.KeySize)
	key, err := seal.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	p.Sealer = seal.NewKeyring(key)
	p.search = canary.New(map[string]string{"input": "hunter2-hunter2", "variable": "variable-of-acme", "output": "secret-of-"}, canary.Seal(t, secret, 0))
	p.publish(app)
	p.plane.install("acme")
	in, err := p.Install(p.ctx, org, "acme")
	if err != nil {
		t.Fatal(err)
	}
	p.install = in.ID
	p.setVariable("variable-of-acme")
	return p
}

func (p *earlier) setVariable(value string) {
	p.t.Helper()
	p.must("set a variable", func() error {
		_, err := p.SetVariables(p.ctx, control.User{Org: org}, control.VariableScope{Install: "acme"}, map[string]*control.Variable{"API_TOKEN": {Value: value, Sensitive: true}})
		return err
	})
}

// seed gives the runner a seed. Its first job reports the key of the install.
func (p *earlier) seed() {
	p.t.Helper()
	p.seeds = seedOfTests
	p.must("note the seed", func() error { _, err := p.NoteSeed(p.ctx, p.session.Runner, nil); return err })
}

// found returns the secrets that are in an item or a blob, also as the key of the control plane opens it.
func (p *earlier) found() string {
	p.t.Helper()
	all := map[string]canary.Find{}
	look := func(content []byte) {
		for name, find := range p.search.In(content) {
			all[name] = find
		}
	}
	for _, it := range p.engine.Items() {
		look(it.Body)
	}
	keys, err := p.Blobs.List(p.ctx, "")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, key := range keys {
		blob, err := p.Blobs.Get(p.ctx, key)
		if err != nil {
			p.t.Fatal(err)
		}
		look(blob)
	}
	return fmt.Sprint(canary.Names(all))
}

// key returns the public key that a step reports.
func (p *earlier) key() string { return p.keys(p.install).Current().Public().String() }

// next runs one job.
func (p *earlier) next() {
	p.t.Helper()
	c, err := p.Claim(p.ctx, p.session, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.step(c)
}

// expectFound fails the test if the control plane can open other secrets.
func (p *earlier) expectFound(when, want string) {
	p.t.Helper()
	if got := p.found(); got != want {
		p.t.Errorf("%s, the control plane can open %s, want %s", when, got, want)
	}
}

const allSecrets = "[input (opened) variable (opened)]"

// The control plane sealed the secrets of an install. The runner gets a seed. The first job after that moves the secrets, and the
// control plane keeps no copy that one of its keys opens. Later jobs get them.
func TestStoredSecretsAreMovedByTheNextJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newEarlier(t, secretive)
		p.expectFound("before", allSecrets)
		p.seed()
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		p.next()
		p.expectFound("after one job", "[]")
		got := ""
		p.stepFault = func(s events.JobSpec) stepFault {
			got += fmt.Sprintf("%s %s %v %s\n", s.Operation, s.Component, s.Inputs(), s.SecretEnv)
			if strings.Contains(string(p.envelopes[len(p.envelopes)-1]), "move") {
				t.Errorf("the %s of %s moves secrets again", s.Operation, s.Component)
			}
			return none
		}
		p.work()
		p.expect(id, deployment.Succeeded, "database=applied web=applied")
		p.deploy("acme", control.NewDeployment{Kind: "teardown", AutoApprove: true}, "down")
		p.work()
		for _, of := range []string{"apply database", "apply web", "destroy web", "destroy database"} {
			_, rest, _ := strings.Cut(got, of+" ")
			line, _, _ := strings.Cut(rest, "\n")
			if !strings.Contains(line, "variable-of-acme") {
				t.Errorf("the %s lacks the variable: %s", of, line)
			}
		}
		p.expectFound("at the end", "[]")
	})
}

// An install that was deployed before has the secrets also in what its components are made from. Its next deployment plans each
// component once more, and then the control plane can open nothing.
func TestDeployedSecretsAreMovedByTheNextDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newEarlier(t, secretive)
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "earlier")
		p.work()
		p.expectFound("before", "[input (opened) output (opened) variable (opened)]")
		p.seed()
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true}, "next")
		p.work()
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the deployment is %s: %s", d.State, nodes(d))
		}
		must, err := p.CollectBlobs(p.ctx, nil)
		if err == nil {
			_, err = p.CollectBlobs(p.ctx, must)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.expectFound("after one deployment", "[]")
		again := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "again")
		p.work()
		p.expect(again, deployment.Succeeded, "database=unchanged web=unchanged")
	})
}

// Each row stops the move at another place. The next job then moves what is left, and no job fails for it.
func TestStoredSecretsAreMovedAfterAFault(t *testing.T) {
	for name, c := range map[string]struct {
		app   string
		fault func(p *earlier)
		left  string // after the fault
		end   string // after all jobs
	}{
		"the step is killed before its report": {secretive, func(p *earlier) {
			p.stepFault = func(events.JobSpec) stepFault { return diesAfter }
			p.next()
		}, allSecrets, "[]"},
		"the host fails before the report": {secretive, func(p *earlier) {
			p.stepFault = func(events.JobSpec) stepFault { return vanishes }
			p.next()
		}, allSecrets, "[]"},
		"the control plane is killed between the move and the end of the job": {secretive, func(p *earlier) {
			h := p.started()
			err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeSucceeded, Moved: p.moved, Key: p.key()}) // without the plan, so the end is refused
			if fairlead.CodeOf(err) != fairlead.CodePlanMissing {
				p.t.Errorf("the report: %v", err)
			}
			p.died(h)
		}, "[]", "[]"},
		"a report of an older epoch": {secretive, func(p *earlier) {
			h := p.started()
			p.died(h)
			if err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Moved: p.moved, Key: p.key()}); fairlead.KindOf(err) != fairlead.KindStale {
				p.t.Errorf("the report: %v", err)
			}
		}, allSecrets, "[]"},
		"a person changes a value while the job runs": {secretive, func(p *earlier) {
			h := p.started()
			old := p.moved
			p.must("change it", func() error { return p.changeSealed("variable-of-acme-2") })
			p.moved = old
			err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Moved: old, Key: p.key()})
			if err != nil {
				p.t.Error(err)
			}
		}, "[variable (opened)]", "[]"},
		"two jobs at once": {twoRoots, func(p *earlier) {
			one := p.started()
			moved := p.moved
			two := p.started()
			for _, h := range []control.Holder{one, two} {
				if err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Moved: moved, Key: p.key()}); err != nil {
					p.t.Error(err)
				}
				if h == one {
					p.expectFound("while the other job runs", allSecrets)
				}
			}
		}, "[]", "[]"},
		"the value is encrypted with a key that no person has accepted": {secretive, func(p *earlier) {
			h := p.started()
			if err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Key: p.key()}); err != nil {
				p.t.Error(err)
			}
			p.work()
			p.seeds = strings.Repeat("Other", 10) + "\n" + seedOfTests
			p.deploy("acme", control.NewDeployment{AutoApprove: true}, "rotated")
			p.next()
		}, allSecrets, allSecrets},
		"a value in the clear": {secretive, func(p *earlier) {
			h := p.started()
			for place, m := range p.moved {
				m.Bytes = []byte(`"hunter2-hunter2"`)
				p.moved[place] = m
			}
			if err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Moved: p.moved, Key: p.key()}); fairlead.CodeOf(err) != fairlead.CodeInvalidEncryptedValue || strings.Contains(err.Error(), "hunter2") {
				p.t.Errorf("the report: %v", err)
			}
			p.died(h)
		}, allSecrets, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newEarlier(t, c.app)
				p.seed()
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
				c.fault(p)
				p.expectFound("after the fault", c.left)
				p.stepFault = nil
				p.work()
				again := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true}, "again")
				p.work()
				if d := p.deployment(again); d.State != deployment.Succeeded {
					t.Errorf("the next deployment is %s: %s", d.State, nodes(d))
				}
				if c.end != allSecrets {
					p.expectFound("at the end", c.end)
				}
			})
		})
	}
}

// started starts the next job and fetches its values, as a step does.
func (p *earlier) started() control.Holder {
	p.t.Helper()
	var h control.Holder
	p.stepFault = func(s events.JobSpec) stepFault {
		h = control.Holder{Job: s.Job, Epoch: s.Epoch}
		return vanishes
	}
	p.next()
	p.stepFault = nil
	return h
}

// changeSealed changes the variable in its sealed form, as a request does that was read before the key was known.
func (p *earlier) changeSealed(value string) error {
	r, err := p.Store.Runner(p.ctx, org, "local")
	if err != nil {
		return err
	}
	r.V.Seeded = false
	var tx store.Tx
	tx.PutRunner(r)
	if err := p.Store.Commit(p.ctx, p.IDs("com"), &tx); err != nil {
		return err
	}
	p.setVariable(value)
	return nil
}
