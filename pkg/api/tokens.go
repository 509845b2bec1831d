package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// TokenPath names an API token.
type TokenPath struct {
	Token string `path:"token" maxLength:"64" form:"identifier" doc:"Name or identifier of the token"`
}

// seesToken returns a function that reports whether the caller may see a token.
func seesToken(ctx context.Context) func(control.Token) (bool, error) {
	who := callerOf(ctx).who
	return func(t control.Token) (bool, error) { return control.SeesToken(who, t), nil }
}

func readBindings(in []wire.RoleBinding) []access.Binding {
	var out []access.Binding
	for _, b := range in {
		out = append(out, access.Binding{Role: access.Role(b.Role), Group: placement.Path(b.Group), App: b.App, InstallName: b.Install})
	}
	return out
}

func renderBindings(in []access.Binding) []wire.RoleBinding {
	out := []wire.RoleBinding{}
	for _, b := range in {
		out = append(out, wire.RoleBinding{Role: string(b.Role), Group: string(b.Group), App: b.App, Install: b.InstallName})
	}
	return out
}

func (s *server) tokenRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateTokenRequest
	}
	register(s, op{Route: wire.CreateToken, auth: apiToken, may: eachCaller(), tag: "Tokens", summary: "Make an API token", status: http.StatusCreated,
		doc:      "The control plane keeps only the hash. The token itself is in this answer, and in the answer to the same request with the same Idempotency-Key.",
		problems: slices.Concat(creator, codes{fairlead.CodeInvalidName, fairlead.CodeInvalidExpiry, fairlead.CodeInvalidRole, fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound, fairlead.CodeRoleMissing, fairlead.CodeOperatorOnly, fairlead.CodeTokenExists, fairlead.CodeTooManyTokens})},
		func(ctx context.Context, in *create) (*body[wire.Token], error) {
			asked := control.NewToken{Name: in.Body.Name, Operator: in.Body.Operator, Bindings: readBindings(in.Body.Roles)}
			if in.Body.ExpiresAt != nil {
				asked.Expires = *in.Body.ExpiresAt
			}
			t, err := c.CreateToken(ctx, callerOf(ctx).who, asked, in.IdempotencyKey)
			return answer(renderToken(ctx)(t), err)
		})
	register(s, op{Route: wire.ListTokens, auth: apiToken, may: eachCaller(), tag: "Tokens", summary: "List API tokens by name",
		doc:      "Expired tokens are listed until they are revoked. Only tokens that the caller could create are listed, and its own.",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.Token], error) {
			return list(in, seesToken(ctx), renderToken(ctx), func(q fairlead.PageQuery) ([]control.Token, string, error) {
				return c.Tokens(ctx, callerOf(ctx).org, q)
			})
		})
	register(s, op{Route: wire.GetToken, auth: apiToken, may: eachCaller(), tag: "Tokens", summary: "Get an API token",
		problems: codes{fairlead.CodeTokenNotFound}},
		func(ctx context.Context, in *TokenPath) (*body[wire.Token], error) {
			t, err := c.Token(ctx, callerOf(ctx).who, in.Token)
			return answer(renderToken(ctx)(t), err)
		})
	register(s, op{Route: wire.RevokeToken, auth: apiToken, may: eachCaller(), tag: "Tokens", summary: "Revoke an API token", status: http.StatusNoContent,
		doc:      "The token is refused from now on. The last valid token of an owner of the org cannot be revoked, nor the last valid token of an operator.",
		problems: codes{fairlead.CodeTokenNotFound, fairlead.CodeLastToken, fairlead.CodeOperatorOnly}},
		func(ctx context.Context, in *TokenPath) (*struct{}, error) {
			return nil, c.RevokeToken(ctx, callerOf(ctx).who, in.Token)
		})
}

// renderToken returns a function that renders tokens for the caller of the request.
func renderToken(ctx context.Context) func(control.Token) wire.Token {
	own := callerOf(ctx).user.Token.Token
	return func(t control.Token) wire.Token {
		return wire.Token{Actors: renderActors(t.Actors), ID: t.ID, Name: t.Name, Operator: t.Operator, First: t.First, Roles: renderBindings(t.Bindings), Current: t.ID == own, CreatedAt: t.Created.UTC(), ExpiresAt: moment(t.Expires), LastUsedAt: moment(t.Used), Token: t.Secret}
	}
}

func renderActors(a fairlead.Actors) wire.Actors {
	return wire.Actors{CreatedBy: renderActor(a.CreatedBy), ChangedBy: renderActor(a.ChangedBy)}
}

func renderActor(a fairlead.Actor) *wire.Actor {
	if a == (fairlead.Actor{}) {
		return nil
	}
	return &wire.Actor{Token: a.Token, Name: a.Name, Kind: cmp.Or(a.Kind, string(access.Token))}
}
