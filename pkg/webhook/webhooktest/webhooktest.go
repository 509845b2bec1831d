// Package webhooktest is the conformance suite of webhook.Sender.
package webhooktest

import (
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// Harness opens the sender under test.
type Harness struct {
	// Open returns a sender that uses the transport. The transport trusts the endpoints of the suite, which listen on
	// this machine.
	Open func(t *testing.T, transport http.RoundTripper) webhook.Sender
}

const secret = "0123456789abcdef0123456789abcdef"

// keys are two pairs, as after a rotation.
var keys = []webhook.Keys{{Secret: []byte(secret), Private: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}, {Secret: []byte("earlier-" + secret)[:32]}}

var message = webhook.Message{ID: "evt_1", Body: []byte(`{"specversion":"1.0"}`)}

// request is a request that an endpoint received.
type request struct {
	header http.Header
	body   string
}

// endpoint responds to each request with the status in the request's path.
type endpoint struct {
	*httptest.Server
	mu  sync.Mutex
	got []request
}

func open(t *testing.T) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		e.got = append(e.got, request{r.Header, string(b)})
		e.mu.Unlock()
		status, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			t.Errorf("the request is for %s, want a status as its path", r.URL.Path)
			status = http.StatusBadRequest
		}
		w.Header().Set("Location", e.URL+"/204")
		w.WriteHeader(status)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) all() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range []struct {
		name string
		test func(*testing.T, webhook.Sender, *endpoint)
	}{
		{"a message is delivered, signed with its time", signed},
		{"Send returns every status without an error", statuses},
		{"a repeated message has the same ID and body", repeat},
		{"an unreachable endpoint is a temporary error", gone},
		{"an invalid URL is a permanent error", never},
		{"an ended context sends nothing", ended},
		{"messages can be sent concurrently", together},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t)
			c.test(t, h.Open(t, e.Client().Transport), e)
		})
	}
}

func signed(t *testing.T, s webhook.Sender, e *endpoint) {
	if status, err := s.Send(t.Context(), e.URL+"/202", keys, message); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d, %v", status, err)
	}
	got := e.all()
	if len(got) != 1 || got[0].body != string(message.Body) {
		t.Fatalf("the endpoint received %+v", got)
	}
	header := got[0].header
	unix, err := strconv.ParseInt(header.Get(webhook.HeaderTimestamp), 10, 64)
	if err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{webhook.HeaderID: message.ID, "Content-Type": webhook.ContentType,
		webhook.HeaderSignature: webhook.Sign(keys, message, time.Unix(unix, 0))} {
		if header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, header.Get(name), want)
		}
	}
	for name, values := range header {
		if strings.Contains(strings.Join(values, " "), secret) {
			t.Errorf("header %s contains the secret", name)
		}
	}
}

func statuses(t *testing.T, s webhook.Sender, e *endpoint) {
	all := []int{200, 204, 301, 308, 400, 401, 410, 429, 500, 503}
	for _, want := range all {
		status, err := s.Send(t.Context(), e.URL+"/"+strconv.Itoa(want), keys, message)
		if err != nil || status != want {
			t.Errorf("for status %d Send returns %d, %v", want, status, err)
		}
	}
	if n := len(e.all()); n != len(all) {
		t.Errorf("%d requests for %d messages", n, len(all)) // a redirect was followed, or a request repeated
	}
}

func repeat(t *testing.T, s webhook.Sender, e *endpoint) {
	for range 2 {
		if _, err := s.Send(t.Context(), e.URL+"/500", keys, message); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.all(); got[0].body != got[1].body || got[0].header.Get(webhook.HeaderID) != got[1].header.Get(webhook.HeaderID) {
		t.Errorf("the first request is %+v, but the second is %+v", got[0], got[1])
	}
}

func gone(t *testing.T, s webhook.Sender, e *endpoint) {
	url := e.URL + "/204"
	e.Close()
	status, err := s.Send(t.Context(), url, keys, message)
	if err == nil || status != 0 || fairlead.KindOf(err) == fairlead.KindInvalid || strings.Contains(err.Error(), secret) {
		t.Errorf("%d, %v", status, err)
	}
}

func never(t *testing.T, s webhook.Sender, e *endpoint) {
	for _, url := range []string{"", "hooks", strings.Replace(e.URL, "https:", "http:", 1) + "/204", "ftp://endpoint.example/", "https://"} {
		if status, err := s.Send(t.Context(), url, keys, message); status != 0 || fairlead.KindOf(err) != fairlead.KindInvalid || err == nil {
			t.Errorf("%q: %d, %v", url, status, err)
		}
	}
}

func ended(t *testing.T, s webhook.Sender, e *endpoint) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if status, err := s.Send(ctx, e.URL+"/204", keys, message); err == nil || status != 0 {
		t.Errorf("%d, %v", status, err)
	}
	if got := e.all(); len(got) != 0 {
		t.Errorf("the endpoint received %+v", got)
	}
}

func together(t *testing.T, s webhook.Sender, e *endpoint) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if status, err := s.Send(t.Context(), e.URL+"/204", keys, message); err != nil || status != http.StatusNoContent {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	all.Wait()
	if n := len(e.all()); n != 8 {
		t.Errorf("the endpoint received %d requests, want 8", n)
	}
}
