package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// network carries requests to the servers.
type network struct{ w *world }

func newNetwork(w *world) *network { return &network{w} }

// link is the connection of one process to the control plane. It implements
// http.RoundTripper.
type link struct {
	p    *process
	host *host // nil: a person's client, whose network is never cut
	role string
	step *stepProcess // the step that uses the link; nil: no step
	// fast and slow are the shortest and longest time of a message in one direction.
	fast, slow time.Duration
}

// headerTimeout is the longest wait for an answer, as in the real transports.
const headerTimeout = 60 * time.Second

// errCut is the caller's error for a broken connection.
var errCut = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// route names a request by its method and path, without identifiers.
func route(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, p := range parts {
		if strings.Contains(p, "_") {
			parts[i] = "*"
		}
	}
	return r.Method + " /" + strings.Join(parts, "/")
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	w, p := l.p.w, l.p
	place := w.place(p.name, route(req))
	p.check(place)
	w.mu.Lock()
	w.stats.Requests++
	w.mu.Unlock()
	var body []byte
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		body = b
	}
	if ofCloud(req) {
		return l.cloud(req, body, place)
	}
	if l.role != "" && w.fault(place+" before", l.role+"-dies-before-request") != "" {
		p.kill()
		p.check(place)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), headerTimeout+time.Duration(len(body)), errors.New("no answer within a minute"))
	defer cancel()
	possible := []string{"request-lost", "request-cut", "request-repeated", "request-delayed", "answer-lost", "answer-cut", "answer-delayed"}
	if l.role != "" {
		// This fault does not occur for a tool. A real tool's http backend treats each
		// answer 404 as a missing state. The runner cannot prevent this, and the model
		// of the tool does not do it.
		possible = append(possible, "request-refused-by-others")
	} else if req.Method == http.MethodDelete {
		possible = append(possible, "release-repeated")
	}
	fault := w.fault(place, possible...)
	res, err := l.exchange(ctx, req, body, place, fault)
	p.check(place)
	if l.role != "" && w.fault(place+" after", l.role+"-dies-after-request") != "" {
		p.kill()
		p.check(place)
	}
	if err != nil && req.Context().Err() != nil {
		err = req.Context().Err()
	}
	if err != nil {
		w.note("%s: %v", place, err)
		return nil, err
	}
	w.note("%s: %d", place, res.StatusCode)
	if l.step != nil && refusesLease(req, res.StatusCode) {
		l.step.fenced()
	}
	res.Request = req
	return res, nil
}

func (l *link) exchange(ctx context.Context, req *http.Request, body []byte, place, fault string) (*http.Response, error) {
	w := l.p.w
	if err := l.travel(ctx, "there "+place, fault == "request-delayed"); err != nil {
		return nil, err
	}
	if fault == "request-lost" {
		return nil, errCut
	}
	if fault == "request-refused-by-others" {
		res := w.other(place)
		if err := l.travel(ctx, "back "+place, false); err != nil {
			return nil, err
		}
		return res.response(int64(len(res.body))), nil
	}
	srv := w.pick(place)
	if srv == nil {
		return nil, errRefused
	}
	in := arrival{req: req, body: body, place: place}
	switch fault {
	case "request-cut":
		in.cut = w.intn("cut "+place, len(body)+1)
		in.isCut = true
	case "request-repeated", "release-repeated":
		// A proxy sends the same request a second time, because the first answer took too
		// long. The caller gets the first answer. The second release of a state lock comes so
		// late that the next job of the component may hold the lock.
		low, high := time.Millisecond, 20*time.Second
		if fault == "release-repeated" {
			low, high = time.Second, 90*time.Second
		}
		go func() {
			t := time.NewTimer(w.between("again "+place, low, high))
			defer t.Stop()
			select {
			case <-t.C:
			case <-w.ended:
				return
			}
			if again := w.pick("again " + place); again != nil {
				again := again
				repeated := in
				repeated.place = "again " + place
				bounded, cancel := context.WithTimeout(context.Background(), headerTimeout)
				defer cancel()
				again.serve(bounded, repeated)
			}
		}()
	}
	if fault == "answer-lost" {
		// The connection breaks while the server handles the request, or after the server
		// has answered.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.between("breaks "+place, time.Millisecond, 30*time.Second))
		defer cancel()
		srv.serve(bounded, in)
		return nil, errCut
	}
	res := srv.serve(ctx, in)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if res == nil {
		return nil, errCut
	}
	if err := l.travel(ctx, "back "+place, fault == "answer-delayed"); err != nil {
		return nil, err
	}
	if fault == "answer-cut" && len(res.body) > 0 {
		whole := res.body
		res.body = whole[:w.intn("cut "+place, len(whole))]
		return res.response(int64(len(whole))), nil
	}
	return res.response(int64(len(res.body))), nil
}

// other returns the answer of a server between a runner and its control plane, such as a
// firewall, an ingress without a backend, or a proxy.
func (w *world) other(place string) *answer {
	status := []int{http.StatusForbidden, http.StatusNotFound, http.StatusBadGateway}[w.intn("other "+place, 3)]
	return &answer{header: http.Header{"Content-Type": {"text/html"}}, status: status, body: []byte("<html><body>" + http.StatusText(status) + "</body></html>")}
}

// travel sleeps for the time that a message needs in one direction. If the network of the
// caller's host drops packets, travel waits until this fault or ctx ends.
func (l *link) travel(ctx context.Context, place string, delayed bool) error {
	w := l.p.w
	d := w.between("time "+place, l.fast, l.slow)
	if delayed {
		d = w.between("delay "+place, time.Second, 50*time.Second)
	}
	for {
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-l.p.dead:
			t.Stop()
			l.p.check(place)
		}
		l.p.check(place)
		var cut cutting
		if l.host != nil {
			cut = l.host.cutNow()
		}
		switch cut {
		case refusing:
			return errRefused
		case swallowing:
			d = w.between("retransmit "+place, 100*time.Millisecond, 2*time.Second)
			continue
		}
		return nil
	}
}

// arrival is a request as a server gets it.
type arrival struct {
	req   *http.Request
	body  []byte
	place string
	isCut bool
	cut   int // number of bytes that arrive, if isCut is true
}

// answer records the response of a handler.
type answer struct {
	header http.Header
	status int
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)
	return len(b), nil
}

// SetReadDeadline is for http.ResponseController. It does nothing: bodies arrive complete, so
// no deadline passes.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController. It does nothing.
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

func (a *answer) response(length int64) *http.Response {
	var body io.Reader = bytes.NewReader(a.body)
	if length > int64(len(a.body)) {
		body = io.MultiReader(body, failing{io.ErrUnexpectedEOF})
	}
	return &http.Response{StatusCode: a.status, Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: a.header, Body: io.NopCloser(body), ContentLength: length}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// site is the origin of calls to the models: a request or a sweep.
type site struct {
	name  string
	stale string // why the control plane must refuse the request; "": it may accept the request
	locks bool   // by holds the lock of a state when the request arrives
	sweep bool   // a sweep makes the call
	by    holder // the attempt that sends the request, or whose death the request reports; zero: no attempt
}

type siteKey struct{}

// serve handles a request in a goroutine of the server and returns the answer. It returns nil
// if ctx or the server ends first, or if the request does not arrive completely.
func (s *server) serve(ctx context.Context, in arrival) *answer {
	by, stale := s.p.w.staleness(in.req)
	if by.job == "" {
		by = reportedDead(in.req, in.body)
	}
	here := site{name: in.place, stale: stale, by: by, locks: s.p.w.locks(by)}
	connection, hangUp := context.WithCancel(context.WithValue(s.p.ctx, siteKey{}, here))
	defer hangUp() // net/http also cancels the context when the client closes the connection
	req := in.req.Clone(connection)
	req.RequestURI, req.RemoteAddr = req.URL.RequestURI(), "192.0.2.1:1234"
	var body io.Reader = bytes.NewReader(in.body)
	if in.isCut {
		body = io.MultiReader(bytes.NewReader(in.body[:in.cut]), failing{io.ErrUnexpectedEOF})
	}
	req.Body, req.ContentLength = io.NopCloser(body), int64(len(in.body))
	out := &answer{header: http.Header{}}
	done := make(chan bool, 1)
	go func() {
		deepen()
		finished := false
		defer func() { done <- finished }()
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				s.p.w.violate("no-panic", "%s: %v\n%s", in.place, v, debug.Stack())
			}
		}()
		s.handler.ServeHTTP(out, req)
		out.WriteHeader(http.StatusOK)
		finished = true
	}()
	select {
	case finished := <-done:
		if !finished || in.isCut || !s.p.alive() {
			return nil
		}
		s.p.w.answered(in.req, out, here)
		return out
	case <-ctx.Done():
		return nil
	case <-s.p.dead:
		return nil
	}
}

// deepen grows the stack of a new goroutine to the size that a request needs. Without deepen,
// the runtime copies the stack three times, which takes a tenth of a run's time.
//
//go:noinline
func deepen() (sum byte) {
	var room [24 << 10]byte
	for i := 0; i < len(room); i += 4 << 10 {
		sum += room[i]
	}
	return sum
}
