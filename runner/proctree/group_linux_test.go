package proctree_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/runner/proctree"
	"github.com/fairlead/fairlead/runner/proctree/proctreetest"
)

// deserter starts a process that leaves its session, its parent and its
// environment, in a control group, kills the group, and says whether the process
// is gone. It is what an agent does that is not root.
func deserter() error {
	g, err := proctree.MakeGroup("attempt")
	if err != nil {
		return err
	}
	f, err := g.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.Command("setsid", "env", "-i", "/bin/sh", "-c", `/bin/sh -c 'echo up; exec /bin/sleep 3000' & exit 0`)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err != nil {
		return err
	}
	if err := g.Kill(context.Background()); err != nil {
		return err
	}
	if _, err := r.ReadByte(); err == nil { // the end of the pipe, which the process held
		return errors.New("something writes on")
	}
	cmd.Wait()
	if err := g.Remove(context.Background()); err != nil {
		return err
	}
	_, err = os.Stat(string(g))
	if err == nil {
		return errors.New("the group is there")
	}
	return nil
}

// A user with a control group of its own, as the user of a service with Delegate=yes,
// can keep together what a job starts.
func TestAControlGroupEndsWhatHasLeftEverythingElse(t *testing.T) {
	program := outsideProgram(t)
	for name, tc := range map[string]struct {
		user  uint32
		given bool
		want  string
	}{
		"root":                            {0, false, "gone"},
		"a user that was given the group": {65532, true, "gone"},
		"a user that was not":             {65532, false, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("SKIPPED: only root can give a control group to another user")
			}
			g := proctreetest.Group(t)
			if tc.given {
				for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} { // as systemd does
					if err := os.Chown(filepath.Join(string(g), f), int(tc.user), int(tc.user)); err != nil {
						t.Fatal(err)
					}
				}
			}
			f, err := g.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd := exec.Command(program)
			cmd.Env = []string{"PROC_TEST=desert", "PATH=" + os.Getenv("PATH"), "GOCOVERDIR=/tmp"}
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd()), Credential: &syscall.Credential{Uid: tc.user, Gid: tc.user}}
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != tc.want+"\n" {
				t.Errorf("%v, %s", err, out)
			}
		})
	}
}

// desert is the program of TestAControlGroupEndsWhatHasLeftEverythingElse.
func desert() int {
	switch err := deserter(); {
	case errors.Is(err, proctree.ErrNoGroup):
		fmt.Println("none")
	case err != nil:
		fmt.Println(err)
		return 1
	default:
		fmt.Println("gone")
	}
	return 0
}
