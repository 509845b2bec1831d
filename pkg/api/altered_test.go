package api_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Formerly every request that read a version with an altered record was answered with
// 500, and the step of its job repeated the request.
func TestAlteredVersionIsAnsweredWithItsProblem(t *testing.T) {
	documented := map[string][]string{}
	eachOperation(t, func(_ document, method, path string, op operation) { documented[method+" "+path] = op.Problems })
	e := enginetest.Memory()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlaneOn(t, e, ln, http.DefaultTransport.(*http.Transport).Clone())
	v := call[wire.AppVersion](p, "POST", "/v1/apps/shop/versions", p.api, publication(t, shop))
	p.install("acme")
	p.deploy("acme")
	session := p.session("local")
	first := p.start(p.claim(session))
	p.finish(first) // the install needs a component
	d := p.deploy("acme")
	waiting := p.claim(session)
	call[wire.Deployment](p, "POST", "/v1/deployments/"+d.ID+"/cancel", p.api, nil)

	key := engine.Key{Partition: "VERSION#" + v.ID, Sort: "VERSION"}
	item, err := e.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	item.Body = []byte(strings.Replace(string(item.Body), "sha256:", "sha256:f", 1))
	if err := e.Commit(t.Context(), "altered", engine.Write{Op: engine.Put, Item: item, If: engine.Version(item.Version)}); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		method, path, at, token string
		body                    any
	}{
		{"GET", "/v1/apps", "/v1/apps", p.api, nil},
		{"GET", "/v1/apps/{app}", "/v1/apps/shop", p.api, nil},
		{"GET", "/v1/apps/{app}/versions", "/v1/apps/shop/versions", p.api, nil},
		{"POST", "/v1/installs", "/v1/installs", p.api, wire.CreateInstallRequest{Name: "new", App: "shop"}},
		{"GET", "/v1/installs", "/v1/installs", p.api, nil},
		{"GET", "/v1/installs/{install}", "/v1/installs/acme", p.api, nil},
		{"POST", "/v1/installs/{install}/deployments", "/v1/installs/acme/deployments", p.api, wire.CreateDeploymentRequest{Kind: "deploy"}},
		{"POST", "/v1/deployments/{deployment}/retry", "/v1/deployments/" + d.ID + "/retry", p.api, nil},
		{"POST", "/runner/v1/jobs/{job}/start", "/runner/v1/jobs/" + waiting.Job + "/start", waiting.LaunchToken, wire.StartRequest{StepID: "step-1234"}},
	} {
		res := p.send(tt.method, tt.at, tt.token, tt.body)
		if res.StatusCode != http.StatusConflict || res.code(t) != "version-altered" {
			t.Errorf("%s %s: status %d: %s", tt.method, tt.path, res.StatusCode, short(res.body))
			continue
		}
		if got := res.problem(t); got.Details["version"] != v.ID || got.Details["app"] != "shop" || !strings.Contains(got.Hint, "{app.publish}") || len(got.Actions) != 1 || got.Actions[0].Verb != "app.publish" {
			t.Errorf("%s %s: problem %+v", tt.method, tt.path, got)
		} else if ended := got.Details[wire.DetailJobEnded] == "true"; ended != (tt.token == waiting.LaunchToken) {
			t.Errorf("%s %s: detail job_ended is %t", tt.method, tt.path, ended)
		}
		if !slices.Contains(documented[tt.method+" "+tt.path], "version-altered") {
			t.Errorf("the OpenAPI document of %s %s does not list version-altered", tt.method, tt.path)
		}
	}
	if !strings.Contains(p.log.String(), "level=ERROR msg=\"a version was altered in the table") {
		t.Error("the log has no error about the altered version")
	}
}
