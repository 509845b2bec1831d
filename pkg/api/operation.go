package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// op describes a route beyond its path.
type op struct {
	wire.Route
	auth     scheme
	may      rule // who may call it
	summary  string
	doc      string // text after the summary; may be empty
	tag      string
	status   int           // of success; 0: 200
	none     string        // what an answer 204 without a body means; "": there is no such answer
	body     int64         // largest body in bytes; 0: MaxBody
	read     time.Duration // how long the body may take; 0: bodyTime
	problems codes         // beyond those of every route
}

// register serves a route. It authenticates the caller before it looks at the rest
// of the request, and evaluates the route's rule before it calls fn.
func register[I, O any](s *server, o op, fn func(context.Context, *I) (*O, error)) {
	checkRule[I](o)
	s.route(o.Route, func(a huma.API) {
		h := huma.Operation{OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.summary, Description: o.doc,
			Tags: []string{o.tag}, DefaultStatus: o.status,
			// takeBody has read the body before huma asks for it.
			MaxBodyBytes: -1, BodyReadTimeout: -1}
		t := reflect.TypeFor[I]()
		h.Security = []map[string][]string{{}}
		if o.auth.find != nil {
			h.Security = []map[string][]string{{o.auth.name: {}}}
			h.Middlewares = append(h.Middlewares, s.authenticate(o.auth, waits(t)))
		}
		if names := valuedQueries(t); len(names) > 0 {
			h.Middlewares = append(h.Middlewares, refuseEmpty(names))
		}
		if hasBody(t) {
			h.Middlewares = append(h.Middlewares, s.takeBody(cmp.Or(o.body, MaxBody), cmp.Or(o.read, bodyTime)))
		}
		h.Responses = map[string]*huma.Response{undescribed: {}}
		huma.Register(a, h, func(ctx context.Context, in *I) (*O, error) {
			if !waits(t) {
				leave, refusal := s.Callers.turn(ctx, callerOf(ctx).asker("").share, requestID(ctx))
				if refusal != nil {
					return nil, refusal
				}
				defer leave()
			}
			err := s.permit(ctx, o, in)
			if by := callerOf(ctx).user.Token; fairlead.KindOf(err) == fairlead.KindForbidden {
				// Not in the audit: a caller without rights could fill the table.
				s.Logger.InfoContext(ctx, "a request was denied", "request", requestID(ctx), "operation", o.ID, "token", by.Token, "by", by.Name, "error", err)
			}
			var out *O
			if err == nil {
				out, err = fn(s.asked(ctx, o), in)
			}
			if err != nil {
				return nil, s.fail(ctx, o.ID, err)
			}
			return out, nil
		})
	})
	s.descriptions = append(s.descriptions, func(a huma.API) { describe(a, o, reflect.TypeFor[I]()) })
}

// asked returns a context with the request of a person or a program of the vendor, for the audit.
func (s *server) asked(ctx context.Context, o op) context.Context {
	who := callerOf(ctx).who
	if o.auth.name != apiToken.name {
		return ctx
	}
	var rights []string
	for _, r := range o.may.rights {
		rights = append(rights, string(r))
	}
	return control.Asked(ctx, control.Request{Org: who.Org, ID: requestID(ctx), Action: o.ID, Rights: rights})
}

// fail logs an error that is a fault of the control plane, and returns the problem
// for the caller.
func (s *server) fail(ctx context.Context, operation string, err error) *problem {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// The caller is gone, or the server stops and asks it to repeat the request.
		err = &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeInterrupted, Message: "the request was interrupted",
			Hint: "Repeat it.", Err: err}
	}
	p := newProblem(err, requestID(ctx))
	if p.Status == http.StatusUnauthorized {
		if refusal := s.unknown(ctx, p, err); refusal != nil {
			return refusal
		}
	}
	if p.Status >= 500 && ctx.Err() == nil {
		s.Logger.ErrorContext(ctx, "a request failed", "request", p.RequestID, "operation", operation, "error", err)
	}
	return p
}

// hasBody reports whether requests with this input type have a body.
func hasBody(input reflect.Type) bool {
	_, body := input.FieldByName("Body")
	_, raw := input.FieldByName("RawBody")
	return body || raw
}

// waits reports whether requests with this input type can be long polls.
func waits(input reflect.Type) bool {
	if body, ok := input.FieldByName("Body"); ok && body.Type.Kind() == reflect.Struct {
		if _, ok := body.Type.FieldByName("WaitSeconds"); ok {
			return true
		}
	}
	_, ok := input.FieldByName("WaitSeconds")
	return ok
}

// valuedQueries returns the query parameters that are numbers or bools. An empty
// value of these is invalid.
func valuedQueries(input reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(input) {
		takesEmpty := f.Type.Kind() == reflect.String && pattern.New(f.Tag.Get("pattern")).MatchString("")
		if name := f.Tag.Get("query"); name != "" && !takesEmpty {
			names = append(names, name)
		}
	}
	return names
}

// refuseEmpty refuses an empty value of the named parameters. huma would treat it
// as an absent parameter.
func refuseEmpty(names []string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		u := ctx.URL()
		query := u.Query()
		p := coded(fairlead.CodeInvalidRequest, "validation failed", requestID(ctx.Context()))
		for _, name := range names {
			if slices.Contains(query[name], "") {
				p.Errors = append(p.Errors, wire.FieldError{Location: "query." + name, Message: "the value is empty"})
			}
		}
		if len(p.Errors) > 0 {
			refuse(ctx, p)
			return
		}
		next(ctx)
	}
}

// takeBody reads the whole body, at most limit bytes, before huma does. There are
// three reasons: huma refuses a body of exactly its limit; huma reports a body that
// breaks off as a fault of the server; and huma leaves its read deadline on the
// connection, where the deadline cancels the context of a handler that waits.
func (s *server) takeBody(limit int64, timeout time.Duration) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		id := requestID(ctx.Context())
		if p := checkContentType(ctx, id); p != nil {
			refuse(ctx, p)
			return
		}
		data, done, staged, err := s.staged(ctx.Context(), callerOf(ctx.Context()).stager(), ctx.Header, limit)
		if err != nil {
			refuse(ctx, s.fail(ctx.Context(), ctx.Operation().OperationID, err))
			return
		}
		if !staged {
			var p *problem
			if data, p = readWhole(ctx.BodyReader(), ctx.SetReadDeadline, limit, timeout, id); p != nil {
				refuse(ctx, p)
				return
			}
		}
		next(&withBody{humaContext: ctx, body: bytes.NewReader(data)})
		if ctx.Status() < http.StatusMultipleChoices {
			done()
		}
	}
}

// withBody is a request whose body has been read.
type withBody struct {
	humaContext
	body io.Reader
}

// humaContext is another name of huma.Context: an embedded field named Context would
// hide the method Context.
type humaContext = huma.Context

// BodyReader returns the body.
func (c *withBody) BodyReader() io.Reader { return c.body }

// readWhole reads a body of at most limit bytes within timeout. It treats a nil body
// as empty: a request that a test passes to the handler without a server has none.
func readWhole(body io.Reader, setDeadline func(time.Time) error, limit int64, timeout time.Duration, id string) ([]byte, *problem) {
	if body == nil || body == http.NoBody {
		return nil, nil
	}
	// With a ResponseWriter without deadlines there is no time limit.
	_ = setDeadline(time.Now().Add(timeout)) // arrival removes it at the end of the body
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	return data, bodyProblem(err, int64(len(data)), limit, id)
}

// bodyProblem returns the problem of a body, or nil. size is the number of bytes that
// were read, and err the error of the reading.
func bodyProblem(err error, size, limit int64, id string) *problem {
	ne, isNet := errors.AsType[net.Error](err)
	switch {
	case size > limit:
		return coded(fairlead.CodeBodyTooLarge, "the body has more than "+bytesOf(limit), id)
	case isNet && ne.Timeout():
		return coded(fairlead.CodeRequestTimeout, "the body did not arrive in time", id)
	case err != nil:
		return coded(fairlead.CodeMalformedRequest, "the body broke off, or is not encoded as its header says", id)
	}
	return nil
}

func checkContentType(ctx huma.Context, id string) *problem {
	given := ctx.Header("Content-Type")
	if given == "" {
		return nil // assume the media type of the route
	}
	media, _, err := mime.ParseMediaType(given)
	var takes []string
	for t := range ctx.Operation().RequestBody.Content {
		if t == media && err == nil {
			return nil
		}
		takes = append(takes, t)
	}
	slices.Sort(takes)
	return coded(fairlead.CodeUnsupportedMediaType, "the body is to be "+strings.Join(takes, " or "), id)
}

// CursorInput holds the cursor of a listing's next page.
type CursorInput struct {
	Cursor string `query:"cursor" maxLength:"2048" form:"cursor" doc:"The field next of the previous page"`

	query url.Values // the whole query of the request
}

// Resolve implements huma.Resolver: it keeps the query, which the link to the next
// page repeats.
func (in *CursorInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	in.query = u.Query()
	return nil
}

// IDInput selects items by a prefix of their identifier.
type IDInput struct {
	ID string `query:"id" maxLength:"30" pattern:"^(dep|job)_[0-9a-z]*$" doc:"Only items whose identifier begins with this"`
}

// ListInput selects a page.
type ListInput struct {
	CursorInput
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Items a page"`
}

// cursorPattern is the regular expression of a cursor: URL-safe base64 without padding.
const cursorPattern = `^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?$`

func (in ListInput) page() (fairlead.PageQuery, error) {
	after, err := base64.RawURLEncoding.DecodeString(in.Cursor)
	if err != nil || strings.ContainsAny(in.Cursor, "\r\n") { // the decoder ignores these characters
		return fairlead.PageQuery{}, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeBadCursor,
			Message: "this API did not make the cursor", Hint: "Start again from the first page."}
	}
	return fairlead.PageQuery{After: string(after), Limit: in.Limit}, nil
}

// paged is an answer with one page of a listing.
type paged[T any] struct {
	Link string `header:"Link" doc:"The next page, by RFC 8288: rel is next, and the reference is relative to the URL of this page. Absent on the last page"`
	Body wire.Page[T]
}

func cursor(next string) string { return base64.RawURLEncoding.EncodeToString([]byte(next)) }

// OnceInput holds the idempotency key of a request that creates something.
type OnceInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"For one day, a repeated request with the same key gets the same answer"`
}

// WaitInput makes a request a long poll.
type WaitInput struct {
	WaitSeconds int `query:"wait_seconds" minimum:"0" maximum:"20" doc:"Longest wait for a change"`
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

// problemContent is the media type of a problem.
const problemContent = "application/problem+json"
