package runnerstack_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/sessionpolicy"
)

// narrow is an apply of a recorded module with the session policy of its change set.
type narrow struct {
	name      string
	operation string
	policy    sessionpolicy.Policy
	calls     []int // in the recording
}

// applies returns the applies of a recording with their session policies.
func (r recording) applies(t *testing.T, name string, n sessionpolicy.Needs) (out []narrow) {
	t.Helper()
	for _, a := range r.Applied {
		var changes []changeset.Change
		for _, c := range a.Changes {
			changes = append(changes, changeset.Change{Kind: c.Type, Action: changeset.Action(c.Action)})
		}
		p := sessionpolicy.For(sessionpolicy.Kinds(changes), n)
		if len(p.Policies) == 0 || len(p.Unmapped) > 0 {
			t.Errorf("%s: the role of %s would stay whole: %+v", name, a.Operation, p)
			continue
		}
		out = append(out, narrow{name, a.Operation, p.Policies[0], a.Calls})
	}
	return out
}

// named reports whether a policy names the action, its service, or a beginning of the action.
func named(document, action string) bool {
	for n := strings.Index(action, ":") + 1; n < len(action); n++ {
		if strings.Contains(document, `"`+action[:n]+`*"`) {
			return true
		}
	}
	return strings.Contains(document, `"`+action+`"`)
}

func decoded(t *testing.T, document string) (d map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The credentials of an apply permit each call that the real provider made in it, and no call of another module to a service that the
// change set does not have.
func TestNarrowedApplyIsNotDenied(t *testing.T) {
	all := recordings(t)
	principal := stack(t).ARN("ProvisionRole")
	var own, foreign []infratest.Question
	var ofOwn, ofForeign []narrow
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		if len(r.Applied) == 0 {
			t.Errorf("%s: the recording has no change set", name)
		}
		questions := r.ask(t, name)
		for _, a := range r.applies(t, name, sessionpolicy.Needs{Buckets: []string{"states"}}) {
			session := decoded(t, a.policy.Document)
			asked := map[string]bool{}
			for _, i := range a.calls {
				q := questions[i].Question
				if asked[q.Action] { // the session policy is for each resource, except for the state
					continue
				}
				asked[q.Action] = true
				q.Session = session
				own, ofOwn = append(own, q), append(ofOwn, a)
			}
			if a.operation != "apply" {
				continue
			}
			// One call of each other service that another module's apply makes, with a role that may make it.
			clear(asked)
			for _, other := range slices.Sorted(maps.Keys(all)) {
				for _, c := range all[other].Calls {
					service, _, _ := strings.Cut(c.Action, ":")
					if c.Operation != "apply" || asked[service] || named(a.policy.Document, c.Action) {
						continue
					}
					asked[service] = true
					foreign = append(foreign, infratest.Question{Principal: principal, Action: c.Action, Resource: c.Resource, Account: infratest.Account, Context: c.Context,
						Identity: []map[string]any{policyOf("*")}, Session: session})
					ofForeign = append(ofForeign, a)
				}
			}
		}
	}
	for i, allowed := range infratest.Ask(t, own) {
		if !allowed {
			t.Errorf("%s: its %s with the session policy of its changes may not %s on %s: %s", ofOwn[i].name, ofOwn[i].operation, own[i].Action, own[i].Resource, ofOwn[i].policy.Document)
		}
	}
	for i, allowed := range infratest.Ask(t, foreign) {
		if allowed {
			t.Errorf("%s: an apply of it may %s, a service that its change set does not have: %s", ofForeign[i].name, foreign[i].Action, ofForeign[i].policy.Document)
		}
	}
	if len(own) < 200 || len(foreign) < 100 {
		t.Errorf("%d calls and %d calls of other services were asked", len(own), len(foreign))
	}
	t.Logf("%d calls of applies are allowed, %d calls to other services are denied", len(own), len(foreign))
}

// What each apply does besides its changes: it reads its plan, locks and writes the state, and uses the key through S3.
func TestNarrowedApplyKeepsItsState(t *testing.T) {
	s := stack(t)
	const bucket = "fairlead-states"
	n := sessionpolicy.Needs{Buckets: []string{bucket}}
	arn := "arn:aws:s3:::" + bucket
	via := map[string]any{"kms:ViaService": "s3.eu-central-1.amazonaws.com"}
	before, after := sessionpolicy.Before(n), sessionpolicy.For([]string{"aws_sqs_queue"}, n).Policies[0].Document
	var questions []infratest.Question
	rows := []struct {
		action, resource string
		context          map[string]any
		before, after    bool
		why              string
	}{
		{"s3:GetObject", arn + "/states/ins/web.tfplan", nil, true, true, "the plan cannot be read"},
		{"s3:PutObject", arn + "/states/ins/web.tfstate", nil, true, true, "the state would be lost"},
		{"s3:DeleteObject", arn + "/states/ins/web.tfstate.tflock", nil, true, true, "the lock would stay"},
		{"s3:ListBucket", arn, nil, true, true, "the backend does not find the state"},
		{"s3:DeleteBucket", arn, nil, false, false, "a module removes all states"},
		{"s3:GetObject", "arn:aws:s3:::customers-invoices/2026.csv", nil, false, false, "a module reads another bucket"},
		{"kms:Decrypt", "arn:aws:kms:eu-central-1:" + infratest.Account + ":key/1", via, true, true, "the state cannot be opened"},
		{"kms:Decrypt", "arn:aws:kms:eu-central-1:" + infratest.Account + ":key/1", nil, false, false, "a module decrypts what it found"},
		{"sqs:CreateQueue", "arn:aws:sqs:eu-central-1:" + infratest.Account + ":q", nil, false, true, "a provider changes something while the plan is read"},
		{"iam:PassRole", "arn:aws:iam::" + infratest.Account + ":role/x", nil, false, true, "a service gets no role"},
		{"iam:CreateUser", "arn:aws:iam::" + infratest.Account + ":user/x", nil, false, false, "a module makes a user"},
		{"dynamodb:DeleteTable", "arn:aws:dynamodb:eu-central-1:" + infratest.Account + ":table/t", nil, false, false, "a module deletes a table, and the change set has only a queue"},
	}
	for _, document := range []string{before, after} {
		for _, row := range rows {
			q := infratest.Question{Principal: s.ARN("ProvisionRole"), Action: row.action, Resource: row.resource, Account: infratest.Account, Context: row.context,
				Identity: []map[string]any{policyOf("*")}, Session: decoded(t, document)}
			if strings.HasPrefix(row.action, "kms:") {
				q.ResourceP = accountsKeyPolicy
			}
			questions = append(questions, q)
		}
	}
	for i, allowed := range infratest.Ask(t, questions) {
		row, want, when := rows[i%len(rows)], rows[i%len(rows)].before, "before the changes are known"
		if i >= len(rows) {
			want, when = row.after, "with a queue"
		}
		if allowed != want {
			t.Errorf("%s, an apply may %s on %s: %t, want %t: %s", when, row.action, row.resource, allowed, want, row.why)
		}
	}
}
