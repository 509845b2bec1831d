package view

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Trusts is a listing of trusts.
type Trusts []wire.Trust

// JSON returns an array of wire.Trust.
func (ts Trusts) JSON() any { return array(ts) }

// Human writes a table.
func (ts Trusts) Human(p *Page) {
	table(p, []string{"NAME", "ISSUER", "AUDIENCE", "CLAIMS", "CHANGED"}, ts, func(t wire.Trust) []string {
		var claims []string
		for _, name := range slices.Sorted(maps.Keys(t.Claims)) {
			claims = append(claims, name+"="+t.Claims[name])
		}
		if t.Bound {
			claims = append(claims, "(bound)")
		}
		return []string{t.Name, t.Issuer, t.Audience, strings.Join(claims, ", "), p.Ago(t.ChangedAt)}
	})
}

// Trust is one trust.
type Trust wire.Trust

// JSON returns the wire.Trust.
func (t Trust) JSON() any { return wire.Trust(t) }

// Human writes the trust's rule as YAML. A person can edit it and send it back.
func (t Trust) Human(p *Page) {
	rule, err := json.Marshal(t.TrustRule)
	if err != nil {
		return // unreachable: the rule was decoded from JSON
	}
	Configuration(rule).Human(p)
}

// NewTrust is a new trust. The field Keys has the control plane's public keys.
type NewTrust struct {
	Trust    wire.Trust
	RunnerID string
	Keys     []wire.VerificationKey
}

// JSON returns the wire.Trust with two more fields: runner_id and trusted_keys, the
// values of the agent's FAIRLEAD_RUNNER_ID and FAIRLEAD_TRUSTED_KEYS.
func (t NewTrust) JSON() any {
	return struct {
		wire.Trust
		RunnerID    string `json:"runner_id"`
		TrustedKeys string `json:"trusted_keys"`
	}{t.Trust, t.RunnerID, keyList(t.Keys)}
}

// Human writes one line, and the environment variables of the agents.
func (t NewTrust) Human(p *Page) {
	p.Line("%s Runner %s trusts %s", Styled(p.Style.Good("✓")), t.Trust.Runner, t.Trust.Issuer)
	p.Line("  Start its agent where it has such a token and, besides FAIRLEAD_URL:")
	p.Line("  FAIRLEAD_IDENTITY=oidc")
	p.Line("  FAIRLEAD_RUNNER_ID=%s", t.RunnerID)
	p.Line("  FAIRLEAD_TRUSTED_KEYS=%s", keyList(t.Keys))
	p.Line("  and FAIRLEAD_OIDC_TOKEN_FILE, or FAIRLEAD_OIDC_SOURCE and FAIRLEAD_OIDC_AUDIENCE=%s", t.Trust.Audience)
}

func keyList(keys []wire.VerificationKey) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = base64.StdEncoding.EncodeToString(k.PublicKey)
	}
	return strings.Join(out, ",")
}

// Sessions is a listing of a runner's sessions.
type Sessions []wire.RunnerSession

// JSON returns an array of wire.RunnerSession.
func (ss Sessions) JSON() any { return array(ss) }

// Human writes a table.
func (ss Sessions) Human(p *Page) {
	table(p, []string{"SESSION", "AGENT", "STATE", "TRUST", "SUBJECT", "LAST SEEN"}, ss, func(s wire.RunnerSession) []string {
		return []string{s.ID, s.Instance, s.State, s.Trust, s.Subject, p.Ago(s.LastSeen)}
	})
}
