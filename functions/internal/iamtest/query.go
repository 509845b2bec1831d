package iamtest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The methods of this file return the calls of requests to services whose requests are forms.

// tagsIn returns the tags in a form, such as Tag.1.Key and Tag.1.Value.
func tagsIn(form url.Values, name string) map[string]string {
	out := map[string]string{}
	for i := 1; form.Has(name + "." + strconv.Itoa(i) + ".Key"); i++ {
		at := name + "." + strconv.Itoa(i)
		out[form.Get(at+".Key")] = form.Get(at + ".Value")
	}
	return out
}

// ec2 knows the requests for security groups, and descriptions, which have no resource.
func (g *Guard) ec2(_ string, _ *http.Request, body []byte) ([]Call, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, unknown("%w", err)
	}
	operation := form.Get("Action")
	if strings.HasPrefix(operation, "Describe") {
		return []Call{{Action: "ec2:" + operation, Resource: "*"}}, nil
	}
	group := Call{Action: "ec2:" + operation, Resource: g.arn("ec2", "security-group/"+form.Get("GroupId")), Existing: true}
	tags := map[string]map[string]string{} // by the type of the resource that the request makes
	for i := 1; form.Has("TagSpecification." + strconv.Itoa(i) + ".ResourceType"); i++ {
		at := "TagSpecification." + strconv.Itoa(i)
		tags[form.Get(at+".ResourceType")] = tagsIn(form, at+".Tag")
	}
	// makes returns the calls for a resource that the request makes, whose id EC2 chooses later.
	makes := func(kind string) []Call {
		made := Call{Action: "ec2:" + operation, Resource: g.arn("ec2", kind+"/*"), Context: requested(nil, tags[kind])}
		if len(tags[kind]) == 0 {
			return []Call{made}
		}
		return []Call{made, {Action: "ec2:CreateTags", Resource: made.Resource, Context: requested(map[string]any{"ec2:CreateAction": operation}, tags[kind])}}
	}
	switch operation {
	case "CreateSecurityGroup":
		return append(makes("security-group"), Call{Action: "ec2:" + operation, Resource: g.arn("ec2", "vpc/"+form.Get("VpcId")), Existing: true}), nil
	case "AuthorizeSecurityGroupEgress", "AuthorizeSecurityGroupIngress":
		if form.Get("GroupId") != "" {
			return append([]Call{group}, makes("security-group-rule")...), nil
		}
	case "RevokeSecurityGroupEgress", "RevokeSecurityGroupIngress", "DeleteSecurityGroup":
		if form.Get("GroupId") != "" {
			return []Call{group}, nil
		}
	}
	return nil, unknown("%s", operation)
}

// underBoundary lists the actions on a role for which IAM compares the role's boundary.
var underBoundary = []string{"AttachRolePolicy", "DeleteRole", "DeleteRolePolicy", "DetachRolePolicy", "GetRole", "PutRolePolicy"}

// iam knows the requests for roles. A request has a role's name only, while IAM compares its path
// and its boundary too.
func (g *Guard) iam(_ string, _ *http.Request, body []byte) ([]Call, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, unknown("%w", err)
	}
	operation, name := form.Get("Action"), form.Get("RoleName")
	if name == "" {
		return nil, unknown("%s names no role", operation)
	}
	switch operation {
	case "CreateRole":
		path := "/"
		if form.Has("Path") {
			path = form.Get("Path")
		}
		call := Call{Action: "iam:CreateRole", Resource: "arn:aws:iam::" + g.Account + ":role" + path + name}
		if b := form.Get("PermissionsBoundary"); b != "" {
			call.Context = map[string]any{"iam:PermissionsBoundary": b}
		}
		tags := tagsIn(form, "Tags.member")
		calls := withTags([]Call{call}, "iam:TagRole", tags)
		if len(tags) > 0 {
			delete(calls[1].Context, "iam:PermissionsBoundary") // TagRole does not know it
		}
		return calls, nil
	case "AttachRolePolicy", "DeleteRole", "DeleteRolePolicy", "DetachRolePolicy", "GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListInstanceProfilesForRole", "ListRolePolicies", "PutRolePolicy":
		role, err := g.roleOf(name)
		if err != nil {
			return nil, unknown("%w", err)
		}
		call := Call{Action: "iam:" + operation, Resource: role.arn, Existing: role.exists}
		if slices.Contains(underBoundary, operation) && role.boundary != "" {
			call.Context = map[string]any{"iam:PermissionsBoundary": role.boundary}
		}
		return []Call{call}, nil
	}
	return nil, unknown("%s", operation)
}
