package control_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/control"
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
			if err != nil || fmt.Sprint(got) != want {
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
		version("")
		want("the newest version declares nothing", "[]")
		if _, err := p.DeclaredActions(p.ctx, org, "missing"); fairlead.KindOf(err) != fairlead.KindNotFound {
			t.Errorf("no install: %v", err)
		}
	})
}
