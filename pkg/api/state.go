package api

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// stateRoutes serves the protocol of Terraform's http backend, which is not
// ours to shape: basic authentication, state as the whole body, a lock's ID as
// a query parameter, and a refused lock answered with the holder's lock info.
// So these handlers stand beside huma; the OpenAPI document lists them.
func (s *server) stateRoutes() {
	s.stateRoute(wire.GetState, "Get the current state; 204 when there is none", s.getState)
	s.stateRoute(wire.PutState, "Store a new state; the lock must be held", s.putState)
	s.stateRoute(wire.DeleteState, "Remove the state; the lock must be held", s.deleteState)
	s.stateRoute(wire.LockState, "Take the lock; 423 with the holder's lock info when it is taken", s.lockState)
	s.stateRoute(wire.UnlockStateJob, "Give the lock back", s.unlockState)
}

type stateHandler func(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error

func (s *server) stateRoute(route wire.Route, summary string, fn stateHandler) {
	s.api.OpenAPI().AddOperation(&huma.Operation{OperationID: route.ID, Method: route.Method, Path: route.Path,
		Summary: summary, Tags: []string{"State"}, Security: []map[string][]string{{"basic": {}}},
		Parameters: []*huma.Param{
			{Name: "install", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
			{Name: "component", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		},
		Responses: map[string]*huma.Response{"200": {Description: "Done"}, "423": {Description: "Locked; the body is the holder's lock info"}}})
	s.mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		_, password, _ := r.BasicAuth()
		h, err := s.Control.AuthenticateJob(password, identity.Lease, "")
		if err == nil {
			err = fn(ctx, w, r, h, r.PathValue("install"), r.PathValue("component"))
		}
		if err == nil {
			return
		}
		if l, ok := errors.AsType[*control.LockedError](err); ok {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(l.Lock.Info) // the tool may be gone
			return
		}
		p := s.fail(ctx, route.ID, err).(*problem)
		if p.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="fairlead"`)
		}
		writeProblem(w, p)
	})
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &fairlead.Error{Kind: fairlead.KindTooLarge, Code: "body-too-large", Message: "the body is too large"}
	}
	if err != nil {
		return nil, fairlead.Invalid("malformed-request", "the body could not be read")
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
	data, err := readBody(w, r, control.MaxState)
	if err != nil {
		return err
	}
	return s.Control.PutState(ctx, h, install, component, r.URL.Query().Get("ID"), data)
}

func (s *server) deleteState(ctx context.Context, _ http.ResponseWriter, _ *http.Request, h control.Holder, install, component string) error {
	return s.Control.DeleteState(ctx, h, install, component)
}

func (s *server) lockState(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error {
	info, err := readBody(w, r, 8<<10)
	if err != nil {
		return err
	}
	return s.Control.LockState(ctx, h, install, component, control.LockID(info), info)
}

func (s *server) unlockState(ctx context.Context, w http.ResponseWriter, r *http.Request, h control.Holder, install, component string) error {
	info, err := readBody(w, r, 8<<10)
	if err != nil {
		return err
	}
	return s.Control.UnlockState(ctx, h, install, component, control.LockID(info))
}
