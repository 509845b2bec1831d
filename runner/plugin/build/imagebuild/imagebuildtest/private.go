package imagebuildtest

import (
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Private is a registry that answers only requests with its login.
type Private struct {
	Host string // with its port

	mu      sync.Mutex
	refused []string // Authorization of the requests that it refused
}

// NewPrivate starts a registry with the login. An empty password refuses all requests.
func NewPrivate(t testing.TB, user, password string) *Private {
	p := &Private{}
	behind := registry.New(registry.Logger(stdlog.New(io.Discard, "", 0)))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, given, _ := r.BasicAuth(); password != "" && name == user && given == password {
			behind.ServeHTTP(w, r)
			return
		}
		p.mu.Lock()
		p.refused = append(p.refused, r.Header.Get("Authorization"))
		p.mu.Unlock()
		w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(web.Close)
	p.Host = strings.TrimPrefix(web.URL, "http://")
	return p
}

// Refused returns the headers Authorization of the requests that it refused; "" for a request without one.
func (p *Private) Refused() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.refused...)
}
