package api

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// RegistryGuard returns a handler that authorizes requests to a registry of artifacts and of images:
// people with an API token push and pull the artifacts of their org and pull its images, a step with
// a lease token pulls the artifact of its job, and the tool of a job keeps the images of its component.
// The token is a bearer token, or the password of basic authentication, because
// registry clients support basic authentication.
func RegistryGuard(o Options, registry http.Handler) http.Handler {
	s := &server{Options: o}
	return s.frame(func(w http.ResponseWriter, r *http.Request) {
		token := bearer(r.Header.Get("Authorization"))
		if token == "" {
			_, token, _ = r.BasicAuth()
		}
		if err := s.mayUse(r, token); err != nil {
			p := s.fail(r.Context(), "registry", err)
			if p.Status == http.StatusUnauthorized {
				w.Header()["Www-Authenticate"] = challenge("Basic")["Www-Authenticate"]
			}
			writeProblem(w, p)
			return
		}
		leave, refusal := s.enter(r.Context(), asker{token: token}, false)
		if refusal != nil {
			writeProblem(w, refusal)
			return
		}
		defer leave()
		takeLong(r)
		registry.ServeHTTP(w, r)
	})
}

func (s *server) mayUse(r *http.Request, token string) error {
	if strings.HasPrefix(token, string(identity.Lease)+"_") {
		return s.mayPull(r.Context(), r, token)
	}
	if strings.HasPrefix(token, string(identity.State)+"_") {
		return s.mayKeepImages(r, token)
	}
	by, err := s.user(r.Context(), token)
	if err != nil || asksForRegistry(r) {
		return err
	}
	if reads(r) && isBelow(r, control.ImageRepositories(by.Org)) {
		return mayUse(by, access.View, access.OrgObject(by.Org)) // the name of an image has no app or group
	}
	if isBelow(r, control.ImageRepositories(by.Org)) {
		return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherArtifact, Message: "only jobs may push images: a build that of its component, and an apply the copy for its install",
			Hint: "{app.publish} queues the build."}
	}
	if isBelow(r, control.Repositories(by.Org)) {
		if !reads(r) && control.InBuilt(strings.TrimPrefix(r.URL.Path, "/v2/")) {
			return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherArtifact, Message: "only a build may push the artifact of a component that is built",
				Hint: "{app.publish} queues the build."}
		}
		a := access.View
		if !reads(r) {
			a = access.EditApp
		}
		app, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"+control.Repositories(by.Org)), "/")
		return mayUse(by, a, access.AppObject(by.Org, app))
	}
	return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherArtifact, Message: "the artifacts there belong to another org",
		Hint: "{app.publish} pushes to the repositories of your org."}
}

// mayUse returns an error if the caller lacks the right on the object of a repository.
func mayUse(who access.Principal, a access.Right, o access.Object) error {
	if who.May(a, o) {
		return nil
	}
	return access.Refused(who, a, o)
}

// asksForRegistry reports whether a client only checks that a registry answers.
func asksForRegistry(r *http.Request) bool { return r.URL.Path == "/v2/" }

// isBelow reports whether a request is about a repository whose name begins with
// repositories. The registry uses the decoded path, so the check for ".." is on the
// decoded path too.
func isBelow(r *http.Request, repositories string) bool {
	return strings.HasPrefix(r.URL.Path, "/v2/"+repositories) && path.Clean(r.URL.Path) == strings.TrimSuffix(r.URL.Path, "/")
}

// mayPull returns an error if a step may not make this request to the registry. A
// step may check that the registry answers, and read the repository of its job. The step
// of a build may also write to it.
func (s *server) mayPull(ctx context.Context, r *http.Request, token string) error {
	h, err := s.Control.AuthenticateJob(token, "", identity.Lease)
	if err != nil {
		return err
	}
	may, err := s.Control.JobRepositories(ctx, h)
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
		return err
	}
	if err == nil && permits(may, r) {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherArtifact,
		Message: "job " + string(h.Job) + " may pull the source of its own component and nothing else"}
}

// permits reports whether a job with these repositories may make the request.
func permits(may control.JobRepositories, r *http.Request) bool {
	if may.Write != "" && isBelow(r, may.Write+"/") {
		return true
	}
	if !reads(r) {
		return false
	}
	return asksForRegistry(r) && len(may.Read)+len(may.Write) > 0 || slices.ContainsFunc(may.Read, func(repository string) bool { return isBelow(r, repository+"/") })
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// mayKeepImages returns an error if the tool of a job may not make this request to the registry. A tool may read the images
// of its component. If its job applies or destroys, it may change them.
func (s *server) mayKeepImages(r *http.Request, token string) error {
	h, err := s.Control.AuthenticateJob(token, "", identity.State)
	if err != nil {
		return err
	}
	may, err := s.Control.ImageRepositories(r.Context(), h)
	if err != nil && fairlead.KindOf(err) != fairlead.KindNotFound {
		return err
	}
	if err == nil && permits(may, r) {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeOtherArtifact,
		Message: "job " + string(h.Job) + " may use the images of its own component, read those of its app's lock, and nothing else, and only an apply or a destroy may change them"}
}
