package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/executor/docker"
	"github.com/fairlead/fairlead/runner/executor/executortest"
	"github.com/fairlead/fairlead/tools/dockerd"
)

var engine dockerd.Server

func TestMain(m *testing.M) {
	code := m.Run()
	engine.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// image builds an image of the suite's step.
func image(t *testing.T, host string) string {
	t.Helper()
	return dockerd.Image(t, host, "step", map[string]string{"/step": executortest.Program(t)}, "/step")
}

func open(t *testing.T, o docker.Options) executor.Executor {
	t.Helper()
	e, err := docker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func options(host, ref, root string) docker.Options {
	return docker.Options{Steps: root, Runner: "run_1", DockerRunner: runnerspec.DockerRunner{Host: host, Job: runnerspec.DockerJob{
		Image: ref, ImagePullPolicy: docker.PullNever, Network: "none", MemoryLimit: 64 << 20, PIDsLimit: 100}}}
}

func TestExecutor(t *testing.T) {
	host := engine.Host(t)
	ref := image(t, host)
	options := func(root string) docker.Options { return options(host, ref, root) }
	executortest.Run(t, executortest.Subject{
		New: func(t *testing.T, root string, via func(http.RoundTripper) http.RoundTripper) executor.Executor {
			o := options(root)
			o.Via = via
			return open(t, o)
		},
		Remote: true, KeepsExit: true, Memory: 64, Confined: true,
		NoImage: func(t *testing.T, root string) executor.Executor {
			o := options(root)
			o.Job.Image, o.Job.ImagePullPolicy = "127.0.0.1:1/missing/image:1", docker.PullIfNotPresent
			return open(t, o)
		},
	})
}

// run runs one step to its end and returns the content of the file that it wrote.
func run(t *testing.T, o docker.Options, folders []executor.Folder, behaviour ...string) string {
	t.Helper()
	e := open(t, o)
	const id = "job_x-1"
	dir := filepath.Join(o.Steps, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := e.Start(t.Context(), executor.Step{ID: id, Folders: folders, Args: append([]string{"step", "--dir", dir}, behaviour...)})
	if err != nil {
		t.Fatal(err)
	}
	x, err := h.Wait(t.Context())
	if err != nil || x.Code == nil || *x.Code != 0 {
		output, _ := h.Output(t.Context(), 4096)
		t.Errorf("ended as %+v (%v) with output %s", x, err, output)
	}
	if err := e.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, behaviour[0]))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Of the runner's data folder, a container sees only what its job works on.
func TestContainerSeesOnlyItsJobsFolders(t *testing.T) {
	host := engine.Host(t)
	ref := image(t, host)
	for path, want := range map[string]string{
		"identity.key":           "false", // the runner's key
		"steps/job_other-1":      "false",
		"attempts/job_x-1/over":  "false", // the agent's record of the attempt
		"providers.json":         "false", // the record by which the agent detects altered providers
		"work/job_other-1/state": "false", // may hold another job's secrets
		"work/job_x-1":           "true",
		"artifacts/blob":         "true",
	} {
		t.Run(path, func(t *testing.T) {
			data := t.TempDir()
			if err := os.MkdirAll(filepath.Join(data, filepath.Dir(path)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(data, path), nil, 0o600); err != nil && want == "false" {
				t.Fatal(err)
			}
			if path == "work/job_x-1" {
				os.Remove(filepath.Join(data, path)) // Start creates it as a folder
			}
			o := options(host, ref, filepath.Join(data, "steps"))
			if got := run(t, o, []executor.Folder{{Path: "artifacts"}}, "see", filepath.Join(data, path)); got != want {
				t.Errorf("visible: %s, want %s", got, want)
			}
		})
	}
}

// A container must not be able to write what the jobs of other installs run, such as providers.
func TestContainerCannotWriteSharedFolders(t *testing.T) {
	host := engine.Host(t)
	ref := image(t, host)
	for path, want := range map[string]bool{
		"plugin-cache":    false,
		"tools":           false,
		"state/ins_1/web": true,
		"state/ins_1":     false,
		"":                false,
	} {
		t.Run(path, func(t *testing.T) {
			data := t.TempDir() // in the container, the folder is in the container's own /tmp, which is writable
			if err := os.MkdirAll(filepath.Join(data, "tools"), 0o700); err != nil {
				t.Fatal(err)
			}
			o := options(host, ref, filepath.Join(data, "steps"))
			folders := []executor.Folder{{Path: "plugin-cache"}, {Path: "state/ins_1/web", Write: true}}
			written := run(t, o, folders, "put", filepath.Join(data, path))
			if path == "plugin-cache" && written != "false" {
				t.Errorf("the step reports that it wrote the file: %s", written)
			}
			if _, err := os.Stat(filepath.Join(data, path, "put")); (err == nil) != want {
				t.Errorf("the file on the machine: %v", err)
			}
		})
	}
}

// An image by digest is pulled from its registry once, and its digest is verified.
func TestImageIsPulledByDigest(t *testing.T) {
	host := engine.Host(t)
	local := image(t, host)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	repo := strings.TrimPrefix(server.URL, "http://") + "/runner"
	if _, err := c.ImageTag(t.Context(), client.ImageTagOptions{Source: local, Target: repo + ":1"}); err != nil {
		t.Fatal(err)
	}
	push, err := c.ImagePush(t.Context(), repo+":1", client.ImagePushOptions{RegistryAuth: "e30="})
	if err != nil {
		t.Fatal(err)
	}
	if err := push.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	pushed, err := c.ImageInspect(t.Context(), repo+":1")
	if err != nil || len(pushed.RepoDigests) == 0 {
		t.Fatalf("%v: %+v", err, pushed.RepoDigests)
	}
	digest := pushed.RepoDigests[0]
	if _, err := c.ImageRemove(t.Context(), repo+":1", client.ImageRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.ImageRemove(context.Background(), digest, client.ImageRemoveOptions{Force: true}) })

	o := options(host, digest, filepath.Join(t.TempDir(), "steps"))
	o.Job.ImagePullPolicy = docker.PullIfNotPresent
	run(t, o, nil, "see", "/")
	server.Close() // the image is present now
	o.Steps = filepath.Join(t.TempDir(), "steps")
	run(t, o, nil, "see", "/")

	o.Job.Image = digest[:len(digest)-4] + "0000"
	e := open(t, o)
	if err := os.MkdirAll(filepath.Join(o.Steps, "job_y-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = e.Start(t.Context(), executor.Step{ID: "job_y-1"})
	if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseImagePull || !strings.Contains(err.Error(), o.Job.Image) {
		t.Errorf("a wrong digest: err = %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		of   runnerspec.DockerRunner
		want string
	}{
		"no image":           {runnerspec.DockerRunner{}, "runner_configuration.job.image"},
		"an invalid address": {runnerspec.DockerRunner{Host: "nowhere"}, "runner_configuration.host"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := docker.New(docker.Options{Steps: "/data/steps", DockerRunner: tc.of}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
