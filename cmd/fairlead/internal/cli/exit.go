package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/commandline"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The exit codes. They are part of the CLI's interface: `fairlead help
// exit-codes` documents them from the table below.
const (
	exitOK          = 0
	exitUnexpected  = 1
	exitInvalid     = 2
	exitFailed      = 3
	exitWaiting     = 4
	exitNotFound    = 5
	exitConflict    = 6
	exitForbidden   = 7
	exitUnreachable = 8
	exitInterrupted = 130 // 128 + SIGINT, as shells report it
)

type exitCode struct {
	code    int
	meaning string
}

func exitCodes() []exitCode {
	return []exitCode{
		{exitOK, "success"},
		{exitUnexpected, "something unexpected: a fault of Fairlead or of this machine; a check of plugin test failed"},
		{exitInvalid, "wrong usage, or invalid input such as an app that does not validate"},
		{exitFailed, "the deployment or the job failed or was canceled; ops replay left dead letters; audit verify found that something was altered"},
		{exitWaiting, "the deployment waits for approval, or is queued behind a deployment that waits"},
		{exitNotFound, "no such object"},
		{exitConflict, "the object is locked, or its state does not allow the command; with --no-queue: another deployment has not ended"},
		{exitForbidden, "not logged in, or not allowed"},
		{exitUnreachable, "the control plane does not answer, or asks to try again later"},
		{exitInterrupted, "the command was interrupted; work that it started continues"},
	}
}

// failure is an error with its own exit code. Problem.Detail is empty if the printed
// result already explains the failure.
type failure struct {
	code    int
	problem wire.Problem
}

func (f *failure) Error() string { return f.problem.Detail }

// usage returns an error about wrong arguments or wrong input.
func usage(hint, format string, args ...any) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// classify returns the printed form of an error and the exit code.
func classify(err error) (view.Failure, int) {
	if f, ok := errors.AsType[*failure](err); ok {
		return view.Failure{Problem: f.problem, NoError: f.code == exitWaiting || f.code == exitInterrupted}, f.code
	}
	if errors.Is(err, context.Canceled) {
		return view.Failure{Problem: local("interrupted", "Interrupted", "the command was stopped", ""), NoError: true}, exitInterrupted
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return classifyAnswer(e)
	}
	if e, ok := errors.AsType[*client.UnreachableError](err); ok {
		return view.Failure{Problem: local("unreachable", "Control plane unreachable", e.Error(),
			"Check that it is running (`fairlead dev` starts one) and that the URL is right. `fairlead help environment` explains where the URL comes from.")}, exitUnreachable
	}
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		p := local(string(e.Code), title(e.Kind), err.Error(), commandline.Hint(e)) // with the cause, because the error happened on this machine
		if inputs, ok := errors.AsType[appspec.InputProblems](err); ok {
			p.Detail = e.Message
			for _, in := range inputs {
				p.Errors = append(p.Errors, wire.FieldError{Location: in.Input, Message: strings.TrimPrefix(strings.TrimSpace(in.Message+". "+in.Hint), fmt.Sprintf("input %q ", in.Input))})
			}
		}
		return view.Failure{Problem: p}, exitOfKind(e.Kind)
	}
	return view.Failure{Problem: local("unexpected", "Unexpected error", err.Error(), "")}, exitUnexpected
}

func local(code, title, detail, hint string) wire.Problem {
	return wire.Problem{Type: wire.ProblemType + code, Title: title, Detail: detail, Hint: hint}
}

// classifyAnswer classifies an error response of a server, which may not be a control
// plane.
func classifyAnswer(e *client.Error) (view.Failure, int) {
	p := e.Problem
	p.Hint = view.Hint(p.Hint, p.Actions)
	code := exitUnexpected
	switch s := p.Status; {
	case p.Type == "" && s != http.StatusUnauthorized && s != http.StatusForbidden:
		code = exitUnreachable // a gateway, or a server that is not a control plane
	case s == http.StatusUnauthorized:
		code = exitForbidden
		if p.Hint == "" {
			p.Hint = "Log in with `fairlead login URL --token-file FILE`."
		}
	case s == http.StatusForbidden:
		code = exitForbidden
	case s == http.StatusNotFound:
		code = exitNotFound
	case s == http.StatusConflict, s == http.StatusPreconditionFailed, s == http.StatusLocked:
		code = exitConflict
	case s == http.StatusTooManyRequests, s == http.StatusBadGateway, s == http.StatusServiceUnavailable, s == http.StatusGatewayTimeout:
		code = exitUnreachable
	case s >= 400 && s < 500:
		code = exitInvalid
	}
	return view.Failure{Problem: p}, code
}

func exitOfKind(k fairlead.Kind) int {
	switch k {
	case fairlead.KindInvalid, fairlead.KindTooLarge:
		return exitInvalid
	case fairlead.KindNotFound:
		return exitNotFound
	case fairlead.KindConflict, fairlead.KindLocked, fairlead.KindStale:
		return exitConflict
	case fairlead.KindUnauthenticated, fairlead.KindForbidden:
		return exitForbidden
	case fairlead.KindUnavailable:
		return exitUnreachable
	}
	return exitUnexpected
}

func title(k fairlead.Kind) string {
	text := strings.ReplaceAll(string(k), "_", " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func isNotLoggedIn(err error) bool { return fairlead.CodeOf(err) == fairlead.CodeNotLoggedIn }
