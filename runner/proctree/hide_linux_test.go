package proctree_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/tools/program"
)

// TestMain runs this binary as a helper process if PROC_TEST is set. With "hide" the process hides itself, with "open" it
// does not. With "large" it uses 256 MiB of memory. With "look" it reads another process, with "reap" it reaps what it adopted,
// and with "escape" it is the program of a control group. With the argument
// "step" it is a step that runs a shell script as its tool.
func TestMain(m *testing.M) {
	switch os.Getenv("PROC_TEST") {
	case "hide":
		if err := proctree.Hide(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fallthrough
	case "open":
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin) // returns when the test closes stdin
		os.Exit(0)
	case "large":
		memory := make([]byte, 256<<20)
		for i := 0; i < len(memory); i += 1 << 10 {
			memory[i] = 1
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(int(memory[0]))
	case "reap":
		if err := reap(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	case "escape":
		os.Exit(escape())
	case "look":
		for _, name := range []string{"environ", "mem"} {
			f, err := os.Open(filepath.Join("/proc", os.Args[1], name))
			if err == nil {
				b := make([]byte, 1<<16)
				n, _ := f.Read(b)
				fmt.Printf("%s is open: %q\n", name, b[:n])
			} else {
				fmt.Printf("%s: %v\n", name, err)
			}
		}
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == "step" {
		err := proctree.RunSurvivor(context.Background(), os.Args[2], exec.Command("/bin/sh", "-c", os.Args[3]), io.Discard, io.Discard, func(int) {})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	goleak.VerifyTestMain(m)
}

// After Hide, another process of the same user can read neither the environment nor the memory of the process. Without
// Hide it can read both, which shows that the test checks the right files.
func TestHideBlocksReadsByTheSameUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can start processes as another user, and root itself can read every process")
	}
	program := outsideProgram(t)
	start := func(role string, args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Env = []string{"PROC_TEST=" + role, "SECRET=the-runners-own", "GOCOVERDIR=/tmp"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return cmd
	}
	for role, hidden := range map[string]bool{"open": false, "hide": true} {
		cmd := start(role)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("the process printed %q, want ready: %v", line, err)
		}
		seen, err := start("look", strconv.Itoa(cmd.Process.Pid)).CombinedOutput()
		in.Close()
		cmd.Wait()
		if err != nil {
			t.Fatalf("the reading process failed: %v: %s", err, seen)
		}
		if strings.Contains(string(seen), "the-runners-own") == hidden || strings.Contains(string(seen), "mem is open") == hidden {
			t.Errorf("another process reads this of a process with role %s:\n%s", role, seen)
		}
	}
}

// outsideProgram copies this program to a folder that every user can read, and returns its path.
func outsideProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "program")
	program.Write(t, path, b)
	return path
}
