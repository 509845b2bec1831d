package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity"
)

// A build reports its statement, and a person gets it signed, with the key that GET /v1/meta publishes.
func TestProvenanceIsServedAsItWasReported(t *testing.T) {
	c := newCast(t)
	config := json.RawMessage(`{"fairlead":"v1","name":"site","inputs":[],"components":[{"name":"web","type":"script","source":".","git":{"url":"https://git.example.com/x","ref":"v1"}}]}`)
	queued := call[wire.AppBuilds](c.plane, "POST", "/v1/apps/site/builds", c.api, wire.BuildAppRequest{Config: config})
	var building running
	for building.claim.Job != queued.Builds[0].Job.ID {
		building = c.start(c.claim(c.sessionToken))
	}
	built := wire.Built{Artifact: "sha256:" + strings.Repeat("a", 64), Revision: strings.Repeat("c", 40)}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var err error
	if built.Statement, err = (events.Provenance{Build: *building.spec.Build, Artifact: built.Artifact, Revision: built.Revision, Runner: building.spec.Runner, RunnerVersion: "v1.2.3",
		Job: building.spec.Job, Started: at, Finished: at.Add(3 * time.Second)}).Statement(); err != nil {
		t.Fatal(err)
	}
	finish := "/runner/v1/jobs/" + building.claim.Job + "/finish"
	lie := built
	lie.Artifact = "sha256:" + strings.Repeat("b", 64)
	if res := c.send("POST", finish, building.lease, wire.FinishRequest{Outcome: "succeeded", Built: &lie}); res.StatusCode != http.StatusUnprocessableEntity || res.code(t) != "provenance-refused" {
		t.Errorf("a statement about another artifact is answered with %d %s", res.StatusCode, res.body)
	}
	sign := "/runner/v1/jobs/" + building.claim.Job + "/provenance"
	if res := c.send("POST", sign, building.lease, lie); res.StatusCode != http.StatusUnprocessableEntity || res.code(t) != "provenance-refused" {
		t.Errorf("before the end, a statement about another artifact is answered with %d %s", res.StatusCode, res.body)
	}
	early := call[wire.SignedProvenance](c.plane, "POST", sign, building.lease, built)
	for consequence, token := range map[string]string{"a person": c.api, "the agent": c.sessionToken, "no token": ""} {
		if res := c.send("POST", sign, token, built); res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			t.Errorf("%s, who asks for a signature, is answered with %d %s", consequence, res.StatusCode, res.body)
		}
	}
	call[struct{}](c.plane, "POST", finish, building.lease, wire.FinishRequest{Outcome: "succeeded", Built: &built})
	v := call[wire.AppVersion](c.plane, "POST", "/v1/apps/site/versions", c.api, wire.PublishVersionRequest{Config: config, Artifacts: map[string]string{}, Builds: map[string]string{"web": building.claim.Job}, Name: "v1"})

	got := call[wire.Provenance](c.plane, "GET", "/v1/apps/site/versions/v1/components/web/provenance", c.api, nil)
	if got.Version != v.ID || got.Component != "web" || got.Artifact != built.Artifact || got.Revision != built.Revision || got.URL != "https://git.example.com/x" || got.Ref != "v1" ||
		got.Runner != string(building.spec.Runner) || got.RunnerVersion != "v1.2.3" || got.BuildJob != building.claim.Job || !got.StartedAt.Equal(at) || !got.FinishedAt.Equal(at.Add(3*time.Second)) {
		t.Errorf("the provenance is %+v", got)
	}
	var envelope struct{ Payload []byte }
	if err := json.Unmarshal(got.Envelope, &envelope); err != nil || string(envelope.Payload) != string(built.Statement) {
		t.Errorf("the statement is %s, %v; want each byte of what the build reported", envelope.Payload, err)
	}
	if string(early.Envelope) != string(got.Envelope) {
		t.Errorf("the envelope that the step got is %s, and the one of the version %s", early.Envelope, got.Envelope)
	}
	if res := c.send("POST", sign, building.lease, built); res.StatusCode < 400 {
		t.Errorf("after the end of the build, a signature is answered with %d %s", res.StatusCode, res.body)
	}
	keys := call[wire.Meta](c.plane, "GET", "/v1/meta", "", nil).Keys
	if len(keys) != 2 || keys[0].ID != got.KeyID {
		t.Errorf("key %s signed it, and the control plane publishes %v", got.KeyID, keys)
	}

	stranger := identity.NewToken(identity.PrefixAPI)
	if err := c.RegisterToken(t.Context(), "other", "admin", stranger); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		consequence, path, token, code string
		status                         int
	}{
		{"another org does not see that the app exists", "/v1/apps/site/versions/" + v.ID + "/components/web/provenance", stranger, "version-not-found", 404},
		{"a component of the app's folder has none", "/v1/apps/shop/versions/" + c.newest("shop") + "/components/web/provenance", c.api, "provenance-not-found", 404},
		{"no such component", "/v1/apps/site/versions/v1/components/api/provenance", c.api, "component-not-found", 404},
		{"no such version", "/v1/apps/site/versions/v2/components/web/provenance", c.api, "version-not-found", 404},
		{"a session of a runner", "/v1/apps/site/versions/v1/components/web/provenance", c.sessionToken, "unauthenticated", 401},
	} {
		if res := c.send("GET", tt.path, tt.token, nil); res.StatusCode != tt.status || res.code(t) != tt.code {
			t.Errorf("%s: %d %s", tt.consequence, res.StatusCode, res.body)
		}
	}
}

// newest returns the newest version of the app.
func (c *cast) newest(app string) string {
	c.t.Helper()
	return call[wire.App](c.plane, "GET", "/v1/apps/"+app, c.api, nil).Version.ID
}
