package helm

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Apply executes a saved plan of Plan. It refuses, with the reason plan-stale and without a change, if the release or the
// content of a planned object has changed since. It calls mutating before the first change. When ctx ends, it begins no
// other change, ends its waits, and marks the release as failed. Its errors are *plugin.Error, or wrap ctx's error.
func (e *Engine) Apply(ctx context.Context, text []byte, mutating func()) (Applied, error) {
	s, err := decodeSaved(text)
	if err != nil {
		return Applied{}, err
	}
	if s.Release != e.Release || s.Namespace != e.Namespace || s.Owner != e.Owner {
		return Applied{}, plugin.Errorf(fairlead.ReasonPlanDigest, "The saved plan is for the release %s in namespace %s of another component or install: plan again.", s.Release, s.Namespace)
	}
	a := &applier{e: e, s: s}
	what := s.Operation + " the release " + e.Release
	if a.plain, err = e.connect(nil); err != nil {
		return Applied{}, e.failed(ctx, "connect to the cluster", err)
	}
	a.fence = e.newFence(a.plain)
	if a.gated, err = e.connect(func(next http.RoundTripper) http.RoundTripper {
		return &gate{next: next, ctx: ctx, check: a.fence.open}
	}); err != nil {
		return Applied{}, e.failed(ctx, "connect to the cluster", err)
	}
	if err := a.verify(ctx); err != nil {
		return Applied{}, e.failed(ctx, what, err)
	}
	if s.NoOp {
		e.logf("The release %s is as planned.", e.Release)
		return Applied{Outputs: a.all.outputs()}, nil
	}
	mutating()
	if err := a.prepare(ctx); err != nil {
		return Applied{}, e.failed(ctx, what, err)
	}
	if err := a.run(ctx); err != nil {
		return Applied{}, e.failed(ctx, what, err)
	}
	if s.Operation == opDestroy {
		e.logf("The release %s is gone.", e.Release)
		return Applied{}, nil
	}
	if a.all, err = e.revisions(ctx, a.plain); err != nil {
		return Applied{}, e.failed(ctx, what, err)
	}
	if last := a.all.last(); last != nil && last.rel.Info.Notes != "" {
		e.logf("Notes of the chart:\n%s", last.rel.Info.Notes)
	}
	return Applied{Outputs: a.all.outputs()}, nil
}

type applier struct {
	e     *Engine
	s     *saved
	all   revisions
	plain *connection // for reads, and for the records
	gated *connection // for everything else
	fence *fence
}

// outputs returns the outputs of the newest record; nil: there is none.
func (all revisions) outputs() map[string]any {
	last := all.last()
	if last == nil {
		return nil
	}
	md := last.rel.Chart.Metadata
	return map[string]any{"release": last.rel.Name, "namespace": last.rel.Namespace, "revision": last.rel.Version,
		"chart_version": md.Version, "app_version": md.AppVersion}
}

// verify compares the cluster with what the plan was made on.
func (a *applier) verify(ctx context.Context) error {
	var err error
	if a.all, err = a.e.revisions(ctx, a.plain); err != nil {
		return err
	}
	if err := a.fence.check(ctx); err != nil {
		return err
	}
	last, base := a.all.last(), a.s.Base
	switch {
	case last == nil && base == nil:
	case last == nil:
		return a.stale("the release was uninstalled")
	case base == nil:
		return a.stale(fmt.Sprintf("the release was installed (revision %d)", last.rel.Version))
	case last.rel.Version != base.Revision || last.uid != base.UID:
		return a.stale(fmt.Sprintf("the release has revision %d, and the plan was made on revision %d", last.rel.Version, base.Revision))
	case last.digest != base.Digest:
		return a.stale(fmt.Sprintf("the record of revision %d changed", base.Revision))
	}
	for _, o := range a.s.Objects {
		live, err := o.object().get(ctx, a.plain.dynamic)
		if err != nil {
			return err
		}
		digest, err := contentDigest(live, o.planned())
		if err != nil {
			return err
		}
		switch {
		case digest == o.Digest:
		case digest == "":
			return a.stale(fmt.Sprintf("%s is gone", o.id))
		case o.Digest == "":
			return a.stale(fmt.Sprintf("%s was created", o.id))
		default:
			return a.stale(fmt.Sprintf("%s was changed", o.id))
		}
	}
	return nil
}

func (a *applier) stale(why string) error {
	return plugin.Errorf(fairlead.ReasonPlanStale, "The cluster has changed since the plan was made: %s. Nothing was changed: plan again.", why)
}

func (o savedObject) object() *object {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: o.Group, Version: o.Version, Kind: o.Kind})
	u.SetNamespace(o.Namespace)
	u.SetName(o.Name)
	return &object{Unstructured: u, known: true, resource: schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}}
}

// planned returns a stand-in for the manifest of contentDigest.
func (o savedObject) planned() *unstructured.Unstructured {
	if !o.AnyReplica {
		return nil
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// prepare does what comes before Helm's own operation. Each step can be repeated after a death.
func (a *applier) prepare(ctx context.Context) error {
	if err := a.fence.claim(ctx); err != nil {
		return err
	}
	if a.s.CreateNamespace {
		a.e.logf("Create Namespace/%s.", a.e.Namespace)
		_, err := a.gated.dynamic.Resource(namespaces).Create(ctx, a.e.namespaceObject(), metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the namespace %s: %w", a.e.Namespace, err)
		}
	}
	if last := a.all.last(); last != nil && a.s.Recover && a.s.Operation != opDestroy {
		a.e.logf("Mark revision %d as failed: it is %s, and that operation did not end.", last.rel.Version, last.status())
		last.rel.SetStatus(rcommon.StatusFailed, fmt.Sprintf("An operation did not end: the revision was %s.", last.status()))
		if err := a.storage(ctx).Update(last.rel); err != nil {
			return fmt.Errorf("mark revision %d as failed: %w", last.rel.Version, err)
		}
	}
	for _, o := range a.s.Leftovers {
		a.e.logf("Delete %s, which is left over.", o.id)
		policy := metav1.DeletePropagationBackground
		err := o.object().at(a.gated.dynamic).Delete(ctx, o.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s: %w", o.id, err)
		}
	}
	return a.definitions(ctx)
}

// establishTimeout limits the wait until the cluster serves the kinds of new definitions.
const establishTimeout = time.Minute

// definitions creates the planned definitions.
func (a *applier) definitions(ctx context.Context) error {
	if len(a.s.CreateCRDs) == 0 {
		return nil
	}
	crds, _, err := a.s.Rendering.definitions()
	if err != nil {
		return err
	}
	k := a.client()
	var created kube.ResourceList
	for _, o := range crds {
		if !slices.Contains(a.s.CreateCRDs, o.GetName()) {
			continue
		}
		text, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		list, err := k.Build(strings.NewReader(string(text)), false)
		if err != nil {
			return err
		}
		// A plain create fails if the definition exists, where a server-side apply would change it.
		if _, err := k.Create(list, kube.ClientCreateOptionServerSideApply(false, false)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", o.id(), err)
		}
		created = append(created, list...)
	}
	w, err := k.GetWaiterWithOptions(kube.StatusWatcherStrategy, kube.WithWaitContext(ctx))
	if err != nil {
		return err
	}
	if err := w.Wait(created, establishTimeout); err != nil {
		return err
	}
	a.gated.getter.discovery.Invalidate()
	a.gated.mapper.Reset()
	return nil
}

func (a *applier) client() *client {
	k := &client{Client: kube.New(a.gated.getter), e: a.e}
	k.Client.Namespace = a.e.Namespace
	k.Client.SetLogger(a.handler())
	return k
}

func (a *applier) handler() slog.Handler {
	return slog.NewTextHandler(writer{a.e}, &slog.HandlerOptions{Level: slog.LevelWarn})
}

// writer writes lines of Helm to the log.
type writer struct{ e *Engine }

func (w writer) Write(p []byte) (int, error) {
	w.e.logf("%s", strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func (a *applier) storage(ctx context.Context) *storage.Storage {
	d := driver.NewSecrets(&secrets{SecretInterface: a.plain.secrets, ctx: ctx, fence: a.fence})
	d.SetLogger(a.handler())
	st := storage.Init(&records{Driver: d, allowed: a.allowed})
	st.SetLogger(a.handler())
	return st
}

// allowed refuses a new revision that is not the planned one. A rollback may return to an earlier revision.
func (a *applier) allowed(r *release.Release) error {
	if p := a.s.Rendering; p != nil && r.Manifest == p.manifest() && sameHooks(r.Hooks, p.hooks) {
		return nil
	}
	if a.s.RollbackOnFailure && slices.ContainsFunc(a.all, func(rec *record) bool { return r.Manifest == rec.rel.Manifest && sameHooks(r.Hooks, rec.rel.Hooks) }) {
		return nil
	}
	return plugin.Errorf(fairlead.ReasonPlanDigest, "Helm rendered another revision of release %s than the plan has. Report this as a defect of the product.", a.e.Release)
}

// run lets Helm do its operation.
func (a *applier) run(ctx context.Context) error {
	s := a.s
	k := a.client()
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(a.handler()))
	cfg.RESTClientGetter, cfg.KubeClient, cfg.Releases = a.gated.getter, k, a.storage(ctx)
	cfg.HookOutputFunc = func(_, pod, container string) io.Writer { return &lines{e: a.e, prefix: pod + "/" + container + ": "} }
	cfg.Releases.MaxHistory = s.History
	timeout := time.Duration(s.Timeout)
	wait := []kube.WaitOption{kube.WithWaitContext(ctx)}
	// Helm's actions get no context: with one they return while their work goes on. The connection and the waits end with it.
	background := context.WithoutCancel(ctx)
	var err error
	switch s.Operation {
	case opDestroy:
		u := action.NewUninstall(cfg)
		u.WaitStrategy, u.WaitOptions, u.Timeout = kube.StatusWatcherStrategy, wait, timeout
		_, err = u.Run(s.Release)
		return k.cause(err)
	case opInstall:
		cfg.Capabilities = &common.Capabilities{KubeVersion: s.Rendering.Kube}
		i := action.NewInstall(cfg)
		i.ReleaseName, i.Namespace, i.Replace = s.Release, s.Namespace, len(a.all) > 0
		i.WaitStrategy, i.WaitOptions, i.Timeout, i.WaitForJobs = kube.StatusWatcherStrategy, wait, timeout, s.WaitForJobs
		i.ServerSideApply, i.ForceConflicts = true, true
		i.SkipCRDs, i.SkipSchemaValidation, i.DisableOpenAPIValidation = true, true, true
		i.RollbackOnFailure, i.Labels = s.RollbackOnFailure, a.labels()
		_, err = i.RunWithContext(background, s.Rendering.chart(), s.Values)
	case opUpgrade:
		cfg.Capabilities = &common.Capabilities{KubeVersion: s.Rendering.Kube}
		u := action.NewUpgrade(cfg)
		u.Namespace, u.ResetValues, u.MaxHistory = s.Namespace, true, s.History
		u.WaitStrategy, u.WaitOptions, u.Timeout, u.WaitForJobs = kube.StatusWatcherStrategy, wait, timeout, s.WaitForJobs
		u.ServerSideApply, u.ForceConflicts = "true", true
		u.SkipCRDs, u.SkipSchemaValidation, u.DisableOpenAPIValidation = true, true, true
		u.RollbackOnFailure, u.Labels = s.RollbackOnFailure, a.labels()
		_, err = u.RunWithContext(background, s.Release, s.Rendering.chart(), s.Values)
	default:
		return plugin.Errorf(fairlead.ReasonPlanDigest, "The saved plan has the unknown operation %q: plan again.", s.Operation)
	}
	return k.cause(err)
}

// labels returns what the next plan reads from the record.
func (a *applier) labels() map[string]string {
	return map[string]string{labelChart: a.s.ChartDigest, labelValues: a.s.ValuesDigest, labelKube: kubeLabel(a.s.Rendering.Kube), labelOperation: a.s.Operation}
}

// lines writes whole lines of a hook's output to the log.
type lines struct {
	e      *Engine
	prefix string
	rest   string
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest += string(p)
	for {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok && len(l.rest) < 64<<10 {
			return len(p), nil
		}
		if !ok {
			line, rest = l.rest, ""
		}
		l.e.logf("%s%s", l.prefix, line)
		l.rest = rest
	}
}
