package awstest

import (
	"crypto/rand"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
)

// customer is a customer's account with the runner's stack.
type customer struct {
	*account
	tasks *ecstest.Cloud // runs the tasks of jobs
}

// ignoredInRunnerStack lists the types of the runner stack's resources that the
// test does not create, in addition to taskResources.
var ignoredInRunnerStack = map[string]bool{"AWS::IAM::Policy": true, "AWS::IAM::RolePolicy": true, "AWS::S3::BucketPolicy": true}

// installStack creates the runner's stack of an install in a customer's account,
// by the link that the vendor got, and starts its runner with the
// environment of the template, in which environ replaces variables. stop ends the runner; call it
// before the test ends.
func (w *world) installStack(install string, environ ...string) (c *customer, stop func()) {
	w.t.Helper()
	return w.installStackWith(install, nil, environ...)
}

// installStackWith is installStack with parameters that the customer chooses.
func (w *world) installStackWith(install string, chosen map[string]string, environ ...string) (c *customer, stop func()) {
	w.t.Helper()
	stack := ask[wire.Stack](w, "install", "stack", install)
	given := linkParameters(w.t, stack.QuickCreateURL)
	maps.Copy(given, chosen)
	unique := install + "-" + strings.ToLower(rand.Text())[:4] // the names of an earlier stack of the install may be taken
	given["AWS::StackId"] = "arn:aws:cloudformation:" + region + ":" + accountID + ":stack/" + stack.StackName + "/" + unique
	inner := w.makeStack(unique, given)
	c = &customer{account: inner, tasks: w.tasks}
	w.makeStepTask(inner)
	inner.addPolicies(inner.resolver)
	return c, w.startTask(inner.resolver, "RunnerTask", environ...)
}

// linkParameters returns the parameters with which the AWS console opens a link.
func linkParameters(t testing.TB, link string) map[string]string {
	t.Helper()
	_, query, found := strings.Cut(link, "#/stacks/create/review?")
	values, err := url.ParseQuery(query)
	if err != nil || !found {
		t.Fatalf("the console does not open %s: %v", link, err)
	}
	given := map[string]string{}
	for name := range values {
		if parameter, ok := strings.CutPrefix(name, "param_"); ok {
			given[parameter] = values.Get(name)
		}
	}
	return given
}

// delete deletes the stack as CloudFormation does. The bucket of states with its policy, its
// key and the boundary stay. The runner must have stopped.
func (c *customer) delete() {
	c.t.Helper()
	for id, res := range c.tmpl.Resources {
		m, ok := c.made[id]
		if !ok {
			continue
		}
		var err error
		switch res.Type {
		case "AWS::IAM::Role":
			c.guard.DeleteRole(m.attr["Arn"])
		case "AWS::SSM::Parameter":
			_, err = ssm.NewFromConfig(c.config("SSM")).DeleteParameter(c.t.Context(), &ssm.DeleteParameterInput{Name: &m.ref})
		case "AWS::Logs::LogGroup":
			_, err = cloudwatchlogs.NewFromConfig(c.config("CLOUDWATCH_LOGS")).DeleteLogGroup(c.t.Context(), &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: &m.ref})
		case "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::SecretsManager::Secret":
			if res.DeletionPolicy != "RetainExceptOnCreate" {
				c.t.Errorf("the deletion of the stack deletes %s: %s", id, res.DeletionPolicy)
			}
		}
		c.ok("delete "+id, err)
	}
}

// makeStack makes the resources of a runner's stack, except those that its tasks need. Their
// names contain the parameter unique.
func (a *account) makeStack(unique string, given map[string]string) *account {
	a.t.Helper()
	inner := &account{id: a.id + "-" + unique, endpoints: a.endpoints, guard: a.guard, refused: a.refused, managed: a.managed,
		resolver: &resolver{t: a.t, tmpl: readTemplate(a.t, runnerTemplate), made: map[string]made{}, given: given}}
	for name := range inner.tmpl.Parameters {
		if _, ok := given[name]; !ok && inner.tmpl.Parameters[name].Default == nil {
			a.t.Errorf("the vendor did not get the parameter %s", name)
		}
	}
	keys := inner.tmpl.ofType("AWS::KMS::Key") // the first, because buckets name them
	for _, id := range append(keys, slices.Sorted(maps.Keys(inner.tmpl.Resources))...) {
		res := inner.tmpl.Resources[id]
		if _, done := inner.made[id]; done {
			continue
		}
		if res.Condition != "" && !inner.holds(res.Condition) {
			continue
		}
		switch res.Type {
		case "AWS::IAM::Role":
			inner.made[id] = inner.role(id, res.Properties)
		case "AWS::IAM::ManagedPolicy":
			inner.made[id] = made{ref: "arn:aws:iam::" + accountID + ":policy" + inner.text(res.Properties["Path"]) + inner.text(res.Properties["ManagedPolicyName"])}
		case "AWS::S3::Bucket":
			inner.made[id] = inner.bucket(id, res.Properties)
		case "AWS::KMS::Key":
			inner.made[id] = inner.key(id, res.Properties, "")
		case "AWS::ECR::Repository":
			name := inner.text(res.Properties["RepositoryName"])
			inner.made[id] = made{ref: name, attr: map[string]string{"Arn": "arn:aws:ecr:" + region + ":" + accountID + ":repository/" + name, "RepositoryUri": registryHost + "/" + name}}
		case "AWS::Logs::LogGroup":
			inner.made[id] = inner.logGroup(id, res.Properties) // for the output of agent and steps
		case "AWS::SSM::Parameter":
			inner.made[id] = inner.parameter(res.Properties)
		case "AWS::SecretsManager::Secret":
			inner.made[id] = inner.secret(res.Properties)
		default:
			if !ignoredInRunnerStack[res.Type] && !taskResources[res.Type] {
				a.t.Errorf("this test creates no %s, the type of %s", res.Type, id)
			}
		}
	}
	return inner
}
