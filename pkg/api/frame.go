package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// frame wraps a handler with what every request needs: a request id, the common
// headers of answers, a time limit of the body, and the refusal of paths and
// queries that are not text. A panic of the handler is answered with a problem.
func (s *server) frame(next func(w http.ResponseWriter, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(wire.HeaderRequestID)
		if !requestIDPattern.MatchString(id) {
			id = s.IDs(fairlead.PrefixRequest)
		}
		w.Header().Set(wire.HeaderRequestID, id)
		w.Header().Set(wire.HeaderProtocol, wire.Protocol)
		w.Header().Set("Cache-Control", "no-store") // answers hold tokens and secrets
		w.Header().Set("X-Content-Type-Options", "nosniff")
		body := arrive(w, r)
		defer body.leave()
		ctx := context.WithValue(context.WithValue(r.Context(), requestIDKey{}, id), arrivalKey{}, body)
		r = r.WithContext(context.WithValue(ctx, visitKey{}, visitOf(r)))
		if !body.whole {
			r.Body = body
		}
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				s.Logger.ErrorContext(ctx, "a handler panicked", "request", id, "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				writeProblem(w, newProblem(errors.New("panic"), id))
			}
		}()
		if !isText(r.URL) {
			writeProblem(w, coded(fairlead.CodeMalformedRequest, "the path or the query is not UTF-8 text without control characters", id))
			return
		}
		next(w, r)
	})
}

// handler serves the routes.
func (s *server) handler() http.Handler {
	return s.frame(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := s.mux.Handler(r); pattern == "" || !isCanonical(r.URL) {
			s.noRoute(w, r)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// isText reports whether path and query are UTF-8 without control characters.
// Names become keys of a database, which may refuse other bytes.
func isText(u *url.URL) bool {
	if !printable(u.Path) {
		return false
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return false
	}
	for name, values := range q {
		for _, v := range append(values, name) {
			if !printable(v) {
				return false
			}
		}
	}
	return true
}

// textPattern is the regular expression of text without control characters.
const textPattern = `^[^\x00-\x1f\x7f-\x9f]*$`

var textForm = pattern.New(textPattern)

func printable(s string) bool { return utf8.ValidString(s) && textForm.MatchString(s) }

// isCanonical reports whether net/http would serve the path without a redirect.
// Redirects only help people who type URLs, so other paths are refused.
func isCanonical(u *url.URL) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// noRoute answers a request that no route serves with a problem.
func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	id := requestID(r.Context())
	probe := &statusRecorder{header: http.Header{}}
	if isCanonical(r.URL) {
		s.mux.ServeHTTP(probe, r)
	}
	if probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", probe.header.Get("Allow"))
		writeProblem(w, coded(fairlead.CodeMethodNotAllowed, clip(r.URL.Path)+" has no method "+clip(r.Method), id))
		return
	}
	writeProblem(w, coded(fairlead.CodeNoRoute, "there is nothing at "+clip(r.URL.Path), id))
}

// clip shortens a text of the request that the answer repeats.
func clip(s string) string {
	const most = 200 // bytes
	return fairlead.Clip(s, most)
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

var requestIDPattern = pattern.New(`^[A-Za-z0-9_.-]{8,64}$`)

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
