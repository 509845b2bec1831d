package awsiam

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// AccountPattern is the regular expression of an AWS account.
const AccountPattern = `^[0-9]{12}$`

var (
	accountPattern = pattern.New(AccountPattern)
	regionPattern  = pattern.New(`^[a-z]{2,5}(-[a-z]+)+-[0-9]{1,2}$`)
)

// IsAccount reports whether s is the number of an AWS account.
func IsAccount(s string) bool { return accountPattern.MatchString(s) }

// PartitionOf returns the AWS partition of a region: account numbers and ARNs belong to one partition. Without a region
// it returns the standard partition. It reports false for a region from which no role can be proved.
func PartitionOf(region string) (string, bool) {
	if region == "" {
		return "aws", true
	}
	e, ok := EndpointOf(region, false)
	return e.Partition, ok && regionPattern.MatchString(region)
}

// RunnerRole returns the ARN of the runner's role in an install's stack. The template, not CloudFormation, sets the
// role's name, so that it is known before the stack exists.
func RunnerRole(partition, account string, install fairlead.InstallID) string {
	return fmt.Sprintf("arn:%s:iam::%s:role/fairlead/%s/fairlead-runner-%s", partition, account, install, install)
}

// AppRolePath returns the path that all roles created by an app must be below in an install's stack. The template
// forbids other paths.
func AppRolePath(install fairlead.InstallID) string { return fmt.Sprintf("/fairlead-app/%s/", install) }

// StackAccount returns the account in the ARN of a CloudFormation stack; "" if it is no ARN.
func StackAccount(stack string) string {
	if arn := strings.SplitN(stack, ":", 6); len(arn) == 6 {
		return arn[4]
	}
	return ""
}

// CheckStack returns an error if no CloudFormation stack in the account and region can have the ARN stack and the
// roles, which are ARNs by operation.
func CheckStack(account, region, stack string, roles map[string]string) error {
	arn := strings.SplitN(stack, ":", 6)
	if len(arn) != 6 || arn[2] != "cloudformation" || !strings.HasPrefix(arn[5], "stack/") {
		return fmt.Errorf("%.80q is not the ARN of a stack", stack)
	}
	if arn[4] != account {
		return fmt.Errorf("the stack is in account %.20q, but the install's account is %s", arn[4], account)
	}
	if arn[3] != region {
		return fmt.Errorf("the ARN of the stack has region %.40q, but the report has region %.40q", arn[3], region)
	}
	if len(roles) > maxStackRoles {
		return fmt.Errorf("the stack has %d roles", len(roles))
	}
	for operation, role := range roles {
		if a := strings.SplitN(role, ":", 6); len(a) != 6 || a[2] != "iam" || a[4] != account || !strings.HasPrefix(a[5], "role/") || len(operation) > 40 {
			return fmt.Errorf("the role for %.40q is %.120q, which is not a role of account %s", operation, role, account)
		}
	}
	return nil
}

// maxStackRoles is the maximum number of roles of a stack. Each operation has one role.
const maxStackRoles = 10
