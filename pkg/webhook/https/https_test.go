package https_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/webhook"
	"github.com/fairlead/fairlead/pkg/webhook/https"
)

var (
	now     = time.Unix(1_800_000_000, 0)
	keys    = []webhook.Keys{{Secret: []byte("0123456789abcdef0123456789abcdef")}}
	message = webhook.Message{ID: "evt_1", Body: []byte(`{"specversion":"1.0"}`)}
)

func sender(transport http.RoundTripper, timeout time.Duration) *https.Sender {
	return https.New(transport, timeout, "1.2.3", func() time.Time { return now })
}

func TestEndpointGetsSignedMessage(t *testing.T) {
	var headers http.Header
	var body []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = r.Header
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // the sender does not read all of it
	}))
	t.Cleanup(server.Close)
	status, err := sender(server.Client().Transport, 5*time.Second).Send(t.Context(), server.URL, keys, message)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("%d, %v", status, err)
	}
	for name, want := range map[string]string{"Content-Type": webhook.ContentType, "User-Agent": "fairlead/1.2.3", webhook.HeaderID: "evt_1",
		webhook.HeaderTimestamp: strconv.FormatInt(now.Unix(), 10), webhook.HeaderSignature: webhook.Sign(keys, message, now)} {
		if headers.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, headers.Get(name), want)
		}
	}
	if string(body) != string(message.Body) {
		t.Errorf("the body is %q", body)
	}
}

// The creator of a webhook may try to reach the sender's machine, its network or the cloud's metadata service: with
// any spelling of an address, with a redirect, or with a proxy from the environment.
func TestSenderConnectsToPublicAddressesOnly(t *testing.T) {
	var reached atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTPS_PROXY", server.URL)
	s := sender(https.Transport(), 5*time.Second)
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1.2.3",
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "[fe80::1]", "[fc00::1]",
		"198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[ff02::1]", "[2001:db8::1]",
	} {
		status, err := s.Send(t.Context(), "https://"+host+":"+port+"/", keys, message)
		if err == nil || status != 0 || fairlead.CodeOf(err) != "webhook-address" || strings.Contains(err.Error(), "prohibited") ||
			fairlead.KindOf(err) != fairlead.KindInvalid && host != "localhost" {
			t.Errorf("%s: got %d, %v, want a refusal of the address that does not contain it", host, status, err)
		}
	}
	if reached.Load() > 0 {
		t.Error("a request reached the server")
	}
}

// The operator's resolver knows internal names. The owner of a webhook must not learn whether a name exists: neither
// from the message nor from the kind of the error, which decides whether the delivery is repeated.
func TestErrorsDoNotRevealInternalNames(t *testing.T) {
	s := sender(https.Transport(), 5*time.Second)
	send := func(host string) string {
		_, err := s.Send(t.Context(), "https://"+host+"/", keys, message)
		var e *fairlead.Error
		if !errors.As(err, &e) {
			return fmt.Sprintf("%v", err)
		}
		return fmt.Sprintf("%s %s %s %s", e.Kind, e.Code, e.Message, e.Hint)
	}
	known := send("localhost")
	if unknown := send("there-is-no-such-host.invalid"); unknown != known {
		t.Errorf("an internal name returns\n%s\nand an unknown name returns\n%s", known, unknown)
	}
	if strings.Contains(known, "localhost") || strings.Contains(known, "127.0.0.1") {
		t.Errorf("the error reveals the host or address: %s", known)
	}
	for _, timeout := range []bool{true, false} { // a resolver that is slow or fails
		failing := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "inside.example", IsTimeout: timeout, IsTemporary: true}}
		}}
		if _, err := sender(failing, time.Minute).Send(t.Context(), "https://inside.example/", keys, message); fairlead.CodeOf(err) != "webhook-address" {
			t.Errorf("a failing resolver, timeout %t: got %v, want webhook-address", timeout, err)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var inner atomic.Int32
	target := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner.Add(1) }))
	t.Cleanup(target.Close)
	server := httptest.NewTLSServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	status, err := sender(server.Client().Transport, 5*time.Second).Send(t.Context(), server.URL, keys, message)
	if status != http.StatusTemporaryRedirect || err != nil || inner.Load() > 0 {
		t.Errorf("got %d, %v; the redirect's target got %d requests", status, err, inner.Load())
	}
}

func TestSendReportsErrors(t *testing.T) {
	hold := make(chan struct{})
	slow := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hold) })
	if _, err := sender(slow.Client().Transport, 50*time.Millisecond).Send(t.Context(), slow.URL, keys, message); err == nil || err.Error() != "it did not respond in time" {
		t.Errorf("an endpoint that does not respond: %v", err)
	}
	if _, err := sender(https.Transport(), time.Second).Send(t.Context(), "http://example.com", keys, message); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("without TLS: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sender(slow.Client().Transport, time.Minute).Send(ctx, slow.URL, keys, message); !errors.Is(err, context.Canceled) {
		t.Errorf("in an ended context: %v", err)
	}
	// A certificate of an unknown issuer does not prove the endpoint's name.
	untrusting := &http.Transport{}
	t.Cleanup(untrusting.CloseIdleConnections)
	if _, err := sender(untrusting, time.Minute).Send(t.Context(), slow.URL, keys, message); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), slow.URL) {
		t.Errorf("a certificate of an unknown issuer: %v", err)
	}
}
