package tree

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/transport"
)

// Refused returns the error for an operation that the registry refused with status and, perhaps, a message. Status 0
// means that the registry gave no usable answer. If err is a *fairlead.Error or a cancellation, it is only wrapped.
func Refused(operation, ref string, status int, message string, err error) error {
	if _, ok := errors.AsType[*fairlead.Error](err); ok || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s artifact %s: %w", operation, ref, err)
	}
	e := &fairlead.Error{Err: err}
	switch status {
	case http.StatusUnauthorized:
		e.Kind, e.Code = fairlead.KindUnauthenticated, fairlead.CodeRegistryUnauthenticated
		e.Message, e.Hint = "the registry does not know who is calling", "Log in again."
	case http.StatusForbidden:
		e.Kind, e.Code = fairlead.KindForbidden, fairlead.CodeRegistryForbidden
		e.Message = "the registry does not allow it"
	case http.StatusNotFound:
		e.Kind, e.Code = fairlead.KindNotFound, fairlead.CodeArtifactNotFound
		e.Message, e.Hint = "the registry does not have it", "Apply the app again: that pushes its artifacts."
	case http.StatusRequestEntityTooLarge:
		e.Kind, e.Code = fairlead.KindTooLarge, fairlead.CodeRegistryTooLarge
		e.Message = "the registry refuses its size"
	default:
		e.Kind, e.Code = fairlead.KindUnavailable, fairlead.CodeRegistryUnavailable
		e.Message, e.Hint = reason(status, message), "Try again later; the log of the registry says more."
	}
	e.Message = fmt.Sprintf("cannot %s the artifact %s: %s", operation, ref, e.Message)
	return e
}

// reason returns the registry's own message, or a reason made from the status.
func reason(status int, message string) string {
	switch {
	case status == 0:
		return "the registry gave no usable answer"
	case message == "":
		return fmt.Sprintf("the registry answered with status %d", status)
	}
	return fmt.Sprintf("the registry answered with status %d, %q", status, Abbreviate(message))
}

// WithoutTLS returns the error for a registry on another machine without TLS.
func WithoutTLS(e *transport.PlainError) error {
	return &fairlead.Error{
		Kind: fairlead.KindForbidden, Code: fairlead.CodeRegistryWithoutTLS,
		Message: fmt.Sprintf("the registry %s answers without TLS", e.Host),
		Hint:    "Serve it over https; without TLS only a registry on the same machine is used.",
	}
}
