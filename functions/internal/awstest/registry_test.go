package awstest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/olareg/olareg"
	"github.com/olareg/olareg/config"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/artifact"
)

// registryHost is the host of the account's ECR registry.
const registryHost = accountID + ".dkr.ecr." + region + ".amazonaws.com"

// registry serves ECR: moto creates the repositories, and the registries of the embedded
// server keep their content: one that of the artifacts that people publish, and another one
// that of images and of what builds push. A login permits what the role that requested the login may do.
type registry struct {
	t      testing.TB
	moto   http.Handler
	files  http.Handler
	images http.Handler
	guard  *iamtest.Guard

	mu     sync.Mutex
	made   map[string]bool   // the repositories that exist
	logins map[string]string // access keys, by password
	pushed int               // requests that write
}

func newRegistry(t testing.TB, moto string, guard *iamtest.Guard) *registry {
	t.Helper()
	u, err := url.Parse(moto)
	if err != nil {
		t.Fatal(err)
	}
	files, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	deletes := true
	images := olareg.New(config.Config{Storage: config.ConfigStorage{StoreType: config.StoreMem, GC: config.ConfigGC{Frequency: -1}}, API: config.ConfigAPI{DeleteEnabled: &deletes}})
	t.Cleanup(func() { _ = images.Close() }) // it has no files
	return &registry{t: t, moto: httputil.NewSingleHostReverseProxy(u), files: files, images: images, guard: guard, made: map[string]bool{}, logins: map[string]string{}}
}

var credential = regexp.MustCompile(`Credential=([^/]+)/`)

// api serves ECR's own API.
func (g *registry) api(w http.ResponseWriter, r *http.Request) {
	switch operation(r) {
	case "GetAuthorizationToken":
		key := credential.FindStringSubmatch(r.Header.Get("Authorization"))
		password := rand.Text()
		g.mu.Lock()
		g.logins[password] = key[1] // the guard has verified it
		g.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_ = json.NewEncoder(w).Encode(map[string]any{"authorizationData": []any{map[string]any{
			"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + password)),
			"expiresAt":          float64(time.Now().Add(12 * time.Hour).Unix()), "proxyEndpoint": "https://" + registryHost}}})
	default:
		r.Header.Set("Authorization", keyID.ReplaceAllString(r.Header.Get("Authorization"), "Credential=test/"))
		answer := httptest.NewRecorder()
		g.moto.ServeHTTP(answer, r)
		var out struct {
			Repository struct {
				RepositoryName string `json:"repositoryName"`
			} `json:"repository"`
		}
		if answer.Code == http.StatusOK && json.Unmarshal(answer.Body.Bytes(), &out) == nil {
			g.make(out.Repository.RepositoryName)
		}
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}
}

// make records that the repository exists.
func (g *registry) make(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made[name] = true
}

var inRepository = regexp.MustCompile(`^/v2/(.+)/(?:manifests|blobs|tags|referrers)/`)

// imagesOf is the beginning of the names of repositories for the images of installs, and mirrorOf the repository with the bundles of
// closed apps.
const (
	imagesOf = "fairlead/ins_"
	mirrorOf = "fairlead/mirror"
)

// ServeHTTP serves the pushes and pulls of clients.
func (g *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	g.mu.Lock()
	key, ok := g.logins[password]
	g.mu.Unlock()
	if !ok || user != "AWS" {
		w.Header().Set("WWW-Authenticate", `Basic realm="https://`+registryHost+`/",service="ecr.amazonaws.com"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	calls, err := g.guard.RegistryCalls(r)
	if err == nil {
		err = g.guard.Authorize(key, calls...)
	}
	if err != nil {
		if _, denied := errors.AsType[*iamtest.Denied](err); !denied {
			g.t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{"code": "DENIED", "message": err.Error()}}})
		return
	}
	if m := inRepository.FindStringSubmatch(r.URL.Path); m != nil {
		g.mu.Lock()
		made, images := g.made[m[1]], strings.HasPrefix(m[1], imagesOf) || m[1] == mirrorOf
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			g.pushed++
		}
		g.mu.Unlock()
		if !made {
			if !images { // a plan asks for images before the first apply makes their repository
				g.t.Errorf("%s %s: the repository does not exist", r.Method, r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{"code": "NAME_UNKNOWN", "message": "the repository does not exist"}}})
			return
		}
		if images || strings.HasSuffix(m[1], "/built") { // ECR stores whole images and artifacts alike
			g.images.ServeHTTP(w, r)
			return
		}
	}
	g.files.ServeHTTP(w, r)
}

// pushes returns the number of requests that wrote.
func (g *registry) pushes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pushed
}

// hasImage reports whether the repository of an install's images has the digest.
func (g *registry) hasImage(repository, digest string) bool {
	answer := httptest.NewRecorder()
	g.images.ServeHTTP(answer, httptest.NewRequest(http.MethodHead, "/v2/"+repository+"/manifests/"+digest, nil))
	return answer.Code == http.StatusOK
}

// referrers returns the types of what refers to an image, sorted.
func (g *registry) referrers(repository, digest string) (types []string) {
	g.t.Helper()
	answer := httptest.NewRecorder()
	g.images.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/v2/"+repository+"/referrers/"+digest, nil))
	var list struct {
		Manifests []struct{ ArtifactType string }
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
		g.t.Fatal(err)
	}
	for _, m := range list.Manifests {
		types = append(types, m.ArtifactType)
	}
	slices.Sort(types)
	return types
}

// has reports whether the repository has an image by a tag or digest.
func (g *registry) has(repository, reference string) bool {
	answer := httptest.NewRecorder()
	g.files.ServeHTTP(answer, httptest.NewRequest(http.MethodHead, "/v2/"+repository+"/manifests/"+reference, nil))
	return answer.Code == http.StatusOK
}

// with returns the names of the repositories that have the image by its digest, sorted.
func (g *registry) with(digest string) (names []string) {
	g.mu.Lock()
	made := slices.Sorted(maps.Keys(g.made))
	g.mu.Unlock()
	for _, name := range made {
		if g.has(name, digest) || g.hasImage(name, digest) {
			names = append(names, name)
		}
	}
	return names
}
