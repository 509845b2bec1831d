package kernel

import (
	"context"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// User is who calls the control API.
type User struct {
	Org      fairlead.OrgID
	Operator bool           // may change what is shared with every org
	Token    fairlead.Actor // by which the user is known
}

type actorKey struct{}

// As returns a context whose use cases record that the actor asked for them.
func As(ctx context.Context, a fairlead.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// Actor returns who asks; the zero Actor if that is no holder of an API token.
func Actor(ctx context.Context) fairlead.Actor {
	a, _ := ctx.Value(actorKey{}).(fairlead.Actor)
	return a
}
