// Package controltest is the conformance suites of what package control stands on
// and no package below it declares: a registry of artifacts, and the places where
// runners write logs.
package controltest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// Registry reaches one registry of artifacts.
type Registry struct {
	Open   func(t *testing.T) control.Artifacts
	There  func(t *testing.T, repository string) bool // whether the repository has been made
	Access func() identity.Access                     // to artifacts, for the next minutes
}

// Artifacts runs the suite of control.Artifacts.
func Artifacts(t *testing.T, h Registry) {
	t.Run("repositories are of one component of one app each", func(t *testing.T) {
		r, seen := h.Open(t), map[string]bool{}
		for _, app := range []fairlead.AppID{"app_a", "app_b"} {
			for _, component := range []string{"web", "network"} {
				name := r.Repository(app, component)
				if seen[name] || name != r.Repository(app, component) || !strings.Contains(name, string(app)) {
					t.Errorf("component %s of %s has the repository %s", component, app, name)
				}
				seen[name] = true
			}
		}
		if host := r.Host(); host == "" || strings.Contains(host, "/") {
			t.Errorf("its host is %q", host)
		}
	})
	t.Run("opening makes what is not there, and may be repeated", func(t *testing.T) {
		r := h.Open(t)
		for range 2 {
			l, err := r.OpenForPush(t.Context(), "app_opened", []string{"web", "network"})
			if err != nil {
				t.Fatal(err)
			}
			good(t, l)
		}
		for component, want := range map[string]bool{"web": true, "network": true, "other": false} {
			if got := h.There(t, r.Repository("app_opened", component)); got != want {
				t.Errorf("whether the repository of %s is there: %t", component, got)
			}
		}
	})
	t.Run("a login ends with what has bought it", func(t *testing.T) {
		a := h.Access()
		l, err := h.Open(t).Login(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		good(t, l)
		if l.Expires.After(a.Expires) {
			t.Errorf("it lasts until %s, and the credentials until %s", l.Expires, a.Expires)
		}
	})
	t.Run("ended context opens nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := h.Open(t)
		if l, err := r.OpenForPush(ctx, "app_ended", []string{"web"}); err == nil || l != (identity.Login{}) {
			t.Errorf("a login, %v", err)
		}
		if l, err := r.Login(ctx, h.Access()); err == nil || l != (identity.Login{}) {
			t.Errorf("a login, %v", err)
		}
		if h.There(t, r.Repository("app_ended", "web")) {
			t.Error("a repository was made")
		}
	})
}

func good(t *testing.T, l identity.Login) {
	t.Helper()
	if l.Username == "" || l.Password == "" {
		t.Errorf("the login is of %q, with a password of %d bytes", l.Username, len(l.Password))
	}
}

// LogPlaces is what keeps a place for each install's logs; see control.Deps.
type LogPlaces interface {
	Make(ctx context.Context, install fairlead.InstallID) error
	Remove(ctx context.Context, install fairlead.InstallID) error
}

// Records reaches one keeper of places for logs.
type Records struct {
	Open  func(t *testing.T) LogPlaces
	There func(t *testing.T, install fairlead.InstallID) bool  // whether the install has a place
	Write func(t *testing.T, install fairlead.InstallID) error // as the install's runner does
}

// LogRecords runs the suite of what control.Deps has as Records.
func LogRecords(t *testing.T, h Records) {
	do := func(t *testing.T, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a place is made once, written, and removed with all of it", func(t *testing.T) {
		p := h.Open(t)
		if h.There(t, "ins_a") {
			t.Fatal("it is there before")
		}
		do(t, p.Make(t.Context(), "ins_a"), h.Write(t, "ins_a"), p.Make(t.Context(), "ins_a"))
		if !h.There(t, "ins_a") {
			t.Error("it is not there")
		}
		do(t, p.Remove(t.Context(), "ins_a"), p.Remove(t.Context(), "ins_a"))
		if h.There(t, "ins_a") || h.Write(t, "ins_a") == nil {
			t.Error("it is still there")
		}
		do(t, p.Make(t.Context(), "ins_a"), p.Remove(t.Context(), "ins_a"))
	})
	t.Run("the place of another install is left alone", func(t *testing.T) {
		p := h.Open(t)
		do(t, p.Make(t.Context(), "ins_b"), p.Make(t.Context(), "ins_bc"), p.Remove(t.Context(), "ins_b"))
		if !h.There(t, "ins_bc") {
			t.Error("it is gone")
		}
		do(t, p.Remove(t.Context(), "ins_bc"), p.Remove(t.Context(), "ins_never"))
	})
	t.Run("ended context does nothing", func(t *testing.T) {
		p := h.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Make(ctx, "ins_d"); err == nil || h.There(t, "ins_d") {
			t.Errorf("it was made: %v", err)
		}
		do(t, p.Make(t.Context(), "ins_d"))
		if err := p.Remove(ctx, "ins_d"); err == nil || !h.There(t, "ins_d") {
			t.Errorf("it was removed: %v", err)
		}
	})
}
