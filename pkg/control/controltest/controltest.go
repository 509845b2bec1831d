// Package controltest holds the conformance suites of the interfaces that package
// control declares: the artifact registry, and the storage of logs that runners write
// directly.
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

// Registry gives the suite access to one artifact registry.
type Registry struct {
	Open   func(t *testing.T) control.Artifacts
	There  func(t *testing.T, repository string) bool // whether the repository exists
	Access func() identity.Access                     // access to artifacts, valid for some minutes
}

// Artifacts runs the conformance suite of control.Artifacts.
func Artifacts(t *testing.T, h Registry) {
	t.Run("each component of each app has its own repository", func(t *testing.T) {
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
			t.Errorf("the registry's host is %q", host)
		}
	})
	t.Run("opening creates missing repositories and is repeatable", func(t *testing.T) {
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
				t.Errorf("the repository of %s exists: %t", component, got)
			}
		}
	})
	t.Run("a build pushes to a repository that exists", func(t *testing.T) {
		r := h.Open(t)
		for range 2 {
			if err := r.Make(t.Context(), "app_built", []string{"web/built"}); err != nil {
				t.Fatal(err)
			}
		}
		if !h.There(t, r.Repository("app_built", "web/built")) || h.There(t, r.Repository("app_built", "web")) {
			t.Error("the repository of built artifacts does not exist, or another one does")
		}
		l, err := r.OpenForBuild(t.Context(), "app_built", "web")
		if err != nil {
			t.Fatal(err)
		}
		good(t, l)
	})
	t.Run("a login expires with its credentials", func(t *testing.T) {
		a := h.Access()
		l, err := h.Open(t).Login(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		good(t, l)
		if l.Expires.After(a.Expires) {
			t.Errorf("the login lasts until %s, and its credentials until %s", l.Expires, a.Expires)
		}
	})
	t.Run("a canceled context opens nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := h.Open(t)
		if l, err := r.OpenForPush(ctx, "app_ended", []string{"web"}); err == nil || l != (identity.Login{}) {
			t.Errorf("OpenForPush: a login, %v", err)
		}
		if l, err := r.Login(ctx, h.Access()); err == nil || l != (identity.Login{}) {
			t.Errorf("Login: a login, %v", err)
		}
		if h.There(t, r.Repository("app_ended", "web")) {
			t.Error("a repository was created")
		}
	})
}

func good(t *testing.T, l identity.Login) {
	t.Helper()
	if l.Username == "" || l.Password == "" {
		t.Errorf("login for %q with a password of %d bytes", l.Username, len(l.Password))
	}
}

// LogPlaces stores the logs of each install in its own place; see control.Deps.
type LogPlaces interface {
	Make(ctx context.Context, install fairlead.InstallID) error
	Remove(ctx context.Context, install fairlead.InstallID) error
}

// Records gives the suite access to one implementation of LogPlaces.
type Records struct {
	Open  func(t *testing.T) LogPlaces
	There func(t *testing.T, install fairlead.InstallID) bool  // whether the install's place exists
	Write func(t *testing.T, install fairlead.InstallID) error // writes as the install's runner does
}

// LogRecords runs the conformance suite of the Records of control.Deps.
func LogRecords(t *testing.T, h Records) {
	do := func(t *testing.T, errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a place is created once, written, and removed", func(t *testing.T) {
		p := h.Open(t)
		if h.There(t, "ins_a") {
			t.Fatal("the place exists before Make")
		}
		do(t, p.Make(t.Context(), "ins_a"), h.Write(t, "ins_a"), p.Make(t.Context(), "ins_a"))
		if !h.There(t, "ins_a") {
			t.Error("the place does not exist after Make")
		}
		do(t, p.Remove(t.Context(), "ins_a"), p.Remove(t.Context(), "ins_a"))
		if h.There(t, "ins_a") || h.Write(t, "ins_a") == nil {
			t.Error("the place exists after Remove")
		}
		do(t, p.Make(t.Context(), "ins_a"), p.Remove(t.Context(), "ins_a"))
	})
	t.Run("the place of another install is kept", func(t *testing.T) {
		p := h.Open(t)
		do(t, p.Make(t.Context(), "ins_b"), p.Make(t.Context(), "ins_bc"), p.Remove(t.Context(), "ins_b"))
		if !h.There(t, "ins_bc") {
			t.Error("the place of the other install was removed")
		}
		do(t, p.Remove(t.Context(), "ins_bc"), p.Remove(t.Context(), "ins_never"))
	})
	t.Run("a canceled context does nothing", func(t *testing.T) {
		p := h.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Make(ctx, "ins_d"); err == nil || h.There(t, "ins_d") {
			t.Errorf("the place was created: %v", err)
		}
		do(t, p.Make(t.Context(), "ins_d"))
		if err := p.Remove(ctx, "ins_d"); err == nil || !h.There(t, "ins_d") {
			t.Errorf("the place was removed: %v", err)
		}
	})
}
