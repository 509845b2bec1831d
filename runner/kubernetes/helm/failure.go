package helm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

var (
	errPlanWrites     = errors.New("a plan must not change the cluster")
	errLookupTooLarge = fmt.Errorf("a template looked up more than %d MiB of Secrets", maxLookup>>20)
)

// failed returns the error of an operation with its reason. It decides on the types of errors: Helm wraps those of the
// cluster.
func (e *Engine) failed(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	if typed, ok := errors.AsType[*plugin.Error](err); ok {
		return &plugin.Error{Reason: typed.Reason, Message: e.mask(typed.Message), Err: err}
	}
	reason, todo := fairlead.ReasonHelmFailed, "Read the log, and correct the chart or its values."
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		reason, todo = fairlead.ReasonClusterForbidden, "Give the runner's role in the cluster this permission, or raise the quota that refuses."
	case meta.IsNoMatchError(err):
		reason, todo = fairlead.ReasonKindUnknown, "Install the custom resource definition first, or put it into the chart's folder crds."
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsConflict(err),
		apierrors.IsAlreadyExists(err), apierrors.IsMethodNotSupported(err), apierrors.IsNotFound(err),
		apierrors.IsInternalError(err), apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && answered(err): // a failing webhook, an unknown field
		reason, todo = fairlead.ReasonObjectRefused, "Correct the object in the chart, or the admission policy that refuses it."
	case unreachable(err), apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		reason, todo = fairlead.ReasonClusterUnreachable, "Check the cluster's API server and the runner's connection to it, then plan again."
	}
	return &plugin.Error{Reason: reason, Message: e.mask(fmt.Sprintf("%s: %s %s", what, sentence(brief(err)), todo)), Err: err}
}

// answered reports whether the API server sent the error.
func answered(err error) bool {
	_, ok := errors.AsType[*apierrors.StatusError](err)
	return ok
}

// unreachable reports whether no answer came.
func unreachable(err error) bool {
	_, ok := errors.AsType[*url.Error](err)
	return ok && !answered(err)
}

// sentence ends a text with a full stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

const maxMessage = 2000

// brief returns an error's text with a limited length.
func brief(err error) string {
	s := strings.ToValidUTF8(err.Error(), "?")
	if r := []rune(s); len(r) > maxMessage {
		return string(r[:maxMessage]) + "…"
	}
	return s
}
