package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about the OIDC tokens and keys that a runner trusts,
// and about the sessions that agents opened with them.
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
	RevokedAt  *time.Time     `json:"revoked_at,omitempty" doc:"When the key was revoked; absent if it is valid"`
	Session    *RunnerSession `json:"session,omitempty" doc:"The agent's last session, if the control plane still keeps it"`
}

// TrustRule defines which OIDC tokens open sessions of a runner.
type TrustRule struct {
	Issuer   string            `json:"issuer" minLength:"1" maxLength:"500" doc:"Exact value of the tokens' iss claim; an https URL"`
	Audience string            `json:"audience" minLength:"1" maxLength:"500" doc:"Exact value of the tokens' aud claim, which must hold no other. Use the URL of this control plane: then no other service accepts the token"`
	Claims   map[string]string `json:"claims" minProperties:"1" maxProperties:"20" doc:"Required claims of the tokens. A key is the name of a claim or a JSON pointer to it. In a value, * matches one or more letters, digits, dots, underscores and hyphens"`
	Bound    bool              `json:"bound,omitempty" doc:"Accept only tokens whose audience holds the binding of the request. The agent requests such a token from its platform"`
	Keys     json.RawMessage   `json:"keys,omitempty" doc:"JSON Web Key Set of the issuer, if the control plane cannot reach the issuer"`
}

// CreateTrustRequest creates a trust.
type CreateTrustRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"63" form:"name"`
	TrustRule
}

// Trust is a trust of a runner in an OIDC issuer.
type Trust struct {
	Actors
	Name   string `json:"name"`
	Runner string `json:"runner" doc:"Name of the runner"`
	TrustRule
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"`
}
