package awstest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/tools/program"
)

// A script runs in its image in the customer's stack: the stack has a task definition for it, the agent starts the task with the
// role of the operation, and the vendor's tool gets the image's variables and no credentials of the step. In a stack whose
// customer has not listed the image, the plan fails before a person approves, and its reason names the parameter.
func TestStackRunsScriptsInListedImages(t *testing.T) {
	skipIfShort(t)
	w := deployWorld(t)
	defer w.close()
	image := "registry.example.com/acme/tools@sha256:" + strings.Repeat("a", 64)
	w.tasks.Variables = map[string][]string{image: {"VENDORS_SETTING=of-the-image", "AWS_ENDPOINT_URL=http://127.0.0.1:1"}}
	dir := t.TempDir()
	app := "fairlead: v1\nname: seeds\nrunner: {kinds: [aws-ecs]}\ncomponents:\n  seed: {type: script, source: ./seed, image: '" + image + "'}\n"
	w.ok("write the app", errors.Join(os.Mkdir(filepath.Join(dir, "seed"), 0o755), os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(app), 0o644)))
	program.Write(t, filepath.Join(dir, "seed", "run"), []byte("#!/bin/sh\necho \"setting: $VENDORS_SETTING\"\necho \"address: $AWS_CONTAINER_CREDENTIALS_FULL_URI\"\necho \"step: $FAIRLEAD_STEP_IMAGE.\"\n"))
	w.cli("app", "apply", dir)

	m := w.measured("seeds", "acme", nil) // the link of the stack lists the image
	defer m.stop()
	d, jobs := m.deploy(t.Context(), false)
	d = m.untilDone(t.Context(), d)
	log := string(w.cli("job", "logs", jobs["apply"].ID))
	if d.State != "succeeded" {
		t.Fatalf("the deployment is %s: %s\n%s", d.State, d.Message, log)
	}
	for _, want := range []string{"setting: of-the-image", "address: http://", "step: ."} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "/v2/credentials") { // the tool gets the credentials of its operation, at another address
		t.Errorf("the tool has the address of the step's own credentials:\n%s", log)
	}
	if plan := string(w.cli("job", "logs", jobs["plan"].ID)); !strings.Contains(plan, image) {
		t.Errorf("the plan does not show the image:\n%s", plan)
	}
	if m.customer.made["ScriptTask1"].ref == "" || m.customer.made["ScriptTask2"].ref != "" {
		t.Errorf("the stack made the definitions %+v, want one for one image", m.customer.made)
	}
	started := 0
	for _, request := range w.tasks.Received() {
		if strings.Contains(request, m.customer.made["ScriptTask1"].ref) && strings.Contains(request, "startedBy") {
			started++
		}
	}
	if started < 2 {
		t.Errorf("the agent started %d tasks of the image's definition, want those of the plan and the apply", started)
	}

	bare := w.measured("seeds", "bare", map[string]string{wire.StackScriptImages: strings.Replace(image, "/tools@", "/others@", 1)})
	defer bare.stop()
	refused, err := bare.CreateDeployment(t.Context(), "bare", wire.CreateDeploymentRequest{Kind: "deploy"})
	w.ok("deploy where the image is not listed", err)
	refused = bare.untilDone(t.Context(), refused)
	of := w.jobs(refused.ID)
	if refused.State != "failed" || len(of) != 1 || of[0].Operation != "plan" || of[0].Reason != string(fairlead.ReasonPoison) ||
		!strings.Contains(of[0].Message, "ScriptImages") || !strings.Contains(of[0].Message, image) {
		t.Errorf("the deployment is %s with the jobs %+v, want one failed plan that names the image and the parameter", refused.State, of)
	}
}
