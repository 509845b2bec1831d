package executortest

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/runner/executor"
)

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// paths holds the paths of earlier requests. Safe for concurrent use.
type paths struct {
	mu   sync.Mutex
	seen map[string]bool
}

// first reports whether this is the first call for the path.
func (p *paths) first(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[path] {
		return false
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[path] = true
	return true
}

func show(x executor.Exit) string {
	b, _ := json.Marshal(x)
	return string(b)
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func wait(t *testing.T, h executor.Handle) executor.Exit {
	t.Helper()
	x, err := h.Wait(bounded(t))
	if err != nil {
		t.Fatalf("Wait returned without an Exit: %v", err)
	}
	return x
}

func (b *bench) touch(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatalf("the step has not written the file: %v", err)
	}
	return string(text)
}

// await waits until the step has written a file.
func (b *bench) await(name string) {
	b.t.Helper()
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		if _, err := os.Stat(filepath.Join(b.dir, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.t.Fatalf("no process has written the file %q", name)
}

// alive reports whether the process that wrote the file still holds its lock.
func (b *bench) alive(name string) bool {
	b.t.Helper()
	f, err := os.Open(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// ends reports whether the process with the name is gone within two seconds. The system frees the memory of a killed process
// before its files. In between, nothing can find the process any more, and it still holds its lock.
func (b *bench) ends(name string) bool {
	b.t.Helper()
	over := time.After(2 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for b.alive(name) {
		select {
		case <-again.C:
		case <-over:
			return false
		}
	}
	return true
}
