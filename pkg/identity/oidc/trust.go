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

// Trust is a rule that selects tokens: of one issuer, for one audience, whose claims match. A service account has one.
type Trust struct {
	// Issuer must equal iss byte for byte. /.well-known/openid-configuration is below
	// this URL.
	Issuer string `json:"issuer"`
	// Audience must be the only value of aud.
	Audience string `json:"audience"`
	// Claims has a pattern for each claim. The key is the name of a claim, or a JSON
	// pointer (RFC 6901) to a nested claim. In a pattern, * matches one or more
	// letters, digits, dots, underscores and hyphens.
	Claims map[string]string `json:"claims"`
	// Bound requires the binding of the request in the audience: the issuer then
	// signs a token for one request of one caller. Some platforms do not let their
	// workloads choose an audience.
	Bound bool `json:"bound,omitempty"`
	// Keys is the JSON Web Key Set of an issuer that the control plane cannot reach;
	// empty: the issuer publishes its keys.
	Keys json.RawMessage `json:"keys,omitempty"`
}

// The limits of a trust.
const (
	// MaxTrusts limits the rules of a runner, because each token is compared with all of
	// them. A runner needs those of one platform, or of two platforms while it moves to
	// another platform.
	MaxTrusts = 10
	maxClaims = 20
	maxURL    = 500 // bytes, of issuers and audiences
	maxName   = 200 // bytes, of a claim
	maxKeys   = 32 << 10
)

// Rules change which trusts are valid. The zero value is for a control plane that is not
// used by its owner alone.
type Rules struct {
	// Loopback permits issuers on this machine, also without TLS. If Loopback is set,
	// everyone who can create a trust can cause requests to servers on this machine.
	Loopback bool
}

// Check returns an error of KindInvalid if t is not a valid trust.
func (t Trust) Check(r Rules) error {
	if _, err := r.issuer(t.Issuer); err != nil {
		return err
	}
	switch {
	case t.Audience == "" || len(t.Audience) > maxURL || !printable(t.Audience):
		return invalid("tokens need an audience of at most %d printable ASCII characters", maxURL)
	case strings.ContainsAny(t.Audience, "*#"):
		return invalid("the audience %q has a * or #: it must equal the audience of the tokens", t.Audience)
	case len(t.Claims) == 0:
		return invalid("the rule needs claims: without claims, every token of the issuer would be accepted")
	case len(t.Claims) > maxClaims:
		return invalid("a rule can have at most %d claims", maxClaims)
	}
	for name, p := range t.Claims {
		if slices.Contains([]string{"iss", "aud", "exp", "nbf", "iat", "jti"}, name) {
			return invalid("claim %q is always verified, and cannot be in the claims of a rule", name)
		}
		if name == "" || len(name) > maxName || !printable(name) {
			return invalid("the name of a claim is empty, longer than %d bytes or not printable ASCII", maxName)
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
	return checkKeys(t.Keys)
}

// checkKeys returns an error if keys is not empty and is no set of public keys.
func checkKeys(keys json.RawMessage) error {
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > maxKeys {
		return invalid("the keys of the issuer have more than %d bytes", maxKeys)
	}
	if secretIn(keys) {
		return invalid("the keys of the issuer contain a private key or a secret: replace these keys, and give only the public keys")
	}
	if ks, err := parseKeys(keys); err != nil || len(ks) == 0 {
		return invalid("the keys of the issuer are not a JSON Web Key Set with a public key that can verify a token")
	}
	return nil
}

// issuer parses the URL of an issuer, and refuses a URL that must not be requested.
func (r Rules) issuer(s string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, invalid("the issuer %.100q %s: write the https URL exactly as in the claim iss of its tokens", s, why)
	}
	if s == "" || len(s) > maxURL || !printable(s) || strings.Contains(s, " ") {
		return bad("is empty, too long or not printable ASCII")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || u.Hostname() == "":
		return bad("is not a URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#"):
		return bad("has a user, a query or a fragment")
	case strings.ContainsAny(s, `*%\`) || strings.Contains(u.Path, "//") || slices.ContainsFunc(strings.Split(u.Path, "/"), func(p string) bool { return p == "." || p == ".." }):
		return bad("has a path with an ambiguous part, such as .., //, % or *")
	case u.Host != strings.ToLower(u.Host) || u.Scheme+"://" != s[:min(len(s), len(u.Scheme)+3)]:
		return bad("has a scheme or host with upper-case letters")
	case strings.HasSuffix(u.Hostname(), "."):
		return bad("has a host that ends in a dot")
	case u.Scheme == "https":
		return u, nil
	case u.Scheme == "http" && r.Loopback && loopback(u.Hostname()):
		return u, nil
	case u.Scheme == "http":
		return bad("does not use https")
	}
	return bad("has another scheme")
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// checkOwner refuses a trust in a public issuer if the trust does not name an owner.
// Everyone can get tokens of a public issuer, for example for an own repository. So a
// trust in a public issuer must have a claim that equals the owner or begins with the
// owner.
func (t Trust) checkOwner() error {
	type owner struct{ claim, before, after string } // the owner is the text between before and after; if after is "", the rest of the text
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
	return invalid("everyone can get tokens of %s: the rule must name one owner, without a *, in one of the claims %s", t.Issuer, strings.Join(names, ", "))
}

// pointer returns the path of names to a claim.
func pointer(name string) ([]string, error) {
	if !strings.HasPrefix(name, "/") {
		return []string{name}, nil
	}
	parts := strings.Split(name[1:], "/")
	for i, p := range parts {
		plain := strings.NewReplacer("~1", "", "~0", "").Replace(p)
		if p == "" || strings.Contains(plain, "~") || len(parts) > maxDepth {
			return nil, invalid("%q is not a JSON pointer to a claim", name)
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

// matches returns nil if the claims match the trust. The error names the claim that does
// not match, but not its pattern.
func (t Trust) matches(claims map[string]any, binding string) (bound bool, err error) {
	switch aud := audience(claims["aud"]); {
	case binding != "" && aud == t.Audience+"#"+binding:
		bound = true
	case aud == "":
		return false, refused("audience", "it has no audience, or more than one")
	case aud != t.Audience:
		return false, refused("audience", "it is for the audience %s", quote(aud))
	case t.Bound:
		return false, refused("unbound", "its audience does not contain the binding of the request")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Claims)) {
		path, err := pointer(name)
		if err != nil {
			return false, refused("claims", "the rule has an invalid name of a claim, %s", quote(name))
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
			return false, refused("claims", "claim %s is not text", quote(name))
		case !match(t.Claims[name], s):
			return false, refused("claims", "claim %s does not match the rule", quote(name))
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

// hostPort returns host and port of a URL, with the default port of its scheme.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
