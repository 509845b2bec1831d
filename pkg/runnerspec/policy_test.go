package runnerspec_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/runnerspec/runnerspectest"
)

func TestPolicyAndLedgerAreReferences(t *testing.T) {
	for from, want := range map[string]runnerspec.Reference{
		"file:/etc/p.yaml":       {Store: "file", Name: "/etc/p.yaml"},
		"ssm:/acme/policy":       {Store: "ssm", Name: "/acme/policy"},
		"kubernetes:acme/p.yaml": {Store: "kubernetes", Name: "acme/p.yaml"},
		"arn:aws:ssm:eu-west-1:123456789012:parameter/acme/policy": {Store: "ssm", Name: "arn:aws:ssm:eu-west-1:123456789012:parameter/acme/policy"},
		"": {}, "policy.yaml": {}, "secretsmanager:p": {}, "ssm:/acme#key": {}, "arn:aws:ssm:policy": {}, "file:relative": {},
	} {
		got, err := runnerspec.ParsePolicy(from)
		if want.Store != "" {
			want.Text = from
		}
		if got != want || (err == nil) != (want.Store != "") {
			t.Errorf("%q is read as %+v (%v), want %+v", from, got, err, want)
		}
	}
	for at, want := range map[string]runnerspec.Ledger{
		"file:/var/ledger": {Store: "file", Name: "/var/ledger"}, "s3:acme-runner": {Store: "s3", Name: "acme-runner"},
		"s3:acme-runner/a/b": {Store: "s3", Name: "acme-runner", Prefix: "a/b"}, "kubernetes:acme": {Store: "kubernetes", Name: "acme"},
		"": {}, "s3:acme/": {}, "s3:acme//a": {}, "gcs:acme": {}, "kubernetes:Acme": {},
	} {
		if got, err := runnerspec.ParseLedger(at); got != want || (err == nil) != (want.Store != "") {
			t.Errorf("%q is read as %+v (%v), want %+v", at, got, err, want)
		}
	}
	if text, configMap, key := (runnerspec.Reference{Store: "kubernetes", Name: "acme/p.yaml"}).InPod(); text != "file:/run/fairlead-policy/p.yaml" || configMap != "acme" || key != "p.yaml" {
		t.Errorf("in a pod: %q %q %q", text, configMap, key)
	}
	file := "policy: kubernetes:acme/p.yaml\nrunner_configuration: {type: "
	if _, problems := runnerspec.ParseAgent("a", []byte(file+"local}")); len(problems) != 1 || problems[0].Code != "excluded" {
		t.Errorf("a policy of a cluster on a machine: %v", problems)
	}
	if a, problems := runnerspec.ParseAgent("a", []byte(file+"kubernetes}")); len(problems) > 0 || a.Policy == "" {
		t.Errorf("a policy of a cluster in it: %v", problems)
	}
	if r := runnerspec.Parse("r", []byte(minimal(runnerspec.Local)+"\npolicy: file:/p\n")); r.Spec != nil {
		t.Error("a runner's configuration of the control plane has a policy")
	}
}

// Of each kind, the control plane sets every field that it can set, one at a time: it changes only how many jobs run and how long.
func TestControlPlaneSetsNoPlaceUnderAPolicy(t *testing.T) {
	free := []string{"type", "concurrency", "version", "channel", "builds", "job.environment", "job.timeout", "job.start_timeout", "job.no_output_timeout", "job.stop_grace", "job.warm_tasks", "job.keep_for"}
	values := map[string]string{"string": "x", "list": "[subnet-0123456789abcdef0]", "number": "7", "bool": "true", "map": "{A: b}", "time": "90s", "CPUs": "3", "size": "3Gi"}
	special := map[string]string{"job.images": "[registry.example.com/x/*]", "job.volumes": "['/a:/b']", "job.pass_env": "[A]", "job.security_groups": "[sg-01234567]", "job.pull_secrets": "[regcred]",
		"job.secrets": "{A: a/b}", "job.pod_template": "{metadata: {annotations: {a: b}}}", "job.image": "r.example/evil:1", "job.endpoint": "https://evil.example", "endpoint": "https://evil.example",
		"job.role_arn": "arn:aws:iam::123456789012:role/evil", "job.execution_role_arn": "arn:aws:iam::123456789012:role/evil", "job.region": "eu-west-9"}
	tried := 0
	for _, k := range []runnerspec.Kind{runnerspec.Local, runnerspec.Docker, runnerspec.Kubernetes, runnerspec.AWSECS} {
		file, problems := runnerspec.ParseAgent("agent.yaml", []byte("policy: file:/p\nrunner_configuration: {type: "+string(k)+"}"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for _, f := range runnerspectest.RunnerFields(t, k) {
			path := strings.TrimPrefix(f.Path, "runner_configuration.")
			value, ok := special[path]
			if !ok {
				value = values[f.Type]
			}
			r := runnerspec.Parse("r", []byte(minimal(k)), "runner_configuration."+path+"="+value)
			if f.Only != "" || r.Spec == nil { // the file's own, or the value needs other fields
				continue
			}
			base := runnerspec.Parse("r", []byte(minimal(k)))
			if base.Spec == nil || runnerspec.Settled(file.Runner, base.Spec.Runner) != nil { // its least configuration has a place already
				continue
			}
			tried++
			err := runnerspec.Settled(file.Runner, r.Spec.Runner)
			isFree := slices.ContainsFunc(free, func(name string) bool { return path == name })
			if (err == nil) != isFree {
				t.Errorf("%s of %s: %v, free: %t", path, k, err, isFree)
			}
			if err != nil && !strings.Contains(err.Error(), "the control plane cannot set runner_configuration."+strings.SplitN(path, ".", 3)[0]) {
				t.Errorf("%s of %s: %v", path, k, err)
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d fields were tried", tried)
	}
	docker, problems := runnerspec.ParseAgent("a", []byte("{runner_configuration: {type: docker, job: {image: 'r.example/own:1'}}}"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	same, err := runnerspec.DecodeRunner([]byte(`{"type": "docker", "job": {"image": "r.example/own:1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := runnerspec.Settled(docker.Runner, same); err != nil {
		t.Errorf("the image that the file lists: %v", err)
	}
	if err := runnerspec.Settled(runnerspec.NoAgentFile().Runner, same); err == nil {
		t.Error("another kind of runner is accepted")
	}
}

// The image has the program that enforces the policy, and who can move its tag would choose the program.
func TestPolicyNeedsImagesByDigest(t *testing.T) {
	for _, kind := range []string{"kubernetes", "aws-ecs"} { // they would look for a tag of docker.io/library/sha256
		_, problems := runnerspec.ParseAgent("agent.yaml", []byte("policy: ssm:p\nrunner_configuration: {type: "+kind+", job: {image: 'sha256:"+strings.Repeat("0a", 32)+"'}}"))
		if !strings.Contains(problems.Error(), "[image-by-tag]") {
			t.Errorf("an ID of an image with %s: %v", kind, problems)
		}
	}
	digest := "sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]string{
		"registry.example.com/runner:1":         `agent.yaml:2:51: the image "registry.example.com/runner:1" has a tag, which may later refer to another image, and this file has a policy, which the image must enforce [image-by-tag]. Use its digest: registry.example.com/runner@sha256:…`,
		"registry.example.com/runner@" + digest: "",
		digest:                                  "", // of an image that was built on the machine
	} {
		for policy, want := range map[string]string{"policy: file:/p": want, "": ""} {
			_, problems := runnerspec.ParseAgent("agent.yaml", []byte(policy+"\nrunner_configuration: {type: docker, job: {image: '"+image+"'}}"))
			if problems.Error() != want {
				t.Errorf("%s with %q: %v, want %s", image, policy, problems, want)
			}
		}
	}
}
