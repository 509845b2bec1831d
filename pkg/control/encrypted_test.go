package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A runner with a seed reports the key of a new install. From then on a secret input arrives encrypted, and the control plane never
// has it in the clear, also not the one that the app generates.
func TestSecretInputsArriveEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.seeds = seedOfTests
		sealer := &readSealer{Sealer: p.Sealer}
		p.Sealer = sealer
		p.publish(strings.Replace(secretive, "inputs:\n", "inputs:\n  token: {generate: 40, sensitive: true}\n", 1))
		if wanted, err := p.NoteSeed(p.ctx, p.session.Runner, nil); err != nil || len(wanted) > 0 {
			t.Fatalf("the keys of %v are wanted, %v", wanted, err)
		}
		clear := map[string]json.RawMessage{"password": json.RawMessage(`"hunter2-hunter2"`)}
		if _, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local", Inputs: clear}, "clear"); fairlead.CodeOf(err) != fairlead.CodeInputNotEncrypted || strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("a secret in the clear is accepted: %v", err)
		}
		in, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local"}, "acme")
		if err != nil || in.Key != nil || len(in.Inputs) > 0 {
			t.Fatalf("the new install is %+v, %v", in, err)
		}
		if expected, err := p.KeyExpected(p.ctx, org, "acme"); err != nil || !expected {
			t.Fatalf("a key is expected: %t, %v", expected, err)
		}
		// A wake-up ends the wait of an idle agent early, without a job, and the answer to its heartbeat names the install.
		if _, err := p.Claim(p.ctx, p.session, 0); !errors.Is(err, control.ErrNoWork) {
			t.Fatalf("the wake-up is a job: %v", err)
		}
		settings, err := p.AgentSettings(p.ctx, p.session.Runner, "")
		if err != nil || !settings.Seeded || len(settings.KeysWanted) != 1 || settings.KeysWanted[0] != in.ID {
			t.Fatalf("the agent gets %+v, %v", settings, err)
		}
		ring := p.keys(in.ID)
		report := func(id fairlead.InstallID, public string) error {
			return p.ReportKeys(p.ctx, p.session, map[fairlead.InstallID]string{id: public})
		}
		if err := report(in.ID, "flk1_none"); fairlead.CodeOf(err) != fairlead.CodeInvalidInstallKey {
			t.Errorf("a key that is none: %v", err)
		}
		if err := report("ins_other", ring.Current().Public().String()); err != nil {
			t.Errorf("a key that no person wants: %v", err)
		}
		if err := report(in.ID, ring.Current().Public().String()); err != nil {
			t.Fatal(err)
		}
		if expected, err := p.KeyExpected(p.ctx, org, "acme"); err != nil || !expected {
			t.Errorf("for a caller that has read the install before the report, a key is expected: %t, %v", expected, err)
		}
		other, err := installkey.NewRing(strings.Repeat("Other", 10), in.ID)
		if err != nil {
			t.Fatal(err)
		}
		sealed := func(public installkey.Public, name, value string) control.Encrypted {
			e, err := jobvalues.Encrypt(public.Seal, jobvalues.InputPlace(name), []byte(value), nil)
			if err != nil {
				t.Fatal(err)
			}
			return *encrypted(e)
		}
		set := func(name string, e control.Encrypted) error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Encrypted: map[string]control.Encrypted{name: e}})
			return err
		}
		mine := ring.Current().Public()
		number := sealed(mine, "password", "7")
		for name, c := range map[string]struct {
			input string
			value control.Encrypted
			code  fairlead.Code
		}{
			"a value for another key":       {"password", sealed(other.Current().Public(), "password", `"x"`), fairlead.CodeInvalidEncryptedValue},
			"a value in the clear":          {"password", control.Encrypted{Bytes: []byte(`"hunter2"`)}, fairlead.CodeInvalidEncryptedValue},
			"an input for all to see":       {"size", sealed(mine, "size", "3"), fairlead.CodeInvalidEncryptedValue},
			"a value of another type":       {"password", number, fairlead.CodeInvalidInputs},
			"an input that the app has not": {"colour", sealed(mine, "colour", `"x"`), fairlead.CodeInvalidInputs},
		} {
			if err := set(c.input, c.value); fairlead.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		if _, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: clear}); fairlead.CodeOf(err) != fairlead.CodeInputNotEncrypted {
			t.Errorf("a secret in the clear is accepted: %v", err)
		}
		if err := set("password", sealed(mine, "password", `"hunter2-hunter2"`)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, AutoApprove: true}, "too soon"); fairlead.CodeOf(err) != fairlead.CodeInputNotGenerated {
			t.Errorf("the control plane generates a secret: %v", err)
		}
		if err := set("token", sealed(mine, "token", `"generated-by-the-cli"`)); err != nil {
			t.Fatal(err)
		}
		// A sensitive variable of the install arrives encrypted too. The scopes of several installs have no key.
		variable := func(of control.VariableScope, v control.Variable) error {
			_, err := p.SetVariables(p.ctx, control.User{Org: org}, of, map[string]*control.Variable{"API_TOKEN": &v})
			return err
		}
		place := func(public installkey.Public, place, value string) *control.Encrypted {
			e, err := jobvalues.Encrypt(public.Seal, place, []byte(value), nil)
			if err != nil {
				t.Fatal(err)
			}
			return encrypted(e)
		}
		ofInstall, token := control.VariableScope{Install: "acme"}, jobvalues.VariablePlace("API_TOKEN")
		for name, c := range map[string]struct {
			of   control.VariableScope
			v    control.Variable
			code fairlead.Code
		}{
			"a variable in the clear":         {ofInstall, control.Variable{Value: "hunter2-hunter2", Sensitive: true}, fairlead.CodeInputNotEncrypted},
			"a variable for another key":      {ofInstall, control.Variable{Sensitive: true, Encrypted: place(other.Current().Public(), token, `"x"`)}, fairlead.CodeInvalidEncryptedValue},
			"a variable that is no text":      {ofInstall, control.Variable{Sensitive: true, Encrypted: place(mine, token, `7`)}, fairlead.CodeInvalidEncryptedValue},
			"a variable with two values":      {ofInstall, control.Variable{Value: "x", Sensitive: true, Encrypted: place(mine, token, `"x"`)}, fairlead.CodeInvalidEncryptedValue},
			"an encrypted variable of an app": {control.VariableScope{App: "shop"}, control.Variable{Sensitive: true, Encrypted: place(mine, token, `"x"`)}, fairlead.CodeInvalidEncryptedValue},
		} {
			if err := variable(c.of, c.v); fairlead.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		if err := variable(ofInstall, control.Variable{Sensitive: true, Encrypted: place(mine, token, `"variable-of-acme"`)}); err != nil {
			t.Fatal(err)
		}
		if shown, err := p.Variables(p.ctx, control.User{Org: org}, ofInstall); err != nil || shown["API_TOKEN"] != (control.Variable{Sensitive: true}) {
			t.Errorf("the variable is shown as %+v, %v", shown, err)
		}
		got := map[string]string{}
		p.stepFault = func(s events.JobSpec) stepFault {
			b, err := json.Marshal(s.Inputs())
			if err != nil {
				t.Fatal(err)
			}
			got[s.Operation+" "+s.Component] = string(b) + s.SecretEnv["API_TOKEN"]
			return none
		}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
		p.work()
		p.expect(id, deployment.Succeeded, "database=applied web=applied")

		// A sensitive param of a run arrives encrypted too, also that of a retry.
		run := func(in control.NewRun) (control.Deployment, error) {
			in.Action = "backup"
			return p.RunAction(p.ctx, org, "acme", in, "")
		}
		param := func(public installkey.Public, value string) map[string]control.Encrypted {
			return map[string]control.Encrypted{"key": *place(public, "param/key", value)}
		}
		for name, c := range map[string]struct {
			in   control.NewRun
			code fairlead.Code
		}{
			"a param in the clear":         {control.NewRun{Params: map[string]json.RawMessage{"key": json.RawMessage(`"hunter2-hunter2"`)}}, fairlead.CodeInputNotEncrypted},
			"a param for another key":      {control.NewRun{Encrypted: param(other.Current().Public(), `"x"`)}, fairlead.CodeInvalidEncryptedValue},
			"a param of another type":      {control.NewRun{Encrypted: param(mine, `7`)}, fairlead.CodeInvalidParams},
			"a param that does not exist":  {control.NewRun{Encrypted: map[string]control.Encrypted{"kye": *place(mine, "param/kye", `"x"`)}}, fairlead.CodeInvalidEncryptedValue},
			"no value of a required param": {control.NewRun{}, fairlead.CodeInvalidParams},
		} {
			if _, err := run(c.in); fairlead.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
		}
		failed, err := run(control.NewRun{Encrypted: param(mine, `"param-of-the-run"`)})
		if err != nil {
			t.Fatal(err)
		}
		noted := p.stepFault
		p.stepFault = func(events.JobSpec) stepFault { return fails }
		p.work()
		p.stepFault = noted
		if _, err := p.RetryDeployment(p.ctx, org, failed.ID, ""); err != nil {
			t.Fatal(err)
		}
		p.work()
		if !strings.Contains(got["run actions.backup"], "param-of-the-run") {
			t.Errorf("the run of the retry lacks the param: %s", got["run actions.backup"])
		}
		p.deploy("acme", control.NewDeployment{Kind: "teardown", AutoApprove: true}, "down")
		p.work()
		for _, of := range []string{"plan database", "apply database", "apply web", "destroy database", "destroy web"} {
			if !strings.Contains(got[of], "hunter2-hunter2") || !strings.HasSuffix(got[of], "variable-of-acme") {
				t.Errorf("the %s lacks the input or the variable: %s", of, got[of])
			}
		}

		// Another key is shown, and is not used before a person encrypts with it.
		if _, err := p.NoteSeed(p.ctx, p.session.Runner, nil); err != nil {
			t.Fatal(err)
		}
		p.seeds = strings.Repeat("Other", 10) + "\n" + seedOfTests
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "rotated")
		_, h := p.begin()
		p.must("finish", func() error {
			return p.FinishJob(p.ctx, h, control.Report{Outcome: control.OutcomeFailed, Reason: "tool-failed", Message: "no", Key: other.Current().Public().String()})
		})
		p.work()
		shown, err := p.Install(p.ctx, org, "acme")
		if err != nil || shown.Key.Public.String() != mine.String() || shown.Key.Changed == nil || shown.Key.Changed.Public.String() != other.Current().Public().String() {
			t.Fatalf("the keys are %+v, %v", shown.Key, err)
		}
		if err := set("password", sealed(other.Current().Public(), "password", `"new"`)); err != nil {
			t.Fatal(err)
		}
		if shown, err = p.Install(p.ctx, org, "acme"); err != nil || shown.Key.Public.String() != other.Current().Public().String() || shown.Key.Changed != nil {
			t.Errorf("after a person accepted it the keys are %+v, %v", shown.Key, err)
		}
		for _, secret := range []string{"hunter2", "generated-by", "secret-of-", "variable-of-", "param-of-"} {
			if bytes.Contains(sealer.read.Bytes(), []byte(secret)) {
				t.Errorf("the control plane had %s… in the clear", secret)
			}
		}
	})
}

// The runner of a stack reports the keys of all installs that it serves. A person who encrypts with the key of an install whose other
// runner is in the sandbox would make values that the other one cannot open: the deployment failed with values-encrypted.
func TestKeyOfOneOfTwoRunnersIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.seeds = seedOfTests
		p.publish(runnerInSandbox)
		in, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local"}, "acme")
		if err != nil {
			t.Fatal(err)
		}
		wanted, err := p.NoteSeed(p.ctx, p.session.Runner, nil)
		if err != nil || !slices.Contains(wanted, in.ID) {
			t.Fatalf("the keys of %v are wanted, %v", wanted, err)
		}
		if err := p.ReportKeys(p.ctx, p.session, map[fairlead.InstallID]string{in.ID: p.keys(in.ID).Current().Public().String()}); err != nil {
			t.Fatal(err)
		}
		if in, err = p.Install(p.ctx, org, "acme"); err != nil || in.Key != nil {
			t.Errorf("the install has the key %+v, %v", in.Key, err)
		}
		if expected, err := p.KeyExpected(p.ctx, org, "acme"); err != nil || expected {
			t.Errorf("a key is expected: %t, %v", expected, err)
		}
		if wanted, err := p.NoteSeed(p.ctx, p.session.Runner, nil); err != nil || len(wanted) > 0 {
			t.Errorf("the keys of %v are wanted again, %v", wanted, err)
		}
	})
}

// A person who creates an install just after the agent started would send its secrets in the clear, because the agent had not reported
// its seed: it does with its second heartbeat, after it has the runner's configuration.
func TestNewAgentReportsItsSeedBeforeSecretsAreSent(t *testing.T) {
	for _, seed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlane(t, enginetest.Memory())
			p.publish(secretive)
			if _, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local"}, "acme"); err != nil {
				t.Fatal(err)
			}
			expects := func(when string, want bool) {
				t.Helper()
				if got, err := p.KeyExpected(p.ctx, org, "acme"); err != nil || got != want {
					t.Errorf("seed %t, %s: a key is expected: %t, %v", seed, when, got, err)
				}
			}
			expects("the session is open", true)
			beat := func(h control.Heartbeat) {
				t.Helper()
				if err := p.HeartbeatSession(p.ctx, p.session, h); err != nil {
					t.Fatal(err)
				}
				if h.Seed {
					if _, err := p.NoteSeed(p.ctx, p.session.Runner, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			beat(control.Heartbeat{Capacity: 1})
			expects("the agent has no configuration", true)
			beat(control.Heartbeat{Capacity: 1, Configured: true, Seed: seed})
			expects("the agent has the configuration", seed)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(secretive)
		if _, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local"}, "acme"); err != nil {
			t.Fatal(err)
		}
		p.sleep(3 * time.Minute) // an agent of an earlier release reports nothing
		if got, err := p.KeyExpected(p.ctx, org, "acme"); err != nil || got {
			t.Errorf("a key is expected of an agent that reports none: %t, %v", got, err)
		}
	})
}

// The customer makes the seed with the stack. A secret that comes before the runner has reported whether it has one would be one that
// the control plane can read, so it is refused, whichever program sends it.
func TestSecretsWaitForTheStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.publish(strings.Replace(tiny, "components:\n", "inputs:\n  password: {type: string, sensitive: true}\ncomponents:\n", 1))
		set := func() error {
			_, err := s.UpdateInstall(s.ctx, org, "acme", control.InstallChange{Inputs: secretPassword()})
			return err
		}
		variable := func() error {
			_, err := s.SetVariables(s.ctx, control.User{Org: org}, control.VariableScope{Install: "acme"}, map[string]*control.Variable{"API_TOKEN": {Value: "hunter2-hunter2", Sensitive: true}})
			return err
		}
		refused := func(when string) {
			t.Helper()
			for what, err := range map[string]error{"input": set(), "variable": variable()} {
				if fairlead.CodeOf(err) != fairlead.CodeInputNotEncrypted {
					t.Errorf("%s: a sensitive %s in the clear: %v", when, what, err)
				}
			}
		}
		v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
		refused("before the stack is made")
		if expected, err := s.KeyExpected(s.ctx, org, "acme"); err != nil || expected {
			t.Errorf("a person waits for the key of a stack that may be made in a week: %t, %v", expected, err)
		}
		session, err := s.open(firstReport(v))
		if err != nil {
			t.Fatal(err)
		}
		refused("before the runner has reported whether it has a seed")
		s.must("send a heartbeat without a seed", func() error {
			return s.HeartbeatSession(s.ctx, session, control.Heartbeat{Capacity: 4, Configured: true})
		})
		s.must("set a variable on a stack without a seed", variable)
		s.must("set a secret on a stack without a seed", set)
	})
}
