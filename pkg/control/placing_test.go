package control_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// fileOf returns the configuration of a local runner. The runner belongs to the group, or
// to the whole org if group is "".
func fileOf(group, storage string) control.RunnerFile {
	if group != "" {
		group = "group: " + group
	}
	return control.RunnerFile{Text: fmt.Sprintf("%s\nrunner_configuration: {type: local}\nstate_storage_configuration: {type: %s}\n", group, storage)}
}

func (p *plane) group(path string) {
	p.t.Helper()
	p.must("make a group", func() error { _, err := p.CreateGroup(p.ctx, org, path, "", "group "+path); return err })
}

func (p *plane) runner(name string, file control.RunnerFile) {
	p.t.Helper()
	p.must("make a runner", func() error {
		_, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: name, File: file}, "runner "+name)
		return err
	})
}

// placedIn creates an install that names no runner.
func (p *plane) placedIn(name, group string, labels map[string]string) {
	p.t.Helper()
	p.must("create install", func() error {
		_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: name, App: "shop", Group: group, Labels: labels,
			Inputs: secretPassword()}, "create "+name)
		return err
	})
}

// boundTo returns the name of the runner that the install is bound to, or "" before the
// first deployment of the install.
func (p *plane) boundTo(install string) string {
	p.t.Helper()
	var in control.Install
	p.must("read install", func() (err error) { in, err = p.Install(p.ctx, org, install); return })
	if in.Bound == nil {
		return ""
	}
	return in.Bound.Name
}

// expectCode fails the test if the error has another code.
func expectCode[Code ~string](t *testing.T, what string, err error, code Code) {
	t.Helper()
	if string(fairlead.CodeOf(err)) != string(code) {
		t.Errorf("%s is %v, want %s", what, err, code)
	}
}

// placementStory creates an install that names no runner. The first deployment binds the
// install to a runner, and a refresh binds it to another runner. At the end the story
// deletes everything.
func placementStory(p *plane) {
	t := p.t
	p.publish(shop)
	p.group("customers")
	p.group("customers/acme")
	p.runner("acme", fileOf("customers/acme", "http"))
	p.placedIn("one", "customers/acme", map[string]string{"env": "prod"})
	if got := p.boundTo("one"); got != "" {
		t.Errorf("the install is bound to %s before its first deployment", got)
	}
	p.deploy("one", control.NewDeployment{}, "deploy")
	if got := p.boundTo("one"); got != "acme" {
		t.Errorf("the install is bound to %q, want its group's runner", got)
	}
	var rule control.RunnerRule
	p.must("make a rule", func() (err error) {
		rule, err = p.CreateRunnerRule(p.ctx, org, control.NewRunnerRule{Group: "customers/acme", Runner: "local"}, "rule")
		return err
	})
	if got := p.boundTo("one"); got != "acme" {
		t.Errorf("a rule moved the install to %s", got)
	}
	d := p.deploymentsOf("one")[0]
	expectCode(t, "a refresh during a deployment", p.try(func() error { _, err := p.RefreshRunner(p.ctx, org, "one", control.Refresh{}); return err }), "deployment-runs")
	p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, d); return err })

	expectCode(t, "the deletion of the bound runner", p.try(func() error { return p.DeleteRunner(p.ctx, control.User{Org: org}, "acme") }), "runner-in-use")
	expectCode(t, "the deletion of a group in use", p.try(func() error { return p.DeleteGroup(p.ctx, org, "customers/acme") }), "group-not-empty")
	var dry, wet control.Refreshed
	p.must("refresh, dry", func() (err error) {
		dry, err = p.RefreshRunner(p.ctx, org, "one", control.Refresh{DryRun: true})
		return
	})
	if got := p.boundTo("one"); got != "acme" {
		t.Errorf("a dry run moved the install to %s", got)
	}
	var err error
	wet, err = p.RefreshRunner(p.ctx, org, "one", control.Refresh{})
	if fairlead.KindOf(err) == fairlead.KindUnavailable || fairlead.KindOf(err) == fairlead.KindInternal {
		p.must("refresh", func() error { _, err := p.RefreshRunner(p.ctx, org, "one", control.Refresh{}); return err })
		wet = dry // the first request changed the binding and its answer was lost, so the second request changed nothing
	} else if err != nil {
		t.Errorf("a refresh is refused: %v", err)
	}
	if dry != wet || !wet.Changed || wet.Runner != "local" || p.boundTo("one") != "local" {
		t.Errorf("the refresh returns %+v and binds to %s; its dry run returned %+v", wet, p.boundTo("one"), dry)
	}
	p.must("refresh again", func() (err error) { wet, err = p.RefreshRunner(p.ctx, org, "one", control.Refresh{}); return })
	if wet.Changed {
		t.Errorf("the second refresh returns a change: %+v", wet)
	}

	p.must("delete the runner", func() error { return ignoreNotFound(p.DeleteRunner(p.ctx, control.User{Org: org}, "acme")) })
	p.must("delete the rule", func() error { return ignoreNotFound(p.DeleteRunnerRule(p.ctx, org, string(rule.ID))) })
	p.must("forget", func() error { return ignoreNotFound(p.ForgetInstall(p.ctx, org, "one", false)) })
	p.must("delete the group", func() error { return ignoreNotFound(p.DeleteGroup(p.ctx, org, "customers/acme")) })
	for _, err := range []error{
		errOf(p.Runner(p.ctx, org, "acme")), errOf(p.Group(p.ctx, org, "customers/acme")),
	} {
		if k := fairlead.KindOf(err); k != fairlead.KindNotFound && k != fairlead.KindUnavailable && k != fairlead.KindInternal {
			t.Errorf("a read of a deleted record returns %v", err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// ignoreNotFound returns nil if a deletion finds no record, because the answer of an
// earlier deletion may be lost. It returns all other errors.
func ignoreNotFound(err error) error {
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return nil
	}
	return err
}

func (p *plane) deploymentsOf(install string) []fairlead.DeploymentID {
	p.t.Helper()
	var ids []fairlead.DeploymentID
	p.must("list deployments", func() error {
		all, _, err := p.Deployments(p.ctx, org, control.DeploymentFilter{Install: install}, fairlead.PageQuery{})
		ids = nil
		for _, d := range all {
			ids = append(ids, d.ID)
		}
		return err
	})
	return ids
}

func TestAnInstallIsPlacedBoundAndRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { placementStory(newPlane(t, enginetest.Memory())) })
}

func TestPlacementUnderEveryFault(t *testing.T) {
	everyFault{least: 15}.run(t, func(t *testing.T, e engine.Engine, armed *bool) {
		p := newPlane(t, e)
		*armed = true
		placementStory(p)
	})
}

// If several requests create a rule with the same match at the same time, one request
// succeeds, because the match is the key of the rule.
func TestConcurrentRulesOfOneMatchCreateOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		for i := range 8 {
			p.runner(fmt.Sprint("runner-", i), fileOf("", "http"))
		}
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = p.CreateRunnerRule(p.ctx, org, control.NewRunnerRule{Group: "eu/**", Labels: map[string]string{"a": "1", "b": "2"}, Runner: fmt.Sprint("runner-", i)}, "")
			})
		}
		wg.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
			} else if fairlead.CodeOf(err) != "rule-exists" {
				t.Errorf("a rule is refused with %v", err)
			}
		}
		rules, _, err := p.RunnerRules(p.ctx, org, fairlead.PageQuery{})
		if made != 1 || len(rules) != 1 || err != nil {
			t.Errorf("%d of 8 requests succeeded, and %d rules exist: %v", made, len(rules), err)
		}
	})
}

// A runner is deleted while the first deployment of an install starts. In no case is the
// install bound to a deleted runner.
func TestBoundRunnerIsNeverDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.group("g")
		both := [2]int{}
		for i := range 40 {
			runner, install := fmt.Sprint("runner-", i), fmt.Sprint("install-", i)
			p.runner(runner, fileOf("g", "http"))
			p.placedIn(install, "g", nil)
			var deleted, deployed error
			var wg sync.WaitGroup
			wg.Go(func() {
				if i%4 == 0 {
					time.Sleep(time.Millisecond) // the deployment comes first
				}
				deleted = p.DeleteRunner(p.ctx, control.User{Org: org}, runner)
			})
			wg.Go(func() {
				if i%4 == 2 {
					time.Sleep(time.Millisecond) // the deletion comes first; else the scheduler decides
				}
				_, deployed = p.CreateDeployment(p.ctx, org, install, control.NewDeployment{Kind: "deploy"}, "")
			})
			wg.Wait()
			_, err := p.Runner(p.ctx, org, runner)
			there, bound := err == nil, p.boundTo(install)
			switch {
			case bound != runner && there:
				// The deployment found the mark of the deletion, and the deletion found the
				// note that the deployment uses the runner. So the deletion was refused, and
				// the deployment chose another runner. The note expires after bindWithin.
				expectCode(t, "a deletion during a first deployment", deleted, "runner-in-use")
				time.Sleep(11 * time.Minute)
				p.must("delete", func() error { return p.DeleteRunner(p.ctx, control.User{Org: org}, runner) })
			case deployed != nil:
				t.Fatalf("deploy: %v", deployed) // the deployment must succeed: if the group's runner is deleted, the org's runner serves the install
			case bound == runner && !there:
				t.Fatalf("install %s is bound to %s, which was deleted: %v", install, bound, deleted)
			case bound == runner:
				both[0]++
				expectCode(t, "the deletion of a bound runner", deleted, "runner-in-use")
				p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, p.deploymentsOf(install)[0]); return err })
				p.must("forget", func() error { return p.ForgetInstall(p.ctx, org, install, false) })
				p.must("delete", func() error { return p.DeleteRunner(p.ctx, control.User{Org: org}, runner) })
			default:
				both[1]++
			}
		}
		if both[0] == 0 || both[1] == 0 {
			t.Errorf("the deployment came first %d times and the deletion %d times; want each at least once", both[0], both[1])
		}
	})
}

// A disabled or draining runner starts no jobs, and its jobs stay queued. When the runner
// is enabled again, a waiting claim gets a job at once.
func TestDisabledRunnerStartsNoJobs(t *testing.T) {
	for _, mode := range []fairlead.RunnerMode{fairlead.ModeDisabled, fairlead.ModeDraining} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlane(t, enginetest.Memory())
			by := control.User{Org: org}
			got := make(chan error, 1)
			go func() { // this claim already waits when the mode is set
				_, err := p.Claim(p.ctx, p.session, 20*time.Second)
				got <- err
			}()
			synctest.Wait()
			p.must("set the mode", func() error { _, err := p.SetRunnerMode(p.ctx, by, "local", mode); return err })
			if _, err := p.CheckRunner(p.ctx, me, "local", ""); err != nil {
				t.Fatal(err)
			}
			if err := <-got; !errors.Is(err, control.ErrNoWork) {
				t.Errorf("%s: the waiting claim returns %v", mode, err)
			}
			before := time.Now()
			if _, err := p.Claim(p.ctx, p.session, 10*time.Second); !errors.Is(err, control.ErrNoWork) || time.Since(before) < 9*time.Second {
				t.Errorf("%s: a claim returns %v after %s; want a full wait, or agents would claim without a pause", mode, err, time.Since(before))
			}
			go func() {
				_, err := p.Claim(p.ctx, p.session, 20*time.Second)
				got <- err
			}()
			synctest.Wait()
			before = time.Now()
			p.must("enable it", func() error { _, err := p.SetRunnerMode(p.ctx, by, "local", fairlead.ModeEnabled); return err })
			if err := <-got; err != nil || time.Since(before) > 0 {
				t.Errorf("enabled again, the waiting claim returns %v after %s", err, time.Since(before))
			}
		})
	}
}

// Each use case that changes a shared runner refuses the token of a tenant and accepts the
// token of an operator.
func TestOnlyOperatorsChangeSharedRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		operator, tenant := control.User{Org: org, Operator: true}, control.User{Org: "other"}
		shared := control.NewRunner{Name: "common", Storage: "http"}
		_, err := p.CreateSharedRunner(p.ctx, tenant, shared, "")
		expectCode(t, "a tenant's shared runner", err, "operator-only")
		if _, err := p.CreateSharedRunner(p.ctx, operator, shared, ""); err != nil {
			t.Fatal(err)
		}
		changes := map[string]func(control.User) error{
			"an update": func(u control.User) error {
				return errOf(p.UpdateRunner(p.ctx, u, "common", control.RunnerFile{Set: []string{"description=x"}}))
			},
			"a mode":       func(u control.User) error { return errOf(p.SetRunnerMode(p.ctx, u, "common", fairlead.ModeDisabled)) },
			"an enrolment": func(u control.User) error { _, _, err := p.CreateEnrolment(p.ctx, u, "common"); return err },
			"a check":      func(u control.User) error { return errOf(p.CheckRunner(p.ctx, u, "common", "")) },
			"its variables": func(u control.User) error {
				return errOf(p.SetVariables(p.ctx, u, control.VariableScope{Runner: "common"}, map[string]*control.Variable{"A": {Value: "b"}}))
			},
			"a list of them": func(u control.User) error {
				return errOf(p.Variables(p.ctx, u, control.VariableScope{Runner: "common"}))
			},
			"a deletion": func(u control.User) error { return p.DeleteRunner(p.ctx, u, "common") },
		}
		for name, change := range changes {
			expectCode(t, name+" by a tenant", change(tenant), "operator-only")
		}
		for name, change := range changes {
			if err := change(operator); err != nil && name != "a list of them" && fairlead.KindOf(err) != fairlead.KindNotFound { // if the deletion runs first, the runner is not found
				t.Errorf("%s by the operator: %v", name, err)
			}
		}
	})
}

// Runners, groups and rules of another org have no effect on a placement. The explanation
// of the placement does not show them.
func TestTenantsDoNotSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		const other = "other"
		for _, err := range []error{
			errOf(p.CreateGroup(p.ctx, other, "g", "", "")),
			errOf(p.CreateRunner(p.ctx, other, control.NewRunner{Name: "theirs", File: fileOf("g", "http")}, "")),
			errOf(p.CreateRunnerRule(p.ctx, other, control.NewRunnerRule{Runner: "theirs", Group: "g"}, "")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		p.group("g")
		p.placedIn("one", "g", nil)
		e, err := p.ExplainInstall(p.ctx, org, "one")
		if err != nil || e.Name != "local" || len(e.Candidates) != 1 {
			t.Errorf("the explanation is\n%+v, %v", e, err)
		}
		_, err = p.CreateRunnerRule(p.ctx, org, control.NewRunnerRule{Runner: "theirs"}, "")
		expectCode(t, "a rule that names another tenant's runner", err, "runner-not-found")
		_, err = p.CreateInstall(p.ctx, org, control.NewInstall{Name: "two", App: "shop", Runner: "theirs", Inputs: secretPassword()}, "")
		expectCode(t, "an install that names another tenant's runner", err, "runner-not-found")
		rules, _, err := p.RunnerRules(p.ctx, org, fairlead.PageQuery{})
		if len(rules) > 0 || err != nil {
			t.Errorf("the rules of another tenant are listed: %+v, %v", rules, err)
		}
	})
}

// A deployment cannot use a version of another tenant, even if both tenants have an app of
// the same name. Otherwise the files of the other tenant would run in the customer's
// account with the install's secrets, and the job could pull from the other tenant's
// repository.
func TestVersionOfAnotherTenantIsNotDeployed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		mine := p.publish(shop)
		p.install("acme")
		canonical, err := mine.Spec.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := p.PublishVersion(p.ctx, "other", "shop", canonical, mine.Artifacts)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []deployment.Kind{deployment.Deploy, deployment.Teardown} {
			_, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: kind, Version: theirs.ID}, "")
			expectCode(t, "a "+string(kind)+" of another tenant's version", err, "version-not-found")
		}
		if _, err = p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: deployment.Deploy, Version: mine.ID}, ""); err != nil {
			t.Errorf("the tenant's own version: %v", err)
		}
	})
}

// After a change of the runner's state storage, deployments of its installs are refused. A
// deployment without the old state would create all resources again. The hint of the
// refusal names the migration.
func TestDeploymentWithoutItsStateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.install("acme")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		p.work()
		by := control.User{Org: org}
		move := func(storage string) {
			p.must("update", func() error {
				return errOf(p.UpdateRunner(p.ctx, by, "local", control.RunnerFile{Set: []string{"state_storage_configuration.type=" + storage}}))
			})
		}
		move("local")
		_, err := p.CreateDeployment(p.ctx, org, "acme", control.NewDeployment{Kind: "deploy"}, "")
		expectCode(t, "a deployment after the change", err, "state-storage-changed")
		_, err = p.RefreshRunner(p.ctx, org, "acme", control.Refresh{})
		expectCode(t, "a refresh that loses the state", err, "state-storage-changes")
		if e, ok := errors.AsType[*fairlead.Error](err); !ok || e.Details["runner"] != "local" || e.Details["changed"] != "false" || !strings.Contains(commandline.Hint(e), "--migrate-state") {
			t.Errorf("the refusal is %+v", e)
		}
		move("http")
		p.deploy("acme", control.NewDeployment{Refresh: true}, "as before")
		p.must("cancel", func() error { _, err := p.CancelDeployment(p.ctx, org, p.deploymentsOf("acme")[0]); return err })
		move("local")
		r, err := p.RefreshRunner(p.ctx, org, "acme", control.Refresh{AcceptLoss: true})
		if err != nil || r.Changed || !r.StorageChanged {
			t.Errorf("a refresh that accepts the loss returns %+v, %v", r, err)
		}
		p.deploy("acme", control.NewDeployment{}, "without its state")
	})
}

// In an org, two runners cannot have the same name. This includes the shared runners that
// the org can use.
func TestRunnerNamesAreUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		operator := control.User{Org: org, Operator: true}
		if _, err := p.CreateSharedRunner(p.ctx, operator, control.NewRunner{Name: "common"}, ""); err != nil {
			t.Fatal(err)
		}
		_, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: "common"}, "")
		expectCode(t, "a runner with the name of a shared one", err, "runner-exists")
		_, err = p.CreateSharedRunner(p.ctx, operator, control.NewRunner{Name: "local"}, "")
		expectCode(t, "a shared runner with the name of the operator's own", err, "runner-exists")
		var names []string
		for q := (fairlead.PageQuery{Limit: 1}); ; {
			page, next, err := p.Runners(p.ctx, org, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				names = append(names, r.Name)
			}
			if q.After = next; next == "" {
				break
			}
		}
		if !slices.Equal(names, []string{"local", "common"}) {
			t.Errorf("the pages list %v", names)
		}
	})
}

// The runner in a customer's stack serves only the stack's install. Otherwise a rule or a
// group could place another customer's install in the account of this customer.
func TestRunnerInAStackServesOneInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		s.create(control.NewStack{Account: customer})
		s.must("make an install", func() error {
			return errOf(s.CreateInstall(s.ctx, org, control.NewInstall{Name: "placed", App: "tiny"}, "placed"))
		})
		e, err := s.ExplainInstall(s.ctx, org, "placed")
		if err != nil || len(e.Candidates) != 1 || e.Name != "local" {
			t.Errorf("another install is placed as\n%+v, %v", e, err)
		}
		if e, err = s.ExplainInstall(s.ctx, org, "acme"); err != nil || e.Name != "acme" || e.Refused != nil {
			t.Errorf("the install of the stack is placed as\n%+v, %v", e, err)
		}
		err = errOf(s.CreateInstall(s.ctx, org, control.NewInstall{Name: "named", App: "tiny", Runner: "acme"}, "named"))
		expectCode(t, "another install that names the runner", err, "runner-out-of-reach")
	})
}

// The agents of a runner together run at most as many jobs as the runner's limit. When a
// job ends, the next job is claimed at once, also if the step died or the job was canceled.
func TestRunnerRunsAtMostItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		by := control.User{Org: org}
		limit := func(n string) {
			p.must("limit it", func() error {
				return errOf(p.UpdateRunner(p.ctx, by, "local", control.RunnerFile{Set: []string{"runner_configuration.concurrency=" + n}}))
			})
		}
		limit("2")
		for i := range 6 {
			if _, err := p.CheckRunner(p.ctx, me, "local", fmt.Sprint("check ", i)); err != nil {
				t.Fatal(err)
			}
		}
		claims := make(chan control.Claim, 10)
		for range 4 { // four agents, which claim jobs at the same time
			go func() {
				for {
					c, err := p.Claim(p.ctx, p.session, 20*time.Second)
					if errors.Is(err, control.ErrNoWork) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					claims <- c
				}
			}()
		}
		holds := func(when string, n int) []control.Claim {
			t.Helper()
			synctest.Wait()
			var got []control.Claim
			for len(claims) > 0 {
				got = append(got, <-claims)
			}
			if len(got) != n {
				t.Fatalf("%s: %d jobs are claimed, want %d", when, len(got), n)
			}
			return got
		}
		two := holds("at first", 2)
		p.step(two[0])
		holds("when one has ended", 1)
		p.died(control.Holder{Job: two[1].ID, Epoch: two[1].Lease.Epoch})
		third := holds("when one has died", 1)[0]
		limit("3")
		holds("with a greater limit", 1)
		limit("1")
		p.must("cancel", func() error { return errOf(p.CancelJob(p.ctx, org, third.ID)) })
		p.must("release", func() error {
			err := p.ReleaseJob(p.ctx, p.session, third.ID, third.Lease.Epoch)
			if fairlead.KindOf(err) == fairlead.KindStale || fairlead.KindOf(err) == fairlead.KindConflict {
				return nil // the cancelation already ended the job
			}
			return err
		})
		holds("with a smaller limit", 0)
		time.Sleep(21 * time.Second) // the waiting claims end
		slots, err := p.Store.RunnerSlots(p.ctx, p.session.Runner)
		if err != nil || len(slots.V.Jobs) != 2 {
			t.Errorf("two jobs run, and %d have a slot: %v", len(slots.V.Jobs), err)
		}
		time.Sleep(3 * time.Minute)
		p.must("sweep", func() error { return errOf(p.Sweep(p.ctx)) })
		if slots, err = p.Store.RunnerSlots(p.ctx, p.session.Runner); err != nil || len(slots.V.Jobs) != 0 {
			t.Errorf("the other jobs were lost, and %d have a slot: %v", len(slots.V.Jobs), err)
		}
	})
}

// A change of a runner's scope is refused if an install that uses the runner is outside of
// the new scope.
func TestRunnerKeepsReachOfItsInstalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		p.publish(shop)
		p.group("a")
		p.group("b")
		p.runner("moves", fileOf("a", "http"))
		p.placedIn("one", "a", nil)
		p.placedIn("two", "b", nil)
		p.deploy("one", control.NewDeployment{}, "d")
		update := func(setting ...string) error {
			return errOf(p.UpdateRunner(p.ctx, control.User{Org: org}, "moves", control.RunnerFile{Set: setting}))
		}
		expectCode(t, "a move to another group", update("group=b"), "runner-in-use")
		expectCode(t, "a move to an unknown group", update("group=missing"), "group-not-found")
		expectCode(t, "a dedication to another install", update("group=null", "install=two"), "runner-in-use")
		if err := update("group=null"); err != nil {
			t.Errorf("a move to the whole org: %v", err)
		}
		if err := update("install=one"); err != nil {
			t.Errorf("a dedication to its only install: %v", err)
		}
		e, err := p.ExplainInstall(p.ctx, org, "one")
		if err != nil || e.Name != "moves" || e.Level != placement.LevelOwn {
			t.Errorf("the install is placed as\n%+v, %v", e, err)
		}
		if err := p.DeleteGroup(p.ctx, org, "a"); fairlead.CodeOf(err) != "group-not-empty" || strings.Contains(err.Error(), "runner moves") {
			t.Errorf("the deletion of its old group returns %v", err)
		}
	})
}

// An install moved to a runner with another seed, and its next job failed with install-key-missing. The refresh refuses such a runner,
// as far as agents report their seeds.
func TestRefreshToARunnerWithAnotherSeedIsRefused(t *testing.T) {
	const one, two, three = "1111111111111111", "2222222222222222", "3333333333333333"
	for name, c := range map[string]struct {
		now    []string // seeds of the present runner
		next   []string // seeds of the next runner
		seeded bool     // an agent of the next runner has reported that it has a seed
		accept bool
		keyed  bool // the install has a key
		code   fairlead.Code
	}{
		"the same seed":                  {now: []string{one}, next: []string{one}, seeded: true, keyed: true},
		"the seed below a newer one":     {now: []string{one}, next: []string{two, one}, seeded: true, keyed: true},
		"all seeds in another order":     {now: []string{one, two}, next: []string{three, two, one}, seeded: true, keyed: true},
		"another seed":                   {now: []string{one}, next: []string{two}, seeded: true, keyed: true, code: fairlead.CodeSeedMissing},
		"one of two seeds":               {now: []string{one, two}, next: []string{one}, seeded: true, keyed: true, code: fairlead.CodeSeedMissing},
		"no seed":                        {now: []string{one}, keyed: true, code: fairlead.CodeSeedMissing},
		"another seed, accepted":         {now: []string{one}, next: []string{two}, seeded: true, accept: true, keyed: true},
		"an install without a key":       {now: []string{one}, next: []string{two}, seeded: true},
		"the next agent is of before":    {now: []string{one}, seeded: true, keyed: true},
		"the present agent is of before": {next: []string{two}, seeded: true, keyed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				p.publish(shop)
				p.install("acme")
				p.deploy("acme", control.NewDeployment{AutoApprove: true}, "deploy")
				p.work()
				note := func(runner fairlead.RunnerID, seeds []string) {
					t.Helper()
					if _, err := p.NoteSeed(p.ctx, runner, seeds); err != nil {
						t.Fatal(err)
					}
				}
				if c.keyed {
					note(p.session.Runner, c.now)
					id := p.installID()
					ring, err := installkey.NewRing(seedOfTests, id)
					if err == nil {
						err = p.ReportKeys(p.ctx, p.session, map[fairlead.InstallID]string{id: ring.Current().Public().String()})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				p.runner("next", fileOf("", "http"))
				next, err := p.Runner(p.ctx, org, "next")
				if err != nil {
					t.Fatal(err)
				}
				if c.seeded {
					note(next.ID, c.next)
					note(next.ID, nil) // a heartbeat that names no seeds changes nothing
				}
				p.must("choose the next runner", func() error {
					_, err := p.UpdateInstall(p.ctx, org, "acme", control.InstallChange{Runner: new("next")})
					return err
				})
				for _, dry := range []bool{true, false} {
					got, err := p.RefreshRunner(p.ctx, org, "acme", control.Refresh{DryRun: dry, AcceptKeyLoss: c.accept})
					if fairlead.CodeOf(err) != c.code || got.Runner != "next" || !got.Changed {
						t.Errorf("the refresh (dry run: %t) returns %+v, %v; want the code %q", dry, got, err, c.code)
					}
					if e, ok := errors.AsType[*fairlead.Error](err); ok && (e.Details["runner"] != "next" || !strings.Contains(commandline.Hint(e), "refresh-runner acme --accept-key-loss")) {
						t.Errorf("the refusal is %+v", e)
					}
				}
				want := "next"
				if c.code != "" {
					want = "local"
				}
				if got := p.boundTo("acme"); got != want {
					t.Errorf("the install is bound to %s, want %s", got, want)
				}
			})
		})
	}
}
