package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// statusOf maps each kind of error to the one HTTP status it has.
var statusOf = map[fairlead.Kind]int{
	fairlead.KindInvalid:         http.StatusUnprocessableEntity,
	fairlead.KindNotFound:        http.StatusNotFound,
	fairlead.KindConflict:        http.StatusConflict,
	fairlead.KindLocked:          http.StatusLocked,
	fairlead.KindStale:           http.StatusConflict,
	fairlead.KindUnauthenticated: http.StatusUnauthorized,
	fairlead.KindForbidden:       http.StatusForbidden,
	fairlead.KindTooLarge:        http.StatusRequestEntityTooLarge,
	fairlead.KindUnavailable:     http.StatusServiceUnavailable,
	fairlead.KindInternal:        http.StatusInternalServerError,
}

// problem is a problem document to be sent.
type problem struct {
	wire.Problem
	headers http.Header // sent beside the headers of its status
}

// Error returns the detail. huma uses the methods Error, GetStatus, GetHeaders and
// ContentType to write the problem as the answer.
func (p *problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problems in place of the negotiated one.
func (p *problem) ContentType(string) string { return problemContent }

// GetHeaders returns the headers that go with the status.
func (p *problem) GetHeaders() http.Header {
	if p.Status == http.StatusUnauthorized {
		return challenge("Bearer")
	}
	return p.headers
}

// code returns the last segment of the type.
func (p *problem) code() fairlead.Code {
	return fairlead.Code(strings.TrimPrefix(p.Type, wire.ProblemType))
}

// MarshalJSON writes the document.
func (p *problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.Problem) }

// newProblem returns the problem that the caller gets for an error. An error without
// a kind is a fault of the control plane. The problem does not have the text of such
// an error: only the log has the text, with the request id.
func newProblem(err error, requestID string) *problem {
	e, ok := errors.AsType[*fairlead.Error](err)
	if !ok {
		e = &fairlead.Error{Kind: fairlead.KindInternal, Code: fairlead.CodeInternal,
			Message: "something went wrong in the control plane",
			Hint:    fmt.Sprintf("Its log has more under request %s.", requestID)}
	}
	status := statusOf[e.Kind]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	p := &problem{Problem: wire.Problem{Type: wire.ProblemType + string(e.Code), Title: http.StatusText(status), Status: status,
		Detail: e.Message, Hint: e.Hint, Actions: renderActions(e.Hint, e.Args), RequestID: requestID, Details: e.Details}}
	if inputs, ok := errors.AsType[appspec.InputProblems](err); ok {
		for _, in := range inputs {
			message := in.Message
			if in.Code == "unknown-param" { // the caller may not know the declared names
				message = strings.TrimSpace(message + ". " + in.Hint)
			}
			p.Errors = append(p.Errors, wire.FieldError{Location: in.Input, Message: message})
		}
	}
	if problems, ok := errors.AsType[runnerspec.Problems](err); ok {
		for _, in := range problems {
			where, _, _ := strings.Cut(in.String(), ": ")
			p.Errors = append(p.Errors, wire.FieldError{Location: clip(where), Message: clip(strings.TrimPrefix(in.String(), where+": "))})
		}
	}
	return p
}

// coded returns the problem of the catalogue with the code.
func coded(code fairlead.Code, detail, requestID string) *problem {
	status := statusOfCode(code)
	return &problem{Problem: wire.Problem{Type: wire.ProblemType + string(code), Title: http.StatusText(status), Status: status,
		Detail: detail, RequestID: requestID}}
}

// fromHuma turns huma's error about a malformed request into a problem. The
// problem does not repeat the refused values.
func fromHuma(m *huma.ErrorModel, requestID string) *problem {
	code := fairlead.CodeMalformedRequest
	switch {
	case m.Status >= 500:
		return newProblem(m, requestID)
	case m.Status == http.StatusUnprocessableEntity:
		code = fairlead.CodeInvalidRequest
	}
	p := coded(code, m.Detail, requestID)
	for _, d := range m.Errors {
		p.Errors = append(p.Errors, wire.FieldError{Location: clip(d.Location), Message: clip(d.Message)})
	}
	return p
}

// decode decodes a body. Its errors are for the person who sent it.
func decode(data []byte, v any) error { return fairlead.JSONError(json.Unmarshal(data, v)) }

// writeProblem writes a problem outside huma.
func writeProblem(w http.ResponseWriter, p *problem) {
	for name, values := range p.GetHeaders() {
		if w.Header().Get(name) == "" {
			w.Header()[name] = values
		}
	}
	w.Header().Set("Content-Type", problemContent)
	w.WriteHeader(p.Status)
	// The client may be gone; the error cannot be reported elsewhere.
	_ = json.NewEncoder(w).Encode(p)
}

// renderActions returns the actions that a text refers to.
func renderActions(text string, args fairlead.Args) []wire.Action {
	var out []wire.Action
	for _, a := range fairlead.Actions(text, args) {
		out = append(out, wire.Action{Verb: string(a.Verb), Args: wire.ActionArgs(a.Args)})
	}
	return out
}

// bytesOf returns a size as text.
func bytesOf(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
