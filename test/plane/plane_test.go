package plane_test

import (
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/test/proxy"
)

// Refuse answers only with problems of the catalogue, as a real control plane does.
func TestRefuseHasOnlyProblemsOfTheCatalogue(t *testing.T) {
	p := plane.New(t, plane.Options{})
	for _, d := range api.Problems() {
		remove := p.Fail(proxy.Route(wire.GetMeta), 1, plane.Refuse(string(d.Code)))
		_, err := p.API.Meta(t.Context())
		if !client.HasStatus(err, d.Status) {
			t.Errorf("Refuse(%q): the error is %v", d.Code, err)
		}
		remove()
	}
	defer func() {
		if recover() == nil {
			t.Error("Refuse accepts a problem that the catalogue does not have")
		}
	}()
	plane.Refuse("lease-token")
}

// A fault ends after its number of requests. Failed requests are counted. A request whose
// answer is lost was executed.
func TestFaultsEnd(t *testing.T) {
	p := plane.New(t, plane.Options{})
	p.Next(proxy.Answer(http.StatusServiceUnavailable, "text/plain", "later"), proxy.Cut, proxy.Lose)
	for n := range 3 {
		if _, err := p.API.CheckRunner(t.Context(), plane.Runner); err == nil {
			t.Errorf("request %d succeeded", n)
		}
	}
	p.SetDown(true)
	if _, err := p.API.Meta(t.Context()); err == nil {
		t.Error("the control plane answers while it is down")
	}
	p.SetDown(false)
	jobs, err := p.API.ListJobs(t.Context(), client.JobFilter{}, client.ListOptions{})
	if err != nil || len(jobs.Items) != 1 || p.Asked(wire.CheckRunner) != 3 {
		t.Errorf("%d requests, want 3; they created the jobs %+v, want one; %v", p.Asked(wire.CheckRunner), jobs.Items, err)
	}
}
