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

// ServiceAccountPath names a service account.
type ServiceAccountPath struct {
	Account string `path:"account" maxLength:"63" form:"name" doc:"Name of the service account"`
}

func (p ServiceAccountPath) target(ctx context.Context, r *asked) (access.Object, error) {
	return r.ServiceAccount(ctx, p.Account)
}

func (p ServiceAccountPath) missing() error {
	return fairlead.NotFound(fairlead.CodeServiceAccountNotFound, p.Account)
}

// AssignmentPath names a runner and a service account.
type AssignmentPath struct {
	RunnerPath
	ServiceAccountPath
}

// mayCreateAccount is the rule of a new service account: its group is in the body.
func mayCreateAccount(_ context.Context, r *asked, in wire.CreateServiceAccountRequest) ([]need, error) {
	o, err := groupTarget(r, in.Group)
	return []need{{access.ManagePeople, o, nil}}, err
}

// mayAssign is the rule of an assignment: the caller manages the runner, and the runners of the account's group.
func mayAssign(ctx context.Context, r *asked, in AssignmentPath) ([]need, error) {
	needs, err := r.onPath(ctx, access.ManageRunners, in.RunnerPath)
	if err != nil {
		return nil, err
	}
	more, err := r.onPath(ctx, access.ManageRunners, in.ServiceAccountPath)
	return append(needs, more...), err
}

func accountsOf(o *control.Objects) func(context.Context, control.ServiceAccount) (access.Object, error) {
	return func(_ context.Context, a control.ServiceAccount) (access.Object, error) {
		return o.OfServiceAccount(a), nil
	}
}

func (s *server) accountRoutes(c *control.Control) {
	settings := codes{fairlead.CodeInvalidOIDCTrust, fairlead.CodeInvalidName, fairlead.CodeInvalidRole, fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound, fairlead.CodeRoleMissing}
	type create struct {
		OnceInput
		Body wire.CreateServiceAccountRequest
	}
	register(s, op{Route: wire.CreateServiceAccount, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *create) ([]need, error) {
		return mayCreateAccount(ctx, r, in.Body)
	}, access.ManagePeople), tag: "Service accounts",
		summary: "Create a service account: programs with certain OIDC tokens can act as it", status: http.StatusCreated,
		doc:      "The issuer of the tokens can be a CI service, Kubernetes, Azure, Google Cloud, or any other that publishes its keys. docs/vendor/identity.md has an example for each.",
		problems: slices.Concat(creator, settings, codes{fairlead.CodeGroupNotEmpty, fairlead.CodeServiceAccountExists, fairlead.CodeServiceAccountNotFound, fairlead.CodeQuotaReached})},
		func(ctx context.Context, in *create) (*body[wire.ServiceAccount], error) {
			a, err := c.CreateServiceAccount(ctx, callerOf(ctx).who, control.NewServiceAccount{Name: in.Body.Name, Group: in.Body.Group, AccountSettings: readSettings(in.Body.ServiceAccountSettings)}, in.IdempotencyKey)
			return answer(renderAccount(a), err)
		})
	register(s, op{Route: wire.ListServiceAccounts, auth: apiToken, may: eachCaller(), tag: "Service accounts", summary: "List service accounts by name",
		doc:      "Only service accounts of groups that the caller may see are listed.",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.ServiceAccount], error) {
			return list(in, seen(ctx, s, accountsOf), renderAccount, func(q fairlead.PageQuery) ([]control.ServiceAccount, string, error) {
				return c.ServiceAccounts(ctx, callerOf(ctx).org, q)
			})
		})
	register(s, op{Route: wire.GetServiceAccount, auth: apiToken, may: on(access.View), tag: "Service accounts", summary: "Get a service account with its runners"},
		func(ctx context.Context, in *ServiceAccountPath) (*body[wire.ServiceAccount], error) {
			a, err := c.ServiceAccount(ctx, callerOf(ctx).org, in.Account)
			return answer(renderAccount(a), err)
		})
	type update struct {
		ServiceAccountPath
		Body wire.ServiceAccountSettings
	}
	register(s, op{Route: wire.UpdateServiceAccount, auth: apiToken, may: on(access.ManagePeople), tag: "Service accounts", summary: "Replace the rule and the roles of a service account",
		doc:      "The caller must be an owner at each place of the old and of the new roles. A new rule ends the sessions of agents and the logins that the old one admitted; agents prove again who they are. New roles hold from the next request on.",
		problems: settings},
		func(ctx context.Context, in *update) (*body[wire.ServiceAccount], error) {
			a, err := c.UpdateServiceAccount(ctx, callerOf(ctx).who, in.Account, readSettings(in.Body))
			return answer(renderAccount(a), err)
		})
	register(s, op{Route: wire.DeleteServiceAccount, auth: apiToken, may: on(access.ManagePeople), tag: "Service accounts", summary: "Delete a service account that no runner has, and end its logins", status: http.StatusNoContent,
		problems: codes{fairlead.CodeServiceAccountInUse}},
		func(ctx context.Context, in *ServiceAccountPath) (*struct{}, error) {
			return nil, c.DeleteServiceAccount(ctx, callerOf(ctx).who, in.Account)
		})
	type login struct {
		ServiceAccountPath
		OnceInput
		Body wire.LogInServiceAccountRequest
	}
	register(s, op{Route: wire.LogInServiceAccount, auth: unauthenticated, may: open(), tag: "Service accounts", summary: "Log in as a service account with an OIDC token of the program's platform", status: http.StatusCreated,
		doc:      "The answer has a token for an hour. It permits what the roles of the service account permit at the time of each request. The platform's token is accepted once. The refusal does not tell whether the service account exists.",
		problems: slices.Concat(creator, codes{fairlead.CodeInvalidName, fairlead.CodeLoginRefused, fairlead.CodeRoleMissing, fairlead.CodeOIDCIssuerUnavailable})},
		func(ctx context.Context, in *login) (*body[wire.ServiceAccountLogin], error) {
			l, err := c.LogInServiceAccount(ctx, control.AccountProof{Org: fairlead.OrgID(in.Body.Org), Name: in.Account, Token: in.Body.Token}, in.IdempotencyKey)
			return answer(wire.ServiceAccountLogin{Token: l.Token, ExpiresAt: l.Expires.UTC(), Org: string(l.Org), Name: l.Account.Name, Roles: renderBindings(l.Account.Bindings)}, err)
		})
	s.assignmentRoutes(c)
	s.agentRoutes(c)
}

func (s *server) assignmentRoutes(c *control.Control) {
	may := where(func(ctx context.Context, r *asked, in *AssignmentPath) ([]need, error) { return mayAssign(ctx, r, *in) }, access.ManageRunners)
	found := codes{fairlead.CodeRunnerNotFound, fairlead.CodeServiceAccountNotFound}
	register(s, op{Route: wire.AssignServiceAccount, auth: apiToken, may: may, tag: "Service accounts", summary: "Let agents open sessions of a runner as a service account",
		doc:      "The service account must be of the runner's group, or of a group above it. A shared runner takes none. To repeat it changes nothing.",
		problems: slices.Concat(found, codes{fairlead.CodeServiceAccountUnfit, fairlead.CodeTooManyServiceAccounts, fairlead.CodeRunnerInUse})},
		func(ctx context.Context, in *AssignmentPath) (*body[wire.Runner], error) {
			r, err := c.AssignServiceAccount(ctx, callerOf(ctx).user, in.Runner, in.Account)
			return answer(renderRunner(r, callerOf(ctx).user), err)
		})
	unassign := where(func(ctx context.Context, r *asked, in *AssignmentPath) ([]need, error) {
		return r.onPath(ctx, access.ManageRunners, in.RunnerPath)
	}, access.ManageRunners)
	register(s, op{Route: wire.UnassignServiceAccount, auth: apiToken, may: unassign, tag: "Service accounts", summary: "Take a service account from a runner, and end the sessions that agents opened as it", status: http.StatusNoContent,
		doc:      "Jobs that run go on to their end under leases of their own.",
		problems: found},
		func(ctx context.Context, in *AssignmentPath) (*struct{}, error) {
			return nil, c.UnassignServiceAccount(ctx, callerOf(ctx).user, in.Runner, in.Account)
		})
}

func readSettings(in wire.ServiceAccountSettings) control.AccountSettings {
	return control.AccountSettings{Rule: control.TokenRule(in.TokenRule), Bindings: readBindings(in.Roles)}
}

func renderAccount(a control.ServiceAccount) wire.ServiceAccount {
	out := wire.ServiceAccount{Actors: renderActors(a.Actors), ID: a.ID, Name: a.Name, Group: string(a.Group), Runners: a.Runners, CreatedAt: a.Created.UTC(), ChangedAt: a.Changed.UTC(),
		ServiceAccountSettings: wire.ServiceAccountSettings{TokenRule: wire.TokenRule(a.Rule)}}
	if len(a.Bindings) > 0 {
		out.Roles = renderBindings(a.Bindings)
	}
	return out
}

func (s *server) agentRoutes(c *control.Control) {
	found := codes{fairlead.CodeRunnerNotFound, fairlead.CodeOperatorOnly}
	type list struct{ RunnerPath }
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
