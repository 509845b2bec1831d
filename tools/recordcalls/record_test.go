package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The recorder takes the pinned commit of a module, plans, creates, changes and removes it with
// the real provider, and writes the calls of each operation.
func TestModuleIsRecorded(t *testing.T) {
	provider, tofu := os.Getenv("FAIRLEAD_AWS_PROVIDER"), os.Getenv("FAIRLEAD_TOFU")
	if testing.Short() || provider == "" || tofu == "" {
		t.Skip("FAIRLEAD_AWS_PROVIDER or FAIRLEAD_TOFU is not set, or the run is short: make test-all runs it")
	}
	clones, calls := t.TempDir(), t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	module := filepath.Join(clones, "terraform-aws-network")
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", module, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write(filepath.Join(module, "main.tf"), "variable \"name\" {}\n\nresource \"aws_vpc\" \"this\" {\n  cidr_block = \"10.0.0.0/16\"\n  tags       = { Name = var.name }\n}\n")
	write(filepath.Join(module, "examples", "broken.tf"), "resource {")
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "first")
	commit := git("rev-parse", "HEAD")
	write(filepath.Join(module, "main.tf"), "what a later commit breaks")
	git("commit", "-qam", "second")
	write(filepath.Join(calls, "network.tf"), "# acme/terraform-aws-network v1.0.0 "+commit+"\n\nmodule \"this\" {\n  source = \"./module\"\n  name   = var.changed ? \"new\" : \"old\"\n}\n")
	if err := run(t.Context(), []string{"-calls", calls, "-clones", clones, "-provider", provider, "-tofu", tofu}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(calls, "network.json"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := string(text)
	for _, want := range []string{
		`"module": "acme/terraform-aws-network"`, commit, "hashicorp/aws v6.34.0",
		`{"operation":"apply","action":"ec2:CreateVpc","resource":"arn:aws:ec2:eu-central-1:111122223333:vpc/*","context":{"aws:RequestTag/Name":"old","aws:RequestTag/fairlead_install":"` + install + `"`,
		`{"operation":"plan","action":"ec2:DescribeVpcs","resource":"*"}`,
		`"context":{"aws:RequestTag/Name":"new","aws:ResourceTag/Name":"old","aws:ResourceTag/fairlead_install":"` + install + `"`,
		`{"operation":"destroy","action":"ec2:DeleteVpc"`,
		`{"operation":"apply","changes":[{"action":"create","type":"aws_vpc"}],"calls":[`,
		`{"operation":"apply","changes":[{"action":"update","type":"aws_vpc"}],"calls":[`,
		`{"operation":"destroy","changes":[{"action":"delete","type":"aws_vpc"}],"calls":[`,
	} {
		if !strings.Contains(recorded, want) {
			t.Errorf("the recording lacks %s", want)
		}
	}
	if strings.Contains(recorded, "incomplete") || t.Failed() {
		t.Errorf("the recording is\n%s", recorded)
	}
	if policy, err := os.ReadFile(filepath.Join(calls, "read-only", "ReadOnlyAccess.json")); err != nil || !strings.Contains(string(policy), `"ec2:Describe*"`) || strings.Contains(string(policy), "sqs:") {
		t.Errorf("the actions of ReadOnlyAccess are %.200s, %v", policy, err)
	}
}
