package helm_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// A cancellation ends a wait at once. The release is marked as failed, and nothing else is written.
func TestCancellationMarksTheReleaseAsFailed(t *testing.T) {
	for name, rollback := range map[string]bool{"without a rollback": false, "a rollback does not begin": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.options.RollbackOnFailure, w.options.Timeout = rollback, 10*time.Minute
			one := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", "one")})
			w.deploy(one, nil)
			two := chart(t, "2.0.0", files{"templates/a.yaml": configMap("a", "k", "two"), "templates/h.yaml": jobHook("migrate", "pre-upgrade")})
			p := w.plan(two, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := w.engine().Apply(ctx, p.Saved, func() {})
				done <- err
			}()
			w.until("the hook runs", func() bool { return w.job("migrate") != nil })
			cancel()
			select {
			case err := <-done:
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the wait goes on after the cancellation")
			}
			if w.history() != "1 deployed, 2 failed" || w.configMap("a")["k"] != "one" {
				t.Errorf("%s; %v", w.history(), w.configMap("a"))
			}
			w.completeJobs("migrate")
			w.apply(w.plan(two, nil))
			w.settled(two, nil)
		})
	}
}

// A hook whose beginning cannot be recorded does not run: if the attempt then died, no plan would show the hook.
func TestHookThatCannotBeRecordedDoesNotRun(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{"templates/h.yaml": hook("h", "pre-install"), "templates/a.yaml": configMap("a")})
	p := w.plan(c, nil)
	e := w.engine()
	var failed atomic.Bool
	e.Config = w.wrapped(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/secrets/") && failed.CompareAndSwap(false, true) {
				return nil, apierrors.NewInternalError(errors.New("the disk is full"))
			}
			return next.RoundTrip(r)
		})
	})
	_, err := e.Apply(t.Context(), p.Saved, func() {})
	if err == nil || len(w.configMaps()) > 0 || !failed.Load() {
		t.Fatalf("%v; ConfigMaps %v", err, w.configMaps())
	}
	w.deploy(c, nil)
	w.settled(c, nil)
}

// The cluster is away. The plan fails with a reason, and so does an apply in its middle.
func TestUnreachableClusterHasAReason(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a")})
	p := w.plan(c, nil)
	e := w.engine()
	e.Config = w.wrapped(func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) { return nil, errDead })
	})
	_, err := e.Plan(t.Context(), c, nil, false)
	w.refused(err, fairlead.ReasonClusterUnreachable)
	_, err = e.Apply(t.Context(), p.Saved, func() { t.Error("it began") })
	w.refused(err, fairlead.ReasonClusterUnreachable)
	e.Config, _ = w.dying(2, false)
	_, err = e.Apply(t.Context(), p.Saved, func() {})
	w.refused(err, fairlead.ReasonClusterUnreachable)
}
