package plane_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/tools/program"
)

// The control plane runs in eu-central-1. An account in China could read neither its template
// nor its image, so `install create` refuses the region before it creates a runner or an install.
func TestAnotherPartitionIsRefusedFirst(t *testing.T) {
	c := newCloud(t)
	_, token := c.admin()
	cfg := c.controlAPI()
	cfg.StackTemplateURL, cfg.RunnerImage = "https://templates.s3.amazonaws.com/runner.json", "ecr.example/runner@sha256:x"
	url := front(t, c.start("controlapi", cfg))
	person := must(client.New(url, token, client.Options{}))(t)
	app, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: ./web}\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	must(person.PublishVersion(t.Context(), "shop", wire.PublishVersionRequest{Config: must(app.Canonical())(t), Artifacts: map[string]string{"web": "sha256:" + strings.Repeat("0", 64)}}))(t)
	create := exec.Command(program.Build(t, "cmd/fairlead"), "install", "create", "acme", "--app", "shop", "--account", "123456789012", "--region", "cn-north-1")
	create.Env = []string{"FAIRLEAD_URL=" + url, "FAIRLEAD_TOKEN=" + token, "FAIRLEAD_CONFIG_DIR=" + t.TempDir(), "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	out, err := create.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cn-north-1 is in the AWS partition aws-cn, but this control plane is in aws") {
		t.Errorf("the command ends with %v:\n%s", err, out)
	}
	if all := must(person.ListRunners(t.Context(), client.ListOptions{}))(t); len(all.Items) > 0 {
		t.Errorf("the refused command created the runner %s", all.Items[0].Name)
	}
}
