package idtoken_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/runner/internal/idtoken"
)

func TestAFileIsReadAnewEachTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	s, err := idtoken.Open(config.OIDC{Source: "file", File: path})
	if err != nil {
		t.Fatal(err)
	}
	if s.Chooses() {
		t.Error("a file is as it is, and chooses no audience")
	}
	if _, err := s.Token(t.Context(), ""); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("before the platform has written it: %v", err)
	}
	for _, token := range []string{"a.b.c", "d.e.f"} { // as Kubernetes does it: another file under the same name
		next := path + ".next"
		if err := os.WriteFile(next, []byte("  "+token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Token(t.Context(), ""); got != token || err != nil {
			t.Errorf("it gives %q, %v; want %q", got, err, token)
		}
	}
	for consequence, text := range map[string]string{"nothing": "", "a secret of another kind": "fle_secret", "more than any token": "a.b." + strings.Repeat("c", 20<<10)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Token(t.Context(), ""); err == nil || strings.Contains(err.Error(), "fle_secret") {
			t.Errorf("%s: %v", consequence, err)
		}
	}
}

func TestWhatIsMissingIsSaidAtTheStart(t *testing.T) {
	for want, c := range map[string]config.OIDC{
		"FAIRLEAD_OIDC_TOKEN_FILE":               {Source: "file"},
		"FAIRLEAD_OIDC_AUDIENCE":                 {Source: "gcp"},
		"permissions: id-token: write":           {Source: "github", Audience: "a"},
		"is not https":                           {Source: "github", Audience: "a", RequestURL: "http://ci.example/token", RequestToken: "x"},
		`"vault" is none: file, github, gcp and`: {Source: "vault", Audience: "a"},
	} {
		if _, err := idtoken.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want it to say %s", c, err, want)
		}
	}
}

// What a platform's endpoint answers wrongly is said, without what it was asked
// with, and never followed elsewhere.
func TestAnEndpointThatDoesNotGiveAToken(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		_, _ = w.Write([]byte(`{"value":"a.b.c"}`))
	}))
	t.Cleanup(other.Close)
	for consequence, answer := range map[string]http.HandlerFunc{
		"it refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"it sends us away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"it answers a page":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"it answers no token": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"value":7}`)) },
		"it answers too much": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"value":"a.b.` + strings.Repeat("c", 70<<10) + `"}`))
		},
		"it breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		},
	} {
		srv := httptest.NewServer(answer)
		s, err := idtoken.Open(config.OIDC{Source: "github", Audience: "a", RequestURL: srv.URL + "/x?y=z", RequestToken: "ci-secret"})
		if err != nil {
			t.Fatal(err)
		}
		if token, err := s.Token(t.Context(), "a"); err == nil || token != "" || strings.Contains(err.Error(), "ci-secret") {
			t.Errorf("%s: %q, %v", consequence, token, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Token(ctx, "a"); err == nil {
			t.Errorf("%s: a question that nobody waits for any more is asked", consequence)
		}
		srv.Close()
	}
	if elsewhere.Load() > 0 {
		t.Error("the secret was sent elsewhere")
	}
}
