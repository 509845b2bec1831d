package controltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
)

// Push packs files (name to content) and pushes them to the server's registry.
func (s *Server) Push(files map[string]string) *events.ArtifactRef {
	s.t.Helper()
	dir := s.t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer root.Close()
	a, err := artifact.Pack(root, artifact.Limits{})
	if err != nil {
		s.t.Fatal(err)
	}
	digest, err := artifact.Push(s.t.Context(), s.Registry()+"/components/test", artifact.Access{}, a)
	if err != nil {
		s.t.Fatal(err)
	}
	return &events.ArtifactRef{Repository: "components/test", Digest: digest}
}

// Tools returns the OpenTofu and the Terraform that are to be found, by where they
// were found: the one that FAIRLEAD_TOFU names, and those on PATH. A short run takes
// those on PATH only if FAIRLEAD_TOFU names none. Without any, Tools skips the test.
func Tools(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	if path := os.Getenv("FAIRLEAD_TOFU"); path != "" {
		found["FAIRLEAD_TOFU"] = path
		if testing.Short() {
			return found // what a short run takes and how long is the same on all machines
		}
	}
	for _, name := range []string{"tofu", "terraform"} {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			path := filepath.Join(dir, name)
			if st, err := os.Stat(path); err == nil && st.Mode()&0o111 != 0 && found[name] == "" && filepath.IsAbs(path) {
				found[name] = path
			}
		}
	}
	if len(found) == 0 {
		t.Skip("SKIPPED, NOTHING WAS TESTED: neither tofu nor terraform is on PATH, and FAIRLEAD_TOFU is not set")
	}
	return found
}

// PushArchive pushes an archive that Pack would never make, under a manifest
// that says it did.
func (s *Server) PushArchive(tar []byte) *events.ArtifactRef {
	s.t.Helper()
	ref := s.Push(map[string]string{"main.tf": ""})
	repo := s.URL() + "/v2/" + ref.Repository
	var manifest map[string]any
	if err := json.Unmarshal(s.request("GET", repo+"/manifests/"+ref.Digest, "", nil), &manifest); err != nil {
		s.t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(tar))
	layer := manifest["layers"].([]any)[0].(map[string]any)
	layer["digest"], layer["size"] = digest, len(tar)
	b, err := json.Marshal(manifest)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.Post(repo+"/blobs/uploads/", "", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	to, err := res.Request.URL.Parse(res.Header.Get("Location"))
	if err != nil {
		s.t.Fatal(err)
	}
	q := to.Query()
	q.Set("digest", digest)
	to.RawQuery = q.Encode()
	s.request("PUT", to.String(), "application/octet-stream", tar)
	ref.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(b))
	mediaType, _ := manifest["mediaType"].(string)
	s.request("PUT", repo+"/manifests/"+ref.Digest, mediaType, b)
	return ref
}

func (s *Server) request(method, url, contentType string, body []byte) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "*/*")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s %v %s", method, url, res.Status, err, b)
	}
	return b
}
