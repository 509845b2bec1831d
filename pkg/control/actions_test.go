package control_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/awsaction"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/diagnosis"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// The customer's stack gets the actions of the newest version, and those of versions that
// are still installed, because their components are removed with them.
func TestStackGetsWhatTheAppDeclares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		version := func(aws string) {
			p.publish("fairlead: v1\nname: shop\n" + aws + "inputs: {password: {sensitive: true}}\ncomponents: {web: {type: terraform, source: ./web}}\n")
		}
		want := func(when, want string) {
			t.Helper()
			got, err := p.DeclaredActions(p.ctx, org, "acme")
			if err != nil || fmt.Sprint(got.All) != want {
				t.Errorf("%s: got %v, %v, want %s", when, got, err, want)
			}
		}
		version("")
		p.install("acme")
		want("nothing is declared", "[]")
		version("aws: {services: [lambda, s3]}\n")
		want("nothing is installed", "[lambda:* s3:*]")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d")
		p.work()
		version("aws: {services: [s3], actions: ['rds:Describe*']}\n")
		want("the installed version uses another service", "[lambda:* rds:Describe* s3:*]")
		p.deploy("acme", control.NewDeployment{AutoApprove: true}, "d2")
		p.work()
		want("the newest version is installed", "[rds:Describe* s3:*]")
		version("aws: {services: [s3], operations: {deprovision: {actions: ['rds:Delete*']}}}\n")
		got, err := p.DeclaredActions(p.ctx, org, "acme")
		// The installed version limits no operation.
		if of := fmt.Sprint(got.Of); err != nil || of != "map[deploy:[rds:Describe* s3:*] deprovision:[rds:Delete* rds:Describe* s3:*] provision:[rds:Describe* s3:*]]" {
			t.Errorf("by operation: got %s, %v", of, err)
		}
		version("")
		want("the newest version declares nothing", "[]")
		if _, err := p.DeclaredActions(p.ctx, org, "missing"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("no install: %v", err)
		}
	})
}

// A version that declares more than the customer's stack grants waits before its plans. It
// begins by itself when the stack's runner reports more. A teardown does not wait.
func TestVersionWaitsForWhatTheStackGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStacked(t)
		v := s.create(control.NewStack{Account: customer, Region: "eu-central-1"})
		report := func(actions ...string) {
			t.Helper()
			w := firstReport(v)
			w.Report.AppActions = actions
			var err error
			if s.session, err = s.open(w); err != nil {
				t.Fatal(err)
			}
		}
		version := func(aws string) {
			s.publish("fairlead: v1\nname: tiny\n" + aws + "components: {web: {type: terraform, source: ./web}}\n")
		}
		auto := control.NewDeployment{AutoApprove: true}
		state := func(when string, id fairlead.DeploymentID, want deployment.State) {
			t.Helper()
			if d := s.deployment(id); d.State != want {
				t.Errorf("%s: the deployment is %s, want %s", when, d.State, want)
			}
		}

		version("aws: {services: [s3, bedrock, sqs]}\n")
		report()
		first := s.deploy("acme", auto, "first")
		s.work()
		state("an older template reports nothing", first, deployment.Succeeded)

		report("s3:*", "rds:*")
		waits := s.deploy("acme", auto, "waits")
		s.work()
		state("the stack grants less", waits, deployment.Queued)
		kinds, text := s.situation(waits)
		s.expectSituation("the stack grants less", kinds, text, []diagnosis.Kind{diagnosis.NotGranted},
			"the stack of install acme does not grant: bedrock:*, sqs:*", "starts by itself", "fairlead install stack acme", "fairlead deployment cancel "+string(waits))
		behind := s.deploy("acme", auto, "behind")
		report("s3:*", "sqs:*")
		s.work()
		state("one action is still missing", waits, deployment.Queued)
		_, text = s.situation(waits)
		if !strings.Contains(text, "does not grant: bedrock:*.") {
			t.Errorf("one action is still missing: %s", text)
		}
		report("s3:*", "sqs:*", "bedrock:*")
		s.work()
		state("the stack grants all", waits, deployment.Succeeded)
		state("the stack grants all", behind, deployment.Succeeded)

		granted := []string{"s3:*", "sqs:*", "bedrock:*"}
		reportDeploy := func(actions ...string) {
			t.Helper()
			w := firstReport(v)
			w.Report.AppActions, w.Report.OperationActions = granted, map[string][]string{awsaction.Deploy: actions}
			var err error
			if s.session, err = s.open(w); err != nil {
				t.Fatal(err)
			}
		}
		reportDeploy("s3:*", "sqs:*")
		waits = s.deploy("acme", auto, "one operation")
		s.work()
		state("one operation lacks an action that the others have", waits, deployment.Queued)
		kinds, text = s.situation(waits)
		s.expectSituation("one operation lacks an action", kinds, text, []diagnosis.Kind{diagnosis.NotGranted},
			"the stack of install acme does not grant: bedrock:* for deploy.", "starts by itself")
		reportDeploy(granted...)
		s.work()
		state("the operation has all", waits, deployment.Succeeded)

		report("s3:*")
		waits = s.deploy("acme", auto, "again")
		behind = s.deploy("acme", auto, "after it")
		s.must("cancel", func() error { _, err := s.CancelDeployment(s.ctx, org, waits); return err })
		s.work()
		state("canceled while it waited", waits, deployment.Canceled)
		state("it came after a canceled one, and waits too", behind, deployment.Queued)
		version("aws: {services: [s3]}\n")
		down := s.deploy("acme", control.NewDeployment{Kind: deployment.Teardown, AutoApprove: true}, "down")
		s.must("cancel", func() error { _, err := s.CancelDeployment(s.ctx, org, behind); return err })
		s.work()
		state("a teardown needs no more than what exists", down, deployment.Succeeded)
	})
}
