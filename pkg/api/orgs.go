package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// OrgPath names an org.
type OrgPath struct {
	Org string `path:"org" maxLength:"63" form:"name" doc:"Name of the org"`
}

func (s *server) orgRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateOrgRequest
	}
	register(s, op{Route: wire.CreateOrg, auth: apiToken, may: onShared(access.Operate), tag: "Orgs", summary: "Create an org with a token for the login of its first owner", status: http.StatusCreated,
		doc:      "The token expires after seven days, and when an owner of the org logs in for the first time. It is in this answer, and in the answer to the same request with the same Idempotency-Key.",
		problems: slices.Concat(creator, codes{fairlead.CodeOperatorOnly, fairlead.CodeInvalidName, fairlead.CodeOrgExists, fairlead.CodeTokenNotFound})},
		func(ctx context.Context, in *create) (*body[wire.Org], error) {
			o, err := c.CreateOrg(ctx, callerOf(ctx).who, in.Body.Name, in.IdempotencyKey)
			return answer(renderOrg(o), err)
		})
	register(s, op{Route: wire.ListOrgs, auth: apiToken, may: onShared(access.Operate), tag: "Orgs", summary: "List orgs, first that of the first start, then by name",
		problems: slices.Concat(listing, codes{fairlead.CodeOperatorOnly})},
		func(ctx context.Context, in *ListInput) (*paged[wire.Org], error) {
			return list(in, all[control.Org](), renderOrg, func(q fairlead.PageQuery) ([]control.Org, string, error) {
				return c.Orgs(ctx, callerOf(ctx).who, q)
			})
		})
	register(s, op{Route: wire.GetOrg, auth: apiToken, may: onShared(access.Operate), tag: "Orgs", summary: "Get an org",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeOrgNotFound}},
		func(ctx context.Context, in *OrgPath) (*body[wire.Org], error) {
			o, err := c.Org(ctx, callerOf(ctx).who, in.Org)
			return answer(renderOrg(o), err)
		})
	register(s, op{Route: wire.DeleteOrg, auth: apiToken, may: onShared(access.Operate), tag: "Orgs", summary: "Delete an org that has nothing but users and tokens", status: http.StatusNoContent,
		doc:      "Its users, tokens and service accounts are refused from now on. No later org can have its name.",
		problems: codes{fairlead.CodeOperatorOnly, fairlead.CodeOrgNotFound, fairlead.CodeOrgNotEmpty}},
		func(ctx context.Context, in *OrgPath) (*struct{}, error) {
			return nil, c.DeleteOrg(ctx, callerOf(ctx).who, in.Org)
		})
}

func renderOrg(o control.Org) wire.Org {
	return wire.Org{Actors: renderActors(o.Actors), Name: string(o.Name), CreatedAt: moment(o.Created), Token: o.First.Secret, ExpiresAt: moment(o.First.Expires)}
}
