// Package proxy makes requests to a control plane fail: it answers instead of the control
// plane, drops or changes answers, holds requests, and breaks connections.
package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// patience is how long a test waits for a required request before it fails. It is long,
// because no passing test waits for it.
const patience = time.Minute

// Proxy is a handler in front of the control plane's handler. Safe for concurrent use.
type Proxy struct {
	next http.Handler

	mu     sync.Mutex
	down   bool
	faults []*fault // the newest first
	holds  []*Hold
}

// Match reports whether a request is selected.
type Match func(*http.Request) bool

// Fault returns a handler that fails a request. The handler answers itself, or calls next and
// changes or drops the answer.
type Fault func(next http.Handler) http.Handler

type fault struct {
	match Match
	left  int // number of further requests to fail; below 0: all requests
	do    Fault
}

// New returns a proxy that passes all requests to next.
func New(next http.Handler) *Proxy { return &Proxy{next: next} }

// To returns a handler that forwards requests to the server at the URL target. If the server
// does not answer, it breaks the connection.
func To(t testing.TB, target string) http.Handler {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
		FlushInterval: -1,
		Transport:     &http.Transport{DisableKeepAlives: true}, // after a restart, no request may use a connection to the old process
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	down, f, h := p.find(r)
	if down {
		panic(http.ErrAbortHandler)
	}
	next := p.next
	if f != nil {
		next = f(next)
	}
	if h == nil {
		next.ServeHTTP(w, r)
		return
	}
	if !h.answers {
		h.wait(r)
		next.ServeHTTP(w, r)
		return
	}
	answer := Record(w)
	next.ServeHTTP(answer, r)
	h.wait(r)
	answer.Send()
}

// find returns the fault and the hold that apply to a request. A result is nil if no fault or no
// hold applies.
func (p *Proxy) find(r *http.Request) (down bool, do Fault, held *Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return true, nil, nil
	}
	for _, f := range p.faults {
		if f.left != 0 && f.match(r) {
			f.left--
			do = f.do
			break
		}
	}
	for _, h := range p.holds {
		if h.match(r) {
			return false, do, h
		}
	}
	return false, do, nil
}

// SetDown breaks every new request's connection, or lets requests pass again.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// Fail applies a fault to the next n requests that match, or to all if n is below 0, until
// remove is called. If several faults match a request, the newest one applies.
func (p *Proxy) Fail(match Match, n int, do Fault) (remove func()) {
	f := &fault{match: match, left: n, do: do}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append([]*fault{f}, p.faults...)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		f.left = 0
	}
}

// Hide answers the requests of a route with a 404 page, as another proxy might, until show is
// called.
func (p *Proxy) Hide(route wire.Route) (show func()) {
	return p.Fail(Route(route), -1, Answer(http.StatusNotFound, "text/html", "<h1>Not found</h1>"))
}

// Any matches every request.
func Any(*http.Request) bool { return true }

// Route matches the requests of a route.
func Route(route wire.Route) Match { return RouteOf(route, "") }

// RouteOf matches the requests of a route whose path has the identifier id. If id is "", it
// matches all requests of the route.
func RouteOf(route wire.Route, id string) Match {
	want := strings.Split(route.Path, "/")
	return func(r *http.Request) bool {
		got := strings.Split(r.URL.Path, "/")
		if r.Method != route.Method || len(got) != len(want) {
			return false
		}
		named := id == ""
		for i := range want {
			switch {
			case strings.HasPrefix(want[i], "{"):
				named = named || got[i] == id
			case want[i] != got[i]:
				return false
			}
		}
		return named
	}
}

// Answer answers instead of the control plane.
func Answer(status int, contentType, body string) Fault {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body)) // the caller may have closed the connection
		})
	}
}

// Lose passes the request to the control plane and drops the answer.
func Lose(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(Record(w), r)
		panic(http.ErrAbortHandler)
	})
}

// Cut breaks the connection after a part of an answer.
func Cut(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte(`{"id":`))
		panic(http.ErrAbortHandler)
	})
}

// Before calls f with a request before the control plane gets the request. f may change the request.
func Before(f func(*http.Request)) Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f(r)
			next.ServeHTTP(w, r)
		})
	}
}

// Change makes f change the bodies of the control plane's successful answers.
func Change(f func(body []byte) []byte) Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := Record(w)
			next.ServeHTTP(answer, r)
			if answer.Code < 300 {
				changed := f(answer.Body.Bytes())
				answer.Body.Reset()
				answer.Body.Write(changed)
				answer.Header().Del("Content-Length")
			}
			answer.Send()
		})
	}
}

// Recorder keeps an answer until Send. Deadlines apply to the connection of the original
// writer.
type Recorder struct {
	*httptest.ResponseRecorder
	w http.ResponseWriter
}

// Record returns a Recorder for an answer to w.
func Record(w http.ResponseWriter) Recorder { return Recorder{httptest.NewRecorder(), w} }

// Unwrap is for http.ResponseController.
func (a Recorder) Unwrap() http.ResponseWriter { return a.w }

// Send sends the answer.
func (a Recorder) Send() {
	for name, values := range a.Header() {
		a.w.Header()[name] = values
	}
	a.w.WriteHeader(a.Code)
	_, _ = a.w.Write(a.Body.Bytes()) // the caller may have closed the connection
}

// Hold holds every matching request, or the answer to every matching request.
type Hold struct {
	p       *Proxy
	match   Match
	answers bool
	arrived chan struct{}
	let     chan struct{}
	drop    chan struct{}
	once    sync.Once
}

// HoldRequests holds requests before the control plane gets them.
func (p *Proxy) HoldRequests(match Match) *Hold { return p.hold(false, match) }

// HoldAnswers lets requests pass and holds the control plane's answers.
func (p *Proxy) HoldAnswers(match Match) *Hold { return p.hold(true, match) }

func (p *Proxy) hold(answers bool, match Match) *Hold {
	h := &Hold{p: p, match: match, answers: answers, arrived: make(chan struct{}, 100), let: make(chan struct{}), drop: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// DropAll breaks the connections of all held requests and answers.
func (p *Proxy) DropAll() {
	p.mu.Lock()
	holds := p.holds
	p.mu.Unlock()
	for _, h := range holds {
		h.Drop()
	}
}

func (p *Proxy) forget(h *Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.holds {
		if x == h {
			p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
			return
		}
	}
}

// wait returns when the hold is released. It breaks the connection if the hold is dropped or
// the caller closes the connection.
func (h *Hold) wait(r *http.Request) {
	select {
	case h.arrived <- struct{}{}:
	default: // the channel is full; no test waits for more requests than the channel's capacity
	}
	select {
	case <-h.let:
	case <-h.drop:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// Arrived waits until a request or an answer is held.
func (h *Hold) Arrived(t testing.TB) {
	t.Helper()
	select {
	case <-h.arrived:
	case <-t.Context().Done():
		t.Fatal("the test ended, and no request was held")
	case <-time.After(patience):
		t.Fatalf("no request was held within %s", patience)
	}
}

// Release lets all held and all later requests pass.
func (h *Hold) Release() {
	h.p.forget(h)
	h.once.Do(func() { close(h.let) })
}

// Drop breaks the connections of the held requests and lets later requests pass.
func (h *Hold) Drop() {
	h.p.forget(h)
	h.once.Do(func() { close(h.drop) })
}
