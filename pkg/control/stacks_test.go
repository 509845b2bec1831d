package control_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

const tiny = `fairlead: v1
name: tiny
components:
  web: {type: terraform, source: ./web}
`

// stacked is a plane with an install that can get a customer's stack, and with the key of
// an agent of the install's runner.
type stacked struct {
	*plane
	runner control.Runner
	key    ed25519.PrivateKey
}

func newStacked(t *testing.T) *stacked { return newStackedOn(t, enginetest.Memory()) }

func newStackedOn(t *testing.T, e engine.Engine) *stacked {
	p := newPlane(t, e)
	p.publish(tiny)
	s := &stacked{plane: p}
	p.must("make a runner", func() error { return p.EnsureRunner(p.ctx, org, control.NewRunner{Name: "acme", Storage: "http"}) })
	p.must("make an install", func() error {
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: "acme", App: "tiny", Runner: "acme"}, "")
		return err
	})
	var token string
	p.must("make an enrolment", func() (err error) { token, _, err = p.CreateEnrolment(p.ctx, me, "acme"); return })
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.key = key
	p.must("enrol", func() (err error) { s.runner, err = p.Enrol(p.ctx, token, pub); return })
	return s
}

func (s *stacked) create(in control.NewStack) control.Stack {
	s.t.Helper()
	v, err := s.CreateStack(control.As(s.ctx, carol), org, "acme", in)
	if err != nil {
		s.t.Fatal(err)
	}
	if v.CreatedBy != carol || v.ChangedBy != carol {
		s.t.Errorf("the stack was created by %+v and changed by %+v", v.CreatedBy, v.ChangedBy)
	}
	return v
}

// open opens a session. The agent reports w about its stack.
func (s *stacked) open(w *control.SessionStack) (control.Session, error) {
	nonce := s.NewChallenge()
	v, err := s.OpenSession(s.ctx, control.SessionProof{Runner: s.runner.ID, Nonce: nonce, PublicKey: s.key.Public().(ed25519.PublicKey),
		Statement: []byte(nonce), Signature: ed25519.Sign(s.key, []byte(nonce)), Instance: "task", Capacity: 4, Stack: w})
	return v.Session, err
}

const customer = "123456789012"

// firstReport returns the first report that the runner in the stack v sends.
func firstReport(v control.Stack) *control.SessionStack {
	return &control.SessionStack{Install: v.Install, ExternalID: v.ExternalID, Report: control.StackReport{
		ID: "arn:aws:cloudformation:eu-central-1:" + customer + ":stack/fairlead/1", Version: "1", Region: "eu-central-1", StateBucket: "bucket",
		Roles: map[string]string{"provision": "arn:aws:iam::" + customer + ":role/fairlead/x/provision"}}}
}

func (s *stacked) show() control.Stack {
	s.t.Helper()
	v, err := s.Stack(s.ctx, org, "acme")
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// An app in a customer's stack must create its roles under the path of the stack and with
// the permissions boundary of the stack. The app gets the path and the boundary as facts of
// the install.
func TestAppGetsRolePathAndBoundary(t *testing.T) {
	const boundary = "arn:aws:iam::" + customer + ":policy/fairlead/x/boundary"
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.publish(`fairlead: v1
name: tiny
components:
  web: {type: terraform, source: ./web, vars: {boundary: "${install.boundary}", path: "${install.role_path}"}}
`)
		configured := func(key string) string {
			t.Helper()
			s.must("deploy", func() error {
				_, err := s.CreateDeployment(s.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, AutoApprove: true}, key)
				return err
			})
			s.work()
			return s.cloud["web"]
		}
		var err error
		if s.session, err = s.open(nil); err != nil {
			t.Fatal(err)
		}
		if got, want := configured("first"), `{"boundary":{"value":""},"path":{"value":"/"}}`; got != want {
			t.Errorf("outside of a stack the app gets %s, want %s", got, want)
		}
		v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
		w := firstReport(v)
		w.Report.Boundary = boundary
		if s.session, err = s.open(w); err != nil {
			t.Fatal(err)
		}
		if got, want := configured("second"), fmt.Sprintf(`{"boundary":{"value":%q},"path":{"value":"/fairlead-app/%s/"}}`, boundary, v.Install); got != want {
			t.Errorf("in a stack the app gets %s, want %s", got, want)
		}
	})
}

// Each renewal of a session has the same report. Soon after a change a deployment may wait for it; an hour later none does, and each
// read of the install would be for nothing: an idle install is nothing but renewals.
func TestOldReportReadsNoInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meter := enginetest.Meter(enginetest.Memory())
		s := newStackedOn(t, meter)
		w := firstReport(s.create(control.NewStack{Account: customer, Region: "eu-central-1"}))
		reads := func() float64 {
			t.Helper()
			meter.Reset()
			if _, err := s.open(w); err != nil {
				t.Fatal(err)
			}
			return meter.Total().Read
		}
		reads() // the first report adopts the bucket of the stack
		time.Sleep(10 * time.Minute)
		fresh := reads()
		time.Sleep(time.Hour)
		if old := reads(); old != fresh-1 {
			t.Errorf("a session with an old report reads %v units, and one with a fresh report %v: want one less", old, fresh)
		}
	})
}

// The state of a stack depends on the sessions of its runner. In this test, the stack is
// requested, installed, updated, lost, installed again and stopped.
func TestStackStateFollowsItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
		if v.State != control.StackWaiting || time.Until(v.WaitUntil) < 6*24*time.Hour || !strings.HasPrefix(v.ExternalID, "fl-") || len(v.ExternalID) < 20 {
			t.Fatalf("the new stack is %+v", v)
		}
		r, err := s.Runner(s.ctx, org, "acme")
		if err != nil || r.Trust == nil || r.Trust.RoleARN() != awsiam.RunnerRole("aws", customer, v.Install) {
			t.Errorf("the runner trusts %+v, %v", r.Trust, err)
		}
		time.Sleep(time.Hour)
		if again := s.create(control.NewStack{Account: customer}); again.ExternalID != v.ExternalID || !again.WaitUntil.After(v.WaitUntil) {
			t.Errorf("after a repeated request the stack is %+v", again)
		}
		w := firstReport(v)
		if _, err := s.open(w); err != nil {
			t.Fatal(err)
		}
		if got := s.show(); got.State != control.StackOnline || got.Report.StateBucket != "bucket" || len(got.Changes) != 0 {
			t.Errorf("after its first session the stack is %+v", got)
		}
		reported := s.show().Reported
		time.Sleep(10 * time.Minute)
		if _, err = s.open(w); err != nil || !s.show().Reported.Equal(reported) {
			t.Errorf("an unchanged report changed the record, %v", err)
		}
		w.Report.Version, w.Report.Roles["extra"] = "2", "arn:aws:iam::"+customer+":role/fairlead/x/extra"
		if _, err = s.open(w); err != nil {
			t.Fatal(err)
		}
		got := s.show()
		if want := "[role extra: arn:aws:iam::123456789012:role/fairlead/x/extra is new template version: 2, was 1]"; len(got.Changes) != 1 || fmt.Sprint(got.Changes[0].What) != want {
			t.Errorf("after the update the changes are %+v", got.Changes)
		}
		// The runner of the stack sends no heartbeats.
		time.Sleep(3*s.HeartbeatEvery() + time.Second)
		if got := s.show(); got.State != control.StackLost || got.Since.IsZero() {
			t.Errorf("without heartbeats the stack is %s since %s", got.State, got.Since)
		}
		// The runner of the stack opens a session again, and ends this session.
		session, err := s.open(w)
		if err != nil || s.show().State != control.StackOnline {
			t.Errorf("the stack is not online again: %v", err)
		}
		if err := s.HeartbeatSession(s.ctx, session, control.Heartbeat{Ending: true}); err != nil {
			t.Fatal(err)
		}
		if got := s.show(); got.State != control.StackStopped {
			t.Errorf("after its session ended the stack is %s", got.State)
		}
		// The history keeps a bounded number of changes.
		for i := range 30 {
			w.Report.Version = fmt.Sprint(100 + i)
			if _, err := s.open(w); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.show().Changes); n != 20 {
			t.Errorf("%d changes are stored", n)
		}
	})
}

// A stack changes the configuration of its runner. The runner then serves one install, and
// keeps states in the stack's bucket. Each of these changes also updates the revision in
// the by-ID record. Otherwise the agent would get a configuration that it already has at
// each heartbeat.
func TestStackAgentsGetConfigurationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		had := ""
		configured := func(when string) {
			t.Helper()
			now, err := s.agentConfiguration(s.runner.ID, had)
			if err != nil || now == nil || now.Revision == had {
				t.Fatalf("%s: the agents get %+v, %v", when, now, err)
			}
			had = now.Revision
			if again, err := s.agentConfiguration(s.runner.ID, had); err != nil || again != nil {
				t.Errorf("%s: an agent with the current revision gets %+v, %v", when, again, err)
			}
			n, err := s.Store.RunnerName(s.ctx, s.runner.ID)
			if err != nil || n.V.Revision != had {
				t.Errorf("%s: the by-ID record has revision %s, %v, and the runner has %s", when, n.V.Revision, err, had)
			}
		}
		configured("at first")
		time.Sleep(time.Second)
		v := s.create(control.NewStack{Account: customer})
		configured("with a stack")
		time.Sleep(time.Second)
		if _, err := s.open(firstReport(v)); err != nil {
			t.Fatal(err)
		}
		configured("with the stack's bucket")
	})
}

// An earlier release may have left an old revision in the by-ID record. In this case, the
// control plane also reads the record of the runner. So an agent with the revision of the
// runner gets no configuration.
func TestOldRevisionOfTheIDRecordIsIgnored(t *testing.T) {
	e := &lagging{Engine: enginetest.Memory()}
	p := newPlane(t, e)
	r, err := p.Store.Runner(p.ctx, org, "local")
	if err != nil {
		t.Fatal(err)
	}
	e.revision = r.V.Revision
	if got, err := p.agentConfiguration(r.V.ID, e.revision); err != nil || got != nil {
		t.Errorf("an agent with the current revision gets %+v, %v", got, err)
	}
}

// lagging is an engine in which the by-ID record of a runner has another revision than the
// record of the runner.
type lagging struct {
	engine.Engine
	revision string
}

func (e *lagging) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	it, err := e.Engine.Get(ctx, k)
	if k.Sort == "RUNNER" && e.revision != "" {
		it.Body = bytes.ReplaceAll(it.Body, []byte(e.revision), []byte("0000000000000000"))
	}
	return it, err
}

func TestUninstalledStackExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.create(control.NewStack{Account: customer})
		time.Sleep(8 * 24 * time.Hour)
		if got := s.show(); got.State != control.StackExpired {
			t.Errorf("after eight days the stack is %s", got.State)
		}
		if got := s.create(control.NewStack{Account: customer}); got.State != control.StackWaiting {
			t.Errorf("after a repeated request the stack is %s", got.State)
		}
	})
}

// If the report about a stack is impossible, the session is refused and the report is not
// stored.
func TestReportOfAStackIsRefused(t *testing.T) {
	for name, change := range map[string]func(*control.SessionStack){
		"another install's parameters": func(w *control.SessionStack) { w.Install = "ins_other" },
		"another external id":          func(w *control.SessionStack) { w.ExternalID = "fl-other" },
		"no external id":               func(w *control.SessionStack) { w.ExternalID = "" },
		"another account": func(w *control.SessionStack) {
			w.Report.ID = "arn:aws:cloudformation:eu-central-1:999999999999:stack/fairlead/1"
		},
		"a role of another account": func(w *control.SessionStack) {
			w.Report.Roles["deploy"] = "arn:aws:iam::999999999999:role/admin"
		},
		"a user instead of a role": func(w *control.SessionStack) { w.Report.Roles["deploy"] = "arn:aws:iam::" + customer + ":user/x" },
		"an id that is no ARN":     func(w *control.SessionStack) { w.Report.ID = "fairlead" },
		"two regions":              func(w *control.SessionStack) { w.Report.Region = "us-east-1" },
		"a too long bucket name":   func(w *control.SessionStack) { w.Report.StateBucket = strings.Repeat("x", 3000) },
		"a bucket name with control characters": func(w *control.SessionStack) {
			w.Report.StateBucket = "\x1b[2J"
		},
		"a hundred roles": func(w *control.SessionStack) {
			for i := range 100 {
				w.Report.Roles[fmt.Sprint(i)] = "arn:aws:iam::" + customer + ":role/x"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStacked(t)
				w := firstReport(s.create(control.NewStack{Account: customer}))
				change(w)
				if _, err := s.open(w); fairlead.CodeOf(err) != "stack-refused" {
					t.Errorf("the session returns %v", err)
				}
				if s.show().Report != nil {
					t.Error("the report was stored")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		if _, err := s.open(firstReport(control.Stack{Install: "ins_1", ExternalID: "x"})); fairlead.CodeOf(err) != "stack-refused" {
			t.Errorf("a runner in no stack: %v", err)
		}
	})
}

func TestInvalidStackIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.must("make another install on the same runner", func() error {
			_, err := s.CreateInstall(s.ctx, org, control.NewInstall{Name: "globex", App: "tiny", Runner: "acme"}, "")
			return err
		})
		v := s.create(control.NewStack{Account: customer})
		if _, err := s.open(firstReport(v)); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name, install string
			code          fairlead.Code
			in            control.NewStack
		}{
			{"no account", "acme", "invalid-account", control.NewStack{}},
			{"an account with a dash", "acme", "invalid-account", control.NewStack{Account: "1234-5678-90"}},
			{"an unknown region", "acme", "invalid-region", control.NewStack{Account: customer, Region: "mars-north-1"}},
			{"a runner in another install's stack", "globex", "runner-serves-another", control.NewStack{Account: customer}},
			{"another account, while one is installed", "acme", "runner-trusts-another", control.NewStack{Account: "999999999999"}},
			{"an unknown install", "missing", "install-not-found", control.NewStack{Account: customer}},
		} {
			if _, err := s.CreateStack(s.ctx, org, tt.install, tt.in); fairlead.CodeOf(err) != tt.code {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
			}
		}
		if got := s.create(control.NewStack{Account: "999999999999", Replace: true}); got.State != control.StackWaiting || got.ExternalID != v.ExternalID {
			t.Errorf("the new stack is %+v", got)
		}
		if _, err := s.open(firstReport(v)); fairlead.CodeOf(err) != "stack-refused" {
			t.Errorf("a report of the replaced stack: %v", err)
		}
		// The region of the stack decides the AWS partition of the account.
		got := s.create(control.NewStack{Account: "999999999999", Region: "us-gov-west-1", Replace: true})
		if r, err := s.Runner(s.ctx, org, "acme"); err != nil || r.Trust.RoleARN() != awsiam.RunnerRole("aws-us-gov", "999999999999", got.Install) {
			t.Errorf("in GovCloud the runner trusts %+v, %v", r.Trust, err)
		}
		// After the install is forgotten, the runner trusts no role.
		if err := s.ForgetInstall(s.ctx, org, "acme", false); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Runner(s.ctx, org, "acme"); err != nil || r.Trust != nil {
			t.Errorf("after the install the runner trusts %+v, %v", r.Trust, err)
		}
	})
}

// The runner of a customer's stack starts tasks, whatever kind its record had. The kind decides its start timeout, and what
// people must do to update it.
func TestRunnerOfAStackIsOfKindECS(t *testing.T) {
	const kubernetes = "runner_configuration: {type: kubernetes}\nstate_storage_configuration: {type: http}\n"
	const ecs = "runner_configuration: {type: aws-ecs, concurrency: 3}\nstate_storage_configuration: {type: http}\n"
	const direct = `{runner_configuration: {type: aws-ecs, auth: {role_arn: "arn:aws:iam::123456789012:role/r"}, job: {region: eu-west-1, cluster: c, subnets: [subnet-01234567],
		task_definition: d}}, state_storage_configuration: {type: http}}`
	for _, tt := range []struct {
		name   string
		runner control.NewRunner
		shared bool // with another install
		want   string
	}{
		{"a runner without a configuration", control.NewRunner{Storage: "http", Description: "of acme"}, false, "aws-ecs"},
		{"a runner of the kind", control.NewRunner{File: control.RunnerFile{Text: ecs}}, false, "aws-ecs"},
		{"a runner that serves another install too", control.NewRunner{Storage: "http"}, true, "local"},
		{"a runner of another kind", control.NewRunner{File: control.RunnerFile{Text: kubernetes}}, false, "of kind kubernetes, but a customer's stack has a runner of kind aws-ecs"},
		{"a runner whose jobs the control plane starts", control.NewRunner{File: control.RunnerFile{Text: direct}}, false, "the control plane starts the jobs of this runner"},
		{"states on the disk of the runner", control.NewRunner{Storage: "local"}, false, "a runner of kind aws-ecs cannot use state storage local"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStacked(t)
				tt.runner.Name = "other"
				s.must("make a runner", func() error { _, err := s.CreateRunner(s.ctx, org, tt.runner, ""); return err })
				installs := []string{"globex"}
				if tt.shared {
					installs = append(installs, "initech")
				}
				for _, name := range installs {
					s.must("make an install", func() error {
						_, err := s.CreateInstall(s.ctx, org, control.NewInstall{Name: name, App: "tiny", Runner: "other"}, "")
						return err
					})
				}
				was, err := s.Runner(s.ctx, org, "other")
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.CreateStack(s.ctx, org, "globex", control.NewStack{Account: customer})
				r, rerr := s.Runner(s.ctx, org, "other")
				switch {
				case rerr != nil:
					t.Fatal(rerr)
				case err != nil:
					if fairlead.CodeOf(err) != fairlead.CodeInvalidRunner || !strings.Contains(err.Error(), tt.want) || r.Kind != was.Kind || r.Trust != nil {
						t.Errorf("the stack is refused with %v, the runner is %+v; want %q and an unchanged runner", err, r, tt.want)
					}
				case r.Kind != tt.want || r.Description != was.Description || (r.Install != "") == tt.shared:
					t.Errorf("the runner is of kind %q, %q, for install %q; want kind %s", r.Kind, r.Description, r.Install, tt.want)
				case tt.want == "aws-ecs" && !bytes.Contains(r.Config, []byte(`"type":"aws-ecs"`)):
					t.Errorf("the runner's configuration is %s", r.Config)
				}
			})
		})
	}
}

// An agent of an older template may follow the control plane's configuration, and then could start no job with another
// kind. So the kind changes only before the stack's first report.
func TestKindOfAWorkingStackStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.must("make another install on the same runner", func() error {
			_, err := s.CreateInstall(s.ctx, org, control.NewInstall{Name: "globex", App: "tiny", Runner: "acme"}, "")
			return err
		})
		v := s.create(control.NewStack{Account: customer})
		if _, err := s.open(firstReport(v)); err != nil {
			t.Fatal(err)
		}
		s.must("forget the other install", func() error { return s.ForgetInstall(s.ctx, org, "globex", false) })
		for _, step := range []struct {
			replace bool
			want    string
		}{{false, "local"}, {true, "aws-ecs"}} {
			s.create(control.NewStack{Account: customer, Replace: step.replace})
			if r, err := s.Runner(s.ctx, org, "acme"); err != nil || r.Kind != step.want {
				t.Errorf("replaced: %t: the runner is of kind %s, %v, want %s", step.replace, r.Kind, err, step.want)
			}
		}
	})
}

// If a stack is shown as online, its report is the report of its newest session. Otherwise
// a person who waits for a customer's update would see the old template version.
func TestOnlineStackHasTheNewestReport(t *testing.T) {
	during := 0
	for n := 1; ; n++ {
		e := &interrupted{Engine: enginetest.Memory()}
		s := newStackedOn(t, e)
		w := firstReport(s.create(control.NewStack{Account: customer}))
		first, err := s.open(w)
		if err != nil {
			t.Fatal(err)
		}
		s.must("end the session", func() error { return s.HeartbeatSession(s.ctx, first, control.Heartbeat{Ending: true}) })
		w.Report.Version = "2"
		e.reads, e.do = 0, map[int]func(){n: func() {
			if _, err := s.open(w); err != nil {
				t.Error(err)
			}
		}}
		got := s.show()
		if len(e.do) > 0 {
			break // the request makes fewer than n reads, so all reads are tested
		}
		during++
		if got.State == control.StackOnline && got.Report.Version != "2" {
			t.Errorf("with an update before read %d, the stack is %s with version %s", n, got.State, got.Report.Version)
		}
	}
	if during < 4 {
		t.Errorf("only %d reads were interrupted", during)
	}
}

// If a runner is deleted, the records of its stack are deleted too.
func TestDeletedRunnerDeletesItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.create(control.NewStack{Account: customer})
		local := "local"
		s.must("name another runner", func() error {
			return errOf(s.UpdateInstall(s.ctx, org, "acme", control.InstallChange{Runner: &local}))
		})
		s.must("delete the runner", func() error { return s.DeleteRunner(s.ctx, control.User{Org: org}, "acme") })
		_, err := s.Stack(s.ctx, org, "acme")
		expectCode(t, "the stack", err, "stack-not-found")
		in, err := s.Store.Install(s.ctx, org, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Store.Stack(s.ctx, s.runner.ID); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("the record of the stack: %v", err)
		}
		if _, err := s.Store.StackRef(s.ctx, in.V.ID); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("the reference to the stack: %v", err)
		}
		if v, err := s.CreateStack(s.ctx, org, "acme", control.NewStack{Account: customer}); err != nil || v.RunnerName != "local" {
			t.Errorf("a new stack is %+v, %v", v, err)
		}
		s.must("forget", func() error { return s.ForgetInstall(s.ctx, org, "acme", false) })
	})
}

// When an earlier release deleted a runner, it did not delete all records of the stack.
// These records are not shown as a stack, and the install can be forgotten.
func TestStackWithoutItsRunnerIsIgnored(t *testing.T) {
	for name, gone := range map[string]bool{"only the reference is left": true, "the reference and the stack are left": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStacked(t)
				in, err := s.Store.Install(s.ctx, org, "acme")
				if err != nil {
					t.Fatal(err)
				}
				var tx store.Tx
				tx.PutStackRef(in.V.ID, store.Stored[store.StackRef]{V: store.StackRef{Runner: "run_gone"}})
				if !gone {
					tx.PutStack(store.Stored[store.Stack]{V: store.Stack{Install: in.V.ID, InstallName: "acme", Org: org, Runner: "run_gone", RunnerName: "gone"}})
				}
				if err := s.Store.Commit(s.ctx, "com_test", &tx); err != nil {
					t.Fatal(err)
				}
				_, err = s.Stack(s.ctx, org, "acme")
				expectCode(t, "the stack", err, "stack-not-found")
				if err := s.ForgetInstall(s.ctx, org, "acme", false); err != nil {
					t.Errorf("the install cannot be forgotten: %v", err)
				}
			})
		})
	}
}

// If a stack would be in another AWS partition than the control plane, it is refused.
// Before this rule, the customer got a link to a template that their account could not
// read.
func TestStackInAnotherPartitionIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name, own, region string
		refused           bool
	}{
		{"China, from the standard partition", "aws", "cn-north-1", true},
		{"the standard partition, from GovCloud", "aws-us-gov", "eu-central-1", true},
		{"the same partition", "aws", "eu-central-1", false},
		{"no region: the standard partition", "aws", "", false},
		{"a control plane outside of AWS names its own template", "", "cn-north-1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStacked(t)
				parts := s.Deps
				parts.Partition = tc.own
				_, err := control.New(parts).CreateStack(s.ctx, org, "acme", control.NewStack{Account: customer, Region: tc.region})
				if refused := fairlead.CodeOf(err) == fairlead.CodeInvalidRegion; refused != tc.refused || !refused && err != nil {
					t.Errorf("got %v, want a refusal: %t", err, tc.refused)
				}
			})
		})
	}
}

// The bucket with the states outlives its stack. A stack that replaces it in the same
// account and region takes the bucket over. What the new stack does not use is left.
func TestReplacedStackLeavesItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
		report := func(stack, bucket, boundary string) *control.SessionStack {
			w := firstReport(v)
			w.Report.ID = "arn:aws:cloudformation:eu-central-1:" + customer + ":stack/fairlead/" + stack
			w.Report.StateBucket, w.Report.StateKey, w.Report.Boundary = bucket, "key-of-"+bucket, boundary
			return w
		}
		check := func(when, states string, want ...string) {
			t.Helper()
			got := s.show()
			var left []string
			for _, r := range got.Left {
				text := r.Type + " " + r.ID + " of " + r.Stack[strings.LastIndex(r.Stack, "/")+1:]
				if r.Replaced {
					text += ", replaced"
				}
				left = append(left, text)
			}
			if text := got.States.Bucket + " " + got.States.Key; text != states || !slices.Equal(left, want) {
				t.Errorf("%s: the next stack takes over %q, want %q; left are\n%q, want\n%q", when, text, states, left, want)
			}
		}
		open := func(w *control.SessionStack) {
			t.Helper()
			if _, err := s.open(w); err != nil {
				t.Fatal(err)
			}
		}
		roles := "iam-roles " + awsiam.AppRolePath(v.Install)
		check("before the first report", " ")
		open(report("1", "b1", "p1"))
		check("of the first stack", " ", "s3-bucket b1 of 1", "kms-key key-of-b1 of 1", "iam-policy p1 of 1", roles+" of 1")

		s.create(control.NewStack{Account: customer, Region: "us-east-1", Replace: true})
		check("in another region", " ", "s3-bucket b1 of 1, replaced", "kms-key key-of-b1 of 1, replaced", "iam-policy p1 of 1, replaced", roles+" of 1, replaced")
		s.create(control.NewStack{Account: "999999999999", Region: "eu-central-1", Replace: true})
		check("in another account", " ", "s3-bucket b1 of 1, replaced", "kms-key key-of-b1 of 1, replaced", "iam-policy p1 of 1, replaced", roles+" of 1, replaced")
		s.create(control.NewStack{Account: customer, Region: "eu-central-1", Replace: true})
		check("in the place of the first", "b1 key-of-b1", "s3-bucket b1 of 1, replaced", "kms-key key-of-b1 of 1, replaced", "iam-policy p1 of 1, replaced", roles+" of 1, replaced")

		open(report("2", "b1", "p2"))
		check("the second continues", "b1 key-of-b1", "s3-bucket b1 of 2", "kms-key key-of-b1 of 2", "iam-policy p2 of 2", roles+" of 2", "iam-policy p1 of 1, replaced")
		open(report("3", "b3", "p3")) // the customer makes a third stack, and its runner has the same identity
		check("the third starts again", " ", "s3-bucket b3 of 3", "kms-key key-of-b3 of 3", "iam-policy p3 of 3", roles+" of 3",
			"s3-bucket b1 of 2, replaced", "kms-key key-of-b1 of 2, replaced", "iam-policy p2 of 2, replaced", "iam-policy p1 of 1, replaced")
		for i := range 20 {
			open(report(fmt.Sprint("more", i), fmt.Sprint("more", i), "p3"))
		}
		if n := len(s.show().Left); n != 4+10*2 {
			t.Errorf("of 20 earlier stacks, %d resources are kept, want those of 10 stacks", n)
		}
	})
}

func TestStacksAreListedByInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		for _, name := range []string{"bare", "zeta"} {
			s.must("make an install", func() error {
				_, err := s.CreateInstall(s.ctx, org, control.NewInstall{Name: name, App: "tiny"}, "")
				return err
			})
		}
		v := s.create(control.NewStack{Account: customer})
		if _, err := s.open(firstReport(v)); err != nil {
			t.Fatal(err)
		}
		var names []string
		for q := (fairlead.PageQuery{Limit: 1}); ; {
			list, next, err := s.Stacks(s.ctx, org, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				names = append(names, v.InstallName+" "+v.State)
			}
			if q.After = next; next == "" {
				break
			}
		}
		if !slices.Equal(names, []string{"acme online"}) {
			t.Errorf("the stacks are %q, want that of acme", names)
		}
	})
}
