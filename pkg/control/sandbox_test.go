package control_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

const onSandbox = `fairlead: v1
name: shop
inputs: {password: {sensitive: true}}
sandbox: {kind: kubernetes, created_by: network}
components:
  agent: {type: script, source: agent}
  network: {type: terraform, source: network}
  web: {type: script, source: web, vars: {net: "${sandbox.outputs.id}"}}
`

// A component without a reference to the sandbox also waits for it, and the sandbox waits for all when it is destroyed.
func TestSandboxIsAppliedFirstAndDestroyedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(onSandbox)
		p.install("acme")
		for _, kind := range []deployment.Kind{deployment.Deploy, deployment.Teardown} {
			id := p.deploy("acme", control.NewDeployment{Kind: kind, Ask: deployment.AskNever}, "")
			for _, n := range p.deployment(id).Nodes {
				if first := kind == deployment.Deploy == (n.Component == "network"); (len(n.Needs) == 0) != first {
					t.Errorf("%s: component %s needs %q", kind, n.Component, n.Needs)
				}
			}
			p.work()
			if d := p.deployment(id); d.State != deployment.Succeeded {
				t.Fatalf("the %s is %s", kind, d.State)
			}
		}
	})
}

func TestRunnerThatDoesNotFitTheSandboxIsRefused(t *testing.T) {
	for consequence, c := range map[string]struct {
		kind string
		want fairlead.Code
	}{
		"a local runner can run on every sandbox": {"kubernetes", ""},
		"a runner of another platform cannot":     {"aws-eks", "runner-kind-refused"},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				app := strings.Replace(onSandbox, "kind: kubernetes", "kind: "+c.kind, 1)
				if c.want != "" {
					app = strings.Replace(app, "sandbox:", "runner: {kinds: [aws-eks]}\nsandbox:", 1)
				}
				p.publish(app)
				_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "shop", Runner: "local", Inputs: secretPassword()}, "")
				expectCode(t, "the install", err, c.want)
			})
		})
	}
}

// In the sandbox, another runner runs the jobs.
const runnerInSandbox = `fairlead: v1
name: shop
inputs: {password: {sensitive: true}}
sandbox:
  kind: kubernetes
  created_by: network
  runner:
    deployed_by: agent
    configuration:
      runner_configuration: {type: kubernetes, job: {namespace: "${install.name}-jobs"}}
      state_storage_configuration: {type: kubernetes, namespace: "${install.name}-jobs"}
    trust:
      issuer: "https://${sandbox.outputs.id}.example.com"
      claims: {sub: "system:serviceaccount:fairlead:agent"}
components:
  agent:
    type: helm
    source: agent
    vars: {runner: "${install.runner_id}", url: "${install.control_plane}", keys: "${install.trusted_keys}"}
  network: {type: terraform, source: network}
  secrets: {type: manifest, source: secrets, depends_on: [network]}
  web: {type: terraform, source: web, vars: {net: "${sandbox.outputs.id}"}}
`

func newSandboxPlane(t *testing.T) *plane {
	p := newPlane(t, enginetest.Memory())
	p.AgentURL = "https://fairlead.example.com"
	return p
}

// workOn is work on several runners in turn.
func (p *plane) workOn(runners ...string) {
	p.t.Helper()
	for range runners {
		for _, r := range runners {
			p.enrolAs(r, "test-"+r)
			p.work()
		}
	}
}

// The install's runner creates the sandbox and deploys the runner there, which runs all other jobs. A teardown goes back the
// same way.
func TestRunnerInSandboxRunsWhatIsInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(runnerInSandbox)
		p.install("acme")
		if _, err := p.Runner(p.ctx, org, "acme-agent"); fairlead.CodeOf(err) != "runner-not-found" {
			t.Fatalf("the runner in the sandbox exists before the sandbox: %v", err)
		}
		id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		r, err := p.Runner(p.ctx, org, "acme-agent")
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != "kubernetes" || r.Storage != "kubernetes" || !strings.Contains(string(r.Config), `"namespace":"acme-jobs"`) {
			t.Errorf("the runner in the sandbox is %+v", r)
		}
		trust, err := p.Store.Trust(p.ctx, r.ID, "sandbox")
		if rule := trust.V.Rule; err != nil || !strings.HasSuffix(rule.Issuer, ".example.com") || strings.Contains(rule.Issuer, "$") || rule.Audience != "https://fairlead.example.com" {
			t.Errorf("the trust is %+v, %v", trust, err)
		}
		p.ranOn(id, map[string]string{"network": "local", "agent": "local", "secrets": "acme-agent", "web": "acme-agent"})
		p.workOn("acme-agent", "local")
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Fatalf("the deployment is %s", d.State)
		}
		if err := p.DeleteRunner(p.ctx, me, "acme-agent"); fairlead.CodeOf(err) != "runner-in-use" {
			t.Errorf("the runner of a sandbox is deleted: %v", err)
		}

		again := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		if d := p.deployment(again); d.State != deployment.Succeeded || jobs(d) > 0 {
			t.Errorf("an unchanged deployment is %s and has %d jobs", d.State, jobs(d))
		}

		down := p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever}, "")
		p.workOn("acme-agent", "local")
		if d := p.deployment(down); d.State != deployment.Succeeded {
			t.Fatalf("the teardown is %s", d.State)
		}
		p.ranOn(down, map[string]string{"network": "local", "agent": "local", "secrets": "acme-agent", "web": "acme-agent"})
		p.must("forget", func() error { return p.ForgetInstall(p.ctx, org, "acme", false) })
		if _, err := p.Runner(p.ctx, org, "acme-agent"); fairlead.CodeOf(err) != "runner-not-found" {
			t.Errorf("the runner in the sandbox outlives its install: %v", err)
		}
	})
}

// jobs returns how many jobs a deployment has.
func jobs(d control.Deployment) (n int) {
	for _, node := range d.Nodes {
		if node.PlanJob != "" {
			n++
		}
	}
	return n
}

// ranOn compares on which runner the first job of each component is; "": it has none.
func (p *plane) ranOn(id fairlead.DeploymentID, want map[string]string) {
	p.t.Helper()
	for _, n := range p.deployment(id).Nodes {
		if n.PlanJob == "" || want[n.Component] == "" {
			if n.PlanJob != "" || want[n.Component] != "" {
				p.t.Errorf("component %s has the job %q: %s %s", n.Component, n.PlanJob, n.State, n.Message)
			}
			continue
		}
		j, err := p.Job(p.ctx, org, n.PlanJob)
		if err != nil {
			p.t.Fatal(err)
		}
		if j.RunnerName != want[n.Component] {
			p.t.Errorf("the plan of component %s is a job of runner %s, want %s", n.Component, j.RunnerName, want[n.Component])
		}
	}
}

// A component that exists stays with the runner that made it, because its state is in that runner's storage.
func TestComponentStaysWithTheRunnerThatMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(strings.Replace(onSandbox, "agent: {type: script, source: agent}\n  ", "", 1))
		p.install("acme")
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		p.publish(strings.NewReplacer("web: {type: terraform", "web: {type: script", `"${sandbox.outputs.id}"}}`, `"${sandbox.outputs.id}", more: 1}}`).Replace(runnerInSandbox))
		id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		p.workOn("acme-agent", "local")
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Fatalf("the deployment is %s: %+v", d.State, d.Nodes)
		}
		p.ranOn(id, map[string]string{"network": "", "agent": "local", "secrets": "acme-agent", "web": "local"})
	})
}

func TestSandboxRunnerIsMadeOnlyByAnApplyingDeployment(t *testing.T) {
	const configured = "state_storage_configuration: {type: kubernetes, namespace: \"${install.name}-jobs\"}"
	for consequence, c := range map[string]struct {
		edit, by string
		plan     bool
		made     bool
		reason   fairlead.Reason
	}{
		"a plan makes no runner":                      {plan: true, reason: "needs-outputs"},
		"a configuration with a mistake is a failure": {edit: configured, by: "state_storage_configuration: {type: local}", reason: "invalid-runner"},
		"a trust with a mistake is a failure":         {edit: "https://${sandbox.outputs.id}", by: "ftp://${sandbox.outputs.id}", reason: "invalid-oidc-trust"},
		"an output that does not exist is a failure":  {edit: "${sandbox.outputs.id}.example", by: "${sandbox.outputs.no}.example", reason: "needs-outputs"},
		"a secret in it is a failure":                 {edit: "https://${sandbox.outputs.id}", by: "https://${sandbox.outputs.secret}", reason: "invalid-runner"},
	} {
		t.Run(consequence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newSandboxPlane(t)
				p.publish(strings.Replace(runnerInSandbox, c.edit, c.by, 1))
				p.install("acme")
				id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever, PlanOnly: c.plan}, "")
				p.work()
				d := p.deployment(id)
				if n := d.Node("agent"); n.Reason != c.reason || n.PlanJob != "" {
					t.Errorf("the component agent is %s, %s: %s", n.State, n.Reason, n.Message)
				}
				if _, err := p.Runner(p.ctx, org, "acme-agent"); fairlead.CodeOf(err) != "runner-not-found" {
					t.Errorf("a runner was made: %v", err)
				}
			})
		})
	}
}

// The first plan of an app with a runner in its sandbox has no runner for the components in it. The report of the plan before them
// was refused, so its job ran again until its attempts were used up.
func TestPlanWithoutTheRunnerInTheSandboxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(strings.NewReplacer("${sandbox.outputs.id}.", "cluster.", `"${sandbox.outputs.id}"`, `"10.0.0.0"`, "${install.runner_id}", "agent").Replace(runnerInSandbox))
		p.install("acme")
		id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever, PlanOnly: true}, "")
		p.work()
		p.expect(id, deployment.Succeeded, "network=planned agent=planned secrets=skipped web=skipped")
		const want = "not planned: needs the runner in the sandbox, which component agent deploys"
		d := p.deployment(id)
		if n := d.Node("web"); n.Reason != "needs-outputs" || n.Message != want || n.PlanJob != "" {
			t.Errorf("the component web is %s, %s: %s, want %s", n.State, n.Reason, n.Message, want)
		}
	})
}

// A deployment made the runner in the sandbox, and failed before the runner had an agent. The plan after it waited forever for that agent.
func TestPlanWithoutTheAgentInTheSandboxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(strings.NewReplacer("${sandbox.outputs.id}.", "cluster.", `"${sandbox.outputs.id}"`, `"10.0.0.0"`).Replace(runnerInSandbox))
		p.install("acme")
		failed := p.deploy("acme", control.NewDeployment{Ask: deployment.AskAlways}, "")
		p.work()
		p.approve(failed)
		p.work()
		if _, err := p.Runner(p.ctx, org, "acme-agent"); err != nil {
			t.Fatalf("the deployment made no runner: %v", err)
		}
		if _, err := p.CancelDeployment(p.ctx, org, failed); err != nil {
			t.Fatal(err)
		}
		p.work()
		id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever, PlanOnly: true}, "")
		p.work()
		p.expect(id, deployment.Succeeded, "network=unchanged agent=planned secrets=skipped web=skipped")
	})
}

// No rule places another install on the runner in a sandbox, and no install can name it.
func TestSandboxRunnerServesNoOtherInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(runnerInSandbox)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "other", App: "shop", Runner: "acme-agent", Inputs: secretPassword()}, "")
		expectCode(t, "an install that names it", err, "runner-out-of-reach")
		p.install("other")
		got, err := p.ExplainInstall(p.ctx, org, "other")
		if err != nil {
			t.Fatal(err)
		}
		if got.Serves == nil || got.Serves.Name != "local" {
			t.Errorf("the other install is served by %+v", got.Serves)
		}
	})
}

// deployedInSandbox returns a control plane with the install acme, deployed with its runner in the sandbox.
func deployedInSandbox(t *testing.T) *plane {
	p := newSandboxPlane(t)
	p.publish(runnerInSandbox)
	p.install("acme")
	id := p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
	p.work()
	p.workOn("acme-agent", "local")
	if d := p.deployment(id); d.State != deployment.Succeeded {
		t.Fatalf("the deployment is %s", d.State)
	}
	return p
}

// The runners outside and inside the sandbox have different environment variables. A change of one side is no change of the other.
func TestEachSideOfSandboxHasItsOwnEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := deployedInSandbox(t)
		p.wantUndeployed("acme", "after the deployment", "")
		set := func(runner string) {
			p.must("set a variable", func() error {
				return errOf(p.SetVariables(p.ctx, me, control.VariableScope{Runner: runner}, map[string]*control.Variable{"REGION": {Value: "eu"}}))
			})
		}
		set("acme-agent")
		p.wantUndeployed("acme", "after a change in the sandbox", "secrets environment; web environment")
		set("local")
		p.wantUndeployed("acme", "after a change outside", "agent environment; network environment; secrets environment; web environment")
	})
}

// Before the first deployment, what the runner in the sandbox will have is unknown, and that is no problem.
func TestFactsOfSandboxRunnerAreKnownLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(runnerInSandbox)
		p.install("acme")
		r, err := p.Render(p.ctx, org, "acme", "", "agent")
		if err != nil {
			t.Fatal(err)
		}
		vars := r.Components[0].Vars
		if got := vars["runner"]; got.Problem != "" || got.Value != "(known after the sandbox)" {
			t.Errorf("the identifier of the runner is shown as %+v", got)
		}
		if got := vars["url"]; got.Value != "https://fairlead.example.com" {
			t.Errorf("the URL of the control plane is shown as %+v", got)
		}
		p.effective("acme")
	})
}

// An install cannot name the runner in its own sandbox, which would then destroy what it runs on. Nothing is built there.
func TestSandboxRunnerDoesOnlyWhatIsInTheSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(strings.Replace(runnerInSandbox, "{type: kubernetes, job:", "{type: kubernetes, builds: true, job:", 1))
		p.install("acme")
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		p.workOn("acme-agent", "local")
		name := "acme-agent"
		_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Runner: &name})
		expectCode(t, "an install that names the runner in its sandbox", err, "runner-out-of-reach")
		const built = "fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: web, git: {url: \"https://example.com/a.git\", ref: main}}\n"
		_, err = p.BuildApp(p.ctx, org, "shop", p.canonical(built), nil, "")
		expectCode(t, "a build", err, "no-build-runner")
	})
}

// A version without the runner in the sandbox cannot be deployed while components there exist: no runner would run their jobs.
func TestVersionCannotDropTheRunnerOfItsComponents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := deployedInSandbox(t)
		without := runnerInSandbox[:strings.Index(runnerInSandbox, "  runner:\n")] + runnerInSandbox[strings.Index(runnerInSandbox, "components:\n"):]
		without = strings.Replace(without, without[strings.Index(without, "  agent:\n"):strings.Index(without, "  network:")], "", 1)
		p.publish(without)
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy}, "")
		expectCode(t, "a deployment", err, "sandbox-runner-missing")
		id := p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever}, "")
		p.workOn("acme-agent", "local")
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Fatalf("the teardown is %s", d.State)
		}
		id = p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.workOn("local")
		if d := p.deployment(id); d.State != deployment.Succeeded {
			t.Errorf("the deployment after the teardown is %s", d.State)
		}
		p.ranOn(id, map[string]string{"network": "local", "secrets": "local", "web": "local"})
	})
}

// An action after the destroy of a component in the sandbox runs there, so the runner is destroyed after it.
func TestSandboxRunnerOutlivesItsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(runnerInSandbox + "actions:\n  goodbye: {type: script, source: goodbye, after: [web.destroy]}\n")
		p.install("acme")
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		p.workOn("acme-agent", "local")
		d, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Teardown, Ask: deployment.AskNever}, "")
		if err != nil {
			t.Fatal(err)
		}
		if n := d.Node("agent"); !slices.Contains(n.Needs, "actions.goodbye") {
			t.Errorf("the runner in the sandbox is destroyed after %q", n.Needs)
		}
		p.workOn("acme-agent", "local")
		if d := p.deployment(d.ID); d.State != deployment.Succeeded {
			t.Errorf("the teardown is %s: %s", d.State, nodes(d))
		}
	})
}

// A customer gives a secret to the runner of its component, in the form of that runner's kind: the runner in the sandbox has its kind
// before it exists.
func TestSecretIsForTheRunnerOfItsComponent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSandboxPlane(t)
		p.publish(strings.NewReplacer("source: network}", "source: network, secrets: [TOKEN]}", "source: secrets,", "source: secrets, secrets: [TOKEN],").Replace(runnerInSandbox))
		p.install("acme")
		want := func(when string) {
			t.Helper()
			all, err := p.DeclaredSecrets(p.ctx, org, "acme")
			if err != nil || len(all) != 2 || all[0].Component != "network" || all[0].Kind != "local" || all[1].Component != "secrets" || all[1].Kind != "kubernetes" {
				t.Errorf("%s: %+v, %v", when, all, err)
			}
		}
		want("before the first deployment")
		p.deploy("acme", control.NewDeployment{Ask: deployment.AskNever}, "")
		p.work()
		want("after the runner in the sandbox was made")
	})
}
