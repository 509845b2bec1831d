package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func (s *server) tokenRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateTokenRequest
	}
	register(s, op{Route: wire.CreateToken, auth: apiToken, tag: "Tokens", summary: "Make an API token", status: http.StatusCreated,
		doc:      "The control plane keeps only the hash. The token itself is in this answer, and in the answer to the same request with the same Idempotency-Key.",
		problems: slices.Concat(creator, codes{fairlead.CodeInvalidName, fairlead.CodeInvalidExpiry, fairlead.CodeOperatorOnly, fairlead.CodeTokenExists, fairlead.CodeTooManyTokens})},
		func(ctx context.Context, in *create) (*body[wire.Token], error) {
			asked := control.NewToken{Name: in.Body.Name, Operator: in.Body.Operator}
			if in.Body.ExpiresAt != nil {
				asked.Expires = *in.Body.ExpiresAt
			}
			t, err := c.CreateToken(ctx, callerOf(ctx).user, asked, in.IdempotencyKey)
			return answer(renderToken(ctx)(t), err)
		})
	register(s, op{Route: wire.ListTokens, auth: apiToken, tag: "Tokens", summary: "List API tokens by name",
		doc:      "Expired tokens are listed until they are revoked.",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.Token], error) {
			return list(in, renderToken(ctx), func(q fairlead.PageQuery) ([]control.Token, string, error) {
				return c.Tokens(ctx, callerOf(ctx).org, q)
			})
		})
	type revoke struct {
		Token string `path:"token" maxLength:"64" form:"identifier" doc:"Name or identifier of the token"`
	}
	register(s, op{Route: wire.RevokeToken, auth: apiToken, tag: "Tokens", summary: "Revoke an API token", status: http.StatusNoContent,
		doc:      "The token is refused from now on. The last valid token cannot be revoked, nor the last valid token of an operator.",
		problems: codes{fairlead.CodeTokenNotFound, fairlead.CodeLastToken, fairlead.CodeOperatorOnly}},
		func(ctx context.Context, in *revoke) (*struct{}, error) {
			return nil, c.RevokeToken(ctx, callerOf(ctx).user, in.Token)
		})
}

// renderToken returns a function that renders tokens for the caller of the request.
func renderToken(ctx context.Context) func(control.Token) wire.Token {
	own := callerOf(ctx).user.Token.Token
	return func(t control.Token) wire.Token {
		return wire.Token{ID: t.ID, Name: t.Name, Operator: t.Operator, Current: t.ID == own, CreatedAt: t.Created.UTC(), ExpiresAt: moment(t.Expires), LastUsedAt: moment(t.Used), Token: t.Secret}
	}
}

func renderActor(a fairlead.Actor) *wire.Actor {
	if a == (fairlead.Actor{}) {
		return nil
	}
	return &wire.Actor{Token: a.Token, Name: a.Name}
}
