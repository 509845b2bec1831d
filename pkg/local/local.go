// Package local runs the whole control plane in one process on one machine. It has the
// same handlers, use cases and typed store as the control plane on AWS, with SQLite, a
// folder of blobs and a folder of artifacts.
package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/blob/dir"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/identity/awsiam"
	"github.com/fairlead/fairlead/pkg/identity/oidc"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/joblog"
	logsqlite "github.com/fairlead/fairlead/pkg/joblog/sqlite"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	queuesqlite "github.com/fairlead/fairlead/pkg/queue/sqlite"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/sqlitedb"
	"github.com/fairlead/fairlead/pkg/store"
	storesqlite "github.com/fairlead/fairlead/pkg/store/sqlite"
	"github.com/fairlead/fairlead/pkg/webhook/https"
)

// Options of Start. Data is required.
type Options struct {
	Data   string // data folder; created if it does not exist
	Listen string // host:port; port 0 selects a free one
	URL    string // URL at which runners reach the server, for proofs of AWS roles; "": http and the listen address
	// TLSCert and TLSKey are the files of the server's certificate and its key, in
	// PEM. The server reads them again when they change. "": no TLS.
	TLSCert, TLSKey string
	Version         string
	Storage         string       // state storage of the runner "local", which the first start creates; "": "local"
	Builds          bool         // the runner "local" builds apps, if the first start creates it
	Logger          *slog.Logger // nil: none
	Terms           job.Terms    // terms of jobs; the zero value is the default
	// StackTemplateURL is the URL of the published template of the runner stack.
	// RunnerImage is the runner's image by digest. Customers install runners from the
	// template and the image. "": nothing is published.
	StackTemplateURL string
	RunnerImage      string
	// STS is the transport to AWS STS; nil: the network, through the environment's
	// proxy.
	STS http.RoundTripper
	// LoopbackIssuers lets runners trust OIDC issuers on this machine, also over http.
	// It is for tests, and for a machine with a single user.
	LoopbackIssuers bool
	// Issuers is the transport to OIDC issuers; nil: only public addresses, and with
	// LoopbackIssuers also this machine.
	Issuers http.RoundTripper
	// FirstLogin makes the token of the first start one for the first login: it expires. Without it the token is for all uses.
	FirstLogin bool
	// Direct is true if agents run next to the server. These agents serve runners whose
	// compute is reachable from this machine.
	Direct bool
	// Endpoints is the transport to webhook endpoints; nil: only public addresses.
	Endpoints http.RoundTripper
	// Bounds of the server. If Connections is 0, connections may use three quarters of
	// the files that the process may have open.
	Bounds  api.Bounds
	Callers api.CallerLimits
	// LogBurst and LogPerHour are the budget of log bytes of each runner, in MiB; 0: the defaults of joblog.BudgetOf.
	LogBurst, LogPerHour int
	Quotas               fairlead.Quotas // of each org
	// CheckpointEvery is the time between the first entry of the audit after a checkpoint and the next checkpoint; 0: a minute.
	CheckpointEvery time.Duration
	// RegistryProgram is the path of the program cmd/fairlead-registry, which serves the registry of images. Without the program, a
	// request for an image gets 503.
	RegistryProgram string
	// MaxImages limits the images of installs of each org, in bytes; 0: 50 GiB.
	MaxImages int64
}

// sweepEvery is the interval of the sweep, which finds lost wake-ups and expired
// leases. A sweep that finds nothing is one query of an index.
const sweepEvery = time.Second

// pruneEvery is the interval at which expired items and unused blobs are deleted.
const pruneEvery = 10 * time.Minute

// collectEvery is the interval at which artifacts that no version uses are deleted.
// This task reads each manifest and each version.
const collectEvery = time.Hour

// reportEvery is the interval at which the sources of wrong tokens are logged.
const reportEvery = time.Minute

// Server is a running control plane. Safe for concurrent use.
type Server struct {
	opts      Options
	control   *control.Control
	artifacts *artifact.Registry
	registry  *registryProcess // of images
	// builtImages is set when the registry of images is made.
	builtImages *builtImages
	url         string
	// certificate is the server's certificate; nil: no TLS.
	certificate *certificate
	http        *http.Server
	stop        context.CancelFunc
	done        sync.WaitGroup
	served      chan error
	closers     []func() error
	deliveries  queue.Queue // the events for webhooks; wake-ups are in memory
	// webhooks is true if a webhook exists, or has existed at any time since the start.
	webhooks atomic.Bool
}

// Start opens the data folder and serves until Close. Errors of the environment, such
// as a folder that another server uses, are of type *fairlead.Error.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Storage == "" {
		o.Storage = "local"
	}
	if o.Data, err = filepath.Abs(o.Data); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	for _, d := range []string{o.Data, filepath.Join(o.Data, "keys")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, folderError(d, err)
		}
	}
	s := &Server{opts: o, served: make(chan error, 1)}
	defer func() {
		if err != nil {
			s.closeParts()
		}
	}()
	engine, err := s.wire(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.firstStart(ctx); err != nil {
		return nil, err
	}
	ln, err := listen(o.Listen)
	if err != nil {
		return nil, err
	}
	bounds := o.Bounds
	if most := maxFiles() / 4 * 3; bounds.Connections == 0 && most > 0 && most < api.MaxConnections {
		bounds.Connections = most
	}
	ln = bounds.Listen(ln)
	s.url = "http://" + ln.Addr().String()
	if o.TLSCert != "" {
		s.url = "https://" + ln.Addr().String()
		s.certificate, err = loadCertificate(o.TLSCert, o.TLSKey, func(err error) { o.Logger.Error("the new certificate is not used", "error", err) })
		if err != nil {
			return nil, errors.Join(err, ln.Close())
		}
		// The server accepts only HTTP/1.1, because its deadlines and limits apply to connections.
		ln = tls.NewListener(ln, &tls.Config{GetCertificate: s.certificate.get, NextProtos: []string{"http/1.1"}})
	}
	audience, err := awsiam.Audience(cmp.Or(o.URL, s.url))
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	registry, err := s.registryHost(ln.Addr())
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	callers := api.NewCallers(o.Callers, time.Now, o.Logger)
	handler, err := s.handler(registry, audience, callers)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	s.control.HoldLeases()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.http = bounds.Server(handler)
	s.http.BaseContext = func(net.Listener) context.Context { return run }
	s.http.ErrorLog = slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug)
	s.done.Go(func() { s.served <- s.http.Serve(ln) })
	s.announce(run, engine, s.deliverer())
	s.audit(run, engine)
	s.repeat(run, engine, callers)
	return s, nil
}

// repeat runs the periodic tasks until ctx ends.
func (s *Server) repeat(ctx context.Context, engine *storesqlite.Engine, callers *api.Callers) {
	s.done.Go(func() {
		if _, err := s.control.WakeQueued(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("cannot send the wake-ups of all queued jobs; the sweep sends the others", "error", err)
		}
		every(ctx, sweepEvery, s.sweep)
	})
	s.done.Go(func() { every(ctx, reportEvery, func(context.Context) { callers.Report() }) })
	s.done.Go(func() {
		every(ctx, collectEvery, func(ctx context.Context) {
			if err := s.artifacts.Collect(ctx, s.control.NamedArtifacts()); err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("cannot delete unused artifacts", "error", err)
			}
			if err := s.builtImages.collect(ctx, s.control.NamedImages()); err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("cannot delete unused images", "error", err)
			}
		})
	})
	s.done.Go(func() {
		var unnamed []string
		every(ctx, pruneEvery, func(ctx context.Context) {
			found, err := s.control.CollectBlobs(ctx, unnamed)
			if err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("cannot delete unused blobs", "error", err)
			}
			unnamed = found
			if _, err := engine.Prune(ctx, time.Now()); err != nil && ctx.Err() == nil {
				s.opts.Logger.Warn("cannot delete expired items", "error", err)
			}
		})
	})
}

// webhookTimeout is the longest wait for an endpoint's answer.
const webhookTimeout = 5 * time.Second

func (s *Server) deliverer() *control.Deliverer {
	c, endpoints := s.control, s.opts.Endpoints
	if endpoints == nil {
		t := https.Transport()
		s.closers = append(s.closers, func() error { t.CloseIdleConnections(); return nil })
		endpoints = t
	}
	return &control.Deliverer{Store: c.Store, Sealer: c.Sealer, Sender: https.New(endpoints, webhookTimeout, s.opts.Version, time.Now), IDs: c.IDs, Now: c.Now, Logger: c.Logger}
}

func listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:8400"
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeCannotListen,
			Message: "cannot listen on " + address, Err: err,
			Hint: "Another program may use the port; choose another with --listen 127.0.0.1:0."}
	}
	return ln, nil
}

func folderError(path string, err error) error {
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeDataReadOnly,
		Message: "cannot use the data folder " + path, Err: err,
		Hint: "With --data, choose a folder that you can write to."}
}

// wire opens and connects all parts. It creates the keys before the table. If the
// process is killed after it created the keys, the next start uses these keys. If wire
// created the table first, a killed start could leave a table without keys, which is
// unusable.
func (s *Server) wire(ctx context.Context) (*storesqlite.Engine, error) {
	path := func(name string) string { return filepath.Join(s.opts.Data, name) }
	_, err := os.Stat(path("table.db"))
	keys, err := loadKeys(path("keys"), errors.Is(err, fs.ErrNotExist))
	if err != nil {
		return nil, err
	}
	engine, err := storesqlite.Open(ctx, path("table.db"), storesqlite.Options{Record: s.record, Notes: true})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, engine.Close)
	hooked, err := anyWebhook(ctx, store.New(engine))
	if err != nil {
		return nil, err
	}
	s.webhooks.Store(hooked)
	qdb, err := s.open(ctx, path("queue.db"))
	if err != nil {
		return nil, err
	}
	deliveries, err := queuesqlite.New(qdb, queuesqlite.Options{})
	if err != nil {
		return nil, err
	}
	s.deliveries = deliveries
	s.closers = append(s.closers, deliveries.Close)
	ldb, err := s.open(ctx, path("log.db"))
	if err != nil {
		return nil, err
	}
	log, err := logsqlite.New(ldb)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, log.Close)
	blobs, err := dir.New(path("blobs"))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, blobs.Close)
	sts := s.opts.STS
	if sts == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 3 * time.Second}).DialContext
		t.MaxResponseHeaderBytes = 64 << 10
		s.closers = append(s.closers, func() error { t.CloseIdleConnections(); return nil })
		sts = t
	}
	generation, err := store.New(engine).Generation(ctx)
	if err != nil {
		return nil, err
	}
	rules := oidc.Rules{Loopback: s.opts.LoopbackIssuers}
	reach := s.opts.Issuers
	if reach == nil {
		t := oidc.Transport(rules)
		s.closers = append(s.closers, func() error { t.CloseIdleConnections(); return nil })
		reach = t
	}
	signing, spare := events.NewSigner(keys.signing), events.NewSigner(keys.spare)
	s.control = control.New(control.Deps{
		Store: store.New(engine), Queue: memory.New(time.Now, memory.DefaultMaxReceives), Log: log, Blobs: blobs, Sealer: keys.seal,
		Signer: signing, Spare: spare.Public(), SigningKeys: signingKeys{keys.folder, []*events.Signer{signing, spare}}, Minter: identity.NewMinter(keys.tokens).InGeneration(generation.V.Number), AWS: awsiam.NewVerifier(sts, time.Now, awsiam.Options{}),
		OIDC: oidc.NewVerifier(reach, time.Now, rules),
		IDs:  fairlead.RandomIDs(time.Now), Now: time.Now, Logger: s.opts.Logger, Terms: s.opts.Terms, Direct: s.opts.Direct, Images: true, LogBudget: joblog.BudgetOf(s.opts.LogBurst, s.opts.LogPerHour), Quotas: s.opts.Quotas,
	})
	return engine, nil
}

// anyWebhook reports whether an org has a webhook.
func anyWebhook(ctx context.Context, t *store.Store) (bool, error) {
	orgs, err := t.OrgNames(ctx)
	for _, org := range orgs {
		if hooks, err := t.AllWebhooks(ctx, org); err != nil || len(hooks) > 0 {
			return err == nil, err
		}
	}
	return false, err
}

func (s *Server) open(ctx context.Context, path string) (*sqlitedb.DB, error) {
	// Commits in these files are not synced to the disk. A step keeps its log until the
	// log's end is durable.
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{Relaxed: true})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, db.Close)
	return db, nil
}

// firstStart creates what every control plane needs, if it does not exist: an API token
// and the runner of this machine. It also makes service accounts of the rules that an earlier release kept with runners.
func (s *Server) firstStart(ctx context.Context) error {
	if err := s.adminToken(ctx); err != nil {
		return err
	}
	if _, err := s.control.MoveTrusts(ctx); err != nil { // they are accepted as before
		s.opts.Logger.Warn("cannot make service accounts of the rules of all runners; the next start tries again", "error", err)
	}
	return s.control.EnsureRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: control.DefaultRunner,
		Description: "Runs jobs on this machine.", Storage: s.opts.Storage, Registry: true, Builds: s.opts.Builds})
}

// adminToken registers the token in the admin's file. It creates a new token if there is
// no token, or if the token was revoked or has expired, unless the token is for the first login and
// others have full access. This does not weaken security: a
// person who can write to the data folder controls the control plane anyway. The log and
// the list of tokens show that there is a new token.
func (s *Server) adminToken(ctx context.Context) error {
	token, err := tokenFile(s.TokenFile())
	if err != nil {
		return err
	}
	register := s.control.RegisterOperator
	if s.opts.FirstLogin {
		register = s.control.RegisterFirst
	}
	err = register(ctx, fairlead.DefaultOrg, adminName, token)
	if fairlead.KindOf(err) != fairlead.KindUnauthenticated {
		return err
	}
	if full, err := s.control.HasFullAccess(ctx, fairlead.DefaultOrg); err != nil || full && s.opts.FirstLogin {
		return err
	}
	token = identity.NewToken(identity.PrefixAPI)
	if err := register(ctx, fairlead.DefaultOrg, adminName, token); err != nil {
		return err
	}
	s.opts.Logger.Warn("the administrator's token was revoked or has expired; created a new one", "file", s.TokenFile())
	if err := safefile.Write(s.TokenFile(), []byte(token+"\n"), 0o600); err != nil {
		return folderError(s.TokenFile(), err)
	}
	return nil
}

// adminName is the name of the first token in the admin's file. Each later token has
// this name with a number.
const adminName = "admin"

// handler serves both APIs and the registry on one port.
func (s *Server) handler(address, audience string, callers *api.Callers) (http.Handler, error) {
	o := api.Options{Control: s.control, Registry: address, Audiences: []string{audience}, Version: s.opts.Version, IDs: s.control.IDs, Logger: s.opts.Logger, Callers: callers,
		Stack: api.StackSource{URL: cmp.Or(s.opts.URL, s.url), TemplateURL: s.opts.StackTemplateURL, Image: s.opts.RunnerImage}}
	s.control.AgentURL = o.Stack.URL
	registry, err := artifact.RegistryHandler(filepath.Join(s.opts.Data, "artifacts"), artifact.RegistryOptions{Log: s.opts.Logger, Account: control.RepositoryOrg})
	if err != nil {
		return nil, err
	}
	s.artifacts = registry
	kept := s.images()
	controlAPI, runnerAPI, guarded := api.ControlHandler(o), api.RunnerHandler(o), api.RegistryGuard(o, imagesBelow(kept, registry))
	// A ServeMux would redirect unclean paths. The APIs answer unknown paths with a
	// problem instead.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/runner/"):
			runnerAPI.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/v2/"):
			guarded.ServeHTTP(w, r)
		default:
			controlAPI.ServeHTTP(w, r)
		}
	}), nil
}

func (s *Server) sweep(ctx context.Context) {
	if _, err := s.control.Sweep(ctx); err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn("the sweep failed", "error", err)
	}
}

// every calls fn now and after each interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, fn func(context.Context)) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		fn(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// registryHost returns the host at which clients reach the registry. If the server
// listens on all addresses or has a certificate, it is the host of the URL, if a URL is
// set. Otherwise it is the listen address.
func (s *Server) registryHost(address net.Addr) (string, error) {
	tcp, ok := address.(*net.TCPAddr)
	if s.opts.URL == "" || s.certificate == nil && !(ok && tcp.IP.IsUnspecified()) {
		return address.String(), nil
	}
	u, err := url.Parse(s.opts.URL)
	if err != nil {
		return "", fmt.Errorf("parse the URL at which runners reach the control plane: %w", err)
	}
	return u.Host, nil
}

// Transport returns the transport to the server's URL from this process. It returns nil
// if the server has no certificate: the default transport then works.
func (s *Server) Transport() http.RoundTripper {
	if s.certificate == nil {
		return nil
	}
	return s.certificate.transport()
}

// URL returns the URL of the server.
func (s *Server) URL() string { return s.url }

// TokenFile returns the path of the file that holds the admin's API token.
func (s *Server) TokenFile() string { return filepath.Join(s.opts.Data, "admin-token") }

// EnrolmentTokenFile writes a single-use enrolment token of the runner to a
// file that only its owner can read, and returns its path.
func (s *Server) EnrolmentTokenFile(ctx context.Context, runner string) (string, error) {
	token, _, err := s.control.CreateEnrolment(ctx, control.User{Org: fairlead.DefaultOrg}, runner)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.opts.Data, "enrolment-"+runner)
	if err := safefile.Write(path, []byte(token+"\n"), 0o600); err != nil {
		return "", folderError(s.opts.Data, err)
	}
	return path, nil
}

// Control returns the use cases, for code in the same process.
func (s *Server) Control() *control.Control { return s.control }

// Wait returns when the server stops serving: nil after Close.
func (s *Server) Wait() error {
	err := <-s.served
	s.served <- err
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends long polls at once, waits for other requests until ctx ends, and closes
// the data folder.
func (s *Server) Close(ctx context.Context) error {
	s.stop() // long polls answer 503, so their callers retry
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.done.Wait()
	return errors.Join(err, s.closeParts())
}

func (s *Server) closeParts() error {
	var err error
	for i := len(s.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, s.closers[i]())
	}
	s.closers = nil
	return err
}
