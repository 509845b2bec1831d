package step

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/redact"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

// recordedRole is a role that records its session policies. It refuses as many policies for their size as refuse states.
type recordedRole struct {
	policies []string // the first one is that of TakeRole
	refuse   int
	fail     error
}

func (r *recordedRole) take(_ context.Context, w RoleWanted, _ string, _ func(string)) (*Role, error) {
	r.policies = append(r.policies, w.Policy)
	return &Role{Close: func() error { return nil }, SetPolicy: func(_ context.Context, policy string) error {
		if r.fail != nil {
			return r.fail
		}
		if policy != "" && r.refuse > 0 {
			r.refuse--
			return ErrPolicySize
		}
		r.policies = append(r.policies, policy)
		return nil
	}}, nil
}

// applySpec is an apply of a module whose state is in a bucket.
func applySpec() events.JobSpec {
	spec := jobOf(1, "apply", "web")
	spec.State = &events.StateRef{Storage: "s3", Key: "acme/web", In: &events.StateStore{Bucket: "states", Region: "eu-central-1"}}
	return spec
}

// The story of an apply: before its changes are known, its credentials are for the state; then they are for the state and the services of
// the changes. So a program in the apply can delete no table if the approved change set has only a queue.
func TestApplyGetsTheServicesOfItsChanges(t *testing.T) {
	const queue = `"sqs:*"`
	use := func(kinds ...string) plugin.Use { return plugin.Use{Kinds: kinds} }
	for _, tt := range []struct {
		name   string
		use    plugin.Use
		change func(spec *events.JobSpec, a *execution, r *recordedRole)
		policy string   // of the customer, "": none
		first  string   // what the first session policy has; "": the role is whole
		last   string   // what the last one has; "": the role is whole
		log    string   // what the line in the log has
		reason string   // of the failure; "": none
		lacks  []string // what no session policy has
	}{
		{name: "the change set has a queue", use: use("aws_sqs_queue"), first: "arn:*:s3:::states", last: queue, log: "for sqs", lacks: []string{"dynamodb", "s3:*"}},
		{name: "a removal is narrowed too", use: use("aws_sqs_queue"), change: func(s *events.JobSpec, _ *execution, _ *recordedRole) { s.Operation = "destroy" }, first: "states", last: queue, log: "credentials of this destroy"},
		{name: "nothing of AWS changes", use: use(), first: "states", last: "states", log: "for the state only"},
		{name: "a type is not mapped: a guess would break the apply in the middle", use: use("aws_sqs_queue", "aws_waf_rule"), first: "states", log: "stays whole: this runner does not know the services of aws_waf_rule"},
		{name: "a program of the module runs: it could need any service", use: plugin.Use{Kinds: []string{"aws_sqs_queue"}, Programs: []string{"terraform_data.x"}}, first: "states", log: "terraform_data.x runs a program"},
		{name: "STS refuses the policy for its packed size: a coarser one", use: use("aws_lambda_function"), change: func(_ *events.JobSpec, _ *execution, r *recordedRole) { r.refuse = 2 }, first: "states", last: `"s3:*"`, log: "for ec2, elasticfilesystem, lambda, s3"},
		{name: "STS refuses each policy", use: use("aws_sqs_queue"), change: func(_ *events.JobSpec, _ *execution, r *recordedRole) { r.refuse = 9 }, first: "states", log: "too many services"},
		{name: "the runner's configuration keeps the role whole", use: use("aws_sqs_queue"), change: func(_ *events.JobSpec, a *execution, _ *recordedRole) { a.in.WholeRoles = true }, log: "whole_roles"},
		{name: "AWS refuses the role: nothing was changed", use: use("aws_sqs_queue"), change: func(_ *events.JobSpec, _ *execution, r *recordedRole) { r.fail = errors.New("no") }, first: "states", last: "states", reason: "role-refused"},

		{name: "the customer demands it, and a type is not mapped", policy: "whole_role: []", use: use("aws_waf_rule"), first: "states", last: "states", reason: "policy-denied"},
		{name: "the customer demands it except for this type", policy: "whole_role: [aws_waf_*]", use: use("aws_waf_rule"), first: "states", log: "stays whole"},
		{name: "the customer demands it, and a program runs", policy: "whole_role: [aws_*]", use: plugin.Use{Programs: []string{"terraform_data.x"}}, first: "states", last: "states", reason: "policy-denied"},
		{name: "the customer demands it, and STS refuses each policy", policy: "whole_role: [aws_*, local-exec]", use: use("aws_sqs_queue"), change: func(_ *events.JobSpec, _ *execution, r *recordedRole) { r.refuse = 9 }, first: "states", last: "states", reason: "policy-denied"},
		{name: "the customer demands it, and the configuration keeps roles whole: a provider without a change would have it", policy: "whole_role: []", use: use("aws_sqs_queue"), change: func(_ *events.JobSpec, a *execution, _ *recordedRole) { a.in.WholeRoles = true }, first: "states", last: queue, log: "for sqs"},
		{name: "the customer demands it, and all types are mapped", policy: "whole_role: []", use: use("aws_sqs_queue"), first: "states", last: queue, log: "for sqs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, r, spec := underPolicy(t, tt.policy), &recordedRole{}, applySpec()
			a.TakeRole, a.in.Role, a.in.Operation, a.workspace = r.take, &attempt.Role{ARN: "arn:aws:iam::111122223333:role/provision"}, "apply", &workspace.Held{Path: t.TempDir()}
			if tt.change != nil {
				tt.change(&spec, a, r)
			}
			var g *guard
			if tt.policy != "" {
				g = guardOf(t, a, spec)
			}
			role, err := a.takeRole(t.Context(), spec, g, redact.New())
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			err = a.narrower(spec, role, g, &log)(t.Context(), tt.use)
			if got := string(plugin.ReasonOf(err)); err != nil && got != tt.reason || (err == nil) != (tt.reason == "") {
				t.Fatalf("error %v (%s), want the reason %q", err, got, tt.reason)
			}
			has := func(what, policy, want string) {
				if want == "" && policy != "" || !strings.Contains(policy, want) {
					t.Errorf("the %s session policy is %q, want %q", what, policy, want)
				}
			}
			has("first", r.policies[0], tt.first)
			has("last", r.policies[len(r.policies)-1], tt.last)
			if strings.Contains(r.policies[0], queue) {
				t.Errorf("the first session policy has a service: providers that describe the plan run with it: %s", r.policies[0])
			}
			for _, no := range tt.lacks {
				if all := strings.Join(r.policies, " "); strings.Contains(all, no) {
					t.Errorf("%q is in %s", no, all)
				}
			}
			if !strings.Contains(log.String(), tt.log) || tt.log != "" && strings.Count(log.String(), "\n") != 1 {
				t.Errorf("the log is %q, want one line with %q", log.String(), tt.log)
			}
		})
	}
}

// Other jobs have the role as it is: a plan reads what it must, and a script and a chart name no services.
func TestOtherJobsHaveTheirRoleAsItIs(t *testing.T) {
	for _, tt := range []struct{ plugin, operation string }{{"terraform", "plan"}, {"terraform", "plan-destroy"}, {"terraform", "migrate-state"}, {"script", "apply"}, {"helm", "apply"}, {"plugin", "apply"}} {
		spec := applySpec()
		spec.Plugin, spec.Operation = tt.plugin, tt.operation
		a := &execution{Env: Env{Now: time.Now}}
		if a.firstPolicy(spec, nil) != "" || a.narrower(spec, &Role{}, nil, nil) != nil {
			t.Errorf("the %s of a %s is narrowed", tt.operation, tt.plugin)
		}
	}
}

// On a runner whose jobs take no role, nothing can be narrowed. A customer who demands it learns that, and no module is applied with what
// the machine has.
func TestCustomerDemandsNarrowRolesWhereThereAreNone(t *testing.T) {
	spec := applySpec()
	a := underPolicy(t, "")
	if a.narrower(spec, nil, nil, nil) != nil || a.narrower(spec, nil, guardOf(t, a, spec), nil) != nil {
		t.Error("a job without a role is narrowed")
	}
	a = underPolicy(t, "whole_role: []")
	narrow := a.narrower(spec, nil, guardOf(t, a, spec), nil)
	if err := narrow(t.Context(), plugin.Use{Kinds: []string{"aws_sqs_queue"}}); plugin.ReasonOf(err) != fairlead.ReasonPolicyDenied {
		t.Errorf("error %v, want %s", err, fairlead.ReasonPolicyDenied)
	}
	if err := narrow(t.Context(), plugin.Use{Programs: []string{"terraform_data.x"}}); plugin.ReasonOf(err) != fairlead.ReasonPolicyDenied {
		t.Errorf("a program with what the machine has: %v, want %s", err, fairlead.ReasonPolicyDenied)
	}
	if err := narrow(t.Context(), plugin.Use{}); err != nil {
		t.Errorf("a module that uses nothing of AWS: %v", err)
	}
}
