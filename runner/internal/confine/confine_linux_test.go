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

// needLandlock skips the test if the kernel has no Landlock.
func needLandlock(t *testing.T) {
	t.Helper()
	if !confine.Supported() {
		t.Skip("SKIPPED, NOTHING WAS TESTED: this kernel has no Landlock")
	}
}

// sh runs a confined script and returns its output.
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

// file makes a file with the text "of <name>" and returns its path.
func file(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("of "+filepath.Base(path)+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A private data folder is below folders that the process may read and write. The process reaches only its own part of
// the data folder, whichever path or link it uses.
func TestProcessReachesOnlyItsPartOfAPrivateFolder(t *testing.T) {
	needLandlock(t)
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
			t.Errorf("%s: want success %v; output: %s", c.command, c.works, out)
		}
	}
	for path, want := range map[string]string{key: "of identity.key\n", others: "of others\n", tool: "of launcher\n", own: "x\n", read: "of read\n"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s holds %q, want %q: %v", path, b, want, err)
		}
	}
}

// With "/" in Write, a process can make files in a folder that contains a private path. It still cannot read the private
// path.
func TestWriteToRootStillProtectsPrivateFromReads(t *testing.T) {
	needLandlock(t)
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
			t.Errorf("%s: want success %v; output: %s", c.command, c.works, out)
		}
	}
}

// A job must not be able to kill its step or agent. Otherwise, the job could continue after its attempt has ended.
func TestProcessCannotSignalTheStep(t *testing.T) {
	needLandlock(t)
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	r := confine.Reach{Read: confine.System()}
	for range 100 { // repeated, because the confined thread must never be the main thread
		out := sh(t, r, fmt.Sprintf("sleep 60 & kill -0 $! && echo own; kill $!; kill -0 %d && echo parent; kill -0 %d && echo other; true", os.Getpid(), other.Process.Pid))
		if !strings.Contains(out, "own") || strings.Contains(out, "parent") || strings.Contains(out, "other\n") {
			t.Fatalf("the process can signal %s, want own only", out)
		}
	}
}

// Root can read the memory of every process unless it lacks the capability to trace.
func TestRootProcessCannotReadTheStepsMemory(t *testing.T) {
	needLandlock(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: this test needs root")
	}
	out := sh(t, confine.Reach{Read: confine.System()},
		fmt.Sprintf("for f in /proc/%d/environ /proc/%[1]d/mem /proc/%[1]d/task/*/mem /proc/%[1]d/task/*/environ; do (exec 3<$f) 2>/dev/null && echo opened $f; done; (exec 3</proc/self/environ) && echo looked", os.Getpid()))
	if strings.TrimSpace(out) != "looked" {
		t.Errorf("the process opened files of the step: %s", out)
	}
}

// A process can connect to a Unix socket, such as Docker's, without any right to the socket's folder.
func TestProcessConnectsToASocket(t *testing.T) {
	needLandlock(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// f runs on the confined thread, so it can connect without another process.
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

// Run confines only the thread of f. The rest of the step keeps its rights.
func TestRunDoesNotConfineTheStep(t *testing.T) {
	needLandlock(t)
	path := file(t, t.TempDir(), "of-the-step")
	for range 50 {
		err := confine.Run(confine.Reach{}, func() error {
			_, err := os.ReadFile(path)
			return err
		})
		if !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("f reads a file without a right to it: %v, want ErrPermission", err)
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
		"system":                 {Read: confine.System(), Write: []string{"/tmp", "/var/tmp"}},
		"private below writable": {Read: []string{"/"}, Write: []string{"/"}, Private: []string{b.TempDir()}},
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
