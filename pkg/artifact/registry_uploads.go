package artifact

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

// uploadsDir has unfinished uploads. The registry empties it at its start.
const uploadsDir = "uploads"

func createTemp(root *os.Root) (*os.File, string, error) {
	name := path.Join(uploadsDir, rand.Text())
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return f, name, err
}

// uploads writes the blobs of uploads to files. Safe for concurrent use.
type uploads struct {
	root    *os.Root
	blobs   *blobStore
	log     *slog.Logger
	now     func() time.Time
	maxBlob int64
	most    int // maximum number of concurrent uploads of all callers together
	ofOne   int // maximum number of concurrent uploads of one caller
	idle    time.Duration

	accounts *accounts

	mu       sync.Mutex
	sessions map[string]*session
}

// session is one upload between its POST and its PUT.
type session struct {
	repository string
	caller     string
	name       string // name of the session's file
	touched    time.Time
	// busy is true while a request uses the file. That request owns size and file.
	busy bool
	size int64
	file *os.File
}

func newUploads(root *os.Root, blobs *blobStore, of *accounts, now func() time.Time, o RegistryOptions) (*uploads, error) {
	if err := root.RemoveAll(uploadsDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := root.Mkdir(uploadsDir, 0o700); err != nil {
		return nil, err
	}
	return &uploads{
		root: root, blobs: blobs, now: now, log: blobs.log, accounts: of,
		ofOne:    cmp.Or(o.MaxOfCaller, 16),
		maxBlob:  cmp.Or(o.MaxBlob, Limits{}.WithDefaults().TarBytes()),
		most:     cmp.Or(o.MaxUploads, 64),
		idle:     cmp.Or(o.IdleUpload, 10*time.Minute),
		sessions: map[string]*session{},
	}, nil
}

func (u *uploads) serve(w http.ResponseWriter, req *http.Request, r route) {
	if r.name == "" {
		if req.Method != http.MethodPost {
			writeError(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "an upload must start with POST")
			return
		}
		u.begin(w, req, r)
		return
	}
	s, status := u.take(r)
	if status != 0 {
		writeError(w, status, "BLOB_UPLOAD_UNKNOWN", "the upload does not exist, or another request uses it")
		return
	}
	switch req.Method {
	case http.MethodPatch:
		defer u.release(s)
		if u.receive(w, req, s) {
			writeProgress(w, r, s, http.StatusAccepted)
		}
	case http.MethodGet:
		defer u.release(s)
		writeProgress(w, r, s, http.StatusNoContent)
	case http.MethodPut:
		u.finish(w, req, r, s)
	case http.MethodDelete:
		u.drop(r.name, s)
		w.WriteHeader(http.StatusNoContent)
	default:
		u.release(s)
		writeError(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "an upload supports GET, PATCH, PUT and DELETE")
	}
}

// begin opens a session. A request with a digest is a complete upload in one request.
func (u *uploads) begin(w http.ResponseWriter, req *http.Request, r route) {
	id, s, err := u.open(r, callerOf(req))
	switch {
	case err != nil:
		u.log.Error("an artifact's upload cannot be stored", "repository", r.repository, "err", err)
		writeError(w, http.StatusInsufficientStorage, codeStorage, "the upload cannot be stored")
		return
	case s == nil:
		writeError(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", "too many uploads are in progress")
		return
	}
	r.name = id
	if req.URL.Query().Has("digest") {
		u.finish(w, req, r, s)
		u.abandon(id, s)
		return
	}
	defer u.release(s)
	writeProgress(w, r, s, http.StatusAccepted)
}

// callerOf identifies a caller by its credentials, or by its address if it has none.
func callerOf(req *http.Request) string {
	if given := req.Header.Get("Authorization"); given != "" {
		return hashed(given)
	}
	host, _, err := net.SplitHostPort(req.RemoteAddr)
	if err != nil {
		return req.RemoteAddr
	}
	return host
}

// mayStore reports whether err is nil. If it returns false, it has already answered the
// request with the error.
func (u *uploads) mayStore(w http.ResponseWriter, r route, err error) bool {
	if err == nil {
		return true
	}
	full, ok := errors.AsType[*fullError](err)
	if ok {
		writeError(w, http.StatusInsufficientStorage, codeStorage, full.Error())
		return false
	}
	u.log.Error("an artifact's upload cannot be stored", "repository", r.repository, "err", err)
	writeError(w, http.StatusInsufficientStorage, codeStorage, "the upload cannot be stored")
	return false
}

// of returns the number of a caller's sessions. The lock must be held.
func (u *uploads) of(caller string) (n int) {
	for _, s := range u.sessions {
		if s.caller == caller {
			n++
		}
	}
	return n
}

// expire drops the sessions that were idle for too long.
func (u *uploads) expire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.evict()
}

// open returns a new, busy session and its id. The session is nil if this caller, or all
// callers together, have too many sessions.
func (u *uploads) open(r route, caller string) (string, *session, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	full := func() bool { return len(u.sessions) >= u.most || u.of(caller) >= u.ofOne }
	if full() {
		u.evict()
	}
	if full() {
		return "", nil, nil
	}
	f, name, err := createTemp(u.root)
	if err != nil {
		return "", nil, err
	}
	s := &session{repository: r.repository, caller: caller, name: name, file: f, busy: true, touched: u.now()}
	id := path.Base(name)
	u.sessions[id] = s
	return id, s, nil
}

// evict drops the sessions that were idle for too long. The lock must be held.
func (u *uploads) evict() {
	for id, s := range u.sessions {
		if !s.busy && u.now().Sub(s.touched) >= u.idle {
			delete(u.sessions, id)
			u.discard(s)
		}
	}
}

// take reserves the session for the calling request and returns status 0. If the session
// does not exist or is busy, take returns the status of the error.
func (u *uploads) take(r route) (*session, int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, ok := u.sessions[r.name]
	switch {
	case !ok || s.repository != r.repository:
		return nil, http.StatusNotFound
	case s.busy:
		return nil, http.StatusConflict
	}
	s.busy = true
	return s, 0
}

func (u *uploads) release(s *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.busy, s.touched = false, u.now()
}

func (u *uploads) drop(id string, s *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sessions, id)
	u.discard(s)
}

// abandon drops the session if it still exists.
func (u *uploads) abandon(id string, s *session) {
	u.mu.Lock()
	_, there := u.sessions[id]
	u.mu.Unlock()
	if there {
		u.drop(id, s)
	}
}

// discard closes and removes the session's file. If the file was renamed to a blob, the
// blob stays.
func (u *uploads) discard(s *session) {
	err := s.file.Close()
	if rerr := u.root.Remove(s.name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		u.log.Warn("an upload's file cannot be removed; the next start removes it", "file", s.name, "err", err)
	}
}

// receive appends the request's body to the session's file, and reports success. After a
// failure it answers the client and restores the file, so that the client can repeat the
// request.
func (u *uploads) receive(w http.ResponseWriter, req *http.Request, s *session) bool {
	if cr := req.Header.Get("Content-Range"); cr != "" {
		var start, end int64
		if _, err := fmt.Sscanf(cr, "%d-%d", &start, &end); err != nil || start != s.size {
			w.Header().Set("Range", progress(s))
			writeError(w, http.StatusRequestedRangeNotSatisfiable, "BLOB_UPLOAD_INVALID", "the upload continues at another offset")
			return false
		}
	}
	left := u.maxBlob - s.size
	n, err := io.Copy(io.NewOffsetWriter(s.file, s.size), http.MaxBytesReader(w, req.Body, left))
	if err == nil {
		s.size += n
		return true
	}
	if terr := s.file.Truncate(s.size); terr != nil {
		u.log.Warn("an upload's file cannot be truncated to its last complete part", "file", s.name, "err", terr)
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		u.log.Error("an artifact's upload cannot be stored", "repository", s.repository, "err", err)
	}
	writeBodyError(w, err, u.maxBlob)
	return false
}

// finish appends the last part, verifies the whole content and stores it as a blob. If the
// digest parameter is invalid or the last part cannot be received, the session continues.
// Otherwise finish ends the session.
func (u *uploads) finish(w http.ResponseWriter, req *http.Request, r route, s *session) {
	digest := req.URL.Query().Get("digest")
	h, err := v1.NewHash(digest)
	if err != nil || h.Algorithm != "sha256" {
		u.release(s)
		writeError(w, http.StatusBadRequest, "DIGEST_INVALID", "the digest must be SHA-256")
		return
	}
	if !u.receive(w, req, s) {
		u.release(s)
		return
	}
	got, size, err := hashFile(req.Context(), s.file)
	if err == nil && got != h {
		u.drop(r.name, s)
		writeError(w, http.StatusBadRequest, "DIGEST_INVALID", "the content has the digest "+got.String())
		return
	}
	folder := u.accounts.folder(r.repository)
	if err == nil && !u.mayStore(w, r, u.accounts.roomForBlob(folder, h, size)) {
		u.drop(r.name, s)
		return
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		err = u.blobs.commit(s.name, h)
	}
	if err == nil {
		err = u.accounts.addBlob(folder, h, size)
	}
	u.drop(r.name, s)
	if err != nil {
		u.log.Error("an artifact's blob cannot be stored", "blob", digest, "err", err)
		writeError(w, http.StatusInsufficientStorage, codeStorage, "the blob cannot be stored")
		return
	}
	w.Header().Set("Location", "/v2/"+r.repository+"/blobs/"+digest)
	w.Header().Set("Docker-Content-Digest", digest)
	w.WriteHeader(http.StatusCreated)
}

func progress(s *session) string {
	return fmt.Sprintf("0-%d", max(s.size-1, 0))
}

func writeProgress(w http.ResponseWriter, r route, s *session, status int) {
	w.Header().Set("Location", "/v2/"+r.repository+"/blobs/uploads/"+r.name)
	w.Header().Set("Docker-Upload-UUID", r.name)
	w.Header().Set("Range", progress(s))
	w.WriteHeader(status)
}

func writeBodyError(w http.ResponseWriter, err error, limit int64) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeError(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID", "the limit is "+tree.FormatBytes(limit))
		return
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		writeError(w, http.StatusInsufficientStorage, codeStorage, "the upload cannot be stored")
		return
	}
	writeError(w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID", "the body is incomplete")
}
