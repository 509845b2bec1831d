package api_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/control/controltest"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// Secret values. The control plane must show them only in answers that are meant to
// hold them.
const (
	secretInput  = "hunter2-canary-input"
	secretOutput = "hunter2-canary-output"
)

// plane is a control plane in memory. One HTTP server serves both APIs and the
// registry's guard.
type plane struct {
	*control.Control
	t       *testing.T
	minter  *identity.Minter
	handler http.Handler
	callers *api.Callers
	server  *http.Server
	url     string
	http    *http.Client
	stop    context.CancelFunc // ends the context of every request, as local.Close does
	log     *syncBuffer
	api     string // API token
}

// syncBuffer is a bytes.Buffer that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newPlane(t *testing.T, of ...bounded) *plane {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newPlaneOn(t, enginetest.Memory(), ln, http.DefaultTransport.(*http.Transport).Clone(), of...)
}

// newBubblePlane returns a plane that works in a synctest bubble: its network is
// net.Pipe.
func newBubblePlane(t *testing.T, of ...bounded) *plane {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	return newPlaneOn(t, enginetest.Memory(), ln, &http.Transport{DialContext: ln.dial}, of...)
}

// bounded holds the limits of a plane.
type bounded struct {
	bounds api.Bounds
	limits []api.CallerLimits // at most one; empty: no limits of callers
}

func newPlaneOn(t *testing.T, e engine.Engine, ln net.Listener, transport *http.Transport, of ...bounded) *plane {
	t.Helper()
	var has bounded
	if len(of) > 0 {
		has = of[0]
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, minter: identity.NewMinter(make([]byte, identity.MinKey)), log: &syncBuffer{}, api: identity.NewToken(identity.PrefixAPI)}
	logger := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ids := fairlead.RandomIDs(time.Now)
	_, spareKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, spare := events.NewSigner(key), events.NewSigner(spareKey)
	p.Control = control.New(control.Deps{
		Spare: spare.Public(), SigningKeys: controltest.NewKeys(signer, spare),
		Store: store.New(e), Queue: memory.New(time.Now, 5), Log: joblogtest.Memory(), Blobs: blobtest.Memory(),
		Sealer: seal.NewKeyring(seal.GenerateKey()), Signer: signer, Minter: p.minter, IDs: ids, Now: time.Now, Logger: logger,
	})
	if err := p.RegisterToken(t.Context(), fairlead.DefaultOrg, "admin", p.api); err != nil {
		t.Fatal(err)
	}
	if err := p.EnsureRunner(t.Context(), fairlead.DefaultOrg, control.NewRunner{Name: "local", File: control.RunnerFile{Set: []string{"runner_configuration.type=local", "runner_configuration.builds=true", "state_storage_configuration.type=http"}}}); err != nil {
		t.Fatal(err)
	}
	o := api.Options{Control: p.Control, Registry: "registry.test", Audiences: []string{"fairlead.test"}, Version: "0.0.0-test", IDs: ids, Logger: logger}
	if len(has.limits) > 0 {
		p.callers = api.NewCallers(has.limits[0], time.Now, logger)
		o.Callers = p.callers
	}
	controlAPI, runnerAPI := api.ControlHandler(o), api.RunnerHandler(o)
	registry := api.RegistryGuard(o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "registry "+r.URL.Path) }))
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/runner/"):
			runnerAPI.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/v2/"):
			registry.ServeHTTP(w, r)
		default:
			controlAPI.ServeHTTP(w, r)
		}
	})
	base, stop := context.WithCancel(t.Context())
	p.stop = stop
	p.server = has.bounds.Server(p.handler)
	p.server.BaseContext = func(net.Listener) context.Context { return base }
	p.server.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	p.url = "http://" + ln.Addr().String()
	transport.DisableCompression = true
	p.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	served := make(chan struct{})
	go func() { defer close(served); _ = p.server.Serve(has.bounds.Listen(ln)) }()
	t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
		if err := p.server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return p
}

// pipeListener is a listener whose connections are in-memory pipes.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "fairlead.test" }

// result is an answer with its whole body.
type result struct {
	*http.Response
	body []byte
}

// problem returns the answer's problem. It fails the test if the answer is not a
// complete problem.
func (r result) problem(t *testing.T) wire.Problem {
	t.Helper()
	var p wire.Problem
	if ct := r.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("the answer %d has the type %q, not a problem's: %s", r.StatusCode, ct, short(r.body))
	}
	if err := json.Unmarshal(r.body, &p); err != nil {
		t.Fatalf("decode the problem %s: %v", short(r.body), err)
	}
	if p.Status != r.StatusCode || p.Title == "" || !strings.HasPrefix(p.Type, wire.ProblemType) || p.RequestID != r.Header.Get(wire.HeaderRequestID) || p.RequestID == "" {
		t.Fatalf("the problem of a %d is incomplete: %s", r.StatusCode, short(r.body))
	}
	return p
}

func (r result) code(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(r.problem(t).Type, wire.ProblemType)
}

func short(b []byte) string {
	if len(b) > 600 {
		return string(b[:600]) + "…"
	}
	return string(b)
}

// send sends a request. auth is a bearer token, "basic:" and a token, or "".
func (p *plane) send(method, path, auth string, body any, headers ...string) result {
	p.t.Helper()
	res, err := p.try(p.t.Context(), method, path, auth, body, headers...)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

func (p *plane) try(ctx context.Context, method, path, auth string, body any, headers ...string) (result, error) {
	req, err := request(ctx, method, p.url+path, auth, body, headers...)
	if err != nil {
		return result{}, err
	}
	res, err := p.http.Do(req)
	if err != nil {
		return result{}, err
	}
	defer res.Body.Close() //nolint:errcheck // the body was read to its end
	data, err := io.ReadAll(res.Body)
	return result{res, data}, err
}

func request(ctx context.Context, method, url, auth string, body any, headers ...string) (*http.Request, error) {
	var r io.Reader
	contentType := ""
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	case string:
		r, contentType = strings.NewReader(b), "application/json"
	case []byte:
		r, contentType = bytes.NewReader(b), "application/octet-stream"
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r, contentType = bytes.NewReader(data), "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if token, ok := strings.CutPrefix(auth, "basic:"); ok {
		req.SetBasicAuth("job", token)
	} else if auth != "" {
		req.Header.Set("Authorization", "Bearer "+auth)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return req, nil
}

// call sends a request that must succeed and returns its answer.
func call[T any](p *plane, method, path, auth string, body any, headers ...string) T {
	p.t.Helper()
	res := p.send(method, path, auth, body, headers...)
	var out T
	if res.StatusCode >= 300 {
		p.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, short(res.body))
	}
	if len(res.body) > 0 {
		if err := json.Unmarshal(res.body, &out); err != nil {
			p.t.Fatalf("%s %s: %v in %s", method, path, err, short(res.body))
		}
	}
	return out
}

// shop has two independent components and a third that depends on one of them.
const shop = `fairlead: v1
name: shop
inputs:
  size: {type: number, default: 2}
  password: {type: string, sensitive: true, required: true}
components:
  network: {type: terraform, source: ./network, vars: {size: "${inputs.size}"}}
  cache: {type: terraform, source: ./cache, vars: {password: "${inputs.password}"}}
  web: {type: terraform, source: ./web, vars: {net: "${components.network.outputs.id}"}}
`

func publication(t *testing.T, src string) wire.PublishVersionRequest {
	t.Helper()
	app, problems := appspec.Parse("app.yaml", []byte(src))
	if problems != nil {
		t.Fatal(problems)
	}
	canonical, err := app.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	artifacts := map[string]string{}
	for _, c := range app.Components {
		artifacts[c.Name] = fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(c.Name)))
	}
	return wire.PublishVersionRequest{Config: canonical, Artifacts: artifacts}
}

func (p *plane) publish() {
	call[wire.AppVersion](p, "POST", "/v1/apps/shop/versions", p.api, publication(p.t, shop))
}

func (p *plane) install(name string) wire.Install {
	p.t.Helper()
	return call[wire.Install](p, "POST", "/v1/installs", p.api, wire.CreateInstallRequest{Name: name, App: "shop",
		Inputs: map[string]json.RawMessage{"password": json.RawMessage(`"` + secretInput + `"`)}})
}

func (p *plane) deploy(install string) wire.Deployment {
	p.t.Helper()
	return call[wire.Deployment](p, "POST", "/v1/installs/"+install+"/deployments", p.api,
		wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
}

// session enrols an agent and opens a session; it returns the token.
func (p *plane) session(runner string) string {
	p.t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	e := call[wire.Enrolment](p, "POST", "/v1/runners/"+runner+"/enrolments", p.api, nil)
	id := call[wire.Enrolled](p, "POST", "/runner/v1/enrol", "", wire.EnrolRequest{Token: e.Token, PublicKey: pub})
	ch := call[wire.Challenge](p, "POST", "/runner/v1/challenges", "", nil)
	return call[wire.Session](p, "POST", "/runner/v1/sessions", "", wire.SessionRequest{RunnerID: id.RunnerID, Nonce: ch.Nonce, Instance: "test",
		Version: "1", Capacity: 4, PublicKey: pub, Signature: ed25519.Sign(key, wire.SessionStatement(ch.Nonce, id.RunnerID, "test"))}).Token
}

// running is a job that a step has started.
type running struct {
	claim wire.Claim
	lease string
	state string // the tool's password for the state
	spec  events.JobSpec
}

// stateURL is the path of the state of the job's component.
func (r running) stateURL() string {
	return "/runner/v1/state/" + string(r.spec.Install) + "/" + r.spec.Component
}

func (p *plane) claim(session string) wire.Claim {
	p.t.Helper()
	c := call[wire.Claim](p, "POST", "/runner/v1/claims", session, wire.ClaimRequest{})
	if c.Job == "" {
		p.t.Fatal("no job is queued")
	}
	return c
}

func (p *plane) start(c wire.Claim) running {
	p.t.Helper()
	st := call[wire.Started](p, "POST", "/runner/v1/jobs/"+c.Job+"/start", c.LaunchToken, wire.StartRequest{StepID: "step-1234"})
	var env struct {
		Payload []byte `json:"payload"`
	}
	r := running{claim: c, lease: st.LeaseToken, state: st.StateToken}
	if err := json.Unmarshal(st.Envelope, &env); err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal(env.Payload, &r.spec); err != nil {
		p.t.Fatal(err)
	}
	// The agent uses the claim to choose which of its folders the step can see.
	plan := ""
	if r.spec.Plan != nil {
		plan = string(r.spec.Plan.Job)
	}
	if c.InstallID != string(r.spec.Install) || c.Component != r.spec.Component || c.PlanJob != plan {
		p.t.Fatalf("claim %+v, but its spec has install %s, component %s, plan %q", c, r.spec.Install, r.spec.Component, plan)
	}
	return r
}

// finish appends a line and reports success, with a plan for a plan job.
func (p *plane) finish(r running) {
	p.t.Helper()
	line := []byte("a line of " + r.claim.Component + "\n")
	call[wire.LogAppended](p, "PUT", "/runner/v1/jobs/"+r.claim.Job+"/log?offset=0", r.lease, line)
	call[struct{}](p, "POST", "/runner/v1/jobs/"+r.claim.Job+"/finish", r.lease, report(r, line))
}

func report(r running, log []byte) wire.FinishRequest {
	in := wire.FinishRequest{Outcome: "succeeded", Log: wire.LogEnd{Size: int64(len(log)), CRC32: crc32.ChecksumIEEE(log)}}
	if strings.HasPrefix(r.claim.Operation, "plan") {
		in.Plan = &wire.Plan{Digest: fmt.Sprintf("sha256:%064x", crc32.ChecksumIEEE([]byte(r.claim.Job))), Changes: wire.Changes{Add: 1},
			ChangeSet: &changeset.Set{V: changeset.Version, Changes: []changeset.Change{}}}
	} else {
		in.Outputs = map[string]wire.FullOutput{"id": {Value: json.RawMessage(`"id-of-` + r.claim.Component + `"`)},
			"secret": {Value: json.RawMessage(`"` + secretOutput + `"`), Sensitive: true}}
	}
	return in
}

// document is one of the committed OpenAPI documents.
type document struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas   map[string]map[string]any `json:"schemas"`
		Responses map[string]any            `json:"responses"`
		Security  map[string]any            `json:"securitySchemes"`
	} `json:"components"`
	raw any
}

type operation struct {
	OperationID string                 `json:"operationId"`
	Summary     string                 `json:"summary"`
	Parameters  []parameter            `json:"parameters"`
	Security    []map[string][]string  `json:"security"`
	Responses   map[string]responseDoc `json:"responses"`
	Problems    []string               `json:"x-fairlead-problems"`
	Rule        string                 `json:"x-fairlead-rule"`
	Rights      []string               `json:"x-fairlead-rights"`
	RequestBody *struct {
		Required bool `json:"required"`
		Content  map[string]struct {
			Schema map[string]any `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
}

type parameter struct {
	In       string         `json:"in"`
	Name     string         `json:"name"`
	Required bool           `json:"required"`
	Schema   map[string]any `json:"schema"`
}

type responseDoc struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema map[string]any `json:"schema"`
	} `json:"content"`
}

// scheme returns the operation's security scheme, or "".
func (o operation) scheme() string {
	for _, s := range o.Security {
		for name := range s {
			return name
		}
	}
	return ""
}

func readDocument(t *testing.T, name string) document {
	t.Helper()
	data, err := os.ReadFile("../../docs/openapi/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(asJSON, &d); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(asJSON, &d.raw); err != nil {
		t.Fatal(err)
	}
	return d
}

// eachOperation calls fn for every operation of both documents, in order.
func eachOperation(t *testing.T, fn func(doc document, method, path string, op operation)) {
	t.Helper()
	for _, name := range []string{"control", "runner"} {
		d := readDocument(t, name)
		for path, ops := range sorted(d.Paths) {
			for method, op := range sorted(ops) {
				fn(d, strings.ToUpper(method), path, op)
			}
		}
	}
}

func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("job:"+token))
}

func jsonNumber(n int64) string { return strconv.FormatInt(n, 10) }

// shutDown ends all goroutines of the plane before the bubble ends.
func (p *plane) shutDown() {
	p.stop()
	p.http.CloseIdleConnections()
	if err := p.server.Close(); err != nil {
		p.t.Error(err)
	}
}
