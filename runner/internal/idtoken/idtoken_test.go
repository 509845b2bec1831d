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

func TestTokenFileIsReadForEachToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	s, err := idtoken.Open(config.OIDC{Source: "file", File: path})
	if err != nil {
		t.Fatal(err)
	}
	if s.Chooses() {
		t.Error("Chooses of a file = true, want false")
	}
	if _, err := s.Token(t.Context(), ""); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Token without the file = %v, want an error with its path", err)
	}
	for _, token := range []string{"a.b.c", "d.e.f"} { // as in Kubernetes, a new file with the next token replaces the old file
		next := path + ".next"
		if err := os.WriteFile(next, []byte("  "+token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Token(t.Context(), ""); got != token || err != nil {
			t.Errorf("Token = %q, %v; want %q", got, err, token)
		}
	}
	for name, text := range map[string]string{"an empty file": "", "a secret that is no token": "fle_secret", "a token that is too long": "a.b." + strings.Repeat("c", 20<<10)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Token(t.Context(), ""); err == nil || strings.Contains(err.Error(), "fle_secret") {
			t.Errorf("%s: Token returned %v, want an error without the secret", name, err)
		}
	}
}

func TestOpenNamesTheMissingSetting(t *testing.T) {
	for want, c := range map[string]config.OIDC{
		"FAIRLEAD_OIDC_TOKEN_FILE":                {Source: "file"},
		"FAIRLEAD_OIDC_AUDIENCE":                  {Source: "gcp"},
		"permissions: id-token: write":            {Source: "github", Audience: "a"},
		"is not https":                            {Source: "github", Audience: "a", RequestURL: "http://ci.example/token", RequestToken: "x"},
		`"vault" is not one of file, github, gcp`: {Source: "vault", Audience: "a"},
	} {
		if _, err := idtoken.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%+v) = %v, want an error with %s", c, err, want)
		}
	}
}

// An invalid response of the platform's endpoint is an error that does not contain the request's secret. The source
// follows no redirect.
func TestInvalidResponseOfAnEndpointIsAnError(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		_, _ = w.Write([]byte(`{"value":"a.b.c"}`))
	}))
	t.Cleanup(other.Close)
	for name, answer := range map[string]http.HandlerFunc{
		"status 403": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"an HTML page":             func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a value that is no token": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"value":7}`)) },
		"a response that is too long": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"value":"a.b.` + strings.Repeat("c", 70<<10) + `"}`))
		},
		"a response that breaks off": func(w http.ResponseWriter, _ *http.Request) {
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
			t.Errorf("%s: Token = %q, %v, want an error without the secret", name, token, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Token(ctx, "a"); err == nil {
			t.Errorf("%s: Token with a canceled context returned no error", name)
		}
		srv.Close()
	}
	if elsewhere.Load() > 0 {
		t.Error("the source followed the redirect and sent the secret to another server")
	}
}
