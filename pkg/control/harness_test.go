package control_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

const org = fairlead.DefaultOrg

// plane is a control plane in memory, with a model of a runner and a model of a cloud.
// Tests run a plane in a synctest bubble. So a plane uses the clock of the bubble.
type plane struct {
	*control.Control
	t       *testing.T
	ctx     context.Context
	pub     ed25519.PublicKey
	session control.Session
	cloud   map[string]string                    // for each component that exists: the variables of its last apply
	plans   map[string]string                    // for each digest of a saved plan: the variables that the plan applies; "" if the plan destroys
	outputs map[string]map[string]control.Output // for each component: its outputs that are added to the usual outputs or replace them
	applied []string                             // each apply and destroy that a tool started, in order
	// rebuilt changes the result of a build before its report. If it is nil, a build reports the truth.
	rebuilt func(events.JobSpec, *control.Built)
	// finished gets the answer to each report. If it returns true, the step takes the answer as final, and does not report again.
	finished func(error) bool
	// stepFault returns the fault of a step. If stepFault is nil, no step has a fault.
	stepFault func(events.JobSpec) stepFault
	moved     map[string]control.MovedSecret // what the running step encrypts of the stored secrets
	seeds     string                         // of the customer: steps encrypt what they produce; "": the runner has no seed
	envelopes [][]byte                       // the specs of all jobs that started
	refused   []string                       // the jobs whose reports were refused as stale
	sleep     func(time.Duration)
	turn      func() // is called before each request, and can select another control plane; nil: there is one
}

// stepFault is a fault of a step.
type stepFault int

const (
	none       stepFault = iota
	fails                // the tool fails
	unsaved              // the tool fails and cannot save its state
	killed               // the tool is killed in the middle of its work
	diesBefore           // the step is killed before its tool changed anything
	diesAfter            // the step is killed after its tool changed everything
	vanishes             // the host fails after its tool changed everything; the control plane gets no report of the failure
)

func newPlane(t *testing.T, e engine.Engine) *plane {
	t.Helper()
	return newPlaneAt(t, e, time.Now, time.Sleep)
}

// newPlaneAt is newPlane with another clock. Tests need it for engines with real input and
// output, because the time of a bubble stops while a test waits for real input and output.
func newPlaneAt(t *testing.T, e engine.Engine, now func() time.Time, sleep func(time.Duration)) *plane {
	t.Helper()
	return newPlaneOf(t, e, now, sleep, control.NewRunner{Name: "local", Storage: "http"})
}

// newPlaneOf is newPlaneAt with another runner, which has the name local too.
func newPlaneOf(t *testing.T, e engine.Engine, now func() time.Time, sleep func(time.Duration), runner control.NewRunner) *plane {
	t.Helper()
	ctx := t.Context()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{sleep: sleep, t: t, ctx: ctx, pub: key.Public().(ed25519.PublicKey), cloud: map[string]string{}, plans: map[string]string{}}
	p.Control = control.New(control.Deps{
		Store: store.New(e), Queue: memory.New(now, 5), Log: joblogtest.Memory(), Blobs: blobtest.Memory(),
		Sealer: seal.NewKeyring(seal.GenerateKey()), Signer: events.NewSigner(key),
		Minter: identity.NewMinter(make([]byte, identity.MinKey)), IDs: fairlead.RandomIDs(now), Now: now,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	p.must("make the runner", func() error { return p.EnsureRunner(ctx, org, runner) })
	p.enrol()
	return p
}

// enrol enrols a new agent at the runner local, and opens its session.
func (p *plane) enrol() { p.enrolAt("local") }

// enrolAt enrols a new agent at the given runner, and opens its session.
func (p *plane) enrolAt(runner string) { p.enrolAs(runner, "test") }

// enrolAs is enrolAt for an agent with the given instance name.
func (p *plane) enrolAs(runner, instance string) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	var token string
	p.must("make an enrolment", func() (err error) { token, _, err = p.CreateEnrolment(p.ctx, me, runner); return })
	var r control.Runner
	p.must("enrol", func() (err error) { r, err = p.Enrol(p.ctx, token, pub); return })
	p.must("open a session", func() error {
		nonce := p.NewChallenge()
		opened, err := p.OpenSession(p.ctx, control.SessionProof{Runner: r.ID, Nonce: nonce, PublicKey: pub,
			Statement: []byte(nonce), Signature: ed25519.Sign(key, []byte(nonce)), Instance: instance, Capacity: 4})
		p.session = opened.Session
		return err
	})
}

// must calls fn, and repeats the call after a temporary error, as a client does. It fails
// the test after any other error.
func (p *plane) must(what string, fn func() error) {
	p.t.Helper()
	if err := p.try(fn); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

func (p *plane) try(fn func() error) error {
	var err error
	for range 8 { // a real step tries for much longer
		if p.turn != nil {
			p.turn()
		}
		err = fn()
		if k := fairlead.KindOf(err); err == nil || k != fairlead.KindUnavailable && k != fairlead.KindInternal || errors.Is(err, control.ErrNoWork) {
			return err
		}
	}
	return err
}

// shop is an app whose graph is a diamond: database and cache depend on network, and web
// depends on database and cache.
const shop = `fairlead: v1
name: shop
inputs:
  size: {type: number, default: 2}
  password: {type: string, sensitive: true, required: true}
components:
  network: {type: terraform, source: ./network, vars: {size: "${inputs.size}"}}
  database:
    type: terraform
    source: ./database
    vars: {net: "${components.network.outputs.id}", password: "${inputs.password}"}
  cache: {type: terraform, source: ./cache, vars: {net: "${components.network.outputs.id}"}}
  web:
    type: terraform
    source: ./web
    vars: {db: "${components.database.outputs.secret}", cache: "${components.cache.outputs.id}"}
`

func (p *plane) publish(src string) control.Version {
	p.t.Helper()
	return p.publishAs(src, "")
}

// publishAs publishes a version with a name.
func (p *plane) publishAs(src, as string) control.Version {
	p.t.Helper()
	var v control.Version
	p.must("publish", func() (err error) { v, err = p.tryPublishAs(src, as); return })
	return v
}

func (p *plane) tryPublishAs(src, as string) (control.Version, error) {
	p.t.Helper()
	app, problems := appspec.Parse("app.yaml", []byte(src))
	if problems != nil {
		p.t.Fatal(problems)
	}
	canonical, err := app.Canonical()
	if err != nil {
		p.t.Fatal(err)
	}
	artifacts := map[string]string{}
	for _, c := range app.Parts() {
		artifacts[c.Name] = fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(c.Name)))
	}
	return p.Publish(p.ctx, org, app.Name, control.NewVersion{Config: canonical, Artifacts: artifacts, Name: as})
}

// secretPassword returns the inputs of an install of the app shop.
func secretPassword() map[string]json.RawMessage {
	return map[string]json.RawMessage{"password": json.RawMessage(`"hunter2-hunter2"`)}
}

func (p *plane) install(name string) {
	p.t.Helper()
	key := "create-" + name
	p.must("create install", func() error {
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: name, App: "shop",
			Inputs: secretPassword()}, key)
		return err
	})
}

func (p *plane) deploy(install string, in control.NewDeployment, key string) fairlead.DeploymentID {
	p.t.Helper()
	if in.Kind == "" {
		in.Kind = deployment.Deploy
	}
	var d control.Deployment
	p.must("deploy", func() (err error) { d, err = p.CreateDeployment(p.ctx, org, install, in, key); return })
	return d.ID
}

func (p *plane) deployment(id fairlead.DeploymentID) control.Deployment {
	p.t.Helper()
	var d control.Deployment
	p.must("read deployment", func() (err error) { d, err = p.Deployment(p.ctx, org, id); return })
	return d
}

// work runs jobs until no job is queued and no job waits for a retry.
func (p *plane) work() {
	p.t.Helper()
	for idle := 0; idle < 3; {
		var c control.Claim
		err := p.try(func() (err error) { c, err = p.Claim(p.ctx, p.session, 0); return })
		if errors.Is(err, control.ErrNoWork) {
			// After a minute, retries are due and the leases of dead steps have expired.
			idle++
			p.sleep(time.Minute)
			p.must("sweep", func() error { _, err := p.Sweep(p.ctx); return err })
			continue
		}
		if err != nil {
			p.t.Fatalf("claim: %v", err)
		}
		idle = 0
		p.step(c)
	}
}

// step runs one job as a step does.
func (p *plane) step(c control.Claim) {
	p.t.Helper()
	h := control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}
	var started control.Started
	err := p.try(func() (err error) {
		started, err = p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234", events.FieldVersion, events.FieldProvenance, events.FieldMove)
		return
	})
	if fairlead.KindOf(err) == fairlead.KindStale {
		return // the job was canceled after its claim and before its start
	}
	if err != nil {
		p.t.Fatalf("start job %s: %v", c.ID, err)
	}
	spec, err := events.Verify(p.ctx, started.Envelope, []ed25519.PublicKey{p.pub}, events.Expect{Runner: p.session.Runner,
		Install: c.InstallName, Job: c.ID, Epoch: c.Lease.Epoch, Operation: string(c.Operation), Operations: []string{string(c.Operation)}, Image: c.Image}, p.Now())
	if err != nil {
		p.t.Fatalf("spec of job %s: %v", c.ID, err)
	}
	p.resolve(h, started, &spec)
	what := none
	if p.stepFault != nil {
		what = p.stepFault(spec)
	}
	if what == diesBefore {
		p.died(h)
		return
	}
	rep := p.tool(spec, what == fails || what == unsaved || what == killed)
	switch what {
	case unsaved:
		rep.Reason = "state-unsaved"
	case killed:
		rep.Reason, rep.Mutated = "tool-killed", true
	case diesAfter:
		p.died(h)
		return
	case vanishes:
		return
	}
	line := []byte("tool: " + spec.Operation + "\n")
	p.must("append log", func() error { _, err := p.AppendLog(p.ctx, h, 0, line); return err })
	rep.LogSize, rep.LogCRC32 = int64(len(line)), crc32.ChecksumIEEE(line)
	rep.Moved = p.moved
	if p.moved != nil {
		rep.Key = p.keys(spec.Install).Current().Public().String()
	}
	err = p.try(func() error { return p.FinishJob(p.ctx, h, rep) })
	if fairlead.KindOf(err) == fairlead.KindStale {
		p.refused = append(p.refused, string(c.ID))
		return
	}
	if p.finished != nil && p.finished(err) {
		p.died(h)
		return
	}
	if err != nil {
		p.t.Fatalf("finish job %s: %v", c.ID, err)
	}
}

func (p *plane) died(h control.Holder) {
	p.t.Helper()
	p.must("report death", func() error {
		err := p.ReportDeath(p.ctx, p.session, h.Job, control.Death{Epoch: h.Epoch, Cause: "killed", Signal: "killed"})
		if fairlead.KindOf(err) == fairlead.KindStale {
			return nil // an earlier request succeeded
		}
		return err
	})
}

// statement returns the statement of a build, as its step makes it.
func (p *plane) statement(spec events.JobSpec, built control.Built) []byte {
	p.t.Helper()
	b, err := events.Provenance{Build: *spec.Build, Artifact: built.Artifact, Revision: built.Revision, Runner: spec.Runner, RunnerVersion: "v1.2.3", Job: spec.Job,
		Started: p.Now(), Finished: p.Now()}.Statement()
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// tool is a model of OpenTofu. Its plan compares the cloud with the variables. Its apply of
// a saved plan changes the cloud.
func (p *plane) tool(spec events.JobSpec, fail bool) control.Report {
	p.t.Helper()
	if fail {
		return control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Message: "it did not work"}
	}
	rep := control.Report{Outcome: control.OutcomeSucceeded}
	switch spec.Operation {
	case "build":
		built := control.Built{Artifact: fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(spec.Build.From.Ref+spec.Build.Source))), Revision: fmt.Sprintf("%040x", crc32.ChecksumIEEE([]byte(spec.Build.From.Ref)))}
		if spec.Build.From.Kind == events.OriginFolder {
			built.Revision = spec.Build.From.Ref
		}
		if i := spec.Build.Image; i != nil {
			built.Artifact = fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE(fmt.Append(nil, spec.Build.From.Ref, *i)))
		}
		built.Statement = p.statement(spec, built)
		if p.rebuilt != nil {
			p.rebuilt(spec, &built)
		}
		rep.Built = &built
	case "plan", "plan-destroy":
		want := ""
		if spec.Operation == "plan" {
			b, err := json.Marshal(spec.Vars)
			if err != nil {
				p.t.Fatal(err)
			}
			want = string(b)
		}
		digest := fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(spec.Component+want+string(spec.Job))))
		p.plans[digest] = want
		rep.Plan = &control.Plan{Digest: digest, NoOp: p.cloud[spec.Component] == want, Changes: deployment.Changes{Add: 1}}
	case "plan-run":
		b, err := json.Marshal(spec.Vars)
		if err != nil {
			p.t.Fatal(err)
		}
		digest := fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(spec.Component+string(b)+string(spec.Job))))
		p.plans[digest] = string(b)
		return control.Report{Outcome: control.OutcomeSucceeded, Plan: &control.Plan{Digest: digest, Changes: deployment.Changes{Run: 1}}}
	case "run":
		if _, ok := p.plans[spec.Plan.Digest]; !ok {
			p.t.Fatalf("job %s runs a plan %s that was never made", spec.Job, spec.Plan.Digest)
		}
		delete(p.plans, spec.Plan.Digest)
		p.applied = append(p.applied, "run "+spec.Component)
		rep.Mutated = true
	case "apply", "destroy":
		want, ok := p.plans[spec.Plan.Digest]
		if !ok {
			p.t.Fatalf("job %s applies a plan %s that was never made", spec.Job, spec.Plan.Digest)
		}
		delete(p.plans, spec.Plan.Digest) // a saved plan of a real tool cannot be applied twice, because the first apply changes the state
		p.applied = append(p.applied, spec.Operation+" "+spec.Component)
		if p.cloud[spec.Component] = want; want == "" {
			delete(p.cloud, spec.Component)
		}
	}
	if p.cloud[spec.Component] != "" && spec.Operation != "plan-destroy" {
		rep.Outputs = map[string]control.Output{
			"id":     {Value: json.RawMessage(`"id-of-` + spec.Component + `"`)},
			"secret": {Value: json.RawMessage(`"secret-of-` + spec.Component + `"`), Sensitive: true},
		}
		maps.Copy(rep.Outputs, p.outputs[spec.Component])
		p.encrypt(spec, rep.Outputs)
	}
	if rep.Plan != nil && spec.Plugin == "script" { // a script's plan does not read the cloud
		rep.Plan.NoOp = spec.Applied != nil && len(spec.Applied.Changed(spec.Artifact.Digest, spec.Vars)) == 0
		rep.Plan.Changes, rep.Outputs = deployment.Changes{Run: 1}, nil
	}
	return rep
}

// nodes returns a deployment's components with their states, as text.
func nodes(d control.Deployment) string {
	var out []string
	for _, n := range d.Nodes {
		out = append(out, n.Component+"="+string(n.State))
	}
	return strings.Join(out, " ")
}
