package awsiam

import (
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Trust names the role that may open sessions of a runner. It is stored with the runner.
//
// The account and the unique identifier identify a role. A name is not enough: a role that is deleted and created again
// under the same name is another role, and may belong to another person.
//
// Before the customer has installed the runner's stack, the identifier is unknown. The trust then names the account and
// the role and waits: the first proof of that role before PinBefore sets the identifier. From then on the trust is like
// any other.
type Trust struct {
	Partition string    `json:"partition"`           // aws, aws-cn, aws-us-gov, aws-eusc: account numbers are of a partition
	Account   string    `json:"account"`             // 12 digits
	RoleID    string    `json:"role_id,omitempty"`   // AROA...; empty: waiting
	Role      string    `json:"role,omitempty"`      // the role's name; if set, the name must match too
	Path      string    `json:"path,omitempty"`      // the role's path, for people: STS does not report it, so it is not compared
	PinBefore time.Time `json:"pin_before,omitzero"` // set while the trust waits
}

// ParseTrust returns the trust for a role's ARN, with its path, and the role's unique identifier. Without an
// identifier, the trust waits until pinBefore for the first proof of the role.
func ParseTrust(roleARN, uniqueID string, pinBefore time.Time) (Trust, error) {
	parts := strings.SplitN(roleARN, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "iam" || parts[3] != "" || !strings.HasPrefix(parts[5], "role/") || strings.HasSuffix(parts[5], "/") {
		return Trust{}, invalidTrust(quote(roleARN) + " is not the ARN of an IAM role")
	}
	path := strings.TrimPrefix(parts[5], "role")
	slash := strings.LastIndexByte(path, '/')
	t := Trust{Partition: parts[1], Account: parts[4], RoleID: uniqueID, Role: path[slash+1:], Path: path[:slash+1]}
	if uniqueID == "" {
		t.PinBefore = pinBefore
	}
	return t, t.Check()
}

// RoleARN returns the role's ARN as IAM has it; "" if the trust has no role name.
func (t Trust) RoleARN() string {
	if t.Role == "" {
		return ""
	}
	path := t.Path
	if path == "" {
		path = "/"
	}
	return "arn:" + t.Partition + ":iam::" + t.Account + ":role" + path + t.Role
}

// Check returns an error if t is not a valid trust.
func (t Trust) Check() error {
	bad := func(what string) error { return invalidTrust("the trust in an AWS role needs " + what) }
	switch {
	case !isPartition(t.Partition):
		return bad("a partition of AWS, such as aws")
	case !accountID().match(t.Account):
		return bad("an account of 12 digits")
	case t.Role != "" && !roleName().match(t.Role):
		return bad("the name of a role")
	case t.Path != "" && !isRolePath(t.Path):
		return bad("the path of a role, such as /runners/")
	case t.RoleID != "" && !roleID().match(t.RoleID):
		return bad("the unique identifier of a role, which begins with AROA")
	case t.RoleID == "" && t.Role == "":
		return bad("the unique identifier of a role, or a role name until the first proof sets the identifier")
	case t.RoleID == "" && t.PinBefore.IsZero():
		return bad("a time until which the first proof can set the unique identifier")
	case t.RoleID != "" && !t.PinBefore.IsZero():
		return bad("a unique identifier, or a time until which the first proof can set it, but not both")
	}
	return nil
}

func invalidTrust(message string) *fairlead.Error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidTrust, Message: message,
		Hint: "A role's ARN looks like arn:aws:iam::123456789012:role/name; `aws iam get-role` prints it, and the role's unique id."}
}

// Match returns an error of KindUnauthenticated if the role may not open sessions under the trust. Otherwise it returns
// the trust to store. The result differs from t only if t was waiting for this role. In this case the caller must store
// the result before it uses the match, on the condition that the stored trust is still t.
func (t Trust) Match(id Identity, now time.Time) (Trust, error) {
	if err := t.Check(); err != nil {
		return t, refused("rule", "the runner has no valid trust in an AWS role")
	}
	switch {
	case id.Partition != t.Partition || id.Account != t.Account:
		return t, refused("account", "the role is in another account than the trusted role")
	case t.RoleID != "" && id.RoleID != t.RoleID && id.Role == t.Role:
		return t, refused("role-recreated", "the role has the trusted name but another unique identifier: it was deleted and created again")
	case t.RoleID != "" && id.RoleID != t.RoleID:
		return t, refused("role", "the role is not the trusted role")
	case t.Role != "" && id.Role != t.Role:
		return t, refused("role", "the role is not the trusted role")
	case !roleID().match(id.RoleID):
		return t, refused("role", "the role has no unique identifier")
	case t.RoleID == "" && !now.Before(t.PinBefore):
		return t, refused("too-late", "the time in which the first proof could set the unique identifier has passed")
	case t.RoleID == "":
		t.RoleID, t.PinBefore = id.RoleID, time.Time{}
	}
	return t, nil
}
