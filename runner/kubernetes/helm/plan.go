package helm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Plan finds out what an apply of the chart with the values would do; with destroy, what the removal of the release would do,
// and chart and values are not used. It changes nothing in the cluster. Its errors are *plugin.Error, or wrap ctx's error.
func (e *Engine) Plan(ctx context.Context, chart *Chart, values map[string]any, destroy bool) (Planned, error) {
	if err := chartutil.ValidateReleaseName(e.Release); err != nil {
		return Planned{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "%q is no name for a Helm release: %v. Use lower-case letters, digits and hyphens.", e.Release, err)
	}
	c, err := e.connect(func(next http.RoundTripper) http.RoundTripper { return &readOnly{next: next, ctx: ctx} })
	if err != nil {
		return Planned{}, e.failed(ctx, "connect to the cluster", err)
	}
	p := &planner{e: e, c: c, addresses: map[string]bool{}, mask: e.mask,
		saved: saved{V: savedVersion, Release: e.Release, Namespace: e.Namespace, Owner: e.Owner, Timeout: int64(e.timeout()),
			RollbackOnFailure: e.Options.RollbackOnFailure, WaitForJobs: e.Options.WaitForJobs, History: e.history()}}
	what := "plan the release " + e.Release
	if p.all, err = e.revisions(ctx, c); err != nil {
		return Planned{}, e.failed(ctx, what, err)
	}
	if last := p.all.last(); last != nil {
		p.saved.Base = &savedBase{Revision: last.rel.Version, UID: last.uid, Digest: last.digest}
		p.saved.Recover = last.interrupted()
	}
	if destroy {
		err = p.destroy(ctx)
	} else {
		err = p.apply(ctx, chart, values)
	}
	if err != nil {
		return Planned{}, e.failed(ctx, what, err)
	}
	text, err := p.saved.encode()
	if err != nil {
		return Planned{}, e.failed(ctx, what, err)
	}
	done := Planned{Saved: text, NoOp: p.saved.NoOp, Changes: p.rows, ClientDiff: p.clientDiff}
	if done.NoOp {
		done.Changes = nil
	}
	if done.NoOp && !destroy {
		done.Outputs = p.all.outputs()
	}
	if b := p.saved.Base; b != nil {
		done.Base = &changeset.Base{Lineage: b.UID, Revision: int64(b.Revision)}
	}
	return done, nil
}

// planner collects a plan.
type planner struct {
	e          *Engine
	c          *connection
	all        revisions
	mask       func(string) string
	saved      saved
	rows       []changeset.Change
	addresses  map[string]bool
	clientDiff bool
}

// row adds a change. before and after may be nil.
func (p *planner) row(c changeset.Change, before, after *unstructured.Unstructured) error {
	base := c.Address
	for n := 2; p.addresses[c.Address]; n++ {
		c.Address = fmt.Sprintf("%s (%d)", base, n) // two groups can have the same kind
	}
	p.addresses[c.Address] = true
	if err := setValues(&c, before, after, p.mask); err != nil {
		return fmt.Errorf("show the change of %s: %w", c.Address, err)
	}
	c.Reason = p.mask(c.Reason)
	p.rows = append(p.rows, c)
	return nil
}

func (p *planner) releaseAddress() string { return "release " + p.e.Namespace + "/" + p.e.Release }

const kindRelease = "Helm release"

// upgrade reports whether the next apply is an upgrade. A release that was never deployed, or that was being uninstalled, is
// installed again: its install hooks have not all run.
func (p *planner) upgrade() bool {
	last := p.all.last()
	switch {
	case last == nil, last.status() == rcommon.StatusUninstalled, last.status() == rcommon.StatusUninstalling, last.status() == rcommon.StatusPendingInstall:
		return false
	case last.status() == rcommon.StatusDeployed:
		return true
	case last.own(labelOperation) == opInstall:
		return false
	}
	return slices.ContainsFunc(p.all, func(r *record) bool {
		return r.status() == rcommon.StatusDeployed || r.status() == rcommon.StatusSuperseded || r.status() == rcommon.StatusPendingUpgrade || r.status() == rcommon.StatusPendingRollback
	})
}

// apply plans an install or an upgrade.
func (p *planner) apply(ctx context.Context, chart *Chart, values map[string]any) error {
	e, s := p.e, &p.saved
	upgrade := p.upgrade()
	s.Operation = opInstall
	if upgrade {
		s.Operation = opUpgrade
	}
	revision := 1
	if last := p.all.last(); last != nil {
		revision = last.rel.Version + 1
	}
	if values == nil {
		values = map[string]any{}
	}
	digest, err := valuesDigest(values, e.Images)
	if err != nil {
		return err
	}
	s.ValuesDigest, s.ChartDigest, s.Values = digest, short(chart.digest), values
	kube, err := kubeVersion(p.c.getter.discovery)
	if err != nil {
		return err
	}
	var reused *record
	if reused, s.Rendering = e.reuse(p.all, chart, digest, kube); reused != nil {
		e.logf("The chart and the values are those of revision %d: its rendered objects are used again.", reused.rel.Version)
	} else {
		e.logf("Render the chart.")
		var lookups func(string) string
		if s.Rendering, lookups, err = e.render(ctx, p.c, chart, values, revision, upgrade); err != nil {
			return err
		}
		p.mask = func(s string) string { return lookups(e.mask(s)) }
	}
	r := s.Rendering
	if r.Metadata.Deprecated {
		e.logf("The chart %s is marked as deprecated.", r.Metadata.Name)
	}
	if err := r.check(); err != nil {
		return err
	}
	if err := p.size(revision); err != nil {
		return err
	}
	if err := p.namespace(ctx); err != nil {
		return err
	}
	kinds, err := p.definitions(ctx)
	if err != nil {
		return err
	}
	if err := p.hooks(ctx, r.hooks, s.before(), ""); err != nil {
		return err
	}
	changed, err := p.objects(ctx, kinds)
	if err != nil {
		return err
	}
	if err := p.hooks(ctx, r.hooks, s.after(), ""); err != nil {
		return err
	}
	if err := p.rollback(ctx); err != nil {
		return err
	}
	last := p.all.last()
	s.NoOp = last != nil && last.status() == rcommon.StatusDeployed && !changed && !s.CreateNamespace && len(s.CreateCRDs) == 0 && len(s.Leftovers) == 0 &&
		r.manifest() == last.rel.Manifest && sameHooks(r.hooks, last.rel.Hooks)
	if s.NoOp {
		return nil
	}
	return p.head()
}

// before and after list the hooks of the operation.
func (s *saved) before() release.HookEvent {
	return map[string]release.HookEvent{opInstall: release.HookPreInstall, opUpgrade: release.HookPreUpgrade, opDestroy: release.HookPreDelete}[s.Operation]
}

func (s *saved) after() release.HookEvent {
	return map[string]release.HookEvent{opInstall: release.HookPostInstall, opUpgrade: release.HookPostUpgrade, opDestroy: release.HookPostDelete}[s.Operation]
}

// head adds what happens to the release itself, if it is more than that its objects change.
func (p *planner) head() error {
	last := p.all.last()
	row := changeset.Change{Address: p.releaseAddress(), Kind: kindRelease}
	switch {
	case last == nil:
	case last.interrupted():
		row.Action = changeset.Recover
		row.Reason = p.interruption(last) + "; it is marked as failed"
	case last.own(labelJob) == "" && last.labels[labelInstall] == "":
		row.Action, row.Reason = changeset.Import, fmt.Sprintf("revision %d was made by another program", last.rel.Version)
	case len(p.rows) == 0:
		row.Action, row.Reason = changeset.Update, "only the release's record changes"
	}
	if row.Action == "" && len(p.rows) == 0 {
		row.Action, row.Reason = changeset.Create, "the release has no objects"
	}
	if row.Action == "" {
		return nil
	}
	rows := p.rows
	p.rows = nil
	if err := p.row(row, nil, nil); err != nil {
		return err
	}
	p.rows = append(p.rows, rows...)
	return nil
}

// interruption describes a revision whose operation did not end.
func (p *planner) interruption(rec *record) string {
	text := fmt.Sprintf("revision %d is %s: an operation on it did not end", rec.rel.Version, rec.status())
	if hooks := p.unfinished(rec); len(hooks) > 0 {
		text += ", and it may have run " + strings.Join(hooks, ", ")
	}
	return text
}

// size refuses a release that Kubernetes could not store.
func (p *planner) size(revision int) error {
	r := p.saved.Rendering
	rel := slim(&release.Release{Name: p.e.Release, Namespace: p.e.Namespace, Version: revision, Chart: r.chart(), Config: p.saved.Values,
		Manifest: r.manifest(), Hooks: r.hooks, ApplyMethod: string(release.ApplyMethodServerSideApply),
		Info: &release.Info{FirstDeployed: time.Unix(0, 0), LastDeployed: time.Unix(0, 0), Status: rcommon.StatusPendingInstall, Notes: r.Files[r.notes()]}})
	size, err := storedSize(rel)
	if err != nil {
		return err
	}
	if size > maxStored {
		return tooLarge(p.e.Release, size)
	}
	return nil
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespace plans the release's namespace, if it is missing.
func (p *planner) namespace(ctx context.Context) error {
	_, err := p.c.dynamic.Resource(namespaces).Get(ctx, p.e.Namespace, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		if apierrors.IsForbidden(err) {
			return nil // a role of one namespace may not read it, and its other requests show whether it exists
		}
		return err
	}
	p.saved.CreateNamespace = true
	return p.row(changeset.Change{Address: "Namespace/" + p.e.Namespace, Kind: "v1 Namespace", Action: changeset.Create, Reason: "the release's namespace"}, nil, p.e.namespaceObject())
}

func (e *Engine) namespaceObject() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": e.Namespace, "labels": map[string]any{"name": e.Namespace}}}}
}

// definitions plans the missing definitions of the chart's folder crds. Existing ones stay as they are, as with Helm.
func (p *planner) definitions(ctx context.Context) (map[schema.GroupVersionKind]bool, error) {
	crds, kinds, err := p.saved.Rendering.definitions()
	if err != nil {
		return nil, err
	}
	if err := p.e.locate(p.c.mapper, crds, nil, func(o *object, err error) error { return err }); err != nil {
		return nil, err
	}
	for _, o := range crds {
		live, err := o.get(ctx, p.c.dynamic)
		if err != nil {
			return nil, err
		}
		if err := p.remember(o, live, nil); err != nil {
			return nil, err
		}
		if live != nil {
			p.e.logf("%s exists and stays as it is: Helm does not update the definitions of a chart's folder crds.", o.id())
			continue
		}
		p.saved.CreateCRDs = append(p.saved.CreateCRDs, o.GetName())
		if err := p.row(changeset.Change{Address: o.id().String(), Kind: o.kind(), Action: changeset.Create, Reason: "definition from " + o.source}, nil, o.Unstructured); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// remember saves the digest of a live object.
func (p *planner) remember(o *object, live, planned *unstructured.Unstructured) error {
	if !o.known || o.GetName() == "" {
		return nil
	}
	entry, err := reference(o, live, planned)
	if err == nil {
		p.saved.Objects = append(p.saved.Objects, entry)
	}
	return err
}

func reference(o *object, live, planned *unstructured.Unstructured) (savedObject, error) {
	digest, err := contentDigest(live, planned)
	entry := savedObject{id: o.id(), Version: o.GroupVersionKind().Version, Resource: o.resource.Resource, Digest: digest}
	if planned != nil {
		_, set, _ := unstructured.NestedFieldNoCopy(planned.Object, "spec", "replicas")
		entry.AnyReplica = !set
	}
	return entry, err
}

// objects plans the objects of the manifest, and those that are no longer in it. It reports whether any changes.
func (p *planner) objects(ctx context.Context, kinds map[schema.GroupVersionKind]bool) (bool, error) {
	e := p.e
	var wanted []*object
	for _, m := range p.saved.Rendering.manifests {
		objects, err := parse(m.Name, m.Content)
		if err != nil {
			return false, err
		}
		wanted = append(wanted, objects...)
	}
	planned := map[string]bool{p.e.Namespace: p.saved.CreateNamespace}
	for _, o := range wanted {
		if o.GetKind() == "" || o.GetName() == "" && o.GetGenerateName() == "" {
			return false, invalid("an object in %s has no kind or no name", o.source)
		}
		if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
			planned[o.GetName()] = true
		}
	}
	unknown := func(o *object, err error) error {
		return &plugin.Error{Reason: fairlead.ReasonKindUnknown, Err: err, Message: fmt.Sprintf(
			"The cluster has no kind %s, which %s uses for %s. Install its custom resource definition first, or put it into the chart's folder crds.", o.kind(), o.source, o.GetName())}
	}
	if err := e.locate(p.c.mapper, wanted, kinds, unknown); err != nil {
		return false, err
	}
	current, others, err := p.earlier()
	if err != nil {
		return false, err
	}
	before := len(p.rows)
	seen := map[id]bool{}
	for _, o := range wanted {
		if seen[o.id()] && o.GetName() != "" {
			e.logf("The chart has %s twice.", o.id())
			continue
		}
		seen[o.id()] = true
		if err := p.object(ctx, o, current[o.id()], planned); err != nil {
			return false, err
		}
	}
	if err := p.removals(ctx, current, others, seen); err != nil {
		return false, err
	}
	return len(p.rows) > before, nil
}

// object plans one object of the manifest. old is the same object in the current manifest, or nil.
func (p *planner) object(ctx context.Context, o, old *object, planned map[string]bool) error {
	live, err := o.get(ctx, p.c.dynamic)
	if err != nil {
		return err
	}
	if err := p.remember(o, live, o.Unstructured); err != nil {
		return err
	}
	row := changeset.Change{Address: o.id().String(), Kind: o.kind(), Action: changeset.Create}
	if o.GetName() == "" {
		row.Address += o.GetGenerateName() + "*"
	}
	if live == nil && (!o.known || o.GetName() == "" || planned[o.GetNamespace()]) {
		row.Unverified = true
		return p.row(row, nil, p.e.own(o))
	}
	if live != nil && old == nil && !p.e.owned(live) {
		return plugin.Errorf(fairlead.ReasonObjectOwned,
			"%s exists and does not belong to the release %s. Delete it, or rename the object in the chart. To let the release take it over, give it the label %s=%s and the annotations %s=%s and %s=%s.",
			o.id(), p.e.Release, labelManagedBy, managedByHelm, annotationRelease, p.e.Release, annotationNamespace, p.e.Namespace)
	}
	var oldObject *unstructured.Unstructured
	if old != nil {
		oldObject = p.e.own(old)
	}
	out, err := p.e.predict(ctx, p.c.dynamic, o, oldObject, live)
	if err != nil {
		return err
	}
	p.clientDiff = p.clientDiff || out.unverified
	row.Unverified, row.Reason = out.unverified, out.reason
	if live == nil {
		return p.row(row, nil, p.e.own(o))
	}
	if last := p.all.last(); last != nil && last.rel.ApplyMethod != string(release.ApplyMethodServerSideApply) {
		// Helm first moves the fields that it set by client-side apply to server-side apply, which a dry run cannot include: the apply
		// then removes what the new manifest lacks, and the dry run does not.
		if out.after, err = mergeLocally(oldObject, p.e.own(o), out.after); err != nil {
			return fmt.Errorf("compute the change of %s: %w", o.id(), err)
		}
		row.Unverified = true
		row.Reason = strings.TrimPrefix(row.Reason+"; the release was made by client-side apply, so the runner computed which fields go", "; ")
	}
	if same(live, out.after) {
		return nil
	}
	row.Action = changeset.Update
	return p.row(row, live, out.after)
}

// earlier returns the objects that Helm regards as the release's current ones, and those of other revisions that may be left
// over: an upgrade deletes only what its current revision has and the next one lacks.
func (p *planner) earlier() (current, others map[id]*object, err error) {
	current, others = map[id]*object{}, map[id]*object{}
	base := p.current()
	for _, rec := range p.all {
		objects, err := parseManifest(rec.rel.Manifest)
		if err != nil {
			return nil, nil, err
		}
		into := others
		if rec == base {
			into = current
		}
		// An object of a kind that the cluster no longer has does not exist.
		if err := p.e.locate(p.c.mapper, objects, nil, func(*object, error) error { return nil }); err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			if _, ok := into[o.id()]; !ok && o.known && o.GetName() != "" {
				o.source = fmt.Sprintf("revision %d", rec.rel.Version)
				into[o.id()] = o
			}
		}
		if rec.status() == rcommon.StatusDeployed {
			break // this revision removed what the earlier ones had
		}
	}
	for i := range current {
		delete(others, i)
	}
	return current, others, nil
}

// current returns the revision with which Helm compares an upgrade, or which it uninstalls; nil for an install.
func (p *planner) current() *record {
	switch {
	case p.saved.Operation == opDestroy:
		return p.all.last()
	case p.saved.Operation != opUpgrade:
		return nil
	case p.all.deployed() != nil:
		return p.all.deployed()
	}
	return p.all.last()
}
