// Package plane is a real control plane for tests: the handlers of package api and
// the use cases of package control on engines in memory, behind a proxy that
// causes failures which a real control plane cannot cause. A test queues jobs with its
// own specs and checks their results.
package plane

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/joblog"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
	"github.com/fairlead/fairlead/test/proxy"
)

// Objects that exist when a plane starts.
const (
	RunnerID = fairlead.RunnerID("run_1")
	Runner   = "here" // its name

	// Of the stack, if there is one.
	Account    = "123456789012"
	Role       = "runner" // name of the role that is the runner's identity
	ExternalID = "fl-external-0123456789"

	org = fairlead.DefaultOrg
	app = "shop"
)

// Options are the options of New. The zero value is valid.
type Options struct {
	LeaseTTL  time.Duration // of jobs from Queue; 0: 45 s. A step renews its lease three times per LeaseTTL
	Heartbeat time.Duration // between the heartbeats of a session; 0: 15 s
	// Parallelism is the limit of a deployment's components that have a job at once; 0:
	// the default of package control.
	Parallelism int

	// MaxBody is the largest body that the plane's front end accepts, in bytes; 0: every body.
	MaxBody int

	LogBudget joblog.Budget // of the runner; the zero value: no limit

	Settings []string // of the runner's file, such as runner_configuration.type=docker; none: a runner of kind local

	Stack bool // the runner is in a stack of the install ins_1, whose external id is ExternalID

	// STS is the transport to AWS STS. With it the runner's identity is the role Role, and agents reach the control
	// plane at the URL At.
	STS http.RoundTripper
	At  string

	Record bool // keep the body of each request, for Known

	// Direct access for a runner in a stack, without the API.
	Queue  queue.Queue      // nil: in memory
	Log    joblog.Log       // nil: in memory
	Access identity.Granter // nil: no direct access
}

// Plane is the control plane. Safe for concurrent use.
type Plane struct {
	*proxy.Proxy
	Control *control.Control
	API     *client.Client // as the org's administrator

	t      testing.TB
	opt    Options
	http   *httptest.Server
	signer *events.Signer
	token  string // of the administrator
	items  *enginetest.MemoryEngine
	ahead  atomic.Int64 // nanoseconds by which its clock is ahead

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	jobs     map[string]*record
	versions map[string]fairlead.VersionID // by component
	installs map[string]bool               // by name
	beats    []wire.SessionHeartbeat
	sessions map[fairlead.SessionID]bool
	claims   int
	asked    map[asked]int // requests, from the start
	received [][]byte      // their bodies, if Options.Record
	open     map[asked]int // requests that are being handled
	tamper   func(events.JobSpec, []byte) []byte
	keySets  [][]byte
	config   *wire.AgentConfiguration // the configuration that agents get; nil: the agents get no configuration
	worker   *control.Session         // the session of Work; nil before the first job
}

// New starts a control plane with one runner. It stops when the test ends.
func New(t testing.TB, o Options) *Plane {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Plane{t: t, opt: o, items: enginetest.Memory(), signer: events.NewSigner(key), token: identity.NewToken(identity.PrefixAPI), changed: make(chan struct{}),
		jobs: map[string]*record{}, versions: map[string]fairlead.VersionID{}, installs: map[string]bool{}, sessions: map[fairlead.SessionID]bool{}, asked: map[asked]int{}, open: map[asked]int{}}
	if o.Queue == nil {
		o.Queue = memory.New(time.Now, 5)
	}
	if o.Log == nil {
		o.Log = joblogtest.Memory()
	}
	logger := slog.New(slog.DiscardHandler)
	random := fairlead.RandomIDs(time.Now)
	ids := func(prefix string) string {
		if prefix == fairlead.PrefixRunner {
			return string(RunnerID) // the only runner
		}
		return random(prefix)
	}
	made := control.NewRunner{Name: Runner, Storage: "local"}
	if len(o.Settings) > 0 {
		made = control.NewRunner{Name: Runner, File: control.RunnerFile{Set: o.Settings}}
	}
	var aws *awsiam.Verifier
	if o.STS != nil {
		aws, made.AWSRole = awsiam.NewVerifier(o.STS, time.Now, awsiam.Options{}), "arn:aws:iam::"+Account+":role/"+Role
	}
	p.Control = control.New(control.Deps{
		Store: store.New(p.items), Queue: o.Queue, Log: o.Log, Blobs: blobtest.Memory(),
		Sealer: seal.NewKeyring(seal.GenerateKey()), Signer: p.signer, Minter: identity.NewMinter([]byte(rand.Text() + rand.Text())), Access: o.Access, AWS: aws,
		IDs: ids, Now: p.now, Logger: logger, Parallelism: o.Parallelism, LogBudget: o.LogBudget, Intervals: control.Intervals{Heartbeat: o.Heartbeat},
	})
	if err := p.Control.RegisterOperator(t.Context(), org, "admin", p.token); err != nil {
		t.Fatal(err)
	}
	if err := p.Control.EnsureRunner(t.Context(), org, made); err != nil {
		t.Fatal(err)
	}
	if o.Stack || o.Access != nil {
		s := store.Stack{Install: "ins_1", InstallName: "acme", Org: org, Runner: RunnerID, RunnerName: Runner, Account: Account, ExternalID: ExternalID,
			Adopted: true /* its bucket changes nothing about the runner */, Created: time.Now()}
		p.commit(func(tx *store.Tx) { tx.PutStack(store.Stored[store.Stack]{V: s}) })
	}
	var handler atomic.Pointer[http.Handler] // its address is known when it listens
	p.Proxy = proxy.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load()).ServeHTTP(w, r) }))
	p.http = httptest.NewServer(p.counting(p.Proxy))
	t.Cleanup(func() {
		p.DropAll()
		p.http.CloseClientConnections()
		p.http.Close()
	})
	var audiences []string
	if o.STS != nil {
		host, err := awsiam.Audience(o.At)
		if err != nil {
			t.Fatal(err)
		}
		audiences = append(audiences, host)
	}
	h := p.handler(api.Options{Audiences: audiences, Control: p.Control, Registry: p.Registry(), Version: "0.0.0-test", IDs: ids, Logger: logger, MaxBody: o.MaxBody})
	handler.Store(&h)
	if p.API, err = client.New(p.URL(), p.token, client.Options{Retries: -1}); err != nil {
		t.Fatal(err)
	}
	return p
}

// handler returns a handler that serves both APIs and the registry.
func (p *Plane) handler(o api.Options) http.Handler {
	p.t.Helper()
	registry, err := artifact.RegistryHandler(p.t.TempDir(), artifact.RegistryOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api.RegistryGuard(o, registry))
	mux.Handle("/runner/", p.observe(api.RunnerHandler(o)))
	mux.Handle("/", p.observe(api.ControlHandler(o)))
	return mux
}

// PublicKey returns the key with which the control plane signs job specs.
func (p *Plane) PublicKey() ed25519.PublicKey { return p.signer.Public() }

// Sign signs a job spec as the control plane does.
func (p *Plane) Sign(ctx context.Context, spec events.JobSpec) ([]byte, error) {
	return p.signer.Sign(ctx, spec)
}

// URL returns the control plane's URL.
func (p *Plane) URL() string { return p.http.URL }

// Token returns the API token of the org's administrator.
func (p *Plane) Token() string { return p.token }

// Registry returns the registry's host and port.
func (p *Plane) Registry() string { return strings.TrimPrefix(p.http.URL, "http://") }

func (p *Plane) now() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }

// commit commits the transaction that fill builds.
func (p *Plane) commit(fill func(*store.Tx)) {
	p.t.Helper()
	var tx store.Tx
	fill(&tx)
	if err := p.Control.Store.Commit(p.context(), p.Control.IDs("com"), &tx); err != nil {
		p.t.Fatal(err)
	}
}

// context returns the test's context without its cancellation, so that it is valid during
// cleanup too.
func (p *Plane) context() context.Context { return context.WithoutCancel(p.t.Context()) }

// SetDown makes the control plane break every connection, or work again.
func (p *Plane) SetDown(down bool) {
	p.Proxy.SetDown(down)
	if down {
		p.http.CloseClientConnections()
	}
}

// CloseClientConnections breaks the open connections.
func (p *Plane) CloseClientConnections() { p.http.CloseClientConnections() }

// Next makes the next requests fail, each with one of the failures.
func (p *Plane) Next(faults ...proxy.Fault) {
	for _, f := range slices.Backward(faults) {
		p.Fail(proxy.Any, 1, f)
	}
}

// Refuse answers with a problem of the catalogue instead of the control plane's answer.
func Refuse(code string) proxy.Fault {
	for _, d := range api.Problems() {
		if string(d.Code) == code {
			b, err := json.Marshal(wire.Problem{Type: wire.ProblemType + code, Title: http.StatusText(d.Status), Status: d.Status, Detail: d.Meaning, Hint: d.Remedy, RequestID: "req_1"})
			if err != nil {
				panic(err) // strings can always be encoded
			}
			return proxy.Answer(d.Status, "application/problem+json", string(b))
		}
	}
	panic(fmt.Sprintf("plane: the catalogue has no problem %q", code))
}

// EnrolmentToken creates a single-use token for the runner.
func (p *Plane) EnrolmentToken() string {
	p.t.Helper()
	token, _, err := p.Control.CreateEnrolment(p.context(), control.User{Org: org}, Runner)
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// EndSessions ends every session of an agent.
func (p *Plane) EndSessions() {
	p.t.Helper()
	sessions, err := p.Control.Store.Sessions(p.context(), RunnerID, 100)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, s := range sessions {
		if err := p.Control.EndSession(p.context(), control.User{Org: org}, Runner, s.V.ID); err != nil {
			p.t.Fatal(err)
		}
	}
}

// Configure sets the runner's configuration, valid or not. Agents get it in the answer to
// their next session or heartbeat.
func (p *Plane) Configure(revision, runner string) {
	p.change(func() { p.config = &wire.AgentConfiguration{Revision: revision, Runner: json.RawMessage(runner)} })
}

// SetTamper makes f change the envelopes that steps get; nil: no change.
func (p *Plane) SetTamper(f func(spec events.JobSpec, envelope []byte) []byte) {
	p.change(func() { p.tamper = f })
}

// SetKeySets makes the answers to steps contain these key sets.
func (p *Plane) SetKeySets(chain [][]byte) { p.change(func() { p.keySets = chain }) }

// Signer returns the key that signs job specs.
func (p *Plane) Signer() *events.Signer { return p.signer }

// Counts returns the number of claims and of session heartbeats.
func (p *Plane) Counts() (claims, beats int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claims, len(p.beats)
}

// LastBeat returns the last heartbeat of a session.
func (p *Plane) LastBeat() wire.SessionHeartbeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.beats) == 0 {
		return wire.SessionHeartbeat{}
	}
	return p.beats[len(p.beats)-1]
}

func (p *Plane) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Until waits until cond returns true, and fails the test after a minute. It calls cond
// after each recorded request and every 20 ms, because not every change is a request.
func (p *Plane) Until(what string, cond func() bool) {
	p.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-look.C:
		case <-deadline.C:
			p.t.Fatalf("this has not happened within a minute: %s", what)
		}
	}
}

// Known returns everything that the control plane knows, with a name for each: the bodies of all requests that it received
// (with Options.Record), all items of its table, the logs of all jobs, and all blobs, also as its own key opens them. Sealed
// values in items stay sealed.
func (p *Plane) Known() map[string][]byte {
	p.t.Helper()
	known := map[string][]byte{}
	for _, it := range p.items.Items() {
		known["item "+it.Key.Partition+" "+it.Key.Sort] = it.Body
	}
	p.mu.Lock()
	for i, body := range p.received {
		known[fmt.Sprintf("request %d", i)] = body
	}
	jobs := slices.Collect(maps.Keys(p.jobs))
	p.mu.Unlock()
	for _, id := range jobs {
		known["log of "+id] = p.log(id)
	}
	keys, err := p.Control.Blobs.List(p.context(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, key := range keys {
		sealed, err := p.Control.Blobs.Get(p.context(), key)
		if err != nil {
			p.t.Fatal(err)
		}
		known["blob "+key] = sealed
		// The place of a blob's seal is its key, or the first parts of its key.
		opened := false
		for place := key; place != "."; place = path.Dir(place) {
			if clear, err := p.Control.Sealer.Open(p.context(), sealed, place); err == nil {
				known["opened blob "+key], opened = clear, true
			}
		}
		if !opened {
			p.t.Errorf("the control plane cannot open its blob %s", key)
		}
	}
	return known
}

// SetState replaces the stored state of a component, as only a hostile control plane does.
func (p *Plane) SetState(install fairlead.InstallID, component string, state []byte) {
	p.t.Helper()
	head, err := p.Control.Store.State(p.context(), install, component)
	if err != nil {
		p.t.Fatal(err)
	}
	sealed, err := p.Control.Sealer.Seal(p.context(), state, "state/"+string(install)+"/"+component)
	if err == nil {
		err = p.Control.Blobs.Put(p.context(), head.V.Blob, sealed)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// State returns the state of a component that the control plane stores.
func (p *Plane) State(install fairlead.InstallID, component string) []byte {
	p.t.Helper()
	head, err := p.Control.Store.State(p.context(), install, component)
	if err != nil {
		p.t.Fatal(err)
	}
	if head.V.Blob == "" {
		return nil
	}
	sealed, err := p.Control.Blobs.Get(p.context(), head.V.Blob)
	if err != nil {
		p.t.Fatal(err)
	}
	state, err := p.Control.Sealer.Open(p.context(), sealed, "state/"+string(install)+"/"+component)
	if err != nil {
		p.t.Fatal(err)
	}
	return state
}
