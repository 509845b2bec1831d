package fairlead

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what an error means to the caller. There are few on purpose: each
// maps to one HTTP status and one exit code.
type Kind string

// The kinds of errors.
const (
	KindInvalid         Kind = "invalid"         // the request is wrong; repeating it is useless
	KindNotFound        Kind = "not_found"       // the object does not exist
	KindConflict        Kind = "conflict"        // the object is not in a state that allows this
	KindLocked          Kind = "locked"          // somebody else holds the lock; the holder is in Details
	KindStale           Kind = "stale"           // the lease or epoch was given to somebody else: stop working
	KindUnauthenticated Kind = "unauthenticated" // nobody knows who is calling
	KindForbidden       Kind = "forbidden"       // the caller is known and may not do this
	KindTooLarge        Kind = "too_large"       // a limit on size or number was passed
	KindUnavailable     Kind = "unavailable"     // try again later; nothing is known to have happened
	KindInternal        Kind = "internal"        // a fault of ours
)

// Error is the one structured error of the product. Message says what
// happened to what, Hint what to do next; neither ever holds a secret. The
// wrapped error is for logs, never for a response.
type Error struct {
	Kind    Kind
	Code    Code
	Message string            // one sentence without a final stop
	Hint    string            // what to do next; full sentences, which may name actions; may be empty
	Args    Args              // of the actions that Hint names
	Details map[string]string // machine-readable facts about the refusal; may be nil
	Err     error             // cause, for logs; may be nil
}

// Error returns the message, with the cause behind it.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the nearest *Error in err's chain, KindInternal
// for any other error and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}

// CodeOf returns the code of the nearest *Error in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Invalid returns an error of KindInvalid.
func Invalid(code Code, format string, args ...any) *Error {
	return &Error{Kind: KindInvalid, Code: code, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns an error of KindNotFound for the named object, of the noun that
// the code begins with. The hint names the action that lists such objects, where
// there is one.
func NotFound(code Code, name string) *Error {
	noun := strings.TrimSuffix(string(code), "-not-found")
	e := &Error{Kind: KindNotFound, Code: code, Message: fmt.Sprintf("there is no %s %q", noun, name)}
	switch noun {
	case "app", "install", "deployment", "job", "runner":
		e.Hint = Verb(noun+".list").Mention() + " shows what exists."
	}
	return e
}

// Conflict returns an error of KindConflict.
func Conflict(code Code, format string, args ...any) *Error {
	return &Error{Kind: KindConflict, Code: code, Message: fmt.Sprintf(format, args...)}
}
