// Command step is the step that executors run in the conformance suite. It has one
// behaviour and writes files in its folder, which the suite reads. It needs no
// other program or library.
//
//	step --dir DIR BEHAVIOUR [ARGUMENT]
//	copy DIR
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/runner/internal/selfcopy"
)

// Exit codes that the suite expects.
const (
	interrupted = 7
	leaked      = 9
	misused     = 99
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "copy" { // as the runner's program does
		if err := selfcopy.To(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) < 5 || os.Args[1] != "step" {
		os.Exit(misused)
	}
	s := step{dir: os.Args[3]}
	argument := ""
	if len(os.Args) > 5 {
		argument = os.Args[5]
	}
	os.Exit(s.behave(os.Args[4], argument))
}

type step struct{ dir string }

func (s step) behave(behaviour, argument string) int {
	number, _ := strconv.Atoi(argument)
	switch behaviour {
	case "exit":
		return number
	case "environ":
		s.write("environ", strings.Join(os.Environ(), "\n"))
		return 0
	case "arguments":
		b, err := os.ReadFile("/proc/self/cmdline")
		if err != nil {
			return 1
		}
		s.write("arguments", string(b))
		return 0
	case "speak":
		for i := range number {
			fmt.Printf("line %d of %d\n", i+1, number)
		}
		return 3
	case "count":
		f, err := os.OpenFile(filepath.Join(s.dir, "count"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return 1
		}
		fmt.Fprintln(f, os.Getpid())
		return 0
	case "obey":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		defer s.live("ready")()
		<-c
		return interrupted
	case "until":
		defer s.live("ready")()
		s.await("go")
		return 0
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer s.live("ready")()
		forever()
	case "stay":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer s.live(argument)()
		forever()
	case "leak":
		// Start a child in this session and one in its own session. Both hold this
		// process's output open. Then end.
		for name, attr := range map[string]*syscall.SysProcAttr{"child": nil, "escaped": {Setsid: true}} {
			cmd := exec.Command(os.Args[0], "step", "--dir", s.dir, "stay", name)
			cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, attr
			if err := cmd.Start(); err != nil {
				return 1
			}
		}
		s.await("child")
		s.await("escaped")
		return leaked
	case "eat":
		s.eat(number)
		return 0
	case "see":
		_, err := os.Stat(argument)
		s.write("see", strconv.FormatBool(err == nil))
		return 0
	case "put": // writes a file into a folder
		err := os.WriteFile(filepath.Join(argument, "put"), nil, 0o600)
		s.write("put", strconv.FormatBool(err == nil))
		return 0
	case "confined":
		s.write("confined", s.confinement())
		return 0
	}
	return misused
}

func forever() {
	for { // the runtime would report an empty select as a deadlock and end this process
		time.Sleep(time.Hour)
	}
}

// write writes a file atomically.
func (s step) write(name, text string) {
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Rename(path+".new", path)
}

// live writes a file and holds a lock on it while this process is alive. Unlike a
// process number, the lock is visible from outside the process's container.
func (s step) live(name string) func() {
	path := filepath.Join(s.dir, name)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return func() { f.Close() }
}

func (s step) await(name string) {
	for {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// eat allocates and uses memory. mebibytes is the size in MiB.
func (s step) eat(mebibytes int) {
	var eaten [][]byte
	for range mebibytes {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		eaten = append(eaten, b)
		time.Sleep(time.Millisecond) // slowly, so that a simulated memory limit notices in time
	}
	s.write("eaten", strconv.Itoa(len(eaten)))
}

// confinement returns what this process may do, one permission a line.
func (s step) confinement() string {
	var out strings.Builder
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		for _, key := range []string{"CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:"} {
			if strings.HasPrefix(line, key) {
				out.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
			}
		}
	}
	for _, dir := range []string{"/", "/tmp", s.dir, "/.fairlead"} {
		f, err := os.CreateTemp(dir, "probe")
		if err == nil {
			f.Close()
			os.Remove(f.Name())
		}
		fmt.Fprintf(&out, "write %s: %t\n", dir, err == nil)
	}
	var children []*exec.Cmd
	for range 200 {
		cmd := exec.Command(os.Args[0], "step", "--dir", s.dir, "stay", "crowd")
		if cmd.Start() != nil {
			break
		}
		children = append(children, cmd)
	}
	fmt.Fprintf(&out, "200 processes: %t\n", len(children) == 200)
	for _, c := range children {
		c.Process.Kill()
		c.Wait()
	}
	return out.String()
}
