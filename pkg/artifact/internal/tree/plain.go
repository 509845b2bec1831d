package tree

import (
	"fmt"
	"net"
	"net/http"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// PlainGuard refuses to speak without TLS to another machine, unless Allowed. A
// token is as easily read on the way to a private address, or to a name that
// ends in ".local", as elsewhere.
type PlainGuard struct {
	Inner   http.RoundTripper
	Allowed bool
}

// RoundTrip passes the request on or refuses it.
func (g PlainGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && !g.Allowed && !IsLoopback(req.URL.Hostname()) {
		return nil, &fairlead.Error{
			Kind: fairlead.KindForbidden, Code: "registry-without-tls",
			Message: fmt.Sprintf("the registry %s answers without TLS", req.URL.Host),
			Hint:    "Serve it over https; without TLS only a registry on the same machine is used.",
		}
	}
	return g.Inner.RoundTrip(req)
}

// IsLoopback reports whether the host, without a port, is this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
