package awstest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/test/tofu"
)

// The first job of a customer's stack downloads a provider and stores it in the mirror of the stack's bucket. From then on the
// provider comes from there, with the role of each operation: jobs with empty disks need no registry. During an outage of the
// registry, a job fails if its role may not read the mirror, and if the mirror is empty.
func TestStackTakesProvidersFromItsMirror(t *testing.T) {
	skipIfShort(t)
	w := deployWorld(t)
	defer w.close()
	archive := tofu.NewMirror(t, true).Files[0]
	registry := tofu.NewRegistry(t, archive)
	w.app("timed", map[string]string{"main.tf": `terraform {
  required_providers {
    time = { source = "hashicorp/time" }
  }
}
resource "time_static" "x" {}
`, ".terraform.lock.hcl": fmt.Sprintf("provider \"registry.opentofu.org/hashicorp/time\" {\n  version = \"0.14.2\"\n  hashes  = [%q]\n}\n", registry.Hash)})
	m := w.measured("timed", "acme", nil, "FAIRLEAD_TF_CLI_CONFIG_FILE="+registry.Config)
	defer m.stop()
	objects, bucket := s3.NewFromConfig(w.account.config("S3"), func(o *s3.Options) { o.UsePathStyle = true }), m.customer.ref("StateBucket")
	object := "providers/registry.opentofu.org/hashicorp/time/" + filepath.Base(archive)
	reads := func(role string) int { return w.guard.Uses(m.customer.attribute(role, "Arn"), "s3:GetObject") }

	if d, jobs := m.deploy(t.Context(), true); d.State != "succeeded" || registry.Downloads() != 1 {
		t.Fatalf("with an empty mirror the plan is %s after %d downloads, want succeeded after 1: %s\n%s", d.State, registry.Downloads(), d.Message, w.cli("job", "logs", jobs["plan"].ID))
	}
	if _, err := objects.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &object}); err != nil {
		t.Fatalf("the mirror has no %s after the first job: %v", object, err)
	}

	registry.SetDown(true)
	before := map[string]int{"ReadOnlyRole": reads("ReadOnlyRole"), "ProvisionRole": reads("ProvisionRole")}
	d, jobs := m.deploy(t.Context(), false)
	if d = m.untilDone(t.Context(), d); d.State != "succeeded" || registry.Downloads() != 1 {
		t.Errorf("with the mirror the deployment is %s after %d downloads, want succeeded after 1: %s\n%s", d.State, registry.Downloads(), d.Message, w.cli("job", "logs", jobs["plan"].ID))
	}
	for role, n := range before {
		if reads(role) == n {
			t.Errorf("the %s read nothing from the bucket", role)
		}
	}

	// The customer denies the jobs the mirror.
	w.refused.attack()
	arn := "arn:aws:s3:::" + bucket
	policy := m.customer.value(m.customer.tmpl.Resources["StateBucketPolicy"].Properties["PolicyDocument"]).(map[string]any)
	denial := map[string]any{"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": arn + "/providers/*"}
	w.guard.AddPolicy(arn, iamtest.Policy{"Version": policy["Version"], "Statement": append(slices.Clone(policy["Statement"].([]any)), denial)})
	failsWith := func(what, want string) {
		t.Helper()
		d, jobs := m.deploy(t.Context(), true)
		if log := string(w.cli("job", "logs", jobs["plan"].ID)); d.State != "failed" || !strings.Contains(log, want) {
			t.Errorf("%s the plan is %s, want failed, and %q in its log:\n%s", what, d.State, want, log)
		}
	}
	failsWith("without access to the mirror", "AccessDenied")
	if denied := w.refused.list(); len(denied) == 0 || slices.ContainsFunc(denied, func(d *iamtest.Denied) bool { return d.Resource != arn+"/"+object }) {
		t.Errorf("IAM refuses %v, want requests for the archive only", denied)
	}
	w.guard.AddPolicy(arn, policy)
	if d, jobs := m.deploy(t.Context(), true); d.State != "succeeded" {
		t.Errorf("with access again the plan is %s: %s\n%s", d.State, d.Message, w.cli("job", "logs", jobs["plan"].ID))
	}

	_, err := objects.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String(object)})
	w.ok("empty the mirror", err)
	failsWith("with an empty mirror", "503")
}
