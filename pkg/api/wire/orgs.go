package wire

import "time"

// The routes of the control API about orgs. Only operators call them.
var (
	CreateOrg = Route{"create-org", "POST", "/v1/orgs"}
	ListOrgs  = Route{"list-orgs", "GET", "/v1/orgs"}
	GetOrg    = Route{"get-org", "GET", "/v1/orgs/{org}"}
	DeleteOrg = Route{"delete-org", "DELETE", "/v1/orgs/{org}"}
)

// CreateOrgRequest creates an org.
type CreateOrgRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"63" form:"name"`
}

// Org is a tenant of the control plane.
type Org struct {
	Actors
	Name      string     `json:"name"`
	CreatedAt *time.Time `json:"created_at,omitempty" doc:"Absent: the org of the first start"`
	Token     string     `json:"token,omitempty" doc:"The token of the first owner, for the first login; only in the answer to the request that creates the org"`
	ExpiresAt *time.Time `json:"token_expires_at,omitempty" doc:"When the token of the first owner expires"`
}
