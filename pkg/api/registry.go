package api

import (
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// RegistryGuard lets those into an artifact registry who may: people with an
// API token push and pull, a step with a lease pulls what its job is about.
func RegistryGuard(o Options, registry http.Handler) http.Handler {
	s := &server{Options: o}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			_, token, _ = r.BasicAuth()
		}
		if err := s.mayUse(r, token); err != nil {
			p := newProblem(err, s.IDs(fairlead.PrefixRequest))
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Basic realm="fairlead"`)
			}
			writeProblem(w, p)
			return
		}
		registry.ServeHTTP(w, r)
	})
}

func (s *server) mayUse(r *http.Request, token string) error {
	ctx := r.Context()
	if strings.HasPrefix(token, string(identity.Lease)+"_") {
		h, err := s.Control.AuthenticateJob(token, identity.Lease, "")
		if err != nil {
			return err
		}
		repository, err := s.Control.PullRepository(ctx, h)
		if err != nil {
			return err
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if r.URL.Path == "/v2/" || reads && strings.HasPrefix(r.URL.Path, "/v2/"+repository+"/") {
			return nil
		}
		return &fairlead.Error{Kind: fairlead.KindForbidden, Code: "other-artifact",
			Message: "job " + string(h.Job) + " may pull from " + repository + " and nothing else"}
	}
	_, err := s.Control.AuthenticateUser(ctx, token)
	return err
}
