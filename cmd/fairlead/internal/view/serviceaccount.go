package view

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// ServiceAccounts is a listing of service accounts.
type ServiceAccounts []wire.ServiceAccount

// JSON returns an array of wire.ServiceAccount.
func (as ServiceAccounts) JSON() any { return array(as) }

// Human writes a table.
func (as ServiceAccounts) Human(p *Page) {
	table(p, []string{"NAME", "GROUP", "ISSUER", "CLAIMS", "ROLES", "CHANGED"}, as, func(a wire.ServiceAccount) []string {
		return []string{a.Name, cmp.Or(a.Group, "/"), a.Issuer, claims(a.TokenRule), cmp.Or(Roles(a.Roles), "-"), p.Ago(a.ChangedAt)}
	})
}

// claims returns the claims that a rule needs, as people read them.
func claims(r wire.TokenRule) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.Claims)) {
		out = append(out, name+"="+r.Claims[name])
	}
	if r.Bound {
		out = append(out, "(bound)")
	}
	return strings.Join(out, ", ")
}

// ServiceAccount is one service account.
type ServiceAccount wire.ServiceAccount

// JSON returns the wire.ServiceAccount.
func (a ServiceAccount) JSON() any { return wire.ServiceAccount(a) }

// Human writes the fields of the service account.
func (a ServiceAccount) Human(p *Page) {
	created := p.Ago(a.CreatedAt)
	if a.CreatedBy != nil {
		created += " by " + actor(a.CreatedBy)
	}
	keys := ""
	if len(a.Keys) > 0 {
		keys = "given"
	}
	p.Fields([2]string{"Service account", a.Name}, [2]string{"ID", a.ID}, [2]string{"Group", cmp.Or(a.Group, "/")}, [2]string{"Issuer", a.Issuer}, [2]string{"Audience", a.Audience},
		[2]string{"Claims", claims(a.TokenRule)}, [2]string{"Keys", keys}, [2]string{"Roles", cmp.Or(Roles(a.Roles), "-")}, [2]string{"Runners", strings.Join(a.Runners, ", ")},
		[2]string{"Created", created}, [2]string{"Changed", p.Ago(a.ChangedAt)})
}

// AccountRule is the rule of a service account.
type AccountRule wire.ServiceAccount

// JSON returns the wire.TokenRule.
func (a AccountRule) JSON() any { return a.TokenRule }

// Human writes the rule as YAML. A person can edit it and send it back.
func (a AccountRule) Human(p *Page) {
	rule, err := json.Marshal(a.TokenRule)
	if err != nil {
		return // unreachable: the rule was decoded from JSON
	}
	Configuration(rule).Human(p)
}

// NewServiceAccount is a new service account.
type NewServiceAccount struct {
	Account wire.ServiceAccount
	URL     string // of the control plane
}

// JSON returns the wire.ServiceAccount.
func (a NewServiceAccount) JSON() any { return a.Account }

// Human writes one line, and what to do next.
func (a NewServiceAccount) Human(p *Page) {
	p.Line("%s Created service account %s, which accepts tokens of %s", Styled(p.Style.Good("✓")), a.Account.Name, a.Account.Issuer)
	if len(a.Account.Roles) > 0 {
		p.Line("  A program logs in: fairlead login %s --service-account %s --token-file FILE", a.URL, a.Account.Name)
		return
	}
	p.Line("  Assign it to a runner: fairlead runner assign RUNNER %s", a.Account.Name)
}

// Assigned is the assignment of a service account to a runner. The field Keys has the control plane's public keys.
type Assigned struct {
	Runner, RunnerID, Account string
	Audience                  string
	Keys                      []wire.VerificationKey
}

// JSON returns the names, and runner_id and trusted_keys: the
// values of the agent's FAIRLEAD_RUNNER_ID and FAIRLEAD_TRUSTED_KEYS.
func (a Assigned) JSON() any {
	return struct {
		Runner      string `json:"runner"`
		Account     string `json:"service_account"`
		RunnerID    string `json:"runner_id"`
		TrustedKeys string `json:"trusted_keys"`
	}{a.Runner, a.Account, a.RunnerID, keyList(a.Keys)}
}

// Human writes one line, and the environment variables of the agents.
func (a Assigned) Human(p *Page) {
	p.Line("%s Agents of runner %s can act as service account %s", Styled(p.Style.Good("✓")), a.Runner, a.Account)
	p.Line("  Start its agent where it has such a token and, besides FAIRLEAD_URL:")
	p.Line("  FAIRLEAD_IDENTITY=oidc")
	p.Line("  FAIRLEAD_RUNNER_ID=%s", a.RunnerID)
	p.Line("  FAIRLEAD_TRUSTED_KEYS=%s", keyList(a.Keys))
	p.Line("  and FAIRLEAD_OIDC_TOKEN_FILE, or FAIRLEAD_OIDC_SOURCE and FAIRLEAD_OIDC_AUDIENCE=%s", a.Audience)
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
	table(p, []string{"SESSION", "AGENT", "STATE", "SERVICE ACCOUNT", "SUBJECT", "LAST SEEN"}, ss, func(s wire.RunnerSession) []string {
		return []string{s.ID, s.Instance, s.State, cmp.Or(s.ServiceAccount, s.Trust), s.Subject, p.Ago(s.LastSeen)}
	})
}
