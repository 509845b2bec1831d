package api_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// The agent starts the job's task before a step reads the job's spec, so the claim carries the
// size. A destroy has the size of the version that created the component.
func TestClaimHasTheSizeOfItsComponent(t *testing.T) {
	p := newPlane(t)
	sized := strings.Replace(shop, "source: ./network,", "source: ./network, job: {cpu: 0.5, memory: 2Gi},", 1)
	call[wire.AppVersion](p, "POST", "/v1/apps/shop/versions", p.api, publication(t, sized))
	p.install("acme")
	session := p.session("local")
	got := map[string]*wire.JobSize{}
	serve := func() {
		for {
			c := call[wire.Claim](p, "POST", "/runner/v1/claims", session, wire.ClaimRequest{})
			if c.Job == "" {
				return
			}
			got[fmt.Sprint(c.Operation, " ", c.Component)] = c.Size
			p.finish(p.start(c))
		}
	}
	p.deploy("acme")
	serve()
	p.publish() // the next version asks for no size
	call[wire.Deployment](p, "POST", "/v1/installs/acme/deployments", p.api, wire.CreateDeploymentRequest{Kind: "teardown", AutoApprove: true})
	serve()
	half := &wire.JobSize{CPU: 500, Memory: 2 << 30}
	want := map[string]*wire.JobSize{
		"plan network": half, "apply network": half, "plan-destroy network": half, "destroy network": half,
		"plan cache": nil, "apply cache": nil, "plan-destroy cache": nil, "destroy cache": nil,
		"plan web": nil, "apply web": nil, "plan-destroy web": nil, "destroy web": nil,
	}
	if !reflect.DeepEqual(got, want) {
		for job, size := range got {
			t.Logf("%s: %+v", job, size)
		}
		t.Error("the claims have other sizes than the versions of their components")
	}
}
