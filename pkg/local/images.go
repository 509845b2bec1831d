package local

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
)

// The limits of the registry of images.
const (
	maxImageBody   = 16 << 30    // bytes of the body of one request; a layer has seldom more than a few GiB
	maxImages      = 50 << 30    // default of Options.MaxImages
	countImagesFor = time.Minute // how long a count of an org's bytes is used
)

// images returns the registry for the images of installs. It stores each repository in a folder of its own below the data
// folder, so orgs share no content. The registry of artifacts does not serve: it has no indexes, referrers and deletions.
//
// An image that a build has made has no tag, so the registry must keep what has none: collectImages deletes such an image when
// no version names it.
func (s *Server) images() http.Handler {
	root := filepath.Join(s.opts.Data, "images")
	r := &registryProcess{program: s.opts.RegistryProgram, folder: root, log: s.opts.Logger}
	s.registry = r
	s.closers = append(s.closers, r.Close)
	s.builtImages = &builtImages{root: root, registry: r, keepFor: keepImagesFor, now: time.Now}
	space := &imageSpace{root: root, most: cmp.Or(s.opts.MaxImages, maxImages), now: time.Now, used: map[string]counted{}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		left, err := space.take(req)
		if err != nil {
			s.opts.Logger.Error("the images of an org cannot be counted", "error", err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if left <= 0 {
			w.WriteHeader(http.StatusInsufficientStorage)
			return
		}
		req.Body = http.MaxBytesReader(w, req.Body, min(maxImageBody, left))
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

// imageSpace bounds the images of each org. Safe for concurrent use.
type imageSpace struct {
	root string
	most int64 // bytes of an org
	now  func() time.Time

	mu   sync.Mutex
	used map[string]counted // by org
}

// counted is the size of an org's images at a time, and what was announced since.
type counted struct {
	bytes int64
	at    time.Time
}

// take returns the bytes that the body of the request may have, and counts it. It returns 0 if the body does not fit. A request that stores
// nothing may always be made. A client that announces no size is counted when the files are.
func (s *imageSpace) take(req *http.Request) (left int64, err error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodDelete {
		return s.most, nil
	}
	org, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, imagesPrefix()), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.used[org]
	if c.at.IsZero() || s.now().Sub(c.at) >= countImagesFor {
		if c.bytes, err = size(filepath.Join(s.root, "images", org)); err != nil {
			return 0, err
		}
		c.at = s.now()
	}
	left = s.most - c.bytes
	if req.ContentLength > left {
		left = 0
	} else {
		c.bytes += max(0, req.ContentLength)
	}
	s.used[org] = c
	return left, nil
}

// size returns the bytes of the files below a folder. Files that go while they are counted do not count.
func size(folder string) (int64, error) {
	var n int64
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}

// imagesPrefix returns the begin of the paths of repositories of images; the org follows.
func imagesPrefix() string { return "/v2/" + strings.TrimSuffix(control.ImageRepositories(""), "/") }

// imagesBelow passes the requests for repositories of images to images, and all others to artifacts.
func imagesBelow(images, artifacts http.Handler) http.Handler {
	prefix := imagesPrefix()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, prefix) {
			images.ServeHTTP(w, r)
			return
		}
		artifacts.ServeHTTP(w, r)
	})
}
