package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

const dockerRunner = `runner_configuration:
  type: docker
  job:
    registry: {username: me, password: canary-password}
    image: r.example/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    environment: {COLOUR: file, ONLY: runner}
    proxy: {https_proxy: "http://proxy.example:3128"}
    endpoint: https://inside.example
state_storage_configuration: {type: http}
`

// An update of a runner's configuration keeps the password in the configuration, if the
// update does not change it. The password is in no record and in no answer in clear text.
func TestRunnerSecretsAreSealedAndMasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &recorder{MemoryEngine: enginetest.Memory()}
		p := newPlane(t, e)
		by := control.User{Org: org}
		p.runner("build", control.RunnerFile{Text: dockerRunner})
		read := func() string {
			r, err := p.Runner(p.ctx, org, "build")
			if err != nil {
				t.Fatal(err)
			}
			return string(r.Config)
		}
		change := func(text string) {
			t.Helper()
			if _, err := p.UpdateRunner(p.ctx, by, "build", control.RunnerFile{Text: text}); err != nil {
				t.Fatal(err)
			}
		}
		masked := func(when string) {
			t.Helper()
			if got := read(); !strings.Contains(got, `"password":"`+runnerspec.Masked+`"`) || strings.Contains(got, "canary") {
				t.Errorf("%s: the configuration is %s", when, got)
			}
		}
		masked("at first")
		change(read()) // a client can read the configuration with the masked password and send it back
		masked("unchanged")
		change(`{"runner_configuration":{"job":{"registry":{"username":"you"}}}}`)
		masked("with another user")
		change(`{"runner_configuration":{"job":{"registry":{"password":"second-canary"}}}}`)
		masked("with another password")
		change(`{"runner_configuration":{"job":{"registry":null}}}`)
		if got := read(); strings.Contains(got, "registry") {
			t.Errorf("without a registry the configuration is %s", got)
		}
		for _, body := range e.bodies {
			if strings.Contains(body, "canary") {
				t.Errorf("a password is in the table: %.200s", body)
			}
		}
	})
}

// The test creates and updates each runner kind with each state storage. The control plane
// refuses pairs that do not work together.
func TestIncompatibleStorageIsRefused(t *testing.T) {
	kinds := map[runnerspec.Kind]string{
		runnerspec.AWSECS: `{type: aws-ecs, job: {region: eu-west-1, cluster: c, subnets: [subnet-0123456789abcdef0], execution_role_arn: "arn:aws:iam::123456789012:role/e",
			image: "r.example/r@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}`,
	}
	storages := map[runnerspec.StorageKind]string{
		runnerspec.S3State: "{type: s3, bucket: states, region: eu-west-1}", runnerspec.GCSState: "{type: gcs, bucket: states}",
		runnerspec.AzureState:      "{type: azurerm, storage_account_name: states, container_name: states}",
		runnerspec.KubernetesState: "{type: kubernetes, namespace: states}",
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		tried := 0
		for _, k := range runnerspec.Kinds() {
			runner := kinds[k]
			if runner == "" {
				runner = fmt.Sprintf("{type: %s}", k)
			}
			p.runner("of-"+string(k), control.RunnerFile{Text: "runner_configuration: " + runner + "\nstate_storage_configuration: {type: http}\n"})
			for _, s := range runnerspec.StorageKinds() {
				storage := storages[s]
				if storage == "" {
					storage = fmt.Sprintf("{type: %s}", s)
				}
				storage = "state_storage_configuration: " + storage + "\n"
				ok, _ := runnerspec.Compatible(k, s)
				_, created := p.CreateRunner(p.ctx, org, control.NewRunner{Name: fmt.Sprintf("%s-on-%s", k, s), File: control.RunnerFile{Text: "runner_configuration: " + runner + "\n" + storage}}, "")
				_, updated := p.UpdateRunner(p.ctx, control.User{Org: org}, "of-"+string(k), control.RunnerFile{Text: storage})
				for what, err := range map[string]error{"created": created, "updated": updated} {
					tried++
					if (err == nil) != ok || err != nil && !strings.Contains(fmt.Sprint(problemsOf(err)), "incompatible-storage") {
						t.Errorf("%s with state in %s is %s: %v %v", k, s, what, err, problemsOf(err))
					}
				}
			}
		}
		if tried != 7*6*2 {
			t.Errorf("%d requests were made", tried)
		}
	})
}

// A job has the variables of all its scopes. If several scopes have a variable of the same
// name, the nearest scope applies. Sensitive values are separate from the other values, and
// in no record in clear text. Fairlead sets some variables itself.
func TestAJobHasTheVariablesOfAllItsScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &recorder{MemoryEngine: enginetest.Memory()}
		p := newPlane(t, e)
		by := control.User{Org: org}
		p.publish(shop)
		p.group("a")
		p.group("a/b")
		if _, err := p.UpdateRunner(p.ctx, by, "local", control.RunnerFile{Set: []string{"runner_configuration.job.environment.COLOUR=file",
			"runner_configuration.job.environment.FILE=file", "runner_configuration.job.proxy.no_proxy=.example", "runner_configuration.job.endpoint=https://inside.example", "runner_configuration.job.timeout=90s"}}); err != nil {
			t.Fatal(err)
		}
		p.placedIn("one", "a/b", nil)
		set := func(of control.VariableScope, name, value string, sensitive bool) {
			t.Helper()
			if _, err := p.SetVariables(p.ctx, by, of, map[string]*control.Variable{name: {Value: value, Sensitive: sensitive}}); err != nil {
				t.Fatal(err)
			}
		}
		scopes := []control.VariableScope{{Runner: "local"}, {Group: "/"}, {Group: "a"}, {Group: "a/b"}, {App: "shop"}, {Install: "one"}}
		values := []string{"runner", "root", "a", "a/b", "app", "install"}
		for i, of := range scopes {
			set(of, "COLOUR", values[i], false)
			set(of, fmt.Sprint("FROM_", i), values[i], false)
			// This scope and the later scopes set one variable, and the last scope applies.
			for _, later := range scopes[i:] {
				set(later, fmt.Sprint("BEHIND_", i), "canary of "+values[i], i%2 == 0)
			}
		}
		p.deploy("one", control.NewDeployment{}, "d")
		var spec events.JobSpec
		p.stepFault = func(s events.JobSpec) stepFault { spec = s; return none }
		p.work()
		want := map[string]string{
			"COLOUR": "install", "FILE": "file", "no_proxy": ".example", "NO_PROXY": ".example",
			"FAIRLEAD_INSTALL": "one", "FAIRLEAD_GROUP": "a/b", "FAIRLEAD_APP": "shop", "FAIRLEAD_RUNNER": "local", "FAIRLEAD_COMPONENT": "network",
			"FAIRLEAD_JOB": string(spec.Job), "FAIRLEAD_DEPLOYMENT": string(spec.Deployment), "FAIRLEAD_ENDPOINT": "https://inside.example",
			"BEHIND_1": "canary of root", "BEHIND_3": "canary of a/b", "BEHIND_5": "canary of install",
		}
		for i, v := range values {
			want[fmt.Sprint("FROM_", i)] = v
		}
		secret := map[string]string{"BEHIND_0": "canary of runner", "BEHIND_2": "canary of a", "BEHIND_4": "canary of app"}
		if fmt.Sprint(spec.Env) != fmt.Sprint(want) || fmt.Sprint(spec.SecretEnv) != fmt.Sprint(secret) {
			t.Errorf("a job has\n%v\n%v\nwant\n%v\n%v", spec.Env, spec.SecretEnv, want, secret)
		}

		if spec.Timeout != 90 {
			t.Errorf("the job's timeout is %d s, want the runner's 90", spec.Timeout)
		}

		// A variable that was removed is not listed.
		got, err := p.SetVariables(p.ctx, by, control.VariableScope{Install: "one"}, map[string]*control.Variable{"COLOUR": nil})
		if _, there := got["COLOUR"]; there || err != nil {
			t.Errorf("a removed variable is listed: %v, %v", got, err)
		}
		if v := got["BEHIND_4"]; v.Value != "" || !v.Sensitive {
			t.Errorf("a sensitive variable is listed as %+v", v)
		}
		for _, body := range e.bodies {
			for _, v := range secret {
				if strings.Contains(body, `"`+v+`"`) {
					t.Errorf("a sensitive value is in the table: %.200s", body)
				}
			}
		}
	})
}

func TestInvalidVariablesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		many := map[string]*control.Variable{}
		for i := range 101 {
			many[fmt.Sprint("V", i)] = &control.Variable{}
		}
		one := func(name, value string) map[string]*control.Variable {
			return map[string]*control.Variable{name: {Value: value}}
		}
		root := control.VariableScope{Group: "/"}
		for name, row := range map[string]struct {
			of   control.VariableScope
			set  map[string]*control.Variable
			code string
		}{
			"an empty name":                  {root, one("", "x"), "invalid-variable"},
			"a hyphen in the name":           {root, one("a-b", "x"), "invalid-variable"},
			"a digit at the start":           {root, one("1A", "x"), "invalid-variable"},
			"a name of Fairlead":             {root, one("FAIRLEAD_JOB", "x"), "invalid-variable"},
			"a name of a module's input":     {root, one("TF_VAR_size", "x"), "invalid-variable"},
			"a name that the runner refuses": {root, one("TF_WORKSPACE", "x"), "invalid-variable"},
			"a NUL in the value":             {root, one("A", "a\x00b"), "invalid-variable"},
			"a too long value":               {root, one("A", strings.Repeat("x", 16<<10+1)), "invalid-variable"},
			"too many variables":             {root, many, "invalid-variable"},
			"no scope":                       {control.VariableScope{}, one("A", "x"), "invalid-scope"},
			"two scopes":                     {control.VariableScope{App: "a", Group: "/"}, one("A", "x"), "invalid-scope"},
			"an unknown install":             {control.VariableScope{Install: "missing"}, one("A", "x"), "install-not-found"},
			"an unknown group":               {control.VariableScope{Group: "missing"}, one("A", "x"), "group-not-found"},
		} {
			_, err := p.SetVariables(p.ctx, control.User{Org: org}, row.of, row.set)
			expectCode(t, name, err, row.code)
		}
	})
}

// If an earlier release created a runner without a configuration, the runner can be used
// and updated.
func TestRunnerWithoutConfigurationStillWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		r, err := p.Store.Runner(p.ctx, org, "local")
		if err != nil {
			t.Fatal(err)
		}
		in, err := p.Store.Install(p.ctx, org, "acme")
		if err != nil {
			t.Fatal(err)
		}
		r.V = store.Runner{ID: r.V.ID, Org: r.V.Org, Name: r.V.Name, Description: "old", Storage: "http", Created: r.V.Created}
		in.V.Runner, in.V.RunnerID, in.V.Bound = "local", "", nil
		var tx store.Tx
		tx.PutRunner(r)
		tx.PutInstall(in)
		if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
			t.Fatal(err)
		}
		id := p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		p.work()
		if got := p.deployment(id).State; got != "succeeded" {
			t.Errorf("the deployment is %s", got)
		}
		old, err := p.Runner(p.ctx, org, "local")
		if config := old.Config; err != nil || !strings.Contains(string(config), `"description":"old","runner_configuration":{"type":"local"}`) {
			t.Errorf("the configuration is %s, %v", old.Config, err)
		}
		if _, err := p.UpdateRunner(p.ctx, control.User{Org: org}, "local", control.RunnerFile{Set: []string{"description=new"}}); err != nil {
			t.Errorf("the update returns %v", err)
		}
	})
}

func problemsOf(err error) runnerspec.Problems {
	ps, _ := errors.AsType[runnerspec.Problems](err)
	return ps
}

// The agent of a direct runner is beside the control plane. If the control plane has no
// such agent, the runner has a warning. Otherwise its jobs would wait, and no error would
// show the reason.
func TestUnservedRunnerHasWarning(t *testing.T) {
	const text = "runner_configuration: {type: kubernetes, cluster: {server: https://k8s.example, auth: {service_account_token: canary}}, job: {namespace: jobs, service_account: jobs, image: " +
		"r.example/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}}\nstate_storage_configuration: {type: http}\n"
	for _, served := range []bool{false, true} {
		p := newPlane(t, enginetest.Memory())
		p.Direct = served
		made, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: "far", File: control.RunnerFile{Text: text}}, "")
		if err != nil {
			t.Fatal(err)
		}
		changed, err := p.UpdateRunner(p.ctx, control.User{Org: org}, "far", control.RunnerFile{Text: "description: far away\n"})
		if err != nil {
			t.Fatal(err)
		}
		for when, warnings := range map[string][]string{"created": made.Warnings, "changed": changed.Warnings} {
			if warned := strings.Contains(strings.Join(warnings, "\n"), "no agent beside this control plane serves such a runner"); warned == served {
				t.Errorf("served: %t; %s: the warnings are %q", served, when, warnings)
			}
		}
	}
}

// An interrupted deletion leaves a mark on a runner or group. If the runner or group is in
// use, the next deletion removes the mark. Otherwise the runner or group, and the installs
// that use it, could never be changed again.
func TestInterruptedDeletionIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.group("g")
		p.placedIn("acme", "g", nil)
		p.deploy("acme", control.NewDeployment{}, "d") // binds the install to the runner
		r, err := p.Store.Runner(p.ctx, org, "local")
		if err != nil {
			t.Fatal(err)
		}
		g, err := p.Store.Group(p.ctx, org, placement.Path("g"))
		if err != nil {
			t.Fatal(err)
		}
		r.V.Leaving, g.V.Leaving = true, true
		var tx store.Tx
		tx.PutRunner(r)
		tx.PutGroup(g)
		if err := p.Store.Commit(p.ctx, "com_test", &tx); err != nil {
			t.Fatal(err)
		}
		expectCode(t, "the runner's next deletion", p.DeleteRunner(p.ctx, control.User{Org: org}, "local"), "runner-in-use")
		expectCode(t, "the group's next deletion", p.DeleteGroup(p.ctx, org, "g"), "group-not-empty")
		if _, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "next", App: "shop", Runner: "local", Group: "g", Inputs: secretPassword()}, ""); err != nil {
			t.Errorf("the marks were not removed: %v", err)
		}
	})
}
