package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestCustomersPeopleInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { customersStory(newPlane(t, enginetest.Memory()), time.Sleep) })
}

func TestCustomersPeopleOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	customersStory(newPlaneAt(t, sqliteTable(t), c.now, c.sleep), c.sleep)
}

// The vendor invites the first security of an install. From then on the customer decides who approves, and only its approvers
// approve. The vendor helps again when an operator has deleted the last security.
func customersStory(p *plane, sleep func(time.Duration)) {
	w := newPeople(p)
	t := w.t
	w.publish(shop)
	w.install("acme")
	at := func(r access.Role) []access.Binding { return []access.Binding{{Role: r, InstallName: "acme"}} }
	invite := func(by access.Principal, email string, b []access.Binding) error {
		_, err := w.InviteUser(w.ctx, by, control.NewUser{Email: email, Bindings: b}, "")
		return err
	}
	link := func(by access.Principal, email string) (string, error) {
		l, err := w.CreateLoginLink(w.ctx, by, email)
		return l.Token, err
	}
	approves := func(who access.Principal) bool {
		o, err := w.Objects(org).Install(w.ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		return who.May(access.Approve, o)
	}
	use := func(token string) access.Principal {
		t.Helper()
		in, err := w.LogInByLink(w.ctx, token)
		if err != nil {
			t.Fatal(err)
		}
		return w.user(in.Token)
	}
	vendor := w.operator
	owner := vendor
	owner.Operator, owner.ID = false, "tok_owner"

	expectCode(t, "the vendor makes an approver", invite(owner, "ann@acme.example", at(access.Approver)), fairlead.CodeRoleMissing)
	expectCode(t, "a role at an install that is not there", invite(owner, "ann@acme.example", []access.Binding{{Role: access.Viewer, InstallName: "none"}}), fairlead.CodeInstallNotFound)
	expectCode(t, "a deployer at an install", invite(owner, "ann@acme.example", at(access.Deployer)), fairlead.CodeInvalidRole)
	_, err := w.CreateToken(w.ctx, owner, control.NewToken{Name: "at", Bindings: at(access.Viewer)}, "")
	expectCode(t, "a token at an install", err, fairlead.CodeInvalidRole)

	w.must("invite the first security", func() error { return invite(owner, "sam@acme.example", at(access.Security)) })
	expectCode(t, "the vendor makes a second security", invite(owner, "eve@acme.example", at(access.Security)), fairlead.CodeRoleMissing)
	first, err := link(owner, "sam@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	second, err := link(owner, "sam@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.LogInByLink(w.ctx, first)
	expectCode(t, "a link that was replaced", err, fairlead.CodeLoginRefused)
	sam := use(second)
	_, err = w.LogInByLink(w.ctx, second)
	expectCode(t, "a link that was used", err, fairlead.CodeLoginRefused)
	_, err = link(owner, "sam@acme.example")
	expectCode(t, "the vendor makes a link for a security who has logged in", err, fairlead.CodeRoleMissing)
	expectCode(t, "the vendor deletes the security", w.DeleteUser(w.ctx, owner, "sam@acme.example"), fairlead.CodeRoleMissing)
	_, err = w.UpdateUser(w.ctx, owner, "sam@acme.example", control.UserChange{Bindings: at(access.Viewer)})
	expectCode(t, "the vendor changes the security", err, fairlead.CodeRoleMissing)
	_, err = w.UpdateUser(w.ctx, sam, "sam@acme.example", control.UserChange{Bindings: append(at(access.Security), at(access.Approver)...)})
	expectCode(t, "security makes itself an approver", err, fairlead.CodeRoleMissing)

	if !approves(owner) || approves(sam) {
		t.Error("before the customer has an approver, the vendor approves, and security does not")
	}
	w.must("invite an approver", func() error { return invite(sam, "ann@acme.example", at(access.Approver)) })
	w.must("invite a second approver", func() error { return invite(sam, "bea@acme.example", at(access.Approver)) })
	token, err := link(sam, "ann@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	ann := use(token)
	if !approves(ann) || approves(owner) || approves(vendor) || approves(sam) {
		t.Error("only the customer's approvers approve")
	}
	expectCode(t, "an approver invites", invite(ann, "eve@acme.example", at(access.Viewer)), fairlead.CodeRoleMissing)
	_, err = w.UpdateUser(w.ctx, owner, "ann@acme.example", control.UserChange{Bindings: at(access.Viewer)})
	expectCode(t, "the vendor takes the role from an approver", err, fairlead.CodeRoleMissing)
	if _, err := w.User(w.ctx, owner, "ann@acme.example"); err != nil {
		t.Errorf("an owner of the org does not see who approves: %v", err)
	}
	_, err = w.User(w.ctx, ann, "sam@acme.example")
	expectCode(t, "an approver looks at security", err, fairlead.CodeUserNotFound)

	// The login of a link ends, also with its user.
	sleep(control.LinkLoginLife)
	if in, err := w.AuthenticateUser(w.ctx, token); err == nil {
		t.Errorf("a link is a token: %+v", in)
	}
	if token, err = link(sam, "ann@acme.example"); err != nil {
		t.Fatal(err)
	}
	sleep(control.LinkLife)
	_, err = w.LogInByLink(w.ctx, token)
	expectCode(t, "a link that has expired", err, fairlead.CodeLoginRefused)
	w.must("delete an approver", func() error { return w.DeleteUser(w.ctx, sam, "ann@acme.example") })
	if approves(owner) {
		t.Error("the vendor approves, although the customer has another approver")
	}
	w.must("delete the last approver", func() error { return w.DeleteUser(w.ctx, sam, "bea@acme.example") })
	if !approves(owner) {
		t.Error("the install has no approver, and the vendor does not approve it")
	}

	w.must("an operator deletes the security", func() error { return w.DeleteUser(w.ctx, vendor, "sam@acme.example") })
	w.must("invite another security", func() error { return invite(owner, "sue@acme.example", at(access.Security)) })
	_, err = link(owner, "sue@acme.example")
	if err != nil {
		t.Errorf("the first link: %v", err)
	}
	w.must("invite a user of the vendor", func() error { return invite(owner, "carol@example.com", access.OwnerOf()) })
	_, err = link(owner, "carol@example.com")
	expectCode(t, "a link for a user of the vendor", err, fairlead.CodeInvalidRole)
}
