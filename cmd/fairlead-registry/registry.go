package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/olareg/olareg"
	"github.com/olareg/olareg/config"
)

// readyLine is the line on standard output after which the registry answers.
const readyLine = "ready"

const (
	lockFile    = ".lock"          // in the folder of the repositories
	lockWithin  = 20 * time.Second // the registry of a control plane that was killed ends within this time
	lockEvery   = 20 * time.Millisecond
	closeWithin = 10 * time.Second // requests in progress at the end
)

// serve serves the repositories in the folder on the Unix socket until ctx or alive ends. alive is the standard input, which ends with the
// control plane. Only one process at a time serves a folder; serve waits for another one to end. It creates both files. Each repository
// has a folder of its own, so repositories share no content.
func serve(ctx context.Context, folder, socket string, alive io.Reader, ready io.Writer, log *slog.Logger) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("create the folder of images: %w", err)
	}
	lock := flock.New(filepath.Join(folder, lockFile))
	bounded, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	if _, err := lock.TryLockContext(bounded, lockEvery); err != nil {
		return fmt.Errorf("lock the folder of images %s, which another process may serve: %w", folder, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for requests of images: %w", err)
	}
	h := newHandler(folder, log)
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	go func() {
		io.Copy(io.Discard, alive) // its end, for whatever reason, is the end of the control plane
		stop()
	}()
	if _, err := fmt.Fprintln(ready, readyLine); err != nil {
		stop()
	}
	select {
	case err = <-served:
	case <-ctx.Done():
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		err = server.Shutdown(closing)
		// A shutdown before Serve has begun does not close the socket: Serve does, a moment later.
		if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
	}
	h.close()
	return err
}

// handler is the registry. Safe for concurrent use.
type handler struct {
	registry *olareg.Server
	locks    locks
	log      *slog.Logger
}

// newHandler returns the registry of the repositories in the folder. One handler at a time may use a folder. The registry keeps images
// without a tag: those of builds have none, and the control plane deletes what no version names.
func newHandler(folder string, log *slog.Logger) *handler {
	yes, no := true, false
	return &handler{locks: locks{root: folder}, log: log, registry: olareg.New(config.Config{
		Storage: config.ConfigStorage{StoreType: config.StoreDir, RootDir: folder, GC: config.ConfigGC{Untagged: &no}},
		API:     config.ConfigAPI{DeleteEnabled: &yes},
		Log:     log,
	})}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.locks.enter(r)()
	h.registry.ServeHTTP(w, r)
}

// close ends what the registry does by itself. What was stored is on disk before the answer.
func (h *handler) close() {
	if err := h.registry.Close(); err != nil { // it fails for a repository that was only asked for
		h.log.Debug("the registry of images did not collect garbage at its end", "error", err)
	}
}

// locks lets the request that makes a repository be alone in it. The library reads without a lock whether a repository exists, so two
// uploads that begin at the same time would race. Safe for concurrent use.
type locks struct {
	root string
	of   [64]sync.RWMutex // by a hash of the repository's name
}

// enter waits until the request may be served. The caller calls leave after that. No request to a repository that exists
// holds a lock, because an upload can take long.
func (m *locks) enter(req *http.Request) (leave func()) {
	name := repository(req.URL.Path)
	lock := &m.of[crc32.ChecksumIEEE([]byte(name))%uint32(len(m.of))]
	lock.RLock() // this also orders the request after the one that made the repository
	_, err := os.Stat(filepath.Join(m.root, filepath.FromSlash(name), "oci-layout"))
	switch {
	case err == nil:
		lock.RUnlock()
		return func() {}
	case req.Method == http.MethodGet || req.Method == http.MethodHead:
		return lock.RUnlock
	}
	lock.RUnlock()
	lock.Lock()
	return lock.Unlock
}

// repository returns the repository in the path of a request: what is between "/v2/" and the last of the parts "/blobs/",
// "/manifests/", "/tags/" and "/referrers/". The result has no parts "..".
func repository(path string) string {
	name := strings.TrimPrefix(filepath.ToSlash(filepath.Clean("/"+path)), "/v2/")
	end := len(name)
	for _, noun := range []string{"/blobs/", "/manifests/", "/tags/", "/referrers/"} {
		if i := strings.LastIndex(name, noun); i >= 0 {
			end = min(end, i)
		}
	}
	return name[:end]
}
