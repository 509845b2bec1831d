package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// scheme is a way to authenticate a caller.
type scheme struct {
	name, http, doc string
	// find returns the caller that a token belongs to. job is "" on routes without one.
	find func(ctx context.Context, s *server, token string, job fairlead.JobID) (caller, error)
}

// caller is the authenticated sender of a request. The route's scheme decides which
// fields are set.
type caller struct {
	org     fairlead.OrgID
	who     access.Principal // of routes for people; org is the principal's org
	user    control.User     // who, as use cases record it
	token   string           // the credential
	session control.Session
	holder  control.Holder
	warm    control.WarmHolder
	launch  control.Launch
}

// stager returns the caller as one that stages parts; the zero Stager if it may not.
func (c caller) stager() control.Stager { return control.Stager{Attempt: c.holder, Person: c.user} }

// asker returns the caller as one whose requests are limited.
func (c caller) asker(token string) asker {
	if c.org != "" {
		return asker{token, share{c.org, true}}
	}
	return asker{token, share{c.session.Org, false}}
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// The schemes. unauthenticated is for open routes, and for routes whose body proves
// the caller's identity.
var (
	unauthenticated = scheme{}
	apiToken        = scheme{name: "apiToken", http: "bearer", doc: "An API token (`fla_…`), of a person or a tool; the token of a login (`flu_…`), of a person for hours; or the token of a service account (`flm_…`), of a program for an hour.",
		find: func(ctx context.Context, s *server, token string, _ fairlead.JobID) (caller, error) {
			who, err := s.user(ctx, token)
			return caller{org: who.Org, who: who, user: control.UserOf(who), token: token}, err
		}}
	sessionToken = scheme{name: "sessionToken", http: "bearer", doc: "A session token (`fls_…`), of one agent; for minutes.",
		find: func(ctx context.Context, s *server, token string, _ fairlead.JobID) (caller, error) {
			session, err := s.Control.AuthenticateSession(ctx, token)
			return caller{session: session}, err
		}}
	warmToken = scheme{name: "warmToken", http: "bearer", doc: "A warm token (`flw_…`), of a step that was started before its job was known; it only gets the launch token of the job that is assigned to the step.",
		find: func(ctx context.Context, s *server, token string, _ fairlead.JobID) (caller, error) {
			h, err := s.Control.AuthenticateWarm(token)
			return caller{warm: h}, err
		}}
	launchToken = scheme{name: "launchToken", http: "bearer", doc: "A launch token (`fll_…`), for the start of one epoch of one job.",
		find: func(_ context.Context, s *server, token string, job fairlead.JobID) (caller, error) {
			l, err := s.Control.AuthenticateLaunch(token, job)
			return caller{holder: l.Holder, launch: l}, err
		}}
	leaseToken = scheme{name: "leaseToken", http: "bearer", doc: "A lease token (`flj_…`), of the step that runs one epoch of one job.",
		find: func(_ context.Context, s *server, token string, job fairlead.JobID) (caller, error) {
			h, err := s.Control.AuthenticateJob(token, job, identity.Lease)
			return caller{holder: h}, err
		}}
	stateLease = scheme{name: "stateLease", http: "basic", doc: "Any user name; the state token (`flt_…`) of the start's answer as password, which is valid for the state only, or the lease token. For Terraform's http backend, which supports nothing else."}
)

// bearer returns the token of an Authorization header, or "".
func bearer(header string) string {
	name, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(name, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authenticate passes a request on if the scheme finds its caller and the caller does
// not exceed the limits of callers. The handler gets the caller in the context.
func (s *server) authenticate(k scheme, waits bool) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		token := bearer(ctx.Header("Authorization"))
		c, err := k.find(ctx.Context(), s, token, fairlead.JobID(ctx.Param("job")))
		if err != nil {
			refuse(ctx, s.fail(ctx.Context(), ctx.Operation().OperationID, err))
			return
		}
		leave, refusal := s.enter(ctx.Context(), c.asker(token), waits)
		if refusal != nil {
			refuse(ctx, refusal)
			return
		}
		defer leave()
		if at := c.who.Expires; c.who.Kind == access.Token && !at.IsZero() && at.Sub(s.Control.Now()) < expiresSoon {
			ctx.SetHeader(wire.HeaderTokenExpires, at.UTC().Format(time.RFC3339))
		}
		as := control.As(ctx.Context(), c.user.Token)
		next(huma.WithContext(ctx, context.WithValue(as, callerKey{}, c)))
	}
}

// expiresSoon is how long before the end of an API token each answer names the end. The token of a person ends on the same day anyway.
const expiresSoon = 72 * time.Hour

// enter counts a request with a valid token until the caller calls leave.
func (s *server) enter(ctx context.Context, by asker, waits bool) (leave func(), refusal *problem) {
	recognise(ctx, true)
	id := requestID(ctx)
	leave, refusal = s.Callers.enter(by, waits, id)
	if refusal == nil && by.person {
		if refusal = s.OrgRates.enter(ctx, by.org, id); refusal != nil {
			leave()
		}
	}
	return leave, refusal
}

// refuse answers with a problem before huma reads the request.
func refuse(ctx huma.Context, p *problem) {
	for name, values := range p.GetHeaders() {
		ctx.SetHeader(name, values[0])
	}
	ctx.SetHeader("Content-Type", problemContent)
	ctx.SetStatus(p.Status)
	if b, err := p.MarshalJSON(); err == nil {
		_, _ = ctx.BodyWriter().Write(b) // the client may be gone
	}
}

// challenge returns the header that tells an unauthenticated caller how to
// authenticate.
func challenge(kind string) http.Header {
	return http.Header{"Www-Authenticate": {kind + ` realm="fairlead"`}}
}
