package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/tools/program"
)

// A copy begins the uploads of several layers at once. The first of them makes the repository. The race detector finds it if
// they are not kept apart.
func TestUploadsThatMakeARepositoryTakeTurns(t *testing.T) {
	h := newHandler(t.TempDir(), slog.New(slog.DiscardHandler))
	defer h.close()
	web := httptest.NewServer(h)
	defer web.Close()
	for i := range 10 {
		var g errgroup.Group
		for range 4 {
			g.Go(func() error {
				res, err := http.Post(fmt.Sprintf("%s/v2/images/default/ins_%d/web/blobs/uploads/", web.URL, i), "", http.NoBody)
				if err != nil {
					return err
				}
				if res.StatusCode != http.StatusAccepted {
					return fmt.Errorf("an upload begins with %s", res.Status)
				}
				return res.Body.Close()
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// The control plane makes a folder for the socket, and cannot remove it if it is killed.
func TestProcessRemovesTheFolderOfItsSocket(t *testing.T) {
	private, err := os.MkdirTemp("", "registry-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program.Build(t, "cmd/fairlead-registry"), "--folder", t.TempDir(), "--socket", filepath.Join(private, "images"))
	alive, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len(readyLine))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != readyLine {
		t.Fatalf("the process writes %q, %v", line, err)
	}
	alive.Close() // as the death of the control plane does
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(private); !os.IsNotExist(err) {
		t.Errorf("the folder of the socket is still there: %v", err)
	}
}

func TestRepositoryOfAPath(t *testing.T) {
	for path, want := range map[string]string{
		"/v2/images/o/ins_1/web/blobs/uploads/":   "images/o/ins_1/web",
		"/v2/images/o/ins_1/web/manifests/v1":     "images/o/ins_1/web",
		"/v2/images/o/ins_1/web/tags/list":        "images/o/ins_1/web",
		"/v2/images/o/blobs/web/manifests/sha256": "images/o",
		"/v2/":                       "/v2",
		"/v2/a/../../../etc/blobs/x": "/etc",
	} {
		if got := repository(path); got != want {
			t.Errorf("the repository of %s is %q, want %q", path, got, want)
		}
	}
}

// The process ends with its control plane, whose death closes the standard input. The next one waits for it, because two processes
// would overwrite each other's indexes.
func TestRegistryEndsWithItsControlPlane(t *testing.T) {
	folder, sockets := t.TempDir(), t.TempDir()
	start := func(name string) (end func() error, ready chan string) {
		in, alive := io.Pipe()
		out, written := io.Pipe()
		done, lines := make(chan error, 1), make(chan string, 1)
		go func() {
			done <- serve(context.Background(), folder, filepath.Join(sockets, name), in, written, slog.New(slog.DiscardHandler))
		}()
		go func() {
			line := make([]byte, len(readyLine)+1)
			if _, err := io.ReadFull(out, line); err == nil {
				lines <- strings.TrimSpace(string(line))
			}
		}()
		return func() error { alive.Close(); return <-done }, lines
	}
	first, ready := start("1")
	<-ready
	second, later := start("2")
	select {
	case <-later:
		t.Error("two registries serve one folder")
	case <-time.After(10 * lockEvery): // the second has tried by now
	}
	if err := first(); err != nil {
		t.Error(err)
	}
	if got := <-later; got != readyLine {
		t.Errorf("the second registry writes %q", got)
	}
	if err := second(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(folder, lockFile)); err != nil {
		t.Error(err)
	}
}
