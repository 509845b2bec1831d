package awsiam

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// AccountPattern is the regular expression of an AWS account.
const AccountPattern = `^[0-9]{12}$`

var (
	accountPattern = regexp.MustCompile(AccountPattern)
	regionPattern  = regexp.MustCompile(`^[a-z]{2,5}(-[a-z]+)+-[0-9]{1,2}$`)
)

// IsAccount reports whether s is the number of an AWS account.
func IsAccount(s string) bool { return accountPattern.MatchString(s) }

// PartitionOf returns the part of AWS that a region is in: account numbers and ARNs
// are of one. Without a region it is the one that nearly all are in. It reports
// false for what is no region from which a role can be proved.
func PartitionOf(region string) (string, bool) {
	if region == "" {
		return "aws", true
	}
	e, ok := EndpointOf(region, false)
	return e.Partition, ok && regionPattern.MatchString(region)
}

// RunnerRole is the ARN of the role of the runner in an install's stack. Its
// name is the template's choice and not CloudFormation's, so that it is known
// before the stack is.
func RunnerRole(partition, account string, install fairlead.InstallID) string {
	return fmt.Sprintf("arn:%s:iam::%s:role/fairlead/%s/fairlead-runner-%s", partition, account, install, install)
}

// AppRolePath is the path below which the roles that an app makes must be in an
// install's stack: the template lets none be made elsewhere.
func AppRolePath(install fairlead.InstallID) string { return fmt.Sprintf("/fairlead-app/%s/", install) }

// CheckStack returns why no CloudFormation stack in the account and region can have
// the ARN stack and the roles, which are ARNs by operation; nil if one can.
func CheckStack(account, region, stack string, roles map[string]string) error {
	arn := strings.SplitN(stack, ":", 6)
	if len(arn) != 6 || arn[2] != "cloudformation" || !strings.HasPrefix(arn[5], "stack/") {
		return fmt.Errorf("%.80q is no ARN of a stack", stack)
	}
	if arn[4] != account {
		return fmt.Errorf("it is in account %.20q, and the install's is %s", arn[4], account)
	}
	if arn[3] != region {
		return fmt.Errorf("it is in %.40q and says %.40q", arn[3], region)
	}
	if len(roles) > maxStackRoles {
		return fmt.Errorf("it has %d roles", len(roles))
	}
	for operation, role := range roles {
		if a := strings.SplitN(role, ":", 6); len(a) != 6 || a[2] != "iam" || a[4] != account || !strings.HasPrefix(a[5], "role/") || len(operation) > 40 {
			return fmt.Errorf("its role %.40q is %.120q, which is no role of account %s", operation, role, account)
		}
	}
	return nil
}

// maxStackRoles bounds the roles of a stack, of which each operation has one.
const maxStackRoles = 10
