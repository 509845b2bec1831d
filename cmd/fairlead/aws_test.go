package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/tools/moto"
)

const (
	// awsProviderEnv is the environment variable with the path of the provider mirror
	// that tools/awsprovider builds.
	awsProviderEnv        = "FAIRLEAD_AWS_PROVIDER"
	requireAWSProviderEnv = "FAIRLEAD_REQUIRE_AWS_PROVIDER" // "1": without the mirror, the test fails; otherwise it is skipped

	awsRegion = "eu-central-1"
)

// awsHosts returns the AWS endpoints that the examples use. The keys are the
// provider's names of the services. The provider calls all endpoints through a proxy,
// which is moto. So the provider uses the names, URLs and signatures of AWS, but no TLS.
func awsHosts() map[string]string {
	hosts := map[string]string{"IAM": "iam"}
	for name, host := range map[string]string{"EKS": "eks", "SQS": "sqs", "S3": "s3", "S3_CONTROL": "s3-control", "STS": "sts",
		"ECS": "ecs", "EC2": "ec2", "CLOUDWATCH_LOGS": "logs"} {
		hosts[name] = host + "." + awsRegion
	}
	return hosts
}

// TestTheAWSServiceIsDeployed publishes, validates, plans, applies, changes and tears
// down examples/aws-service, with a real runner, the provider hashicorp/aws and a server
// that has AWS's APIs.
func TestTheAWSServiceIsDeployed(t *testing.T) { runOnAWS(t, "service.txtar", "aws-service") }

// TestAccessEntriesOfEKSArePlanned validates and plans examples/eks-access with the provider
// hashicorp/aws. The server has no access entries, so nothing is applied.
func TestAccessEntriesOfEKSArePlanned(t *testing.T) { runOnAWS(t, "access.txtar", "eks-access") }

// runOnAWS runs a script of testdata/aws with an example.
func runOnAWS(t *testing.T, script, name string) {
	t.Helper()
	tool, mirror := toolOrSkip(t), os.Getenv(awsProviderEnv)
	if mirror == "" {
		if os.Getenv(requireAWSProviderEnv) == "1" {
			t.Fatalf("%s=1, but %s does not name the mirror that `go run ./tools/awsprovider` creates", requireAWSProviderEnv, awsProviderEnv)
		}
		t.Skipf("SKIPPED: EXAMPLES/%s IS NEITHER VALIDATED NOR PLANNED. %s is not set; `go run ./tools/awsprovider` builds the provider and prints what to set it to.", strings.ToUpper(name), awsProviderEnv)
	}
	t.Parallel() // the test waits most of the time
	server := moto.Server{Own: true}
	endpoint := server.Endpoint(t)
	t.Cleanup(server.Stop)
	example, err := filepath.Abs(filepath.Join("../../examples", name))
	if err != nil {
		t.Fatal(err)
	}

	p := params("aws")
	p.Dir, p.Files = "", []string{filepath.Join(p.Dir, script)}
	p.Cmds["ready"] = ready
	p.Cmds["aws"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 3 {
			ts.Fatalf("usage: aws SERVICE ACTION PARAMETERS")
		}
		body, err := callAWS(endpoint, args[0], args[1], args[2])
		if err != nil {
			ts.Fatalf("%s %s: %v", args[0], args[1], err)
		}
		fmt.Fprintln(ts.Stdout(), body)
	}
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		vpc, err := first(endpoint, "ec2", "DescribeVpcs", "<vpcId>(.*?)<")
		if err != nil {
			return err
		}
		subnet, err := first(endpoint, "ec2", "DescribeSubnets", "<subnetId>(.*?)<")
		if err != nil {
			return err
		}
		settings := filepath.Join(env.WorkDir, "tofurc")
		if err := os.WriteFile(settings, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600); err != nil {
			return err
		}
		pass := []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"}
		for name, host := range awsHosts() {
			env.Setenv("AWS_ENDPOINT_URL_"+name, "http://"+host+".amazonaws.com")
			pass = append(pass, "AWS_ENDPOINT_URL_"+name)
		}
		for name, value := range map[string]string{
			"EXAMPLE": example, "VPC": vpc, "SUBNET": subnet, "FAIRLEAD_TOFU": tool, "FAIRLEAD_TF_CLI_CONFIG_FILE": settings,
			"AWS_ACCESS_KEY_ID": "AKIAFAIRLEADTEST", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_EC2_METADATA_DISABLED": "true",
			"HTTP_PROXY": endpoint, "HTTPS_PROXY": endpoint, "FAIRLEAD_PASS_ENV": strings.Join(pass, ","),
		} {
			env.Setenv(name, value)
		}
		return setup(env)
	}
	testscript.Run(t, p)
}

// callAWS calls a service of the server at the endpoint, without the provider. The
// parameters are JSON or a query, as the service requires. callAWS returns the body of
// the answer, or an error if the status is not 200 OK.
func callAWS(endpoint, service, action, parameters string) (string, error) {
	method, kind, target, body := http.MethodPost, "application/x-www-form-urlencoded", "", ""
	switch service {
	case "sqs":
		target, kind, body = "AmazonSQS."+action, "application/x-amz-json-1.0", parameters
	case "ecs":
		target, kind, body = "AmazonEC2ContainerServiceV20141113."+action, "application/x-amz-json-1.1", parameters
	case "logs":
		target, kind, body = "Logs_20140328."+action, "application/x-amz-json-1.1", parameters
	case "iam", "ec2":
		query, err := url.ParseQuery(parameters)
		if err != nil {
			return "", err
		}
		query.Set("Action", action)
		query.Set("Version", map[string]string{"iam": "2010-05-08", "ec2": "2016-11-15"}[service])
		body = query.Encode()
	case "s3": // the S3 API has no actions, so action is the rest of the URL
		method = http.MethodGet
		endpoint += action
	default:
		return "", fmt.Errorf("callAWS does not support the service %s", service)
	}
	req, err := http.NewRequest(method, endpoint, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", kind)
	if target != "" {
		req.Header.Set("X-Amz-Target", target)
	}
	// The server reads only the service's name from this header. It does not verify the
	// signature.
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/"+awsRegion+"/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read to its end
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return string(answer), err
}

// first calls a service and returns the first match of the pattern's group in the answer.
func first(endpoint, service, action, pattern string) (string, error) {
	body, err := callAWS(endpoint, service, action, "")
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(pattern).FindStringSubmatch(body)
	if match == nil {
		return "", fmt.Errorf("%s %s: no %s in %s", service, action, pattern, body)
	}
	return match[1], nil
}
