package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about service accounts, and about the keys and sessions of agents.
var (
	CreateServiceAccount = Route{"create-service-account", "POST", "/v1/service-accounts"}
	ListServiceAccounts  = Route{"list-service-accounts", "GET", "/v1/service-accounts"}
	GetServiceAccount    = Route{"get-service-account", "GET", "/v1/service-accounts/{account}"}
	UpdateServiceAccount = Route{"update-service-account", "PUT", "/v1/service-accounts/{account}"}
	DeleteServiceAccount = Route{"delete-service-account", "DELETE", "/v1/service-accounts/{account}"}
	LogInServiceAccount  = Route{"log-in-service-account", "POST", "/v1/service-accounts/{account}/logins"}

	AssignServiceAccount   = Route{"assign-service-account", "PUT", "/v1/runners/{runner}/service-accounts/{account}"}
	UnassignServiceAccount = Route{"unassign-service-account", "DELETE", "/v1/runners/{runner}/service-accounts/{account}"}

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

// TokenRule defines which OIDC tokens a service account accepts.
type TokenRule struct {
	Issuer   string            `json:"issuer" minLength:"1" maxLength:"500" doc:"Exact value of the tokens' iss claim; an https URL"`
	Audience string            `json:"audience" minLength:"1" maxLength:"500" doc:"Exact value of the tokens' aud claim, which must hold no other. Use the URL of this control plane: then no other service accepts the token"`
	Claims   map[string]string `json:"claims" minProperties:"1" maxProperties:"20" doc:"Required claims of the tokens. A key is the name of a claim or a JSON pointer to it. In a value, * matches one or more letters, digits, dots, underscores and hyphens"`
	Bound    bool              `json:"bound,omitempty" doc:"Accept only tokens whose audience holds the binding of the request. An agent requests such a token from its platform. A service account with roles cannot have it"`
	Keys     json.RawMessage   `json:"keys,omitempty" doc:"JSON Web Key Set of the issuer, if the control plane cannot reach the issuer"`
}

// CreateServiceAccountRequest creates a service account.
type CreateServiceAccountRequest struct {
	Name  string `json:"name" minLength:"1" maxLength:"63" form:"name"`
	Group string `json:"group,omitempty" maxLength:"900" form:"group" doc:"Path of the group whose owners manage it; absent: the org. Runners of this group and of the groups below can have it. It cannot be changed"`
	ServiceAccountSettings
}

// ServiceAccountSettings are what can be changed of a service account.
type ServiceAccountSettings struct {
	TokenRule
	Roles []RoleBinding `json:"roles,omitempty" maxItems:"20" doc:"What a program that logs in as the service account may do, and where; absent: it cannot log in, and is for runners only. The caller must be an owner at each of these places"`
}

// ServiceAccount is an identity of programs, which prove it by OIDC tokens of their platform.
type ServiceAccount struct {
	Actors
	ID    string `json:"id"`
	Name  string `json:"name"`
	Group string `json:"group,omitempty" doc:"Path of its group; absent: the org"`
	ServiceAccountSettings
	Runners   []string  `json:"runners,omitempty" doc:"Names of the runners that have it, 100 at most; only in the answer about one service account"`
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at" doc:"When its rule or its roles changed last"`
}

// LogInServiceAccountRequest proves that a program is a service account.
type LogInServiceAccountRequest struct {
	Org   string `json:"org,omitempty" maxLength:"63" doc:"Org of the service account; absent: default"`
	Token string `json:"token" minLength:"1" maxLength:"12288" doc:"OIDC token of the program's platform. It is accepted once"`
}

// ServiceAccountLogin is a token for an hour.
type ServiceAccountLogin struct {
	Token     string        `json:"token" doc:"Bearer token of the program"`
	ExpiresAt time.Time     `json:"expires_at"`
	Org       string        `json:"org"`
	Name      string        `json:"name" doc:"Name of the service account"`
	Roles     []RoleBinding `json:"roles" doc:"What the program may do, and where"`
}
