package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

const seedOfTests = "SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123"

// keys returns the keys of the install, which only the customer's side has.
func (p *plane) keys(id fairlead.InstallID) installkey.Ring {
	p.t.Helper()
	if p.seeds == "" {
		return installkey.Ring{}
	}
	ring, err := installkey.NewRing(p.seeds, id)
	if err != nil {
		p.t.Fatal(err)
	}
	return ring
}

// encrypt encrypts the sensitive outputs of a job, as a step with a seed does.
func (p *plane) encrypt(spec events.JobSpec, outputs map[string]control.Output) {
	p.t.Helper()
	ring := p.keys(spec.Install)
	for name, o := range outputs {
		if ring.IsZero() || !o.Sensitive {
			continue
		}
		e, err := jobvalues.Encrypt(ring.Seal, jobvalues.Place(events.ValuesOutputs+spec.Component, name), o.Value, ring.Current().FingerprintKey())
		if err != nil {
			p.t.Fatal(err)
		}
		outputs[name] = control.Output{Sensitive: true, Encrypted: encrypted(e)}
	}
}

func encrypted(e jobvalues.Secret) *control.Encrypted {
	return &control.Encrypted{Bytes: e.Encrypted, Type: e.Type, Size: e.Size, Fingerprint: e.Fingerprint}
}

// readSealer records what the control plane could read: all that it sealed, and all that it opened.
type readSealer struct {
	seal.Sealer
	read bytes.Buffer
}

func (s *readSealer) Seal(ctx context.Context, value []byte, place string) ([]byte, error) {
	s.read.Write(value)
	return s.Sealer.Seal(ctx, value, place)
}

func (s *readSealer) Open(ctx context.Context, sealed []byte, place string) ([]byte, error) {
	value, err := s.Sealer.Open(ctx, sealed, place)
	s.read.Write(value)
	return value, err
}

const madeBySteps = `fairlead: v1
name: shop
inputs: {size: {type: number, default: 2}}
components:
  database: {type: terraform, source: ./database, vars: {size: "${inputs.size}"}}
  web:
    type: terraform
    source: ./web
    vars: {url: "db://${components.database.outputs.secret}@${install.name}:${inputs.size}", both: ["${components.database.outputs.secret}", {plain: "${components.database.outputs.id}"}]}
    env: {TOKEN: "${components.database.outputs.secret}"}
actions:
  backup: {type: script, source: ./backup, vars: {db: "${components.database.outputs.secret}"}}
`

// A step encrypts the outputs. Each job that uses them gets them, also a destroy long after the outputs were replaced. The
// control plane compares them, and never has one in the clear.
func encryptedOutputs(p *plane) {
	t := p.t
	p.seeds = seedOfTests
	sealer := &readSealer{Sealer: p.Sealer}
	p.Sealer = sealer
	p.publish(madeBySteps)
	p.must("install", func() error {
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local"}, "acme")
		return err
	})
	given := map[string]string{} // by operation and component
	p.stepFault = func(s events.JobSpec) stepFault {
		b, err := json.Marshal(s.Inputs())
		if err != nil {
			t.Fatal(err)
		}
		given[s.Operation+" "+s.Component] = string(b)
		return none
	}
	deploys := func(key, want string) {
		t.Helper()
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, key)
		p.work()
		p.expect(id, deployment.Succeeded, want)
	}
	deploys("first", "database=applied web=applied")
	deploys("again", "database=unchanged web=unchanged")
	p.must("run", func() error {
		_, err := p.RunAction(p.ctx, org, "acme", control.NewRun{Action: "backup"}, "run")
		return err
	})
	p.work()

	// The outputs are encrypted again with other bytes, and are equal: web has no job.
	p.cloud = map[string]string{"web": p.cloud["web"]}
	id := p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true, Targets: []string{"database"}}, "equal")
	p.work()
	p.expect(id, deployment.Succeeded, "database=applied")
	deploys("after equal ones", "database=unchanged web=unchanged")

	shown, err := p.Outputs(p.ctx, org, "acme", true)
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.Install(p.ctx, org, "acme")
	if err != nil {
		t.Fatal(err)
	}
	secret := shown["database"]["secret"]
	if secret.Value != nil || secret.Encrypted == nil {
		t.Fatalf("the control plane shows the output %+v", secret)
	}
	if clear, err := p.keys(in.ID).OpenOwn("output/database/secret", secret.Encrypted.Bytes); err != nil || string(clear) != `"secret-of-database"` {
		t.Errorf("the customer opens %s, %v", clear, err)
	}
	if hidden, err := p.Outputs(p.ctx, org, "acme", false); err != nil || hidden["database"]["secret"].Encrypted != nil {
		t.Errorf("the encrypted value is shown without being asked for: %v", err)
	}

	p.deploy("acme", control.NewDeployment{Kind: "teardown", AutoApprove: true}, "down")
	p.work()
	for _, of := range []string{"plan web", "apply web", "plan-destroy web", "destroy web"} {
		for _, want := range []string{`"db://secret-of-database@acme:2"`, `["secret-of-database",{"plain":"id-of-database"}]`, `"env.TOKEN":{"value":"secret-of-database"`} {
			if !strings.Contains(given[of], want) {
				t.Errorf("the %s lacks %s: %s", of, want, given[of])
			}
		}
	}
	for _, of := range []string{"plan-run actions.backup", "run actions.backup"} {
		if !strings.Contains(given[of], "secret-of-database") {
			t.Errorf("the %s lacks the output: %s", of, given[of])
		}
	}
	if sealer.read.Len() == 0 {
		t.Error("the record of what the control plane reads is empty: the test proves nothing")
	}
	if at := bytes.Index(sealer.read.Bytes(), []byte("secret-of-")); at >= 0 {
		t.Errorf("the control plane had an output in the clear: %.80s", sealer.read.Bytes()[at:])
	}
}

func TestControlPlaneNeverHasEncryptedOutputsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { encryptedOutputs(newPlane(t, enginetest.Memory())) })
}

func TestControlPlaneNeverHasEncryptedOutputsOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	encryptedOutputs(newPlaneAt(t, dynamoTable(t, "encrypted"), c.now, c.sleep))
}

// An output that is too large for a record is encrypted too, and its equal successor has no job.
func TestLargeEncryptedOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.seeds = seedOfTests
		sealer := &readSealer{Sealer: p.Sealer}
		p.Sealer = sealer
		p.publish(madeBySteps)
		p.must("install", func() error {
			_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local"}, "acme")
			return err
		})
		large := json.RawMessage(`"` + strings.Repeat("largesecret", 40_000) + `"`)
		p.outputs = map[string]map[string]control.Output{"database": {"secret": {Value: large, Sensitive: true}, "id": {Value: json.RawMessage(`"` + strings.Repeat("plain", 20_000) + `"`)}}}
		got := ""
		p.stepFault = func(s events.JobSpec) stepFault {
			got = string(s.Vars["url"].Value)
			return none
		}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		p.work()
		p.expect(id, deployment.Succeeded, "database=applied web=applied")
		if !strings.Contains(got, "largesecretlargesecret") || len(got) < len(large) {
			t.Errorf("web got %d bytes", len(got))
		}
		p.cloud = map[string]string{"web": p.cloud["web"]}
		p.deploy("acme", control.NewDeployment{AutoApprove: true, Refresh: true, Targets: []string{"database"}}, "equal")
		p.work()
		again := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "again")
		p.work()
		p.expect(again, deployment.Succeeded, "database=unchanged web=unchanged")
		p.deploy("acme", control.NewDeployment{Kind: "teardown", AutoApprove: true}, "down")
		p.work()
		if !strings.Contains(got, "largesecretlargesecret") && got != "" {
			t.Errorf("the destroy got %.50s", got)
		}
		if bytes.Contains(sealer.read.Bytes(), []byte("largesecret")) || !bytes.Contains(sealer.read.Bytes(), []byte("plainplain")) {
			t.Error("the control plane had a large output in the clear")
		}
	})
}

// A step reports an encrypted output in the format that only the customer's side can open, or not at all.
func TestReportWithABadEncryptedOutputIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.seeds = seedOfTests
		p.publish(shop)
		p.install("acme")
		_, j, h := p.applying("acme")
		good, err := jobvalues.Encrypt(p.keys(j.Install).Seal, "output/database/secret", []byte(`"x"`), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]control.Output{
			"clear bytes":              {Sensitive: true, Encrypted: &control.Encrypted{Bytes: []byte(`"hunter2"`)}},
			"no bytes":                 {Sensitive: true, Encrypted: &control.Encrypted{}},
			"both":                     {Sensitive: true, Value: json.RawMessage(`"hunter2"`), Encrypted: encrypted(good)},
			"an output for all to see": {Encrypted: encrypted(good)},
		} {
			err := p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeSucceeded, Mutated: true, ExitCode: new(int), Outputs: map[string]control.Output{"secret": o}})
			if fairlead.CodeOf(err) != fairlead.CodeInvalidEncryptedValue || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.must("finish", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeSucceeded, Mutated: true, ExitCode: new(int), Outputs: map[string]control.Output{"secret": {Sensitive: true, Encrypted: encrypted(good)}}})
		})
	})
}
