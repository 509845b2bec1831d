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
	secret  = []byte("0123456789abcdef0123456789abcdef")
	message = webhook.Message{ID: "evt_1", Body: []byte(`{"specversion":"1.0"}`)}
)

func sender(transport http.RoundTripper, timeout time.Duration) *https.Sender {
	return https.New(transport, timeout, "1.2.3", func() time.Time { return now })
}

func TestEndpointGetsASignedMessage(t *testing.T) {
	var headers http.Header
	var body []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = r.Header
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // nobody reads all of it
	}))
	t.Cleanup(server.Close)
	status, err := sender(server.Client().Transport, 5*time.Second).Send(t.Context(), server.URL, secret, message)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("%d, %v", status, err)
	}
	for name, want := range map[string]string{"Content-Type": webhook.ContentType, "User-Agent": "fairlead/1.2.3", webhook.HeaderID: "evt_1",
		webhook.HeaderTimestamp: strconv.FormatInt(now.Unix(), 10), webhook.HeaderSignature: webhook.Sign(secret, message, now)} {
		if headers.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, headers.Get(name), want)
		}
	}
	if string(body) != string(message.Body) {
		t.Errorf("it was sent %q", body)
	}
}

// Whoever chooses a URL may choose what is beside the sender: its own
// machine, its network, the cloud's metadata, by any spelling, by a redirect, or
// by a proxy of the environment.
func TestOnlyPublicAddressesAreReached(t *testing.T) {
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
		status, err := s.Send(t.Context(), "https://"+host+":"+port+"/", secret, message)
		if err == nil || status != 0 || fairlead.CodeOf(err) != "webhook-address" || strings.Contains(err.Error(), "prohibited") ||
			fairlead.KindOf(err) != fairlead.KindInvalid && host != "localhost" {
			t.Errorf("%s: %d, %v; want it refused for its address, which is not told", host, status, err)
		}
	}
	if reached.Load() > 0 {
		t.Error("a request arrived")
	}
}

// The resolver knows names of the inside. Whether it knows one is not for the
// owner of a webhook to learn: not by the message, nor by the kind of the error,
// by which the delivery is tried again or given up.
func TestAnswersDoNotTellInternalNamesFromUnknown(t *testing.T) {
	s := sender(https.Transport(), 5*time.Second)
	send := func(host string) string {
		_, err := s.Send(t.Context(), "https://"+host+"/", secret, message)
		var e *fairlead.Error
		if !errors.As(err, &e) {
			return fmt.Sprintf("%v", err)
		}
		return fmt.Sprintf("%s %s %s %s", e.Kind, e.Code, e.Message, e.Hint)
	}
	known := send("localhost")
	if unknown := send("there-is-no-such-host.invalid"); unknown != known {
		t.Errorf("a name of the inside gives\n%s\nand one that there is not\n%s", known, unknown)
	}
	if strings.Contains(known, "localhost") || strings.Contains(known, "127.0.0.1") {
		t.Errorf("it gives %s", known)
	}
	for _, timeout := range []bool{true, false} { // a resolver that is slow, or fails
		failing := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "inside.example", IsTimeout: timeout, IsTemporary: true}}
		}}
		if _, err := sender(failing, time.Minute).Send(t.Context(), "https://inside.example/", secret, message); fairlead.CodeOf(err) != "webhook-address" {
			t.Errorf("a resolver that fails, timeout %t: %v", timeout, err)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var inner atomic.Int32
	target := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner.Add(1) }))
	t.Cleanup(target.Close)
	server := httptest.NewTLSServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	status, err := sender(server.Client().Transport, 5*time.Second).Send(t.Context(), server.URL, secret, message)
	if status != http.StatusTemporaryRedirect || err != nil || inner.Load() > 0 {
		t.Errorf("%d, %v; the other was asked %d times", status, err, inner.Load())
	}
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	hold := make(chan struct{})
	slow := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hold) })
	if _, err := sender(slow.Client().Transport, 50*time.Millisecond).Send(t.Context(), slow.URL, secret, message); err == nil || err.Error() != "it did not answer in time" {
		t.Errorf("an endpoint that does not answer: %v", err)
	}
	if _, err := sender(https.Transport(), time.Second).Send(t.Context(), "http://example.com", secret, message); fairlead.KindOf(err) != fairlead.KindInvalid {
		t.Errorf("without TLS: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sender(slow.Client().Transport, time.Minute).Send(ctx, slow.URL, secret, message); !errors.Is(err, context.Canceled) {
		t.Errorf("in a context that has ended: %v", err)
	}
	// A certificate of nobody's: the endpoint is not who it says.
	strangers := &http.Transport{}
	t.Cleanup(strangers.CloseIdleConnections)
	if _, err := sender(strangers, time.Minute).Send(t.Context(), slow.URL, secret, message); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), slow.URL) {
		t.Errorf("a certificate of nobody's: %v", err)
	}
}
