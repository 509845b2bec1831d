package api_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity"
)

// lockInfo is what Terraform's http backend sends and expects.
func lockInfo(id, who string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":%q,"Version":"1.12.6","Created":"2026-11-20T00:00:00Z","Path":""}`, id, who)
}

// The test sends the requests of Terraform's http backend during one run of a tool.
func TestStateIsLockedWrittenReadAndUnlocked(t *testing.T) {
	c := newCast(t)
	auth, url := "basic:"+c.running.lease, c.running.stateURL()
	if res := c.send("GET", url, auth, nil); res.StatusCode != 204 || len(res.body) > 0 {
		t.Errorf("read of a state that was never written: %d %s", res.StatusCode, res.body)
	}
	if res := c.send("PUT", url+"/lock", auth, lockInfo("lock-1", "step")); res.StatusCode != 200 {
		t.Fatalf("lock: %d %s", res.StatusCode, res.body)
	}
	if res := c.send("PUT", url+"/lock", auth, lockInfo("lock-1", "step")); res.StatusCode != 200 {
		t.Errorf("repeated lock request after a lost answer: %d %s", res.StatusCode, res.body)
	}
	state := `{"version":4,"serial":1,"lineage":"x","outputs":{},"resources":[]}`
	sum := md5.Sum([]byte(state))
	if res := c.send("POST", url+"?ID=lock-1", auth, state, "Content-MD5", base64.StdEncoding.EncodeToString(sum[:])); res.StatusCode != 200 {
		t.Fatalf("write: %d %s", res.StatusCode, res.body)
	}
	res := c.send("GET", url, auth, nil)
	if res.StatusCode != 200 || string(res.body) != state || res.Header.Get("Content-Type") != "application/json" {
		t.Errorf("read of the state: %d %s %s", res.StatusCode, res.Header.Get("Content-Type"), res.body)
	}
	if got := c.send("POST", url+"?ID=lock-1", auth, `{"version":4}`, "Content-MD5", "bm90IGl0").code(t); got != "state-digest-mismatch" {
		t.Errorf("a state with another digest is refused with %s", got)
	}
	if got := c.send("POST", url+"?ID=lock-1", auth, "").code(t); got != "malformed-request" {
		t.Errorf("an empty state is refused with %s", got)
	}
	if in := call[wire.Install](c.plane, "GET", "/v1/installs/acme", c.api, nil); !strings.Contains(fmt.Sprint(in), c.running.claim.Job) && len(in.Components) > 0 {
		t.Errorf("the install does not name the job that holds the lock: %+v", in.Components)
	}
	if res := c.send("DELETE", url+"/lock", auth, lockInfo("lock-1", "step")); res.StatusCode != 200 {
		t.Errorf("unlock: %d %s", res.StatusCode, res.body)
	}
	if res := c.send("DELETE", url+"/lock", auth, lockInfo("lock-1", "step")); res.StatusCode != 200 {
		t.Errorf("second unlock: %d %s", res.StatusCode, res.body)
	}
	if got := c.send("POST", url+"?ID=lock-1", auth, state).code(t); got != "state-not-locked" {
		t.Errorf("a write without the lock is refused with %s", got)
	}
	if got := c.send("DELETE", url, auth, nil).code(t); got != "state-not-locked" {
		t.Errorf("a deletion without the lock is refused with %s", got)
	}
	call[struct{}](c.plane, "PUT", url+"/lock", auth, lockInfo("lock-2", "step"))
	call[struct{}](c.plane, "DELETE", url, auth, nil)
	if res := c.send("GET", url, auth, nil); res.StatusCode != 204 {
		t.Errorf("read of a deleted state: status %d", res.StatusCode)
	}
}

func TestRefusedLockNamesTheHolder(t *testing.T) {
	c := newCast(t)
	auth, url := "basic:"+c.running.lease, c.running.stateURL()
	held := lockInfo("lock-1", "the holder")
	call[struct{}](c.plane, "PUT", url+"/lock", auth, held)
	for what, res := range map[string]result{
		"another lock":            c.send("PUT", url+"/lock", auth, lockInfo("lock-2", "another")),
		"an unlock by another":    c.send("DELETE", url+"/lock", auth, lockInfo("lock-2", "another")),
		"a write with another ID": c.send("POST", url+"?ID=lock-2", auth, `{"version":4}`),
	} {
		if res.StatusCode != 423 || string(res.body) != held || res.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, want 423 and the holder's lock info", what, res.StatusCode, res.body)
		}
	}
	// A person must not break the lock while its job runs. The problem names the job.
	path := "/v1/installs/acme/components/" + c.running.claim.Component + "/unlock"
	p := c.send("POST", path, c.api, nil).problem(t)
	if p.Status != 423 || p.Details["job"] != c.running.claim.Job || p.Details["lock_id"] != "lock-1" {
		t.Errorf("unlock by a person: %+v", p)
	}
	call[struct{}](c.plane, "POST", "/runner/v1/jobs/"+c.running.claim.Job+"/died", c.sessionToken, wire.DiedRequest{Epoch: 1, Reason: "killed"})
	if res := c.send("POST", path, c.api, nil); res.StatusCode != 204 || len(res.body) > 0 {
		t.Errorf("unlock after the job died: %d %s", res.StatusCode, res.body)
	}
	if got := c.send("POST", path, c.api, nil).code(t); got != "state-not-locked" {
		t.Errorf("unlock without a lock is refused with %s", got)
	}
}

func TestStepWithoutLeaseIsFenced(t *testing.T) {
	c := newCast(t)
	old, url, job := c.running, c.running.stateURL(), "/runner/v1/jobs/"+c.running.claim.Job
	call[struct{}](c.plane, "PUT", url+"/lock", "basic:"+old.lease, lockInfo("old", "old"))
	call[struct{}](c.plane, "POST", job+"/died", c.sessionToken, wire.DiedRequest{Epoch: 1, Reason: "killed"})
	// The old step still has the state lock, so it may save what its tool did.
	if res := c.send("POST", url+"?ID=old", "basic:"+old.lease, `{"version":4,"serial":7}`); res.StatusCode != 200 {
		t.Errorf("the last write of the state is refused: %d %s", res.StatusCode, res.body)
	}
	if got := c.send("GET", url, "basic:"+old.lease, nil).code(t); got != "stale-epoch" {
		t.Errorf("a read without the lease is refused with %s", got)
	}
	if got := c.send("PUT", url+"/lock", "basic:"+old.lease, lockInfo("again", "old")).code(t); got != "stale-epoch" {
		t.Errorf("a lock request without the lease is refused with %s", got)
	}
	// Each job request of the old epoch is refused as stale.
	for _, r := range []struct {
		method, path string
		body         any
	}{{"PUT", "/log?offset=0", []byte("x")}, {"POST", "/heartbeat", wire.JobHeartbeat{}}, {"PUT", "/plan", []byte("x")}, {"GET", "/plan", nil}, {"POST", "/finish", report(old, nil)}} {
		res := c.send(r.method, job+r.path, old.lease, r.body)
		if got := res.code(t); res.StatusCode != 409 || got != "stale-epoch" && got != "log-fenced" {
			t.Errorf("%s %s with a stale epoch: %d %s", r.method, r.path, res.StatusCode, got)
		}
	}
}

func TestLogIsAppendedAtItsEndOnly(t *testing.T) {
	c := newCast(t)
	job := "/runner/v1/jobs/" + c.running.claim.Job
	put := func(offset int, data string) result {
		return c.send("PUT", fmt.Sprintf("%s/log?offset=%d", job, offset), c.running.lease, []byte(data))
	}
	if got := put(0, "one\n"); got.StatusCode != 200 || !strings.Contains(string(got.body), `"next":4`) {
		t.Fatalf("append: %d %s", got.StatusCode, got.body)
	}
	if got := put(0, "one\n"); got.StatusCode != 200 {
		t.Errorf("repeated append after a lost answer: %d %s", got.StatusCode, got.body)
	}
	p := put(9, "gap").problem(t)
	if p.Status != 409 || p.Type != wire.ProblemType+"log-offset" || p.Details["want"] != "4" {
		t.Errorf("problem of a gap: %+v", p)
	}
	if got := put(0, "two\n").code(t); got != "log-diverged" {
		t.Errorf("other bytes at the same offset are refused with %s", got)
	}
	p = c.send("POST", job+"/finish", c.running.lease, report(c.running, []byte("one\nmore\n"))).problem(t)
	if p.Type != wire.ProblemType+"log-offset" || p.Details["want"] != "4" {
		t.Errorf("problem of a finish with an incomplete log: %+v", p)
	}
	in := report(c.running, []byte("one\n"))
	in.Plan = nil
	if got := c.send("POST", job+"/finish", c.running.lease, in).code(t); got != "plan-missing" {
		t.Errorf("a plan job without a plan is refused with %s", got)
	}
	chunk := call[wire.LogChunk](c.plane, "GET", "/v1/jobs/"+c.running.claim.Job+"/log", c.api, nil)
	if string(chunk.Data) != "one\n" || chunk.Next != 4 {
		t.Errorf("the log is %q, next offset %d", chunk.Data, chunk.Next)
	}
}

func TestLeasePullsOnlyItsOwnArtifact(t *testing.T) {
	c := newCast(t)
	own := "/v2/orgs/default/shop/" + c.running.claim.Component
	check := call[wire.Job](c.plane, "POST", "/v1/runners/local/checks", c.api, nil)
	stranger := identity.NewToken(identity.PrefixAPI)
	if err := c.RegisterToken(t.Context(), "default-2", "admin", stranger); err != nil {
		t.Fatal(err)
	}
	var checking running
	for checking.claim.Job != check.ID {
		checking = c.start(c.claim(c.sessionToken))
	}
	built := call[wire.AppBuilds](c.plane, "POST", "/v1/apps/blobs/builds", c.api, wire.BuildAppRequest{Config: json.RawMessage(
		`{"fairlead":"v1","name":"blobs","inputs":[],"components":[{"name":"web","type":"script","source":".","git":{"url":"https://git.example.com/x","ref":"v1"}}]}`)})
	var building running
	for building.claim.Job != built.Builds[0].Job.ID {
		building = c.start(c.claim(c.sessionToken))
	}
	for _, test := range []struct {
		consequence, method, path, auth string
		status                          int
	}{
		{"a person pushes what only a build may push", "PUT", "/v2/orgs/default/shop/web/built/manifests/x", c.api, 403},
		{"a person uploads where only a build may", "POST", "/v2/orgs/default/shop/web/built/blobs/uploads/", "basic:" + c.api, 403},
		{"a person pushes to a component that is named like a route", "PUT", "/v2/orgs/default/shop/blobs/built/manifests/x", c.api, 403},
		{"a person pushes by a path that is not clean", "PUT", "/v2/orgs/default/shop/web/./built/manifests/x", c.api, 403},
		{"a person pushes by a path with a second slash", "PUT", "/v2/orgs/default/shop//web/built/manifests/x", c.api, 403},
		{"a person pulls what a build pushed", "GET", "/v2/orgs/default/shop/web/built/manifests/x", c.api, 200},
		{"a person pushes to an app with the name built", "PUT", "/v2/orgs/default/built/web/manifests/x", c.api, 200},
		{"a build pushes its artifact", "PUT", "/v2/orgs/default/blobs/web/built/manifests/x", building.lease, 200},
		{"a build uploads its artifact", "POST", "/v2/orgs/default/blobs/web/built/blobs/uploads/", "basic:" + building.lease, 200},
		{"a build pushes to the other repository of its component", "PUT", "/v2/orgs/default/blobs/web/manifests/x", building.lease, 403},
		{"a build pushes to another component", "PUT", "/v2/orgs/default/blobs/api/built/manifests/x", building.lease, 403},
		{"a build pushes to another app", "PUT", "/v2/orgs/default/shop/web/built/manifests/x", building.lease, 403},
		{"a build leaves its path", "PUT", "/v2/orgs/default/blobs/web/built/../../api/built/manifests/x", building.lease, 403},
		{"a build pulls another component", "GET", "/v2/orgs/default/shop/web/manifests/x", building.lease, 403},
		{"a step of the component pushes where a build pushes", "PUT", own + "/built/manifests/x", "basic:" + c.running.lease, 403},
		{"a person checks whether the registry exists", "GET", "/v2/", "basic:" + c.api, 200},
		{"a person pushes", "POST", "/v2/orgs/default/shop/web/blobs/uploads/", "basic:" + c.api, 200},
		{"a person with a bearer token pushes", "PUT", "/v2/orgs/default/shop/web/manifests/x", c.api, 200},
		{"a person leaves the org's path", "GET", "/v2/orgs/default/../other/shop/web/manifests/x", c.api, 403},
		{"a person lists the catalog", "GET", "/v2/_catalog", "basic:" + c.api, 403},
		{"a person of another org pulls", "GET", "/v2/orgs/default/shop/web/manifests/x", "basic:" + stranger, 403},
		{"a person of another org pushes", "PUT", "/v2/orgs/default/shop/web/manifests/x", stranger, 403},
		{"a person of another org mounts", "POST", "/v2/orgs/default/shop/web/blobs/uploads/?mount=sha256:1&from=orgs/other/shop/web", stranger, 403},
		{"a person of an org whose name has the same prefix pushes its own", "PUT", "/v2/orgs/default-2/shop/web/manifests/x", stranger, 200},
		{"a step checks whether the registry exists", "GET", "/v2/", "basic:" + c.running.lease, 200},
		{"a step pulls its manifest", "GET", own + "/manifests/sha256:1", "basic:" + c.running.lease, 200},
		{"a step checks for its blob", "HEAD", own + "/blobs/sha256:1", c.running.lease, 200},
		{"a step pulls another component", "GET", "/v2/orgs/default/shop/elsewhere/manifests/x", "basic:" + c.running.lease, 403},
		{"a step pulls a component whose name has the same prefix", "GET", own + "-2/manifests/x", "basic:" + c.running.lease, 403},
		{"a step leaves its path", "GET", own + "/../elsewhere/manifests/x", "basic:" + c.running.lease, 403},
		{"a step leaves its path, encoded", "GET", own + "/%2e%2e/elsewhere/manifests/x", "basic:" + c.running.lease, 403},
		{"a step lists the catalog", "GET", "/v2/_catalog", "basic:" + c.running.lease, 403},
		{"a step pushes", "POST", own + "/blobs/uploads/", "basic:" + c.running.lease, 403},
		{"a step deletes", "DELETE", own + "/manifests/x", "basic:" + c.running.lease, 403},
		{"a step of a check pulls", "GET", own + "/manifests/x", "basic:" + checking.lease, 403},
		{"no token", "GET", "/v2/", "", 401},
		{"an agent", "GET", own + "/manifests/x", "basic:" + c.sessionToken, 401},
		{"a launch token", "GET", own + "/manifests/x", c.claimed.LaunchToken, 401},
		{"a forged lease", "GET", own + "/manifests/x", c.tokens["forged lease"], 401},
		{"an expired lease", "GET", own + "/manifests/x", c.tokens["expired lease"], 401},
		{"a lease of no job", "GET", own + "/manifests/x", c.tokens["lease of no job"], 403},
	} {
		t.Run(test.consequence, func(t *testing.T) {
			c.t = t
			res := c.send(test.method, test.path, test.auth, nil)
			if res.StatusCode != test.status {
				t.Errorf("status %d, want %d: %s", res.StatusCode, test.status, short(res.body))
			}
			if res.StatusCode >= 400 && test.method != "HEAD" {
				res.problem(t)
			}
			if res.StatusCode == 401 && res.Header.Get("WWW-Authenticate") != `Basic realm="fairlead"` {
				t.Errorf("WWW-Authenticate is %q", res.Header.Get("WWW-Authenticate"))
			}
		})
	}
	c.t = t
	call[struct{}](c.plane, "POST", "/runner/v1/jobs/"+c.running.claim.Job+"/died", c.sessionToken, wire.DiedRequest{Epoch: 1, Reason: "killed"})
	if got := c.send("GET", own+"/manifests/x", "basic:"+c.running.lease, nil).code(t); got != "stale-epoch" {
		t.Errorf("a pull after the job died is refused with %s", got)
	}
}

// The registry checks the login with each request. A pull or push therefore fails as
// soon as its token is revoked or its job ends.
func TestRegistryLoginEndsWithItsTokenOrJob(t *testing.T) {
	c := newCast(t)
	own := "/v2/orgs/default/shop/" + c.running.claim.Component + "/manifests/x"
	token := c.another("ci")
	logins := map[string]string{"the token": token, "the lease": c.running.lease}
	for what, login := range logins {
		if res := c.send("GET", own, "basic:"+login, nil); res.StatusCode != 200 {
			t.Fatalf("pull with %s: status %d: %s", what, res.StatusCode, short(res.body))
		}
	}
	call[struct{}](c.plane, "DELETE", "/v1/tokens/ci", c.api, nil)
	c.finish(c.running)
	for what, login := range logins {
		if res := c.send("GET", own, "basic:"+login, nil); res.StatusCode < 400 {
			t.Errorf("pull with %s still succeeds after its end", what)
		}
	}
}

// The test runs a whole deployment and then searches all answers and the log for
// secrets.
func TestNoSecretIsInAnswersOrLog(t *testing.T) {
	p := newPlane(t)
	p.publish()
	p.install("acme")
	d := p.deploy("acme")
	session := p.session("local")
	leases := []string{session, p.api}
	for {
		d = call[wire.Deployment](p, "GET", "/v1/deployments/"+d.ID, p.api, nil)
		if d.Done() {
			break
		}
		claim := p.claim(session)
		r := p.start(claim)
		leases = append(leases, r.lease, claim.LaunchToken)
		p.finish(r)
	}
	if d.State != "succeeded" {
		t.Fatalf("deployment %+v", d)
	}
	// These requests hold a secret and fail.
	p.send("PATCH", "/v1/installs/acme", p.api, `{"inputs":{"password":{"a":"`+secretInput+`"}}}`)
	p.send("PATCH", "/v1/installs/acme", p.api, `{"inputs":{"`+secretInput+`":1}}`, "Content-Type", "text/plain")
	p.send("PATCH", "/v1/installs/acme", p.api, `{"inputs":"`+secretInput+`"}`)
	p.send("PATCH", "/v1/installs/acme", p.api, `{"inputs":{"password":"`+secretInput+`"}, broken`)
	answers := []result{}
	paths := []string{"/v1/apps", "/v1/apps/shop", "/v1/installs", "/v1/installs/acme", "/v1/installs/acme/outputs", "/v1/deployments",
		"/v1/deployments/" + d.ID, "/v1/jobs", "/v1/jobs?deployment=" + d.ID, "/v1/runners", "/v1/runners/local"}
	for _, job := range call[wire.Page[wire.Job]](p, "GET", "/v1/jobs", p.api, nil).Items {
		paths = append(paths, "/v1/jobs/"+job.ID, "/v1/jobs/"+job.ID+"/log")
	}
	for _, path := range paths {
		answers = append(answers, p.send("GET", path, p.api, nil))
	}
	for _, body := range []string{`{"inputs":{"password":{"a":"` + secretInput + `"}}}`, `{"inputs":"` + secretInput + `"}`,
		`{"inputs":{"size":"` + secretInput + `"}}`, `{"inputs":{"password":"` + secretInput + `"}, broken`} {
		res := p.send("PATCH", "/v1/installs/acme", p.api, body)
		res.problem(t)
		answers = append(answers, res)
	}
	for i, res := range answers {
		for _, secret := range append(leases, secretInput, secretOutput) {
			if strings.Contains(string(res.body), secret) {
				t.Errorf("answer %d (%s) holds a secret: %s", i, res.Request.URL.Path, short(res.body))
			}
		}
	}
	if log := p.log.String(); containsAny(log, append(leases, secretInput, secretOutput)) {
		t.Errorf("the log holds a secret:\n%s", log)
	}
	shown := call[wire.Outputs](p, "GET", "/v1/installs/acme/outputs?show_sensitive=true", p.api, nil)
	if got := shown.Components["web"]["secret"]; string(got.Value) != `"`+secretOutput+`"` || !got.Sensitive {
		t.Errorf("sensitive output with show_sensitive: %s", got.Value)
	}
	hidden := call[wire.Outputs](p, "GET", "/v1/installs/acme/outputs", p.api, nil)
	if got := hidden.Components["web"]; got["secret"].Value != nil || string(got["id"].Value) != `"id-of-web"` {
		t.Errorf("outputs without show_sensitive: %+v", got)
	}
	in := call[wire.Install](p, "GET", "/v1/installs/acme", p.api, nil)
	if got := string(in.Inputs["password"]); got != `"(sensitive)"` || in.State != "deployed" {
		t.Errorf("install in state %s with password %s", in.State, got)
	}
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
