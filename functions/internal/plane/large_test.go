package plane_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// stepOf is a step of a test: its client has the lease token, as that of a real step.
type stepOf struct {
	*client.Client
	t     *testing.T
	claim wire.Claim
	spec  events.JobSpec
}

// next claims and starts the next job.
func (c *cloud) next(t *testing.T, agent *client.Client, runner string) stepOf {
	t.Helper()
	claim := must(agent.Claim(t.Context(), 10*time.Second, false))(t)
	started := must(agent.WithToken(claim.LaunchToken).Start(t.Context(), claim.Job, wire.StartRequest{StepID: "step-1234", Fields: []string{events.FieldVersion}}))(t)
	spec := must(events.Verify(t.Context(), started.Envelope, []ed25519.PublicKey{c.pub}, events.Expect{Runner: fairlead.RunnerID(runner), Install: claim.Install,
		InstallID: fairlead.InstallID(claim.InstallID), Job: fairlead.JobID(claim.Job), Epoch: claim.Epoch, Operation: claim.Operation, Operations: []string{claim.Operation}}, time.Now()))(t)
	return stepOf{agent.WithToken(started.LeaseToken).WithMaxBody(started.MaxBody), t, claim, spec}
}

// tool sends a request as a tool does, through the step.
func (s stepOf) tool(method, path string, query url.Values, body []byte) (client.StateAnswer, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.spec.State.Path+path+"?"+query.Encode(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.State(r, s.claim.Job, body)
}

func (s stepOf) mustTool(method, path string, query url.Values, body []byte) []byte {
	s.t.Helper()
	a := must(s.tool(method, path, query, body))(s.t)
	if a.Status >= 300 {
		s.t.Fatalf("%s of the state: %d %.300s", method, a.Status, a.Body)
	}
	return a.Body
}

// random returns n bytes that no compression makes smaller.
func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// stateOfSize returns a state of at least n bytes whose strings contain characters that JSON and HTML escape.
func stateOfSize(serial, n int) []byte {
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":"l","resources":[%q]}`, serial, strings.Repeat(`<a b="c">`, n/9))
}

// API Gateway accepts 10 MB, and Lambda accepts and returns 6 MB. A step and its tool store and read more, and an
// attempt that has ended stores nothing.
func TestLargeBodiesPassThroughTheFunctions(t *testing.T) {
	c := newCloud(t)
	ctx := t.Context()
	_, token := c.admin()
	cfg := c.controlAPI()
	stream := "s-" + c.table
	c.kinesis("CreateStream", map[string]any{"StreamName": stream, "ShardCount": 1}, nil) // in place of Lambda, to which the install's log group is subscribed
	cfg.LogSubscriber = "arn:aws:kinesis:eu-central-1:123456789012:stream/" + stream
	person := must(client.New(front(t, c.start("controlapi", cfg)), token, client.Options{}))(t)
	must(person.CreateRunner(ctx, wire.CreateRunnerRequest{Name: "acme", Storage: "http"}))(t)
	app, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: shop\ncomponents:\n  web: {type: terraform, source: ./web}\n"+
		"  api: {type: terraform, source: ./api, vars: {page: \"${components.web.outputs.page}\"}}\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	must(person.PublishVersion(ctx, "shop", wire.PublishVersionRequest{Config: must(app.Canonical())(t), Artifacts: map[string]string{"web": digest, "api": digest}}))(t)
	must(person.CreateInstall(ctx, wire.CreateInstallRequest{Name: "acme", App: "shop", Runner: "acme"}))(t)
	agent, runner := c.session(t, person, "acme")
	must(person.CreateDeployment(ctx, "acme", wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true}))(t)

	planSize, stateSize, pageSize := 12<<20, 20<<20, 12<<20
	if testing.Short() { // still larger than Lambda accepts
		planSize, stateSize, pageSize = 5<<20, 7<<20, 7<<20
	}

	// The first component is planned.
	saved := random(planSize)
	planning := c.next(t, agent, runner)
	c.stages(planning, saved)
	if err := planning.PutPlan(ctx, planning.claim.Job, saved); err != nil {
		t.Fatalf("a plan of %d bytes: %v", planSize, err)
	}
	finish(t, planning, wire.FinishRequest{Outcome: "succeeded", Plan: &wire.Plan{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(saved))}})

	// It is applied.
	applying := c.next(t, agent, runner)
	if got, err := applying.GetPlan(ctx, applying.claim.Job); err != nil || !bytes.Equal(got, saved) {
		t.Fatalf("the plan has %d bytes, %v", len(got), err)
	}
	lock := []byte(`{"ID":"lock-1"}`)
	applying.mustTool("PUT", "/lock", nil, lock)
	id := url.Values{"ID": {"lock-1"}}
	for serial, size := range []int{1 << 20, stateSize} {
		state := stateOfSize(serial+1, size)
		applying.mustTool("POST", "", id, state)
		if got := applying.mustTool("GET", "", nil, nil); !bytes.Equal(got, state) {
			t.Fatalf("a state of %d bytes reads as %d bytes", len(state), len(got))
		}
	}
	parts := c.stagedParts(ctx)
	if len(parts) == 0 {
		t.Error("the bucket has no part under the prefix whose objects expire")
	}
	for _, key := range parts {
		if strings.Contains(key, planning.claim.Job) {
			t.Errorf("the part %s of a stored plan remains", key)
		}
	}
	_, err := applying.tool("POST", "", id, bytes.Repeat([]byte("x"), 70_000_000))
	if !client.HasCode(err, "body-too-large") || !strings.Contains(err.Error(), "more than 64 MiB") || !strings.Contains(err.Error(), "70000000 bytes") {
		t.Errorf("a state above the limit of 64 MiB: %v, want both sizes", err)
	}
	// These parts are stored before the attempt ends, and named afterwards.
	late := stateOfSize(4, 5<<20)
	lateDigest := c.stages(applying, late)
	applying.mustTool("DELETE", "/lock", nil, lock)
	page, err := json.Marshal(strings.Repeat(`a "b"`, pageSize/7))
	if err != nil {
		t.Fatal(err)
	}
	finish(t, applying, wire.FinishRequest{Outcome: "succeeded", Mutated: true, ExitCode: new(int), Outputs: map[string]wire.FullOutput{"page": {Value: page}}})

	// The attempt has ended.
	if err := applying.StagePart(ctx, applying.claim.Job, lateDigest, 9, 10, []byte("x")); !client.HasCode(err, "stale-epoch") {
		t.Errorf("a part of an ended attempt: %v", err)
	}
	whole := applying.WithMaxBody(0)
	request := must(http.NewRequestWithContext(ctx, "POST", whole.URL()+applying.spec.State.Path+"?ID=lock-1", nil))(t)
	request.SetBasicAuth(applying.claim.Job, whole.Token())
	request.Header.Set(wire.HeaderBodyDigest, lateDigest)
	request.Header.Set(wire.HeaderBodySize, fmt.Sprint(len(late)))
	res := must(http.DefaultClient.Do(request))(t)
	answer := must(io.ReadAll(res.Body))(t)
	res.Body.Close()
	if res.StatusCode != http.StatusConflict {
		t.Errorf("an ended attempt commits a state: %d %s", res.StatusCode, answer)
	}

	// The second component gets the output as a variable, so the answer with its spec is large.
	second := c.next(t, agent, runner)
	if second.claim.Component != "api" || !bytes.Equal(second.spec.Vars["page"].Value, page) {
		t.Errorf("%s got a variable of %d bytes, want %d", second.claim.Component, len(second.spec.Vars["page"].Value), len(page))
	}
	// A person gets these outputs, and the variables that a deployment would use.
	if out, err := person.GetOutputs(ctx, "acme", false); err != nil || !bytes.Equal(out.Components["web"]["page"].Value, page) {
		t.Errorf("outputs of %d bytes: %v", len(page), err)
	}
	if in, err := person.GetEffective(ctx, "acme"); err != nil || !bytes.Equal(in.Effective.Components["api"]["page"].Value, page) {
		t.Errorf("an install with a variable of %d bytes: %v", len(page), err)
	}
	// A client that gets no answers in parts is refused. Another token does not get the parts.
	other := must(person.CreateToken(ctx, wire.CreateTokenRequest{Name: "other"}))(t)
	raw := func(path, token, accept string) (*http.Response, string) {
		t.Helper()
		r := must(http.NewRequestWithContext(ctx, "GET", person.URL()+path, nil))(t)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set(wire.HeaderAcceptParts, accept)
		res := must(http.DefaultClient.Do(r))(t)
		defer res.Body.Close()
		return res, string(must(io.ReadAll(res.Body))(t))
	}
	if res, text := raw("/v1/installs/acme/outputs", token, ""); res.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "answer-too-large") {
		t.Errorf("outputs that no answer holds: %d %.300s", res.StatusCode, text)
	}
	inParts, _ := raw("/v1/installs/acme/outputs", token, "1")
	firstPart := "/v1/parts/" + inParts.Header.Get(wire.HeaderBodyDigest) + "/0"
	if res, text := raw(firstPart, token, ""); res.StatusCode != http.StatusOK || len(text) != 2<<20 {
		t.Errorf("a part for its own token: %d, %d bytes", res.StatusCode, len(text))
	}
	if res, text := raw(firstPart, other.Token, ""); !strings.Contains(text, "body-not-staged") {
		t.Errorf("a part for another token: %d, %d bytes", res.StatusCode, len(text))
	}

	// A person saves the state that the tool of a job could not save. It is larger than a request may be.
	finish(t, second, wire.FinishRequest{Outcome: "failed", Reason: "tool-failed"})
	if _, err := person.PushState(ctx, "acme", "web", stateOfSize(9, stateSize)); err != nil {
		t.Errorf("push a state of %d bytes: %v", stateSize, err)
	}
	if _, err := person.PushState(ctx, "acme", "web", bytes.Repeat([]byte("x"), 70_000_000)); !client.HasCode(err, "body-too-large") || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("push a state above the limit: %v", err)
	}
	for _, key := range c.stagedParts(ctx) {
		if strings.HasPrefix(key, "staged/people/") && strings.Contains(key, fmt.Sprintf("%x", sha256.Sum256(stateOfSize(9, stateSize)))) {
			t.Errorf("the part %s of a pushed state remains", key)
		}
	}
}

func finish(t *testing.T, s stepOf, report wire.FinishRequest) {
	t.Helper()
	if err := s.Finish(t.Context(), s.claim.Job, report); err != nil {
		t.Fatalf("finish %s of %s: %v", s.claim.Operation, s.claim.Component, err)
	}
}

// session enrols an agent and opens its session. runner is the runner's id.
func (c *cloud) session(t *testing.T, person *client.Client, name string) (agent *client.Client, runner string) {
	t.Helper()
	ctx := t.Context()
	enrolment := must(person.CreateEnrolment(ctx, name))(t)
	agent = must(client.New(served(t, c.runnerFront()), "", client.Options{}))(t)
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	enrolled := must(agent.Enrol(ctx, wire.EnrolRequest{Token: enrolment.Token, PublicKey: pub}))(t)
	ch := must(agent.Challenge(ctx))(t)
	session := must(agent.CreateSession(ctx, wire.SessionRequest{RunnerID: enrolled.RunnerID, Nonce: ch.Nonce, Instance: "i", Version: "1", Capacity: 1, PublicKey: pub,
		Signature: ed25519.Sign(key, wire.SessionStatement(ch.Nonce, enrolled.RunnerID, "i"))}))(t)
	return agent.WithToken(session.Token), enrolled.RunnerID
}

// stages stores a body in parts, as a step does before it names the body in a request, and checks that the bucket has no
// byte of it in the clear: a plan and a state can contain secrets. It returns the body's digest.
func (c *cloud) stages(s stepOf, body []byte) (digest string) {
	c.t.Helper()
	ctx := c.t.Context()
	digest = fmt.Sprintf("%x", sha256.Sum256(body))
	parts := 0
	for part := range slices.Chunk(body, 2<<20) {
		if err := s.StagePart(ctx, s.claim.Job, digest, parts, int64(len(body)), part); err != nil {
			c.t.Fatal(err)
		}
		parts++
	}
	objects := awss3.NewFromConfig(c.config("S3"), func(o *awss3.Options) { o.UsePathStyle = true })
	stored := 0
	for _, key := range c.stagedParts(ctx) {
		if !strings.HasPrefix(key, "staged/"+s.claim.Job+"/") || !strings.Contains(key, digest) {
			continue
		}
		stored++
		object := must(objects.GetObject(ctx, &awss3.GetObjectInput{Bucket: &c.bucket, Key: &key}))(c.t)
		raw := must(io.ReadAll(object.Body))(c.t)
		object.Body.Close()
		for begin := 0; begin+64 <= len(body); begin += 64 << 10 {
			if bytes.Contains(raw, body[begin:begin+64]) {
				c.t.Errorf("the object %s has 64 bytes of the body at %d in the clear", key, begin)
				break
			}
		}
	}
	if stored != parts {
		c.t.Errorf("the bucket has %d objects of a body in %d parts", stored, parts)
	}
	return digest
}

// stagedParts returns the keys of the objects in the bucket that the template's rule for staged parts expires.
func (c *cloud) stagedParts(ctx context.Context) (keys []string) {
	c.t.Helper()
	var template struct {
		Resources struct {
			Blobs struct {
				Properties struct {
					LifecycleConfiguration struct{ Rules []struct{ ID, Prefix string } }
				}
			}
		}
	}
	if err := json.Unmarshal(must(os.ReadFile("../../../infra/control/testdata/control.template.json"))(c.t), &template); err != nil {
		c.t.Fatal(err)
	}
	prefix := "no rule"
	for _, r := range template.Resources.Blobs.Properties.LifecycleConfiguration.Rules {
		if r.ID == "ExpireStagedParts" {
			prefix = r.Prefix
		}
	}
	out := must(awss3.NewFromConfig(c.config("S3"), func(o *awss3.Options) { o.UsePathStyle = true }).ListObjectsV2(ctx, &awss3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix}))(c.t)
	for _, o := range out.Contents {
		keys = append(keys, *o.Key)
	}
	return keys
}
