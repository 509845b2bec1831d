package api_test

import (
	"net/http"
	"strings"
	"testing"
)

// A page of another site runs in the browser of a person of the vendor, or of a machine that serves `fairlead dev`. The
// browser sends the page's requests, but gives the page no answer without a header that permits its site. No request is
// authenticated by what a browser adds by itself, such as a cookie.
func TestBrowsersOfOtherSitesGetNoAccess(t *testing.T) {
	p := newPlane(t)
	const site, path = "https://attacker.example", "/v1/apps"
	for name, res := range map[string]result{
		"a question about permissions": p.send(http.MethodOptions, path, "", nil, "Origin", site, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization"),
		"a request with a token":       p.send(http.MethodGet, path, p.api, nil, "Origin", site),
		"a request with a cookie":      p.send(http.MethodGet, path, "", nil, "Origin", site, "Cookie", "token="+p.api),
		"a form":                       p.send(http.MethodPost, "/v1/installs", "", strings.NewReader("name=x"), "Origin", site, "Content-Type", "text/plain"),
		"a form of a runner":           p.send(http.MethodPost, "/runner/v1/enrol", "", strings.NewReader(`{"token":"x"}`), "Origin", site, "Content-Type", "text/plain"),
	} {
		for header := range res.Header {
			if strings.HasPrefix(header, "Access-Control-") || header == "Set-Cookie" {
				t.Errorf("the answer to %s has %s: %s", name, header, res.Header.Get(header))
			}
		}
		if wants := name == "a request with a token"; wants != (res.StatusCode == http.StatusOK) {
			t.Errorf("%s is answered with %d: %s", name, res.StatusCode, res.body)
		}
	}
}
