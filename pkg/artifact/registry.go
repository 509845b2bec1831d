package artifact

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

// codeStorage says that the registry cannot store something. It is none of the
// specification's codes: those that would fit make clients try again.
const codeStorage = "INSUFFICIENT_STORAGE"

// RegistryOptions are the limits of a registry. A zero field stands for the
// default beside it.
type RegistryOptions struct {
	MaxBlob    int64            // bytes of one blob; default: the largest artifact of the default Limits
	MaxUploads int              // uploads under way at a time; default 64
	IdleUpload time.Duration    // an upload untouched for this long may be dropped for another; default 10 minutes
	Now        func() time.Time // default time.Now
	Log        *slog.Logger     // told of damaged files; default slog.Default()
}

// RegistryHandler returns an OCI registry that keeps its content in dir, which
// it makes if need be. One process may use a folder at a time. It serves what
// Push and Pull need of the distribution API below "/v2/", from the site's
// root: blobs and image manifests by digest, tags, uploads. Nothing can be
// deleted, and no list of repositories is given.
//
// Who may call is the caller's business: wrap the handler, and answer 401 with
// `WWW-Authenticate: Basic realm="…"`, after which Push and Pull send their
// token as a bearer token. A blob is readable through every repository by who
// knows its digest; manifests are apart.
//
// What was answered with 201 is on disk and survives a crash. A blob exists
// under its digest only when whole, a manifest only after its blobs, and what
// was damaged on disk meanwhile is not served but counted as absent, so that
// the next push heals it. What cannot be stored, on a full disk for instance, is
// answered with 507, which clients do not try again.
func RegistryHandler(dir string, options RegistryOptions) (http.Handler, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open artifact registry: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open artifact registry: %w", err)
	}
	l := cmp.Or(options.Log, slog.Default())
	blobs := &blobStore{root: root, log: l}
	uploads, err := newUploads(root, blobs, options)
	if err != nil {
		return nil, fmt.Errorf("open artifact registry %s: %w", dir, err)
	}
	h := &registryHandler{
		blobs:   blobs,
		uploads: uploads,
		// The library answers reads and keeps manifests, in memory. Uploads are
		// not left to it: it holds them in memory too, forever if they are
		// abandoned, and makes all wait for the slowest.
		library: registry.New(registry.WithBlobHandler(blobs), registry.Logger(log.New(io.Discard, "", 0))),
		root:    root,
		log:     l,
		needs:   map[route][]v1.Descriptor{},
	}
	if err := h.replay(); err != nil {
		return nil, fmt.Errorf("open artifact registry %s: %w", dir, err)
	}
	return h, nil
}

type registryHandler struct {
	blobs   *blobStore
	uploads *uploads
	library http.Handler
	root    *os.Root
	log     *slog.Logger

	puts sync.Mutex // held while a manifest is stored

	mu sync.RWMutex
	// needs holds what each manifest needs, by repository and reference.
	needs map[route][]v1.Descriptor
}

// repositoryPattern and tagPattern are the distribution specification's. They
// are made when first needed: a program that pushes has no use for them.
var (
	repositoryPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	tagPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	})
)

// maxRepository is the longest name of a repository, in bytes: what common
// clients take, with the host.
const maxRepository = 255

// route is a request's path, taken apart: "/v2/<repository>/<noun>/<name>".
type route struct {
	repository string
	noun, name string
}

// parseRoute takes the path apart from its end, for a repository's name may
// hold slashes.
func parseRoute(path string) (route, bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return route{}, false
	}
	r := route{}
	if repo, ok := strings.CutSuffix(rest, "/blobs/uploads/"); ok {
		r = route{repository: repo, noun: "uploads"}
	} else if repo, ok := strings.CutSuffix(rest, "/blobs/uploads"); ok {
		r = route{repository: repo, noun: "uploads"}
	} else {
		i := strings.LastIndexByte(rest, '/')
		if i < 0 {
			return route{}, false
		}
		r.name = rest[i+1:]
		for _, noun := range []string{"blobs/uploads", "blobs", "manifests", "tags"} {
			if repo, ok := strings.CutSuffix(rest[:i], "/"+noun); ok {
				r.repository, r.noun = repo, strings.TrimPrefix(noun, "blobs/")
				break
			}
		}
	}
	if r.noun == "" || len(r.repository) > maxRepository || !repositoryPattern().MatchString(r.repository) {
		return route{}, false
	}
	return r, true
}

func (h *registryHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	read := req.Method == http.MethodGet || req.Method == http.MethodHead
	if read && (req.URL.Path == "/v2/" || req.URL.Path == "/v2") {
		h.library.ServeHTTP(w, req)
		return
	}
	r, ok := parseRoute(req.URL.Path)
	if !ok {
		writeError(w, http.StatusNotFound, "NAME_INVALID", "there is nothing at this path")
		return
	}
	switch {
	case r.noun == "uploads":
		h.uploads.serve(w, req, r)
	case r.noun == "manifests" && read && isReference(r.name):
		h.getManifest(w, req, r)
	case r.noun == "blobs" && read && tree.IsDigest(r.name),
		r.noun == "tags" && req.Method == http.MethodGet && r.name == "list":
		h.library.ServeHTTP(w, req)
	case r.noun == "manifests" && req.Method == http.MethodPut && isReference(r.name):
		h.putManifest(w, req, r)
	case !read:
		writeError(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry does not support "+req.Method+" here")
	default:
		writeError(w, http.StatusNotFound, "NAME_INVALID", "there is nothing at this path")
	}
}

func isReference(s string) bool {
	return tree.IsDigest(s) || tagPattern().MatchString(s)
}

// writeError answers in the form of the distribution specification.
func writeError(w http.ResponseWriter, status int, code, message string) {
	body, err := json.Marshal(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
	if err != nil {
		panic(err) // strings always encode
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone: nobody is left to tell
}
