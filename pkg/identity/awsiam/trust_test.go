package awsiam_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
)

// proven returns the identity of the runner in these tests.
func proven() awsiam.Identity {
	return awsiam.Identity{Partition: "aws", Account: account, RoleID: roleID, Role: role, Session: "task-1"}
}

func TestTheFirstProofPinsAWaitingTrust(t *testing.T) {
	rule, err := awsiam.ParseTrust("arn:aws:iam::123456789012:role/fairlead/shop-runner", "", epoch.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := rule.Match(proven(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	want := awsiam.Trust{Partition: "aws", Account: account, RoleID: roleID, Role: role, Path: "/fairlead/"}
	if pinned != want {
		t.Errorf("the pinned trust is %+v, want %+v", pinned, want)
	}
	later := epoch.Add(365 * 24 * time.Hour)
	if again, err := pinned.Match(proven(), later); err != nil || again != pinned {
		t.Errorf("a year later: %+v, %v", again, err)
	}
	recreated := proven()
	recreated.RoleID = "AROAANEWANEWANEWANEW1"
	if _, err := pinned.Match(recreated, epoch); reason(err) != "role-recreated" {
		t.Errorf("the role that was created again: %v", err)
	}
}

func TestMatch(t *testing.T) {
	pinned := awsiam.Trust{Partition: "aws", Account: account, RoleID: roleID, Role: role}
	unnamed := awsiam.Trust{Partition: "aws", Account: account, RoleID: roleID}
	waiting := awsiam.Trust{Partition: "aws", Account: account, Role: role, PinBefore: epoch.Add(time.Hour)}
	is := func(change func(*awsiam.Identity)) awsiam.Identity {
		id := proven()
		change(&id)
		return id
	}
	for name, row := range map[string]struct {
		rule awsiam.Trust
		id   awsiam.Identity
		at   time.Time
		want string
	}{
		"the role is the runner's":                                {rule: pinned, id: proven()},
		"the trust has no role name":                              {rule: unnamed, id: proven()},
		"another session of the role, as after a restart":         {rule: pinned, id: is(func(i *awsiam.Identity) { i.Session = "task-2" })},
		"only the trust has a path":                               {rule: awsiam.Trust{Partition: "aws", Account: account, RoleID: roleID, Role: role, Path: "/x/"}, id: proven()},
		"only the account agrees":                                 {rule: pinned, id: is(func(i *awsiam.Identity) { i.Role, i.RoleID = "admin", "AROAADMINADMINADMIN1" }), want: "role"},
		"the role was deleted and created again":                  {rule: pinned, id: is(func(i *awsiam.Identity) { i.RoleID = "AROAANEWANEWANEWANEW1" }), want: "role-recreated"},
		"the identifier agrees, the name differs":                 {rule: pinned, id: is(func(i *awsiam.Identity) { i.Role = "other" }), want: "role"},
		"a role of that name in another account":                  {rule: pinned, id: is(func(i *awsiam.Identity) { i.Account = "999999999999" }), want: "account"},
		"the same account number in another partition":            {rule: pinned, id: is(func(i *awsiam.Identity) { i.Partition = "aws-cn" }), want: "account"},
		"the role's name in another case":                         {rule: pinned, id: is(func(i *awsiam.Identity) { i.Role = strings.ToUpper(role) }), want: "role"},
		"the identifier in another case":                          {rule: unnamed, id: is(func(i *awsiam.Identity) { i.RoleID = strings.ToLower(roleID) }), want: "role"},
		"the identifier is longer":                                {rule: unnamed, id: is(func(i *awsiam.Identity) { i.RoleID += "X" }), want: "role"},
		"an empty identity":                                       {rule: pinned, want: "account"},
		"a session with the name of the role":                     {rule: waiting, id: is(func(i *awsiam.Identity) { i.Role, i.Session = "admin", role }), want: "role"},
		"the first proof is of another role of the account":       {rule: waiting, id: is(func(i *awsiam.Identity) { i.Role = "admin" }), want: "role"},
		"the first proof is of this role name in another account": {rule: waiting, id: is(func(i *awsiam.Identity) { i.Account = "999999999999" }), want: "account"},
		"the first proof comes too late":                          {rule: waiting, id: proven(), at: epoch.Add(time.Hour), want: "too-late"},
		"the first proof has no identifier to pin":                {rule: waiting, id: is(func(i *awsiam.Identity) { i.RoleID = "" }), want: "role"},
		"an empty trust":                                          {id: proven(), want: "rule"},
		"an empty trust and an empty identity":                    {want: "rule"},
		"a trust with only an account":                            {rule: awsiam.Trust{Partition: "aws", Account: account}, id: proven(), want: "rule"},
		"a trust with only a name, without a time limit":          {rule: awsiam.Trust{Partition: "aws", Account: account, Role: role}, id: proven(), want: "rule"},
		"a trust with a star for the role":                        {rule: awsiam.Trust{Partition: "aws", Account: account, RoleID: roleID, Role: "*"}, id: proven(), want: "rule"},
		"a trust with a star for the account":                     {rule: awsiam.Trust{Partition: "aws", Account: "*", RoleID: roleID}, id: proven(), want: "rule"},
	} {
		t.Run(name, func(t *testing.T) {
			at := row.at
			if at.IsZero() {
				at = epoch
			}
			after, err := row.rule.Match(row.id, at)
			if got := reason(err); got != row.want {
				t.Errorf("the reason is %q, want %q (%v)", got, row.want, err)
			}
			if row.rule.RoleID != "" && after != row.rule || err != nil && after != row.rule {
				t.Errorf("the trust became %+v", after)
			}
		})
	}
}

func TestParseTrust(t *testing.T) {
	for name, row := range map[string]struct {
		arn, id string
		ok      bool
	}{
		"a role":                       {"arn:aws:iam::123456789012:role/shop-runner", roleID, true},
		"a role with a path":           {"arn:aws-us-gov:iam::123456789012:role/a/b/shop-runner", roleID, true},
		"a path with a line break":     {"arn:aws:iam::123456789012:role/a\n/x", roleID, false},
		"a session's ARN":              {goodARN, roleID, false},
		"a user":                       {"arn:aws:iam::123456789012:user/x", roleID, false},
		"no name":                      {"arn:aws:iam::123456789012:role/", roleID, false},
		"a star":                       {"arn:aws:iam::123456789012:role/*", roleID, false},
		"a star for the account":       {"arn:aws:iam::*:role/x", roleID, false},
		"no account":                   {"arn:aws:iam:::role/x", roleID, false},
		"an unknown partition":         {"arn:aws-x:iam::123456789012:role/x", roleID, false},
		"a user's identifier":          {"arn:aws:iam::123456789012:role/x", "AIDAEXAMPLEEXAMPLE001", false},
		"an identifier with a session": {"arn:aws:iam::123456789012:role/x", goodUser, false},
		"no identifier and no time":    {"arn:aws:iam::123456789012:role/x", "", false},
		"an empty ARN":                 {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			rule, err := awsiam.ParseTrust(row.arn, row.id, time.Time{})
			if (err == nil) != row.ok || (err != nil && fairlead.CodeOf(err) != "invalid-trust") {
				t.Fatalf("got %+v, %v", rule, err)
			}
			if !row.ok {
				return
			}
			b, err := json.Marshal(rule)
			var back awsiam.Trust
			if err != nil || json.Unmarshal(b, &back) != nil || back != rule || strings.Contains(string(b), "pin_before") {
				t.Errorf("stored as %s, read as %+v", b, back)
			}
		})
	}
}
