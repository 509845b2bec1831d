package oidc

import (
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Trust says which tokens open sessions: those of one issuer, for one audience,
// whose claims are what they are to be.
type Trust struct {
	// Issuer is iss, to the byte. Below it is /.well-known/openid-configuration.
	Issuer string `json:"issuer"`
	// Audience is what aud must be, and the only one.
	Audience string `json:"audience"`
	// Claims are what the token must say, by the name of a claim, or by a JSON
	// pointer (RFC 6901) to one within another. In a value, * stands for one or
	// more letters, digits, dots, underscores and hyphens.
	Claims map[string]string `json:"claims"`
	// Bound wants the audience to hold the binding of the request: the issuer
	// signs who asks, for what, once. Not every platform lets its workloads
	// choose an audience.
	Bound bool `json:"bound,omitempty"`
	// Keys are a JSON Web Key Set, of an issuer that cannot be reached; empty:
	// they are those that the issuer publishes.
	Keys json.RawMessage `json:"keys,omitempty"`
}

// The bounds of a trust.
const (
	// MaxTrusts is how many trusts a runner has at most. Each is looked at for
	// each token; those of one runner are one platform's, or two while it moves.
	MaxTrusts = 10
	maxClaims = 20
	maxURL    = 500 // bytes, of issuers and audiences
	maxName   = 200 // bytes, of a claim
	maxKeys   = 32 << 10
)

// Rules vary what a trust may be. The zero value is for a control plane that
// others than its owner use.
type Rules struct {
	// Loopback lets issuers be on this machine, and speak http. Whoever may
	// make a trust may then send requests to what listens there.
	Loopback bool
}

// Check returns why t is no trust, or nil. The error is of KindInvalid.
func (t Trust) Check(r Rules) error {
	if _, err := r.issuer(t.Issuer); err != nil {
		return err
	}
	switch {
	case t.Audience == "" || len(t.Audience) > maxURL || !printable(t.Audience):
		return invalid("a trust needs an audience of at most %d printable ASCII characters", maxURL)
	case strings.ContainsAny(t.Audience, "*#"):
		return invalid("the audience %q has a * or #: it is what tokens have, to the byte", t.Audience)
	case len(t.Claims) == 0:
		return invalid("a trust needs claims: without any, all that the issuer knows would be this runner")
	case len(t.Claims) > maxClaims:
		return invalid("a trust has at most %d claims", maxClaims)
	}
	for name, p := range t.Claims {
		if slices.Contains([]string{"iss", "aud", "exp", "nbf", "iat", "jti"}, name) {
			return invalid("claim %q is looked at already, and no rule of a trust", name)
		}
		if name == "" || len(name) > maxName || !printable(name) {
			return invalid("the name of a claim is empty, longer than %d bytes or not of printable ASCII", maxName)
		}
		if _, err := pointer(name); err != nil {
			return err
		}
		if err := checkPattern(name, p); err != nil {
			return err
		}
	}
	if err := t.checkOwner(); err != nil {
		return err
	}
	if len(t.Keys) == 0 {
		return nil
	}
	if len(t.Keys) > maxKeys {
		return invalid("the keys of the issuer have more than %d bytes", maxKeys)
	}
	if secretIn(t.Keys) {
		return invalid("the keys of the issuer hold a private key or a secret: give the public halves, and make new ones")
	}
	if ks, err := parseKeys(t.Keys); err != nil || len(ks) == 0 {
		return invalid("the keys of the issuer are no JSON Web Key Set with a public key that tokens are signed with")
	}
	return nil
}

// issuer returns the parts of an issuer that may be asked for its keys.
func (r Rules) issuer(s string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, invalid("the issuer %.100q %s: it is an https URL, exactly as the claim iss of its tokens", s, why)
	}
	if s == "" || len(s) > maxURL || !printable(s) || strings.Contains(s, " ") {
		return bad("is empty, too long or not of printable ASCII")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || u.Hostname() == "":
		return bad("is no URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#"):
		return bad("has a user, a query or a fragment")
	case strings.ContainsAny(s, `*%\`) || strings.Contains(u.Path, "//") || slices.ContainsFunc(strings.Split(u.Path, "/"), func(p string) bool { return p == "." || p == ".." }):
		return bad("has a path that two readers may read as two")
	case u.Host != strings.ToLower(u.Host) || u.Scheme+"://" != s[:min(len(s), len(u.Scheme)+3)]:
		return bad("has a scheme or host that is not in lower case")
	case strings.HasSuffix(u.Hostname(), "."):
		return bad("has a host that ends in a dot")
	case u.Scheme == "https":
		return u, nil
	case u.Scheme == "http" && r.Loopback && loopback(u.Hostname()):
		return u, nil
	case u.Scheme == "http":
		return bad("is not reached by https")
	}
	return bad("has another scheme")
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// checkOwner refuses trusts in an issuer that everybody has, and in nobody of
// those who have it: any repository, any project. A trust there has to name its
// owner, by a claim that begins with it or is it.
func (t Trust) checkOwner() error {
	type owner struct{ claim, before, after string } // the owner is between the two; without after it is all
	var by []owner
	switch strings.TrimSuffix(t.Issuer, "/") {
	case "https://token.actions.githubusercontent.com":
		by = []owner{{"repository_owner_id", "", ""}, {"repository_id", "", ""}, {"repository_owner", "", ""}, {"repository", "", "/"}, {"sub", "repo:", "/"}}
	case "https://gitlab.com":
		by = []owner{{"project_id", "", ""}, {"namespace_id", "", ""}, {"namespace_path", "", ""}, {"project_path", "", "/"}, {"sub", "project_path:", "/"}}
	case "https://agent.buildkite.com":
		by = []owner{{"organization_id", "", ""}, {"organization_slug", "", ""}, {"sub", "organization:", ":"}}
	case "https://app.terraform.io":
		by = []owner{{"terraform_organization_id", "", ""}, {"terraform_organization_name", "", ""}, {"sub", "organization:", ":"}}
	case "https://accounts.google.com":
		by = []owner{{"sub", "", ""}, {"email", "", ""}}
	default:
		return nil
	}
	var names []string
	for _, o := range by {
		names = append(names, o.claim)
		p, ok := strings.CutPrefix(t.Claims[o.claim], o.before)
		if !ok {
			continue
		}
		name, _, found := strings.Cut(p, o.after)
		if o.after == "" {
			name, found = p, true
		}
		if found && name != "" && !strings.Contains(name, "*") {
			return nil
		}
	}
	return invalid("everybody has tokens of %s: a trust there names whose are meant, without a * in it, by one of %s", t.Issuer, strings.Join(names, ", "))
}

// pointer returns the names that lead to a claim.
func pointer(name string) ([]string, error) {
	if !strings.HasPrefix(name, "/") {
		return []string{name}, nil
	}
	parts := strings.Split(name[1:], "/")
	for i, p := range parts {
		plain := strings.NewReplacer("~1", "", "~0", "").Replace(p)
		if p == "" || strings.Contains(plain, "~") || len(parts) > maxDepth {
			return nil, invalid("%q is no JSON pointer to a claim", name)
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

// matches returns nil if the claims are what the trust wants. The error says
// which is not, and nothing of what it is to be.
func (t Trust) matches(claims map[string]any, binding string) (bound bool, err error) {
	switch aud := audience(claims["aud"]); {
	case binding != "" && aud == t.Audience+"#"+binding:
		bound = true
	case aud == "":
		return false, refused("audience", "it has no audience, or more than one")
	case aud != t.Audience:
		return false, refused("audience", "it is for the audience %s", quote(aud))
	case t.Bound:
		return false, refused("unbound", "its audience does not hold the binding of the request")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Claims)) {
		path, err := pointer(name)
		if err != nil {
			return false, refused("claims", "claim %s cannot be found", quote(name))
		}
		var v any = claims
		for _, p := range path {
			m, _ := v.(map[string]any)
			v = m[p]
		}
		switch s, ok := v.(string); {
		case v == nil:
			return false, refused("claims", "it has no claim %s", quote(name))
		case !ok:
			return false, refused("claims", "claim %s is no text", quote(name))
		case !match(t.Claims[name], s):
			return false, refused("claims", "claim %s is not what the runner trusts", quote(name))
		}
	}
	return bound, nil
}

// audience returns the one audience of a token, or "".
func audience(v any) string {
	if list, ok := v.([]any); ok && len(list) == 1 {
		v = list[0]
	}
	s, _ := v.(string)
	return s
}

// hostPort returns host and port of a URL, with the port that its scheme has.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
