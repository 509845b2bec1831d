package wire

import "time"

// The routes of the control API about API tokens.
var (
	CreateToken = Route{"create-token", "POST", "/v1/tokens"}
	ListTokens  = Route{"list-tokens", "GET", "/v1/tokens"}
	RevokeToken = Route{"revoke-token", "DELETE", "/v1/tokens/{token}"}
)

// CreateTokenRequest makes an API token.
type CreateTokenRequest struct {
	Name      string     `json:"name" minLength:"1" maxLength:"63" form:"name"`
	Operator  bool       `json:"operator,omitempty" doc:"Whether it may change what is shared with every org; only an operator's token makes such a one"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it is refused from; absent: never"`
}

// Token is an API token.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Token      string     `json:"token,omitempty" doc:"What is sent; only in the answer to the request that makes the token"`
	Operator   bool       `json:"operator" doc:"Whether it may change what is shared with every org"`
	Current    bool       `json:"current" doc:"Whether it is the one of this request"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" doc:"Absent: never"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"To within an hour; absent: never"`
}

// Actor is the API token by which something was asked for.
type Actor struct {
	Token string `json:"token" doc:"Identifier of the token"`
	Name  string `json:"name" doc:"Its name at that time"`
}
