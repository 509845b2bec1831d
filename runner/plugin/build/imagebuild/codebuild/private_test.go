package codebuild_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/build"
	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/imagebuildtest"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// A build in CodeBuild has a private base image, which the step has fetched. The login is in no argument, no environment, no
// request to AWS and no file of the build, and the registry gets no request of the build.
func TestCodeBuildHasThePrivateBaseAndNoLogin(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	const password = "5ecret-of-the-registry"
	c := newCloud(t, nil)
	var mu sync.Mutex
	var sent bytes.Buffer // all that the step and the build send to S3, with what is compressed in it
	var archives int
	c.refuse = func(r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&sent, r.URL, r.Header)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		sent.Write(body)
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/context.tar.gz") {
			archives++
			unpacked(t, &sent, body)
		}
		return false
	}
	private := imagebuildtest.NewPrivate(t, "reader", password)
	base := imagebuildtest.Base(t, private.Host+"/base", &authn.Basic{Username: "reader", Password: password}, "linux/amd64", "linux/arm64")
	before := len(private.Refused())

	access := wire.ImageBuildAccess{CloudAccess: wire.CloudAccess{Region: region, AccessKeyID: "ASIAEXAMPLE", SecretAccessKey: "secret", SessionToken: "token", ExpiresAt: time.Now().Add(time.Hour)},
		Project: c.project().Name, Bucket: bucket, Prefix: "builds/" + t.Name() + "/app_a/job_1/1/", LogGroup: c.group, LogStream: "app_a/job_1/1"}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(access); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(api.Close)
	control, err := client.New(api.URL, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	images := httptest.NewServer(registry.New(registry.Logger(stdlog.New(io.Discard, "", 0))))
	t.Cleanup(images.Close)
	// The plugin trusts what the machine trusts, and takes the proxy from the job's environment.
	machine := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = machine })
	trusting := c.client.Transport.(*http.Transport).Clone()
	trusting.Proxy = nil
	http.DefaultTransport = trusting

	spec := plugin.Spec{Plugin: build.Name, Operation: "build", Job: "job_1", Epoch: 1, Grace: 1, Push: "images/o/app_1/web", Artifact: &events.ArtifactRef{Repository: "orgs/o/shop/web", Digest: "sha256:folder"},
		Env: map[string]string{"HTTPS_PROXY": c.proxy, "SBOM_GENERATOR": imagebuildtest.Generator(t, strings.TrimPrefix(images.URL, "http://"))},
		Build: &events.Build{App: "shop", Component: "web", Type: "docker-build", Source: ".", From: events.Origin{Kind: events.OriginFolder, Ref: "sha256:folder"},
			Image: &events.ImageBuild{Dockerfile: "Dockerfile", Args: map[string]string{"BASE": base}}, Logins: map[string]string{private.Host: "LOGIN"}}}
	probe, err := os.ReadFile(program.Build(t, "runner/plugin/build/imagebuild/imagebuildtest/probe"))
	if err != nil {
		t.Fatal(err)
	}
	log := plugintest.NewLog()
	env := plugintest.Env(t, t.TempDir(), "job_1-1", log, map[string]map[string]string{"sha256:folder": {"probe": string(probe),
		"Dockerfile": "ARG BASE\nFROM $BASE\nUSER 0\nCOPY --chmod=0755 probe /probe\nRUN [\"/probe\", \"look\", \"/found\"]\n"}}, spec)
	var built v1.Image
	env.Push = func(context.Context, string, *artifact.Artifact) (string, error) {
		return "", errors.New("an image is no packed folder")
	}
	env.PushImage = func(_ context.Context, _, layout, _ string, _ []artifact.Statement) error {
		built = imagebuildtest.Images(t, layout)[0]
		return nil
	}
	env.Control, env.Environ = control, map[string]string{"LOGIN": "reader:" + password}
	if _, err := build.New(build.Config{}).Run(t.Context(), spec, env); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	config, err := built.ConfigFile()
	if err != nil || config.Config.Labels["base"] != "of-the-test" {
		t.Errorf("the image has the configuration %+v, %v; want the label of its base", config, err)
	}
	found := imagebuildtest.Files(t, built)["found"]
	if archives != 1 || !strings.Contains(found, "environ") {
		t.Fatalf("%d archives, and the program found %q", archives, found)
	}
	requests := ""
	for _, r := range c.service.Requests() {
		requests += r.Body
	}
	mu.Lock()
	defer mu.Unlock()
	for _, canary := range []string{password, base64.StdEncoding.EncodeToString([]byte("reader:" + password))} {
		for where, text := range map[string]string{"a program of the Dockerfile": found, "the log": log.String(), "a request to CodeBuild": requests, "a request to S3": sent.String()} {
			if strings.Contains(text, canary) {
				t.Errorf("%s has the login", where)
			}
		}
	}
	if got := private.Refused(); len(got) > before+1 { // the step's first request asks how to log in
		t.Errorf("the registry got %d requests without the login", len(got)-before)
	}
}

// unpacked writes the files of an archive.
func unpacked(t *testing.T, to io.Writer, archive []byte) {
	t.Helper()
	unzip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Error(err)
		return
	}
	for r := tar.NewReader(unzip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintln(to, h.Name, h.Linkname)
		if _, err := io.Copy(to, r); err != nil {
			t.Error(err)
			return
		}
	}
}
