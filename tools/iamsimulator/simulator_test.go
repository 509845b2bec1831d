package iamsimulator_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/iamsimulator"
)

func allow(action, resource string) map[string]any {
	return map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow", "Action": action, "Resource": resource}}}
}

// One simulator answers several requests. Session policy and boundary narrow the role.
func TestPoliciesNarrowEachOther(t *testing.T) {
	s := iamsimulator.Start(t)
	defer s.Stop()
	const queue = "arn:aws:sqs:eu-central-1:111122223333:a"
	q := iamsimulator.Question{Principal: "arn:aws:iam::111122223333:role/x", Action: "sqs:ReceiveMessage", Resource: queue, Account: "111122223333", Identity: []map[string]any{allow("sqs:*", "*")}}
	other, bounded, tagged, foreign := q, q, q, q
	other.Session = allow("sqs:*", queue+"b")
	bounded.Boundary = allow("s3:*", "*")
	tagged.Identity = []map[string]any{allow("sqs:*", "arn:aws:sqs:eu-central-1:111122223333:${aws:PrincipalTag/queue}")}
	foreign.Identity = tagged.Identity
	tagged.Context, foreign.Context = map[string]any{"aws:PrincipalTag/queue": "a"}, map[string]any{"aws:PrincipalTag/queue": "b"}
	for range 2 {
		got, err := s.Ask([]iamsimulator.Question{q, other, bounded, tagged, foreign})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false, false, true, false} {
			if got[i] != want {
				t.Errorf("question %d is allowed: %t, want %t", i, got[i], want)
			}
		}
	}
}

func TestUnknownActionIsAnError(t *testing.T) {
	s := iamsimulator.Start(t)
	defer s.Stop()
	q := iamsimulator.Question{Principal: "arn:aws:iam::111122223333:role/x", Action: "sqs:Peek", Resource: "*", Account: "111122223333"}
	if got, err := s.Ask([]iamsimulator.Question{q}); err == nil || !strings.Contains(err.Error(), "sqs:Peek") {
		t.Errorf("got %v, %v, want an error that names the action", got, err)
	}
}
