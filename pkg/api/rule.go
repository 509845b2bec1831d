package api

import (
	"context"
	"reflect"
	"slices"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
)

// rule decides who may call a route. register evaluates it for each request, after the caller was authenticated and the input
// was checked, and before the handler. A route without a rule does not register.
type rule struct {
	kind string
	path bool // the input must be a target
	// rights are those for which the rule can ask.
	rights []access.Right
	// needs returns what the caller must be permitted to do. in is a pointer to the input of the route.
	needs func(ctx context.Context, r *asked, in any) ([]need, error)
}

// The kinds of rules, as the OpenAPI document shows them.
const (
	ruleOpen       = "open"       // for everybody
	ruleCredential = "credential" // the credential names the object: a session its runner, a lease its job
	ruleCaller     = "caller"     // each caller; the answer has only what the caller may see
	ruleObject     = "object"     // the caller must be given the rights on the objects of the request
)

// need is a right on an object.
type need struct {
	right  access.Right
	object access.Object
	// missing answers a caller that may not see the object, as if it did not exist; nil: the request does not name an object
	// that exists, so the answer hides nothing.
	missing error
}

// asked is a request whose rule is evaluated.
type asked struct {
	*control.Objects
	who access.Principal
}

// open is the rule of routes for everybody.
func open() rule { return rule{kind: ruleOpen} }

// byCredential is the rule of routes whose credential names the object.
func byCredential() rule { return rule{kind: ruleCredential} }

// eachCaller is the rule of routes that show and change nothing but what belongs to the caller itself, and of lists, which
// leave out what the caller may not see.
func eachCaller() rule { return rule{kind: ruleCaller} }

// target is the input of a route whose path names an object.
type target interface {
	// target returns the object. If it does not exist, the error is of KindNotFound.
	target(context.Context, *asked) (access.Object, error)
	// missing returns the error of an object that does not exist.
	missing() error
}

// on permits the route to callers with the right on the object that the path names.
func on(a access.Right) rule {
	return rule{kind: ruleObject, path: true, rights: []access.Right{a}, needs: func(ctx context.Context, r *asked, in any) ([]need, error) {
		return r.onPath(ctx, a, in.(target)) // checkRule has checked the type
	}}
}

// onPath returns the need of a right on the object that a path names. Who has the right on each object of the org needs
// no look at the object, except that the operator shares some.
func (r *asked) onPath(ctx context.Context, a access.Right, t target) ([]need, error) {
	if r.who.MayEverywhere(a) && a != access.ManageRunners {
		return nil, nil
	}
	o, err := t.target(ctx, r)
	return []need{{a, o, t.missing()}}, err
}

// onOrg permits the route to callers with the right on the whole org.
func onOrg(a access.Right) rule {
	return rule{kind: ruleObject, rights: []access.Right{a}, needs: func(_ context.Context, r *asked, _ any) ([]need, error) {
		return []need{{a, access.OrgObject(r.who.Org), nil}}, nil
	}}
}

// onShared permits the route to callers with the right on what the operator shares.
func onShared(a access.Right) rule {
	return rule{kind: ruleObject, rights: []access.Right{a}, needs: func(context.Context, *asked, any) ([]need, error) {
		return []need{{a, access.SharedObject(), nil}}, nil
	}}
}

// where permits the route to callers with the rights on the objects that needs finds in the input.
func where[I any](needs func(ctx context.Context, r *asked, in *I) ([]need, error), rights ...access.Right) rule {
	return rule{kind: ruleObject, rights: rights, needs: func(ctx context.Context, r *asked, in any) ([]need, error) {
		return needs(ctx, r, in.(*I)) // checkRule has checked the type
	}}
}

// checkRule panics if a route has no rule, or one that cannot be evaluated: a mistake of the program.
func checkRule[I any](o op) {
	in := any(new(I))
	_, isTarget := in.(target)
	needsCaller := o.may.kind == ruleCaller || o.may.kind == ruleObject
	switch {
	case o.may.kind == "":
		panic("api: the route " + o.ID + " has no rule of who may call it")
	case needsCaller != (o.auth.name == apiToken.name):
		panic("api: the rule of the route " + o.ID + " does not fit its credential")
	case o.may.kind == ruleOpen && o.auth.find != nil:
		panic("api: the route " + o.ID + " has a credential, and its rule ignores it")
	case o.may.path && !isTarget:
		panic("api: the path of the route " + o.ID + " names no object, which its rule needs")
	}
}

// permit returns an error if the caller may not make the request.
func (s *server) permit(ctx context.Context, o op, in any) error {
	if o.may.needs == nil {
		return nil
	}
	r := &asked{Objects: s.Control.Objects(callerOf(ctx).org), who: callerOf(ctx).who}
	needs, err := o.may.needs(ctx, r, in)
	if err != nil {
		return err
	}
	for _, n := range needs {
		switch {
		case r.who.May(n.right, n.object):
		case n.missing != nil && !r.who.May(access.View, n.object):
			return n.missing
		default:
			return access.Refused(r.who, n.right, n.object)
		}
	}
	return nil
}

// deniedBy returns the codes of the problems of a route's rule.
func deniedBy(r rule, input reflect.Type) (out codes) {
	if t, ok := reflect.New(input).Interface().(target); ok && r.kind == ruleObject {
		out = append(out, fairlead.CodeOf(t.missing()))
	}
	if r.kind == ruleObject {
		out = append(out, fairlead.CodeRoleMissing)
	}
	if slices.ContainsFunc(r.rights, func(a access.Right) bool { return a == access.Operate || a == access.ManageRunners }) {
		out = append(out, fairlead.CodeOperatorOnly)
	}
	return out
}

// seen returns a function that reports whether the caller may see an item of a list; nil: it may see all items. find returns the
// object of an item.
func seen[T any](ctx context.Context, s *server, find func(*control.Objects) func(context.Context, T) (access.Object, error)) func(T) (bool, error) {
	who := callerOf(ctx).who
	if who.MayEverywhere(access.View) {
		return nil
	}
	object := find(s.Control.Objects(who.Org))
	return func(item T) (bool, error) {
		o, err := object(ctx, item)
		return err == nil && who.May(access.View, o), err
	}
}

// The functions below return the object of an item of a list, for seen.

func appsOf(o *control.Objects) func(context.Context, control.App) (access.Object, error) {
	return func(_ context.Context, a control.App) (access.Object, error) { return o.OfApp(a), nil }
}

func installsOf(o *control.Objects) func(context.Context, control.Install) (access.Object, error) {
	return func(_ context.Context, v control.Install) (access.Object, error) { return o.OfInstall(v), nil }
}

func groupsOf(o *control.Objects) func(context.Context, control.Group) (access.Object, error) {
	return func(_ context.Context, g control.Group) (access.Object, error) { return o.OfGroup(g), nil }
}

func rulesOf(o *control.Objects) func(context.Context, control.RunnerRule) (access.Object, error) {
	return func(_ context.Context, r control.RunnerRule) (access.Object, error) { return o.OfMatch(r.Match), nil }
}

func deploymentsOf(o *control.Objects) func(context.Context, control.Deployment) (access.Object, error) {
	return o.OfDeployment
}

func jobsOf(o *control.Objects) func(context.Context, control.Job) (access.Object, error) {
	return o.OfJob
}

func runnersOf(o *control.Objects) func(context.Context, control.Runner) (access.Object, error) {
	return o.OfRunner
}

func stacksOf(o *control.Objects) func(context.Context, control.Stack) (access.Object, error) {
	return func(ctx context.Context, v control.Stack) (access.Object, error) {
		return o.Install(ctx, v.InstallName)
	}
}

// always returns the object of each item of a list.
func always[T any](o access.Object) func(*control.Objects) func(context.Context, T) (access.Object, error) {
	return func(*control.Objects) func(context.Context, T) (access.Object, error) {
		return func(context.Context, T) (access.Object, error) { return o, nil }
	}
}

// all is seen for the lists of one object: the rule of the route has decided about it.
func all[T any]() func(T) (bool, error) { return nil }

// maxSkipped is the number of pages that a list reads at most, to find an item that the caller may see.
const maxSkipped = 20

func (p AppPath) target(_ context.Context, r *asked) (access.Object, error) {
	return access.AppObject(r.who.Org, p.App), nil
}

func (p AppPath) missing() error { return fairlead.NotFound(fairlead.CodeAppNotFound, p.App) }

func (p InstallPath) target(ctx context.Context, r *asked) (access.Object, error) {
	return r.Install(ctx, p.Install)
}

func (p InstallPath) missing() error {
	return fairlead.NotFound(fairlead.CodeInstallNotFound, p.Install)
}

func (p DeploymentPath) target(ctx context.Context, r *asked) (access.Object, error) {
	return r.Deployment(ctx, fairlead.DeploymentID(p.Deployment))
}

func (p DeploymentPath) missing() error {
	return fairlead.NotFound(fairlead.CodeDeploymentNotFound, p.Deployment)
}

func (p JobPath) target(ctx context.Context, r *asked) (access.Object, error) {
	return r.Job(ctx, fairlead.JobID(p.Job))
}

func (p JobPath) missing() error { return fairlead.NotFound(fairlead.CodeJobNotFound, p.Job) }

func (p RunnerPath) target(ctx context.Context, r *asked) (access.Object, error) {
	return r.Runner(ctx, p.Runner)
}

func (p RunnerPath) missing() error { return fairlead.NotFound(fairlead.CodeRunnerNotFound, p.Runner) }

func (p WebhookPath) target(_ context.Context, r *asked) (access.Object, error) {
	return access.OrgObject(r.who.Org), nil
}

func (p WebhookPath) missing() error {
	return fairlead.NotFound(fairlead.CodeWebhookNotFound, p.Webhook)
}

// groupTarget returns the object of a group that a request names.
func groupTarget(r *asked, path string) (access.Object, error) {
	p, err := placement.ParsePath(path)
	return access.GroupObject(r.who.Org, p), err
}

func (q GroupQuery) target(_ context.Context, r *asked) (access.Object, error) {
	return groupTarget(r, q.Path)
}

func (q GroupQuery) missing() error { return fairlead.NotFound(fairlead.CodeGroupNotFound, q.Path) }

func (q BelowQuery) target(_ context.Context, r *asked) (access.Object, error) {
	return groupTarget(r, q.Path)
}

func (q BelowQuery) missing() error { return fairlead.NotFound(fairlead.CodeGroupNotFound, q.Path) }

// RulePath names a runner rule.
type RulePath struct {
	Rule string `path:"rule" maxLength:"64" form:"identifier" doc:"Identifier of the rule"`
}

func (p RulePath) target(ctx context.Context, r *asked) (access.Object, error) {
	return r.Objects.Rule(ctx, p.Rule)
}

func (p RulePath) missing() error { return control.RuleNotFound(p.Rule) }

// named returns the need of a runner that a request names for installs of a group, or nothing if the runner serves them.
func (r *asked) named(ctx context.Context, runner string, group placement.Path) ([]need, error) {
	if runner == "" || r.who.MayEverywhere(access.View) {
		return nil, nil
	}
	if ok, err := r.Reaches(ctx, runner, group); ok || err != nil {
		return nil, err
	}
	return r.onPath(ctx, access.View, RunnerPath{runner})
}

// mayCreateInstall is the rule of a new install.
func mayCreateInstall(ctx context.Context, r *asked, in wire.CreateInstallRequest) ([]need, error) {
	path, err := placement.ParsePath(in.Group)
	if err != nil {
		return nil, err
	}
	needs := []need{
		{access.EditInstall, access.InstallObject(r.who.Org, path, in.App), nil},
		{access.View, access.AppObject(r.who.Org, in.App), fairlead.NotFound(fairlead.CodeAppNotFound, in.App)},
	}
	more, err := r.named(ctx, in.Runner, path)
	return append(needs, more...), err
}

// mayUpdateInstall is the rule of a change of an install, which can name another runner.
func mayUpdateInstall(ctx context.Context, r *asked, install InstallPath, runner *string) ([]need, error) {
	needs, err := r.onPath(ctx, access.EditInstall, install)
	if err != nil || runner == nil || len(needs) == 0 {
		return needs, err
	}
	more, err := r.named(ctx, *runner, needs[0].object.Group())
	return append(needs, more...), err
}

// mayDeploy is the rule of a new deployment. A deployment of which some plan is applied without a person's approval is approved
// by the person who starts it.
func mayDeploy(ctx context.Context, r *asked, install InstallPath, in wire.CreateDeploymentRequest) ([]need, error) {
	asked := deployment.Deployment{Kind: deployment.Kind(in.Kind), PlanOnly: in.PlanOnly, AutoApprove: in.AutoApprove, Ask: deployment.Ask(in.Ask)}
	return r.deploys(ctx, install, asked.Unattended())
}

// mayRetry is the rule of a retry, which is as unattended as the deployment that failed.
func mayRetry(ctx context.Context, r *asked, in DeploymentPath) ([]need, error) {
	if r.who.MayEverywhere(access.Deploy) && r.who.MayEverywhere(access.Approve) {
		return nil, nil
	}
	unattended, err := r.Unattended(ctx, fairlead.DeploymentID(in.Deployment))
	if err != nil {
		return nil, err
	}
	return r.deploys(ctx, in, unattended)
}

func (r *asked) deploys(ctx context.Context, at target, unattended bool) ([]need, error) {
	needs, err := r.onPath(ctx, access.Deploy, at)
	if err != nil || !unattended {
		return needs, err
	}
	more, err := r.onPath(ctx, access.Approve, at)
	return append(needs, more...), err
}

// mayPrepareStack is the rule of a stack. It lets a role of the customer's account open sessions of the install's runner, which may
// serve other installs too.
func mayPrepareStack(ctx context.Context, r *asked, in InstallPath) ([]need, error) {
	if r.who.MayEverywhere(access.ManageRunners) {
		return nil, nil
	}
	needs, err := r.onPath(ctx, access.ManageRunners, in)
	if err != nil {
		return nil, err
	}
	runner, err := r.Serving(ctx, in.Install)
	return append(needs, need{access.ManageRunners, runner, nil}), err
}

// mayCreateRunner is the rule of a new runner: its place is in its configuration.
func mayCreateRunner(ctx context.Context, r *asked, in wire.CreateRunnerRequest) ([]need, error) {
	if in.Shared {
		return []need{{access.ManageRunners, access.SharedObject(), nil}}, nil
	}
	if r.who.MayEverywhere(access.ManageRunners) {
		return nil, nil
	}
	made, err := newRunner(in)
	if err != nil {
		return nil, err
	}
	o, err := r.NewRunner(ctx, made)
	return []need{{access.ManageRunners, o, nil}}, err
}

// mayUpdateRunner is the rule of a change of a runner. The runner must be the caller's to manage before and after it.
func mayUpdateRunner(ctx context.Context, r *asked, by control.User, runner RunnerPath, in wire.UpdateRunnerRequest) ([]need, error) {
	needs, err := r.onPath(ctx, access.ManageRunners, runner)
	if err != nil || r.who.MayEverywhere(access.ManageRunners) || !r.who.May(access.ManageRunners, needs[0].object) {
		return needs, err
	}
	file, err := configuration(in.RunnerConfigurationInput)
	if err != nil {
		return nil, err
	}
	o, err := r.ChangedRunner(ctx, by, runner.Runner, file)
	return append(needs, need{access.ManageRunners, o, nil}), err
}

// mayCreateRule is the rule of a new runner rule.
func mayCreateRule(ctx context.Context, r *asked, in wire.CreateRunnerRuleRequest) ([]need, error) {
	match := placement.Match{Group: in.Group, App: in.App, Labels: placement.LabelsOf(in.Labels)}
	if err := match.Check(); err != nil {
		return nil, err
	}
	more, err := r.named(ctx, in.Runner, match.Within())
	return append([]need{{access.ManageRunners, r.OfMatch(match), nil}}, more...), err
}

// mayListDeployments is the rule of the list of deployments. Without an install, the list leaves out what the caller may not see. The
// deployments of an install that was forgotten are left out in the same way.
func mayListDeployments(ctx context.Context, r *asked, install string) ([]need, error) {
	if install == "" {
		return nil, nil
	}
	needs, err := r.onPath(ctx, access.View, InstallPath{install})
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return nil, nil
	}
	return needs, err
}

// scopeNeeds returns the needs of a request about variables: the right on the one object that the scope names.
func scopeNeeds(ctx context.Context, r *asked, in ScopeQuery, change bool) ([]need, error) {
	pick := func(a access.Right) access.Right {
		if change {
			return a
		}
		return access.View
	}
	var out []need
	for _, at := range []struct {
		given  string
		right  access.Right
		object target
	}{
		{in.Runner, access.ManageRunners, RunnerPath{in.Runner}}, {in.Group, access.EditInstall, GroupQuery{in.Group}},
		{in.App, access.EditApp, AppPath{in.App}}, {in.Install, access.EditInstall, InstallPath{in.Install}},
	} {
		if at.given == "" {
			continue
		}
		// The variables of a shared runner are the operator's, also to read.
		right := pick(at.right)
		needs, err := r.onPath(ctx, right, at.object)
		if err != nil {
			return nil, err
		}
		out = append(out, needs...)
	}
	return out, nil
}
