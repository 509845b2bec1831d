package api

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// stateRoutes serves the protocol of Terraform's http backend. Terraform defines it:
// it uses basic authentication, the state is the whole body, a lock's ID is a query
// parameter, and a refused lock is answered with the holder's lock info. huma does not
// support this, so these handlers do not use huma. The OpenAPI document lists the
// routes nevertheless.
func (s *server) stateRoutes() {
	s.stateRoute(wire.GetState, "Get the current state; 204 when there is none", nil, 0, s.getState)
	s.stateRoute(wire.PutState, "Store a new state; the lock must be held", slices.Concat(writesState, codes{fairlead.CodeStateTooLarge, fairlead.CodeStateDigestMismatch, fairlead.CodeBodyNotStaged}), control.MaxState, s.putState)
	s.stateRoute(wire.DeleteState, "Remove the state; the lock must be held", writesState, 0, s.deleteState)
	s.stateRoute(wire.LockState, "Take the lock; 423 with the holder's lock info when it is taken", codes{fairlead.CodeStateLocked, fairlead.CodeInvalidLock}, maxLockInfo, s.lockState)
	s.stateRoute(wire.UnlockStateJob, "Release the lock", codes{fairlead.CodeStateLocked, fairlead.CodeInvalidLock}, maxLockInfo, s.unlockState)
}

// maxLockInfo is the largest lock info, in bytes; Terraform sends a few hundred.
const maxLockInfo = 8 << 10

// lockTimeout is the time limit for receiving a lock info.
const lockTimeout = 15 * time.Second

type stateHandler func(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error

// stateRoute serves a route of the protocol. body is the largest body in bytes; 0:
// the route has no body.
func (s *server) stateRoute(route wire.Route, summary string, problems codes, body int64, fn stateHandler) {
	s.routes = append(s.routes, func(a huma.API) { documentState(a, route, summary, problems, body) })
	handle := func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		_, password, _ := r.BasicAuth()
		h, err := s.Control.AuthenticateJob(password, "", identity.State, identity.Lease)
		if err == nil {
			leave, refusal := s.enter(ctx, asker{token: password}, false)
			if refusal != nil {
				writeProblem(w, refusal)
				return
			}
			defer leave()
			err = fn(ctx, w, r, h, r.PathValue("install"), r.PathValue("component"))
		}
		if err == nil {
			return
		}
		if l, ok := errors.AsType[*control.LockedError](err); ok {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(l.Info) // the tool may be gone
			return
		}
		p, ok := errors.AsType[*problem](err)
		if !ok {
			p = s.fail(ctx, route.ID, err)
		}
		if p.Status == http.StatusUnauthorized {
			w.Header()["Www-Authenticate"] = challenge("Basic")["Www-Authenticate"]
		}
		writeProblem(w, p)
	}
	if slices.Contains(largeAnswers, route.ID) {
		handle = s.inParts(handle)
	}
	s.mux.HandleFunc(route.Method+" "+route.Path, handle)
}

func documentState(a huma.API, route wire.Route, summary string, problems codes, body int64) {
	all := slices.Concat(everyRoute, ofACaller, ofAState, problems, codes{fairlead.CodeMalformedRequest, fairlead.CodeUnauthenticated})
	if body > 0 {
		all = append(all, fairlead.CodeBodyTooLarge, fairlead.CodeRequestTimeout)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	op := &huma.Operation{Extensions: map[string]any{codesExtension: all},
		OperationID: route.ID, Method: route.Method, Path: route.Path,
		Summary: summary, Tags: []string{"State"}, Security: []map[string][]string{{stateLease.name: {}}},
		Parameters: []*huma.Param{
			{Name: "install", In: "path", Required: true, Description: "Identifier of the install", Schema: formOf("identifier").schema()},
			{Name: "component", In: "path", Required: true, Description: "Name of the component", Schema: formOf("name").schema()},
		},
		Responses: responsesOf(a, all)}
	anyJSON := map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{}}}
	ok := &huma.Response{Description: "Done"}
	switch route.ID {
	case wire.GetState.ID:
		ok.Description, ok.Content = "The state", anyJSON
		op.Responses["204"] = &huma.Response{Description: "There is no state yet"}
	case wire.PutState.ID:
		op.Parameters = append(op.Parameters, &huma.Param{Name: "ID", In: "query", Description: "ID of the lock", Schema: formOf("text").schema()},
			&huma.Param{Name: "Content-MD5", In: "header", Description: "MD5 of the body in base64; checked when it is there", Schema: &huma.Schema{Type: huma.TypeString}})
	}
	if body > 0 {
		op.RequestBody = &huma.RequestBody{Content: anyJSON, Description: "As the tool writes it", Required: route.ID != wire.UnlockStateJob.ID}
	}
	if op.Responses["423"] != nil {
		op.Responses["423"] = &huma.Response{Description: "Another job holds the lock: its lock info, as its tool wrote it", Content: anyJSON}
	}
	op.Responses["200"] = ok
	describeHeaders(ok)
	a.OpenAPI().AddOperation(op)
}

// readBody reads the whole body; its error is a *problem.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration) ([]byte, error) {
	data, p := readWhole(r.Body, http.NewResponseController(w).SetReadDeadline, limit, timeout, requestID(r.Context()))
	if p != nil {
		return nil, p
	}
	return data, nil
}

func (s *server) getState(ctx context.Context, w http.ResponseWriter, _ *http.Request, h control.Holder, install, component string) error {
	data, err := s.Control.GetState(ctx, h, install, component)
	if err != nil {
		return err
	}
	if data == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the tool may be gone
	return nil
}

func (s *server) putState(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error {
	data, done, staged, err := s.staged(ctx, control.Stager{Attempt: h}, r.Header.Get, control.MaxState)
	if err == nil && !staged {
		data, err = readBody(w, r, control.MaxState, 2*time.Minute)
	}
	if err != nil {
		return err
	}
	if want := r.Header.Get("Content-MD5"); want != "" {
		sum := md5.Sum(data) // detects transfer errors; not meant as a protection against attackers
		if base64.StdEncoding.EncodeToString(sum[:]) != want {
			return coded(fairlead.CodeStateDigestMismatch, "the state was damaged on the way", requestID(ctx))
		}
	}
	if len(data) == 0 {
		return coded(fairlead.CodeMalformedRequest, "a state is not empty", requestID(ctx))
	}
	if err := s.Control.PutState(ctx, h, install, component, r.URL.Query().Get("ID"), data); err != nil {
		return err
	}
	done()
	return nil
}

func (s *server) deleteState(ctx context.Context, _ http.ResponseWriter, _ *http.Request, h control.Holder, install, component string) error {
	return s.Control.DeleteState(ctx, h, install, component)
}

func (s *server) lockState(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error {
	info, err := readBody(w, r, maxLockInfo, lockTimeout)
	if err != nil {
		return err
	}
	if !json.Valid(info) { // a job that does not get the lock gets this info as its answer
		return coded(fairlead.CodeInvalidLock, "the lock info is not JSON", requestID(ctx))
	}
	return s.Control.LockState(ctx, h, install, component, control.LockID(info), info)
}

func (s *server) unlockState(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error {
	info, err := readBody(w, r, maxLockInfo, lockTimeout)
	if err != nil {
		return err
	}
	if len(info) > 0 && !json.Valid(info) {
		return coded(fairlead.CodeInvalidLock, "the lock info is not JSON", requestID(ctx))
	}
	return s.Control.UnlockState(ctx, h, install, component, control.LockID(info))
}
