package plane

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Deploy publishes an app, creates its install acme if there is none, and creates a
// deployment.
func (p *Plane) Deploy(config string, in wire.CreateDeploymentRequest) wire.Deployment {
	p.t.Helper()
	return p.DeployOf(config, nil, in)
}

// DeployOf is Deploy for an app whose artifacts were pushed. digests maps components to
// their artifacts.
func (p *Plane) DeployOf(config string, digests map[string]string, in wire.CreateDeploymentRequest) wire.Deployment {
	p.t.Helper()
	v := p.PublishOf(config, digests)
	if _, err := p.API.GetInstall(p.context(), "acme"); err != nil {
		if _, err := p.API.CreateInstall(p.context(), wire.CreateInstallRequest{Name: "acme", App: v.App, Runner: Runner}); err != nil {
			p.t.Fatal(err)
		}
	}
	if in.Kind == "" {
		in.Kind = "deploy"
	}
	d, err := p.API.CreateDeployment(p.context(), "acme", in)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// Deployment returns the current record of a deployment.
func (p *Plane) Deployment(id string) wire.Deployment {
	p.t.Helper()
	d, err := p.API.GetDeployment(p.context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// Advance moves the control plane's clock forward and runs the sweep.
func (p *Plane) Advance(d time.Duration) {
	p.t.Helper()
	p.ahead.Add(int64(d))
	if _, err := p.Control.Sweep(p.context()); err != nil {
		p.t.Fatal(err)
	}
}

// Attempt is an attempt of a job whose agent and step are the test itself.
type Attempt struct {
	p *Plane
	control.Holder
	log []byte
}

// Claim claims a job whose step does not start until Start.
func (p *Plane) Claim(id string) *Attempt {
	p.t.Helper()
	session, job := p.session(), fairlead.JobID(id)
	c, err := p.Control.ClaimJob(p.context(), session, job)
	if errors.Is(err, control.ErrNoWork) { // the job is a retry that is not due yet
		p.Advance(time.Minute)
		c, err = p.Control.ClaimJob(p.context(), session, job)
	}
	if err != nil {
		p.t.Fatalf("claim job %s: %v", id, err)
	}
	return &Attempt{p: p, Holder: control.Holder{Job: job, Epoch: c.Lease.Epoch}}
}

// Work claims a job and starts it.
func (p *Plane) Work(id string) *Attempt {
	p.t.Helper()
	return p.Claim(id).Start()
}

// Start starts the step of a claimed attempt.
func (a *Attempt) Start() *Attempt {
	a.p.t.Helper()
	if _, err := a.p.Control.StartJob(a.p.context(), a.Job, a.Epoch, "step-of-the-test"); err != nil {
		a.p.t.Fatalf("start job %s: %v", a.Job, err)
	}
	return a
}

// session returns the session that the test has as an agent. The first call opens it.
func (p *Plane) session() control.Session {
	p.t.Helper()
	p.mu.Lock()
	s := p.worker
	p.mu.Unlock()
	if s != nil {
		return *s
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Control.Enrol(p.context(), p.EnrolmentToken(), pub); err != nil {
		p.t.Fatal(err)
	}
	nonce := p.Control.NewChallenge()
	statement := wire.SessionStatement(nonce, string(RunnerID), "")
	opened, err := p.Control.OpenSession(p.context(), control.SessionProof{Runner: RunnerID, Nonce: nonce, PublicKey: pub, Statement: statement,
		Signature: ed25519.Sign(key, statement), Capacity: 10})
	if err != nil {
		p.t.Fatal(err)
	}
	p.change(func() { p.worker = &opened.Session })
	return opened.Session
}

// Log appends to the attempt's log.
func (a *Attempt) Log(text string) {
	a.p.t.Helper()
	if _, err := a.p.Control.AppendLog(a.p.context(), a.Holder, int64(len(a.log)), []byte(text)); err != nil {
		a.p.t.Fatal(err)
	}
	a.log = append(a.log, text...)
}

// Finish reports the end of the attempt.
func (a *Attempt) Finish(r control.Report) {
	a.p.t.Helper()
	r.LogSize, r.LogCRC32 = int64(len(a.log)), crc32.ChecksumIEEE(a.log)
	if err := a.p.Control.FinishJob(a.p.context(), a.Holder, r); err != nil {
		a.p.t.Fatal(err)
	}
}

// Planned reports success with a plan and the JSON of its change set. With zero changes, the plan is a
// no-op.
func (a *Attempt) Planned(changes deployment.Changes, set string) {
	a.p.t.Helper()
	a.Finish(control.Report{Outcome: control.OutcomeSucceeded, ChangeSet: []byte(set),
		Plan: &control.Plan{Digest: a.Digest(), NoOp: changes == deployment.Changes{}, Changes: changes}})
}

// Digest returns the digest of the plan that Planned reports.
func (a *Attempt) Digest() string {
	return fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(a.Job)))
}

// Succeed reports success.
func (a *Attempt) Succeed() {
	a.p.t.Helper()
	a.Finish(control.Report{Outcome: control.OutcomeSucceeded, Mutated: true})
}

// Die reports that the step was killed.
func (a *Attempt) Die() {
	a.p.t.Helper()
	if err := a.p.Control.ReportDeath(a.p.context(), a.p.session(), a.Job, control.Death{Epoch: a.Epoch, Cause: "killed", Signal: "killed"}); err != nil {
		a.p.t.Fatal(err)
	}
}
