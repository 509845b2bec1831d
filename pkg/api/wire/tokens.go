package wire

import "time"

// The routes of the control API about API tokens.
var (
	CreateToken = Route{"create-token", "POST", "/v1/tokens"}
	ListTokens  = Route{"list-tokens", "GET", "/v1/tokens"}
	RevokeToken = Route{"revoke-token", "DELETE", "/v1/tokens/{token}"}
)

// CreateTokenRequest creates an API token.
type CreateTokenRequest struct {
	Name      string     `json:"name" minLength:"1" maxLength:"63" form:"name"`
	Operator  bool       `json:"operator,omitempty" doc:"Whether it may change what all orgs share; only a token of an operator may create such a token"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it expires; absent: never"`
}

// Token is an API token.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Token      string     `json:"token,omitempty" doc:"The secret token; only in the answer to the request that creates it"`
	Operator   bool       `json:"operator" doc:"Whether it may change what all orgs share"`
	Current    bool       `json:"current" doc:"Whether this request was sent with it"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" doc:"Absent: it does not expire"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"Exact to one hour; absent: never used"`
}

// Actor is the API token of a request.
type Actor struct {
	Token string `json:"token" doc:"Identifier of the token"`
	Name  string `json:"name" doc:"Name of the token at that time"`
}
