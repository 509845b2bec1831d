package local

import (
	"net/http"
	"path/filepath"
	"strings"

	"github.com/olareg/olareg"
	"github.com/olareg/olareg/config"

	"github.com/fairlead/fairlead/pkg/control"
)

// maxImageBody is the largest body of a request to the registry of images, in bytes. A layer has seldom more than a few GiB.
const maxImageBody = 16 << 30

// images returns the registry for the images of installs. It stores each repository in a folder of its own below the data
// folder, so orgs share no content. The registry of artifacts does not serve: it has no indexes, referrers and deletions.
func (s *Server) images() http.Handler {
	yes := true
	r := olareg.New(config.Config{
		Storage: config.ConfigStorage{StoreType: config.StoreDir, RootDir: filepath.Join(s.opts.Data, "images")},
		API:     config.ConfigAPI{DeleteEnabled: &yes},
		Log:     s.opts.Logger,
	})
	s.closers = append(s.closers, func() error {
		if err := r.Close(); err != nil { // it fails for a repository that was only asked for; what was stored is on disk before the answer
			s.opts.Logger.Debug("the registry of images did not collect garbage at its end", "error", err)
		}
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Body = http.MaxBytesReader(w, req.Body, maxImageBody)
		if q := req.URL.Query(); q.Has("from") || q.Has("mount") { // a mount would read a layer of another repository
			q.Del("from")
			q.Del("mount")
			of := *req.URL
			of.RawQuery, req = q.Encode(), req.Clone(req.Context())
			req.URL = &of
		}
		r.ServeHTTP(w, req)
	})
}

// imagesBelow passes the requests for repositories of images to images, and all others to artifacts.
func imagesBelow(images, artifacts http.Handler) http.Handler {
	prefix := "/v2/" + strings.TrimSuffix(control.ImageRepositories(""), "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, prefix) {
			images.ServeHTTP(w, r)
			return
		}
		artifacts.ServeHTTP(w, r)
	})
}
