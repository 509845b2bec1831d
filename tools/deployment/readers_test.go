package deployment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/deployment"
)

// A parameter of a stack holds 4,096 bytes. CloudFormation would refuse a longer list of
// customers after the image was built and pushed, with a message that names no way out.
func TestTooManyCustomersAreRefusedFirst(t *testing.T) {
	all := make([]string, 316)
	for i := range all {
		all[i] = fmt.Sprintf("%012d", i)
	}
	a := &account{status: "CREATE_COMPLETE"}
	d, _ := a.deployment(t)
	d.Customers = all[:315]
	if err := d.Do(t.Context()); err != nil || len(a.values["RunnerReaders"]) > 4096 {
		t.Fatalf("315 customers: %v, a parameter of %d bytes", err, len(a.values["RunnerReaders"]))
	}
	// The earlier customers count too.
	before := a.values["RunnerReaders"]
	d.Customers, a.did = all[315:], nil
	if err := d.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "316 accounts") || !strings.Contains(err.Error(), "CUSTOMERS="+deployment.AnyAccount) {
		t.Errorf("316 customers: %v, want an error that names CUSTOMERS=any", err)
	}
	if slices.Contains(a.did, "cdk deploy") || a.values["RunnerReaders"] != before {
		t.Errorf("the refused deployment did %q", a.did)
	}
	d.Customers = []string{deployment.AnyAccount}
	if err := d.Do(t.Context()); err != nil || a.values["RunnerReaders"] != deployment.AnyAccount {
		t.Errorf("every account: %v, readers %q", err, a.values["RunnerReaders"])
	}
}
