package docker_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
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
			o.Via, o.Job.ImagePullPolicy = via, docker.PullIfNotPresent // the image of the runner exists, an image of a step's own is pulled
			return open(t, o)
		},
		Remote: true, KeepsExit: true, Memory: 64, Confined: true,
		NoImage: func(t *testing.T, root string) executor.Executor {
			o := options(root)
			o.Job.Image, o.Job.ImagePullPolicy = "127.0.0.1:1/missing/image:1", docker.PullIfNotPresent
			return open(t, o)
		},
		OwnImage: func(t *testing.T) (string, string) {
			return pushed(t, host, dockerd.ImageWith(t, host, "own", map[string]string{"/vendor/file": "docker_test.go"}, hostile...)), "/vendor/file"
		},
	})
}

// hostile are settings of an image that no step may follow. /vendor/file is no program.
var hostile = []string{`ENTRYPOINT ["/vendor/file"]`, `CMD ["exit", "77"]`, "USER 4321", "WORKDIR /vendor",
	"ENV " + executortest.ImageSetting + "=x", "ENV ONLY=other", `HEALTHCHECK --interval=1s CMD ["/vendor/file"]`}

// pushed pushes an image to a registry, from which the engine pulls it again, and returns its reference by digest.
func pushed(t *testing.T, host, ref string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return dockerd.Pushed(t, host, ref, strings.TrimPrefix(server.URL, "http://")+"/tools")
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
	digest := dockerd.Pushed(t, host, local, strings.TrimPrefix(server.URL, "http://")+"/runner")

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
	_, err := e.Start(t.Context(), executor.Step{ID: "job_y-1"})
	if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseImagePull || !strings.Contains(err.Error(), o.Job.Image) {
		t.Errorf("a wrong digest: err = %v", err)
	}
}

// The password is for the registry of the runner's image. The vendor chooses the registry of a script's image, and must not get it.
func TestPasswordGoesToTheRunnersRegistryOnly(t *testing.T) {
	host := engine.Host(t)
	var asked, given atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			given.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	here := strings.TrimPrefix(server.URL, "http://")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(t *testing.T, runner, own string) error {
		o := options(host, runner, filepath.Join(t.TempDir(), "steps"))
		o.Job.ImagePullPolicy, o.Job.Registry = docker.PullIfNotPresent, &runnerspec.Registry{Username: "ci", PasswordFile: password}
		if err := os.MkdirAll(filepath.Join(o.Steps, "job_z-1"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := open(t, o).Start(t.Context(), executor.Step{ID: "job_z-1", Image: own})
		return err
	}
	digest := "@sha256:" + strings.Repeat("0", 64)
	err := start(t, image(t, host), here+"/tools"+digest)
	if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseImageUnavailable {
		t.Errorf("the start: %v", err)
	}
	if asked.Load() == 0 || given.Load() > 0 {
		t.Errorf("the registry of the script's image was asked %d times, and got the password %d times", asked.Load(), given.Load())
	}
	if err := start(t, here+"/runner"+digest, ""); err == nil || given.Load() == 0 { // shows that the test sees a password
		t.Errorf("the registry of the runner's image got no password: %v", err)
	}
}

// A build for another processor is found before the step starts: its step would run, and only its tool would fail.
func TestImageForAnotherProcessorIsRefused(t *testing.T) {
	host := engine.Host(t)
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: other})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(strings.TrimPrefix(server.URL, "http://") + "/tools@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	o := options(host, image(t, host), filepath.Join(t.TempDir(), "steps"))
	o.Job.ImagePullPolicy = docker.PullIfNotPresent
	if err := os.MkdirAll(filepath.Join(o.Steps, "job_z-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = open(t, o).Start(t.Context(), executor.Step{ID: "job_z-1", Image: ref.String()})
	if l, ok := errors.AsType[*executor.LaunchError](err); !ok || l.Cause != fairlead.CauseImageUnavailable || !strings.Contains(err.Error(), "linux/"+other) {
		t.Errorf("the start: %v", err)
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
