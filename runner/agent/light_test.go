package agent

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/runner/attempt"
)

// A job that needs a client of a cloud, or builds something, would fail in the program of light steps.
func TestJobThatNeedsACloudGetsTheFullProgram(t *testing.T) {
	plan := wire.Claim{Plugin: "terraform", Operation: "plan", Component: "web", APIOnly: true}
	for consequence, tt := range map[string]struct {
		claim func(*wire.Claim)
		in    attempt.Input
		token string
		light bool
	}{
		"a plan starts the light program":                                {light: true},
		"a check starts the light program":                               {claim: func(c *wire.Claim) { c.Plugin, c.Operation = "check", "check" }, light: true},
		"an older control plane is believed to need no cloud":            {claim: func(c *wire.Claim) { c.APIOnly = false }},
		"a build finds no builder":                                       {claim: func(c *wire.Claim) { c.Plugin, c.Operation = "build", "build" }},
		"a role cannot be assumed":                                       {in: attempt.Input{Role: &attempt.Role{ARN: "arn:aws:iam::1:role/x"}}},
		"a bound token cannot be traded":                                 {token: bound.Token("fll_x.mac", "arn:aws:iam::1:role/x")},
		"a parameter of SSM cannot be read":                              {in: attempt.Input{Secrets: map[string]string{"web/TOKEN": "ssm:/token"}}},
		"a secret of Secrets Manager for all components cannot be read":  {in: attempt.Input{Secrets: map[string]string{"TOKEN": "secretsmanager:token"}}},
		"a seed of install keys in a store of AWS cannot be read":        {in: attempt.Input{InstallKey: "secretsmanager:seed"}},
		"a seed of install keys in a file costs the full program":        {in: attempt.Input{InstallKey: "file:/seed"}, light: true},
		"a file as a secret costs the full program":                      {in: attempt.Input{Secrets: map[string]string{"web/TOKEN": "file:/token"}}, light: true},
		"a secret of another component costs the full program":           {in: attempt.Input{Secrets: map[string]string{"other/TOKEN": "ssm:/token"}}, light: true},
		"the providers of a mirror in a bucket are downloaded each time": {in: attempt.Input{Mirror: "s3://providers/all"}},
		"a mirror in a folder costs the full program":                    {in: attempt.Input{Mirror: "/srv/providers"}, light: true},
	} {
		c, token := plan, tt.token
		if tt.claim != nil {
			tt.claim(&c)
		}
		if token == "" {
			token = "fll_x"
		}
		if got := isLight(c, tt.in, token); got != tt.light {
			t.Errorf("%s: light is %t", consequence, got)
		}
	}
}
