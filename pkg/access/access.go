// Package access decides who may do what in an org. A principal has roles at places; a request needs a right on an
// object. The file roles.cedar has the decision as one table of policies, which cedar-go evaluates.
//
// Nothing is permitted unless a policy permits it: an unknown right, an unknown role, a binding that is not valid and a
// policy that fails all mean no. The package has no state. All functions are safe for concurrent use.
package access

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cedar-policy/cedar-go"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// Right is what a request may do to its object. Cedar calls it an action.
type Right string

// The rights. roles.cedar names the roles that permit each.
const (
	View           Right = "view"
	ViewSecrets    Right = "view-secrets"
	Deploy         Right = "deploy"
	Cancel         Right = "cancel"
	Approve        Right = "approve"
	EditInstall    Right = "edit-install"
	EditApp        Right = "edit-app"
	ManageRunners  Right = "manage-runners"
	ManageWebhooks Right = "manage-webhooks"
	ManagePeople   Right = "manage-people"
	Operate        Right = "operate"
)

// Described is a right with its meaning.
type Described struct {
	Right Right
	Means string
}

// Rights returns every right with its meaning, from the least to the most powerful.
func Rights() []Described {
	return []Described{
		{View, "see objects, plans and logs, without secrets"},
		{ViewSecrets, "see sensitive outputs"},
		{Deploy, "start and retry deployments, run actions"},
		{Cancel, "cancel deployments and jobs"},
		{Approve, "approve plans, and start deployments whose plans need no approval"},
		{EditInstall, "create, change, repair and forget installs, and their variables"},
		{EditApp, "publish, build and delete apps, and set their variables"},
		{ManageRunners, "create, change and delete runners, runner rules and groups"},
		{ManageWebhooks, "create and delete webhooks, and see their deliveries"},
		{ManagePeople, "create and revoke API tokens, invite and change users, create and change service accounts"},
		{Operate, "change what all orgs share"},
	}
}

// Role is a named set of rights.
type Role string

// The roles that a binding can have. Operator is no such role: it belongs to no org.
const (
	Owner    Role = "owner"
	Deployer Role = "deployer"
	Approver Role = "approver"
	Viewer   Role = "viewer"
	// Security decides who of the customer approves. It exists at an install only.
	Security Role = "security"
)

// Roles returns the roles, from the most to the least powerful.
func Roles() []Role { return []Role{Owner, Deployer, Approver, Viewer, Security} }

// CustomerRoles returns the roles that a person of the customer can have at an install.
func CustomerRoles() []Role { return []Role{Approver, Viewer, Security} }

// Binding gives a role at a place: the whole org, a group with all groups below it, an app with its installs, or one install. At
// most one of Group, App and Install is set; without them, the place is the whole org. A role at an install is a role of the
// customer's people.
type Binding struct {
	Role    Role               `json:"role"`
	Group   placement.Path     `json:"group,omitempty"`
	App     string             `json:"app,omitempty"`
	Install fairlead.InstallID `json:"install,omitempty"`
	// InstallName is the name of the install, for people to read. An install keeps its name.
	InstallName string `json:"install_name,omitempty"`
}

// String returns the binding as people read it, such as "deployer of group eu/prod".
func (b Binding) String() string {
	switch {
	case b.Group != "":
		return string(b.Role) + " of group " + string(b.Group)
	case b.App != "":
		return string(b.Role) + " of app " + b.App
	case b.Install != "" || b.InstallName != "":
		return string(b.Role) + " of install " + b.InstallName
	}
	return string(b.Role) + " of the org"
}

// Check returns an error of fairlead.KindInvalid if the binding is not valid.
func (b Binding) Check() error {
	if !slices.Contains(Roles(), b.Role) {
		return fairlead.Invalid(fairlead.CodeInvalidRole, "%q is no role: use owner, deployer, approver, viewer or security", fairlead.Clip(string(b.Role), 63))
	}
	places := 0
	for _, set := range []bool{b.Group != "", b.App != "", b.Install != ""} {
		if set {
			places++
		}
	}
	switch {
	case places > 1:
		return fairlead.Invalid(fairlead.CodeInvalidRole, "a role is for a group, for an app or for an install: name one of them")
	case b.Install != "" && !slices.Contains(CustomerRoles(), b.Role):
		return fairlead.Invalid(fairlead.CodeInvalidRole, "%s is no role at an install: use approver, viewer or security", b.Role)
	case b.Install == "" && b.Role == Security:
		return fairlead.Invalid(fairlead.CodeInvalidRole, "the role security needs an install: it decides who of the customer approves")
	}
	if b.App != "" {
		return fairlead.CheckName("app", b.App)
	}
	_, err := placement.ParsePath(string(b.Group))
	return err
}

// place returns the object at which the binding gives its role.
func (b Binding) place(org fairlead.OrgID) Object {
	switch {
	case b.Group != "":
		return GroupObject(org, b.Group)
	case b.App != "":
		return AppObject(org, b.App)
	case b.Install != "":
		return Object{kind: kindInstall, org: org, install: b.Install}
	}
	return OrgObject(org)
}

// Kind is the kind of a principal.
type Kind string

// The kinds of principals.
const (
	Token Kind = "token" // an API token
	User  Kind = "user"  // a person who has logged in
	// ServiceAccount is a program that has proved its identity by a token of its platform.
	ServiceAccount Kind = "service-account"
)

// Principal is the authenticated sender of a request of the control API.
type Principal struct {
	Kind     Kind
	ID       string
	Name     string
	Org      fairlead.OrgID // all its bindings are in this org
	Operator bool           // may change what all orgs share
	Bindings []Binding
	Expires  time.Time // when its credential expires; zero: never
}

// OwnerOf returns the only binding of an owner of the whole org.
func OwnerOf() []Binding { return []Binding{{Role: Owner}} }

type kind string

const (
	kindOrg     kind = "Org"
	kindGroup   kind = "Group"
	kindApp     kind = "App"
	kindInstall kind = "Install"
	kindRunner  kind = "Runner"
	kindShared  kind = "Shared"
)

// Object is what a request is about. The functions below make it; the zero Object permits nothing.
type Object struct {
	kind    kind
	org     fairlead.OrgID
	group   placement.Path
	app     string
	install fairlead.InstallID // "": an install that does not exist yet, or no install
	// customerApproves: a person of the customer is an approver of the install.
	customerApproves bool
}

// OrgObject is an org, and what belongs to no group and no app in it, such as its webhooks.
func OrgObject(org fairlead.OrgID) Object { return Object{kind: kindOrg, org: org} }

// GroupObject is a group. The root group is the org.
func GroupObject(org fairlead.OrgID, path placement.Path) Object {
	if path == "" {
		return OrgObject(org)
	}
	return Object{kind: kindGroup, org: org, group: path}
}

// AppObject is an app with its versions and builds. The app need not exist.
func AppObject(org fairlead.OrgID, app string) Object {
	return Object{kind: kindApp, org: org, app: app}
}

// InstallObject is an install with its deployments, jobs, logs and states. Existing adds what is known of one that exists.
func InstallObject(org fairlead.OrgID, group placement.Path, app string) Object {
	return Object{kind: kindInstall, org: org, group: group, app: app}
}

// Existing returns the object of an install that exists. If customerApproves, only the approvers at this install approve its plans.
func (o Object) Existing(id fairlead.InstallID, customerApproves bool) Object {
	o.install, o.customerApproves = id, customerApproves
	return o
}

// RunnerObject is a runner that serves a group; "": it serves the whole org.
func RunnerObject(org fairlead.OrgID, group placement.Path) Object {
	return Object{kind: kindRunner, org: org, group: group}
}

// SharedObject is what the operator shares with all orgs, such as a shared runner.
func SharedObject() Object { return Object{kind: kindShared} }

// Group returns the group that the object is in, or that it is; "": the root group, or none.
func (o Object) Group() placement.Path { return o.group }

//go:embed roles.cedar
var table []byte

// policies parses the table at the first decision: most processes decide nothing.
var policies = sync.OnceValue(func() *cedar.PolicySet {
	set, err := cedar.NewPolicySetFromBytes("roles.cedar", table)
	if err != nil {
		panic("access: " + err.Error()) // TestTable reads the same bytes
	}
	return set
})

// May reports whether the principal has the right on the object.
func (p Principal) May(a Right, o Object) bool { return decide(policies(), p, a, o) }

// MayEverywhere reports whether the principal has the right on each object of its org. If so, the caller of this package
// need not find the object. No caller approves everywhere: an install can have approvers of its own.
func (p Principal) MayEverywhere(a Right) bool { return a != Approve && p.May(a, OrgObject(p.Org)) }

// MayGrant reports whether the principal may give the binding to another: it manages people at this place, and may do
// there itself all that the binding permits. At an install, security gives the roles of the customer's people, although it does
// not approve itself. An owner of the whole org lets people view it.
func (p Principal) MayGrant(b Binding) bool {
	if b.Check() != nil {
		return false
	}
	if b.Install != "" {
		return slices.ContainsFunc(p.Bindings, func(own Binding) bool { return own.Role == Security && own.Install == b.Install }) || b.Role == Viewer && p.MayEverywhere(ManagePeople)
	}
	at := b.place(p.Org)
	if !p.May(ManagePeople, at) {
		return false
	}
	other := Principal{Kind: p.Kind, Org: p.Org, Bindings: []Binding{b}}
	for _, d := range Rights() {
		if other.May(d.Right, at) && !p.May(d.Right, at) {
			return false
		}
	}
	return true
}

// RolesFor returns the roles that permit it on an object at which they are given, as text for people.
func RolesFor(a Right) string {
	var names []string
	for _, r := range Roles() {
		if (Principal{Org: "x", Bindings: []Binding{{Role: r}}}).May(a, OrgObject("x")) {
			names = append(names, string(r))
		}
	}
	return strings.Join(names, " or ")
}

func decide(table cedar.PolicyIterator, p Principal, a Right, o Object) bool {
	if o.kind == "" || p.Org == "" {
		return false
	}
	who := uid("Caller", p.Org, p.ID)
	what := o.uid()
	entities := cedar.EntityMap{who: p.entity(who), what: {UID: what, Parents: o.parents(),
		Attributes: cedar.NewRecord(cedar.RecordMap{"customer_approves": cedar.Boolean(o.customerApproves)})}}
	decision, why := cedar.Authorize(table, entities, cedar.Request{Principal: who, Action: cedar.NewEntityUID("Action", cedar.String(a)), Resource: what})
	// Cedar skips a policy that fails. A table that is partly wrong must permit nothing.
	return decision == cedar.Allow && len(why.Errors) == 0
}

// entity returns the principal with the places of each role.
func (p Principal) entity(id cedar.EntityUID) cedar.Entity {
	places := map[Role][]cedar.Value{}
	inGroup, member := false, false
	for _, b := range p.Bindings {
		if b.Check() != nil {
			continue // a record that another release or a hand wrote permits nothing
		}
		places[b.Role] = append(places[b.Role], b.place(p.Org).uid())
		inGroup, member = inGroup || b.Group != "", member || b.Install == ""
	}
	attributes := cedar.RecordMap{"operator": cedar.Boolean(p.Operator), "member": cedar.Boolean(member), "in_group": cedar.Boolean(inGroup),
		"org": uid(kindOrg, p.Org)}
	for _, r := range Roles() {
		attributes[cedar.String(r)] = cedar.NewSet(places[r]...)
	}
	return cedar.Entity{UID: id, Attributes: cedar.NewRecord(attributes)}
}

func (o Object) uid() cedar.EntityUID {
	switch o.kind {
	case kindGroup:
		return uid(o.kind, o.org, string(o.group))
	case kindApp:
		return uid(o.kind, o.org, o.app)
	case kindShared:
		return cedar.NewEntityUID(cedar.EntityType(o.kind), "shared")
	case kindInstall:
		return uid(o.kind, o.org, string(o.install))
	case kindRunner, kindOrg:
	}
	return uid(o.kind, o.org)
}

// parents returns all places that contain the object.
func (o Object) parents() cedar.EntityUIDSet {
	if o.kind == kindShared || o.kind == kindOrg {
		return cedar.NewEntityUIDSet()
	}
	in := []cedar.EntityUID{uid(kindOrg, o.org)}
	for _, g := range o.group.Lineage() {
		if g != "" && (o.kind != kindGroup || g != o.group) {
			in = append(in, uid(kindGroup, o.org, string(g)))
		}
	}
	if o.app != "" && o.kind != kindApp {
		in = append(in, uid(kindApp, o.org, o.app))
	}
	return cedar.NewEntityUIDSet(in...)
}

// uid joins the parts of an identifier. No identifier of an org, name or path contains "#".
func uid[K ~string](k K, org fairlead.OrgID, parts ...string) cedar.EntityUID {
	return cedar.NewEntityUID(cedar.EntityType(k), cedar.String(strings.Join(append([]string{string(org)}, parts...), "#")))
}

// Describe returns the bindings as people read them.
func Describe(bindings []Binding) string {
	var texts []string
	for _, b := range bindings {
		texts = append(texts, b.String())
	}
	return strings.Join(texts, ", ")
}

// Refused returns the error of a principal that may see the object, or knows it, and lacks the right.
func Refused(p Principal, a Right, o Object) error {
	if o.kind == kindShared && a != View {
		return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOperatorOnly, Message: "only an operator of the control plane may change what all orgs share",
			Hint: "Ask the operator of the control plane. Your own runners take precedence over shared ones."}
	}
	e := &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeRoleMissing}
	means := string(a)
	for _, d := range Rights() {
		if d.Right == a {
			means = d.Means
		}
	}
	e.Message = fmt.Sprintf("%s %s may not do this: it is %s", p.Kind, p.Name, Describe(p.Bindings))
	e.Hint = fmt.Sprintf("To %s, a caller needs the role %s at this place. {token.list} shows the roles of each token.", means, RolesFor(a))
	return e
}
