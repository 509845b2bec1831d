package control

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/control/internal/runners"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// Objects finds what requests are about, in the form in which package access decides about it. It remembers the installs
// that it has read, so a value is for one request, and not for concurrent use.
type Objects struct {
	c        *Control
	org      fairlead.OrgID
	installs map[string]store.Stored[store.Install]
}

// Objects returns the objects of an org.
func (c *Control) Objects(org fairlead.OrgID) *Objects {
	return &Objects{c: c, org: org, installs: map[string]store.Stored[store.Install]{}}
}

func (o *Objects) install(ctx context.Context, name string) (store.Stored[store.Install], error) {
	if r, ok := o.installs[name]; ok {
		return r, nil
	}
	r, err := store.Optional(o.c.Store.Install(ctx, o.org, name))
	if err == nil {
		o.installs[name] = r
	}
	return r, err
}

// Install returns the object of an install. An install that does not exist is an error of KindNotFound.
func (o *Objects) Install(ctx context.Context, name string) (access.Object, error) {
	r, err := o.install(ctx, name)
	if err == nil && r.Version == 0 {
		err = fairlead.NotFound(fairlead.CodeInstallNotFound, name)
	}
	return objectOf(o.org, r.V), err
}

func objectOf(org fairlead.OrgID, v store.Install) access.Object {
	return access.InstallObject(org, v.Group, v.App).Existing(v.ID, v.CustomerApproves)
}

// OfInstall returns the object of an install that was read.
func (o *Objects) OfInstall(v Install) access.Object {
	return access.InstallObject(o.org, v.Group, v.App).Existing(v.ID, v.CustomerApproves)
}

// OfApp returns the object of an app that was read.
func (o *Objects) OfApp(a App) access.Object { return access.AppObject(o.org, a.Name) }

// OfGroup returns the object of a group that was read.
func (o *Objects) OfGroup(g Group) access.Object { return access.GroupObject(o.org, g.Path) }

// ofInstall returns the object of what belongs to an install. After the install was forgotten, it is in no group. app is what
// the record names; "": it names none.
func (o *Objects) ofInstall(ctx context.Context, name string, id fairlead.InstallID, app string) (access.Object, error) {
	r, err := o.install(ctx, name)
	if err != nil || r.V.ID != id { // another install has the name now
		return access.InstallObject(o.org, "", app), err
	}
	return objectOf(o.org, r.V), nil
}

// Deployment returns the object of a deployment.
func (o *Objects) Deployment(ctx context.Context, id fairlead.DeploymentID) (access.Object, error) {
	d, err := o.deployment(ctx, id)
	if err != nil {
		return access.Object{}, err
	}
	return o.OfDeployment(ctx, Deployment{Deployment: d.Deployment, InstallName: d.InstallName})
}

func (o *Objects) deployment(ctx context.Context, id fairlead.DeploymentID) (store.Deployment, error) {
	d, err := o.c.Store.Deployment(ctx, id)
	if err == nil && d.V.Org != o.org {
		err = fairlead.NotFound(fairlead.CodeDeploymentNotFound, string(id))
	}
	return d.V, err
}

// OfDeployment returns the object of a deployment that was read.
func (o *Objects) OfDeployment(ctx context.Context, d Deployment) (access.Object, error) {
	return o.ofInstall(ctx, d.InstallName, d.Install, d.App)
}

// Unattended reports whether some plan of the deployment is applied without a person's approval.
func (o *Objects) Unattended(ctx context.Context, id fairlead.DeploymentID) (bool, error) {
	d, err := o.deployment(ctx, id)
	return d.Unattended(), err
}

// Job returns the object of a job.
func (o *Objects) Job(ctx context.Context, id fairlead.JobID) (access.Object, error) {
	j, err := o.c.Store.Job(ctx, id)
	if err == nil && j.V.Org != o.org {
		err = fairlead.NotFound(fairlead.CodeJobNotFound, string(id))
	}
	if err != nil {
		return access.Object{}, err
	}
	return o.ofJob(ctx, j.V)
}

// OfJob returns the object of a job that was read: its install, the app that it builds, or the runner that it checks.
func (o *Objects) OfJob(ctx context.Context, j Job) (access.Object, error) {
	r := store.Job{Job: j.Job, InstallName: j.InstallName, RunnerName: j.RunnerName}
	if j.Build != nil {
		r.Build = &store.Build{Build: j.Build.Build}
	}
	return o.ofJob(ctx, r)
}

func (o *Objects) ofJob(ctx context.Context, j store.Job) (access.Object, error) {
	switch {
	case j.Install != "":
		app := ""
		if r, err := o.install(ctx, j.InstallName); err != nil {
			return access.Object{}, err
		} else if r.V.ID != j.Install && j.Deployment != "" {
			d, err := store.Optional(o.c.Store.Deployment(ctx, j.Deployment))
			if err != nil {
				return access.Object{}, err
			}
			app = d.V.App
		}
		return o.ofInstall(ctx, j.InstallName, j.Install, app)
	case j.Build != nil:
		return access.AppObject(o.org, j.Build.App), nil
	}
	at, err := o.Runner(ctx, j.RunnerName)
	if fairlead.KindOf(err) == fairlead.KindNotFound || at == access.SharedObject() {
		return access.OrgObject(o.org), nil // a check of a shared runner is a job of the operator's org
	}
	return at, err
}

// Runner returns the object of a runner by its name.
func (o *Objects) Runner(ctx context.Context, name string) (access.Object, error) {
	r, err := runners.FindRunner(o.c.Reading(ctx), o.org, name)
	if err != nil {
		return access.Object{}, err
	}
	return o.ofRunner(ctx, r.V.Shared(), r.V.Group, r.V.Install, r.V.Config)
}

// OfRunner returns the object of a runner that was read.
func (o *Objects) OfRunner(ctx context.Context, r Runner) (access.Object, error) {
	return o.ofRunner(ctx, r.Shared, r.Group, r.Install, r.Config)
}

// ofRunner returns the object of a runner. A runner of one install belongs to where the install is. The record has the install's
// identifier, and the configuration has its name.
func (o *Objects) ofRunner(ctx context.Context, shared bool, group placement.Path, install fairlead.InstallID, config json.RawMessage) (access.Object, error) {
	if shared {
		return access.SharedObject(), nil
	}
	if install == "" {
		return access.RunnerObject(o.org, group), nil
	}
	var named struct {
		Install string `json:"install"`
	}
	if err := json.Unmarshal(config, &named); err != nil {
		return access.OrgObject(o.org), nil //nolint:nilerr // only a caller with the right in the whole org may act on a record that cannot be read
	}
	return o.ofInstall(ctx, named.Install, install, "")
}

// ServiceAccount returns the object of a service account: its group.
func (o *Objects) ServiceAccount(ctx context.Context, name string) (access.Object, error) {
	a, err := o.c.Store.ServiceAccount(ctx, o.org, name)
	return access.GroupObject(o.org, a.V.Group), err
}

// OfServiceAccount returns the object of a service account that was read.
func (o *Objects) OfServiceAccount(a ServiceAccount) access.Object {
	return access.GroupObject(o.org, a.Group)
}

// Reaches reports whether the runner serves installs of the group. Then it can be named for an install there by a caller who may
// not see it.
func (o *Objects) Reaches(ctx context.Context, runner string, group placement.Path) (bool, error) {
	r, err := runners.FindRunner(o.c.Reading(ctx), o.org, runner)
	return err == nil && (r.V.Shared() || r.V.Install == "" && r.V.Group.Contains(group)), err
}

// NewRunner returns the object of a runner that a request would create.
func (o *Objects) NewRunner(ctx context.Context, in NewRunner) (access.Object, error) {
	group, install, err := runners.PlaceOf(in)
	return o.placed(ctx, group, install, err)
}

// ChangedRunner returns the object that a runner would be after a change of its configuration.
func (o *Objects) ChangedRunner(ctx context.Context, by kernel.User, name string, patch RunnerFile) (access.Object, error) {
	group, install, err := o.c.PlaceAfter(ctx, by, name, patch)
	return o.placed(ctx, group, install, err)
}

func (o *Objects) placed(ctx context.Context, group, install string, err error) (access.Object, error) {
	if err != nil {
		return access.Object{}, err
	}
	if install != "" {
		return o.Install(ctx, install)
	}
	path, err := placement.ParsePath(group)
	return access.RunnerObject(o.org, path), err
}

// Serving returns the object of the runner that runs the install's jobs. It returns the org if no runner does: the request then
// needs rights that cover every runner.
func (o *Objects) Serving(ctx context.Context, install string) (access.Object, error) {
	e, err := o.c.ExplainInstall(ctx, o.org, install)
	if err != nil {
		return access.Object{}, err
	}
	if e.Serves == nil {
		return access.OrgObject(o.org), nil
	}
	return o.OfRunner(ctx, *e.Serves)
}

// Rule returns the object of a runner rule by its identifier.
func (o *Objects) Rule(ctx context.Context, id string) (access.Object, error) {
	r, err := o.c.RunnerRule(ctx, o.org, id)
	if err != nil {
		return access.Object{}, err
	}
	return o.OfMatch(r.Match), nil
}

// OfMatch returns the object of a rule with this match: the group whose installs it matches. A rule without a group is the org's,
// because it matches installs of each group.
func (o *Objects) OfMatch(m placement.Match) access.Object {
	return access.GroupObject(o.org, m.Within())
}
