package fairlead

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what an error means to the caller. Each kind maps to one HTTP status and one exit
// code, so there are only a few kinds.
type Kind string

// The kinds of errors.
const (
	KindInvalid         Kind = "invalid"         // the request is wrong; repeating it is useless
	KindNotFound        Kind = "not_found"       // the object does not exist
	KindConflict        Kind = "conflict"        // the object is not in a state that allows this
	KindLocked          Kind = "locked"          // another holder has the lock; Details names the holder
	KindStale           Kind = "stale"           // another attempt has the lease or a newer epoch: stop working
	KindUnauthenticated Kind = "unauthenticated" // the request carries no valid credentials
	KindForbidden       Kind = "forbidden"       // the caller is known and may not do this
	KindTooLarge        Kind = "too_large"       // the request exceeds a limit of size or number
	KindUnavailable     Kind = "unavailable"     // try again later; the request had no known effect
	KindInternal        Kind = "internal"        // a defect of the product
)

// Error is the only structured error of the product. Message names the object and what happened
// to it. Hint names the next step. Message and Hint never contain a secret. Err is for logs and
// never part of a response.
type Error struct {
	Kind    Kind
	Code    Code
	Message string            // one sentence without a full stop
	Hint    string            // what to do next, in full sentences; may name actions; may be empty
	Args    Args              // of the actions that Hint names
	Details map[string]string // machine-readable facts about the refusal; may be nil
	Err     error             // cause, for logs; may be nil
}

// Error returns the message, followed by the cause.
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

// NotFound returns an error of KindNotFound for the named object. The code starts with the
// object's noun. The hint names the action that lists such objects, if one exists.
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
