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

// A control plane that is made to fail answers with nothing that a real one would
// not answer.
func TestRefuseKnowsTheCatalogueAlone(t *testing.T) {
	p := plane.New(t, plane.Options{})
	for _, d := range api.Problems() {
		remove := p.Fail(proxy.Route(wire.GetMeta), 1, plane.Refuse(string(d.Code)))
		_, err := p.API.Meta(t.Context())
		if !client.HasStatus(err, d.Status) {
			t.Errorf("refused with %s: %v", d.Code, err)
		}
		remove()
	}
	defer func() {
		if recover() == nil {
			t.Error("it refuses with a problem that is in no catalogue")
		}
	}()
	plane.Refuse("lease-token")
}

// What fails counts as asked, a lost answer as done, and what is over is over.
func TestFaultsEnd(t *testing.T) {
	p := plane.New(t, plane.Options{})
	p.Next(proxy.Answer(http.StatusServiceUnavailable, "text/plain", "later"), proxy.Cut, proxy.Lose)
	for n := range 3 {
		if _, err := p.API.CheckRunner(t.Context(), plane.Runner); err == nil {
			t.Errorf("request %d has an answer", n)
		}
	}
	p.SetDown(true)
	if _, err := p.API.Meta(t.Context()); err == nil {
		t.Error("it answers, and is down")
	}
	p.SetDown(false)
	jobs, err := p.API.ListJobs(t.Context(), client.JobFilter{}, client.ListOptions{})
	if err != nil || len(jobs.Items) != 1 || p.Asked(wire.CheckRunner) != 3 {
		t.Errorf("of %d requests these jobs have come: %+v, %v", p.Asked(wire.CheckRunner), jobs.Items, err)
	}
}
