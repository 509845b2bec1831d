package awstest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/tools/iamsimulator"
)

// refusals collects what the guard refuses. A refusal fails the test, except while the test
// attacks.
type refusals struct {
	mu      sync.Mutex
	attacks bool
	denied  []*iamtest.Denied // since the attack began
}

func newGuard(t testing.TB, server string) (*iamtest.Guard, *refusals) {
	t.Helper()
	simulator := iamsimulator.Start(t)
	t.Cleanup(simulator.Stop)
	r := &refusals{}
	return iamtest.New(iamtest.Options{Account: accountID, Region: region, Now: time.Now, Simulator: simulator, Server: server, Report: func(err error) { r.add(t, err) }}), r
}

func (r *refusals) add(t testing.TB, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := errors.AsType[*iamtest.Denied](err); ok && r.attacks {
		r.denied = append(r.denied, d)
		return
	}
	t.Errorf("IAM refuses a request: %v", err)
}

// addPolicies gives the guard the roles and the policies of a template, with the values of
// the created resources. Policies of AWS count as empty unless the account has their text, so
// each permission that the story needs must be in the template.
func (a *account) addPolicies(r *resolver) {
	a.t.Helper()
	each := func(kind string, do func(id string, p map[string]any)) {
		for _, id := range r.tmpl.ofType(kind) {
			if res := r.tmpl.Resources[id]; res.Condition == "" || r.holds(res.Condition) {
				do(id, res.Properties)
			}
		}
	}
	document := func(v any) iamtest.Policy { return r.value(v).(map[string]any) }
	managed, inline := map[string]iamtest.Policy{}, map[string][]iamtest.Policy{} // by ARN, by the role's name
	each("AWS::IAM::ManagedPolicy", func(id string, p map[string]any) { managed[r.ref(id)] = document(p["PolicyDocument"]) })
	each("AWS::IAM::RolePolicy", func(_ string, p map[string]any) {
		inline[r.text(p["RoleName"])] = append(inline[r.text(p["RoleName"])], document(p["PolicyDocument"]))
	})
	each("AWS::IAM::Policy", func(_ string, p map[string]any) {
		for _, role := range a.list(r, p["Roles"]) {
			inline[role] = append(inline[role], document(p["PolicyDocument"]))
		}
	})
	each("AWS::IAM::Role", func(id string, p map[string]any) {
		role := iamtest.Role{ARN: r.attribute(id, "Arn"), Trust: document(p["AssumeRolePolicyDocument"]), Policies: inline[r.ref(id)]}
		list, _ := p["Policies"].([]any)
		for _, own := range list {
			role.Policies = append(role.Policies, document(own.(map[string]any)["PolicyDocument"]))
		}
		if boundary := r.text(p["PermissionsBoundary"]); boundary != "" {
			if role.Boundary = managed[boundary]; role.Boundary == nil {
				a.t.Fatalf("the boundary %s of %s is not in the template", boundary, id)
			}
		}
		for _, arn := range a.list(r, p["ManagedPolicyArns"]) {
			if own, ok := managed[arn]; ok {
				role.Policies = append(role.Policies, own)
			} else if own, ok := a.managed[arn]; ok {
				role.Policies = append(role.Policies, own)
			} else if !strings.HasPrefix(arn, "arn:aws:iam::aws:policy/") {
				a.t.Fatalf("the policy %s of %s is not in the template", arn, id)
			}
		}
		a.guard.AddRole(role)
	})
	each("AWS::KMS::Key", func(id string, p map[string]any) { a.guard.AddPolicy(r.attribute(id, "Arn"), document(p["KeyPolicy"])) })
	each("AWS::S3::BucketPolicy", func(_ string, p map[string]any) {
		a.guard.AddPolicy("arn:aws:s3:::"+r.text(p["Bucket"]), document(p["PolicyDocument"]))
	})
	each("AWS::SQS::QueuePolicy", func(_ string, p map[string]any) {
		for _, url := range a.list(r, p["Queues"]) {
			a.guard.AddPolicy("arn:aws:sqs:"+region+":"+accountID+":"+url[strings.LastIndex(url, "/")+1:], document(p["PolicyDocument"]))
		}
	})
}

// list resolves v to a list of strings; nil: none.
func (a *account) list(r *resolver, v any) (out []string) {
	values, _ := r.value(v).([]any)
	for _, value := range values {
		out = append(out, value.(string))
	}
	return out
}

// openFunctions gives each function the credentials of its role. Lambda itself writes the
// function's log with the role.
func (a *account) openFunctions() {
	a.t.Helper()
	for name, f := range a.functions {
		own, err := a.guard.Open("lambda.amazonaws.com", f.role, name)
		a.ok("open the role of "+name, err)
		f.key = own.AccessKeyID
		f.program.Env = append(f.program.Env, "AWS_ACCESS_KEY_ID="+own.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+own.SecretAccessKey, "AWS_SESSION_TOKEN="+own.SessionToken)
		a.may(name, "arn:aws:logs:"+region+":"+accountID+":log-group:"+f.log+":log-stream:x", "logs:CreateLogStream", "logs:PutLogEvents")
	}
	for _, id := range a.tmpl.ofType("AWS::Lambda::EventInvokeConfig") { // Lambda reports failed invocations with the role
		p := a.value(a.tmpl.Resources[id].Properties).(map[string]any)
		name := p["FunctionName"].(string)
		a.may(name[strings.LastIndex(name, "-")+1:], p["DestinationConfig"].(map[string]any)["OnFailure"].(map[string]any)["Destination"].(string), "sqs:SendMessage")
	}
}

// may checks that a function's role permits what Lambda does with it. A refusal fails the
// test.
func (a *account) may(function, resource string, actions ...string) {
	a.t.Helper()
	for _, action := range actions {
		_ = a.guard.Authorize(a.functions[function].key, iamtest.Call{Action: action, Resource: resource}) // refusals gets the error
	}
}

// attack makes refusals expected from now on.
func (r *refusals) attack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attacks = true
}

// count returns the number of requests that IAM denied since the attack began.
func (r *refusals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.denied)
}

// list returns the requests that IAM denied since the attack began.
func (r *refusals) list() []*iamtest.Denied {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.denied)
}
