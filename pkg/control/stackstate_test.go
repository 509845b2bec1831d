package control_test

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
)

// A runner in a customer's stack keeps states in the stack's bucket from the time
// when the stack is first heard of: not when something was deployed before, nor
// once the vendor says otherwise.
func TestTheRunnerOfAStackKeepsStatesInItsBucket(t *testing.T) {
	place := func(s *stacked) string {
		s.t.Helper()
		r, err := s.Store.Runner(s.ctx, org, "acme")
		if err != nil {
			s.t.Fatal(err)
		}
		return r.V.Storage + " " + r.V.Place
	}
	hear := func(s *stacked, w *control.SessionStack) {
		s.t.Helper()
		if _, err := s.open(w); err != nil {
			s.t.Fatal(err)
		}
	}
	const bucket = "s3 //bucket/"
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		w := word(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		if got := place(s); got != "http " {
			t.Errorf("before its stack is there it keeps states in %q", got)
		}
		hear(s, w)
		if got := place(s); got != bucket {
			t.Errorf("its stack is there, and it keeps states in %q", got)
		}
		s.keepsStatesIn("acme", "state_storage_configuration={type: http}")
		hear(s, w)
		if got := place(s); got != "http " {
			t.Errorf("the vendor has said http, and it keeps states in %q", got)
		}
		// Another stack in place of that one is another bucket.
		s.create(control.NewStack{Account: customer, Region: "eu-central-1", Replace: true})
		hear(s, w)
		if got := place(s); got != bucket {
			t.Errorf("with a new stack it keeps states in %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		w := word(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		s.deploy("acme", control.NewDeployment{AutoApprove: true}, "before")
		hear(s, w)
		if got := place(s); got != "http " {
			t.Errorf("something was deployed before, and it keeps states in %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		w := word(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		w.Report.StateBucket = "No Bucket"
		hear(s, w)
		if got := place(s); got != "http " {
			t.Errorf("of a bucket that can be none it makes %q", got)
		}
	})
}
