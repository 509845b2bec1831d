package awstest

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	ecstypes "github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
)

// needProvider returns the path of the mirror that tools/awsprovider builds. Without it, the test
// is skipped, or fails if FAIRLEAD_REQUIRE_AWS_PROVIDER is "1".
func needProvider(t *testing.T) string {
	t.Helper()
	mirror := os.Getenv("FAIRLEAD_AWS_PROVIDER")
	if mirror == "" {
		if os.Getenv("FAIRLEAD_REQUIRE_AWS_PROVIDER") == "1" {
			t.Fatal("FAIRLEAD_REQUIRE_AWS_PROVIDER=1, but FAIRLEAD_AWS_PROVIDER does not name the mirror that `go run ./tools/awsprovider` creates")
		}
		t.Skip("SKIPPED: EXAMPLES/AWS-SERVICE IS NOT DEPLOYED THROUGH THE STACKS. FAIRLEAD_AWS_PROVIDER is not set; `go run ./tools/awsprovider` builds the provider and prints what to set it to.")
	}
	return mirror
}

// readOnlyAccess is the ARN of AWS's policy in the role of plans.
const readOnlyAccess = "arn:aws:iam::aws:policy/ReadOnlyAccess"

// recordedPolicy returns ReadOnlyAccess, as tools/recordcalls recorded it.
func recordedPolicy(t *testing.T) iamtest.Policy {
	t.Helper()
	text, err := os.ReadFile("../../../infra/runnerstack/testdata/calls/read-only/ReadOnlyAccess.json")
	var in struct {
		Policy  string
		Actions []any
	}
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil || in.Policy != readOnlyAccess {
		t.Fatalf("read the policy %s: %q, %v", readOnlyAccess, in.Policy, err)
	}
	return iamtest.Policy{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": in.Actions, "Resource": "*"}}}
}

// TestAWSServiceDeploysThroughTheStacks deploys examples/aws-service with the provider
// hashicorp/aws through the resources of the two templates, and with what its app.yaml declares. Each
// job runs in a task of its own and takes the role of its operation, and IAM decides on each request
// of the provider. A later version of the app also tries to change what others own in the account.
func TestAWSServiceDeploysThroughTheStacks(t *testing.T) {
	skipIfShort(t)
	mirror := needProvider(t)
	w := deployWorld(t)
	defer w.close()
	w.managed = map[string]iamtest.Policy{readOnlyAccess: recordedPolicy(t)}
	settings := filepath.Join(t.TempDir(), "tofurc")
	w.ok("write the tool's settings", os.WriteFile(settings, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror), 0o600))

	w.cli("app", "apply", "examples/aws-service")
	w.cli("install", "create", "acme", "--app", "aws-service", "--account", accountID, "--region", region, "--input", "region="+region,
		"--input", "vpc-id="+ecstest.Find(t, w.moto, region, "DescribeVpcs", "vpcId"), "--input", fmt.Sprintf("subnet-ids=[%q]", ecstest.Find(t, w.moto, region, "DescribeSubnets", "subnetId")),
		"--input", "image=public.ecr.aws/nginx/nginx:stable", "--input", "wait=false", "--input", `tags={"owner":"acme"}`)
	c, stop := w.installStack("acme", "FAIRLEAD_TF_CLI_CONFIG_FILE="+settings)
	defer stop()
	w.eventually("the stack is online", func() bool { return ask[wire.Stack](w, "install", "stack", "acme").State == "online" })
	if got := ask[wire.Stack](w, "install", "stack", "acme").Report.AppActions; !slices.Contains(got, "sqs:*") || slices.Contains(got, "ec2:*") {
		t.Errorf("the stack grants the app %s, want what app.yaml declares", got)
	}
	s := &service{world: w, customer: c, id: ask[wire.Install](w, "install", "show", "acme").ID}

	s.deploy("succeeded", 0, "install", "deploy", "acme", "--plan-only")
	if made := s.resources(); len(made) > 0 {
		t.Errorf("the plan made %s", made)
	}
	s.unused("ProvisionRole", "DeployRole", "DeprovisionRole")

	s.deploy("succeeded", 2, "install", "deploy", "acme")
	s.checkResources()
	s.checkContainer()
	s.used("ProvisionRole", "sqs:CreateQueue", "sqs:TagQueue", "s3:CreateBucket", "s3:PutBucketPolicy", "logs:CreateLogGroup", "ec2:CreateSecurityGroup", "ec2:CreateTags", "ec2:AuthorizeSecurityGroupEgress",
		"ecs:CreateCluster", "ecs:RegisterTaskDefinition", "ecs:CreateService", "ecs:TagResource", "iam:CreateRole", "iam:AttachRolePolicy", "iam:PutRolePolicy", "iam:PassRole")
	s.unused("DeployRole", "DeprovisionRole")

	applied := w.guard.Actions(c.attribute("ProvisionRole", "Arn"))
	for _, component := range s.deploy("succeeded", 0, "install", "deploy", "acme", "--refresh").Components {
		if component.State != "unchanged" {
			t.Errorf("without a change %s is %s", component.Name, component.State)
		}
	}
	if again := w.guard.Actions(c.attribute("ProvisionRole", "Arn")); !maps.Equal(again, applied) {
		t.Errorf("without a change, jobs used the role of applies: %v, before %v", again, applied)
	}

	s.checkForeign()
	refused := w.refused.count()

	s.deploy("succeeded", 0, "install", "teardown", "acme", "--yes")
	if left := s.resources(); len(left) > 0 {
		t.Errorf("the teardown left %s", left)
	}
	if n := w.refused.count(); n > refused {
		t.Errorf("IAM refuses requests of the teardown: %v", w.refused.list()[refused:])
	}
	s.used("DeprovisionRole", "sqs:DeleteQueue", "s3:DeleteBucket", "logs:DeleteLogGroup", "ec2:DeleteSecurityGroup", "ecs:DeleteCluster", "ecs:DeregisterTaskDefinition", "ecs:DeleteService", "iam:DeleteRole")
	s.unused("DeployRole")
	// Plans changed nothing but locks, saved plans and providers in the bucket of states. Applies removed only the locks there.
	s.never("ReadOnlyRole", func(action string) bool {
		_, name, _ := strings.Cut(action, ":")
		reads := strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Describe")
		return !reads && !slices.Contains([]string{"s3:PutObject", "s3:DeleteObject", "kms:Decrypt", "kms:GenerateDataKey"}, action)
	})
	s.never("ProvisionRole", func(action string) bool { return strings.Contains(action, ":Delete") && action != "s3:DeleteObject" })
	s.never("DeprovisionRole", func(action string) bool {
		return strings.Contains(action, ":Create") || strings.HasPrefix(action, "iam:Put") || strings.HasPrefix(action, "iam:Attach")
	})
}

// service is an install of examples/aws-service in a customer's account.
type service struct {
	*world
	customer *customer
	id       string
}

// deploy starts a deployment of the install and approves its plans until it has ended in the wanted
// state, after so many approvals. Each of its jobs must have run in a task of its own.
func (s *service) deploy(want string, approvals int, args ...string) (d wire.Deployment) {
	s.account.t.Helper()
	const failed, waiting = 3, 4 // exit codes
	for n := 0; ; n++ {
		out, err := s.command(s.account.t.Context(), args...).CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if err != nil && (exit == nil || exit.ExitCode() != failed && exit.ExitCode() != waiting) {
			s.account.t.Fatalf("fairlead %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		d = ask[[]wire.Deployment](s.world, "deployment", "list", "--install", "acme", "--limit", "1")[0]
		if err == nil || exit.ExitCode() == failed {
			if d.State != want || n != approvals {
				s.account.t.Fatalf("the deployment is %s after %d approvals, want %s after %d: %s\n%s", d.State, n, want, approvals, d.Message, out)
			}
			s.checkDirect(s.customer, d.ID)
			return ask[wire.Deployment](s.world, "deployment", "show", d.ID)
		}
		args = []string{"deployment", "approve", d.ID}
	}
}

// used checks that jobs used the actions with a role of the customer's stack.
func (s *service) used(role string, actions ...string) {
	s.account.t.Helper()
	for _, action := range actions {
		if s.guard.Uses(s.customer.attribute(role, "Arn"), action) == 0 {
			s.account.t.Errorf("no job used %s with the %s", action, role)
		}
	}
}

// unused checks that no job used the roles.
func (s *service) unused(roles ...string) {
	s.account.t.Helper()
	for _, role := range roles {
		s.never(role, func(string) bool { return true })
	}
}

// never checks that no job used an action with a role.
func (s *service) never(role string, wrong func(action string) bool) {
	s.account.t.Helper()
	for action := range s.guard.Actions(s.customer.attribute(role, "Arn")) {
		if wrong(action) {
			s.account.t.Errorf("a job used %s with the %s", action, role)
		}
	}
}

// inMoto returns the configuration of a client of the server that has the apps' resources, with all
// permissions.
func (s *service) inMoto() aws.Config { return s.account.config("EVENTBRIDGE") }

// resources returns the ARNs of the install's resources that exist.
func (s *service) resources() (arns []string) {
	s.account.t.Helper()
	ctx, here := s.account.t.Context(), region+":"+accountID+":"
	queues, err := sqs.NewFromConfig(s.inMoto()).ListQueues(ctx, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("acme-")})
	s.ok("list the queues", err)
	for _, url := range queues.QueueUrls {
		arns = append(arns, "arn:aws:sqs:"+here+url[strings.LastIndex(url, "/")+1:])
	}
	buckets, err := s3.NewFromConfig(s.inMoto(), func(o *s3.Options) { o.UsePathStyle = true }).ListBuckets(ctx, &s3.ListBucketsInput{})
	s.ok("list the buckets", err)
	for _, b := range buckets.Buckets {
		if strings.HasPrefix(*b.Name, "acme-") {
			arns = append(arns, "arn:aws:s3:::"+*b.Name)
		}
	}
	containers := ecs.NewFromConfig(s.inMoto())
	clusters, err := containers.DescribeClusters(ctx, &ecs.DescribeClustersInput{Clusters: []string{"acme"}})
	s.ok("describe the cluster", err)
	for _, c := range clusters.Clusters {
		if *c.Status != "ACTIVE" {
			continue
		}
		arns = append(arns, *c.ClusterArn)
		services, err := containers.DescribeServices(ctx, &ecs.DescribeServicesInput{Cluster: c.ClusterArn, Services: []string{"service"}})
		s.ok("describe the service", err)
		for _, x := range services.Services {
			if *x.Status == "ACTIVE" {
				arns = append(arns, *x.ServiceArn)
			}
		}
	}
	definitions, err := containers.ListTaskDefinitions(ctx, &ecs.ListTaskDefinitionsInput{FamilyPrefix: aws.String("acme"), Status: ecstypes.TaskDefinitionStatusActive})
	s.ok("list the task definitions", err)
	arns = append(arns, definitions.TaskDefinitionArns...)
	groups, err := cloudwatchlogs.NewFromConfig(s.inMoto()).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String("/fairlead/acme/")})
	s.ok("describe the log groups", err)
	for _, g := range groups.LogGroups {
		arns = append(arns, strings.TrimSuffix(*g.Arn, ":*"))
	}
	roles, err := iam.NewFromConfig(s.inMoto()).ListRoles(ctx, &iam.ListRolesInput{PathPrefix: aws.String("/fairlead-app/" + s.id + "/")})
	s.ok("list the roles", err)
	for _, r := range roles.Roles {
		arns = append(arns, *r.Arn)
	}
	for _, id := range s.securityGroups() {
		arns = append(arns, "arn:aws:ec2:"+here+"security-group/"+id)
	}
	return arns
}

// securityGroups returns the ids of the security groups whose names begin with the install's.
func (s *service) securityGroups() (ids []string) {
	s.account.t.Helper()
	form := url.Values{"Action": {"DescribeSecurityGroups"}, "Version": {"2016-11-15"}, "Filter.1.Name": {"group-name"}, "Filter.1.Value.1": {"acme-service-*"}}
	req, err := http.NewRequestWithContext(s.account.t.Context(), http.MethodPost, s.moto, strings.NewReader(form.Encode()))
	s.ok("make a request", err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/"+region+"/ec2/aws4_request, SignedHeaders=host, Signature=0")
	res, err := http.DefaultClient.Do(req)
	s.ok("describe the security groups", err)
	defer func() { _ = res.Body.Close() }() // the body was read to its end
	var answer struct {
		Groups []struct {
			ID string `xml:"groupId"`
		} `xml:"securityGroupInfo>item"`
	}
	s.ok("read the security groups", xml.NewDecoder(res.Body).Decode(&answer))
	for _, g := range answer.Groups {
		ids = append(ids, g.ID)
	}
	return ids
}

// checkResources checks that the resources of the app exist and no others, each with the install's tag
// and with the tag that the app's input sets.
func (s *service) checkResources() {
	s.account.t.Helper()
	const here = region + ":" + accountID + ":"
	want := []string{"arn:aws:sqs:" + here + "acme-work", "arn:aws:sqs:" + here + "acme-dead-letters", "arn:aws:s3:::acme-*", "arn:aws:ecs:" + here + "cluster/acme", "arn:aws:ecs:" + here + "service/acme/service",
		"arn:aws:ecs:" + here + "task-definition/acme:1", "arn:aws:logs:" + here + "log-group:/fairlead/acme/service", "arn:aws:ec2:" + here + "security-group/sg-*",
		"arn:aws:iam::" + accountID + ":role/fairlead-app/" + s.id + "/acme-service", "arn:aws:iam::" + accountID + ":role/fairlead-app/" + s.id + "/acme-ecs-execution"}
	for _, arn := range s.resources() {
		i := slices.IndexFunc(want, func(pattern string) bool { ok, _ := path.Match(pattern, arn); return ok }) // all patterns are valid
		if i < 0 {
			s.account.t.Errorf("the app made %s, which is unexpected", arn)
			continue
		}
		want = slices.Delete(want, i, i+1)
		if tags, err := s.guard.Tags(arn); err != nil || tags["fairlead_install"] != s.id || tags["owner"] != "acme" {
			s.account.t.Errorf("%s has the tags %v, %v; want the install's and the input's", arn, tags, err)
		}
	}
	if len(want) > 0 {
		s.account.t.Errorf("the app did not make %s", want)
	}
}

// document reads a policy as IAM returns it.
func (s *service) document(encoded string) (p iamtest.Policy) {
	s.account.t.Helper()
	text, err := url.QueryUnescape(encoded)
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	s.ok("read a policy", err)
	return p
}

// open opens a session of a role that the app made, as ECS does for a task. The role has the policies
// and the boundary that the server has.
func (s *service) open(name string) (accessKeyID string) {
	s.account.t.Helper()
	ctx, api := s.account.t.Context(), iam.NewFromConfig(s.inMoto())
	got, err := api.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	s.ok("get the role "+name, err)
	role := iamtest.Role{ARN: *got.Role.Arn, Trust: s.document(*got.Role.AssumeRolePolicyDocument)}
	if b := got.Role.PermissionsBoundary; b == nil || *b.PermissionsBoundaryArn != s.customer.ref("Boundary") {
		s.account.t.Fatalf("the role %s has the boundary %v, want the stack's", name, b)
	}
	role.Boundary = s.customer.value(s.customer.tmpl.Resources["Boundary"].Properties["PolicyDocument"]).(map[string]any)
	inline, err := api.ListRolePolicies(ctx, &iam.ListRolePoliciesInput{RoleName: &name})
	s.ok("list the policies of the role", err)
	for _, policy := range inline.PolicyNames {
		p, err := api.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &name, PolicyName: &policy})
		s.ok("get a policy of the role", err)
		role.Policies = append(role.Policies, s.document(*p.PolicyDocument))
	}
	attached, err := api.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{RoleName: &name})
	s.ok("list the managed policies of the role", err)
	for _, policy := range attached.AttachedPolicies {
		p, err := api.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: policy.PolicyArn})
		s.ok("get a managed policy", err)
		v, err := api.GetPolicyVersion(ctx, &iam.GetPolicyVersionInput{PolicyArn: policy.PolicyArn, VersionId: p.Policy.DefaultVersionId})
		s.ok("get the text of a managed policy", err)
		role.Policies = append(role.Policies, s.document(*v.PolicyVersion.Document))
	}
	s.guard.AddRole(role)
	k, err := s.guard.Open("ecs-tasks.amazonaws.com", role.ARN, "task")
	s.ok("open the role "+name, err)
	return k.AccessKeyID
}

// checkContainer checks that the roles of the app's container may do what it needs, under the stack's
// boundary and with the actions that app.yaml declares: moto starts no container that does it.
func (s *service) checkContainer() {
	s.account.t.Helper()
	here, task, execution := region+":"+accountID+":", s.open("acme-service"), s.open("acme-ecs-execution")
	bucket := ""
	for _, arn := range s.resources() {
		if strings.HasPrefix(arn, "arn:aws:s3:::") {
			bucket = arn
		}
	}
	queue, stream, repository := "arn:aws:sqs:"+here+"acme-work", "arn:aws:logs:"+here+"log-group:/fairlead/acme/service:log-stream:service/x", "arn:aws:ecr:"+here+"repository/image"
	for key, calls := range map[string][]iamtest.Call{
		task: {{Action: "sqs:ReceiveMessage", Resource: queue, Existing: true}, {Action: "sqs:DeleteMessage", Resource: queue, Existing: true}, {Action: "s3:PutObject", Resource: bucket + "/result"},
			{Action: "s3:GetObject", Resource: bucket + "/result"}, {Action: "s3:ListBucket", Resource: bucket}},
		execution: {{Action: "logs:CreateLogStream", Resource: stream}, {Action: "logs:PutLogEvents", Resource: stream}, {Action: "ecr:GetAuthorizationToken", Resource: "*"},
			{Action: "ecr:BatchGetImage", Resource: repository}, {Action: "ecr:GetDownloadUrlForLayer", Resource: repository}, {Action: "ecr:BatchCheckLayerAvailability", Resource: repository}},
	} {
		_ = s.guard.Authorize(key, calls...) // refusals gets the error
	}
}

// checkForeign deploys a version of the app with a module that changes what others own in the account:
// a queue, a cluster and a role. It also puts the install's tag on the cluster. Each change is refused.
func (s *service) checkForeign() {
	t := s.account.t
	t.Helper()
	ctx := t.Context()
	messages, containers, roles := sqs.NewFromConfig(s.inMoto()), ecs.NewFromConfig(s.inMoto()), iam.NewFromConfig(s.inMoto())
	const name, here = "payroll", region + ":" + accountID + ":"
	queue, err := messages.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(name), Tags: map[string]string{"owner": "hr"}})
	s.ok("create the queue of another", err)
	_, err = containers.CreateCluster(ctx, &ecs.CreateClusterInput{ClusterName: aws.String(name)})
	s.ok("create the cluster of another", err)
	_, err = roles.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String(name), AssumeRolePolicyDocument: aws.String("{}")})
	s.ok("create the role of another", err)

	const app = "../../../examples/aws-service"
	folder := filepath.Join(t.TempDir(), "app")
	s.ok("copy the app", os.CopyFS(folder, os.DirFS(app)))
	text, err := os.ReadFile(filepath.Join(app, "app.yaml"))
	s.ok("read the app", err)
	s.ok("add a component", errors.Join(os.Mkdir(filepath.Join(folder, "intruder"), 0o755),
		os.WriteFile(filepath.Join(folder, "app.yaml"), append(text, "\n  intruder:\n    type: terraform\n    source: ./intruder\n"...), 0o644),
		os.WriteFile(filepath.Join(folder, "intruder", "main.tf"), fmt.Appendf(nil, `
terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

provider "aws" {
  region = %[1]q
}

resource "aws_sqs_queue_policy" "x" {
  queue_url = "https://sqs.%[1]s.amazonaws.com/%[2]s/%[3]s"
  policy    = jsonencode({ Version = "2012-10-17", Statement = [{ Effect = "Allow", Principal = "*", Action = "sqs:*", Resource = "*" }] })
}

resource "aws_ecs_cluster_capacity_providers" "x" {
  cluster_name       = %[3]q
  capacity_providers = ["FARGATE"]
}

resource "aws_ecs_tag" "x" {
  resource_arn = "arn:aws:ecs:%[1]s:%[2]s:cluster/%[3]s"
  key          = "fairlead_install"
  value        = %[4]q
}

resource "aws_iam_role_policy" "x" {
  role   = %[3]q
  policy = jsonencode({ Version = "2012-10-17", Statement = [{ Effect = "Allow", Action = "*", Resource = "*" }] })
}
`, region, accountID, name, s.id), 0o644)))
	s.cli("app", "apply", folder)
	s.refused.attack()
	d := s.deploy("failed", 1, "install", "deploy", "acme")

	var job string
	for _, c := range d.Components {
		want := "unchanged"
		if c.Name == "intruder" {
			want, job = "failed", c.Job
		}
		if c.State != want {
			t.Errorf("%s is %s, want %s", c.Name, c.State, want)
		}
	}
	if log := string(s.cli("job", "logs", job)); strings.Count(log, "not authorized to perform") < 4 || !strings.Contains(log, "AccessDeniedException") {
		t.Errorf("the log does not name the four refusals:\n%s", log)
	}
	want := map[string]bool{"sqs:SetQueueAttributes arn:aws:sqs:" + here + name: true, "ecs:PutClusterCapacityProviders arn:aws:ecs:" + here + "cluster/" + name: true,
		"ecs:TagResource arn:aws:ecs:" + here + "cluster/" + name: true, "iam:PutRolePolicy arn:aws:iam::" + accountID + ":role/" + name: true}
	got := map[string]bool{}
	for _, r := range s.refused.list() {
		got[r.Action+" "+r.Resource] = true
		if !strings.HasSuffix(r.Principal, "/"+job) {
			t.Errorf("IAM refuses %s to %s, want the session of the job %s", r.Action, r.Principal, job)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("IAM refuses %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}

	attributes, err := messages.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: queue.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNamePolicy}})
	s.ok("get the queue's policy", err)
	clusters, err := containers.DescribeClusters(ctx, &ecs.DescribeClustersInput{Clusters: []string{name}, Include: []ecstypes.ClusterField{ecstypes.ClusterFieldTags}})
	s.ok("describe the cluster", err)
	policies, err := roles.ListRolePolicies(ctx, &iam.ListRolePoliciesInput{RoleName: aws.String(name)})
	s.ok("list the role's policies", err)
	if cluster := clusters.Clusters[0]; attributes.Attributes["Policy"] != "" || len(cluster.CapacityProviders) > 0 || len(cluster.Tags) > 0 || len(policies.PolicyNames) > 0 {
		t.Errorf("what others own has changed: %v, %+v, %v", attributes.Attributes, cluster, policies.PolicyNames)
	}
}
