package confine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/runner/internal/confine"
)

func needed(t *testing.T) {
	t.Helper()
	if !confine.Supported() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: this kernel has no Landlock")
	}
}

// sh runs a script, confined, and returns what it prints.
func sh(t *testing.T, r confine.Reach, script string) string {
	t.Helper()
	var out bytes.Buffer
	err := confine.Run(r, func() error {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd.Run()
	})
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return out.String()
}

func file(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("of "+filepath.Base(path)+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a process reaches of a data folder that lies amid what it may read and
// write is its own part, by whichever way it comes.
func TestConfinedProcessReachesItsOwnPartOfAPrivateFolder(t *testing.T) {
	needed(t)
	top := t.TempDir()
	data := filepath.Join(top, "var", "data")
	key, own, tool, others := file(t, data, "identity.key"), file(t, data, "work", "1", "own"), file(t, data, "tools", "launcher"), file(t, data, "work", "2", "others")
	beside, read := file(t, top, "var", "beside"), file(t, top, "etc", "read")
	link := filepath.Join(top, "var", "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	r := confine.Reach{Read: append(confine.System(), filepath.Join(top, "etc")), Write: []string{filepath.Join(top, "var"), link, filepath.Dir(key)}, Private: []string{data},
		Own: confine.Own{Read: []string{tool}, Write: []string{filepath.Dir(own)}}}
	for _, c := range []struct {
		command string
		works   bool
	}{
		{"cat " + own, true},
		{"echo x >" + own, true},
		{"mkdir -p " + filepath.Dir(own) + "/a/b && echo x >" + filepath.Dir(own) + "/a/b/c && mv " + filepath.Dir(own) + "/a/b/c " + filepath.Dir(own), true},
		{"cat " + tool, true},
		{"echo x >" + tool, false},
		{"echo x >" + tool + ".new", false},
		{"rm " + tool, false},
		{"cat " + key, false},
		{"cat " + link + "/identity.key", false},
		{"cat /proc/self/root" + key, false},
		{"ln " + key + " " + filepath.Dir(own) + "/key", false},
		{"mv " + key + " " + filepath.Dir(own) + "/key", false},
		{"echo x >" + key, false},
		{"cat " + others, false},
		{"ls " + data, false},
		{"cat " + beside, true},
		{"echo x >" + beside, true},
		{"cat " + read, true},
		{"echo x >" + read, false},
		{"echo x >/dev/null; echo x >/dev/stdout; head -c 1 /dev/urandom; echo x >/dev/shm/" + filepath.Base(top) + " && rm /dev/shm/" + filepath.Base(top), true},
		{"cat /proc/self/status /etc/passwd", true},
	} {
		out := sh(t, r, "("+c.command+") 2>&1 && echo it-worked")
		if strings.Contains(out, "it-worked") != c.works {
			t.Errorf("%s: want it to work: %v; %s", c.command, c.works, out)
		}
	}
	for path, want := range map[string]string{key: "of identity.key\n", others: "of others\n", tool: "of launcher\n", own: "x\n", read: "of read\n"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s is now %q, %v", path, b, err)
		}
	}
}

// Where a process may change what it likes, as one that runs a person's own
// modules, files can be made right in a folder that leads to what is private.
func TestConfinedProcessThatMayChangeAnythingReadsNothingPrivate(t *testing.T) {
	needed(t)
	top := t.TempDir()
	key, beside := file(t, top, "data", "identity.key"), file(t, top, "beside")
	r := confine.Reach{Read: []string{"/"}, Write: []string{"/"}, Private: []string{filepath.Dir(key)}}
	for _, c := range []struct {
		command string
		works   bool
	}{
		{"echo x >" + top + "/new", true},
		{"mkdir " + top + "/dir && mv " + beside + " " + top + "/dir", true},
		{"cat " + top + "/dir/beside /etc/passwd", true},
		{"cat " + key, false},
		{"mv " + key + " " + top + "/dir/key", false},
		{"ln " + key + " " + top + "/dir/key", false},
	} {
		out := sh(t, r, "("+c.command+") 2>&1 && echo it-worked")
		if strings.Contains(out, "it-worked") != c.works {
			t.Errorf("%s: want it to work: %v; %s", c.command, c.works, out)
		}
	}
}

// Killing the step, or its agent, let a job outlive its own death.
func TestConfinedProcessSignalsTheProcessThatHasStartedIt(t *testing.T) {
	needed(t)
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	r := confine.Reach{Read: confine.System()}
	for range 100 { // some thread of ours is the first: it must not be the confined one
		out := sh(t, r, fmt.Sprintf("sleep 60 & kill -0 $! && echo own; kill $!; kill -0 %d && echo parent; kill -0 %d && echo other; true", os.Getpid(), other.Process.Pid))
		if !strings.Contains(out, "own") || strings.Contains(out, "parent") || strings.Contains(out, "other\n") {
			t.Fatalf("it can signal: %s", out)
		}
	}
}

// Root reads any process's memory, unless it cannot trace.
func TestConfinedProcessOfRootReadsTheMemoryOfTheProcessThatHasStartedIt(t *testing.T) {
	needed(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can show that root cannot")
	}
	out := sh(t, confine.Reach{Read: confine.System()},
		fmt.Sprintf("for f in /proc/%d/environ /proc/%[1]d/mem /proc/%[1]d/task/*/mem /proc/%[1]d/task/*/environ; do (exec 3<$f) 2>/dev/null && echo opened $f; done; (exec 3</proc/self/environ) && echo looked", os.Getpid()))
	if strings.TrimSpace(out) != "looked" {
		t.Errorf("it opens %s", out)
	}
}

// Docker's socket is a file that is written to, and no folder of its is listed.
func TestConfinedProcessConnectsToASocket(t *testing.T) {
	needed(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Run's own thread is confined, too, and connects by itself.
	err = confine.Run(confine.Reach{}, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	})
	if err != nil {
		t.Error(err)
	}
}

// The step goes on as it was, whatever its tools were confined to.
func TestWhoHasConfinedATool(t *testing.T) {
	needed(t)
	path := file(t, t.TempDir(), "of-the-step")
	for range 50 {
		err := confine.Run(confine.Reach{}, func() error {
			_, err := os.ReadFile(path)
			return err
		})
		if !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("f itself reads what it may not: %v", err)
		}
		if _, err := os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getppid(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	if !confine.Supported() {
		b.Skip("SKIPPED: this kernel has no Landlock")
	}
	for name, r := range map[string]confine.Reach{
		"system": {Read: confine.System(), Write: []string{"/tmp", "/var/tmp"}},
		"amid":   {Read: []string{"/"}, Write: []string{"/"}, Private: []string{b.TempDir()}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := confine.Run(r, func() error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
