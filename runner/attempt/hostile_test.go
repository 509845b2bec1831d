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

// reads are how each file of a step's folder is read, by the constant that names
// it; what is read, as far as it could be another file's.
var reads = map[string]func(d attempt.Dir) string{
	"inputFile": func(d attempt.Dir) string { in, err := d.Input(); return in.URL + said(err) },
	"stepIDFile": func(d attempt.Dir) string {
		id, err := d.StepID(func() string { return "made" })
		return id + said(err)
	},
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
		return said(err)
	},
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

const secret = "the runner's secret"

// files are the files of a step's folder as the package's source names them, by
// the names of the constants.
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
		t.Fatalf("the files are %v, and it is known how %v are read", want, got)
	}
	return all
}

// A job may make of a file of its step's folder what it likes. Whoever reads it
// reads nothing else, writes nothing else, and comes back.
func TestAFileOfAStepsFolderLeadsOut(t *testing.T) {
	for constant, file := range files(t) {
		for name, plant := range map[string]func(path, outside string) error{
			"a link out":                func(path, outside string) error { return os.Symlink(outside, path) },
			"a link to an endless file": func(path, _ string) error { return os.Symlink("/dev/zero", path) },
			"a link to nothing":         func(path, outside string) error { return os.Symlink(outside+".none", path) },
			"a pipe":                    func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
			"a folder":                  func(path, _ string) error { return os.Mkdir(path, 0o700) },
			"a file as long as a disk":  sparse,
			"a socket":                  socket,
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
				came := make(chan string, 1)
				go func() { came <- reads[constant](dir) }()
				select {
				case got := <-came:
					if strings.Contains(got, secret) {
						t.Errorf("it reads %q", got)
					}
				case <-time.After(20 * time.Second):
					t.Error("it waits for what never comes")
				}
				if b, err := os.ReadFile(outside); err != nil || string(b) != secret {
					t.Errorf("what is outside is now %q: %v", b, err)
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

// A hard link is the file itself, whichever name it is opened by. One to a file
// of the agent's can be made by a process of the same user, which may read that
// file anyway; from within a container it cannot, because each folder that is
// shared with it is a mount, and links do not cross mounts.
func TestAHardLinkIsReadAsTheFileThatItIs(t *testing.T) {
	dir := newDir(t)
	other := filepath.Join(filepath.Dir(string(dir)), "other")
	if err := os.WriteFile(other, []byte("of the same user"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(other, dir.Path(attempt.StderrFile)); err != nil {
		t.Fatal(err)
	}
	if got := dir.Tail(attempt.StderrFile, 1<<10); got != "of the same user" {
		t.Errorf("it reads %q", got)
	}
}

// What a file is written by first has a name that nobody could know before.
func TestWhatIsWrittenDoesNotGoThroughALink(t *testing.T) {
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
		t.Errorf("what is outside is now %q: %v", b, err)
	}
	if got := dir.Renew(); got != time.Second {
		t.Errorf("kept as %v", got)
	}
}

// What a step has counted becomes the agent's metrics.
func TestCountsThatNoStepHasAreNone(t *testing.T) {
	for name, tally := range map[string]attempt.Tally{
		"a word of its own":  {Outcome: "a-label-for-each-job"},
		"fewer than nothing": {Outcome: "succeeded", LogBytes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			if err := dir.SaveTally(tally); err != nil {
				t.Fatal(err)
			}
			if got := dir.Tally(); got != (attempt.Tally{}) {
				t.Errorf("counted as %+v", got)
			}
		})
	}
	dir := newDir(t)
	want := attempt.Tally{Outcome: "canceled", LogBytes: 1, Renewals: 2, Late: 1}
	if err := dir.SaveTally(want); err != nil {
		t.Fatal(err)
	}
	if got := dir.Tally(); got != want {
		t.Errorf("counted as %+v", got)
	}
}

// What an agent has kept it finds again, and nowhere in the folder of the step.
func TestWhatAnAgentKeepsIsApartFromTheStepsFolder(t *testing.T) {
	kept, err := attempt.Keep(filepath.Join(t.TempDir(), "job_1-1"), attempt.Input{URL: "https://control.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attempt.Keep(string(kept), attempt.Input{}); err == nil {
		t.Error("an attempt is launched twice")
	}
	if _, there := kept.Died(); there {
		t.Error("a report before there is one")
	}
	if _, err := kept.Configuration(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a configuration before there is one: %v", err)
	}
	if err := errors.Join(kept.SaveDied(wire.DiedRequest{Epoch: 1, Reason: "killed"}), kept.SaveConfiguration(&wire.AgentConfiguration{Revision: "r1"})); err != nil {
		t.Fatal(err)
	}
	in, err := kept.Input()
	if err != nil || in.URL != "https://control.example" || in.V != 1 {
		t.Errorf("the step was told %+v: %v", in, err)
	}
	if d, there := kept.Died(); !there || d.Reason != "killed" {
		t.Errorf("the report is %+v", d)
	}
	if c, err := kept.Configuration(); err != nil || c.Revision != "r1" {
		t.Errorf("the configuration is %+v: %v", c, err)
	}
}
