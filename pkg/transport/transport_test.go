package transport_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/fairlead/fairlead/pkg/transport"
)

// TestTokensCrossNetworksOnlyOverTLS checks that no request with a token is sent to
// another machine at an http:// URL, where others on the network could read it,
// unless that is allowed.
func TestTokensCrossNetworksOnlyOverTLS(t *testing.T) {
	for name, test := range map[string]struct {
		url     string
		allowed bool
		refused bool
	}{
		"this machine":                           {"http://127.0.0.1:8400", false, false},
		"this machine by its name":               {"http://localhost:8400", false, false},
		"this machine by IPv6":                   {"http://[::1]:8400", false, false},
		"another machine over TLS":               {"https://fairlead.example", false, false},
		"another machine":                        {"http://fairlead.example", false, true},
		"a private address":                      {"http://10.0.0.5:8400", false, true},
		"a name of the local network":            {"http://fairlead.local", false, true},
		"a name that begins like this machine's": {"http://localhost.example", false, true},
		"a service of the cluster":               {"http://fairlead.svc:8400", false, true},
		"a service of the cluster, if allowed":   {"http://fairlead.svc:8400", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			guard := transport.PlainGuard{Allowed: test.allowed, Inner: roundTripper(func(*http.Request) (*http.Response, error) {
				sent++
				return httptest.NewRecorder().Result(), nil
			})}
			_, err = guard.RoundTrip(&http.Request{URL: u})
			_, plain := errors.AsType[*transport.PlainError](err)
			if plain != test.refused || (sent == 0) != test.refused {
				t.Errorf("the request was sent %d times: %v", sent, err)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
