package tree

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/transport"
)

// Refused returns the error for an operation that the registry refused with status and
// message, which may be "". Status 0 means that the registry sent no usable response. If err
// is a *fairlead.Error or a cancellation, Refused ignores the status and wraps err.
func Refused(operation, ref string, status int, message string, err error) error {
	if _, ok := errors.AsType[*fairlead.Error](err); ok || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s artifact %s: %w", operation, ref, err)
	}
	e := &fairlead.Error{Err: err}
	switch status {
	case http.StatusUnauthorized:
		e.Kind, e.Code = fairlead.KindUnauthenticated, fairlead.CodeRegistryUnauthenticated
		e.Message, e.Hint = "the registry did not accept the credentials", "Log in again."
	case http.StatusForbidden:
		e.Kind, e.Code = fairlead.KindForbidden, fairlead.CodeRegistryForbidden
		e.Message = "the registry does not permit this"
	case http.StatusNotFound:
		e.Kind, e.Code = fairlead.KindNotFound, fairlead.CodeArtifactNotFound
		e.Message, e.Hint = "the registry does not have the artifact", "Apply the app again: that pushes its artifacts."
	case http.StatusRequestEntityTooLarge:
		e.Kind, e.Code = fairlead.KindTooLarge, fairlead.CodeRegistryTooLarge
		e.Message = "the artifact is too large for the registry"
	default:
		e.Kind, e.Code = fairlead.KindUnavailable, fairlead.CodeRegistryUnavailable
		e.Message, e.Hint = reason(status, message), "Try again later. The log of the registry has details."
	}
	e.Message = fmt.Sprintf("cannot %s the artifact %s: %s", operation, ref, e.Message)
	return e
}

// reason returns the reason of a refusal: the status, and the registry's message if it sent
// a message.
func reason(status int, message string) string {
	switch {
	case status == 0:
		return "the registry sent no usable response"
	case message == "":
		return fmt.Sprintf("the registry responded with status %d", status)
	}
	return fmt.Sprintf("the registry responded with status %d, %q", status, Abbreviate(message))
}

// WithoutTLS returns the error for a registry on another machine without TLS.
func WithoutTLS(e *transport.PlainError) error {
	return &fairlead.Error{
		Kind: fairlead.KindForbidden, Code: fairlead.CodeRegistryWithoutTLS,
		Message: fmt.Sprintf("the registry %s responds without TLS", e.Host),
		Hint:    "Serve the registry over HTTPS. Without TLS, only a registry on the same machine is allowed.",
	}
}
