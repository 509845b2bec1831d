package attempt_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/logship"
)

// reads maps the constant of each file in a step's folder to the function that reads the file. The function returns the
// part of the result that could come from another file.
var reads = map[string]func(d attempt.Dir) string{
	"inputFile": func(d attempt.Dir) string { in, err := d.Input(); return in.URL + text(err) },
	"finishedFile": func(d attempt.Dir) string {
		if st, err := os.Lstat(d.Path("finished")); d.Finished() && (err != nil || !st.Mode().IsRegular()) {
			return secret
		}
		return ""
	},
	"renewFile": func(d attempt.Dir) string { return d.Renew().String() },
	"logEndFile": func(d attempt.Dir) string {
		e, whole := d.LogEnd()
		return strconv.FormatInt(e.Size, 10) + strconv.FormatBool(whole)
	},
	"tallyFile":  func(d attempt.Dir) string { return d.Tally().Outcome },
	"StdoutFile": func(d attempt.Dir) string { return d.Tail(attempt.StdoutFile, 1<<10) },
	"StderrFile": func(d attempt.Dir) string { return d.Tail(attempt.StderrFile, 1<<10) },
	"LogFile": func(d attempt.Dir) string {
		_, err := logship.Sum(d.Path(attempt.LogFile), int64(len(secret)))
		if err == nil {
			return secret
		}
		return text(err)
	},
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

const secret = "the runner's secret"

// files returns the names of the files in a step's folder, by the constants of the package's source.
func files(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "attempt.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST || !strings.HasPrefix(g.Doc.Text(), "The files of a step folder") {
			continue
		}
		for _, s := range g.Specs {
			s := s.(*ast.ValueSpec)
			name, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all[s.Names[0].Name] = name
		}
	}
	if got, want := slices.Sorted(maps.Keys(reads)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("the package has the files %v, but this test reads %v", want, got)
	}
	return all
}

// A job can replace a file of its step's folder by anything. A function that reads the file must not read or write a file
// outside the folder, and must not block.
func TestNoFileLeadsOutOfTheStepsFolder(t *testing.T) {
	for constant, file := range files(t) {
		for name, plant := range map[string]func(path, outside string) error{
			"a symlink out of the folder":  func(path, outside string) error { return os.Symlink(outside, path) },
			"a symlink to an endless file": func(path, _ string) error { return os.Symlink("/dev/zero", path) },
			"a dangling symlink":           func(path, outside string) error { return os.Symlink(outside+".none", path) },
			"a pipe":                       func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
			"a folder":                     func(path, _ string) error { return os.Mkdir(path, 0o700) },
			"a file as large as a disk":    sparse,
			"a socket":                     socket,
		} {
			t.Run(file+" is "+name, func(t *testing.T) {
				dir := newDir(t)
				outside := filepath.Join(t.TempDir(), "key")
				if err := os.WriteFile(outside, []byte(secret), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(dir.Path(file)); err != nil {
					t.Fatal(err)
				}
				if err := plant(dir.Path(file), outside); err != nil {
					t.Fatal(err)
				}
				result := make(chan string, 1)
				go func() { result <- reads[constant](dir) }()
				select {
				case got := <-result:
					if strings.Contains(got, secret) {
						t.Errorf("the function reads the file outside: %q", got)
					}
				case <-time.After(20 * time.Second):
					t.Error("the function blocks")
				}
				if b, err := os.ReadFile(outside); err != nil || string(b) != secret {
					t.Errorf("the file outside holds %q, want %q: %v", b, secret, err)
				}
			})
		}
	}
}

func sparse(path, _ string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, 1<<40)
}

func socket(path, _ string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}

// A hard link is the file itself, so the agent reads it. Only a process of the same user can make a hard link to a file
// of the agent, and that process can read the file anyway. A process in a container cannot make such a
// link: each folder that it shares with the agent is a mount, and hard links do not cross mounts.
func TestAHardLinkIsReadLikeItsFile(t *testing.T) {
	dir := newDir(t)
	other := filepath.Join(filepath.Dir(string(dir)), "other")
	if err := os.WriteFile(other, []byte("of the same user"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(other, dir.Path(attempt.StderrFile)); err != nil {
		t.Fatal(err)
	}
	if got := dir.Tail(attempt.StderrFile, 1<<10); got != "of the same user" {
		t.Errorf("Tail = %q, want the text of the linked file", got)
	}
}

// A file is first written under a random name and then renamed, so a job cannot plant a symlink at that name.
func TestAWriteFollowsNoSymlink(t *testing.T) {
	dir := newDir(t)
	outside := filepath.Join(filepath.Dir(string(dir)), "key")
	if err := os.WriteFile(outside, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"renew", "renew.new"} {
		if err := os.Symlink(outside, dir.Path(file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := dir.SaveRenew(time.Second); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != secret {
		t.Errorf("the file outside holds %q, want %q: %v", b, secret, err)
	}
	if got := dir.Renew(); got != time.Second {
		t.Errorf("Renew = %v, want 1s", got)
	}
}

// A step's counts become the agent's metrics, so counts that no step can have are ignored.
func TestInvalidCountsAreIgnored(t *testing.T) {
	for name, tally := range map[string]attempt.Tally{
		"an unknown outcome": {Outcome: "a-label-for-each-job"},
		"a negative count":   {Outcome: "succeeded", LogBytes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			if err := dir.SaveTally(tally); err != nil {
				t.Fatal(err)
			}
			if got := dir.Tally(); got != (attempt.Tally{}) {
				t.Errorf("Tally = %+v, want none", got)
			}
		})
	}
	dir := newDir(t)
	want := attempt.Tally{Outcome: "canceled", LogBytes: 1, Renewals: 2, Late: 1}
	if err := dir.SaveTally(want); err != nil {
		t.Fatal(err)
	}
	if got := dir.Tally(); got != want {
		t.Errorf("Tally = %+v, want %+v", got, want)
	}
}

// Kept returns the records that the agent saved in it.
func TestAgentFindsItsRecordsOfAnAttempt(t *testing.T) {
	kept, err := attempt.Keep(filepath.Join(t.TempDir(), "job_1-1"), attempt.Input{URL: "https://control.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attempt.Keep(string(kept), attempt.Input{}); err == nil {
		t.Error("Keep accepts the same attempt twice")
	}
	if _, there := kept.Died(); there {
		t.Error("Died returns a report before SaveDied")
	}
	if _, err := kept.Configuration(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before SaveConfiguration, Configuration returns %v, want fs.ErrNotExist", err)
	}
	if err := errors.Join(kept.SaveDied(wire.DiedRequest{Epoch: 1, Reason: "killed"}), kept.SaveConfiguration(&wire.AgentConfiguration{Revision: "r1"})); err != nil {
		t.Fatal(err)
	}
	in, err := kept.Input()
	if err != nil || in.URL != "https://control.example" || in.V != 1 {
		t.Errorf("Input = %+v: %v", in, err)
	}
	if d, there := kept.Died(); !there || d.Reason != "killed" {
		t.Errorf("Died = %+v, want reason killed", d)
	}
	if c, err := kept.Configuration(); err != nil || c.Revision != "r1" {
		t.Errorf("Configuration = %+v, want revision r1: %v", c, err)
	}
}
