package wire

import "time"

// The routes of the control API about API tokens.
var (
	CreateToken = Route{"create-token", "POST", "/v1/tokens"}
	ListTokens  = Route{"list-tokens", "GET", "/v1/tokens"}
	GetToken    = Route{"get-token", "GET", "/v1/tokens/{token}"}
	RevokeToken = Route{"revoke-token", "DELETE", "/v1/tokens/{token}"}
)

// HeaderTokenExpires is in each answer to an API token that expires within three days: the time, as RFC 3339 writes it.
const HeaderTokenExpires = "Fairlead-Token-Expires"

// CreateTokenRequest creates an API token.
type CreateTokenRequest struct {
	Name      string     `json:"name" minLength:"1" maxLength:"63" form:"name"`
	Operator  bool       `json:"operator,omitempty" doc:"Whether it may change what all orgs share; only a token of an operator may create such a token"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it expires; absent: never"`

	Roles []RoleBinding `json:"roles,omitempty" maxItems:"20" doc:"What it may do, and where; absent: owner of the org. The caller must be an owner at each of these places"`
}

// RoleBinding is a role at a place: in a group with the groups below it, in an app with its installs, or in the whole org.
type RoleBinding struct {
	Role  string `json:"role" enum:"owner,deployer,approver,viewer,security" doc:"What it may do; docs/operations/people.md has the table"`
	Group string `json:"group,omitempty" maxLength:"900" form:"group" doc:"Path of the group; absent together with app and install: the whole org"`
	App   string `json:"app,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of the app, which need not exist yet"`
	// Only users have a role at an install.
	Install string `json:"install,omitempty" maxLength:"63" form:"name-or-none" doc:"Name of the install: a role approver, viewer or security of a person of the customer"`
}

// Token is an API token.
type Token struct {
	Actors
	ID         string        `json:"id"`
	Name       string        `json:"name"`
	Token      string        `json:"token,omitempty" doc:"The secret token; only in the answer to the request that creates it"`
	Operator   bool          `json:"operator" doc:"Whether it may change what all orgs share"`
	Roles      []RoleBinding `json:"roles" doc:"What it may do, and where"`
	First      bool          `json:"first,omitempty" doc:"Whether it is the token of the first start, which ends when an operator who owns the org logs in for the first time"`
	Current    bool          `json:"current" doc:"Whether this request was sent with it"`
	CreatedAt  time.Time     `json:"created_at"`
	ExpiresAt  *time.Time    `json:"expires_at,omitempty" doc:"Absent: it does not expire"`
	LastUsedAt *time.Time    `json:"last_used_at,omitempty" doc:"Exact to one hour; absent: never used"`
}

// Actor is who made a request.
type Actor struct {
	Token string `json:"token" doc:"Identifier of the caller: of the API token, the user or the service account"`
	Name  string `json:"name" doc:"Name of the token or the service account at that time, or email of the user"`
	Kind  string `json:"kind" enum:"token,user,service-account" doc:"What the caller is; an identifier of the control plane itself is shown as a token"`
}

// Actors are who created an object, and who changed it last.
type Actors struct {
	CreatedBy *Actor `json:"created_by,omitempty" doc:"Who created it; absent: the control plane itself, or an earlier release of it"`
	ChangedBy *Actor `json:"changed_by,omitempty" doc:"Who changed it last; absent as created_by"`
}
