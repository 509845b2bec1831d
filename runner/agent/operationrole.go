package agent

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/runner/attempt"
)

// passedForAWS are the variables that a step with a role or with secrets of the customer gets in
// addition. They tell the step where it finds the runner's credentials and the endpoints of AWS. The step's tool gets none of these
// variables. A step on another machine uses the credentials there: those of its task's role or of its
// pod's service account. The agent never sends credentials.
var passedForAWS = []string{
	"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
	"AWS_ROLE_SESSION_NAME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT",
	"AWS_EC2_METADATA_DISABLED", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS",
	"AWS_ENDPOINT_URL_SSM", "AWS_ENDPOINT_URL_SECRETS_MANAGER",
}

// claimedRole returns the role of a claim's operation; "" for a job of the runner itself. ok is false if the component's type
// does not have the operation.
func claimedRole(c wire.Claim) (role component.Role, ok bool) {
	if job.Operation(c.Operation).OfRunner() {
		return "", true
	}
	t, _ := component.Of(c.Plugin)
	return t.RoleOf(job.Operation(c.Operation), c.Role)
}

// operationRole returns the role of the customer's stack that the step of a claim uses, and the
// identity of a step in a task of its own, which can take only this role. The role is nil if the step
// uses no role. It refuses an operation that the component's type does not have, because a wrong
// role could permit too much.
func operationRole(s *config.RunnerStack, region string, c wire.Claim) (_ *attempt.Role, identity string, _ error) {
	role, ok := claimedRole(c)
	if s == nil || ok && role == "" {
		return nil, "", nil
	}
	if !ok {
		return nil, "", fmt.Errorf("the customer's stack has no role %q for the operation %q of %q", c.Role, c.Operation, c.Plugin)
	}
	r, identity := roleOf(s, region, role)
	return r, identity, nil
}

// roleOf returns a role of the customer's stack, and the identity of a step in a task of its own, which can take only
// this role. If the runner belongs to no stack, both are empty.
func roleOf(s *config.RunnerStack, region string, role component.Role) (_ *attempt.Role, identity string) {
	if s == nil {
		return nil, ""
	}
	of := map[component.Role]struct{ arn, step string }{
		component.ReadOnly: {s.RoleReadOnly, s.StepRoleReadOnly}, component.Deploy: {s.RoleDeploy, s.StepRoleDeploy},
		component.Provision: {s.RoleProvision, s.StepRoleProvision}, component.Deprovision: {s.RoleDeprovision, s.StepRoleDeprovision},
	}[role]
	return &attempt.Role{ExternalID: s.ExternalID, Region: region, Install: s.Install, ARN: of.arn}, of.step
}

// boundToken binds the token of a step to the identity of its task, because others in the customer's account may read the
// settings of a task. identity is "" if the step has no task of its own. bindable is false for an older control plane.
func boundToken(token, identity string, bindable bool) string {
	if identity == "" || !bindable {
		return token
	}
	return bound.Token(token, identity)
}
