package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about people: users, their logins, and the issuers at which they log in.
var (
	BeginLogin = Route{"begin-login", "GET", "/v1/login"}
	LogIn      = Route{"log-in", "POST", "/v1/logins"}
	UseLink    = Route{"use-login-link", "POST", "/v1/logins/link"}
	LogOut     = Route{"log-out", "DELETE", "/v1/logins/current"}
	GetCaller  = Route{"get-caller", "GET", "/v1/caller"}

	InviteUser = Route{"invite-user", "POST", "/v1/users"}
	ListUsers  = Route{"list-users", "GET", "/v1/users"}
	GetUser    = Route{"get-user", "GET", "/v1/users/{user}"}
	UpdateUser = Route{"update-user", "PATCH", "/v1/users/{user}"}
	DeleteUser = Route{"delete-user", "DELETE", "/v1/users/{user}"}
	CreateLink = Route{"create-login-link", "POST", "/v1/users/{user}/link"}
	EndLogins  = Route{"end-logins", "DELETE", "/v1/users/{user}/logins"}

	SetLoginIssuer    = Route{"set-login-issuer", "PUT", "/v1/login-issuers/{issuer}"}
	ListLoginIssuers  = Route{"list-login-issuers", "GET", "/v1/login-issuers"}
	DeleteLoginIssuer = Route{"delete-login-issuer", "DELETE", "/v1/login-issuers/{issuer}"}
)

// LoginStart is what a program needs to let a person log in.
type LoginStart struct {
	Nonce     string          `json:"nonce" doc:"Put it as nonce into the request for an ID token. The device flow has no nonce"`
	ExpiresAt time.Time       `json:"expires_at" doc:"When the nonce expires"`
	Issuers   []LoginProvider `json:"issuers" doc:"Where people can log in; empty: there are only API tokens"`
}

// LoginProvider is an issuer as a program that logs in must know it.
type LoginProvider struct {
	Name         string `json:"name"`
	Issuer       string `json:"issuer" doc:"URL of the issuer, below which its configuration is"`
	ClientID     string `json:"client_id" doc:"By which the issuer knows programs that log in here"`
	ClientSecret string `json:"client_secret,omitempty" doc:"For issuers that ask every client for one. Each caller gets it, so it protects nothing"`
}

// LogInRequest proves who a person is.
type LogInRequest struct {
	Issuer  string `json:"issuer" minLength:"1" maxLength:"63" form:"name" doc:"Name of the issuer"`
	IDToken string `json:"id_token" minLength:"1" maxLength:"12288" doc:"ID token of the issuer, for the client id. It is accepted once, for ten minutes after it was issued"`
	Nonce   string `json:"nonce,omitempty" maxLength:"255" doc:"Nonce of begin-login, if the request for the ID token had it; absent: the ID token has none"`
	Org     string `json:"org,omitempty" maxLength:"63" doc:"Org to log in to; absent: the only one that has invited the person"`
}

// Login is a token for some hours.
type Login struct {
	Token     string    `json:"token" doc:"Bearer token of the person"`
	ExpiresAt time.Time `json:"expires_at"`
	Org       string    `json:"org"`
	User      User      `json:"user"`
}

// LoginLink is a token that is good for one login of a person of a customer.
type LoginLink struct {
	Token     string    `json:"token" doc:"Give it to the person by a channel that others do not read"`
	ExpiresAt time.Time `json:"expires_at"`
}

// UseLinkRequest trades a login link for a login.
type UseLinkRequest struct {
	Token string `json:"token" minLength:"1" maxLength:"255" doc:"Token of the login link"`
}

// Caller is who sent a request.
type Caller struct {
	Kind      string        `json:"kind" enum:"token,user,service-account" doc:"What the caller is"`
	ID        string        `json:"id"`
	Name      string        `json:"name" doc:"Name of the token or the service account, or email of the user"`
	Org       string        `json:"org"`
	Operator  bool          `json:"operator" doc:"Whether it may change what all orgs share"`
	Roles     []RoleBinding `json:"roles" doc:"What it may do, and where"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty" doc:"When its token expires; absent: never"`
}

// InviteUserRequest makes a person a user.
type InviteUserRequest struct {
	Email    string        `json:"email" minLength:"3" maxLength:"254" form:"email" doc:"By which the issuer knows the person. Case is ignored"`
	Operator bool          `json:"operator,omitempty" doc:"Whether the person may change what all orgs share; only an operator may invite an operator"`
	Roles    []RoleBinding `json:"roles" minItems:"1" maxItems:"20" doc:"What the person may do, and where. The caller must be an owner at each of these places, or security at an install. An owner of the org invites viewers of an install, and its first security"`
}

// UpdateUserRequest changes a user; what is absent stays.
type UpdateUserRequest struct {
	Operator *bool         `json:"operator,omitempty" doc:"Whether the person may change what all orgs share; only an operator changes this"`
	Roles    []RoleBinding `json:"roles,omitempty" maxItems:"20" doc:"The roles that the user has from now on. The caller must be an owner at each place of the old and of the new roles"`
}

// User is a person who may log in.
type User struct {
	Actors
	ID         string        `json:"id"`
	Email      string        `json:"email"`
	Name       string        `json:"name,omitempty" doc:"As the issuer reported it at the last login"`
	Operator   bool          `json:"operator" doc:"Whether the person may change what all orgs share"`
	Roles      []RoleBinding `json:"roles" doc:"What the person may do, and where"`
	Issuer     string        `json:"issuer,omitempty" doc:"URL of the issuer that knows the person; absent: the person has not logged in"`
	CreatedAt  time.Time     `json:"created_at" doc:"When the person was invited"`
	LoggedInAt *time.Time    `json:"logged_in_at,omitempty" doc:"Time of the last login; absent: never"`
	Logins     []UserLogin   `json:"logins,omitempty" doc:"Logins that are not over; only in the answer about one user"`
}

// UserLogin is a login of a user.
type UserLogin struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// LoginIssuerRule says how people log in at an issuer.
type LoginIssuerRule struct {
	Issuer       string          `json:"issuer" minLength:"1" maxLength:"500" doc:"Exact value of the iss claim of its tokens; an https URL"`
	ClientID     string          `json:"client_id" minLength:"1" maxLength:"500" doc:"Of the client that was registered at the issuer: a public client with PKCE, whose redirect URL is http://localhost at any port"`
	ClientSecret string          `json:"client_secret,omitempty" maxLength:"500" doc:"For an issuer that asks also public clients for one. Each caller can get it"`
	TrustEmail   bool            `json:"trust_email,omitempty" doc:"Accept the email of a token without the claim email_verified. Only for an issuer at which people cannot choose their emails"`
	Keys         json.RawMessage `json:"keys,omitempty" doc:"JSON Web Key Set of the issuer, if the control plane cannot reach the issuer"`
}

// LoginIssuer is an issuer at which people log in.
type LoginIssuer struct {
	Actors
	Name string `json:"name"`
	LoginIssuerRule
	SetAt time.Time `json:"set_at"`
}
