// Package api serves the two HTTP APIs of the control plane: the control API, for
// people and their tools, and the runner API, for agents and steps. Each API is one
// http.Handler with an OpenAPI 3.1 document generated from its routes.
// Handlers only translate between HTTP and package control, which makes all decisions.
//
// docs/openapi and docs/reference/problems.md are generated from this package.
package api

//go:generate env UPDATE_GOLDEN=1 go test -run TestCommittedDocumentsMatchHandlers .

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Options of the handlers. Control, Logger and IDs are required.
type Options struct {
	Control  *control.Control
	Registry string // host:port of the artifact registry, as callers reach it
	// Audiences are the hosts at which agents reach this control plane (awsiam.Audience). The
	// first is the current one; agents that were installed earlier use the others. Empty: no
	// agent can prove an AWS role.
	Audiences []string
	Stack     StackSource       // where customers find the template and image of a runner stack
	Version   string            // of the control plane
	IDs       fairlead.IDSource // makes the ids of requests that have none
	Logger    *slog.Logger
	MaxBody   int       // the largest body that the component in front of this server accepts, in bytes: callers stage larger ones in parts; 0: every body
	Callers   *Callers  // limits callers, across all handlers; nil: no limits, because a component in front of this server limits callers
	OrgRates  *OrgRates // limits each org across processes; nil: this is the only process, or it serves no people
}

// MaxBody is the largest JSON body of a request, in bytes. Routes that accept
// more (logs, state, plans) have their own limits.
const MaxBody = 4 << 20

// documentVersion is the version of the APIs that the documents describe. It
// changes with the APIs, not with each build.
const documentVersion = "1"

// server holds what the handlers of one API share.
type server struct {
	Options
	mux    *http.ServeMux
	config func() huma.Config
	// stager returns the caller of a token that gets answers in parts.
	stager func(ctx context.Context, token string) (control.Stager, error)
	// largeAnswers reports whether an answer of the route can be larger than a front end accepts.
	largeAnswers func(wire.Route) bool
	routes       []func(huma.API) // each adds a route
	descriptions []func(huma.API) // each completes the description of a route in the document
}

// ControlHandler returns the control API.
func ControlHandler(o Options) http.Handler { return newControlServer(o).handler() }

// RunnerHandler returns the runner API.
func RunnerHandler(o Options) http.Handler { return newRunnerServer(o).handler() }

func newControlServer(o Options) *server {
	s := newServer(o, "Fairlead control API", "/v1/openapi",
		"For people and their tools. Requests carry an API token. "+conventions, apiToken)
	s.largeAnswers = func(wire.Route) bool { return true }
	s.stager = func(ctx context.Context, token string) (control.Stager, error) {
		c, err := apiToken.find(ctx, s, token, "")
		return c.stager(), err
	}
	s.controlRoutes()
	return s
}

func newRunnerServer(o Options) *server {
	s := newServer(o, "Fairlead runner API", "/runner/v1/openapi",
		"For agents and steps. An enrolment token buys an identity, a proof of identity buys a session, a session claims jobs, "+
			"a launch token buys the spec of one job, and a lease token speaks for one epoch of it. "+conventions,
		sessionToken, warmToken, launchToken, leaseToken, stateLease)
	s.largeAnswers = func(r wire.Route) bool { return slices.Contains(largeAnswers, r.ID) }
	s.stager = func(_ context.Context, token string) (control.Stager, error) {
		h, err := s.attemptOf(token, "")
		return control.Stager{Attempt: h}, err
	}
	s.runnerRoutes()
	s.stateRoutes()
	return s
}

// conventions hold for both APIs.
const conventions = "Every error is an RFC 9457 problem whose `type` is stable; docs/reference/problems.md says what each means and what to do. " +
	"Every answer carries X-Request-Id: the caller's, if it is 8 to 64 letters, digits, dots, hyphens or underscores, and else a new one."

func newServer(o Options, title, openapi, description string, schemes ...scheme) *server {
	s := &server{Options: o, mux: http.NewServeMux()}
	s.config = func() huma.Config {
		cfg := huma.DefaultConfig(title, documentVersion)
		cfg.Info.Description = description
		cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", "" // huma's documentation page would load scripts from another host
		cfg.CreateHooks = nil                                       // no $schema links in answers
		cfg.RejectUnknownQueryParameters = true
		format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decode}
		cfg.Formats = map[string]huma.Format{"application/json": format, "json": format}
		cfg.Transformers = []huma.Transformer{func(ctx huma.Context, _ string, v any) (any, error) {
			if m, ok := v.(*huma.ErrorModel); ok {
				return fromHuma(m, requestID(ctx.Context())), nil
			}
			return v, nil
		}}
		cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{}
		for _, k := range schemes {
			cfg.Components.SecuritySchemes[k.name] = &huma.SecurityScheme{Type: "http", Scheme: k.http, Description: k.doc}
		}
		return cfg
	}
	s.serveDocument(openapi)
	return s
}

// route registers a route and builds its handler at its first request. Building
// all handlers takes longer than the rest of a server's start, and a Lambda
// function often starts to serve only one request.
func (s *server) route(r wire.Route, add func(huma.API)) {
	s.routes = append(s.routes, add)
	serve := sync.OnceValue(func() http.Handler {
		mux := http.NewServeMux()
		add(humago.New(mux, s.config()))
		return mux
	})
	handle := func(w http.ResponseWriter, r *http.Request) { serve().ServeHTTP(w, r) }
	if s.largeAnswers(r) {
		handle = s.inParts(handle)
	}
	s.mux.HandleFunc(r.Method+" "+r.Path, handle)
}
