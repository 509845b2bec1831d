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

// TrustPath names a trust of a runner.
type TrustPath struct {
	RunnerPath
	Trust string `path:"trust" maxLength:"63" form:"name" doc:"Name of the trust"`
}

func (s *server) trustRoutes(c *control.Control) {
	found := codes{fairlead.CodeRunnerNotFound, fairlead.CodeOperatorOnly}
	type create struct {
		RunnerPath
		OnceInput
		Body wire.CreateTrustRequest
	}
	register(s, op{Route: wire.CreateTrust, auth: apiToken, may: on(access.ManageRunners), tag: "Trusts", summary: "Let tokens of an OIDC issuer open sessions of a runner", status: http.StatusCreated,
		doc:      "The issuer can be Kubernetes, Azure, Google Cloud, a CI service, or any other that publishes its keys. docs/vendor/identity.md has an example for each.",
		problems: slices.Concat(creator, found, codes{fairlead.CodeInvalidName, fairlead.CodeInvalidOIDCTrust, fairlead.CodeTrustExists, fairlead.CodeTrustNotFound, fairlead.CodeTooManyTrusts, fairlead.CodeRunnerInUse})},
		func(ctx context.Context, in *create) (*body[wire.Trust], error) {
			t, err := c.CreateTrust(ctx, callerOf(ctx).user, in.Runner, control.NewTrust{Name: in.Body.Name, Rule: control.TrustRule(in.Body.TrustRule)}, in.IdempotencyKey)
			return answer(renderTrust(in.Runner)(t), err)
		})
	type list struct{ RunnerPath }
	register(s, op{Route: wire.ListTrusts, auth: apiToken, may: on(access.View), tag: "Trusts", summary: "List a runner's trusts by name, all of them",
		problems: found},
		func(ctx context.Context, in *list) (*body[wire.Page[wire.Trust]], error) {
			trusts, err := c.Trusts(ctx, callerOf(ctx).user, in.Runner)
			page := wire.Page[wire.Trust]{Items: []wire.Trust{}}
			for _, t := range trusts {
				page.Items = append(page.Items, renderTrust(in.Runner)(t))
			}
			return answer(page, err)
		})
	register(s, op{Route: wire.GetTrust, auth: apiToken, may: on(access.View), tag: "Trusts", summary: "Get a trust",
		problems: slices.Concat(found, codes{fairlead.CodeTrustNotFound})},
		func(ctx context.Context, in *TrustPath) (*body[wire.Trust], error) {
			t, err := c.Trust(ctx, callerOf(ctx).user, in.Runner, in.Trust)
			return answer(renderTrust(in.Runner)(t), err)
		})
	type update struct {
		TrustPath
		Body wire.TrustRule
	}
	register(s, op{Route: wire.UpdateTrust, auth: apiToken, may: on(access.ManageRunners), tag: "Trusts", summary: "Replace what a trust says",
		doc:      "Sessions that it has opened are over, unless nothing changes: their agents prove again who they are.",
		problems: slices.Concat(found, codes{fairlead.CodeInvalidName, fairlead.CodeInvalidOIDCTrust, fairlead.CodeTrustNotFound})},
		func(ctx context.Context, in *update) (*body[wire.Trust], error) {
			t, err := c.UpdateTrust(ctx, callerOf(ctx).user, in.Runner, control.NewTrust{Name: in.Trust, Rule: control.TrustRule(in.Body)})
			return answer(renderTrust(in.Runner)(t), err)
		})
	register(s, op{Route: wire.DeleteTrust, auth: apiToken, may: on(access.ManageRunners), tag: "Trusts", summary: "Delete a trust, and end the sessions that it has opened", status: http.StatusNoContent,
		problems: slices.Concat(found, codes{fairlead.CodeTrustNotFound})},
		func(ctx context.Context, in *TrustPath) (*struct{}, error) {
			return nil, c.DeleteTrust(ctx, callerOf(ctx).user, in.Runner, in.Trust)
		})
	type session struct {
		RunnerPath
		Session string `path:"session" maxLength:"64" form:"identifier" doc:"Identifier of the session"`
	}
	register(s, op{Route: wire.EndSession, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "End a session of an agent", status: http.StatusNoContent,
		doc:      "An agent that can still prove who it is opens another.",
		problems: slices.Concat(found, codes{fairlead.CodeSessionNotFound})},
		func(ctx context.Context, in *session) (*struct{}, error) {
			return nil, c.EndSession(ctx, callerOf(ctx).user, in.Runner, fairlead.SessionID(in.Session))
		})
	register(s, op{Route: wire.ListAgents, auth: apiToken, may: on(access.View), tag: "Runners", summary: "List the agents that have enrolled with keys for a runner, the first of them first, all of them",
		problems: found},
		func(ctx context.Context, in *list) (*body[wire.Page[wire.Agent]], error) {
			agents, err := c.Agents(ctx, callerOf(ctx).user, in.Runner)
			page := wire.Page[wire.Agent]{Items: []wire.Agent{}}
			for _, a := range agents {
				page.Items = append(page.Items, renderAgent(a))
			}
			return answer(page, err)
		})
	type agent struct {
		RunnerPath
		Key string `path:"key" maxLength:"64" form:"identifier" doc:"Identifier of the agent's key"`
	}
	register(s, op{Route: wire.RevokeAgent, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "Revoke the key of an agent, for good, and end the sessions that it has opened", status: http.StatusNoContent,
		doc:      "Jobs that run go on to their end under leases of their own. To repeat it changes nothing.",
		problems: slices.Concat(found, codes{fairlead.CodeAgentNotFound})},
		func(ctx context.Context, in *agent) (*struct{}, error) {
			return nil, c.RevokeAgent(ctx, callerOf(ctx).user, in.Runner, in.Key)
		})
}

func renderAgent(a control.Agent) wire.Agent {
	out := wire.Agent{Key: a.Key, EnrolledAt: a.Enrolled.UTC()}
	if !a.Revoked.IsZero() {
		at := a.Revoked.UTC()
		out.RevokedAt = &at
	}
	if a.Session != nil {
		s := renderSession(*a.Session)
		out.Session = &s
	}
	return out
}

func renderTrust(runner string) func(control.Trust) wire.Trust {
	return func(t control.Trust) wire.Trust {
		return wire.Trust{Actors: renderActors(t.Actors), Name: t.Name, Runner: runner, TrustRule: wire.TrustRule(t.Rule), CreatedAt: t.Created.UTC(), ChangedAt: t.Changed.UTC()}
	}
}
