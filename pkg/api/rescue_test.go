package api_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/diagnosis"
)

// lostApply runs a deployment until the apply of component network. That apply locks
// and saves its state and is then killed.
func lostApply(t *testing.T) (*plane, wire.Deployment, running) {
	t.Helper()
	p := newPlane(t)
	p.publish()
	p.install("acme")
	session := p.session("local")
	d := p.deploy("acme")
	for {
		r := p.start(p.claim(session))
		if r.claim.Operation != "apply" || r.claim.Component != "network" {
			p.finish(r)
			continue
		}
		auth := "basic:" + r.lease
		call[struct{}](p, "PUT", r.stateURL()+"/lock", auth, lockInfo("lock-1", "fairlead@host-1"))
		call[struct{}](p, "POST", r.stateURL()+"?ID=lock-1", auth, `{"version":4,"serial":7,"lineage":"aaaa"}`)
		call[struct{}](p, "POST", "/runner/v1/jobs/"+r.claim.Job+"/died", session, wire.DiedRequest{Epoch: 1, Reason: "killed", Signal: "killed"})
		return p, d, r
	}
}

func TestLostApplyIsExplainedWithActions(t *testing.T) {
	p, d, r := lostApply(t)
	got := call[wire.Deployment](p, "GET", "/v1/deployments/"+d.ID, p.api, nil)
	i := slices.IndexFunc(got.Situations, func(s wire.Situation) bool { return s.Kind == "lost" })
	if i < 0 {
		t.Fatalf("no situation of kind lost: %+v", got.Situations)
	}
	s := got.Situations[i]
	if s.Component != "network" || s.Job != r.claim.Job || !strings.Contains(strings.Join(s.Known, " "), "serial 7") || len(s.Next) == 0 || s.Next[0].Action == nil || s.Next[0].Action.Verb != "job.logs" || s.Next[0].Action.Args.Job != r.claim.Job {
		t.Errorf("situation %+v", s)
	}
	for _, c := range got.Components {
		if c.Name == "network" && !reflect.DeepEqual(c.Next, s.Next) {
			t.Errorf("the component's next steps %+v differ from the situation's", c.Next)
		}
	}
	j := call[wire.Job](p, "GET", "/v1/jobs/"+r.claim.Job, p.api, nil)
	if len(j.Situations) != 1 || j.Situations[0].Kind != "lost" || len(j.Deaths) != 1 || j.Deaths[0].Reason != "step-killed" || j.Deaths[0].LastSeenAt == nil {
		t.Errorf("job: situations %+v, deaths %+v", j.Situations, j.Deaths)
	}
	in := call[wire.Install](p, "GET", "/v1/installs/acme", p.api, nil)
	k := slices.IndexFunc(in.Components, func(c wire.InstallComponent) bool { return c.Name == "network" })
	if l := in.Components[k].Lock; l == nil || l.ID != "lock-1" || l.Job != r.claim.Job || l.Held || l.Who != "fairlead@host-1" || in.Components[k].LockedBy != "" {
		t.Errorf("lock %+v", l)
	}
	// Listings have no situations, because a situation needs further reads per item.
	for _, one := range call[wire.Page[wire.Deployment]](p, "GET", "/v1/deployments", p.api, nil).Items {
		if len(one.Situations) > 0 {
			t.Errorf("a listed deployment has the situations %+v", one.Situations)
		}
	}
}

func TestUnlockBreaksOnlyTheNamedLock(t *testing.T) {
	p, _, _ := lostApply(t)
	path := "/v1/installs/acme/components/network/unlock"
	if got := p.send("POST", path+"?lock_id=lock-0", p.api, nil).problem(t); got.Status != 409 || got.Type != wire.ProblemType+"lock-changed" || got.Details["lock_id"] != "lock-1" {
		t.Errorf("unlock of another lock: %+v", got)
	}
	for range 2 {
		if res := p.send("POST", path+"?lock_id=lock-1", p.api, nil); res.StatusCode != 204 {
			t.Errorf("unlock of the lock: %d %s", res.StatusCode, res.body)
		}
	}
}

func TestPushedStateIsChecked(t *testing.T) {
	p, d, _ := lostApply(t)
	path := "/v1/installs/acme/components/network/state"
	newer := []byte(`{"version":4,"serial":8,"lineage":"aaaa"}`)
	if got := p.send("PUT", path, p.api, newer).code(t); got != "deployment-runs" {
		t.Errorf("push while a plan is queued: refused with %s", got)
	}
	call[wire.Deployment](p, "POST", "/v1/deployments/"+d.ID+"/cancel", p.api, nil)
	if got := p.send("PUT", path, p.api, []byte("{}")).code(t); got != "invalid-state" {
		t.Errorf("push of JSON that is not a state: refused with %s", got)
	}
	got := call[wire.PushedState](p, "PUT", path, p.api, newer)
	if got.Component != "network" || got.Serial != 8 || got.Size != len(newer) || got.SavedAt.IsZero() {
		t.Errorf("pushed state %+v", got)
	}
}

func TestRunnerWithoutAgentsHasASituation(t *testing.T) {
	p := newPlane(t)
	p.publish()
	p.install("acme")
	p.deploy("acme")
	r := call[wire.Runner](p, "GET", "/v1/runners/local", p.api, nil)
	if len(r.Situations) != 1 || r.Situations[0].Kind != "runner-silent" || !strings.Contains(r.Situations[0].What, "2 jobs wait") {
		t.Errorf("situations %+v", r.Situations)
	}
}

// Package wire cannot import package diagnosis, so it repeats the kinds.
func TestWireListsEveryKindOfSituation(t *testing.T) {
	var enum []string
	for _, v := range readDocument(t, "control").Components.Schemas["Situation"]["properties"].(map[string]any)["kind"].(map[string]any)["enum"].([]any) {
		enum = append(enum, v.(string))
	}
	var kinds []string
	for _, k := range diagnosis.Kinds() {
		kinds = append(kinds, string(k))
	}
	if !slices.Equal(enum, kinds) {
		t.Errorf("the document lists %q, want %q", enum, kinds)
	}
}

// The API returns the salvaged file that a runner reports. It accepts only paths in
// the runner's folder of salvaged states, because a person copies the path into a
// command.
func TestSalvagedStateIsReported(t *testing.T) {
	p := newPlane(t)
	p.publish()
	p.install("acme")
	session := p.session("local")
	p.deploy("acme")
	r := p.start(p.claim(session))
	for r.claim.Operation != "apply" {
		p.finish(r)
		r = p.start(p.claim(session))
	}
	finish := "/runner/v1/jobs/" + r.claim.Job + "/finish"
	in := wire.FinishRequest{Outcome: "failed", Reason: "state-incomplete", Message: "the copy is in salvage", DiskFull: true}
	for _, elsewhere := range []string{"/etc/passwd", "salvage/../state/a/errored.tfstate", "salvage/a b/errored.tfstate", "salvage/$(id)/errored.tfstate", "salvage/a/errored.tfstate\n"} {
		in.Salvaged = &wire.Salvaged{Path: elsewhere}
		if pr := p.send("POST", finish, r.lease, in); pr.StatusCode != 422 || pr.code(t) != "invalid-request" {
			t.Errorf("%q: %s", elsewhere, short(pr.body))
		}
	}
	in.Salvaged = &wire.Salvaged{Path: "salvage/" + r.claim.Job + "-1/errored.tfstate"}
	call[struct{}](p, "POST", finish, r.lease, in)
	j := call[wire.Job](p, "GET", "/v1/jobs/"+r.claim.Job, p.api, nil)
	if j.Reason != in.Reason || !j.DiskFull || j.Salvaged == nil || *j.Salvaged != *in.Salvaged {
		t.Errorf("job: salvaged %+v, disk full %v", j.Salvaged, j.DiskFull)
	}
	byHand := func(n wire.NextStep) bool { return n.Action == nil && strings.Contains(n.Effect, "is incomplete") }
	pushes := func(n wire.NextStep) bool { return n.Action != nil && n.Action.Verb == "install.push-state" }
	if !slices.ContainsFunc(j.Next, byHand) || slices.ContainsFunc(j.Next, pushes) {
		t.Errorf("next steps %+v, want a manual one and no push", j.Next)
	}
}

// Formerly a misspelled component was answered with 409 state-not-locked, as if the
// component existed.
func TestUnlockOfUnknownComponentIsNotFound(t *testing.T) {
	p, _, _ := lostApply(t)
	for _, tt := range []struct {
		install, component string
		status             int
		code               string
	}{
		{"acme", "netwrok", 404, "component-not-found"},
		{"nowhere", "network", 404, "install-not-found"},
		{"acme", "web", 409, "state-not-locked"}, // a component of the app without a plan yet
	} {
		res := p.send("POST", "/v1/installs/"+tt.install+"/components/"+tt.component+"/unlock", p.api, nil)
		got := res.problem(t)
		if res.StatusCode != tt.status || res.code(t) != tt.code {
			t.Errorf("unlock of %s of %s: %d: %s", tt.component, tt.install, res.StatusCode, short(res.body))
		}
		if tt.code == "component-not-found" && (!strings.Contains(got.Detail, tt.component) || !strings.Contains(got.Detail, tt.install) || got.Hint == "") {
			t.Errorf("detail %q, hint %q", got.Detail, got.Hint)
		}
	}
}
