package deployment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
)

// none is the value of a parameter of the stack that is not set. The CDK's CLI takes an
// empty value for the previous value. infra/control has the same value.
const none = "none"

// firstKey is the value of the parameter SignsWith of a new stack.
const firstKey = "First"

// later reports whether a value of SIGNS_WITH is a key that replaces both keys of the stack.
func later(signs string) bool { return strings.HasPrefix(signs, "arn:") }

// reserves is the value of the parameter ReservesConcurrency that reserves it.
const reserves = "Yes"

// Concurrent executions of Lambda functions. TestDeploymentKnowsParameters compares
// reserved with the stack.
const (
	reserved          = 605  // sum of the executions that the stack reserves
	leastUnreserved   = 100  // AWS refuses reservations that leave less to the other functions
	wantedConcurrency = 1000 // AWS's default quota; new accounts may have 10
)

// maxReaders is how many account numbers, separated by commas, a parameter of a stack holds.
const maxReaders = (4096 + 1) / (12 + 1)

// parameter is a parameter of the stack with its value.
type parameter struct{ name, value string }

// set returns the value of a parameter; "" if it is not set.
func set(value string) string {
	if value == none {
		return ""
	}
	return value
}

// values returns the values of all parameters of the stack. CloudFormation keeps them, so
// that a plain "cdk deploy" changes nothing.
func (d *Deployment) values(ctx context.Context, s state, r release) ([]parameter, error) {
	keys := ""
	if s.builder != "" {
		signs, other := s.outputs["SigningKeyArn"], s.outputs["SpareSigningKeyArn"]
		switch {
		case later(s.signs):
			signs, other = s.signs, "" // a key of the stack may be revoked
		case s.signs != s.signed(): // the key that signs now may be lost
			signs, other = other, signs
		}
		var err error
		if keys, err = d.signingKey(ctx, signs); err != nil {
			return nil, err
		}
		if other != "" {
			if spare, err := d.signingKey(ctx, other); err == nil {
				keys += "," + spare
			} else {
				d.say("Warning: the build runner pins one signing key only: %v", err)
			}
		}
	}
	signs, laterKey := s.signs, none
	if later(s.signs) {
		signs, laterKey = cmp.Or(s.parameters["SignsWith"], firstKey), s.signs
	}
	reservation := "No"
	if s.reserves {
		reservation = reserves
	}
	list := []parameter{
		{"RunnerDigest", r.runner}, {"TemplateDigest", fmt.Sprintf("%x", sha256.Sum256(r.template))}, {"RunnerReaders", strings.Join(s.readers, ",")},
		{"AlarmEmail", s.alarms}, {"BuildRunner", s.builder}, {"BuildRunnerKeys", keys}, {"ReservesConcurrency", reservation}, {"MonthlyBudget", s.budget},
		{"DirectLaunch", r.direct}, {"ShellDigest", r.shell}, {"RestoredTable", s.table}, {"SpareStack", s.spare.parts}, {"ExistingKeys", s.keys}, {"SignsWith", signs}, {"LaterSigningKey", laterKey}, {"Version", d.Version},
	}
	for i, p := range list {
		list[i].value = cmp.Or(p.value, none)
	}
	return list, nil
}
