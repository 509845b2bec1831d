package awstest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
)

// registryHost is the host of the account's ECR registry.
const registryHost = accountID + ".dkr.ecr." + region + ".amazonaws.com"

// registry serves ECR: moto creates the repositories, and the embedded server's
// registry keeps their content. A login permits what the role that requested the
// login may do.
type registry struct {
	t     *testing.T
	moto  http.Handler
	files http.Handler
	who   func(accessKeyID string) (ststest.Principal, bool)

	mu     sync.Mutex
	made   map[string]bool              // the repositories that exist
	logins map[string]ststest.Principal // by password
	pulled map[string]int               // reads, by session
	pushed int                          // requests that write
}

func newRegistry(t *testing.T, moto string) *registry {
	t.Helper()
	u, err := url.Parse(moto)
	if err != nil {
		t.Fatal(err)
	}
	files, err := artifact.RegistryHandler(t.TempDir(), artifact.RegistryOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &registry{t: t, moto: httputil.NewSingleHostReverseProxy(u), files: files, made: map[string]bool{}, logins: map[string]ststest.Principal{}, pulled: map[string]int{}}
}

var credential = regexp.MustCompile(`Credential=([^/]+)/`)

// api serves ECR's own API.
func (g *registry) api(w http.ResponseWriter, r *http.Request) {
	switch operation(r) {
	case "GetAuthorizationToken":
		key := credential.FindStringSubmatch(r.Header.Get("Authorization"))
		if key == nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		who, ok := g.who(key[1])
		if !ok {
			g.t.Errorf("%s requests a login with credentials of no session", key[1])
		}
		password := rand.Text()
		g.mu.Lock()
		g.logins[password] = who
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

var inRepository = regexp.MustCompile(`^/v2/(.+)/(?:manifests|blobs)/`)

// ServeHTTP serves the pushes and pulls of clients.
func (g *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	g.mu.Lock()
	who, ok := g.logins[password]
	g.mu.Unlock()
	if !ok || user != "AWS" {
		w.Header().Set("WWW-Authenticate", `Basic realm="https://`+registryHost+`/",service="ecr.amazonaws.com"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	role, session := "", ""
	if parts := strings.Split(who.ARN, "/"); len(parts) == 3 {
		role, session = parts[1], parts[2]
	}
	if m := inRepository.FindStringSubmatch(r.URL.Path); m != nil {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		publishes := strings.Contains(role, "-publisher-") && strings.Contains(m[1], "/app/"+session+"/") ||
			role == vendorRole && strings.HasSuffix(m[1], "/runner")
		g.mu.Lock()
		made := g.made[m[1]]
		if !reads {
			g.pushed++
		}
		if reads && strings.Contains(role, "-runner-session-") {
			g.pulled[session]++
		}
		g.mu.Unlock()
		switch {
		case !publishes && !(reads && strings.Contains(role, "-runner-session-")):
			g.t.Errorf("%s may not %s %s", who.ARN, r.Method, r.URL.Path)
			w.WriteHeader(http.StatusForbidden)
			return
		case !made:
			g.t.Errorf("%s %s: the repository does not exist", r.Method, r.URL.Path)
			w.WriteHeader(http.StatusNotFound)
			return
		}
	}
	g.files.ServeHTTP(w, r)
}

// pulls returns the number of reads by the runners' sessions.
func (g *registry) pulls() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pulled {
		n += p
	}
	return n
}

// pushes returns the number of requests that wrote.
func (g *registry) pushes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pushed
}

// has reports whether the repository has an image by a tag or digest.
func (g *registry) has(repository, reference string) bool {
	answer := httptest.NewRecorder()
	g.files.ServeHTTP(answer, httptest.NewRequest(http.MethodHead, "/v2/"+repository+"/manifests/"+reference, nil))
	return answer.Code == http.StatusOK
}
