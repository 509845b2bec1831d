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
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// codeStorage reports that the registry cannot store content. The codes of the
// specification do not fit, because clients retry after these codes.
const codeStorage = "INSUFFICIENT_STORAGE"

// RegistryOptions are the limits of a registry. A zero field has the default in its
// comment.
type RegistryOptions struct {
	MaxBlob      int64            // bytes of one blob; default: the largest artifact of the default Limits
	MaxUploads   int              // concurrent uploads; default 64
	MaxOfCaller  int              // concurrent uploads with one Authorization header; default 16, which is enough for two pushes of an app at the same time
	IdleUpload   time.Duration    // an upload that is unused for this long is dropped if a new upload needs its place; default 10 minutes
	MaxBytes     int64            // total size of one account's blobs and manifests; default 20 GiB
	MaxManifests int              // number of one account's manifests; each tag also counts as a manifest; default 50,000
	KeepFor      time.Duration    // unreferenced content is removed if it was neither pushed nor read for this long; default 24 hours
	Now          func() time.Time // default time.Now
	Log          *slog.Logger     // gets a line for each damaged file; default slog.Default()

	// Account returns the account that owns a repository. MaxBytes and MaxManifests apply to each account. By default,
	// one account owns all repositories.
	Account func(repository string) string
}

// maxPushed is the maximum size of a pushed manifest in bytes. A component's manifest has
// less than a thousand bytes.
const maxPushed = 64 << 10

// RegistryHandler returns an OCI registry that stores its content in dir, which it creates
// if needed. Only one process at a time may use a folder. The registry serves the part of
// the distribution API below "/v2/" that Push and Pull need: blobs, image manifests of one
// layer by digest, tags and uploads. No request can delete content or list repositories.
// Collect removes unreferenced content.
//
// In memory, the registry holds only the counts of accounts, the unfinished uploads and the
// list of verified blobs. It reads a manifest from its file for each request, and reads no
// manifest at the start. A push to an account with too many bytes or manifests gets 507. A
// new upload gets 429 if the caller, or all callers together, have too many uploads.
//
// The caller of RegistryHandler controls access: wrap the handler, and answer 401 with
// `WWW-Authenticate: Basic realm="…"`; Push and Pull then send their token as a bearer
// token. A client that knows a blob's digest can read it through every repository.
// Manifests are separate for each repository.
//
// Content that was answered with 201 is on disk and survives a crash. A blob appears under
// its digest only when it is complete, and a manifest only after its blobs. Content that is
// damaged on disk counts as missing, so the next push restores it. A blob is verified at
// its first request, and again if its file has changed since. If content cannot be stored,
// for example because the disk is full, the answer is 507. Clients do not retry after 507.
func RegistryHandler(dir string, options RegistryOptions) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open artifact registry: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open artifact registry: %w", err)
	}
	l := cmp.Or(options.Log, slog.Default())
	now := options.Now
	if now == nil {
		now = time.Now
	}
	h := &Registry{
		root:    root,
		log:     l,
		now:     now,
		keepFor: cmp.Or(options.KeepFor, 24*time.Hour),
	}
	h.blobs = &blobStore{root: root, log: l, touch: h.touch, hashing: make(chan struct{}, 2), whole: map[string]identity{}}
	h.accounts = newAccounts(root, options)
	if h.uploads, err = newUploads(root, h.blobs, h.accounts, now, options); err != nil {
		return nil, fmt.Errorf("open artifact registry %s: %w", dir, err)
	}
	// The library answers only reads of blobs. For uploads and manifests the library is not
	// used: it would hold them in memory, keep abandoned uploads forever, and make all
	// clients wait for the slowest client.
	h.library = registry.New(registry.WithBlobHandler(h.blobs), registry.Logger(log.New(io.Discard, "", 0)))
	return h, nil
}

// Registry is an OCI registry. Safe for concurrent use.
type Registry struct {
	blobs    *blobStore
	uploads  *uploads
	accounts *accounts
	library  http.Handler
	root     *os.Root
	log      *slog.Logger
	now      func() time.Time
	keepFor  time.Duration

	// files is locked while a manifest is stored and while content is removed. So a
	// manifest's blobs exist when the manifest becomes visible.
	files sync.Mutex
}

// repositoryPattern and tagPattern are from the distribution specification. They are
// compiled on first use, because a program that pushes does not need them.
var (
	repositoryPattern = pattern.New(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagPattern        = pattern.New(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
)

// maxRepository is the maximum length of a repository's name in bytes. Common clients limit
// the host and the repository's name together to 255 bytes.
const maxRepository = 255

// route has the parts of a request's path: "/v2/<repository>/<noun>/<name>".
type route struct {
	repository string
	noun, name string
}

// parseRoute splits the path from its end, because a repository's name may contain slashes.
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
	if r.noun == "" || len(r.repository) > maxRepository || !repositoryPattern.MatchString(r.repository) {
		return route{}, false
	}
	return r, true
}

// ServeHTTP implements http.Handler.
func (h *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	read := req.Method == http.MethodGet || req.Method == http.MethodHead
	if read && (req.URL.Path == "/v2/" || req.URL.Path == "/v2") {
		h.library.ServeHTTP(w, req)
		return
	}
	r, ok := parseRoute(req.URL.Path)
	if !ok {
		writeError(w, http.StatusNotFound, "NAME_INVALID", "this path does not exist")
		return
	}
	switch {
	case r.noun == "uploads":
		h.uploads.serve(w, req, r)
	case r.noun == "manifests" && read && isReference(r.name):
		h.getManifest(w, req, r)
	case r.noun == "blobs" && read && tree.IsDigest(r.name):
		h.library.ServeHTTP(w, req)
	case r.noun == "tags" && req.Method == http.MethodGet && r.name == "list":
		h.listTags(w, req, r)
	case r.noun == "manifests" && req.Method == http.MethodPut && isReference(r.name):
		h.putManifest(w, req, r)
	case !read:
		writeError(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry does not support "+req.Method+" here")
	default:
		writeError(w, http.StatusNotFound, "NAME_INVALID", "this path does not exist")
	}
}

func isReference(s string) bool {
	return tree.IsDigest(s) || tagPattern.MatchString(s)
}

// writeError writes an error in the distribution specification's format.
func writeError(w http.ResponseWriter, status int, code, message string) {
	body, err := json.Marshal(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
	if err != nil {
		panic(err) // strings always encode
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the client has disconnected
}
