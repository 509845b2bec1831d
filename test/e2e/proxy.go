//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Proxy is between the runner and its control plane. It can hold requests and
// answers, hide a route as a stranger's proxy does, and it also answers the
// question that the test's module asks while it is being planned. To a runner, a
// control plane that is gone is a connection that breaks. Safe for concurrent use.
type Proxy struct {
	URL string

	mu     sync.Mutex
	holds  []*Hold
	hidden func(*http.Request) bool // nil: nothing is
}

// Hold holds every request to a route, or every answer.
type Hold struct {
	p       *Proxy
	match   func(*http.Request) bool
	answers bool
	arrived chan string
	let     chan struct{}
	drop    chan struct{}
	once    sync.Once
}

func newProxy(t testing.TB, target string) *Proxy {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
		FlushInterval: -1,
		Transport:     &http.Transport{DisableKeepAlives: true}, // a new control plane must not be asked over the connections of the old
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := p.find(r)
		if h != nil && !h.answers {
			h.wait(r)
			h = nil
		}
		switch {
		case p.hides(r):
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte("<h1>Not found</h1>"))
		case strings.HasPrefix(r.URL.Path, gatePath):
			w.Write([]byte(`{"version":4,"terraform_version":"1.6.0","serial":1,"lineage":"gate","outputs":{},"resources":[]}`))
		case h != nil:
			answer := httptest.NewRecorder()
			forward.ServeHTTP(answer, r)
			h.wait(r)
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			w.Write(answer.Body.Bytes())
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	p.URL = s.URL
	t.Cleanup(func() {
		p.mu.Lock()
		holds := p.holds
		p.mu.Unlock()
		for _, h := range holds {
			h.Drop()
		}
		s.CloseClientConnections()
		s.Close()
	})
	return p
}

// gatePath is where modules ask to be let through.
const gatePath = "/gate/"

// HoldGate holds the plans of the install, in the middle of the tool's work.
func (p *Proxy) HoldGate(install string) *Hold {
	return p.hold(false, func(r *http.Request) bool { return r.URL.Path == gatePath+install })
}

// HoldRequests holds requests before the control plane has them.
func (p *Proxy) HoldRequests(route wire.Route) *Hold { return p.hold(false, matchRoute(route)) }

// HoldAnswers lets requests pass and holds what the control plane answers.
func (p *Proxy) HoldAnswers(route wire.Route) *Hold { return p.hold(true, matchRoute(route)) }

// Hide answers requests itself, with a page that says 404, until show is called.
func (p *Proxy) Hide(route wire.Route) (show func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = matchRoute(route)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hidden = nil
	}
}

func (p *Proxy) hides(r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden != nil && p.hidden(r)
}

func matchRoute(route wire.Route) func(*http.Request) bool {
	want := strings.Split(route.Path, "/")
	return func(r *http.Request) bool {
		got := strings.Split(r.URL.Path, "/")
		if r.Method != route.Method || len(got) != len(want) {
			return false
		}
		for i := range want {
			if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
				return false
			}
		}
		return true
	}
}

func (p *Proxy) hold(answers bool, match func(*http.Request) bool) *Hold {
	h := &Hold{p: p, match: match, answers: answers, arrived: make(chan string, 100), let: make(chan struct{}), drop: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

func (p *Proxy) find(r *http.Request) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		if h.match(r) {
			return h
		}
	}
	return nil
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

// wait returns when the request may go on. It breaks the connection when the
// caller has gone or the hold is dropped.
func (h *Hold) wait(r *http.Request) {
	select {
	case h.arrived <- r.URL.Path:
	default: // nobody asks for that many
	}
	select {
	case <-h.let:
	case <-h.drop:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// Arrived waits for a request, or an answer, to be held.
func (h *Hold) Arrived(t testing.TB) {
	t.Helper()
	select {
	case <-h.arrived:
	case <-t.Context().Done():
		t.Fatal("nothing came to be held")
	case <-deadline():
		t.Fatalf("nothing came to be held within %s", patience)
	}
}

// Release lets everything through, what is held and what comes.
func (h *Hold) Release() {
	h.p.forget(h)
	h.once.Do(func() { close(h.let) })
}

// Drop breaks the connections of what is held, and lets through what comes.
func (h *Hold) Drop() {
	h.p.forget(h)
	h.once.Do(func() { close(h.drop) })
}
