package agent

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/attempt"
)

// passedForRole is what a step that takes a role gets besides: where it finds
// the credentials of the runner, and the endpoints of AWS. Its tool gets none
// of it. A step that runs elsewhere finds them where it is, by its task's role
// or its pod's service account: credentials do not travel.
var passedForRole = []string{
	"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
	"AWS_ROLE_SESSION_NAME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT",
	"AWS_EC2_METADATA_DISABLED", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS",
}

// The plugins and operations that differ in their roles, as a claim names them.
const (
	pluginTerraform = "terraform"
	pluginCheck     = "check"
)

// operationRole returns the role of the stack with which a claim's step works,
// nil if it works with none. A module makes infrastructure and so is applied by
// the role that provisions; everything else that is applied, by the one that
// deploys and cannot remove what holds data. An operation that the stack has no
// role for is not carried out: with the wrong role it would do too much.
func operationRole(s *config.RunnerStack, region string, c wire.Claim) (*attempt.Role, error) {
	if s == nil || c.Plugin == pluginCheck {
		return nil, nil
	}
	r := &attempt.Role{ExternalID: s.ExternalID, Region: region, Install: s.Install}
	switch c.Operation {
	case "plan", "plan-destroy":
		r.ARN = s.RoleReadOnly
	case "migrate-state": // it writes states, and nothing else of the app
		r.ARN = s.RoleDeploy
	case "apply":
		if r.ARN = s.RoleDeploy; c.Plugin == pluginTerraform {
			r.ARN = s.RoleProvision
		}
	case "destroy":
		r.ARN = s.RoleDeprovision
	default:
		return nil, fmt.Errorf("the customer's stack has no role for the operation %q", c.Operation)
	}
	return r, nil
}
