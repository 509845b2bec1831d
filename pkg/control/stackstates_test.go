package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
)

// reportBucket opens a session of the runner in a stack with this identifier and this bucket.
func (s *stacked) reportBucket(v control.Stack, id, bucket string) {
	s.t.Helper()
	w := firstReport(v)
	w.Report.ID, w.Report.StateBucket, w.Report.StateKey = "arn:aws:cloudformation:eu-central-1:"+customer+":stack/fairlead/"+id, bucket, "key-of-"+bucket
	var err error
	if s.session, err = s.open(w); err != nil {
		s.t.Fatal(err)
	}
}

// A stack was deleted, and its bucket stays. The link of a new stack names the bucket, because
// a stack with an empty bucket would know nothing of what the app made.
func TestLinkOfADeletedStackHasItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer})
		none, left := control.StackStates{}, control.StackStates{Bucket: "bucket-1", Key: "key-of-bucket-1", Region: "eu-central-1"}
		check := func(when string, current, next control.StackStates) {
			t.Helper()
			if got := s.show(); got.States != current || got.Next != next {
				t.Errorf("%s: the stack takes over %+v and a new one %+v, want %+v and %+v", when, got.States, got.Next, current, next)
			}
		}
		check("before the first report", none, none)
		s.reportBucket(v, "1", "bucket-1")
		check("online", none, left)
		s.must("end the session", func() error { return s.HeartbeatSession(s.ctx, s.session, control.Heartbeat{Ending: true}) })
		check("deleted", left, left)
		s.create(control.NewStack{Account: customer, Replace: true})
		check("replaced", left, left)
		s.reportBucket(v, "2", "bucket-1")
		check("again online", left, left)
	})
}

// A new stack has an empty bucket, although an earlier one has the states. Its jobs could not
// read the states, so a deployment waits until the stack uses them, also a teardown.
func TestDeploymentWaitsForItsStates(t *testing.T) {
	for _, kind := range []deployment.Kind{deployment.Deploy, deployment.Teardown} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStacked(t)
				v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
				s.reportBucket(v, "1", "bucket-1")
				s.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
				s.work()
				s.create(control.NewStack{Account: customer, Region: "eu-central-1", Replace: true})
				s.reportBucket(v, "2", "bucket-2")
				waits := s.deploy("acme", control.NewDeployment{Kind: kind, AutoApprove: true}, "waits")
				s.work()
				if d := s.deployment(waits); d.State != deployment.Queued {
					t.Fatalf("with an empty bucket the deployment is %s, want queued", d.State)
				}
				kinds, text := s.situation(waits)
				s.expectSituation("with an empty bucket", kinds, text, []diagnosis.Kind{diagnosis.StatesApart},
					"in the bucket bucket-1", "has the bucket bucket-2", "ExistingStateBucket", "fairlead install stack acme")
				got := s.show()
				if got.Elsewhere == nil || got.Elsewhere.In != "bucket-1" || got.Elsewhere.Has != "bucket-2" || got.States.Bucket != "bucket-1" || got.Next.Bucket != "bucket-1" {
					t.Errorf("the stack is shown with %+v and %+v, a new one with %+v, want bucket-1", got.Elsewhere, got.States, got.Next)
				}
				s.reportBucket(v, "2", "bucket-1") // the customer updates the stack
				s.work()
				if d := s.deployment(waits); d.State != deployment.Succeeded {
					t.Errorf("with the states the deployment is %s, want succeeded", d.State)
				}
				if got := s.show(); got.Elsewhere != nil || got.States.Bucket != "bucket-1" {
					t.Errorf("the updated stack is shown with %+v and %+v", got.Elsewhere, got.States)
				}
			})
		})
	}
}

// After a teardown the customer removes the bucket with the stack. The runner then keeps states
// in the bucket of a new stack: it does not look for the removed one.
func TestStackAfterATeardownUsesItsOwnBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
		place := func() string {
			t.Helper()
			r, err := s.Store.Runner(s.ctx, org, "acme")
			if err != nil {
				t.Fatal(err)
			}
			in, err := s.Store.Install(s.ctx, org, "acme")
			if err != nil || in.V.Bound == nil {
				t.Fatalf("the install is bound to %+v, %v", in.V.Bound, err)
			}
			return r.V.Place + " " + in.V.Bound.Storage.Place
		}
		s.reportBucket(v, "1", "bucket-1")
		auto := control.NewDeployment{Kind: deployment.Deploy, AutoApprove: true}
		s.deploy("acme", auto, "first")
		s.work()
		s.create(control.NewStack{Account: customer, Region: "eu-central-1", Replace: true})
		s.reportBucket(v, "2", "bucket-2")
		if got, want := place(), "//bucket-1/ //bucket-1/"; got != want {
			t.Errorf("while the earlier bucket has states, runner and install use %s, want %s", got, want)
		}
		s.reportBucket(v, "2", "bucket-1")
		s.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "down")
		s.work()
		s.create(control.NewStack{Account: customer, Region: "eu-central-1", Replace: true})
		s.reportBucket(v, "3", "bucket-3")
		again := s.deploy("acme", auto, "again")
		s.work()
		if d := s.deployment(again); d.State != deployment.Succeeded {
			t.Errorf("the deployment is %s, want succeeded", d.State)
		}
		if got, want := place(), "//bucket-3/ //bucket-3/"; got != want {
			t.Errorf("after the teardown runner and install use %s, want %s", got, want)
		}
	})
}

// A key that the customer gave to the stack stays the customer's: the list of what a stack
// leaves says so, as other data may need the key. A key that an earlier stack made and the
// current one took over is the install's.
func TestKeyOfTheCustomerIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer})
		check := func(when string, made []string, bucket, key bool) {
			t.Helper()
			w := firstReport(v)
			w.Report.ID, w.Report.StateKey, w.Report.Made = "arn:aws:cloudformation:eu-central-1:"+customer+":stack/fairlead/"+when, "key", made
			if _, err := s.open(w); err != nil {
				t.Fatal(err)
			}
			own := map[string]bool{}
			for _, r := range s.show().Left {
				own[r.Type] = r.Own
			}
			if own["s3-bucket"] != bucket || own["kms-key"] != key || !own["iam-roles"] {
				t.Errorf("%s: the install's own are %v, want bucket: %t, key: %t", when, own, bucket, key)
			}
		}
		check("neither", nil, false, false)
		check("a-key-of-the-customer", []string{"bucket"}, true, false)
		check("both", []string{"bucket", "key"}, true, true)
		check("both-taken-over", nil, true, true)
	})
}

// A customer who deletes the stack waits for its running jobs first, so the stack names them:
// those of each agent that is online, and none of an agent that has stopped.
func TestStackNamesItsRunningJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer})
		check := func(when, want string) {
			t.Helper()
			if got := fmt.Sprint(s.show().Running); got != want {
				t.Errorf("%s: the running jobs are %s, want %s", when, got, want)
			}
		}
		s.reportBucket(v, "1", "bucket-1")
		check("idle", "[]")
		first := s.session
		s.must("send a heartbeat", func() error {
			return s.HeartbeatSession(s.ctx, first, control.Heartbeat{Capacity: 4, Running: []string{"job_b"}})
		})
		s.reportBucket(v, "1", "bucket-1") // a second agent
		s.must("send a heartbeat", func() error {
			return s.HeartbeatSession(s.ctx, s.session, control.Heartbeat{Capacity: 4, Running: []string{"job_a"}})
		})
		check("two agents", "[job_a job_b]")
		for _, session := range []control.Session{first, s.session} {
			s.must("end the session", func() error {
				return s.HeartbeatSession(s.ctx, session, control.Heartbeat{Ending: true, Running: []string{"job_a"}})
			})
		}
		check("stopped", "[]")
	})
}
