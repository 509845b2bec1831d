package awstest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/deployment"
)

// The vendor deploys with a build runner. The test interrupts the deployment before
// the runner is registered, and before the stack is deployed with it. A repeated
// deployment creates one task. The build runner authenticates by the task's role
// alone. It runs a job without a role of the vendor. If the vendor repeats the
// command, nothing changes. A command without the option keeps the runner. Removing
// the runner deletes its role. A new build runner of the same name is refused,
// because it would have a different role.
func TestBuildRunnerRunsBesideControlPlane(t *testing.T) {
	skipIfShort(t)
	v := newVendor(t)
	defer v.close()
	v.ok("deploy", v.Do(t.Context()))
	if v.kept["BuildRunner"] != "none" {
		t.Error("the stack has a build runner without the option")
	}
	v.BuildRunner = "build"
	for _, step := range []string{"fairlead runner", "cdk deploy"} {
		v.fail(step)
		if err := v.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "run the command again") {
			t.Errorf("%s fails and the command returns %v, want the hint to run it again", step, err)
		}
	}
	v.fail("")
	v.ok("deploy with a build runner", v.Do(t.Context()))
	registered := ask[[]wire.Runner](v.world, "runner", "list")
	if len(registered) != 1 || registered[0].ID != v.kept["BuildRunner"] || registered[0].Storage != "http" {
		t.Fatalf("the stack has the build runner %q, and the control plane the runners %+v; want the same one", v.kept["BuildRunner"], registered)
	}

	stop := v.startTask(v.stackResolver(nil), "BuildRunnerTask")
	defer stop()
	v.cli("runner", "check", "build", "--timeout", "1m")
	b := ask[wire.Runner](v.world, "runner", "show", "build")
	if want := v.text(v.tmpl.Outputs["BuildRunnerRoleArn"].Value); b.State != "online" || b.AWS == nil || b.AWS.RoleARN != want || b.AWS.RoleID == "" {
		t.Errorf("the build runner is %+v, want it online with a proof of the role %s", b, want)
	}
	if sessions := v.sessionsOf(v.attribute("PublisherRole", "Arn")); len(sessions) > 0 {
		t.Errorf("the build runner got sessions %q of the publisher's role", sessions)
	}
	// Like every runner, it polls its own queue.
	if v.guard.UsesOf(v.attribute("SessionRole", "Arn"), b.ID, "sqs:DeleteMessage") == 0 {
		t.Error("the build runner received no wake-up from its queue")
	}
	if sessions := slices.DeleteFunc(v.sessionsOf(v.attribute("SessionRole", "Arn")), func(name string) bool { return name == b.ID }); len(sessions) > 0 {
		t.Errorf("the build runner got sessions %q, want only those of its own queue", sessions)
	}

	for _, name := range []string{"build", ""} {
		v.BuildRunner = name
		before := v.times("cdk deploy")
		v.ok("deploy again", v.Do(t.Context()))
		if v.kept["BuildRunner"] != b.ID || v.times("cdk deploy") != before+1 {
			t.Errorf("with the option %q the stack has the build runner %q after %d deployments, want %q after 1", name, v.kept["BuildRunner"], v.times("cdk deploy")-before, b.ID)
		}
	}
	v.BuildRunner = deployment.NoBuildRunner
	v.ok("remove the build runner", v.Do(t.Context()))
	if v.kept["BuildRunner"] != "none" {
		t.Error("the stack still has the build runner")
	}
	v.BuildRunner = "build"
	if err := v.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "fairlead runner delete build") {
		t.Errorf("with a new role, the command returns %v, want the hint to delete the runner", err)
	}
}

// stackResolver resolves, in the existing account, the template with the parameters
// that the stack has. changed replaces resources of the template, as settings of the stack do.
func (v *vendor) stackResolver(changed map[string]resource) *resolver {
	v.account.t.Helper()
	r := &resolver{t: v.account.t, tmpl: releasedTemplate(v.account.t, v.kept), made: v.made}
	maps.Copy(r.tmpl.Resources, changed)
	for _, m := range []struct {
		kind   string
		create func(string, map[string]any) made
	}{{"AWS::IAM::Role", v.role}, {"AWS::Logs::LogGroup", v.logGroup}, {"AWS::CodeBuild::Project", v.project}} { // a project names its role and its log
		for _, id := range r.tmpl.ofType(m.kind) {
			if _, ok := r.made[id]; !ok {
				r.made[id] = m.create(id, r.tmpl.Resources[id].Properties)
			}
		}
	}
	v.addPolicies(r)
	return r
}
