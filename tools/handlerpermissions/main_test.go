package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The table comes from a clone with schemas and a folder with the provider's source. A type of the provider has the CloudFormation type
// with its name, the one that a person chose, or that of the type whose name it continues; otherwise it is not in the table.
func TestTableOfSchemasAndProvider(t *testing.T) {
	clone, source := t.TempDir(), t.TempDir()
	write := func(folder, name, text string) {
		t.Helper()
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	schema := func(name, text string) { write(clone, schemaFolder+"/AWS_"+name+".json", text) }
	schema("SQS_Queue", `{"typeName":"AWS::SQS::Queue","handlers":{"create":{"permissions":["sqs:CreateQueue"]},"read":{"permissions":["sqs:GetQueueAttributes"]}}}`)
	schema("Lambda_Function", `{"typeName":"AWS::Lambda::Function","handlers":{"create":{"permissions":["Lambda:CreateFunction","iam:PassRole","kms:Decrypt","s3:GetObject","ec2:DescribeVpcs","ec2:DescribeSubnets","not an action","*"]},"delete":{"permissions":["lambda:DeleteFunction"]}}}`)
	schema("EC2_Instance", `{"typeName":"AWS::EC2::Instance","handlers":{"create":{"permissions":["ec2:RunInstances","iam:PassRole"]}}}`)
	schema("EC2_Nothing", `{"typeName":"AWS::EC2::Nothing","handlers":{}}`)
	schema("SNS_Topic", `{"typeName":"AWS::SNS::Topic","handlers":{"create":{"permissions":["sns:CreateTopic"]}}}`)
	write(clone, schemaList, "resource_schema \"aws_sqs_queue\" {\n  cloudformation_type_name = \"AWS::SQS::Queue\"\n}\n"+
		"resource_schema \"aws_lambda_function\" {\n  cloudformation_type_name               = \"AWS::Lambda::Function\"\n}\n"+
		"resource_schema \"aws_ec2_instance\" {\n  cloudformation_type_name = \"AWS::EC2::Instance\"\n}\n"+
		"resource_schema \"aws_sns_topic\" {\n  cloudformation_type_name = \"AWS::SNS::Topic\"\n}\n")
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", clone, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "schemas")
	types := func(list string, names ...string) string {
		text := "func (p *servicePackage) " + list + "(ctx context.Context) {\n"
		for _, n := range names {
			text += "\t\t\tTypeName: \"" + n + "\",\n"
		}
		return text + "}\n"
	}
	write(source, "version/VERSION", "9.9.9\n")
	write(source, "names/data/names_data.hcl", "service \"ec2\" {\n  resource_prefix {\n    actual  = \"aws_(ami|instance|vpc)\"\n    correct = \"aws_ec2_\"\n  }\n}\n")
	write(source, "internal/service/sqs/service_package_gen.go", types("SDKResources", "aws_sqs_queue", "aws_sqs_queue_policy")+types("SDKDataSources", "aws_sqs_queue", "aws_sqs_queues"))
	write(source, "internal/service/lambda/service_package_gen.go", types("SDKResources", "aws_lambda_function", "aws_lambda_invocation")+types("Actions", "aws_lambda_invoke"))
	write(source, "internal/service/ec2/service_package_gen.go", types("FrameworkResources", "aws_instance", "aws_default_machine")+types("FrameworkDataSources", "aws_region"))
	write(source, "internal/service/sts/service_package_gen.go", types("SDKDataSources", "aws_caller_identity")+types("EphemeralResources", "aws_web_identity"))

	c, err := readSchemas(t.Context(), clone)
	if err != nil {
		t.Fatal(err)
	}
	p, err := readProvider(source)
	if err != nil {
		t.Fatal(err)
	}
	r, err := readReviewed("# a comment\ntype aws_default_machine EC2::Instance\nalso aws_lambda_function ec2:ModifyNetworkInterfaceAttribute\nnothing aws_caller_identity\n")
	if err != nil {
		t.Fatal(err)
	}
	table, err := tableOf(c, p, r)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(table.text(c, p))) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	want := []string{
		"aws_caller_identity -", // without a permission
		"aws_region ec2",
		"aws_sqs_queues sqs",
		"ec2_instance ec2",
		"lambda_function lambda ec2:Describe* s3:GetObject", // the role and the key are always permitted
		"sns_topic sns", // only in hashicorp/awscc
		"sqs_queue sqs",
		"aws_default_machine = ec2_instance",
		"aws_instance = ec2_instance",
		"aws_sqs_queue_policy = sqs_queue",
		"aws_lambda_function + ec2:ModifyNetworkInterfaceAttribute",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the table is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(table.unmapped, []string{"aws_lambda_invocation"}) {
		t.Errorf("not mapped: %q", table.unmapped)
	}
	r.types["aws_sqs_queue"] = "AWS::SQS::Gone"
	if _, err := tableOf(c, p, r); err == nil || !strings.Contains(err.Error(), "AWS::SQS::Gone") {
		t.Errorf("a type that is no more in the schemas: %v", err)
	}
}

// What a person reviewed is a whole file: a line with a mistake would silently leave a type out.
func TestReviewedFile(t *testing.T) {
	if _, err := readReviewed(reviewedText); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"type aws_x", "typ aws_x EC2::VPC"} {
		if _, err := readReviewed(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
