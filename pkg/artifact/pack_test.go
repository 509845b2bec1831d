package artifact_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestSameContentHasTheSameDigest(t *testing.T) {
	want := pack(t, writeTree(t, source())).Digest()

	tests := map[string]func(t *testing.T, dir string){
		"other times": func(t *testing.T, dir string) {
			old := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
			for name := range source() {
				if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
					t.Fatal(err)
				}
			}
		},
		"strict umask": func(t *testing.T, dir string) {
			for name := range source() {
				chmod(t, filepath.Join(dir, name), 0o600)
			}
		},
		"files created in another order": func(t *testing.T, dir string) {
			for name, content := range source() {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, name), content)
			}
		},
		"empty folder": func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "drafts/old"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"after init, plan, apply and a crash": func(t *testing.T, dir string) {
			for _, name := range []string{
				".terraform/modules/modules.json", "modules/net/.terraform/x", "terraform.tfstate",
				"terraform.tfstate.backup", ".terraform.tfstate.lock.info", "env.tfplan", "crash.log",
				"crash.20260101.log", ".DS_Store", ".git/config", "files/.terraformrc",
			} {
				write(t, filepath.Join(dir, name), "machine's own")
			}
		},
		"link to another file in the folder": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "crash.log"), source()["main.tf"])
			if err := os.Remove(filepath.Join(dir, "main.tf")); err != nil {
				t.Fatal(err)
			}
			symlink(t, "crash.log", filepath.Join(dir, "main.tf"))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, source())
			change(t, dir)
			if got := pack(t, dir).Digest(); got != want {
				t.Errorf("digest %s, want %s", got, want)
			}
		})
	}
}

func TestOtherContentHasAnotherDigest(t *testing.T) {
	before := pack(t, writeTree(t, source())).Digest()
	tests := map[string]func(t *testing.T, dir string){
		"a byte":       func(t *testing.T, dir string) { write(t, filepath.Join(dir, "main.tf"), "other") },
		"a name":       func(t *testing.T, dir string) { write(t, filepath.Join(dir, "more.tf"), "") },
		"executable":   func(t *testing.T, dir string) { chmod(t, filepath.Join(dir, "scripts/setup.sh"), 0o755) },
		"a lock entry": func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".terraform.lock.hcl"), "x") },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, source())
			change(t, dir)
			if pack(t, dir).Digest() == before {
				t.Error("the digest did not change")
			}
		})
	}
}

func TestPackRefusesInvalidFolders(t *testing.T) {
	outside := writeTree(t, map[string]string{"secret": "s", "module/main.tf": ""})
	small := artifact.Limits{Entries: 20, Bytes: 1000, FileBytes: 600, Depth: 4, PathBytes: 60}

	tests := []struct {
		name string
		make func(t *testing.T, dir string)
		code fairlead.Code
		text string
	}{
		{"link to a file outside", func(t *testing.T, dir string) {
			symlink(t, filepath.Join("..", filepath.Base(outside), "secret"), filepath.Join(dir, "x"))
		}, "source-link-out", `"x" is a link to`},
		{"absolute link", func(t *testing.T, dir string) { symlink(t, filepath.Join(outside, "secret"), filepath.Join(dir, "x")) },
			"source-link-out", "is outside the folder"},
		{"absolute link back into the folder", func(t *testing.T, dir string) { symlink(t, filepath.Join(dir, "main.tf"), filepath.Join(dir, "x")) },
			"source-link-out", `"x"`},
		{"link through a link to the outside", func(t *testing.T, dir string) {
			symlink(t, "..", filepath.Join(dir, ".terraform"))
			symlink(t, ".terraform/"+filepath.Base(outside)+"/secret", filepath.Join(dir, "x"))
		}, "source-link-out", `"x"`},
		{"broken link", func(t *testing.T, dir string) { symlink(t, "nothing", filepath.Join(dir, "x")) },
			"source-link-out", "does not exist"},
		{"link to itself", func(t *testing.T, dir string) { symlink(t, "x", filepath.Join(dir, "x")) },
			"source-link-out", `"x"`},
		{"link to a folder", func(t *testing.T, dir string) { symlink(t, ".", filepath.Join(dir, "x")) },
			"source-link-directory", `"x"`},
		{"named pipe", func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
				t.Skip("no named pipes here: ", err)
			}
		}, "source-special-file", `"pipe"`},
		{"link to a named pipe", func(t *testing.T, dir string) {
			if err := syscall.Mkfifo(filepath.Join(dir, "crash.log"), 0o644); err != nil {
				t.Skip("no named pipes here: ", err)
			}
			symlink(t, "crash.log", filepath.Join(dir, "x"))
		}, "source-special-file", `"x"`},
		{"socket", func(t *testing.T, dir string) {
			t.Chdir(dir) // a socket's path is limited to a hundred bytes
			l, err := net.Listen("unix", "sock")
			if err != nil {
				t.Skip("no sockets here: ", err)
			}
			t.Cleanup(func() { l.Close() })
		}, "source-special-file", `"sock"`},
		{"device", func(t *testing.T, dir string) {
			if err := syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o644, 1<<8|3); err != nil {
				t.Skip("device files need privileges: ", err)
			}
		}, "source-special-file", `"null"`},
		{"set-user-id", func(t *testing.T, dir string) { chmod(t, filepath.Join(dir, "main.tf"), 0o755|os.ModeSetuid) },
			"source-special-mode", `"main.tf"`},
		{"too many files", func(t *testing.T, dir string) {
			for i := range 30 {
				write(t, filepath.Join(dir, fmt.Sprint("f", i)), "")
			}
		}, "source-too-many-entries", "more than 20"},
		{"too many ignored files", func(t *testing.T, dir string) {
			for i := range 30 {
				write(t, filepath.Join(dir, fmt.Sprintf("crash.%d.log", i)), "")
			}
		}, "source-too-many-entries", "more than 20"},
		{"too many empty folders", func(t *testing.T, dir string) {
			for i := range 30 {
				if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("d", i)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}, "source-too-many-entries", "more than 20"},
		{"file that is too large", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "big"), strings.Repeat("x", 601)) },
			"source-file-too-large", "600 bytes"},
		{"huge sparse file", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "big"), "")
			if err := os.Truncate(filepath.Join(dir, "big"), 1<<40); err != nil {
				t.Skip("no sparse files here: ", err)
			}
		}, "source-file-too-large", `"big"`},
		{"files that are too large in total", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "a"), strings.Repeat("x", 550))
			write(t, filepath.Join(dir, "b"), strings.Repeat("x", 550))
		}, "source-too-large", "1000 bytes"},
		{"folder that is too deep", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a/b/c/d/e"), "") },
			"source-too-deep", "nested 5 deep"},
		{"path that is too long", func(t *testing.T, dir string) { write(t, filepath.Join(dir, strings.Repeat("n", 61)), "") },
			"source-path-too-long", "61 bytes"},
		{"control characters in a name", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a\x1b[2J"), "") },
			"source-name", `\x1b`},
		{"name that is not UTF-8", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "a\xff"), nil, 0o644); err != nil {
				t.Skip("no such names here: ", err)
			}
		}, "source-name", "UTF-8"},
		{"backslash in a name", func(t *testing.T, dir string) { write(t, filepath.Join(dir, `..\x`), "") },
			"source-name", `..`},
		{"names that differ in case", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "Mod/a"), "")
			write(t, filepath.Join(dir, "mod/b"), "")
		}, "source-case-collision", "are the same file on some systems"},
		{"only a state file", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "main.tf"), filepath.Join(dir, "terraform.tfstate")); err != nil {
				t.Fatal(err)
			}
		}, "source-empty", "no files"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"main.tf": "x"})
			test.make(t, dir)
			_, err := artifact.Pack(openRoot(t, dir), small)
			wantCode(t, err, fairlead.KindInvalid, test.code)
			if err != nil && !strings.Contains(err.Error(), test.text) {
				t.Errorf("the error does not contain %q: %v", test.text, err)
			}
		})
	}
}

// Pack reads through a handle that cannot leave the folder. So it does not follow a link
// that replaces a file between the walk and the read.
func TestPackNeverReadsOutside(t *testing.T) {
	outside := writeTree(t, map[string]string{"secret": "the secret"})
	dir := writeTree(t, map[string]string{"a.tf": "fine", "b.tf": "fine"})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		target := filepath.Join(dir, "b.tf")
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Errors only make the race less likely.
			_ = os.Remove(target)
			_ = os.Symlink(filepath.Join(outside, "secret"), target)
			_ = os.Remove(target)
			_ = os.WriteFile(target, []byte("fine"), 0o644)
		}
	}()
	for range 300 {
		a, err := artifact.Pack(openRoot(t, dir), artifact.Limits{})
		if err == nil && strings.Contains(string(tarOf(a)), "the secret") {
			t.Error("a file outside the folder was packed")
			break
		}
	}
	close(stop)
	<-done
}

func TestPackReportsAnUnreadableFile(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := writeTree(t, map[string]string{"main.tf": "x"})
	chmod(t, filepath.Join(dir, "main.tf"), 0)
	_, err := artifact.Pack(openRoot(t, dir), artifact.Limits{})
	wantCode(t, err, fairlead.KindInvalid, "source-unreadable")
}

func symlink(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Skip("no links here: ", err)
	}
}
