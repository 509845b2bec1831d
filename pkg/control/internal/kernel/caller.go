package kernel

import (
	"context"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
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

// RunnerActor is the actor of entries of the audit about what the agents and steps of a runner do. No record gets it.
func RunnerActor(id fairlead.RunnerID, name string) fairlead.Actor {
	return fairlead.Actor{Token: string(id), Name: name, Kind: "runner"}
}

// Request is the request of the actor, as an entry of the audit has it.
type Request struct {
	Org    fairlead.OrgID
	ID     string
	Action string   // the API's operation
	Rights []string // for which the rule of the route can ask
}

type requestKey struct{}

// Asked returns a context that carries the request of the actor. Entries of the audit name it.
func Asked(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

func asked(ctx context.Context) store.Request {
	r, _ := ctx.Value(requestKey{}).(Request)
	return store.Request(r)
}
