// Package api is the two HTTP faces of the control plane: the control API, for
// people and their tools, and the runner API, for agents and steps. Each is one
// http.Handler with an OpenAPI 3.1 document generated from what it serves.
// Handlers translate and nothing else; what may happen is decided in control.
package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// Options of the handlers. Control, Keys, Logger and IDs are required.
type Options struct {
	Control  *control.Control
	Keys     []wire.VerificationKey // that job specs are signed with; handed out at enrolment
	Registry string                 // host:port of the artifact registry, as callers reach it
	Version  string                 // of the control plane
	IDs      fairlead.IDSource      // names requests that come without an id
	Logger   *slog.Logger
}

// MaxBody is the largest JSON body of a request, in bytes. Routes that take
// more (logs, state, plans) have limits of their own.
const MaxBody = 4 << 20

// server is what the handlers of one API share.
type server struct {
	Options
	api huma.API
	mux *http.ServeMux
}

// ControlHandler returns the control API.
func ControlHandler(o Options) http.Handler {
	s := newServer(o, "Fairlead control API", "/v1/openapi",
		"For people and their tools. Errors are RFC 9457 problems whose `type` is stable.")
	s.controlRoutes()
	return s.handler()
}

// RunnerHandler returns the runner API.
func RunnerHandler(o Options) http.Handler {
	s := newServer(o, "Fairlead runner API", "/runner/v1/openapi",
		"For agents and steps. A session claims jobs; a launch token buys a job spec; a lease token speaks for one epoch of a job.")
	s.runnerRoutes()
	s.stateRoutes()
	return s.handler()
}

func newServer(o Options, title, openapi, description string) *server {
	s := &server{Options: o, mux: http.NewServeMux()}
	cfg := huma.DefaultConfig(title, o.Version)
	cfg.Info.Description = description
	cfg.OpenAPIPath = openapi
	cfg.DocsPath, cfg.SchemasPath = "", "" // the renderer would load scripts from a stranger's host
	cfg.CreateHooks = nil                  // no $schema links in answers
	cfg.RejectUnknownQueryParameters = true
	cfg.Transformers = []huma.Transformer{func(ctx huma.Context, _ string, v any) (any, error) {
		if m, ok := v.(*huma.ErrorModel); ok {
			return fromHuma(m, requestID(ctx.Context())), nil
		}
		return v, nil
	}}
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "An API token, session token, launch token or lease token, as the route says."},
		"basic":  {Type: "http", Scheme: "basic", Description: "Any user name; the lease token as password. For Terraform's http backend, which knows nothing else."},
	}
	s.api = humago.New(s.mux, cfg)
	return s
}

// handler puts what every request passes through around the routes.
func (s *server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(wire.HeaderRequestID)
		if !requestIDPattern.MatchString(id) {
			id = s.IDs(fairlead.PrefixRequest)
		}
		w.Header().Set(wire.HeaderRequestID, id)
		w.Header().Set(wire.HeaderProtocol, wire.Protocol)
		w.Header().Set("Cache-Control", "no-store") // answers hold tokens and secrets
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				s.Logger.Error("a handler panicked", "request", id, "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				writeProblem(w, newProblem(errors.New("panic"), id))
			}
		}()
		if _, pattern := s.mux.Handler(r); pattern == "" {
			s.noRoute(w, r, id)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// noRoute answers what no route serves, as a problem like any other.
func (s *server) noRoute(w http.ResponseWriter, r *http.Request, id string) {
	probe := &statusRecorder{header: http.Header{}}
	s.mux.ServeHTTP(probe, r)
	e := &fairlead.Error{Kind: fairlead.KindNotFound, Code: "no-route", Message: "there is nothing at " + r.URL.Path}
	p := newProblem(e, id)
	if probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", probe.header.Get("Allow"))
		p.Type, p.Status, p.Title = wire.ProblemType+"method-not-allowed", probe.status, http.StatusText(probe.status)
		p.Detail = r.URL.Path + " does not know " + r.Method
	}
	writeProblem(w, p)
}

// statusRecorder keeps the status and headers of an answer and drops its body.
type statusRecorder struct {
	header http.Header
	status int
}

// Header returns the headers that were set.
func (s *statusRecorder) Header() http.Header { return s.header }

// WriteHeader keeps the status.
func (s *statusRecorder) WriteHeader(status int) { s.status = status }

// Write drops the body.
func (s *statusRecorder) Write(b []byte) (int, error) { return len(b), nil }

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{8,64}$`)

type (
	requestIDKey struct{}
	callerKey    struct{}
)

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// caller is who a request comes from; which field is set depends on the route.
type caller struct {
	org     fairlead.OrgID
	session control.SessionRecord
	holder  control.Holder
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// auth finds out who sends a token for a job (of routes that have one).
type auth func(ctx context.Context, s *server, token string, job fairlead.JobID) (caller, error)

func noAuth(context.Context, *server, string, fairlead.JobID) (caller, error) { return caller{}, nil }

func userAuth(ctx context.Context, s *server, token string, _ fairlead.JobID) (caller, error) {
	org, err := s.Control.AuthenticateUser(ctx, token)
	return caller{org: org}, err
}

func sessionAuth(ctx context.Context, s *server, token string, _ fairlead.JobID) (caller, error) {
	session, err := s.Control.AuthenticateSession(ctx, token)
	return caller{session: session}, err
}

func launchAuth(_ context.Context, s *server, token string, job fairlead.JobID) (caller, error) {
	h, err := s.Control.AuthenticateJob(token, identity.Launch, job)
	return caller{holder: h}, err
}

func leaseAuth(_ context.Context, s *server, token string, job fairlead.JobID) (caller, error) {
	h, err := s.Control.AuthenticateJob(token, identity.Lease, job)
	return caller{holder: h}, err
}

// op describes a route beyond its path.
type op struct {
	wire.Route
	auth    auth
	summary string
	tag     string
	status  int           // of success; 0: 200
	body    int64         // largest body; 0: MaxBody
	read    time.Duration // how long the body may take; 0: 15 s
	errors  []int
}

// register serves a route. The caller is known before anything of the request
// is looked at.
func register[I, O any](s *server, o op, fn func(context.Context, *I) (*O, error)) {
	h := huma.Operation{OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.summary, Tags: []string{o.tag},
		DefaultStatus: o.status, MaxBodyBytes: o.body, BodyReadTimeout: o.read}
	if h.MaxBodyBytes == 0 {
		h.MaxBodyBytes = MaxBody
	}
	if h.BodyReadTimeout == 0 {
		h.BodyReadTimeout = 15 * time.Second
	}
	if reflect.ValueOf(o.auth).Pointer() != reflect.ValueOf(auth(noAuth)).Pointer() {
		h.Security = []map[string][]string{{"bearer": {}}}
		h.Middlewares = huma.Middlewares{s.authenticate(o.auth)}
	}
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Problem](), true, "Problem")
	h.Responses = map[string]*huma.Response{"default": {Description: "A problem",
		Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schema}}}}
	huma.Register(s.api, h, func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err != nil {
			return nil, s.fail(ctx, o.ID, err)
		}
		return out, nil
	})
}

// fail logs what is a fault of ours and returns what the caller may see.
func (s *server) fail(ctx context.Context, operation string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// The caller is gone, or the server stops: then it is told to come back.
		err = &fairlead.Error{Kind: fairlead.KindUnavailable, Code: "interrupted", Message: "the request was interrupted",
			Hint: "Repeat it.", Err: err}
	}
	p := newProblem(err, requestID(ctx))
	if p.Status >= 500 && ctx.Err() == nil {
		s.Logger.Error("a request failed", "request", p.RequestID, "operation", operation, "error", err)
	}
	return p
}

func (s *server) authenticate(a auth) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		token, _ := strings.CutPrefix(ctx.Header("Authorization"), "Bearer ")
		c, err := a(ctx.Context(), s, token, fairlead.JobID(ctx.Param("job")))
		if err != nil {
			p := s.fail(ctx.Context(), ctx.Operation().OperationID, err).(*problem)
			ctx.SetHeader("Content-Type", "application/problem+json")
			if p.Status == http.StatusUnauthorized {
				ctx.SetHeader("WWW-Authenticate", "Bearer")
			}
			ctx.SetStatus(p.Status)
			b, merr := p.MarshalJSON()
			if merr == nil {
				_, _ = ctx.BodyWriter().Write(b) // the client may be gone
			}
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}
}

// ListInput selects a page.
type ListInput struct {
	Cursor string `query:"cursor" maxLength:"2048" doc:"Next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Items a page"`
}

func (in ListInput) page() (control.PageQuery, error) {
	after, err := base64.RawURLEncoding.DecodeString(in.Cursor)
	if err != nil {
		return control.PageQuery{}, fairlead.Invalid("invalid-cursor", "the cursor is not one that this API gave out")
	}
	return control.PageQuery{After: string(after), Limit: in.Limit}, nil
}

func cursor(next string) string { return base64.RawURLEncoding.EncodeToString([]byte(next)) }

// OnceInput carries the key of a creating request.
type OnceInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Repeating a request with its key repeats the answer, for a day"`
}

// WaitInput lets a request wait for news.
type WaitInput struct {
	WaitSeconds int `query:"wait_seconds" minimum:"0" maximum:"20" doc:"How long to wait for news"`
}

func (in WaitInput) wait() time.Duration { return time.Duration(in.WaitSeconds) * time.Second }

// body is an answer with a JSON body.
type body[T any] struct{ Body T }

func answer[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, err
	}
	return &body[T]{Body: v}, nil
}

// OpenAPI returns the OpenAPI document of an API as YAML.
func OpenAPI(h http.Handler, path string) ([]byte, error) {
	rec := &bodyRecorder{statusRecorder: statusRecorder{header: http.Header{}}}
	req, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	h.ServeHTTP(rec, req)
	return rec.body.Bytes(), nil
}

type bodyRecorder struct {
	statusRecorder
	body bytes.Buffer
}

// Write keeps the body.
func (b *bodyRecorder) Write(p []byte) (int, error) { return b.body.Write(p) }
