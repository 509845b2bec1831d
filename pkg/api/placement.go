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

// placing holds the problems of requests that choose a runner for an install.
var placing = codes{fairlead.CodeRunnerNotFound, fairlead.CodeNoRunner, fairlead.CodeRunnerUnavailable, fairlead.CodeBrokenRule, fairlead.CodeNamedRunnerGone, fairlead.CodeBoundRunnerGone, fairlead.CodeStateStorageChanged, fairlead.CodeRegistryMissing}

func (s *server) placementRoutes(c *control.Control) {
	register(s, op{Route: wire.ExplainPlacement, auth: apiToken, may: on(access.View), tag: "Installs", summary: "Explain which runner serves an install",
		problems: codes{fairlead.CodeInstallNotFound, fairlead.CodeRunnerNotFound}},
		func(ctx context.Context, in *InstallPath) (*body[wire.Placement], error) {
			e, err := c.ExplainInstall(ctx, callerOf(ctx).org, in.Install)
			return answer(renderPlacement(e), err)
		})
	type refresh struct {
		InstallPath
		Body wire.RefreshRunnerRequest
	}
	register(s, op{Route: wire.RefreshRunner, auth: apiToken, may: on(access.EditInstall), tag: "Installs", summary: "Decide again which runner serves an install",
		doc:      "The first deployment binds an install to a runner. The install stays with that runner when rules and runners change, until this request. The details of a refusal name the runner that would be chosen.",
		problems: slices.Concat(placing, codes{fairlead.CodeInstallNotFound, fairlead.CodeDeploymentRuns, fairlead.CodeStateStorageChanges, fairlead.CodeSeedMissing, fairlead.CodeMigrateOrLose, fairlead.CodeNothingToMove, fairlead.CodeStateMoving, fairlead.CodeStateUnknown, fairlead.CodeStateOutOfReach})},
		func(ctx context.Context, in *refresh) (*body[wire.RefreshedRunner], error) {
			out, err := c.RefreshRunner(ctx, callerOf(ctx).org, in.Install, control.Refresh{DryRun: in.Body.DryRun, Migrate: in.Body.MigrateState, AcceptLoss: in.Body.AcceptStateLoss, AcceptKeyLoss: in.Body.AcceptKeyLoss})
			return answer(wire.RefreshedRunner{Runner: out.Runner, Changed: out.Changed, StorageChanged: out.StorageChanged, Bound: out.Bound, Job: string(out.Job)}, err)
		})
	type migrate struct {
		InstallPath
		OnceInput
	}
	register(s, op{Route: wire.MigrateState, auth: apiToken, may: on(access.EditInstall), tag: "Installs", summary: "Move the state of an install to where its runner keeps states", status: http.StatusCreated,
		doc: "The answer is the job that copies the state of each component and reads it back. Until the job has succeeded, the install keeps the old state, which is not changed, " +
			"and no other job runs on the install. After a failure the request can be repeated.",
		problems: slices.Concat(creator, codes{fairlead.CodeInstallNotFound, fairlead.CodeRunnerNotFound, fairlead.CodeNoRunner, fairlead.CodeBoundRunnerGone, fairlead.CodeDeploymentRuns, fairlead.CodeNothingToMove, fairlead.CodeStateMoving, fairlead.CodeStateUnknown, fairlead.CodeStateOutOfReach})},
		func(ctx context.Context, in *migrate) (*body[wire.Job], error) {
			j, err := c.MigrateState(ctx, callerOf(ctx).org, in.Install, in.IdempotencyKey)
			return answer(renderJob(j), err)
		})
	type create struct {
		OnceInput
		Body wire.CreateRunnerRuleRequest
	}
	register(s, op{Route: wire.CreateRunnerRule, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *create) ([]need, error) { return mayCreateRule(ctx, r, in.Body) }, access.ManageRunners), tag: "Runner rules", summary: "Make a rule that sends installs to a runner", status: http.StatusCreated,
		problems: slices.Concat(creator, counted, codes{fairlead.CodeInvalidMatch, fairlead.CodeInvalidName, fairlead.CodeInvalidLabel, fairlead.CodeRuleExists, fairlead.CodeRunnerNotFound, fairlead.CodeRunnerOutOfReach, fairlead.CodeRunnerInUse})},
		func(ctx context.Context, in *create) (*body[wire.RunnerRule], error) {
			r, err := c.CreateRunnerRule(ctx, callerOf(ctx).org, control.NewRunnerRule(in.Body), in.IdempotencyKey)
			return answer(renderRule(r), err)
		})
	register(s, op{Route: wire.ListRunnerRules, auth: apiToken, may: eachCaller(), tag: "Runner rules", summary: "List rules",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.RunnerRule], error) {
			return list(in, seen(ctx, s, rulesOf), renderRule, func(q fairlead.PageQuery) ([]control.RunnerRule, string, error) {
				return c.RunnerRules(ctx, callerOf(ctx).org, q)
			})
		})
	register(s, op{Route: wire.DeleteRunnerRule, auth: apiToken, may: on(access.ManageRunners), tag: "Runner rules", summary: "Delete a rule", status: http.StatusNoContent,
		doc:      "Installs that the rule has bound to a runner stay with that runner.",
		problems: codes{fairlead.CodeRuleNotFound}},
		func(ctx context.Context, in *RulePath) (*struct{}, error) {
			return nil, c.DeleteRunnerRule(ctx, callerOf(ctx).org, in.Rule)
		})
}

// GroupQuery names a group. The path of a group has slashes, which some proxies
// change in the path of a URL, so it is a query parameter.
type GroupQuery struct {
	Path string `query:"path" required:"true" minLength:"1" maxLength:"900" form:"group" doc:"Path of the group; / is the root group"`
}

// BelowQuery names a group that is not the root group.
type BelowQuery struct {
	Path string `query:"path" required:"true" minLength:"1" maxLength:"900" form:"group-below" doc:"Path of the group"`
}

func (s *server) groupRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateGroupRequest
	}
	register(s, op{Route: wire.CreateGroup, auth: apiToken, may: where(func(_ context.Context, r *asked, in *create) ([]need, error) {
		o, err := groupTarget(r, in.Body.Path)
		return []need{{access.ManageRunners, o, nil}}, err
	}, access.ManageRunners), tag: "Groups", summary: "Make a group", status: http.StatusCreated,
		problems: slices.Concat(creator, counted, codes{fairlead.CodeInvalidGroup, fairlead.CodeGroupExists, fairlead.CodeGroupNotFound, fairlead.CodeGroupNotEmpty})},
		func(ctx context.Context, in *create) (*body[wire.Group], error) {
			g, err := c.CreateGroup(ctx, callerOf(ctx).org, in.Body.Path, in.Body.Description, in.IdempotencyKey)
			return answer(renderGroup(g), err)
		})
	register(s, op{Route: wire.ListGroups, auth: apiToken, may: eachCaller(), tag: "Groups", summary: "List groups by path",
		problems: listing},
		func(ctx context.Context, in *ListInput) (*paged[wire.Group], error) {
			return list(in, seen(ctx, s, groupsOf), renderGroup, func(q fairlead.PageQuery) ([]control.Group, string, error) {
				return c.Groups(ctx, callerOf(ctx).org, q)
			})
		})
	register(s, op{Route: wire.GetGroup, auth: apiToken, may: on(access.View), tag: "Groups", summary: "Get a group",
		problems: codes{fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound}},
		func(ctx context.Context, in *GroupQuery) (*body[wire.Group], error) {
			g, err := c.Group(ctx, callerOf(ctx).org, in.Path)
			return answer(renderGroup(g), err)
		})
	type update struct {
		BelowQuery
		Body wire.UpdateGroupRequest
	}
	register(s, op{Route: wire.UpdateGroup, auth: apiToken, may: on(access.ManageRunners), tag: "Groups", summary: "Change the description of a group",
		problems: codes{fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound}},
		func(ctx context.Context, in *update) (*body[wire.Group], error) {
			g, err := c.UpdateGroup(ctx, callerOf(ctx).org, in.Path, in.Body.Description)
			return answer(renderGroup(g), err)
		})
	register(s, op{Route: wire.DeleteGroup, auth: apiToken, may: on(access.ManageRunners), tag: "Groups", summary: "Delete an empty group", status: http.StatusNoContent,
		problems: codes{fairlead.CodeInvalidGroup, fairlead.CodeGroupNotFound, fairlead.CodeGroupNotEmpty}},
		func(ctx context.Context, in *BelowQuery) (*struct{}, error) {
			return nil, c.DeleteGroup(ctx, callerOf(ctx).org, in.Path)
		})
}

// ScopeQuery names the one object that variables are set on.
type ScopeQuery struct {
	Runner  string `query:"runner" maxLength:"63" form:"name-or-none" doc:"Name of a runner"`
	Group   string `query:"group" maxLength:"900" form:"group" doc:"Path of a group; / is the root group"`
	App     string `query:"app" maxLength:"63" form:"name-or-none" doc:"Name of an app"`
	Install string `query:"install" maxLength:"63" form:"name-or-none" doc:"Name of an install"`
}

func (s *server) variableRoutes(c *control.Control) {
	found := codes{fairlead.CodeInvalidScope, fairlead.CodeInvalidGroup, fairlead.CodeRunnerNotFound, fairlead.CodeGroupNotFound, fairlead.CodeAppNotFound, fairlead.CodeAppDeleting, fairlead.CodeInstallNotFound, fairlead.CodeOperatorOnly}
	register(s, op{Route: wire.GetVariables, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *ScopeQuery) ([]need, error) {
		return scopeNeeds(ctx, r, *in, false)
	}, access.View), tag: "Variables", summary: "Get the environment variables of a runner, group, app or install",
		doc:      "Variables of an install override those of its app, which override those of its groups (the nearest group wins), which override those of the runner.",
		problems: found},
		func(ctx context.Context, in *ScopeQuery) (*body[wire.Variables], error) {
			v, err := c.Variables(ctx, callerOf(ctx).user, control.VariableScope(*in))
			return answer(renderVariables(v), err)
		})
	type set struct {
		ScopeQuery
		Body wire.SetVariablesRequest
	}
	register(s, op{Route: wire.SetVariables, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *set) ([]need, error) {
		return scopeNeeds(ctx, r, in.ScopeQuery, true)
	}, access.EditInstall, access.EditApp, access.ManageRunners), tag: "Variables", summary: "Change environment variables of a runner, group, app or install",
		problems: slices.Concat(found, storesMuch, codes{fairlead.CodeInvalidVariable, fairlead.CodeInputNotEncrypted, fairlead.CodeInvalidEncryptedValue})},
		func(ctx context.Context, in *set) (*body[wire.Variables], error) {
			change := map[string]*control.Variable{}
			for name, v := range in.Body.Values {
				change[name] = readVariable(v)
			}
			v, err := c.SetVariables(ctx, callerOf(ctx).user, control.VariableScope(in.ScopeQuery), change)
			return answer(renderVariables(v), err)
		})
}

func readVariable(v *wire.Variable) *control.Variable {
	if v == nil {
		return nil
	}
	return &control.Variable{Value: v.Value, Sensitive: v.Sensitive, Encrypted: readEncrypted(v.Encrypted)}
}

func renderVariables(v map[string]control.Variable) wire.Variables {
	out := wire.Variables{Values: make(map[string]wire.Variable, len(v))}
	for name, value := range v {
		out.Values[name] = wire.Variable{Value: value.Value, Sensitive: value.Sensitive}
	}
	return out
}

func renderGroup(g control.Group) wire.Group {
	return wire.Group{Actors: renderActors(g.Actors), Path: g.Path.String(), Description: g.Description, CreatedAt: moment(g.Created)}
}

func renderRule(r control.RunnerRule) wire.RunnerRule {
	out := wire.RunnerRule{Actors: renderActors(r.Actors), ID: string(r.ID), Match: r.Match.String(), Group: r.Match.Group, App: r.Match.App, Runner: r.RunnerName, CreatedAt: r.Created.UTC()}
	if len(r.Match.Labels) > 0 {
		out.Labels = r.Match.Labels.Map()
	}
	return out
}

func renderPlacement(e control.Explained) wire.Placement {
	out := wire.Placement{Install: e.Install.Name, Runner: e.Name, Level: e.Level.String(), Rule: string(e.Rule), Bound: e.Bound, Candidates: []wire.Candidate{}}
	if e.Refused != nil {
		p := newProblem(e.Refused, "")
		out.Refused = &wire.Refusal{Code: string(fairlead.CodeOf(e.Refused)), Message: p.Detail, Hint: p.Hint, Actions: p.Actions}
	}
	if r := e.Serves; r != nil {
		out.Mode, out.Customer = string(r.Mode), renderCustomer(r.Customer)
	}
	for _, k := range e.Candidates {
		out.Candidates = append(out.Candidates, wire.Candidate{Level: k.Level.String(), Rule: string(k.Rule), Match: k.Match, Runner: k.Name, Won: k.Won, Why: k.Why})
	}
	return out
}
