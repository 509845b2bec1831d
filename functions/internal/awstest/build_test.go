package awstest

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/tools/deployment"
)

// A vendor asks for a build runner. The deployment is interrupted before the
// runner is known, and before the stack is told of it; done again, the stack has
// one task. It proves the role that the template gives it, and nothing else
// identifies it; it runs a job; and it takes no role of the vendor's for that.
// Done once more nothing changes, not asked for it stays, and when it is taken
// away its role goes, which the next one would not have.
func TestABuildRunnerRunsBesideTheControlPlane(t *testing.T) {
	whole(t)
	v := arrives(t)
	defer v.close()
	v.ok("deploy", v.Do(t.Context()))
	if v.told["buildRunner"] != "" {
		t.Error("there is a build runner that nobody has asked for")
	}
	v.BuildRunner = "build"
	for _, step := range []string{"fairlead runner", "cdk deploy"} {
		v.fail(step)
		if err := v.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "run the command again") {
			t.Errorf("when %s fails, the command says %v", step, err)
		}
	}
	v.fail("")
	v.ok("deploy with a build runner", v.Do(t.Context()))
	known := ask[[]wire.Runner](v.world, "runner", "list")
	if len(known) != 1 || known[0].ID != v.told["buildRunner"] || known[0].Storage != "http" {
		t.Fatalf("the stack is told of the build runner %q, and there are %+v", v.told["buildRunner"], known)
	}

	stop := v.starts(v.tells(), "BuildRunnerTask")
	defer stop()
	v.cli("runner", "check", "build", "--timeout", "1m")
	b := ask[wire.Runner](v.world, "runner", "show", "build")
	if want := v.text(v.tmpl.Outputs["BuildRunnerRoleArn"].Value); b.State != "online" || b.AWS == nil || b.AWS.RoleARN != want || b.AWS.RoleID == "" {
		t.Errorf("the build runner is %+v, want one online that has proved the role %s", b, want)
	}
	for _, role := range []string{"SessionRole", "PublisherRole"} {
		if taken := v.roles.of(v.attribute(role, "Arn")); len(taken) > 0 {
			t.Errorf("the build runner was given the %s: %q", role, taken)
		}
	}

	for _, name := range []string{"build", ""} {
		v.BuildRunner = name
		before := v.times("cdk deploy")
		v.ok("deploy again", v.Do(t.Context()))
		if v.told["buildRunner"] != b.ID || v.times("cdk deploy") != before+1 {
			t.Errorf("asked for %q, the stack is told of the build runner %q in %d deployments", name, v.told["buildRunner"], v.times("cdk deploy")-before)
		}
	}
	v.BuildRunner = deployment.NoBuildRunner
	v.ok("take the build runner away", v.Do(t.Context()))
	if v.told["buildRunner"] != "" {
		t.Error("the build runner is still there")
	}
	v.BuildRunner = "build"
	if err := v.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "fairlead runner delete build") {
		t.Errorf("with a role made anew, the command says %v", err)
	}
}

// tells is the stack with the build runner that the CDK was told of last, in the
// account that is there.
func (v *vendor) tells() *resolver {
	v.account.t.Helper()
	customers, err := os.ReadFile(runnerTemplate)
	v.ok("read the template", err)
	r := &resolver{t: v.account.t, tmpl: released(v.account.t, v.told["runnerDigest"], customers, v.told), made: v.made}
	for _, id := range r.tmpl.ofType("AWS::IAM::Role") {
		if _, ok := r.made[id]; !ok {
			r.made[id] = v.role(id, r.tmpl.Resources[id].Properties)
		}
	}
	return r
}
