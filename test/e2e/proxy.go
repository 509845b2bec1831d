//go:build linux

package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/proxy"
)

// Proxy is between the runner and its control plane. It also answers the request that
// the test's module sends during a plan. It breaks the runner's connections while the
// control plane does not run. Safe for concurrent use.
type Proxy struct {
	*proxy.Proxy
	URL string
}

func newProxy(t testing.TB, from, target string) *Proxy {
	forward := proxy.To(t, target)
	p := &Proxy{Proxy: proxy.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, gatePath) {
			w.Write([]byte(`{"version":4,"terraform_version":"1.6.0","serial":1,"lineage":"gate","outputs":{},"resources":[]}`))
			return
		}
		forward.ServeHTTP(w, r)
	}))}
	s := httptest.NewUnstartedServer(p.Proxy)
	if l, err := net.Listen("tcp", net.JoinHostPort(from, "0")); err != nil {
		t.Fatal(err)
	} else {
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	p.URL = s.URL
	t.Cleanup(func() {
		p.DropAll()
		s.CloseClientConnections()
		s.Close()
	})
	return p
}

// gatePath is the path of the modules' requests.
const gatePath = "/gate/"

// HoldGate holds the plans of the install while their tool runs.
func (p *Proxy) HoldGate(install string) *proxy.Hold {
	return p.HoldRequests(func(r *http.Request) bool { return r.URL.Path == gatePath+install })
}
