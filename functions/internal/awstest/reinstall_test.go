package awstest

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// A customer deletes the stack before the teardown. The link of a new stack, which the vendor
// prints before and after it accepts the new role, names the earlier bucket and its key: the new
// roles open the states, and a plan has no changes. If the customer leaves both out, the new
// stack has an empty bucket. Then a deployment waits until the customer has updated the stack.
func TestDeletedStackIsInstalledAgain(t *testing.T) {
	skipIfShort(t)
	w := deployWorld(t)
	defer w.close()
	w.app("kept", map[string]string{"main.tf": "resource \"terraform_data\" \"x\" {}\n"})
	m := w.measured("kept", "acme", nil)
	d, _ := m.deploy(t.Context(), false)
	if d = m.untilDone(t.Context(), d); d.State != "succeeded" {
		t.Fatalf("the deployment is %s: %s", d.State, d.Message)
	}
	bucket, key := m.customer.ref("StateBucket"), m.customer.attribute("StateKey", "Arn")
	again := func(what string, chosen map[string]string) (stack wire.Stack) {
		t.Helper()
		m.stop()
		m.customer.delete()
		w.eventually("the stack has stopped", func() bool { return ask[wire.Stack](w, "install", "stack", "acme").State == "stopped" })
		link := ask[wire.Stack](w, "install", "stack", "acme").QuickCreateURL
		if given := linkParameters(t, link); given[wire.StackExistingBucket] != bucket || given[wire.StackExistingKey] != key {
			t.Errorf("%s: the link of the deleted stack has the bucket %q and the key %q, want %q and %q", what, given[wire.StackExistingBucket], given[wire.StackExistingKey], bucket, key)
		}
		if next := ask[wire.Stack](w, "install", "stack", "acme", "--account", accountID, "--region", region, "--replace", "--yes"); next.QuickCreateURL != link {
			t.Errorf("%s: for the new role the link is %s, want %s", what, next.QuickCreateURL, link)
		}
		m.customer, m.stop = w.installStackWith("acme", chosen)
		w.eventually("the stack is online", func() bool { stack = ask[wire.Stack](w, "install", "stack", "acme"); return stack.State == "online" })
		return stack
	}
	// noChanges checks that a plan finds the earlier state.
	noChanges := func(what string) {
		t.Helper()
		d, jobs := m.deploy(t.Context(), true)
		if changes := d.Components[0].Changes; d.State != "succeeded" || changes == nil || *changes != (wire.Changes{}) {
			t.Errorf("%s: the plan is %s with %+v, want no changes: %s\n%s", what, d.State, changes, d.Message, w.cli("job", "logs", jobs["plan"].ID))
		}
	}

	again("by the link", nil)
	defer func() { m.stop() }()
	noChanges("by the link")

	stack := again("without the states", map[string]string{wire.StackExistingBucket: "", wire.StackExistingKey: ""})
	if stack.Update == nil || stack.Update.StateBucket != bucket {
		t.Errorf("the update of a stack with an empty bucket is %+v, want one to %s", stack.Update, bucket)
	}
	waits := ask[struct{ Deployment wire.Deployment }](w, "install", "deploy", "acme", "--auto-approve", "--detach").Deployment
	if waits = ask[wire.Deployment](w, "deployment", "show", waits.ID); waits.State != "queued" || len(waits.Situations) != 1 || waits.Situations[0].Kind != "states-apart" {
		t.Errorf("with an empty bucket the deployment is %+v, want one that waits for the states", waits)
	}
	w.cli("deployment", "cancel", waits.ID)

	again("with the states again", nil)
	noChanges("with the states again")
}
