package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
)

// The tool of a job keeps the images of its own component, and reads those of the lock of its install's app. A plan only reads. People read the images of their org, and push none: what a
// plan has verified is what a cluster pulls.
func TestImagesAreKeptByTheirComponent(t *testing.T) {
	p := newPlane(t)
	p.Control.Images = true
	if _, err := p.UpdateRunner(t.Context(), control.User{Org: "default", Operator: true}, "local", control.RunnerFile{Set: []string{"registry.type=control-plane"}}); err != nil {
		t.Fatal(err)
	}
	call[wire.AppVersion](p, "POST", "/v1/apps/pictures/versions", p.api, publication(t, "fairlead: v1\nname: pictures\ncomponents:\n  web: {type: image, source: ./web}\n"))
	in := call[wire.Install](p, "POST", "/v1/installs", p.api, wire.CreateInstallRequest{Name: "acme", App: "pictures", Inputs: map[string]json.RawMessage{}})
	call[wire.Deployment](p, "POST", "/v1/installs/acme/deployments", p.api, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
	agent := p.session("local")
	plan := p.start(p.claim(agent))
	own, other := "/v2/images/default/"+in.ID+"/web/manifests/x", "/v2/images/default/"+in.ID+"/web2/manifests/x"
	if plan.spec.Registry == nil || "/v2/"+plan.spec.Registry.Repository+"/manifests/x" != own {
		t.Fatalf("the spec has the registry %+v", plan.spec.Registry)
	}
	try := func(what, method, path, token string, want int) {
		t.Helper()
		req, err := http.NewRequest(method, p.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("job", token)
		resp, err := p.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s %s answers %d, want %d", what, method, path, resp.StatusCode, want)
		}
	}
	try("a plan", "GET", "/v2/", plan.state, 200)
	try("a plan", "GET", own, plan.state, 200)
	try("a plan", "PUT", own, plan.state, 403)
	try("a plan", "DELETE", own, plan.state, 403)
	try("a plan", "GET", other, plan.state, 403)
	locked := "/v2/images/default/" + in.ID + "/bundle/manifests/x"
	try("a plan", "GET", locked, plan.state, 200)
	try("a plan", "GET", "/v2/images/default/ins_other/bundle/manifests/x", plan.state, 403)
	try("a plan's lease", "PUT", own, plan.lease, 403)
	p.finish(plan)
	try("an ended job", "GET", own, plan.state, 409)
	apply := p.start(p.claim(agent))
	try("an apply", "PUT", own, apply.state, 200)
	try("an apply", "DELETE", own, apply.state, 200)
	try("an apply", "PUT", other, apply.state, 403)
	try("an apply", "GET", locked, apply.state, 200)
	try("an apply", "PUT", locked, apply.state, 403)
	try("an apply", "DELETE", locked, apply.state, 403)
	try("an apply", "PUT", "/v2/images/default/"+in.ID+"/web/../web2/manifests/x", apply.state, 403)
	try("an apply", "PUT", "/v2/images/other/"+in.ID+"/web/manifests/x", apply.state, 403)
	try("an apply", "GET", "/v2/orgs/default/pictures/web/manifests/x", apply.state, 403)
	try("a person", "GET", own, p.api, 200)
	try("a person", "PUT", own, p.api, 403)
	try("a person", "DELETE", own, p.api, 403)
	try("a person", "GET", "/v2/images/other/"+in.ID+"/web/manifests/x", p.api, 403)
	try("an unknown token", "GET", own, "no-token", 401)
}
