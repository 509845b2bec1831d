package kernel

import (
	"context"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// User is a caller of the control API.
type User struct {
	Org      fairlead.OrgID
	Operator bool           // may change what all orgs share
	Token    fairlead.Actor // identifies the user
}

type actorKey struct{}

// As returns a context that carries the actor. Use cases record this actor as the
// requester.
func As(ctx context.Context, a fairlead.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// Actor returns the actor of the context. It is zero if the request was not made with
// an API token.
func Actor(ctx context.Context) fairlead.Actor {
	a, _ := ctx.Value(actorKey{}).(fairlead.Actor)
	return a
}
