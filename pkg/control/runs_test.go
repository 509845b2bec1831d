package control_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// acting is an app with a component, and actions for each trigger.
const acting = `fairlead: v1
name: shop
inputs:
  password: {type: string, sensitive: true, required: true}
  size: {type: number, default: 2}
components:
  db: {type: terraform, source: ./db, vars: {size: "${inputs.size}"}}
  web: {type: terraform, source: ./web, vars: {db: "${components.db.outputs.id}"}}
actions:
  backup:
    type: script
    source: ./backup
    role: provision
    timeout: 7m
    params:
      keep: {type: number, default: 7}
      key: {type: string, required: false, sensitive: true}
    vars: {db: "${components.db.outputs.secret}", keep: "${params.keep}", key: "${params.key}"}
    schedule: {cron: "0 3,4 * * *", timezone: Europe/Berlin}
  migrate: {type: script, source: ./migrate, vars: {db: "${components.db.outputs.id}"}, before: [web.apply]}
  check: {type: script, source: ./check, after: [db.apply, web.apply]}
  farewell: {type: script, source: ./check, vars: {web: "${components.web.outputs.id}"}, before: [web.destroy]}
`

// ran runs test with an install that has deployed the app acting, and appends its job specs to specs.
func ran(t *testing.T, test func(p *plane, specs *[]events.JobSpec)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(acting)
		p.install("acme")
		p.expect(p.deployed(), deployment.Succeeded, "db=applied web=applied actions.check=applied actions.migrate=applied")
		var specs []events.JobSpec
		p.stepFault = func(s events.JobSpec) stepFault { specs = append(specs, s); return none }
		p.applied = nil
		test(p, &specs)
	})
}

func (p *plane) runAction(in control.NewRun) control.Deployment {
	p.t.Helper()
	var d control.Deployment
	p.must("run an action", func() (err error) {
		d, err = p.RunAction(p.ctx, org, "acme", in, fairlead.RandomIDs(p.Now)("key"))
		return
	})
	return d
}

// runs returns the runs of an action that were created, oldest first, as "trigger state".
func (p *plane) runs(action string) (all []string) {
	p.t.Helper()
	ds, _, err := p.Deployments(p.ctx, org, control.DeploymentFilter{Install: "acme", Action: action}, fairlead.PageQuery{Limit: 100})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, d := range slices.Backward(ds) {
		all = append(all, string(d.Trigger)+" "+string(d.State))
	}
	return all
}

// failDB deploys a changed input, and the apply of db fails.
func (p *plane) failDB() {
	p.t.Helper()
	p.stepFault = func(s events.JobSpec) stepFault {
		if s.Component == "db" && s.Operation == "apply" {
			return fails
		}
		return none
	}
	p.must("change an input", func() error {
		_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
		return err
	})
	p.deployed()
}

// schedule returns the schedule of the action backup.
func (p *plane) schedule() control.Action {
	p.t.Helper()
	all, err := p.Actions(p.ctx, org, "acme")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, a := range all {
		if a.Name == "backup" {
			return a
		}
	}
	p.t.Fatal("the install has no action backup")
	return control.Action{}
}

func TestRunGetsItsParamsAndChangesNoComponent(t *testing.T) {
	ran(t, func(p *plane, specs *[]events.JobSpec) {
		before, err := p.Install(p.ctx, org, "acme")
		if err != nil {
			t.Fatal(err)
		}
		d := p.runAction(control.NewRun{Action: "backup", Params: map[string]json.RawMessage{"keep": json.RawMessage("30"), "key": json.RawMessage(`"k3y"`)}})
		p.work()
		p.expect(d.ID, deployment.Succeeded, "actions.backup=applied")
		if got := strings.Join(p.applied, ", "); got != "run actions.backup" {
			t.Errorf("the tools did: %s", got)
		}
		for _, s := range *specs {
			want := map[string]events.SpecVar{"db": {Value: json.RawMessage(`"secret-of-db"`), Sensitive: true}, "keep": {Value: json.RawMessage("30")},
				"key": {Value: json.RawMessage(`"k3y"`), Sensitive: true}}
			if s.Component != "actions.backup" || s.Plugin != "script" || s.State != nil || s.Applied != nil || !reflect.DeepEqual(s.Vars, want) {
				t.Errorf("the spec of the %s is %+v", s.Operation, s)
			}
			if s.Env["FAIRLEAD_ACTION"] != "backup" || s.Env["FAIRLEAD_TRIGGER"] != "manual" || s.Env["FAIRLEAD_COMPONENT"] != "" {
				t.Errorf("the environment of the %s is %v", s.Operation, s.Env)
			}
		}
		jobs, err := p.DeploymentJobs(p.ctx, org, d.ID)
		if err != nil || len(jobs) != 2 {
			t.Fatalf("the jobs are %+v, %v", jobs, err)
		}
		for _, j := range jobs {
			role, timeout := "", job.OpPlanRun.Timeout()
			if j.Operation == job.OpRun {
				role, timeout = "provision", 7*time.Minute
			}
			if j.Role != role || j.Timeout() != timeout {
				t.Errorf("the %s has the role %q and the timeout %s", j.Operation, j.Role, j.Timeout())
			}
		}
		after, err := p.Install(p.ctx, org, "acme")
		if err != nil || !reflect.DeepEqual(after.Components, before.Components) {
			t.Errorf("the components were %+v and are %+v, %v", before.Components, after.Components, err)
		}
		stored, err := p.Store.Deployment(p.ctx, d.ID)
		if text, _ := json.Marshal(stored.V); err != nil || strings.Contains(string(text), "k3y") {
			t.Errorf("the record has the secret: %s, %v", text, err)
		}
	})
}

func TestRunIsRefusedForWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		in     control.NewRun
		before func(p *plane)
		code   fairlead.Code
		text   string
	}{
		"an action that is not declared": {in: control.NewRun{Action: "restore"}, code: "action-not-found", text: `has no action "restore"`},
		"a param that is not declared": {in: control.NewRun{Action: "backup", Params: map[string]json.RawMessage{"kepe": json.RawMessage("1")}},
			code: "invalid-params", text: "a param is wrong"},
		"a param of another type": {in: control.NewRun{Action: "backup", Params: map[string]json.RawMessage{"keep": json.RawMessage(`"x"`)}},
			code: "invalid-params", text: "a param is wrong"},
		"a component that is not deployed": {in: control.NewRun{Action: "backup"}, before: func(p *plane) {
			p.failDB()
		}, code: "action-components", text: "the action backup of install acme uses outputs of db (failed)"},
		"an install that was torn down": {in: control.NewRun{Action: "check"}, before: func(p *plane) {
			p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "teardown")
			p.work()
		}, code: "action-not-found", text: "no whole deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			ran(t, func(p *plane, _ *[]events.JobSpec) {
				if c.before != nil {
					c.before(p)
				}
				_, err := p.RunAction(p.ctx, org, "acme", c.in, "key")
				if fairlead.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
					t.Errorf("the run returns %v", err)
				}
			})
		})
	}
}

// The same request creates one run. A second request waits for the first run.
func TestRunsWaitForEachOther(t *testing.T) {
	ran(t, func(p *plane, _ *[]events.JobSpec) {
		ask := func(key string, in control.NewRun) (control.Deployment, error) {
			return p.RunAction(p.ctx, org, "acme", in, key)
		}
		first, err1 := ask("a", control.NewRun{Action: "backup"})
		again, err2 := ask("a", control.NewRun{Action: "backup"})
		second, err3 := ask("b", control.NewRun{Action: "check"})
		if err1 != nil || err2 != nil || err3 != nil || again.ID != first.ID || second.State != deployment.Queued {
			t.Fatalf("%v %v %v: %s, %s, %s", err1, err2, err3, first.ID, again.ID, second.State)
		}
		if _, err := ask("c", control.NewRun{Action: "check", NoQueue: true}); fairlead.CodeOf(err) != "deployment-runs" {
			t.Errorf("a run that must not wait returns %v", err)
		}
		p.work()
		if got := strings.Join(p.applied, ", "); got != "run actions.backup, run actions.check" {
			t.Errorf("the tools did: %s", got)
		}
	})
}

// A run that waits for a deployment uses the version that this deployment brings, and is refused if this version does not
// have its params.
func TestQueuedRunUsesTheVersionDeployedThen(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		state    deployment.State
	}{
		"another source":      {"source: ./backup", "source: ./better", deployment.Succeeded},
		"without the param":   {"keep: {type: number, default: 7}", "hold: {type: number, default: 7}", deployment.Failed},
		"without the action":  {"  backup:", "  rescue:", deployment.Failed},
		"with another type":   {"keep: {type: number, default: 7}", "keep: {type: string, default: x}", deployment.Failed},
		"with a longer limit": {"timeout: 7m", "timeout: 8m", deployment.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			ran(t, func(p *plane, specs *[]events.JobSpec) {
				next := p.publish(strings.Replace(strings.Replace(acting, c.old, c.new, 1), "${params.keep}", "x", strings.Count(c.new, "hold:")))
				p.must("change an input", func() error {
					_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
					return err
				})
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "second")
				d := p.runAction(control.NewRun{Action: "backup", Params: map[string]json.RawMessage{"keep": json.RawMessage("30")}})
				if d.State != deployment.Queued {
					t.Fatalf("the run is %s", d.State)
				}
				p.work()
				after := p.deployment(d.ID)
				if after.State != c.state || c.state == deployment.Succeeded && after.Version != next.ID {
					t.Errorf("the run of version %s is %s: %s; want %s of %s", after.Version, after.State, nodes(after), c.state, next.ID)
				}
				if c.state == deployment.Failed && slices.Contains(p.applied, "run actions.backup") {
					t.Errorf("the tools did: %s", p.applied)
				}
			})
		})
	}
}

// The step of a run dies: what it did is unknown, so it does not run again by itself. A retry by a person does, with the
// same params.
func TestLostRunIsNotRepeated(t *testing.T) {
	for name, what := range map[string]stepFault{"the step dies before its work": diesBefore, "the step dies after its work": diesAfter, "the host vanishes": vanishes} {
		t.Run(name, func(t *testing.T) {
			ran(t, func(p *plane, specs *[]events.JobSpec) {
				p.stepFault = func(s events.JobSpec) stepFault {
					*specs = append(*specs, s)
					if s.Operation == "run" {
						return what
					}
					return none
				}
				d := p.runAction(control.NewRun{Action: "backup", Params: map[string]json.RawMessage{"key": json.RawMessage(`"k3y"`)}})
				p.work()
				p.expect(d.ID, deployment.Failed, "actions.backup=lost")
				for _, k := range p.components() {
					if k.V.Lost != "" || k.V.State != store.Present {
						t.Errorf("component %s is %s, lost by %q", k.V.Name, k.V.State, k.V.Lost)
					}
				}
				if n := len(*specs); n != 2 {
					t.Fatalf("%d jobs started, want a plan and a run", n)
				}
				p.stepFault = func(s events.JobSpec) stepFault { *specs = append(*specs, s); return none }
				var r control.Deployment
				p.must("retry", func() (err error) { r, err = p.RetryDeployment(p.ctx, org, d.ID, "retry"); return })
				p.work()
				p.expect(r.ID, deployment.Succeeded, "actions.backup=applied")
				if last := (*specs)[len(*specs)-1]; last.Operation != "run" || string(last.Vars["key"].Value) != `"k3y"` {
					t.Errorf("the retry ran %s with %v", last.Operation, last.Vars)
				}
			})
		})
	}
}

// A hook runs if a component around it changes, and not on its own.
func TestHooksRunOnlyAroundChanges(t *testing.T) {
	ran(t, func(p *plane, specs *[]events.JobSpec) {
		p.expect(p.deployed(), deployment.Succeeded, "db=unchanged web=unchanged actions.check=unchanged actions.migrate=unchanged")
		if len(p.applied) > 0 {
			t.Errorf("the tools did: %s", p.applied)
		}
		p.must("change an input", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
			return err
		})
		p.expect(p.deployed(), deployment.Succeeded, "db=applied web=unchanged actions.check=applied actions.migrate=unchanged")
		if got := strings.Join(p.applied, ", "); got != "apply db, run actions.check" {
			t.Errorf("the tools did: %s", got)
		}
		if got := p.runs("check"); got != nil {
			t.Errorf("the hook has the runs %v of its own", got)
		}
		p.applied = nil
		id := p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "teardown")
		p.work()
		p.expect(id, deployment.Succeeded, "web=applied actions.farewell=applied db=applied")
		if got := strings.Join(p.applied, ", "); got != "run actions.farewell, destroy web, destroy db" {
			t.Errorf("the tools did: %s", got)
		}
	})
}

// A retry runs a hook again that failed, although the components around it are done.
func TestRetryRunsAFailedHook(t *testing.T) {
	ran(t, func(p *plane, _ *[]events.JobSpec) {
		p.stepFault = func(s events.JobSpec) stepFault {
			if s.Component == "actions.check" && s.Operation == "run" {
				return fails
			}
			return none
		}
		p.must("change an input", func() error {
			_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Inputs: map[string]json.RawMessage{"size": json.RawMessage("3")}})
			return err
		})
		id := p.deployed()
		p.expect(id, deployment.Failed, "db=applied web=unchanged actions.check=failed actions.migrate=unchanged")
		for range 2 { // the retry fails too, and is retried
			var r control.Deployment
			p.must("retry", func() (err error) { r, err = p.RetryDeployment(p.ctx, org, id, "retry "+string(id)); return })
			p.work()
			id = r.ID
			p.expect(id, deployment.Failed, "db=unchanged web=unchanged actions.check=failed actions.migrate=unchanged")
		}
		p.stepFault, p.applied = nil, nil
		var r control.Deployment
		p.must("retry", func() (err error) { r, err = p.RetryDeployment(p.ctx, org, id, "last retry"); return })
		p.work()
		p.expect(r.ID, deployment.Succeeded, "db=unchanged web=unchanged actions.check=applied actions.migrate=unchanged")
		if got := strings.Join(p.applied, ", "); got != "run actions.check" {
			t.Errorf("the tools did: %s", got)
		}
	})
}

// scheduleStory is the life of a schedule. Runs start at 3:00 and 4:00 in Berlin, which are 2:00 and 3:00 UTC in winter.
func scheduleStory(t *testing.T, p *plane) {
	t.Helper()
	sweep := func() (s control.Swept) {
		t.Helper()
		p.must("sweep", func() (err error) { s, err = p.Sweep(p.ctx); return })
		return s
	}
	until := func(at string) {
		t.Helper()
		end, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		p.sleep(end.Sub(p.Now()))
	}
	next := func(want string) {
		t.Helper()
		if got := p.schedule().Timing.Next.UTC().Format(time.RFC3339); got != want {
			t.Errorf("the next run is at %s, want %s", got, want)
		}
	}
	runs := func(want ...string) {
		t.Helper()
		if got := p.runs("backup"); !slices.Equal(got, want) {
			t.Errorf("the runs are %q, want %q", got, want)
		}
	}
	p.publish(acting)
	p.install("acme")
	runs()
	p.deployed()
	next("2026-01-03T02:00:00Z")

	// Before its time no run starts. At its time one starts, also if two sweeps work at the same time.
	until("2026-01-03T01:59:59Z")
	if s := sweep(); s.Runs+s.Skipped != 0 {
		t.Errorf("the sweep before the time started %d runs", s.Runs)
	}
	until("2026-01-03T02:00:00Z")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { _, _ = p.Sweep(p.ctx) }) // one of them may meet a conflict that it gives up; the other wins
	}
	both.Wait()
	runs("schedule running")
	next("2026-01-03T03:00:00Z")
	if k := p.schedule().Timing.Skipped; k != nil {
		t.Errorf("the sweep that was later counts as a skipped time: %+v", k)
	}

	// At the next time the run has not ended: the time is skipped, and the schedule shows it.
	until("2026-01-03T03:00:00Z")
	if s := sweep(); s.Runs != 0 || s.Skipped != 1 {
		t.Errorf("the sweep during a run started %d and skipped %d", s.Runs, s.Skipped)
	}
	runs("schedule running")
	if k := p.schedule().Timing.Skipped; k == nil || k.Code != "action-running" || k.At.UTC().Format(time.RFC3339) != "2026-01-03T03:00:00Z" || !strings.Contains(k.Message, "has not ended") {
		t.Errorf("the schedule shows %+v", k)
	}
	p.work()

	// The control plane is down for four nights: one run starts afterwards.
	until("2026-01-08T12:00:00Z")
	if s := sweep(); s.Runs != 1 {
		t.Errorf("the sweep after a pause started %d runs", s.Runs)
	}
	if s := sweep(); s.Runs+s.Skipped != 0 {
		t.Errorf("the sweep after it started %d runs and skipped %d", s.Runs, s.Skipped)
	}
	next("2026-01-09T02:00:00Z")
	p.work()
	if got := p.runs("backup"); len(got) != 2 || got[1] != "schedule succeeded" {
		t.Errorf("the runs are %q", got)
	}

	// A deployment of another version moves the schedule only if the version has another one.
	p.publish(strings.Replace(acting, "timeout: 7m", "timeout: 8m", 1))
	p.deployed()
	next("2026-01-09T02:00:00Z")
	p.publish(strings.Replace(acting, `"0 3,4 * * *", timezone: Europe/Berlin`, `"30 4 * * *", timezone: UTC`, 1))
	next("2026-01-09T02:00:00Z") // it is not deployed yet
	p.deployed()
	next("2026-01-09T04:30:00Z")

	// A run that is refused is skipped, with the reason.
	p.failDB()
	p.stepFault = nil
	until("2026-01-09T04:30:00Z")
	if s := sweep(); s.Runs != 0 || s.Skipped != 1 {
		t.Errorf("the sweep without the component started %d and skipped %d", s.Runs, s.Skipped)
	}
	if k := p.schedule().Timing.Skipped; k == nil || k.Code != "action-components" {
		t.Errorf("the schedule shows %+v", k)
	}

	// A teardown ends the schedule.
	p.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "teardown")
	p.work()
	if left, err := p.Store.DueSchedules(p.ctx, p.Now().AddDate(1, 0, 0), 10); err != nil || len(left) != 0 {
		t.Errorf("after the teardown there are the schedules %+v, %v", left, err)
	}
}

func TestSchedulesOfActions(t *testing.T) {
	c := newClock()
	scheduleStory(t, newPlaneAt(t, enginetest.Memory(), c.now, c.sleep))
}

func TestSchedulesOfActionsOnSQLite(t *testing.T) {
	t.Parallel()
	c := newClock()
	scheduleStory(t, newPlaneAt(t, sqliteTable(t), c.now, c.sleep))
}

func TestSchedulesOfActionsOnDynamoDB(t *testing.T) {
	shortrun.OneDayIn(t, 2, 1)
	t.Parallel()
	c := newClock()
	scheduleStory(t, newPlaneAt(t, dynamoTable(t, "schedules"), c.now, c.sleep))
}

// After a restore the outputs of the components are in doubt, so no run may use them. The schedule shows why it skipped its
// time. A deployment ends the doubt, and the next time starts one run.
func TestScheduleAfterARestoreWaitsForADeployment(t *testing.T) {
	c := newClock()
	p := newPlaneAt(t, enginetest.Memory(), c.now, c.sleep)
	p.publish(acting)
	p.install("acme")
	p.deployed()
	p.sleep(3 * 24 * time.Hour)
	p.restore()
	sweep := func(runs, skipped int) {
		t.Helper()
		p.must("sweep", func() error {
			s, err := p.Sweep(p.ctx)
			if s.Runs != runs || s.Skipped != skipped {
				t.Errorf("the sweep started %d runs and skipped %d, want %d and %d", s.Runs, s.Skipped, runs, skipped)
			}
			return err
		})
		p.work()
	}
	sweep(0, 1)
	if k := p.schedule().Timing.Skipped; k == nil || k.Code != "action-components" || !strings.Contains(k.Message, "db (unknown)") {
		t.Errorf("the schedule shows %+v", k)
	}
	sweep(0, 0)
	p.deployed() // its plans find no changes
	p.sleep(24 * time.Hour)
	sweep(1, 0)
	if got := p.runs("backup"); !slices.Equal(got, []string{"schedule succeeded"}) {
		t.Errorf("the runs are %q", got)
	}
}

// An install that is forgotten with its components has no schedule left. The sweep would otherwise look at it forever.
func TestForgottenInstallHasNoSchedule(t *testing.T) {
	ran(t, func(p *plane, _ *[]events.JobSpec) {
		kept, err := p.Store.ActionSchedules(p.ctx, p.installID())
		if err != nil || len(kept) != 1 {
			t.Fatalf("the schedules are %+v, %v", kept, err)
		}
		p.must("forget", func() error { return p.ForgetInstall(p.ctx, org, "acme", true) })
		if left, err := p.Store.DueSchedules(p.ctx, p.Now().AddDate(1, 0, 0), 10); err != nil || len(left) != 0 {
			t.Errorf("the schedules are %+v, %v", left, err)
		}
	})
}

func (p *plane) installID() fairlead.InstallID {
	p.t.Helper()
	in, err := p.Store.Install(p.ctx, org, "acme")
	if err != nil {
		p.t.Fatal(err)
	}
	return in.V.ID
}

// components returns the records of the install's components.
func (p *plane) components() []store.Stored[store.Component] {
	p.t.Helper()
	all, err := p.Store.Components(p.ctx, p.installID())
	if err != nil || len(all) == 0 {
		p.t.Fatalf("the components are %v, %v", all, err)
	}
	return all
}
