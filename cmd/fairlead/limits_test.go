package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
)

// TestServerOptionsSetCallerLimits sends requests until the server refuses a request. This
// shows that the options of a server set the limits for its callers.
func TestServerOptionsSetCallerLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		limits cli.ServerLimits
		path   string
		good   bool // whether the token is valid
		code   string
	}{
		"requests of one token":         {cli.ServerLimits{Rate: 1, Burst: 2}, "/v1/apps", true, "too-many-requests"},
		"wrong tokens from one address": {cli.ServerLimits{WrongRate: 1, WrongAt: 2}, "/v1/apps", false, "too-many-wrong-tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := startServer(t.Context(), cli.ServerOptions{Data: t.TempDir(), Listen: "127.0.0.1:0", Lease: time.Minute, Grace: time.Minute, NoOutput: time.Minute,
				Logger: slog.New(slog.DiscardHandler), Limits: tt.limits})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			token, err := os.ReadFile(s.TokenFile())
			if err != nil {
				t.Fatal(err)
			}
			bearer := "Bearer " + strings.TrimSpace(string(token))
			if !tt.good {
				bearer += "x"
			}
			const asked = 20
			for range asked {
				r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+tt.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", bearer)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				if cerr := res.Body.Close(); err != nil || cerr != nil {
					t.Fatal(err, cerr)
				}
				if res.StatusCode == http.StatusTooManyRequests && strings.Contains(string(body), tt.code) {
					return
				}
			}
			t.Errorf("the server answered all %d requests; the limit is a burst of 2", asked)
		})
	}
}
