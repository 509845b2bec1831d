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

// runner is a cache, and what its agent says.
type runner struct {
	*providers.Store
	t    *testing.T
	data string
	said *bytes.Buffer
}

func newRunner(t *testing.T) *runner {
	r := &runner{t: t, data: t.TempDir(), said: &bytes.Buffer{}}
	r.restart()
	return r
}

// restart is another agent on the same folder.
func (r *runner) restart() {
	r.Store = providers.Open(r.cache(), filepath.Join(r.data, "providers.json"), slog.New(slog.NewTextHandler(r.said, nil)))
}

func (r *runner) cache() string { return filepath.Join(r.data, "plugin-cache") }

// job returns the private folder of a job that has fetched one package, with the
// content given.
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

// one returns the only package that jobs of the install may use.
func (r *runner) one(install string) providers.Package {
	r.t.Helper()
	all := r.Usable(install)
	if len(all) != 1 {
		r.t.Fatalf("usable are %+v; the agent says: %s", all, r.said)
	}
	return all[0]
}

// What a job has fetched is there for the next job of its install, and by its hash
// for all others, also after a restart.
func TestWhatAJobHasFetchedIsThereForTheNext(t *testing.T) {
	r := newRunner(t)
	private := r.job("real")
	want, err := dirhash.HashDir(filepath.Join(private, name), "", dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	r.Take(private, "ins_1")
	for range 2 {
		if p := r.one("ins_1"); !p.Own || p.Name != name || p.Hash != want || p.Address() != "registry.opentofu.org/hashicorp/aws" || p.Version() != "6.1.0" {
			t.Errorf("%+v, want the hash %s", p, want)
		}
		if p := r.one("ins_2"); p.Own || p.Hash != want {
			t.Errorf("for another install %+v", p)
		}
		r.restart()
	}
	if b, err := os.ReadFile(filepath.Join(r.one("ins_1").Path(r.cache()), program)); string(b) != "real" {
		t.Errorf("it holds %q, %v", b, err)
	}
	// Fetched by both, it is there once, and each one's own.
	r.Take(r.job("real"), "ins_2")
	if !r.one("ins_1").Own || !r.one("ins_2").Own {
		t.Error("what two installs have fetched is not each one's own")
	}
	if r.said.Len() > 0 {
		t.Errorf("the agent says: %s", r.said)
	}
}

// A job puts a program of its own in a provider's place. Before, each later job of
// every install ran it.
func TestAPlantedProviderRunsInTheJobsOfOtherInstalls(t *testing.T) {
	r := newRunner(t)
	r.Take(r.job("real"), "ins_1")
	real := r.one("ins_1").Hash
	r.Take(r.job("planted"), "ins_2")
	for _, p := range r.Usable("ins_1") {
		if p.Own != (p.Hash == real) {
			t.Errorf("to the other install it is %+v", p)
		}
	}
	own := slices.DeleteFunc(r.Usable("ins_2"), func(p providers.Package) bool { return !p.Own })
	if len(own) != 1 || own[0].Hash == real {
		t.Errorf("the install's own are %+v", own)
	}
	if p := r.Usable("")[0]; p.Own {
		t.Error("a job of no install has packages of its own")
	}
}

func TestAnAlteredProviderIsRunFromTheCache(t *testing.T) {
	for name, alter := range map[string]func(pkg string) error{
		"its program is another file, of the same size and time": func(pkg string) error {
			at := filepath.Join(pkg, program)
			st, err := os.Stat(at)
			if err != nil {
				return err
			}
			return errors.Join(os.Remove(at), os.WriteFile(at, []byte("evil"), 0o500), os.Chtimes(at, st.ModTime(), st.ModTime()))
		},
		"its program is written to, and has its time again": func(pkg string) error {
			at := filepath.Join(pkg, program)
			st, err := os.Stat(at)
			if err != nil {
				return err
			}
			return errors.Join(os.Chmod(at, 0o700), os.WriteFile(at, []byte("evil"), 0o700), os.Chtimes(at, st.ModTime(), st.ModTime()))
		},
		"a file is added":         func(pkg string) error { return os.WriteFile(filepath.Join(pkg, "x"), nil, 0o600) },
		"a file is gone":          func(pkg string) error { return os.Remove(filepath.Join(pkg, "LICENSE")) },
		"a file is a link":        func(pkg string) error { return os.Symlink("LICENSE", filepath.Join(pkg, "x")) },
		"a file has another name": func(pkg string) error { return os.Link(filepath.Join(pkg, "LICENSE"), filepath.Join(pkg, "..", "x")) },
		"a file is a pipe":        func(pkg string) error { return unix.Mkfifo(filepath.Join(pkg, "x"), 0o600) },
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
				t.Errorf("usable are %+v", all)
			}
			if _, err := os.Lstat(pkg); err == nil {
				t.Error("it is still in the cache")
			}
			if !strings.Contains(r.said.String(), "was altered") {
				t.Errorf("the agent says: %s", r.said)
			}
			r.Take(r.job("real"), "ins_1")
			r.one("ins_1")
		})
	}
	t.Run("a copy that is the same is used", func(t *testing.T) {
		r := newRunner(t)
		r.Take(r.job("real"), "ins_1")
		pkg := r.one("ins_1").Path(r.cache())
		if err := errors.Join(os.Rename(pkg, pkg+".x"), os.CopyFS(pkg, os.DirFS(pkg+".x"))); err != nil {
			t.Fatal(err)
		}
		r.one("ins_1")
		r.restart()
		r.one("ins_1")
		if r.said.Len() > 0 {
			t.Errorf("the agent says: %s", r.said)
		}
	})
	t.Run("a cache that was emptied is one without packages", func(t *testing.T) {
		r := newRunner(t)
		r.Take(r.job("real"), "ins_1")
		if err := os.RemoveAll(r.cache()); err != nil {
			t.Fatal(err)
		}
		if all := r.Usable("ins_1"); len(all) > 0 || r.said.Len() > 0 {
			t.Errorf("usable are %+v; the agent says: %s", all, r.said)
		}
	})
}

// A job leaves its folder as it likes. What is in the cache is there for as long
// as the runner.
func TestWhatIsNoPackageIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(private, pkg string) error
		said  string // "": it is no business of a person's
	}{
		"init has not ended well": {func(private, _ string) error { return os.Remove(filepath.Join(private, providers.Whole)) }, ""},
		"a link to what is not the job's": {func(private, pkg string) error {
			return errors.Join(os.RemoveAll(pkg), os.Symlink("/etc", pkg))
		}, ""},
		"a folder before it is a link": {func(private, pkg string) error {
			dir := filepath.Dir(filepath.Dir(pkg))
			return errors.Join(os.Rename(dir, private+".x"), os.Symlink(private+".x", dir))
		}, ""},
		"a link in it": {func(_, pkg string) error { return os.Symlink("/etc/passwd", filepath.Join(pkg, "x")) }, "is not kept"},
		"a pipe in it": {func(_, pkg string) error { return unix.Mkfifo(filepath.Join(pkg, "x"), 0o600) }, "is not kept"},
		"a file with a second name, by which it is altered later": {func(private, pkg string) error {
			return os.Link(filepath.Join(pkg, program), filepath.Join(private, "x"))
		}, "is not kept"},
		"nothing in it": {func(_, pkg string) error {
			return errors.Join(os.Remove(filepath.Join(pkg, program)), os.Remove(filepath.Join(pkg, "LICENSE")))
		}, "is not kept"},
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
				t.Errorf("usable are %+v", all)
			}
			if got := r.said.String(); (got == "") != (tc.said == "") || !strings.Contains(got, tc.said) {
				t.Errorf("the agent says: %s", got)
			}
			if left, _ := os.ReadDir(r.cache()); len(left) > 0 {
				t.Errorf("the cache holds %v", left)
			}
		})
	}
}
