package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
)

// After the first report of a stack, its runner keeps states in the stack's bucket. This is
// not so if the install was deployed before the report. The vendor can configure another
// storage after the report.
func TestStackRunnerKeepsStatesInItsBucket(t *testing.T) {
	place := func(s *stacked) string {
		s.t.Helper()
		r, err := s.Store.Runner(s.ctx, org, "acme")
		if err != nil {
			s.t.Fatal(err)
		}
		return r.V.Storage + " " + r.V.Place
	}
	report := func(s *stacked, w *control.SessionStack) {
		s.t.Helper()
		if _, err := s.open(w); err != nil {
			s.t.Fatal(err)
		}
	}
	const bucket = "s3 //bucket/"
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		w := firstReport(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		if got := place(s); got != "http " {
			t.Errorf("before the first report the runner keeps states in %q", got)
		}
		report(s, w)
		if got := place(s); got != bucket {
			t.Errorf("after the first report the runner keeps states in %q", got)
		}
		s.keepsStatesIn("acme", "state_storage_configuration={type: http}")
		report(s, w)
		if got := place(s); got != "http " {
			t.Errorf("after the vendor configured http the runner keeps states in %q", got)
		}
		// A new stack that replaces the old stack has its own bucket, so the runner uses this
		// bucket.
		s.create(control.NewStack{Account: customer, Region: "eu-central-1", Replace: true})
		report(s, w)
		if got := place(s); got != bucket {
			t.Errorf("with a new stack the runner keeps states in %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		w := firstReport(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		s.deploy("acme", control.NewDeployment{AutoApprove: true}, "before")
		report(s, w)
		if got := place(s); got != "http " {
			t.Errorf("after an earlier deployment the runner keeps states in %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		w := firstReport(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		w.Report.StateBucket = "No Bucket"
		report(s, w)
		if got := place(s); got != "http " {
			t.Errorf("after an invalid bucket name the runner keeps states in %q", got)
		}
	})
}
