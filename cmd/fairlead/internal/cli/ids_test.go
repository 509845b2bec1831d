package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

func TestShortVersionsAreTakenIfUnique(t *testing.T) {
	ids := []string{"ver_aaaaaaaaaaaa00000000000001", "ver_aaaaaaaaaaaa00000000000002", "ver_bbbbbbbbbbbb00000000000003"}
	mux := http.NewServeMux()
	answer := func(pattern string, v any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		})
	}
	answer("GET /v1/installs/acme", wire.Install{Name: "acme", App: "shop"})
	page := wire.Page[wire.AppVersion]{}
	for _, id := range ids {
		page.Items = append(page.Items, wire.AppVersion{ID: id, App: "shop"})
	}
	answer("GET /v1/apps/shop/versions", page)
	server := httptest.NewServer(mux)
	defer server.Close()
	cl, err := client.New(server.URL, "token", client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"":                               "",
		ids[0]:                           ids[0],
		"ver_bbbbbbbbbbbb":               ids[2],
		"ver_bbbbbbbbbbbb0000":           ids[2],
		"latest":                         "latest",
		"ver_00000000000000000000000000": "ver_00000000000000000000000000", // the server checks whether it exists
	} {
		if got, err := fullVersion(t.Context(), cl, "acme", id); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", id, got, err, want)
		}
	}
	for id, want := range map[string]string{
		"ver_bbbb":         "too short",
		"ver_cccccccccccc": "no version that begins with",
		"ver_aaaaaaaaaaaa": ids[0] + ", " + ids[1],
	} {
		if got, err := fullVersion(t.Context(), cl, "acme", id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want an error with %q", id, got, err, want)
		}
	}
}
