package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	ri "helm.sh/helm/v4/pkg/release"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// fence keeps an attempt from writing after another attempt has taken over the release. The newest record of the release
// names the attempt that owns it. Safe for concurrent use.
type fence struct {
	e    *Engine
	list metadata.ResourceInterface // the Secrets of the release's namespace

	mu   sync.Mutex
	held bool  // this attempt owns a record
	lost error // a record could not be written
}

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func (e *Engine) newFence(c *connection) *fence {
	return &fence{e: e, list: c.metadata.Resource(secretsResource).Namespace(e.Namespace)}
}

// token returns the labels that name this attempt.
func (f *fence) token() map[string]string {
	return map[string]string{labelJob: labelValue(f.e.Job), labelEpoch: strconv.FormatInt(f.e.Epoch, 10),
		labelInstall: labelValue(f.e.Owner.Install), labelComponent: labelValue(f.e.Owner.Component)}
}

// check returns an error with the reason stale if another attempt owns the release.
func (f *fence) check(ctx context.Context) error {
	_, err := f.newest(ctx)
	return err
}

// open returns an error if the attempt must not change an object. That is also so after a record could not be written: Helm
// goes on without it, and would run a hook of which no record tells.
func (f *fence) open(ctx context.Context) error {
	f.mu.Lock()
	lost := f.lost
	f.mu.Unlock()
	if lost != nil {
		return fmt.Errorf("the release's record could not be written: %w", lost)
	}
	return f.check(ctx)
}

func (f *fence) lose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.lost == nil {
		f.lost = err
	}
}

// newest returns the newest record if this attempt may write, or nil if there is none.
func (f *fence) newest(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	list, err := f.list.List(ctx, f.e.selector())
	if err != nil {
		return nil, fmt.Errorf("find out which attempt owns the release %s: %w", f.e.Release, err)
	}
	var last *metav1.PartialObjectMetadata
	highest := -1
	for i := range list.Items {
		if v, err := strconv.Atoi(list.Items[i].Labels["version"]); err == nil && v > highest {
			last, highest = &list.Items[i], v
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last == nil {
		if f.held {
			return nil, f.stale("its record was deleted")
		}
		return nil, nil
	}
	job, epoch := last.Labels[labelJob], last.Labels[labelEpoch]
	own := f.token()
	switch {
	case job == own[labelJob] && epoch == own[labelEpoch]:
		f.held = true
	case f.held:
		return nil, f.stale(fmt.Sprintf("job %s at epoch %s has it now", job, epoch))
	case job == own[labelJob]:
		if n, err := strconv.ParseInt(epoch, 10, 64); err == nil && n > f.e.Epoch {
			return nil, f.stale(fmt.Sprintf("epoch %s of the job has it now", epoch))
		}
	}
	return last, nil
}

func (f *fence) stale(why string) error {
	return plugin.Errorf(fairlead.ReasonStale, "This attempt (epoch %d) no longer owns the release %s in namespace %s: %s. It stops without another change. Read the result of the newer attempt.",
		f.e.Epoch, f.e.Release, f.e.Namespace, why)
}

// claim writes this attempt into the newest record. Earlier attempts then fail at their next write.
func (f *fence) claim(ctx context.Context) error {
	last, err := f.newest(ctx)
	if err != nil || last == nil {
		return err
	}
	var set []string
	for k, v := range f.token() {
		set = append(set, fmt.Sprintf("%q:%q", k, v))
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":{%s}}}`, last.UID, last.ResourceVersion, strings.Join(set, ","))
	_, err = f.list.Patch(ctx, last.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return plugin.Errorf(fairlead.ReasonPlanStale, "The record of release %s in namespace %s changed while the apply began: plan again.", f.e.Release, f.e.Namespace)
	}
	if err != nil {
		return fmt.Errorf("take over the release %s: %w", f.e.Release, err)
	}
	return f.check(ctx)
}

// secrets stores the records of the release. It labels them with the attempt, and writes only while the attempt owns the
// release. Records can be updated after the context is done, so that an interrupted release is marked as failed.
type secrets struct {
	typedcore.SecretInterface
	ctx   context.Context
	fence *fence
}

// finalWrite limits a write after the end of the operation's context.
const finalWrite = 20 * time.Second

func (s *secrets) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.ctx), finalWrite)
}

func (s *secrets) Create(_ context.Context, obj *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err // it would begin a new revision
	}
	ctx, cancel := s.context()
	defer cancel()
	if err := s.fence.check(ctx); err != nil {
		return nil, err
	}
	maps.Copy(obj.Labels, s.fence.token())
	obj.Labels[labelRevision] = obj.Labels["version"]
	created, err := s.SecretInterface.Create(ctx, obj, opts)
	if apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInvalid(err) && len(obj.Data["release"]) > corev1.MaxSecretSize {
		return nil, tooLarge(s.fence.e.Release, len(obj.Data["release"]))
	}
	return created, err
}

func (s *secrets) Update(_ context.Context, obj *corev1.Secret, opts metav1.UpdateOptions) (_ *corev1.Secret, err error) {
	defer func() { s.fence.lose(err) }()
	ctx, cancel := s.context()
	defer cancel()
	for attempt := 0; ; attempt++ {
		if err := s.fence.check(ctx); err != nil {
			return nil, err
		}
		current, err := s.SecretInterface.Get(ctx, obj.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		obj.ResourceVersion, obj.UID = current.ResourceVersion, current.UID
		maps.Copy(obj.Labels, s.fence.token())
		if v, ok := current.Labels[labelRevision]; ok {
			obj.Labels[labelRevision] = v // Helm's release does not have it
		}
		updated, err := s.SecretInterface.Update(ctx, obj, opts)
		if !apierrors.IsConflict(err) || attempt == 3 {
			return updated, err
		}
	}
}

func (s *secrets) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	if err := s.fence.check(ctx); err != nil {
		return err
	}
	return s.SecretInterface.Delete(ctx, name, opts)
}

// records compares each new revision with the plan before Helm changes an object. It also leaves the templates out of the
// record: they only repeat the manifest.
type records struct {
	driver.Driver
	allowed func(*release.Release) error
}

func (d *records) Create(key string, rel ri.Releaser) error {
	r, ok := rel.(*release.Release)
	if !ok {
		return fmt.Errorf("a release of the unknown type %T", rel)
	}
	if err := d.allowed(r); err != nil {
		return err
	}
	return d.Driver.Create(key, slim(r))
}

func (d *records) Update(key string, rel ri.Releaser) error {
	if r, ok := rel.(*release.Release); ok {
		rel = slim(r)
	}
	return d.Driver.Update(key, rel)
}

// slim returns the release as it is recorded.
func slim(r *release.Release) *release.Release {
	if r.Chart == nil {
		return r
	}
	copied := *r
	copied.Chart = &chartv2.Chart{Metadata: r.Chart.Metadata, Values: r.Chart.Values}
	if r.Info != nil {
		info := *r.Info
		if text := []rune(info.Description); len(text) > maxMessage {
			info.Description = string(text[:maxMessage]) + "…"
		}
		copied.Info = &info
	}
	return &copied
}

// maxStored is the limit of a release in a Secret. The record grows while hooks run and when it fails.
const maxStored = corev1.MaxSecretSize - 16<<10

func tooLarge(name string, size int) error {
	return plugin.Errorf(fairlead.ReasonReleaseTooLarge,
		"The record of release %s needs %d bytes, and Kubernetes stores at most %d in a Secret. Split the chart into components, or leave out large files.", name, size, corev1.MaxSecretSize)
}

// client is Helm's client of the cluster. It writes progress to the log and gives failed waits a reason.
type client struct {
	*kube.Client
	e *Engine

	mu    sync.Mutex
	first error // the first failure; Helm drops some
}

func (c *client) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.first == nil {
		c.first = err
	}
	return err
}

// cause returns err, with the first failure if Helm has dropped it.
func (c *client) cause(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || c.first == nil {
		return err
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok || errors.Is(err, c.first) {
		return err
	}
	return fmt.Errorf("%w: %w", err, c.first)
}

func (c *client) Create(l kube.ResourceList, opts ...kube.ClientCreateOption) (*kube.Result, error) {
	c.e.logf("Create %s.", names(l))
	r, err := c.Client.Create(l, opts...)
	return r, c.fail(err)
}

func (c *client) Update(current, target kube.ResourceList, opts ...kube.ClientUpdateOption) (*kube.Result, error) {
	c.e.logf("Apply %s.", names(target))
	r, err := c.Client.Update(current, target, opts...)
	if r != nil && len(r.Deleted) > 0 {
		c.e.logf("Deleted %s.", names(r.Deleted))
	}
	return r, c.fail(err)
}

func (c *client) Delete(l kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	c.e.logf("Delete %s.", names(l))
	r, errs := c.Client.Delete(l, policy)
	c.fail(errors.Join(errs...))
	return r, errs
}

func (c *client) Build(r io.Reader, validate bool) (kube.ResourceList, error) {
	l, err := c.Client.Build(r, validate)
	return l, c.fail(err)
}

func (c *client) GetWaiter(s kube.WaitStrategy) (kube.Waiter, error) {
	return c.GetWaiterWithOptions(s)
}

func (c *client) GetWaiterWithOptions(s kube.WaitStrategy, opts ...kube.WaitOption) (kube.Waiter, error) {
	w, err := c.Client.GetWaiterWithOptions(s, opts...)
	if err != nil {
		return nil, err
	}
	return &waiter{Waiter: w, c: c}, nil
}

// waiter waits for objects.
type waiter struct {
	kube.Waiter
	c *client
}

func (w *waiter) wait(l kube.ResourceList, limit time.Duration, what string, late, broken fairlead.Reason, todo string, f func(kube.ResourceList, time.Duration) error) error {
	if len(l) == 0 {
		return nil
	}
	w.c.e.logf("Wait up to %s until %s: %s.", limit, what, names(l))
	err := f(l, limit)
	if err == nil {
		return nil
	}
	reason, text := broken, "failed"
	if errors.Is(err, context.DeadlineExceeded) {
		reason, text = late, fmt.Sprintf("did not happen within %s", limit)
	}
	return w.c.fail(&plugin.Error{Reason: reason, Err: err,
		Message: fmt.Sprintf("The wait of release %s until %s %s: %s %s", w.c.e.Release, what, text, sentence(brief(err)), todo)})
}

func (w *waiter) Wait(l kube.ResourceList, limit time.Duration) error {
	return w.wait(l, limit, "the objects are ready", fairlead.ReasonNotReady, fairlead.ReasonNotReady, readiness, w.Waiter.Wait)
}

func (w *waiter) WaitWithJobs(l kube.ResourceList, limit time.Duration) error {
	return w.wait(l, limit, "the objects are ready and their Jobs complete", fairlead.ReasonNotReady, fairlead.ReasonNotReady, readiness, w.Waiter.WaitWithJobs)
}

func (w *waiter) WatchUntilReady(l kube.ResourceList, limit time.Duration) error {
	return w.wait(l, limit, "the hook completes", fairlead.ReasonHookTimeout, fairlead.ReasonHookFailed,
		"Read the logs of the hook's pods, and correct the hook. The next plan shows it.", w.Waiter.WatchUntilReady)
}

func (w *waiter) WaitForDelete(l kube.ResourceList, limit time.Duration) error {
	return w.wait(l, limit, "the objects are gone", fairlead.ReasonDeletionStuck, fairlead.ReasonDeletionStuck,
		"Find the finalizer that keeps the object, and its controller.", w.Waiter.WaitForDelete)
}

const readiness = "Read the events and logs of the object, and correct the chart or its values. If it needs more time, increase the component's timeout."

// names lists objects for the log.
func names(l kube.ResourceList) string {
	var all []string
	for _, r := range l {
		i := id{Namespace: r.Namespace, Name: r.Name}
		if r.Mapping != nil {
			i.Kind = r.Mapping.GroupVersionKind.Kind
		}
		all = append(all, i.String())
		if len(all) == 20 && len(l) > 20 {
			all = append(all, fmt.Sprintf("and %d more", len(l)-20))
			break
		}
	}
	return strings.Join(all, ", ")
}
