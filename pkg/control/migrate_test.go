package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func bucketOf(name string) string {
	return "state_storage_configuration={type: s3, bucket: " + name + ", region: eu-central-1}"
}

func (p *plane) keepsStatesIn(runner, setting string) {
	p.t.Helper()
	p.must("update runner", func() error {
		return errOf(p.UpdateRunner(p.ctx, control.User{Org: org}, runner, control.RunnerFile{Set: []string{setting}}))
	})
}

// savesStates makes each apply lock its state at the control plane, save a state and unlock
// the state. It appends the job specs of migrations to moves. The function then returns the
// faults of the migrations; if then is nil, they have no faults.
func (p *plane) savesStates(moves *[]events.JobSpec, then func(events.JobSpec) stepFault) {
	p.stepFault = func(spec events.JobSpec) stepFault {
		switch spec.Operation {
		case "apply":
			if spec.State.Storage == "http" {
				h := control.Holder{Job: spec.Job, Epoch: spec.Epoch}
				p.must("save a state", func() error {
					return errors.Join(p.LockState(p.ctx, h, string(spec.Install), spec.Component, "lock", nil),
						p.PutState(p.ctx, h, string(spec.Install), spec.Component, "lock", []byte(`{"version":4,"serial":1,"lineage":"x"}`)),
						p.UnlockState(p.ctx, h, string(spec.Install), spec.Component, "lock"))
				})
			}
		case "migrate-state":
			*moves = append(*moves, spec)
			if then != nil {
				return then(spec)
			}
		}
		return none
	}
}

func (p *plane) migrate(install, key string) control.Job {
	p.t.Helper()
	var j control.Job
	p.must("migrate the state", func() (err error) { j, err = p.MigrateState(p.ctx, org, install, key); return })
	return j
}

// migrationStory first changes the configuration of a runner, so that the runner keeps
// states in a bucket. Then it moves the states of an install to the bucket.
func migrationStory(p *plane) {
	t := p.t
	var moves []events.JobSpec
	tries := 0
	p.savesStates(&moves, func(events.JobSpec) stepFault {
		if tries++; tries == 1 {
			return diesBefore // the job gets a second attempt
		}
		return none
	})
	p.publish(shop)
	p.install("acme")
	p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
	p.work()
	if len(p.blobs("state/")) == 0 {
		t.Fatal("the control plane stores no state")
	}
	p.keepsStatesIn("local", bucketOf("acme-states"))
	expectCode(t, "a deployment before the migration", p.try(func() error {
		return errOf(p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: "deploy"}, ""))
	}), "state-storage-changed")

	j := p.migrate("acme", "move")
	for what, fn := range map[string]func() error{
		"a deployment": func() error {
			return errOf(p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: "deploy"}, "meanwhile"))
		},
		"a refresh":         func() error { return errOf(p.RefreshRunner(p.ctx, org, "acme", control.Refresh{AcceptLoss: true})) },
		"another migration": func() error { return errOf(p.MigrateState(p.ctx, org, "acme", "another")) },
		"a forget request":  func() error { return p.ForgetInstall(p.ctx, org, "acme", true) },
		"a pushed state": func() error {
			return errOf(p.PushState(p.ctx, org, "acme", "web", []byte(`{"version":4,"serial":9,"lineage":"x"}`)))
		},
	} {
		expectCode(t, what+" while the state is moved", p.try(fn), "state-moving")
	}
	p.work()
	if got := p.job(j.ID); got.State != job.Succeeded || got.Attempts != 2 {
		t.Errorf("the migration is %s after %d attempts: %s", got.State, got.Attempts, got.Message)
	}
	spec := moves[len(moves)-1]
	if len(spec.Move) != 4 || spec.State != nil || spec.Artifact != nil {
		t.Errorf("the step's spec is %+v", spec)
	}
	for _, m := range spec.Move {
		key := string(spec.Install) + "/" + m.Component
		if m.From.Storage != "http" || m.From.Path != "/runner/v1/state/"+key || m.From.Key != key ||
			m.To.Storage != "s3" || m.To.In.Bucket != "acme-states" || m.To.Key != key {
			t.Errorf("the spec moves %+v", m)
		}
	}
	in := p.bound("acme")
	if in.Moving != nil || in.Bound.Storage.Kind != "s3" {
		t.Errorf("the install is at %+v, moving %+v", in.Bound, in.Moving)
	}
	p.deploy("acme", control.NewDeployment{AutoApprove: true}, "after")
	p.work()
	expectCode(t, "a migration to the current storage", p.try(func() error { return errOf(p.MigrateState(p.ctx, org, "acme", "again")) }), "nothing-to-move")
	if len(p.applied) != 4 {
		t.Errorf("after the migration a component was applied again: %s", p.applied)
	}
}

func (p *plane) job(id fairlead.JobID) control.Job {
	p.t.Helper()
	var j control.Job
	p.must("read job", func() (err error) { j, err = p.Job(p.ctx, org, id); return })
	return j
}

func (p *plane) bound(install string) store.Install {
	p.t.Helper()
	var in store.Stored[store.Install]
	p.must("read install", func() (err error) { in, err = p.Store.Install(p.ctx, org, install); return })
	return in.V
}

func TestMigrationMovesStatesToTheRunnersStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		migrationStory(p)
		if head, _ := p.head("acme", "web"); head.Blob != "" || len(head.History) > 0 {
			t.Errorf("the control plane still has the state: %+v", head)
		}
		err := p.BreakStateLock(p.ctx, org, "acme", "web", "")
		expectCode(t, "breaking a lock in the customer's storage", err, "state-not-locked")
		if e, ok := errors.AsType[*fairlead.Error](err); !ok || !strings.Contains(e.Hint, "`aws s3 rm s3://acme-states/state/"+string(p.bound("acme").ID)+"/web.tfstate.tflock`") {
			t.Errorf("the refusal is %+v", e)
		}
		if left := p.blobs("state/"); len(left) > 0 {
			t.Errorf("blobs of the old state are left: %s", left)
		}
	})
}

func TestMigrationUnderEveryFault(t *testing.T) {
	everyFault{next: func(int) int { return 3 }, least: 5}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		p := newPlane(t, e)
		*armed = true
		migrationStory(p)
	})
}

// A migration that fails or is canceled does not change the install. A person can start the
// migration again.
func TestFailedMigrationChangesNothing(t *testing.T) {
	for name, what := range map[string]stepFault{"the tool fails": fails, "each step dies": diesBefore} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				var moves []events.JobSpec
				p.savesStates(&moves, func(events.JobSpec) stepFault { return what })
				p.publish(shop)
				p.install("acme")
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "first")
				p.work()
				p.keepsStatesIn("local", bucketOf("acme-states"))
				j := p.migrate("acme", "")
				p.work()
				if got := p.job(j.ID); got.State != job.Failed {
					t.Errorf("the migration is %s", got.State)
				}
				if in := p.bound("acme"); in.Moving != nil || in.Bound.Storage.Kind != "http" {
					t.Errorf("the install is at %+v, moving %+v", in.Bound, in.Moving)
				}
				if head, _ := p.head("acme", "web"); head.Blob == "" {
					t.Error("the old state was deleted")
				}
				// The install can be deployed if its runner uses the old storage again.
				p.keepsStatesIn("local", "state_storage_configuration={type: http}")
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "as before")
				p.work()
				p.keepsStatesIn("local", bucketOf("acme-states"))
				canceled := p.migrate("acme", "")
				p.must("cancel", func() error { return errOf(p.CancelJob(p.ctx, org, canceled.ID)) })
				what = none
				j = p.migrate("acme", "")
				p.work()
				if got := p.job(j.ID); got.State != job.Succeeded || p.bound("acme").Bound.Storage.Kind != "s3" {
					t.Errorf("the repeated migration is %s: %s", got.State, got.Message)
				}
			})
		})
	}
}

// A refresh moves the state to the storage of the new runner. The old runner runs the
// migration, because it can use both storages. The install is bound to the new runner after
// the migration.
func TestRefreshMovesTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		var moves []events.JobSpec
		p.savesStates(&moves, nil)
		p.publish(shop)
		p.keepsStatesIn("local", "state_storage_configuration={type: local}")
		p.runner("acme", control.RunnerFile{Text: "runner_configuration: {type: local}\nstate_storage_configuration: {type: s3, bucket: acme-states, region: eu-central-1}\n"})
		p.runner("disk", fileOf("", "local"))
		rule := func(runner string) (id string) {
			p.must("make a rule", func() error {
				r, err := p.CreateRunnerRule(p.ctx, org, control.NewRunnerRule{App: "shop", Runner: runner}, "rule "+runner)
				id = string(r.ID)
				return err
			})
			return id
		}
		first := rule("local")
		p.placedIn("one", "", nil)
		p.deploy("one", control.NewDeployment{AutoApprove: true}, "first")
		p.work()
		p.must("delete the rule", func() error { return p.DeleteRunnerRule(p.ctx, org, first) })
		second := rule("disk")
		_, err := p.RefreshRunner(p.ctx, org, "one", control.Refresh{Migrate: true})
		expectCode(t, "a move from one disk to another", err, "state-out-of-reach")
		p.must("delete the rule", func() error { return p.DeleteRunnerRule(p.ctx, org, second) })
		rule("acme")
		_, err = p.RefreshRunner(p.ctx, org, "one", control.Refresh{})
		expectCode(t, "a refresh that loses the state", err, "state-storage-changes")
		if e, ok := errors.AsType[*fairlead.Error](err); !ok || !strings.Contains(commandline.Hint(e), "refresh-runner one --migrate-state") {
			t.Errorf("the refusal is %+v", e)
		}
		dry, err := p.RefreshRunner(p.ctx, org, "one", control.Refresh{DryRun: true, Migrate: true})
		if err != nil || !dry.Changed || dry.Runner != "acme" || dry.Job != "" {
			t.Errorf("the dry run returns %+v, %v", dry, err)
		}
		out, err := p.RefreshRunner(p.ctx, org, "one", control.Refresh{Migrate: true})
		if err != nil || !out.Changed || out.Runner != "acme" || out.Job == "" || p.boundTo("one") != "local" {
			t.Fatalf("the refresh returns %+v, %v; bound to %s", out, err, p.boundTo("one"))
		}
		expectCode(t, "the deletion of the new runner", p.DeleteRunner(p.ctx, control.User{Org: org}, "acme"), "runner-in-use")
		p.work() // the old runner runs the migration, because only the old runner can read its disk
		if got := p.job(out.Job); got.State != job.Succeeded || got.RunnerName != "local" {
			t.Errorf("the migration is %s by %s", got.State, got.RunnerName)
		}
		if got := moves[0].Move[0]; got.From.Storage != "local" || got.To.Storage != "s3" || got.To.In.Bucket != "acme-states" {
			t.Errorf("the spec moves %+v", got)
		}
		if p.boundTo("one") != "acme" {
			t.Errorf("the install is bound to %s", p.boundTo("one"))
		}
		if in := p.bound("one"); !slices.Contains([]string{"acme"}, in.Bound.Name) || in.Moving != nil {
			t.Errorf("the install is %+v", in)
		}
	})
}
