package cluster

import (
	"context"
	"crypto/tls"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Temporary reports whether the same request may succeed later: the API server did not answer, was overloaded, or could not reach
// what it needs for an answer.
func Temporary(err error) bool {
	var untrusted *tls.CertificateVerificationError
	if err == nil || errors.Is(err, context.Canceled) || meta.IsNoMatchError(err) || errors.As(err, &untrusted) {
		return false
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || status.Status().Code >= 500
	}
	return true // no answer: an error of the connection
}
