//go:build unix

package providers_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/runner/internal/providers"
)

const (
	name    = "registry.opentofu.org/hashicorp/aws/6.1.0/linux_amd64"
	program = "terraform-provider-aws_v6.1.0"
)

// runner is a cache with the log of its agent.
type runner struct {
	*providers.Store
	t    *testing.T
	data string
	log  *bytes.Buffer
}

func newRunner(t *testing.T) *runner {
	r := &runner{t: t, data: t.TempDir(), log: &bytes.Buffer{}}
	r.restart()
	return r
}

// restart opens the cache again, like a new agent on the same data folder.
func (r *runner) restart() {
	r.Store = providers.Open(r.cache(), filepath.Join(r.data, "providers.json"), slog.New(slog.NewTextHandler(r.log, nil)))
}

func (r *runner) cache() string { return filepath.Join(r.data, "plugin-cache") }

// job returns the private folder of a job that downloaded one package. content is the content of its program.
func (r *runner) job(content string) string {
	r.t.Helper()
	private := filepath.Join(r.t.TempDir(), providers.Private)
	at := filepath.Join(private, name)
	if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, program), []byte(content), 0o755),
		os.WriteFile(filepath.Join(at, "LICENSE"), []byte("MPL"), 0o644), os.WriteFile(filepath.Join(private, providers.Whole), nil, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	return private
}

// one returns the only package that Usable returns for the install.
func (r *runner) one(install string) providers.Package {
	r.t.Helper()
	all := r.Usable(install)
	if len(all) != 1 {
		r.t.Fatalf("Usable = %+v, want one package; log: %s", all, r.log)
	}
	return all[0]
}

// The next job of the same install uses a downloaded package, and jobs of other installs find it by its hash. A restart
// keeps the cache.
func TestDownloadedPackageIsUsableByTheNextJob(t *testing.T) {
	r := newRunner(t)
	private := r.job("real")
	want, err := dirhash.HashDir(filepath.Join(private, name), "", dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	r.Take(private, "ins_1")
	for range 2 {
		if p := r.one("ins_1"); !p.Own || p.Name != name || p.Hash != want || p.Address() != "registry.opentofu.org/hashicorp/aws" || p.Version() != "6.1.0" {
			t.Errorf("Usable has %+v, want an own package with hash %s", p, want)
		}
		if p := r.one("ins_2"); p.Own || p.Hash != want {
			t.Errorf("for another install, Usable has %+v, want hash %s and Own false", p, want)
		}
		r.restart()
	}
	if b, err := os.ReadFile(filepath.Join(r.one("ins_1").Path(r.cache()), program)); string(b) != "real" {
		t.Errorf("the cached program holds %q, want real: %v", b, err)
	}
	// If both installs downloaded the package, the cache holds it once, and Own is true for both installs.
	r.Take(r.job("real"), "ins_2")
	if !r.one("ins_1").Own || !r.one("ins_2").Own {
		t.Error("a package that two installs downloaded is not Own for both")
	}
	if r.log.Len() > 0 {
		t.Errorf("unexpected log: %s", r.log)
	}
}

// A job can replace a provider's program by its own program. Jobs of other installs must not run that program.
func TestAPlantedProviderStaysWithItsInstall(t *testing.T) {
	r := newRunner(t)
	r.Take(r.job("real"), "ins_1")
	real := r.one("ins_1").Hash
	r.Take(r.job("planted"), "ins_2")
	for _, p := range r.Usable("ins_1") {
		if p.Own != (p.Hash == real) {
			t.Errorf("for the other install, Usable has %+v, want Own only for the real package", p)
		}
	}
	own := slices.DeleteFunc(r.Usable("ins_2"), func(p providers.Package) bool { return !p.Own })
	if len(own) != 1 || own[0].Hash == real {
		t.Errorf("the own packages of the install are %+v, want only the planted one", own)
	}
	if p := r.Usable("")[0]; p.Own {
		t.Error("a job without an install has own packages")
	}
}

func TestAnAlteredProviderIsRemovedFromTheCache(t *testing.T) {
	for name, alter := range map[string]func(pkg string) error{
		"another program of the same size and time": func(pkg string) error {
			at := filepath.Join(pkg, program)
			st, err := os.Stat(at)
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(at), os.WriteFile(at, []byte("evil"), 0o500), os.Chtimes(at, st.ModTime(), st.ModTime()))
		},
		"a changed program with the same time": func(pkg string) error {
			at := filepath.Join(pkg, program)
			st, err := os.Stat(at)
			if err != nil {
				return err
			}
			return errors.Join(os.Chmod(at, 0o700), os.WriteFile(at, []byte("evil"), 0o700), os.Chtimes(at, st.ModTime(), st.ModTime()))
		},
		"an added file":             func(pkg string) error { return os.WriteFile(filepath.Join(pkg, "x"), nil, 0o600) },
		"a removed file":            func(pkg string) error { return os.Remove(filepath.Join(pkg, "LICENSE")) },
		"an added symlink":          func(pkg string) error { return os.Symlink("LICENSE", filepath.Join(pkg, "x")) },
		"a file with a second name": func(pkg string) error { return os.Link(filepath.Join(pkg, "LICENSE"), filepath.Join(pkg, "..", "x")) },
		"an added pipe":             func(pkg string) error { return unix.Mkfifo(filepath.Join(pkg, "x"), 0o600) },
		"a power cut has emptied it": func(pkg string) error {
			return errors.Join(os.Chmod(filepath.Join(pkg, program), 0o700), os.Truncate(filepath.Join(pkg, program), 0))
		},
		"all of it is a link": func(pkg string) error { return errors.Join(os.Rename(pkg, pkg+".x"), os.Symlink(pkg+".x", pkg)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			r.Take(r.job("real"), "ins_1")
			pkg := r.one("ins_1").Path(r.cache())
			if err := alter(pkg); err != nil {
				t.Fatal(err)
			}
			if all := r.Usable("ins_1"); len(all) > 0 {
				t.Errorf("Usable = %+v, want none", all)
			}
			if _, err := os.Lstat(pkg); err == nil {
				t.Error("the altered package is still in the cache")
			}
			if !strings.Contains(r.log.String(), "was altered") {
				t.Errorf("unexpected log: %s", r.log)
			}
			r.Take(r.job("real"), "ins_1")
			r.one("ins_1")
		})
	}
	t.Run("an identical copy is still usable", func(t *testing.T) {
		r := newRunner(t)
		r.Take(r.job("real"), "ins_1")
		pkg := r.one("ins_1").Path(r.cache())
		if err := errors.Join(os.Rename(pkg, pkg+".x"), os.CopyFS(pkg, os.DirFS(pkg+".x"))); err != nil {
			t.Fatal(err)
		}
		r.one("ins_1")
		r.restart()
		r.one("ins_1")
		if r.log.Len() > 0 {
			t.Errorf("unexpected log: %s", r.log)
		}
	})
	t.Run("an emptied cache has no packages", func(t *testing.T) {
		r := newRunner(t)
		r.Take(r.job("real"), "ins_1")
		if err := os.RemoveAll(r.cache()); err != nil {
			t.Fatal(err)
		}
		if all := r.Usable("ins_1"); len(all) > 0 || r.log.Len() > 0 {
			t.Errorf("Usable = %+v, want none and no log: %s", all, r.log)
		}
	})
}

// A job can leave any files in its private folder. Only valid packages enter the cache, because the cache is permanent.
func TestOnlyValidPackagesEnterTheCache(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(private, pkg string) error
		log   string // part of the agent's log; "": no log line
	}{
		"a failed init": {func(private, _ string) error { return os.Remove(filepath.Join(private, providers.Whole)) }, ""},
		"a link in place of the package": {func(private, pkg string) error {
			return errors.Join(os.RemoveAll(pkg), os.Symlink("/etc", pkg))
		}, ""},
		"a link in place of a parent folder": {func(private, pkg string) error {
			dir := filepath.Dir(filepath.Dir(pkg))
			return errors.Join(os.Rename(dir, private+".x"), os.Symlink(private+".x", dir))
		}, ""},
		"a link in the package": {func(_, pkg string) error { return os.Symlink("/etc/passwd", filepath.Join(pkg, "x")) }, "cannot cache"},
		"a pipe in the package": {func(_, pkg string) error { return unix.Mkfifo(filepath.Join(pkg, "x"), 0o600) }, "cannot cache"},
		"a file with a second name": {func(private, pkg string) error {
			return os.Link(filepath.Join(pkg, program), filepath.Join(private, "x"))
		}, "cannot cache"},
		"an empty package": {func(_, pkg string) error {
			return errors.Join(os.Remove(filepath.Join(pkg, program)), os.Remove(filepath.Join(pkg, "LICENSE")))
		}, "cannot cache"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			private := r.job("real")
			pkg := filepath.Join(private, "registry.opentofu.org/hashicorp/aws/6.1.0/linux_amd64")
			if err := tc.plant(private, pkg); err != nil {
				t.Fatal(err)
			}
			r.Take(private, "ins_1")
			if all := r.Usable("ins_1"); len(all) > 0 {
				t.Errorf("Usable = %+v, want none", all)
			}
			if got := r.log.String(); (got == "") != (tc.log == "") || !strings.Contains(got, tc.log) {
				t.Errorf("the log is %q, want one with %q", got, tc.log)
			}
			if left, _ := os.ReadDir(r.cache()); len(left) > 0 {
				t.Errorf("the cache holds %v, want nothing", left)
			}
		})
	}
}
