package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about whose OIDC tokens and keys a runner trusts,
// and about the sessions that they have opened.
var (
	CreateTrust = Route{"create-trust", "POST", "/v1/runners/{runner}/trusts"}
	ListTrusts  = Route{"list-trusts", "GET", "/v1/runners/{runner}/trusts"}
	GetTrust    = Route{"get-trust", "GET", "/v1/runners/{runner}/trusts/{trust}"}
	UpdateTrust = Route{"update-trust", "PUT", "/v1/runners/{runner}/trusts/{trust}"}
	DeleteTrust = Route{"delete-trust", "DELETE", "/v1/runners/{runner}/trusts/{trust}"}
	EndSession  = Route{"end-session", "DELETE", "/v1/runners/{runner}/sessions/{session}"}
	ListAgents  = Route{"list-agents", "GET", "/v1/runners/{runner}/agents"}
	RevokeAgent = Route{"revoke-agent", "DELETE", "/v1/runners/{runner}/agents/{key}"}
)

// Agent is an agent that has enrolled with a key.
type Agent struct {
	Key        string         `json:"key" doc:"Identifier of its key"`
	EnrolledAt time.Time      `json:"enrolled_at"`
	RevokedAt  *time.Time     `json:"revoked_at,omitempty" doc:"Since when the key is refused; absent if it is good"`
	Session    *RunnerSession `json:"session,omitempty" doc:"Its last, if that is one of the runner's last"`
}

// TrustRule says which OIDC tokens open sessions of a runner.
type TrustRule struct {
	Issuer   string            `json:"issuer" minLength:"1" maxLength:"500" doc:"iss of the tokens, to the byte; an https URL"`
	Audience string            `json:"audience" minLength:"1" maxLength:"500" doc:"aud of the tokens, to the byte, and the only one; best the URL of this control plane, so that nobody can pass a token on to another"`
	Claims   map[string]string `json:"claims" minProperties:"1" maxProperties:"20" doc:"What the tokens say, by the name of a claim or a JSON pointer to it; in a value, * stands for one or more letters, digits, dots, underscores and hyphens"`
	Bound    bool              `json:"bound,omitempty" doc:"Take only tokens whose audience holds the binding of the request, which the agent asks its platform for"`
	Keys     json.RawMessage   `json:"keys,omitempty" doc:"JSON Web Key Set of an issuer that cannot be reached from here"`
}

// CreateTrustRequest makes a trust.
type CreateTrustRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"63" form:"name"`
	TrustRule
}

// Trust is a trust of a runner in an OIDC issuer.
type Trust struct {
	Name   string `json:"name"`
	Runner string `json:"runner" doc:"Name of the runner"`
	TrustRule
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"`
}
