package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The common parts of the inputs of routes. They are exported because huma reads
// embedded structs by reflection, which skips unexported ones.
type (
	// AppPath names an app.
	AppPath struct {
		App string `path:"app" maxLength:"63" form:"name" doc:"Name of the app"`
	}
	// VersionPath selects a version of an app.
	VersionPath struct {
		AppPath
		Version string `path:"version" maxLength:"64" form:"version-name" doc:"Identifier or name of the version"`
	}
	// InstallPath names an install.
	InstallPath struct {
		Install string `path:"install" maxLength:"63" form:"name" doc:"Name of the install"`
	}
	// ComponentPath names a component of an install.
	ComponentPath struct {
		Component string `path:"component" maxLength:"63" form:"name" doc:"Name of the component"`
	}
	// DeploymentPath names a deployment.
	DeploymentPath struct {
		Deployment string `path:"deployment" maxLength:"64" form:"identifier" doc:"Identifier of the deployment"`
	}
	// JobPath names a job.
	JobPath struct {
		Job string `path:"job" maxLength:"64" form:"identifier" doc:"Identifier of the job"`
	}
	// WarmPath names a warm step.
	WarmPath struct {
		Warm string `path:"warm" maxLength:"64" form:"identifier" doc:"Identifier of the warm step"`
	}
	// RunnerPath names a runner.
	RunnerPath struct {
		Runner string `path:"runner" maxLength:"63" form:"name" doc:"Name of the runner"`
	}
)

// maxSignature is the size of the largest signed approval, in bytes. A deployment keeps one for each component, and the
// table's items are limited.
const maxSignature = 4096

// controlRoutes registers the control API.
func (s *server) controlRoutes() {
	c := s.Control
	register(s, op{Route: wire.GetMeta, auth: unauthenticated, may: open(), tag: "Meta", summary: "Describe the control plane"},
		func(ctx context.Context, _ *struct{}) (*body[wire.Meta], error) {
			signing, err := c.Signing(ctx)
			return answer(wire.Meta{Version: s.Version, Registry: s.Registry, MaxBody: int64(s.MaxBody), Keys: verificationKeys(signing.Set.Keys)}, err)
		})
	s.personPartRoutes(c)
	s.appRoutes(c)
	s.buildRoutes(c)
	s.provenanceRoute(c)
	s.installRoutes(c)
	s.stackRoutes(c)
	s.actionRoutes(c)
	s.deploymentRoutes(c)
	s.jobRoutes(c)
	s.runnerAdminRoutes(c)
	s.runnerConfigRoutes(c)
	s.accountRoutes(c)
	s.placementRoutes(c)
	s.groupRoutes(c)
	s.webhookRoutes(c)
	s.auditRoutes(c)
	s.limitRoutes(c)
	s.tokenRoutes(c)
	s.peopleRoutes(c)
	s.orgRoutes(c)
	s.keyRoutes(c)
	s.variableRoutes(c)
}

func (s *server) buildRoutes(c *control.Control) {
	type build struct {
		AppPath
		OnceInput
		Body wire.BuildAppRequest
	}
	register(s, op{Route: wire.BuildApp, auth: apiToken, may: on(access.EditApp), tag: "Apps", summary: "Build the components whose source is not in the app's folder, and the images of Dockerfiles", status: http.StatusCreated,
		problems: slices.Concat(creator, storesMuch, ofAVersion, codes{fairlead.CodeAppNameMismatch, fairlead.CodeArtifactMissing, fairlead.CodeArtifactUnknown, fairlead.CodeInvalidConfig, fairlead.CodeInvalidName, fairlead.CodeNoBuildRunner, fairlead.CodeRegistryUnavailable})},
		func(ctx context.Context, in *build) (*body[wire.AppBuilds], error) {
			builds, err := c.BuildApp(ctx, callerOf(ctx).org, in.App, in.Body.Config, in.Body.Folders, in.IdempotencyKey)
			out := wire.AppBuilds{Builds: []wire.ComponentBuild{}}
			for _, b := range builds {
				w := wire.ComponentBuild{Component: b.Component, Artifact: b.Earlier.Artifact, Revision: b.Earlier.Revision}
				if b.Job != nil {
					j := renderJob(*b.Job)
					w.Job = &j
				}
				out.Builds = append(out.Builds, w)
			}
			return answer(out, err)
		})
}

func (s *server) appRoutes(c *control.Control) {
	type publish struct {
		AppPath
		Body wire.PublishVersionRequest
	}
	register(s, op{Route: wire.PublishVersion, auth: apiToken, may: on(access.EditApp), tag: "Apps", summary: "Publish an app version",
		problems: slices.Concat(storesMuch, counted, codes{fairlead.CodeAppNameMismatch, fairlead.CodeArtifactMissing, fairlead.CodeArtifactUnknown, fairlead.CodeBuildMissing, fairlead.CodeInvalidConfig, fairlead.CodeInvalidName, fairlead.CodeVersionNameTaken, fairlead.CodeTooManyVersionNames, fairlead.CodeAppDeleting})},
		func(ctx context.Context, in *publish) (*body[wire.AppVersion], error) {
			builds := map[string]fairlead.JobID{}
			for component, id := range in.Body.Builds {
				builds[component] = fairlead.JobID(id)
			}
			v, err := c.Publish(ctx, callerOf(ctx).org, in.App, control.NewVersion{Config: in.Body.Config, Artifacts: in.Body.Artifacts, Builds: builds, Folders: in.Body.Folders, Name: in.Body.Name})
			if err != nil {
				return nil, err
			}
			return answer(renderVersion(v), nil)
		})
	type open struct {
		AppPath
		Body wire.RegistryAccessRequest
	}
	register(s, op{Route: wire.OpenRegistry, auth: apiToken, may: on(access.EditApp), tag: "Apps", summary: "Get a login to push an app's artifacts", status: http.StatusCreated,
		problems: codes{fairlead.CodeInvalidName, fairlead.CodeRegistryUnavailable}},
		func(ctx context.Context, in *open) (*body[wire.RegistryAccess], error) {
			a, err := c.OpenForPush(ctx, callerOf(ctx).org, in.App, in.Body.Components)
			out := wire.RegistryAccess{Registry: a.Host, Repositories: a.Repositories, Images: a.Images}
			if a.Host == "" {
				out.Registry = s.Registry
			} else {
				out.Login = renderLogin(a.Login)
			}
			return answer(out, err)
		})
	register(s, op{Route: wire.ListApps, auth: apiToken, may: eachCaller(), tag: "Apps", summary: "List apps by name",
		problems: slices.Concat(listing, ofAVersion)},
		func(ctx context.Context, in *ListInput) (*paged[wire.App], error) {
			return list(in, seen(ctx, s, appsOf), renderApp, func(q fairlead.PageQuery) ([]control.App, string, error) {
				return c.Apps(ctx, callerOf(ctx).org, q)
			})
		})
	register(s, op{Route: wire.GetApp, auth: apiToken, may: on(access.View), tag: "Apps", summary: "Get an app and its newest version",
		problems: slices.Concat(ofAVersion, codes{fairlead.CodeAppNotFound})},
		func(ctx context.Context, in *AppPath) (*body[wire.App], error) {
			a, err := c.App(ctx, callerOf(ctx).org, in.App)
			return answer(renderApp(a), err)
		})
	register(s, op{Route: wire.DeleteApp, auth: apiToken, may: on(access.EditApp), tag: "Apps", summary: "Delete an app that no install uses", status: http.StatusNoContent,
		problems: codes{fairlead.CodeAppNotFound, fairlead.CodeAppInUse}},
		func(ctx context.Context, in *AppPath) (*struct{}, error) {
			return nil, c.DeleteApp(ctx, callerOf(ctx).org, in.App)
		})
	type versions struct {
		AppPath
		ListInput
	}
	register(s, op{Route: wire.ListVersions, auth: apiToken, may: on(access.View), tag: "Apps", summary: "List an app's versions, newest first",
		problems: slices.Concat(ofAVersion, listing, codes{fairlead.CodeAppNotFound})},
		func(ctx context.Context, in *versions) (*paged[wire.AppVersion], error) {
			return list(&in.ListInput, all[control.Version](), renderVersion, func(q fairlead.PageQuery) ([]control.Version, string, error) {
				return c.Versions(ctx, callerOf(ctx).org, in.App, q)
			})
		})
	register(s, op{Route: wire.GetVersion, auth: apiToken, may: on(access.View), tag: "Apps", summary: "Get a version of an app, with its configuration",
		problems: slices.Concat(ofAVersion, codes{fairlead.CodeAppNotFound, fairlead.CodeVersionNotFound, fairlead.CodeVersionOfOtherApp})},
		func(ctx context.Context, in *VersionPath) (*body[wire.AppVersion], error) {
			v, err := c.Version(ctx, callerOf(ctx).org, in.App, in.Version)
			if err != nil {
				return nil, err
			}
			out := renderVersion(v)
			out.Config, err = v.Spec.Canonical()
			return answer(out, err)
		})
}

// list renders one page of a listing, with the items that see permits; nil: all. It skips pages without such an item, so that
// most pages have some. A page before the last one may still have fewer items than the limit, even none.
func list[T, W any](in *ListInput, see func(T) (bool, error), render func(T) W, read func(fairlead.PageQuery) ([]T, string, error)) (*paged[W], error) {
	q, err := in.page()
	if err != nil {
		return nil, err
	}
	page := wire.Page[W]{Items: []W{}}
	next := ""
	for range maxSkipped {
		var items []T
		if items, next, err = read(q); err != nil {
			return nil, err
		}
		for _, it := range items {
			ok := see == nil
			if !ok {
				if ok, err = see(it); err != nil {
					return nil, err
				}
			}
			if ok {
				page.Items = append(page.Items, render(it))
			}
		}
		if q.After = next; see == nil || len(page.Items) > 0 || next == "" {
			break
		}
	}
	page.Next = cursor(next)
	out := &paged[W]{Body: page}
	if next != "" {
		out.Link = wire.NextLink(in.query, page.Next)
	}
	return out, nil
}

func (s *server) installRoutes(c *control.Control) {
	type create struct {
		OnceInput
		Body wire.CreateInstallRequest
	}
	register(s, op{Route: wire.CreateInstall, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *create) ([]need, error) {
		return mayCreateInstall(ctx, r, in.Body)
	}, access.EditInstall), tag: "Installs", summary: "Create an install", status: http.StatusCreated,
		problems: slices.Concat(ofAVersion, creator, counted, storesMuch, codes{fairlead.CodeInstallExists, fairlead.CodeInvalidName, fairlead.CodeInputNotEncrypted, fairlead.CodeInvalidInput, fairlead.CodeInvalidInputs, fairlead.CodeInvalidLabel, fairlead.CodeInvalidGroup, fairlead.CodeAppNotFound, fairlead.CodeAppDeleting, fairlead.CodeRunnerKindRefused, fairlead.CodeRunnerNotFound, fairlead.CodeRunnerOutOfReach, fairlead.CodeRunnerInUse, fairlead.CodeGroupNotFound, fairlead.CodeGroupNotEmpty})},
		func(ctx context.Context, in *create) (*body[wire.Install], error) {
			v, err := c.CreateInstall(ctx, callerOf(ctx).org, control.NewInstall{Name: in.Body.Name, App: in.Body.App,
				Runner: in.Body.Runner, Group: in.Body.Group, Labels: in.Body.Labels, Inputs: in.Body.Inputs}, in.IdempotencyKey)
			if err != nil {
				return nil, err
			}
			return answer(s.withSecrets(ctx, v))
		})
	register(s, op{Route: wire.ListInstalls, auth: apiToken, may: eachCaller(), tag: "Installs", summary: "List installs by name",
		problems: slices.Concat(listing, ofAVersion)},
		func(ctx context.Context, in *ListInput) (*paged[wire.Install], error) {
			return list(in, seen(ctx, s, installsOf), renderInstall, func(q fairlead.PageQuery) ([]control.Install, string, error) {
				return c.Installs(ctx, callerOf(ctx).org, q)
			})
		})
	type get struct {
		InstallPath
		Effective bool `query:"effective" doc:"Add what a deployment would use now, and which of that is not deployed"`
	}
	register(s, op{Route: wire.GetInstall, auth: apiToken, may: on(access.View), tag: "Installs", summary: "Get an install",
		problems: slices.Concat(ofAVersion, codes{fairlead.CodeInstallNotFound})},
		func(ctx context.Context, in *get) (*body[wire.Install], error) {
			return s.oneInstall(ctx, in.Install, in.Effective)
		})
	type update struct {
		InstallPath
		Body wire.UpdateInstallRequest
	}
	register(s, op{Route: wire.UpdateInstall, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *update) ([]need, error) {
		return mayUpdateInstall(ctx, r, in.InstallPath, in.Body.Runner)
	}, access.EditInstall), tag: "Installs", summary: "Change an install's inputs, labels or runner",
		problems: slices.Concat(ofAVersion, storesMuch, codes{fairlead.CodeInstallNotFound, fairlead.CodeDeploymentRuns, fairlead.CodeInputNotEncrypted, fairlead.CodeInvalidEncryptedValue, fairlead.CodeInvalidInput, fairlead.CodeInvalidInputs, fairlead.CodeInvalidLabel, fairlead.CodeRunnerNotFound, fairlead.CodeRunnerOutOfReach, fairlead.CodeRunnerInUse})},
		func(ctx context.Context, in *update) (*body[wire.Install], error) {
			v, err := c.UpdateInstall(ctx, callerOf(ctx).org, in.Install, control.InstallChange{Inputs: in.Body.Inputs, Encrypted: readAllEncrypted(in.Body.Encrypted), Labels: in.Body.Labels, Runner: in.Body.Runner})
			if err != nil {
				return nil, err
			}
			return answer(s.withSecrets(ctx, v))
		})
	type forget struct {
		InstallPath
		Abandon bool `query:"abandon" doc:"Forget it even though components may still exist"`
	}
	register(s, op{Route: wire.ForgetInstall, auth: apiToken, may: on(access.EditInstall), tag: "Installs", summary: "Delete the records of an install", status: http.StatusNoContent,
		problems: codes{fairlead.CodeInstallNotFound, fairlead.CodeDeploymentRuns, fairlead.CodeStateMoving, fairlead.CodeInstallNotEmpty, fairlead.CodeCommitTooLarge}},
		func(ctx context.Context, in *forget) (*struct{}, error) {
			return nil, c.ForgetInstall(ctx, callerOf(ctx).org, in.Install, in.Abandon)
		})
	s.installValueRoutes(c)
	s.rescueRoutes(c)
}

// installValueRoutes registers the routes that show values of an install.
func (s *server) installValueRoutes(c *control.Control) {
	type outputs struct {
		InstallPath
		ShowSensitive bool `query:"show_sensitive" doc:"Include the values of sensitive outputs"`
	}
	register(s, op{Route: wire.GetOutputs, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *outputs) ([]need, error) {
		if in.ShowSensitive {
			return r.onPath(ctx, access.ViewSecrets, in)
		}
		return r.onPath(ctx, access.View, in)
	}, access.View, access.ViewSecrets), tag: "Installs", summary: "Get the outputs of an install's components",
		problems: codes{fairlead.CodeInstallNotFound}},
		func(ctx context.Context, in *outputs) (*body[wire.Outputs], error) {
			v, err := c.Outputs(ctx, callerOf(ctx).org, in.Install, in.ShowSensitive)
			return answer(renderOutputs(v), err)
		})
	type rendered struct {
		InstallPath
		Version   string `query:"version" maxLength:"64" form:"version-name-or-none" doc:"App version, by its identifier or a name; the newest when absent"`
		Component string `query:"component" maxLength:"63" form:"name-or-none" doc:"Only this component"`
	}
	register(s, op{Route: wire.RenderInstall, auth: apiToken, may: on(access.View), tag: "Installs", summary: "Show what a deployment would give to each component",
		problems: slices.Concat(ofAVersion, codes{fairlead.CodeInstallNotFound, fairlead.CodeVersionNotFound, fairlead.CodeVersionOfOtherApp, fairlead.CodeComponentNotFound, fairlead.CodeInvalidInputs})},
		func(ctx context.Context, in *rendered) (*body[wire.Rendered], error) {
			r, err := c.Render(ctx, callerOf(ctx).org, in.Install, in.Version, in.Component)
			if err != nil {
				return nil, err
			}
			return answer(renderRendered(r))
		})
}

// withSecrets renders an install with the secrets that its app needs from the customer, and with the inputs that it misses.
func (s *server) withSecrets(ctx context.Context, v control.Install) (wire.Install, error) {
	out := renderInstall(v)
	secrets, err := s.Control.DeclaredSecrets(ctx, callerOf(ctx).org, v.Name)
	if err != nil {
		return out, err
	}
	out.CustomerSecrets = renderSecrets(secrets)
	missing, err := s.Control.MissingInputs(ctx, callerOf(ctx).org, v.Name)
	if err != nil {
		return out, err
	}
	out.MissingInputs = renderMissing(missing)
	if v.Key == nil {
		if out.KeyExpected, err = s.Control.KeyExpected(ctx, callerOf(ctx).org, v.Name); err != nil {
			return out, err
		}
	}
	sandbox, err := s.Control.Sandbox(ctx, callerOf(ctx).org, v.Name)
	if sandbox != nil {
		out.Sandbox = (*wire.InstallSandbox)(sandbox)
	}
	return out, err
}

// oneInstall renders an install with its situations. If effective is true, it adds
// the values that a deployment would use now.
func (s *server) oneInstall(ctx context.Context, name string, effective bool) (*body[wire.Install], error) {
	c := s.Control
	v, err := c.Install(ctx, callerOf(ctx).org, name)
	if err != nil {
		return nil, err
	}
	out, err := s.withSecrets(ctx, v)
	if err != nil {
		return nil, err
	}
	situations, err := c.InstallSituations(ctx, v)
	if err != nil {
		return nil, err
	}
	out.Situations = renderSituations(situations)
	stack, err := c.Stack(ctx, callerOf(ctx).org, name)
	if err != nil && fairlead.CodeOf(err) != fairlead.CodeStackNotFound {
		return nil, err
	}
	out.Stack = stack.State
	if effective {
		e, err := c.Effective(ctx, callerOf(ctx).org, name)
		if err != nil {
			return nil, err
		}
		out.Effective = renderEffective(e)
	}
	return answer(out, nil)
}

func (s *server) actionRoutes(c *control.Control) {
	register(s, op{Route: wire.ListActions, auth: apiToken, may: on(access.View), tag: "Actions", summary: "List the actions of the version that an install has deployed",
		problems: slices.Concat(ofAVersion, codes{fairlead.CodeInstallNotFound})},
		func(ctx context.Context, in *InstallPath) (*body[wire.InstallActions], error) {
			all, err := c.Actions(ctx, callerOf(ctx).org, in.Install)
			out := wire.InstallActions{Items: []wire.InstallAction{}}
			for _, a := range all {
				out.Items = append(out.Items, renderInstallAction(a))
			}
			return answer(out, err)
		})
	type run struct {
		InstallPath
		Action string `path:"action" maxLength:"63" form:"name" doc:"Name of the action"`
		OnceInput
		Body wire.RunActionRequest
	}
	register(s, op{Route: wire.RunAction, auth: apiToken, may: on(access.Deploy), tag: "Actions", summary: "Run an action, or queue the run", status: http.StatusCreated,
		problems: slices.Concat(ofAVersion, creator, placing, storesMuch, codes{fairlead.CodeInstallNotFound, fairlead.CodeActionNotFound, fairlead.CodeActionComponents, fairlead.CodeInputNotEncrypted, fairlead.CodeInvalidEncryptedValue, fairlead.CodeInvalidParams, fairlead.CodeInvalidInputs, fairlead.CodeDeploymentRuns, fairlead.CodeQueueFull, fairlead.CodeStateMoving})},
		func(ctx context.Context, in *run) (*body[wire.Deployment], error) {
			org := callerOf(ctx).org
			d, err := c.RunAction(ctx, org, in.Install, control.NewRun{Action: in.Action, Params: in.Body.Params, Encrypted: readAllEncrypted(in.Body.Encrypted), Ask: deployment.Ask(in.Body.Ask), NoQueue: in.Body.NoQueue}, in.IdempotencyKey)
			if err != nil {
				return nil, err
			}
			return s.newDeployment(ctx, org, d.ID)
		})
}

func (s *server) deploymentRoutes(c *control.Control) {
	type create struct {
		InstallPath
		OnceInput
		Body wire.CreateDeploymentRequest
	}
	register(s, op{Route: wire.CreateDeployment, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *create) ([]need, error) {
		return mayDeploy(ctx, r, in.InstallPath, in.Body)
	}, access.Deploy, access.Approve), tag: "Deployments", summary: "Start a deployment, or queue it", status: http.StatusCreated,
		problems: slices.Concat(ofAVersion, creator, placing, storesMuch, codes{fairlead.CodeInstallNotFound, fairlead.CodeVersionNotFound, fairlead.CodeVersionOfOtherApp, fairlead.CodeComponentNotFound, fairlead.CodeComponentTypeChanged, fairlead.CodeSandboxRunnerMissing, fairlead.CodeRunnerKindRefused, fairlead.CodeInvalidInputs, fairlead.CodeInputNotGenerated, fairlead.CodeDeploymentRuns, fairlead.CodeQueueFull, fairlead.CodeStateMoving})},
		func(ctx context.Context, in *create) (*body[wire.Deployment], error) {
			org := callerOf(ctx).org
			d, err := c.CreateDeployment(ctx, org, in.Install, control.NewDeployment{Kind: deployment.Kind(in.Body.Kind),
				PlanOnly: in.Body.PlanOnly, AutoApprove: in.Body.AutoApprove, Ask: deployment.Ask(in.Body.Ask), Version: fairlead.VersionID(in.Body.Version),
				PlansExpire: time.Duration(in.Body.PlansExpire) * time.Second, Refresh: in.Body.Refresh, Targets: in.Body.Targets, NoQueue: in.Body.NoQueue}, in.IdempotencyKey)
			if err != nil {
				return nil, err
			}
			return s.newDeployment(ctx, org, d.ID)
		})
	type lst struct {
		ListInput
		IDInput
		Install string `query:"install" maxLength:"63" form:"name-or-none" doc:"Only deployments of this install, also of a forgotten one"`
		Action  string `query:"action" maxLength:"63" form:"name-or-none" doc:"Only runs of this action"`
		State   string `query:"state" enum:"queued,running,awaiting-approval,succeeded,failed,canceled,canceling" doc:"Only deployments in this state"`
	}
	register(s, op{Route: wire.ListDeployments, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *lst) ([]need, error) {
		return mayListDeployments(ctx, r, in.Install)
	}, access.View), tag: "Deployments", summary: "List deployments, newest first",
		problems: slices.Concat(listing, codes{fairlead.CodeInstallNotFound, fairlead.CodeInvalidName})},
		func(ctx context.Context, in *lst) (*paged[wire.Deployment], error) {
			return list(&in.ListInput, seen(ctx, s, deploymentsOf), renderDeployment, func(q fairlead.PageQuery) ([]control.Deployment, string, error) {
				q.Prefix = in.ID
				return c.Deployments(ctx, callerOf(ctx).org, control.DeploymentFilter{Install: in.Install, Action: in.Action, State: deployment.State(in.State)}, q)
			})
		})
	type get struct {
		DeploymentPath
		WaitInput
		After int64 `query:"after" doc:"Wait until the revision is greater than this"`
	}
	register(s, op{Route: wire.GetDeployment, auth: apiToken, may: on(access.View), tag: "Deployments", summary: "Get a deployment, or wait for its next change",
		problems: codes{fairlead.CodeDeploymentNotFound}},
		func(ctx context.Context, in *get) (*body[wire.Deployment], error) {
			r, err := c.WaitDeployment(ctx, callerOf(ctx).org, fairlead.DeploymentID(in.Deployment), in.After, in.wait())
			if err != nil {
				return nil, err
			}
			return s.oneDeployment(ctx, r)
		})
	s.approveRoute(c)
	s.decisionRoutes(c)
}

// decisionRoutes registers the routes that end and retry a deployment.
func (s *server) decisionRoutes(c *control.Control) {
	register(s, op{Route: wire.CancelDeployment, auth: apiToken, may: on(access.Cancel), tag: "Deployments", summary: "Cancel a deployment",
		problems: slices.Concat(storesMuch, codes{fairlead.CodeDeploymentNotFound, fairlead.CodeInstallNotFound, fairlead.CodeDeploymentState})},
		func(ctx context.Context, in *DeploymentPath) (*body[wire.Deployment], error) {
			r, err := c.CancelDeployment(ctx, callerOf(ctx).org, fairlead.DeploymentID(in.Deployment))
			return answer(renderDeployment(r), err)
		})
	type retry struct {
		DeploymentPath
		OnceInput
	}
	register(s, op{Route: wire.RetryDeployment, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *retry) ([]need, error) {
		return mayRetry(ctx, r, in.DeploymentPath)
	}, access.Deploy, access.Approve), tag: "Deployments", summary: "Retry a failed deployment from where it failed", status: http.StatusCreated,
		problems: slices.Concat(ofAVersion, creator, placing, storesMuch, codes{fairlead.CodeDeploymentNotFound, fairlead.CodeInstallNotFound, fairlead.CodeComponentNotFound, fairlead.CodeRunnerKindRefused, fairlead.CodeDeploymentState, fairlead.CodeDeployedSince, fairlead.CodeActionNotFound, fairlead.CodeActionComponents, fairlead.CodeInvalidParams, fairlead.CodeInvalidInputs, fairlead.CodeQueueFull, fairlead.CodeStateMoving})},
		func(ctx context.Context, in *retry) (*body[wire.Deployment], error) {
			org := callerOf(ctx).org
			d, err := c.RetryDeployment(ctx, org, fairlead.DeploymentID(in.Deployment), in.IdempotencyKey)
			if err != nil {
				return nil, err
			}
			return s.newDeployment(ctx, org, d.ID)
		})
}

// newDeployment renders a deployment that was just created. If the deployment is
// queued, the answer includes the deployment that it waits for.
func (s *server) newDeployment(ctx context.Context, org fairlead.OrgID, id fairlead.DeploymentID) (*body[wire.Deployment], error) {
	r, err := s.Control.Deployment(ctx, org, id)
	if err == nil && r.State == deployment.Queued {
		return s.oneDeployment(ctx, r)
	}
	return answer(renderDeployment(r), err)
}

// oneDeployment renders a deployment with its situations.
func (s *server) oneDeployment(ctx context.Context, r control.Deployment) (*body[wire.Deployment], error) {
	out := renderDeployment(r)
	situations, err := s.Control.DeploymentSituations(ctx, r)
	if err != nil {
		return nil, err
	}
	advise(&out, situations)
	out.Situations = renderSituations(situations)
	return answer(out, nil)
}

func (s *server) approveRoute(c *control.Control) {
	type approve struct {
		DeploymentPath
		Body wire.ApproveRequest
	}
	register(s, op{Route: wire.ApproveDeployment, auth: apiToken, may: on(access.Approve), tag: "Deployments", summary: "Approve plans that await approval",
		problems: slices.Concat(storesMuch, codes{fairlead.CodeDeploymentNotFound, fairlead.CodeInstallNotFound, fairlead.CodeComponentNotFound, fairlead.CodeNotAwaitingApproval, fairlead.CodeInvalidApproval, fairlead.CodeSignatureRequired, fairlead.CodePlanChanged, fairlead.CodePlanExpired, fairlead.CodeDeploymentState})},
		func(ctx context.Context, in *approve) (*body[wire.Deployment], error) {
			for component, envelope := range in.Body.Signatures {
				if len(envelope) > maxSignature {
					return nil, fairlead.Invalid(fairlead.CodeInvalidApproval, "the signed approval of component %.63q has %d bytes, and may have %d", component, len(envelope), maxSignature)
				}
			}
			r, err := c.ApproveSigned(ctx, callerOf(ctx).org, fairlead.DeploymentID(in.Deployment), in.Body.Components, in.Body.Plans, in.Body.Signatures)
			return answer(renderDeployment(r), err)
		})
}

func (s *server) jobRoutes(c *control.Control) {
	type lst struct {
		CursorInput
		IDInput
		Limit      int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Items a page"`
		Deployment string `query:"deployment" maxLength:"64" form:"identifier-or-none" doc:"Only jobs of this deployment, in the order of its components"`
	}
	register(s, op{Route: wire.ListJobs, auth: apiToken, may: where(func(ctx context.Context, r *asked, in *lst) ([]need, error) {
		if in.Deployment == "" {
			return nil, nil // the list leaves out what the caller may not see
		}
		return r.onPath(ctx, access.View, DeploymentPath{in.Deployment})
	}, access.View), tag: "Jobs", summary: "List jobs, newest first",
		problems: slices.Concat(listing, codes{fairlead.CodeDeploymentNotFound})},
		func(ctx context.Context, in *lst) (*paged[wire.Job], error) {
			return list(&ListInput{in.CursorInput, in.Limit}, seen(ctx, s, jobsOf), renderJob, func(q fairlead.PageQuery) ([]control.Job, string, error) {
				org := callerOf(ctx).org
				if in.Deployment != "" {
					jobs, err := c.DeploymentJobs(ctx, org, fairlead.DeploymentID(in.Deployment))
					return jobs, "", err
				}
				q.Prefix = in.ID
				return c.Jobs(ctx, org, q)
			})
		})
	register(s, op{Route: wire.GetJob, auth: apiToken, may: on(access.View), tag: "Jobs", summary: "Get a job",
		problems: codes{fairlead.CodeJobNotFound}},
		func(ctx context.Context, in *JobPath) (*body[wire.Job], error) {
			return s.oneJob(ctx, fairlead.JobID(in.Job))
		})
	register(s, op{Route: wire.CancelJob, auth: apiToken, may: on(access.Cancel), tag: "Jobs", summary: "Cancel a job",
		problems: slices.Concat(storesMuch, codes{fairlead.CodeJobNotFound, fairlead.CodeJobState})},
		func(ctx context.Context, in *JobPath) (*body[wire.Job], error) {
			if _, err := c.CancelJob(ctx, callerOf(ctx).org, fairlead.JobID(in.Job)); err != nil {
				return nil, err
			}
			return s.oneJob(ctx, fairlead.JobID(in.Job))
		})
	type log struct {
		JobPath
		WaitInput
		Epoch  int64 `query:"epoch" minimum:"0" doc:"Attempt to read; the first attempt with a log when absent"`
		Offset int64 `query:"offset" minimum:"0"`
	}
	register(s, op{Route: wire.ReadJobLog, auth: apiToken, may: on(access.View), tag: "Jobs", summary: "Read a job's log from a cursor, or wait for more",
		problems: codes{fairlead.CodeJobNotFound, fairlead.CodeLogExpired, fairlead.CodeLogNotFound}},
		func(ctx context.Context, in *log) (*body[wire.LogChunk], error) {
			k, err := c.ReadLog(ctx, callerOf(ctx).org, fairlead.JobID(in.Job), in.Epoch, in.Offset, in.wait())
			if k.Data == nil {
				k.Data = []byte{} // not null
			}
			return answer(wire.LogChunk{Epoch: k.Epoch, Offset: k.Offset, Data: k.Data, Next: k.Next, Truncated: k.Truncated, TruncatedBy: truncatedBy(k.Cut), Done: k.Done}, err)
		})
}

func truncatedBy(cut bool) string {
	if cut {
		return wire.ByLogBudget
	}
	return ""
}

// oneJob renders a job with its plan's change set and its logs.
func (s *server) oneJob(ctx context.Context, id fairlead.JobID) (*body[wire.Job], error) {
	j, err := s.Control.Job(ctx, callerOf(ctx).org, id)
	if err != nil {
		return nil, err
	}
	out := renderJob(j)
	if j.Plan != nil {
		kept, err := s.Control.ChangeSet(ctx, j)
		if err != nil {
			return nil, err
		}
		out.Plan.ChangeSet = changeset.Parse(kept)
	}
	situations, err := s.Control.JobSituations(ctx, j)
	if err != nil {
		return nil, err
	}
	out.Situations = renderSituations(situations)
	logs, err := s.Control.JobLogs(ctx, j)
	if err != nil {
		return nil, err
	}
	for _, l := range logs {
		out.Log = append(out.Log, wire.LogStreamInfo{Epoch: l.Stream.Epoch, Size: l.Size, Ended: l.Ended, Truncated: l.Truncated, TruncatedBy: truncatedBy(l.Cut)})
	}
	return answer(out, nil)
}

func (s *server) runnerAdminRoutes(c *control.Control) {
	register(s, op{Route: wire.CreateEnrolment, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "Create a single-use enrolment token", status: http.StatusCreated,
		problems: codes{fairlead.CodeRunnerNotFound, fairlead.CodeOperatorOnly}},
		func(ctx context.Context, in *RunnerPath) (*body[wire.Enrolment], error) {
			token, expires, err := c.CreateEnrolment(ctx, callerOf(ctx).user, in.Runner)
			return answer(wire.Enrolment{Token: token, ExpiresAt: expires}, err)
		})
	type check struct {
		RunnerPath
		OnceInput
	}
	register(s, op{Route: wire.CheckRunner, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "Queue a job that checks a runner from end to end", status: http.StatusCreated,
		problems: slices.Concat(creator, codes{fairlead.CodeRunnerNotFound, fairlead.CodeOperatorOnly})},
		func(ctx context.Context, in *check) (*body[wire.Job], error) {
			j, err := c.CheckRunner(ctx, callerOf(ctx).user, in.Runner, in.IdempotencyKey)
			return answer(renderJob(j), err)
		})
	register(s, op{Route: wire.AskRunnerLog, auth: apiToken, may: on(access.ManageRunners), tag: "Runners", summary: "Queue a job whose log is the recent log of the runner's agent", status: http.StatusCreated,
		problems: slices.Concat(creator, codes{fairlead.CodeRunnerNotFound, fairlead.CodeOperatorOnly})},
		func(ctx context.Context, in *check) (*body[wire.Job], error) {
			j, err := c.RunnerLog(ctx, callerOf(ctx).user, in.Runner, in.IdempotencyKey)
			return answer(renderJob(j), err)
		})
}
