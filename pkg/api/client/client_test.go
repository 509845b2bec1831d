package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

const token = "flt_s3cret-token"

// server answers the n-th request with its n-th handler, and further requests with
// the last one. It records all requests.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func serve(t *testing.T, handlers ...http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		s.mu.Lock()
		n := len(s.requests)
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.mu.Unlock()
		handlers[min(n, len(handlers)-1)](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *server) client(t *testing.T) *client.Client { return newClient(t, s.URL) }

// newClient returns a client with the default retries and almost no pauses.
func newClient(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, token, client.Options{MaxWait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			panic(err)
		}
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func text(code int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		io.WriteString(w, body) //nolint:errcheck // the client may have gone
	}
}

// cut closes the connection before any answer.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cutInside closes the connection in the middle of a valid answer.
func cutInside(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	io.WriteString(w, `{"name":"acm`) //nolint:errcheck // it is cut anyway
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func TestRequestHasTokenAndHeaders(t *testing.T) {
	s := serve(t, answer(wire.Install{Name: "acme", State: "new"}))
	got, err := s.client(t).CreateInstall(t.Context(), wire.CreateInstallRequest{Name: "acme", App: "shop"})
	if err != nil || got.Name != "acme" || got.State != "new" {
		t.Fatalf("CreateInstall: %+v, %v", got, err)
	}
	r := s.requests[0]
	if r.Method != "POST" || r.URL.Path != "/v1/installs" || s.bodies[0] != `{"name":"acme","app":"shop"}` {
		t.Errorf("request %s %s with body %s", r.Method, r.URL, s.bodies[0])
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json",
		wire.HeaderProtocol: wire.Protocol, "User-Agent": "fairlead",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
}

// A report has a limit of bytes, and a tool's text has many of these characters.
func TestRequestDoesNotEscapeHTML(t *testing.T) {
	s := serve(t, status(http.StatusNoContent))
	if err := s.client(t).Finish(t.Context(), "job_1", wire.FinishRequest{Outcome: "failed", Message: "<a> & <b>"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.bodies[0], `"<a> & <b>"`) {
		t.Errorf("the body is %s", s.bodies[0])
	}
}

func TestRetryKeepsKeyAndBody(t *testing.T) {
	s := serve(t, cut, status(http.StatusServiceUnavailable), cutInside, answer(wire.Install{Name: "acme"}))
	c := s.client(t)
	if got, err := c.CreateInstall(t.Context(), wire.CreateInstallRequest{Name: "acme"}); err != nil || got.Name != "acme" {
		t.Fatalf("CreateInstall: %+v, %v", got, err)
	}
	if _, err := c.CreateInstall(t.Context(), wire.CreateInstallRequest{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	if s.asked() != 5 {
		t.Fatalf("%d requests, want 5", s.asked())
	}
	key := func(i int) string { return s.requests[i].Header.Get(wire.HeaderIdempotencyKey) }
	for i := range 4 {
		if key(i) == "" || key(i) != key(0) || s.bodies[i] != s.bodies[0] {
			t.Errorf("attempt %d has key %q and body %s, the first has %q and %s", i+1, key(i), s.bodies[i], key(0), s.bodies[0])
		}
	}
	if key(4) == key(0) {
		t.Error("a second CreateInstall sends the key of the first: the server would take it for a retry")
	}
}

func TestOnlySafeFailuresAreRetried(t *testing.T) {
	get := func(c *client.Client) error { _, err := c.GetInstall(context.Background(), "acme"); return err }
	approve := func(c *client.Client) error {
		_, err := c.ApproveDeployment(context.Background(), "dep_1", wire.ApproveRequest{})
		return err
	}
	for name, c := range map[string]struct {
		first http.HandlerFunc
		call  func(*client.Client) error
		tries int
	}{
		"too many requests":                  {status(429), get, 2},
		"unavailable":                        {status(503), get, 2},
		"a proxy without a server behind it": {status(502), get, 2},
		"a proxy whose server timed out":     {status(504), get, 2},
		"cut before the answer":              {cut, get, 2},
		"cut inside the answer":              {cutInside, get, 2},
		"an internal error of the server":    {status(500), get, 1},
		"a conflict":                         {status(409), get, 1},
		"locked":                             {status(423), get, 1},
		"not allowed":                        {status(403), get, 1},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, get, 1},

		"approval, unavailable":            {status(503), approve, 2},
		"approval, cut before the answer":  {cut, approve, 1},
		"approval, cut inside the answer":  {cutInside, approve, 1},
		"approval, a proxy with a timeout": {status(504), approve, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.first, answer(struct{}{}))
			err := c.call(s.client(t))
			if s.asked() != c.tries {
				t.Errorf("%d requests, want %d", s.asked(), c.tries)
			}
			if (err == nil) != (c.tries == 2) {
				t.Errorf("unexpected result: %v", err)
			}
		})
	}
}

func TestUnsentApprovalIsRetried(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dials := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	c, err := client.New("http://"+address, token, client.Options{MaxWait: time.Millisecond, HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ApproveDeployment(t.Context(), "dep_1", wire.ApproveRequest{})
	if _, ok := errors.AsType[*client.UnreachableError](err); !ok || dials != 5 {
		t.Errorf("error %v after %d connections, want an UnreachableError after 5", err, dials)
	}
	if !strings.Contains(err.Error(), address) {
		t.Errorf("the error %q does not name the server", err)
	}
}

func TestRetriesOptionLimitsRetries(t *testing.T) {
	for retries, want := range map[int]int{0: 5, 2: 3, -1: 1} {
		s := serve(t, text(503, "application/problem+json", `{"type":"urn:fairlead:problem:draining","title":"Unavailable","status":503,"detail":"the server stops"}`))
		c, err := client.New(s.URL, token, client.Options{Retries: retries, MaxWait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Meta(t.Context())
		if s.asked() != want || !client.HasCode(err, "draining") || !client.HasStatus(err, 503) {
			t.Errorf("Retries %d: %d requests, want %d; last error: %v", retries, s.asked(), want, err)
		}
	}
}

func TestLongRetryAfterIsCapped(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(503)
	}, answer(wire.Meta{Version: "1"}))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if m, err := s.client(t).Meta(ctx); err != nil || m.Version != "1" {
		t.Errorf("Meta: %+v, %v", m, err)
	}
}

func TestProblemsAreDecoded(t *testing.T) {
	full := `{"type":"urn:fairlead:problem:install-busy","title":"Conflict","status":409,"detail":"install acme is busy",
		"hint":"Wait.","request_id":"req_7","details":{"deployment":"dep_1"},"errors":[{"location":"body.name","message":"is taken"}]}`
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want client.Error
		code string
		text string
	}{
		"a problem": {text(409, "application/problem+json; charset=utf-8", full), client.Error{Problem: wire.Problem{
			Type: "urn:fairlead:problem:install-busy", Title: "Conflict", Status: 409, Detail: "install acme is busy", Hint: "Wait.",
			RequestID: "req_7", Details: map[string]string{"deployment": "dep_1"},
			Errors: []wire.FieldError{{Location: "body.name", Message: "is taken"}}}}, "install-busy", "install acme is busy; body.name is taken"},
		"a problem without a detail or status": {text(403, "application/problem+json", `{"title":"Forbidden"}`),
			client.Error{Problem: wire.Problem{Title: "Forbidden", Status: 403}}, "", "Forbidden"},
		"a problem with a false status": {text(404, "application/problem+json", `{"status":200,"detail":"fine"}`),
			client.Error{Problem: wire.Problem{Status: 404, Detail: "fine"}}, "", "fine"},
		"a web server's page": {text(404, "text/html", "<html>Not here</html>"),
			client.Error{Problem: wire.Problem{Title: "Not Found", Status: 404,
				Detail: "the server answered 404 Not Found without a reason; is this the URL of a control plane?"}}, "",
			"the server answered 404 Not Found without a reason; is this the URL of a control plane?"},
		"JSON of another kind": {text(401, "application/json", `{"detail":"hush"}`),
			client.Error{Problem: wire.Problem{Title: "Unauthorized", Status: 401,
				Detail: "the server answered 401 Unauthorized without a reason; is this the URL of a control plane?"}}, "",
			"the server answered 401 Unauthorized without a reason; is this the URL of a control plane?"},
		"a problem with invalid JSON": {text(500, "application/problem+json", `{"detail":`),
			client.Error{Problem: wire.Problem{Title: "Internal Server Error", Status: 500,
				Detail: "the server answered 500 Internal Server Error without a reason; is this the URL of a control plane?"}}, "",
			"the server answered 500 Internal Server Error without a reason; is this the URL of a control plane?"},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Operation = "get-install"
			_, err := serve(t, c.h).client(t).GetInstall(t.Context(), "acme")
			e, ok := errors.AsType[*client.Error](err)
			if !ok || !reflect.DeepEqual(*e, c.want) {
				t.Fatalf("error %#v, want %#v", err, c.want)
			}
			if e.Code() != c.code || e.Error() != c.text || !client.HasStatus(err, c.want.Status) {
				t.Errorf("code %q and text %q, want %q and %q", e.Code(), e.Error(), c.code, c.text)
			}
		})
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.HeaderRequestID, "req_9")
		w.WriteHeader(500)
	})
	_, err := s.client(t).Meta(t.Context())
	if e, ok := errors.AsType[*client.Error](err); !ok || e.RequestID != "req_9" {
		t.Errorf("the error does not have the request's ID: %#v", err)
	}
	for after, want := range map[string]time.Duration{"30": 30 * time.Second, "": 0, "-1": 0, "soon": 0} {
		c, err := client.New(serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(429)
		}).URL, token, client.Options{Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Meta(t.Context())
		if e, ok := errors.AsType[*client.Error](err); !ok || e.RetryAfter != want {
			t.Errorf("Retry-After %q: %#v, want a pause of %s", after, err, want)
		}
	}
	if client.HasCode(io.EOF, "") || client.HasStatus(nil, 0) {
		t.Error("HasCode or HasStatus accepts an error of another type")
	}
}

func TestForeignAnswerIsAnError(t *testing.T) {
	page := text(200, "text/html", "<html>Please log in to this network</html>")
	ctx := t.Context()
	for name, call := range map[string]func(*client.Client) error{
		"get":    func(c *client.Client) error { _, err := c.GetInstall(ctx, "acme"); return err },
		"finish": func(c *client.Client) error { return c.Finish(ctx, "job_1", wire.FinishRequest{}) },
		"forget": func(c *client.Client) error { return c.ForgetInstall(ctx, "acme", false) },
		"claim":  func(c *client.Client) error { _, err := c.Claim(ctx, 0, false); return err },
	} {
		if err := call(serve(t, page).client(t)); err == nil || errors.Is(err, client.ErrNoWork) || !strings.Contains(err.Error(), "not JSON of the control plane's API") {
			t.Errorf("%s accepts an HTML page: %v", name, err)
		}
	}
	if _, err := serve(t, status(204)).client(t).GetInstall(ctx, "acme"); err == nil || !strings.Contains(err.Error(), "answer is empty") {
		t.Errorf("an empty answer passes for an install: %v", err)
	}
}

func TestTokenIsNotSentToRedirects(t *testing.T) {
	elsewhere := serve(t, answer(wire.Meta{Version: "of another server"}))
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if _, err := s.client(t).Meta(t.Context()); !client.HasStatus(err, 307) {
		t.Errorf("error %v, want one with status 307", err)
	}
	if elsewhere.asked() != 0 {
		t.Errorf("the other server received the authorization %q", elsewhere.requests[0].Header.Get("Authorization"))
	}
}

func TestNoErrorHoldsTheToken(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	echo := func(w http.ResponseWriter, r *http.Request) { // a debugging proxy's page
		text(418, "text/plain", r.Header.Get("Authorization"))(w, r)
	}
	for name, url := range map[string]string{
		"no server": closed.URL, "a page with the token": serve(t, echo).URL, "cut": serve(t, cut).URL,
		"not JSON": serve(t, text(200, "text/plain", token)).URL,
	} {
		_, err := newClient(t, url).GetInstall(t.Context(), "acme")
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		for _, s := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
			if strings.Contains(s, token) {
				t.Errorf("%s: the error holds the token: %s", name, s)
			}
		}
	}
	c, err := client.New(closed.URL, token+"\n", client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Meta(t.Context()); err == nil || strings.Contains(err.Error(), token) {
		t.Errorf("a token that is not a valid header value: %v", err)
	}
	for _, url := range []string{"https://user:hush@host", "https://host?token=hush", "https://host/#hush"} {
		if _, err := client.New(url, token, client.Options{}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("New(%s): %v", url, err)
		}
	}
}

func TestControlPlaneURLsAreChecked(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://localhost:8080": true, "https://fairlead.example.com/": true, "https://example.com/fairlead//": true,
		"": false, "localhost:8080": false, "ftp://host": false, "https://": false, "/v1": false, "http://[": false,
	} {
		c, err := client.New(url, "", client.Options{})
		if (err == nil) != ok {
			t.Errorf("New(%q): %v", url, err)
		}
		if c != nil && strings.HasSuffix(c.URL(), "/") {
			t.Errorf("%q becomes %q: paths would start with two slashes", url, c.URL())
		}
	}
}

func TestCanceledContextIsReturnedUnwrapped(t *testing.T) {
	for name, h := range map[string]func(stop func()) http.HandlerFunc{
		"while the server waits": func(stop func()) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) { stop(); <-r.Context().Done() }
		},
		"inside an answer": func(stop func()) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, `{"name":`) //nolint:errcheck // the client may have gone
				w.(http.Flusher).Flush()
				stop()
				<-r.Context().Done()
			}
		},
		"between two attempts": func(stop func()) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503); w.(http.Flusher).Flush(); stop() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := serve(t, h(stop))
			c, err := client.New(s.URL, token, client.Options{MaxWait: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.GetInstall(ctx, "acme"); err != context.Canceled { //nolint:errorlint // not wrapped
				t.Errorf("error %v, want context.Canceled itself", err)
			}
		})
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Nanosecond)
	defer stop()
	<-ctx.Done()
	if _, err := serve(t, cut).client(t).Meta(ctx); err != context.DeadlineExceeded { //nolint:errorlint // not wrapped
		t.Errorf("error %v, want context.DeadlineExceeded itself", err)
	}
}

func TestAnswerSizeIsLimited(t *testing.T) {
	plan := bytes.Repeat([]byte("0123456789abcdef"), 33<<20/16)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		if strings.HasSuffix(r.URL.Path, "/plan") {
			w.Header().Set("Content-Length", strconv.Itoa(len(plan)))
		}
		w.Write(plan) //nolint:errcheck // the client may have gone
	})
	got, err := s.client(t).GetPlan(t.Context(), "job_1")
	if err != nil || !bytes.Equal(got, plan) {
		t.Errorf("received %d of %d bytes, %v", len(got), len(plan), err)
	}
	// The same size exceeds the limit of JSON answers.
	if _, err := s.client(t).GetJob(t.Context(), "job_1"); err == nil || !strings.Contains(err.Error(), "larger than 33554432 bytes") {
		t.Errorf("JSON answer of 33 MiB: %v", err)
	}
	if s.asked() != 2 {
		t.Errorf("%d requests, want 2: too large answers are not retried", s.asked())
	}
	announced := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "134217729")
		w.WriteHeader(200)
	})
	if _, err := announced.client(t).GetPlan(t.Context(), "job_1"); err == nil || !strings.Contains(err.Error(), "larger than 134217728 bytes") || announced.asked() != 1 {
		t.Errorf("too large plan: error %v after %d requests", err, announced.asked())
	}
}

func TestNameCannotChangeTheRoute(t *testing.T) {
	s := serve(t, answer(wire.Install{}))
	c := s.client(t)
	for name, path := range map[string]string{
		"acme": "/v1/installs/acme", "a/b": "/v1/installs/a%2Fb", "../apps": "/v1/installs/..%2Fapps",
		"a?b=c": "/v1/installs/a%3Fb=c", "{component}": "/v1/installs/%7Bcomponent%7D", "a b#c": "/v1/installs/a%20b%23c",
	} {
		before := s.asked()
		if _, err := c.GetInstall(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if got := s.requests[before].URL.EscapedPath(); got != path {
			t.Errorf("install %q is requested at %s, want %s", name, got, path)
		}
	}
	before := s.asked()
	for _, name := range []string{"", ".", ".."} {
		if _, err := c.GetInstall(t.Context(), name); err == nil || s.asked() != before {
			t.Errorf("the client requests install %q: %v", name, err)
		}
	}
}

func TestAllPagesAreRead(t *testing.T) {
	pages := map[string]wire.Page[wire.App]{
		"":   {Items: []wire.App{{Name: "a"}, {Name: "b"}}, Next: "p2"},
		"p2": {Items: nil, Next: "p3"},
		"p3": {Items: []wire.App{{Name: "c"}}},
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { answer(pages[r.URL.Query().Get("cursor")])(w, r) })
	apps, err := client.All(t.Context(), s.client(t).ListApps)
	if err != nil || len(apps) != 3 || apps[2].Name != "c" {
		t.Errorf("All: %v, %v", apps, err)
	}

	loop := serve(t, answer(wire.Page[wire.App]{Next: "again"}))
	if _, err := client.All(t.Context(), loop.client(t).ListApps); err == nil || loop.asked() != 2 {
		t.Errorf("listing whose cursor repeats: %d requests, %v", loop.asked(), err)
	}
	failing := serve(t, answer(pages[""]), status(500))
	if apps, err := client.All(t.Context(), failing.client(t).ListApps); err == nil || apps != nil {
		t.Errorf("a listing with a failed page returns %v", apps)
	}
}

func TestWithTokenChangesOnlyTheToken(t *testing.T) {
	s := serve(t, answer(wire.Meta{}))
	c := s.client(t)
	d := c.WithToken("other")
	if _, err := d.Meta(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WithToken("").Meta(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.requests[0].Header.Get("Authorization"); got != "Bearer other" || c.Token() != token || d.Token() != "other" || d.URL() != s.URL {
		t.Errorf("the client with the other token sends %q to %s", got, d.URL())
	}
	if _, sent := s.requests[1].Header["Authorization"]; sent {
		t.Error("a client without a token sends the header Authorization")
	}
}

// Formerly the client took a proxy's 404 for an answer of the control plane.
func TestProxyAnswerIsNotARefusal(t *testing.T) {
	ours := func(status int, code string) http.HandlerFunc {
		return text(status, "application/problem+json; charset=utf-8", fmt.Sprintf(`{"type":"urn:fairlead:problem:%s","title":"x","status":%d}`, code, status))
	}
	for name, tt := range map[string]struct {
		answer           http.HandlerFunc
		foreign, refused bool
	}{
		"an ingress without a backend":    {text(404, "text/plain", "default backend - 404"), true, false},
		"a firewall":                      {text(403, "text/html", "<html>"), true, false},
		"API Gateway, unknown route":      {text(404, "application/json", `{"message":"Not Found"}`), true, false},
		"API Gateway, forbidden":          {text(403, "application/json", `{"message":"Forbidden"}`), true, false},
		"API Gateway, too large":          {text(413, "application/json", `{"message":"Request Too Long"}`), true, false},
		"a redirect":                      {status(302), true, false},
		"another API's problem":           {text(409, "application/problem+json", `{"type":"https://example.com/stale-epoch","title":"x"}`), true, false},
		"a problem without a type":        {text(409, "application/problem+json", `{"title":"Conflict"}`), true, false},
		"a type without a code":           {ours(409, ""), true, false},
		"a problem as another media type": {text(409, "text/html", `{"type":"urn:fairlead:problem:stale-epoch"}`), true, false},
		"a control plane without a route": {ours(404, "no-route"), true, false},
		"a route without the method":      {ours(405, "method-not-allowed"), true, false},
		"a stale epoch":                   {ours(409, "stale-epoch"), false, true},
		"an unknown token":                {ours(401, "unauthenticated"), false, true},
		"an unknown code":                 {ours(410, "gone-fishing"), false, true},
		"a full disk":                     {ours(507, "disk-full"), false, false},
		"an internal error":               {ours(500, "internal"), false, false},
		"a body that arrived too slowly":  {ours(408, "request-timeout"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, tt.answer).client(t).GetJob(t.Context(), "job_1")
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Foreign() != tt.foreign || client.Refused(err) != tt.refused {
				t.Errorf("error %v: foreign %v, refused %v", err, ok && e.Foreign(), client.Refused(err))
			}
		})
	}
	if client.Refused(nil) || client.Refused(io.EOF) {
		t.Error("Refused accepts an error that is not an answer")
	}
}
