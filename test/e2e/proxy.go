//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/proxy"
)

// Proxy is between the runner and its control plane. It also answers the question
// that the test's module asks while it is being planned. To a runner, a control
// plane that is gone is a connection that breaks. Safe for concurrent use.
type Proxy struct {
	*proxy.Proxy
	URL string
}

func newProxy(t testing.TB, target string) *Proxy {
	forward := proxy.To(t, target)
	p := &Proxy{Proxy: proxy.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, gatePath) {
			w.Write([]byte(`{"version":4,"terraform_version":"1.6.0","serial":1,"lineage":"gate","outputs":{},"resources":[]}`))
			return
		}
		forward.ServeHTTP(w, r)
	}))}
	s := httptest.NewServer(p.Proxy)
	p.URL = s.URL
	t.Cleanup(func() {
		p.DropAll()
		s.CloseClientConnections()
		s.Close()
	})
	return p
}

// gatePath is where modules ask to be let through.
const gatePath = "/gate/"

// HoldGate holds the plans of the install, in the middle of the tool's work.
func (p *Proxy) HoldGate(install string) *proxy.Hold {
	return p.HoldRequests(func(r *http.Request) bool { return r.URL.Path == gatePath+install })
}
