package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/tools/page"
)

const org fairlead.OrgID = "org_1"

func who(bindings ...Binding) Principal {
	return Principal{Kind: Token, ID: "tok_1", Name: "ci", Org: org, Bindings: bindings}
}

// An owner of a group gives a deployer of one app a token. The deployer starts a deployment there, an approver approves it, and
// neither does the work of the other.
func TestTheDeployerDoesNotApprove(t *testing.T) {
	acme := InstallObject(org, "eu/prod", "shop")
	owner, deployer, approver := who(Binding{Role: Owner, Group: "eu"}), who(Binding{Role: Deployer, App: "shop"}), who(Binding{Role: Approver, Group: "eu/prod"})
	if !owner.MayGrant(Binding{Role: Approver, Group: "eu/prod"}) || owner.MayGrant(Binding{Role: Deployer, App: "shop"}) {
		t.Error("an owner of a group gives roles in this group, and not in an app, which is in no group")
	}
	for name, got := range map[string]bool{
		"the deployer deploys": deployer.May(Deploy, acme), "the approver approves": approver.May(Approve, acme),
		"the approver says no": approver.May(Cancel, acme), "the owner does both": owner.May(Deploy, acme) && owner.May(Approve, acme),
		"the deployer does not approve": !deployer.May(Approve, acme), "the approver does not deploy": !approver.May(Deploy, acme),
	} {
		if !got {
			t.Errorf("%s: no", name)
		}
	}
}

func TestARoleHoldsAtItsPlaceOnly(t *testing.T) {
	for _, row := range []struct {
		consequence string
		binding     Binding
		object      Object
		view        bool
	}{
		{"a role in the org holds in each group", Binding{Role: Viewer}, InstallObject(org, "eu/prod", "shop"), true},
		{"a role in the org holds for its webhooks", Binding{Role: Viewer}, OrgObject(org), true},
		{"a role in a group holds in it", Binding{Role: Viewer, Group: "eu"}, InstallObject(org, "eu", "shop"), true},
		{"a role in a group holds below it", Binding{Role: Viewer, Group: "eu"}, InstallObject(org, "eu/prod/a", "shop"), true},
		{"a role in a group does not hold above it", Binding{Role: Viewer, Group: "eu/prod"}, InstallObject(org, "eu", "shop"), false},
		{"a role in a group does not hold in the root group", Binding{Role: Viewer, Group: "eu"}, InstallObject(org, "", "shop"), false},
		{"a group whose name begins alike is another group", Binding{Role: Viewer, Group: "eu"}, InstallObject(org, "eu-west", "shop"), false},
		{"a role in a group holds for its runners", Binding{Role: Viewer, Group: "eu"}, RunnerObject(org, "eu/prod"), true},
		{"a role in a group does not hold for the org's runners", Binding{Role: Viewer, Group: "eu"}, RunnerObject(org, ""), false},
		{"a role in a group shows the group", Binding{Role: Viewer, Group: "eu"}, GroupObject(org, "eu"), true},
		{"a role in a group does not show the group above", Binding{Role: Viewer, Group: "eu/prod"}, GroupObject(org, "eu"), false},
		{"a role in a group shows the apps that can be installed there", Binding{Role: Viewer, Group: "eu"}, AppObject(org, "shop"), true},
		{"a role in a group does not show the apps of another org", Binding{Role: Viewer, Group: "eu"}, AppObject("org_2", "shop"), false},
		{"a role in a group does not hold for the org's webhooks", Binding{Role: Viewer, Group: "eu"}, OrgObject(org), false},
		{"a role in an app holds for its installs in each group", Binding{Role: Viewer, App: "shop"}, InstallObject(org, "eu/prod", "shop"), true},
		{"a role in an app does not hold for another app", Binding{Role: Viewer, App: "shop"}, AppObject(org, "shop-2"), false},
		{"a role in an app does not hold for installs of another app", Binding{Role: Viewer, App: "shop"}, InstallObject(org, "eu", "mail"), false},
		{"a role in an app does not hold for runners", Binding{Role: Viewer, App: "shop"}, RunnerObject(org, ""), false},
		{"an app with the name of a group is no group", Binding{Role: Viewer, App: "eu"}, InstallObject(org, "eu", "shop"), false},
		{"a group with the name of an app is no app", Binding{Role: Viewer, Group: "shop"}, InstallObject(org, "eu", "shop"), false},
		{"a role in an org does not hold in another", Binding{Role: Owner}, InstallObject("org_2", "", "shop"), false},
		{"a role in an org does not hold in one whose name begins alike", Binding{Role: Owner}, OrgObject("org_12"), false},
		{"each caller sees what the operator shares", Binding{Role: Viewer, App: "shop"}, SharedObject(), true},
		{"an unknown role permits nothing", Binding{Role: "admin"}, OrgObject(org), false},
		{"a binding to a group and an app permits nothing", Binding{Role: Owner, Group: "eu", App: "shop"}, InstallObject(org, "eu", "shop"), false},
		{"a binding to a path that is none permits nothing", Binding{Role: Owner, Group: "eu/"}, InstallObject(org, "eu", "shop"), false},
		{"the zero object is nothing", Binding{Role: Owner}, Object{}, false},
	} {
		if got := who(row.binding).May(View, row.object); got != row.view {
			t.Errorf("%s: %t", row.consequence, got)
		}
	}
}

// The vendor invites the first security person of an install, and from then on only this person decides who approves it.
func TestCustomerApprovesItsOwnInstall(t *testing.T) {
	at := func(r Role, id fairlead.InstallID) Binding { return Binding{Role: r, Install: id, InstallName: "acme"} }
	acme, own := InstallObject(org, "eu", "shop").Existing("ins_1", false), InstallObject(org, "eu", "shop").Existing("ins_1", true)
	other := InstallObject(org, "eu", "shop").Existing("ins_2", true)
	owner, security, approver, viewer := who(OwnerOf()...), who(at(Security, "ins_1")), who(at(Approver, "ins_1")), who(at(Viewer, "ins_1"))
	for consequence, right := range map[string]bool{
		"before the customer has an approver, the vendor approves": owner.May(Approve, acme) && !owner.MayEverywhere(Approve),
		"then it does not":                                                   !owner.May(Approve, own) && !who(Binding{Role: Approver, Group: "eu"}).May(Approve, own),
		"the customer's approver does":                                       approver.May(Approve, own) && approver.May(Cancel, own),
		"not for another install":                                            !approver.May(View, other) && !approver.May(Approve, other),
		"security and viewer do not approve":                                 !security.May(Approve, own) && !viewer.May(Approve, own),
		"an approver of two installs approves both":                          who(at(Approver, "ins_1"), at(Approver, "ins_2")).May(Approve, other),
		"all three see the install":                                          security.May(View, own) && approver.May(View, own) && viewer.May(View, own),
		"they see nothing of what the operator shares":                       !security.May(View, SharedObject()) && !viewer.May(View, SharedObject()),
		"they see no app, group, runner and nothing of the org":              !viewer.May(View, AppObject(org, "shop")) && !viewer.May(View, GroupObject(org, "eu")) && !viewer.May(View, RunnerObject(org, "eu")) && !viewer.May(View, OrgObject(org)),
		"they see no new install":                                            !viewer.May(View, InstallObject(org, "eu", "shop")),
		"none of them deploys or reads secrets":                              !approver.May(Deploy, own) && !security.May(ViewSecrets, own) && !approver.May(ViewSecrets, own),
		"security gives the roles of its install":                            security.MayGrant(at(Approver, "ins_1")) && security.MayGrant(at(Security, "ins_1")) && security.MayGrant(at(Viewer, "ins_1")),
		"not those of another install, and none elsewhere":                   !security.MayGrant(at(Viewer, "ins_2")) && !security.MayGrant(Binding{Role: Viewer}) && !security.MayGrant(Binding{Role: Viewer, App: "shop"}),
		"an approver gives no role":                                          !approver.MayGrant(at(Viewer, "ins_1")),
		"an owner of the org lets people view, and makes no approver":        owner.MayGrant(at(Viewer, "ins_1")) && !owner.MayGrant(at(Approver, "ins_1")) && !owner.MayGrant(at(Security, "ins_1")),
		"an owner of a group does not":                                       !who(Binding{Role: Owner, Group: "eu"}).MayGrant(at(Viewer, "ins_1")),
		"security exists at an install only, and an install has no deployer": Binding{Role: Security}.Check() != nil && at(Deployer, "ins_1").Check() != nil && at(Owner, "ins_1").Check() != nil,
		"a binding to two places permits nothing":                            !who(Binding{Role: Viewer, App: "shop", Install: "ins_1"}).May(View, own),
	} {
		if !right {
			t.Errorf("%s: no", consequence)
		}
	}
}

func TestNothingIsPermittedWithoutARole(t *testing.T) {
	for _, p := range []Principal{{}, who(), {Bindings: OwnerOf()}, {Org: "org_2", Bindings: OwnerOf()}} {
		for _, d := range Rights() {
			for _, o := range []Object{OrgObject(org), GroupObject(org, "eu"), AppObject(org, "shop"), InstallObject(org, "eu", "shop"), RunnerObject(org, "eu")} {
				if p.May(d.Right, o) {
					t.Errorf("%+v may %s %+v", p, d.Right, o)
				}
			}
		}
	}
	if who(OwnerOf()...).May("burn", OrgObject(org)) {
		t.Error("an owner has a right that no policy names")
	}
}

// Only an operator changes what all orgs share, and being an operator permits nothing in an org.
func TestTheOperatorChangesWhatOrgsShare(t *testing.T) {
	operator := Principal{Org: org, Operator: true}
	if !operator.May(Operate, SharedObject()) || !operator.May(ManageRunners, SharedObject()) || operator.May(View, OrgObject(org)) {
		t.Error("an operator's rights are wrong")
	}
	if owner := who(OwnerOf()...); owner.May(Operate, SharedObject()) || owner.May(ManageRunners, SharedObject()) {
		t.Error("an owner changes what orgs share")
	}
	if code := fairlead.CodeOf(Refused(who(OwnerOf()...), ManageRunners, SharedObject())); code != fairlead.CodeOperatorOnly {
		t.Errorf("the refusal has the code %s", code)
	}
}

// No principal gives more than it has: what a granted role permits somewhere, its giver may do there.
func TestNoPrincipalGrantsMoreThanItHas(t *testing.T) {
	places := []Binding{{}, {Group: "eu"}, {Group: "eu/prod"}, {Group: "us"}, {App: "shop"}, {App: "mail"}}
	objects := []Object{SharedObject()}
	for _, group := range []placement.Path{"", "eu", "eu/prod", "us"} {
		objects = append(objects, GroupObject(org, group), RunnerObject(org, group))
		for _, app := range []string{"shop", "mail"} {
			objects = append(objects, InstallObject(org, group, app), AppObject(org, app))
		}
	}
	granted := 0
	for _, giverRole := range Roles() {
		for _, at := range places {
			giver := who(Binding{Role: giverRole, Group: at.Group, App: at.App})
			for _, role := range Roles() {
				for _, place := range places {
					b := Binding{Role: role, Group: place.Group, App: place.App}
					if !giver.MayGrant(b) {
						continue
					}
					granted++
					for _, o := range objects {
						for _, d := range Rights() {
							if who(b).May(d.Right, o) && !giver.May(d.Right, o) {
								t.Errorf("%s gives %s, which may %s %+v", giver.Bindings[0], b, d.Right, o)
							}
						}
					}
				}
			}
		}
	}
	if granted < 20 {
		t.Errorf("only %d grants were possible", granted)
	}
}

// MayEverywhere spares a look at the object, so it must mean each object of the org.
func TestEverywhereMeansEachObject(t *testing.T) {
	for _, r := range Roles() {
		p := who(Binding{Role: r})
		for _, d := range Rights() {
			for _, o := range []Object{OrgObject(org), GroupObject(org, "eu"), AppObject(org, "shop"), InstallObject(org, "eu/prod", "shop"), RunnerObject(org, "eu")} {
				if d.Right != Approve && r != Security && p.MayEverywhere(d.Right) != p.May(d.Right, o) {
					t.Errorf("%s: %s everywhere is %t, on %+v %t", r, d.Right, p.MayEverywhere(d.Right), o, p.May(d.Right, o))
				}
			}
		}
	}
}

// cedar-go skips a policy that fails, so another policy could still permit. A failure must mean no.
func TestAFailingPolicyDenies(t *testing.T) {
	broken, err := cedar.NewPolicySetFromBytes("test", []byte(string(table)+`
		permit (principal, action, resource) when { principal.missing > 1 };`))
	if err != nil {
		t.Fatal(err)
	}
	owner := who(OwnerOf()...)
	if !decide(policies(), owner, View, OrgObject(org)) {
		t.Fatal("the table denies without the failing policy")
	}
	if decide(broken, owner, View, OrgObject(org)) {
		t.Error("the table permits, although a policy fails")
	}
}

// The table names each right and each role that the code has, and no other.
func TestTableNamesWhatTheCodeHas(t *testing.T) {
	text := string(table)
	for _, d := range Rights() {
		if !strings.Contains(text, `Action::"`+string(d.Right)+`"`) {
			t.Errorf("roles.cedar does not name the right %s", d.Right)
		}
	}
	for _, r := range Roles() {
		if !strings.Contains(text, "principal."+string(r)+" }") {
			t.Errorf("roles.cedar does not name the role %s", r)
		}
	}
	for part := range strings.SplitSeq(text, `Action::"`) {
		name, _, ok := strings.Cut(part, `"`)
		if ok && !strings.HasPrefix(part, "//") && !slices.ContainsFunc(Rights(), func(d Described) bool { return string(d.Right) == name }) {
			t.Errorf("roles.cedar names the right %q, which the code does not have", name)
		}
	}
}

// The page has the table as the policies decide it.
func TestPageHasTheTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| right | to |")
	for _, r := range Roles() {
		fmt.Fprintf(&b, " `%s` |", r)
	}
	b.WriteString(" operator |\n|---|---|" + strings.Repeat("---|", len(Roles())+1) + "\n")
	mark := map[bool]string{true: " yes |", false: " |"}
	for _, d := range Rights() {
		fmt.Fprintf(&b, "| `%s` | %s |", d.Right, d.Means)
		for _, r := range Roles() {
			may := who(Binding{Role: r}).May(d.Right, OrgObject(org))
			if r == Security {
				may = who(Binding{Role: r, Install: "ins_1"}).May(d.Right, InstallObject(org, "", "").Existing("ins_1", false))
			}
			b.WriteString(mark[may])
		}
		b.WriteString(mark[Principal{Org: org, Operator: true}.May(d.Right, SharedObject())] + "\n")
	}
	page.Hold(t, "docs/operations/people.md", "roles", b.String())
}

func BenchmarkDecision(b *testing.B) {
	p := who(Binding{Role: Deployer, Group: "eu/prod"}, Binding{Role: Viewer, App: "shop"}, Binding{Role: Approver, Group: "us"})
	o := InstallObject(org, "eu/prod/customers/acme", "mail")
	for b.Loop() {
		if !p.May(Deploy, o) {
			b.Fatal("denied")
		}
	}
}
