package control_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// resolve fetches the values that the spec names, and resolves its variables, as a step does.
func (p *plane) resolve(h control.Holder, started control.Started, spec *events.JobSpec) {
	p.t.Helper()
	p.envelopes = append(p.envelopes, started.Envelope)
	values := jobvalues.Values{}
	p.moved = nil
	for _, ref := range spec.Values {
		var packed []byte
		p.must("fetch values", func() (err error) { packed, err = p.JobValues(p.ctx, h, ref.Name); return })
		if !ref.Matches(started.LeaseToken, packed) {
			p.t.Errorf("job %s gets other values of %s than its spec names", h.Job, ref.Name)
		}
		if ref.Name == events.ValuesMove {
			p.move(*spec, packed)
			continue
		}
		if err := values.Unpack(ref.Name, packed, ref.Encrypted, p.keys(spec.Install).Open); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := values.Resolve(spec); err != nil {
		p.t.Fatalf("variables of job %s: %v", h.Job, err)
	}
}

// move encrypts the secrets that the control plane sealed, as a step with a seed does.
func (p *plane) move(spec events.JobSpec, packed []byte) {
	p.t.Helper()
	ring := p.keys(spec.Install)
	if ring.IsZero() {
		return
	}
	moved, err := jobvalues.Move(packed, ring.Current().Public().Seal, ring.Current().FingerprintKey())
	if err != nil {
		p.t.Fatal(err)
	}
	p.moved = map[string]control.MovedSecret{}
	for place, m := range moved {
		e := control.Encrypted{Bytes: m.Encrypted, Type: m.Type, Size: m.Size, Fingerprint: m.Fingerprint}
		p.moved[place] = control.MovedSecret{Encrypted: e, Of: m.Of}
	}
}

// secretive is an app in which secrets reach variables, environment variables and the variables of an action.
const secretive = `fairlead: v1
name: shop
inputs:
  size: {type: number, default: 2}
  password: {type: string, sensitive: true, required: true}
components:
  database: {type: terraform, source: ./database, vars: {password: "${inputs.password}", size: "${inputs.size}"}}
  web:
    type: terraform
    source: ./web
    vars: {url: "db://${components.database.outputs.secret}@${install.name}:${inputs.size}", both: ["${inputs.password}", {plain: "${components.database.outputs.id}"}], size: "${inputs.size}"}
    env: {TOKEN: "${components.database.outputs.secret}"}
actions:
  backup:
    type: script
    source: ./backup
    params: {key: {type: string, sensitive: true}}
    vars: {key: "${params.key}", db: "${components.database.outputs.secret}"}
`

// holdsNoSecret deploys the app, runs its action and destroys it. No spec may hold a secret, and each tool must get all.
func holdsNoSecret(p *plane) {
	p.t.Helper()
	p.publish(secretive)
	p.install("acme")
	type got struct{ operation, component, vars string }
	var all []got
	names := map[string][]string{} // by operation and component
	p.stepFault = func(s events.JobSpec) stepFault {
		b, err := json.Marshal(s.Inputs())
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, got{s.Operation, s.Component, string(b)})
		for _, ref := range s.Values {
			names[s.Operation+" "+s.Component] = append(names[s.Operation+" "+s.Component], ref.Name)
		}
		return none
	}
	p.deploy("acme", control.NewDeployment{AutoApprove: true}, "deploy")
	p.work()
	p.must("run", func() error {
		_, err := p.RunAction(p.ctx, org, "acme", control.NewRun{Action: "backup", Params: map[string]json.RawMessage{"key": json.RawMessage(`"k3y-k3y"`)}}, "run")
		return err
	})
	p.work()
	p.deploy("acme", control.NewDeployment{Kind: "teardown", AutoApprove: true}, "down")
	p.work()

	for _, s := range all {
		for _, secret := range map[string][]string{"database": {"hunter2-hunter2"}, "web": {`"db://secret-of-database@acme:2"`, `["hunter2-hunter2",{"plain":"id-of-database"}]`, `"env.TOKEN":{"value":"secret-of-database"`},
			"actions.backup": {"k3y-k3y", "secret-of-database"}}[s.component] {
			if !strings.Contains(s.vars, secret) {
				p.t.Errorf("the %s of %s lacks %s: %s", s.operation, s.component, secret, s.vars)
			}
		}
	}
	want := map[string]string{"plan database": "inputs", "apply database": "last", "plan web": "components.database inputs", "apply web": "last",
		"plan-run actions.backup": "components.database params", "run actions.backup": "components.database params",
		"plan-destroy web": "last", "destroy web": "last", "plan-destroy database": "last", "destroy database": "last"}
	for _, of := range slices.Sorted(maps.Keys(want)) {
		if got := strings.Join(names[of], " "); got != want[of] {
			p.t.Errorf("the spec of %s names the values %q, want %q", of, got, want[of])
		}
	}
	for _, raw := range p.envelopes {
		var e dsse.Envelope
		if err := json.Unmarshal(raw, &e); err != nil {
			p.t.Fatal(err)
		}
		payload, err := base64.StdEncoding.DecodeString(e.Payload)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, secret := range []string{"hunter2", "secret-of", "k3y-k3y"} {
			if strings.Contains(string(payload), secret) {
				p.t.Errorf("the secret %s… is in the spec %s", secret, payload)
			}
		}
	}
}

// The control plane does not open a secret to look for the part to which a reference leads. The spec of the job must be made
// nevertheless, and the step must name the reference.
func TestMissingPartOfASecretIsLeftToTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		app := "fairlead: v1\nname: shop\ninputs: {password: {sensitive: true}}\ncomponents:\n  database: {type: terraform, source: ./database}\n" +
			"  web: {type: terraform, source: ./web, vars: {host: \"${components.database.outputs.connection.host}\"}}\n"
		p.publish(app)
		p.install("acme")
		p.outputs = connection("db.internal", 0)
		p.plannedBy(control.NewDeployment{})
		p.publish(strings.Replace(app, "connection.host", "connection.user", 1))
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "missing")
		c, err := p.Claim(p.ctx, p.session, 0)
		if err != nil || c.Component != "web" {
			t.Fatalf("the next job is of %q: %v", c.Component, err)
		}
		started, err := p.StartJob(p.ctx, c.ID, c.Lease.Epoch, "step-1234")
		if err != nil {
			t.Fatal(err)
		}
		spec, err := events.Verify(p.ctx, started.Envelope, []ed25519.PublicKey{p.pub}, events.Expect{Runner: p.session.Runner,
			Install: c.InstallName, Job: c.ID, Epoch: c.Lease.Epoch, Operation: string(c.Operation), Operations: []string{string(c.Operation)}}, p.Now())
		if err != nil {
			t.Fatal(err)
		}
		packed, err := p.JobValues(p.ctx, control.Holder{Job: c.ID, Epoch: c.Lease.Epoch}, "components.database")
		if err != nil {
			t.Fatal(err)
		}
		values := jobvalues.Values{}
		if err := values.Unpack("components.database", packed, nil, nil); err != nil {
			t.Fatal(err)
		}
		err = values.Resolve(&spec)
		wrong, ok := errors.AsType[*jobvalues.ReferenceError](err)
		if !ok || wrong.Variable != "host" || !strings.Contains(err.Error(), `is a map without "user"`) || strings.Contains(err.Error(), "internal") {
			t.Errorf("the step reports %v", err)
		}
	})
}

func TestNoSpecHoldsASecretOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	holdsNoSecret(newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestNoSpecHoldsASecretOnDynamoDB(t *testing.T) {
	t.Parallel()
	c := newClock()
	holdsNoSecret(newPlaneAt(t, dynamoTable(t, "values"), c.now, c.sleep))
}

// A step gets the values that its own spec names while it has the lease, and no others.
func TestStepGetsOnlyTheValuesOfItsSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(secretive)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		_, h := p.begin() // the plan of database
		if b, err := p.JobValues(p.ctx, h, "inputs"); err != nil || string(b) != `{"password":"hunter2-hunter2"}` {
			t.Errorf("the values are %s: %v", b, err)
		}
		for name, c := range map[string]struct {
			h    control.Holder
			name string
			code fairlead.Code
		}{
			"outputs that its variables do not use": {h, "components.database", fairlead.CodeValuesNotFound},
			"values of the last apply":              {h, "last", fairlead.CodeValuesNotFound},
			"params of an action":                   {h, "params", fairlead.CodeValuesNotFound},
			"a name that no spec has":               {h, "", fairlead.CodeValuesNotFound},
			"another epoch":                         {control.Holder{Job: h.Job, Epoch: h.Epoch + 1}, "inputs", fairlead.CodeStaleEpoch},
			"a job that does not exist":             {control.Holder{Job: "job_none", Epoch: 1}, "inputs", fairlead.CodeJobNotFound},
		} {
			if b, err := p.JobValues(p.ctx, c.h, c.name); fairlead.CodeOf(err) != c.code || b != nil {
				t.Errorf("%s: got %s, %v", name, b, err)
			}
		}
		p.must("fail", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Message: "it did not work"})
		})
		if b, err := p.JobValues(p.ctx, h, "inputs"); fairlead.CodeOf(err) != fairlead.CodeStaleEpoch || b != nil {
			t.Errorf("after its end the job gets %s: %v", b, err)
		}
	})
}
