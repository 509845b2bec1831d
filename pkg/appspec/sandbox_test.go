package appspec_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// The same components on a sandbox that a component creates, and on one that exists already.
const onSandbox = `inputs:
  cluster: {type: map, from: customer}
  zone: {from: customer}
%SANDBOX%
components:
  ground: {type: terraform, source: ground}
  web:
    type: script
    source: web
    vars:
      host: ${sandbox.outputs.host}
      name: ${sandbox.outputs.cluster.name}
      where: "${sandbox.outputs.cluster.name} in ${sandbox.outputs.zone}, ${sandbox.outputs.count} nodes"
      all: ${sandbox.outputs.all}
`

func TestSandboxComesFirstAndGoesLast(t *testing.T) {
	app := sandboxed(t, "sandbox: {kind: kubernetes, created_by: ground}")
	web, _ := app.Component("web")
	if got := strings.Join(web.DependsOn, " "); got != "ground" {
		t.Errorf("the component web needs %q", got)
	}
	if got := web.Vars["where"].String(); got != `"${components.ground.outputs.cluster.name} in ${components.ground.outputs.zone}, ${components.ground.outputs.count} nodes"` {
		t.Errorf("the value is %s", got)
	}
	alone := sandboxed(t, "sandbox: {kind: kubernetes, created_by: ground}", func(text string) string {
		return text[:strings.Index(text, "    vars:")]
	})
	if web, _ = alone.Component("web"); len(web.DependsOn) != 1 {
		t.Errorf("a component without references needs %q, so it could be deployed before the sandbox", web.DependsOn)
	}
}

func TestGivenSandboxIsWhatItsInputsAre(t *testing.T) {
	app := sandboxed(t, "sandbox: {kind: kubernetes, given: {host: '${install.name}.example.com', cluster: '${inputs.cluster}', zone: '${inputs.zone}', count: 3, all: {a: ['${inputs.zone}', true]}}}")
	web, _ := app.Component("web")
	if len(web.DependsOn) != 0 {
		t.Errorf("the component web waits for %q, and the sandbox exists already", web.DependsOn)
	}
	for name, want := range map[string]string{
		"host":  `"${install.name}.example.com"`,
		"name":  `"${inputs.cluster.name}"`,
		"where": `"${inputs.cluster.name} in ${inputs.zone}, 3 nodes"`,
		"all":   `{"a":["${inputs.zone}",true]}`,
	} {
		if got := web.Vars[name].String(); got != want {
			t.Errorf("the variable %s is %s, want %s", name, got, want)
		}
	}
}

// image is an image by digest.
const image = "registry.example.com/tools@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestSandboxDecidesKindsOfRunners(t *testing.T) {
	const eks = "sandbox: {kind: aws-eks, created_by: ground}"
	for consequence, c := range map[string]struct{ file, kinds string }{
		"an app without a list can use all that fit": {eks, "aws-ecs aws-eks docker kubernetes local"},
		"a list is kept": {"runner: {kinds: [kubernetes, aws-eks]}\n" + eks, "aws-eks kubernetes"},
		"without a sandbox, all kinds are possible":                     {"", ""},
		"a job in an image of its own needs a runner that can start it": {eks + "\nactions: {check: {type: script, source: check, image: '" + image + "'}}", "aws-ecs aws-eks docker kubernetes"},
	} {
		t.Run(consequence, func(t *testing.T) {
			app := sandboxed(t, c.file, func(text string) string {
				if c.file == "" {
					text = text[:strings.Index(text, "    vars:")]
				}
				return text
			})
			if got := strings.Join(app.RunnerKinds(), " "); got != c.kinds {
				t.Errorf("the kinds are %q, want %q", got, c.kinds)
			}
		})
	}
	app := sandboxed(t, eks)
	if why := app.RunnerWarning(runnerspec.AWSECS); !strings.Contains(why, "outside of the cluster") {
		t.Errorf("the warning for a runner of kind aws-ecs is %q", why)
	}
	if why := app.RunnerWarning(runnerspec.AWSEKS); why != "" {
		t.Errorf("the warning for a runner of kind aws-eks is %q", why)
	}
}

// sandboxed parses onSandbox with the lines, and checks that the canonical form is read as the same app.
func sandboxed(t *testing.T, lines string, edits ...func(string) string) *appspec.App {
	t.Helper()
	text := strings.Replace(onSandbox, "%SANDBOX%", lines, 1)
	for _, edit := range edits {
		text = edit(text)
	}
	app, problems := appspec.Parse("app.yaml", []byte(wrap(text)))
	if problems != nil {
		t.Fatal(problems)
	}
	stored := canonical(t, app)
	if strings.Contains(stored, "${sandbox.") {
		t.Errorf("the canonical form refers to the sandbox: %s", stored)
	}
	again, err := appspec.FromCanonical([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestRunnerInSandboxHasWhatItDoesNotNeed(t *testing.T) {
	app := sandboxed(t, `sandbox:
  kind: kubernetes
  created_by: ground
  runner:
    deployed_by: agent
    configuration: {runner_configuration: {type: kubernetes}, state_storage_configuration: {type: http}}
    trust: {issuer: "${sandbox.outputs.issuer}", claims: {sub: a}}
actions:
  early: {type: script, source: a, after: [names.apply]}
  late: {type: script, source: a, after: [web.apply]}
  any: {type: script, source: a}`, func(text string) string {
		return strings.Replace(text, "  web:\n", "  names: {type: script, source: n}\n  agent: {type: helm, source: c, vars: {x: '${components.names.outputs.y}'}}\n  web:\n", 1)
	})
	for part, want := range map[string]bool{"ground": false, "agent": false, "names": false, "web": true, "actions.early": false, "actions.late": true, "actions.any": true} {
		if got := app.InSandbox(part); got != want {
			t.Errorf("%s is in the sandbox: %t, want %t", part, got, want)
		}
	}
	web, _ := app.Component("web")
	agent, _ := app.Component("agent")
	if got := strings.Join(web.DependsOn, " ") + "; " + strings.Join(agent.DependsOn, " "); got != "agent ground; ground names" {
		t.Errorf("the components web and agent need %q", got)
	}
	if why := app.RunnerWarning(runnerspec.Local); why != "" {
		t.Errorf("a warning about the runner outside, which only deploys the other one: %s", why)
	}
}
