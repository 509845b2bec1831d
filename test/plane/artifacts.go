package plane

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/control"
)

// Push packs files (name to content) and pushes them as the source of the
// component web. Scripts and programs (ELF) are executable.
func (p *Plane) Push(files map[string]string) *events.ArtifactRef {
	p.t.Helper()
	return p.PushOf("web", files)
}

// PushOf is Push for another component. A job pulls only the artifact of its component.
func (p *Plane) PushOf(component string, files map[string]string) *events.ArtifactRef {
	p.t.Helper()
	dir := p.t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			p.t.Fatal(err)
		}
		perm := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") || strings.HasPrefix(content, "\x7fELF") {
			perm = 0o755
		}
		if err := os.WriteFile(path, []byte(content), perm); err != nil {
			p.t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer root.Close()
	a, err := artifact.Pack(root, artifact.Limits{})
	if err != nil {
		p.t.Fatal(err)
	}
	repository := control.Repository(org, app, component)
	digest, err := artifact.Push(p.t.Context(), p.Registry()+"/"+repository, artifact.Access{Token: p.token}, a)
	if err != nil {
		p.t.Fatal(err)
	}
	return &events.ArtifactRef{Repository: repository, Digest: digest}
}

// PushArchive pushes an archive that Pack cannot create, with a manifest as Pack creates
// it.
func (p *Plane) PushArchive(tar []byte) *events.ArtifactRef {
	p.t.Helper()
	ref := p.Push(map[string]string{"main.tf": ""})
	repo := p.URL() + "/v2/" + ref.Repository
	var manifest map[string]any
	_, b := p.request("GET", repo+"/manifests/"+ref.Digest, "", nil)
	if err := json.Unmarshal(b, &manifest); err != nil {
		p.t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(tar))
	layer := manifest["layers"].([]any)[0].(map[string]any)
	layer["digest"], layer["size"] = digest, len(tar)
	var err error
	if b, err = json.Marshal(manifest); err != nil {
		p.t.Fatal(err)
	}
	res, _ := p.request("POST", repo+"/blobs/uploads/", "", nil)
	to, err := res.Request.URL.Parse(res.Header.Get("Location"))
	if err != nil {
		p.t.Fatal(err)
	}
	q := to.Query()
	q.Set("digest", digest)
	to.RawQuery = q.Encode()
	p.request("PUT", to.String(), "application/octet-stream", tar)
	ref.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(b))
	mediaType, _ := manifest["mediaType"].(string)
	p.request("PUT", repo+"/manifests/"+ref.Digest, mediaType, b)
	return ref
}

func (p *Plane) request(method, url, contentType string, body []byte) (*http.Response, []byte) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "*/*")
	req.Header.Set("Authorization", "Bearer "+p.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		p.t.Fatalf("%s %s: %s %v %s", method, url, res.Status, err, all)
	}
	return res, all
}
