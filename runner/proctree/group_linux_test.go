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

// killEscapee starts a process in a control group. The process leaves its session, its parent and its environment.
// killEscapee kills the group and returns an error if the process still runs.
func killEscapee() error {
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
	if _, err := r.ReadByte(); err == nil { // the pipe ends when the process has ended
		return errors.New("the process still writes")
	}
	cmd.Wait()
	if err := g.Remove(context.Background()); err != nil {
		return err
	}
	_, err = os.Stat(string(g))
	if err == nil {
		return errors.New("the group still exists")
	}
	return nil
}

// Killing a control group also kills a process that left its session, parent and environment. A user other than root can
// kill a group that the user owns, like the group of a systemd service with Delegate=yes.
func TestKillingAGroupReachesEscapedProcesses(t *testing.T) {
	program := outsideProgram(t)
	for name, tc := range map[string]struct {
		user  uint32
		owner bool // whether the user owns the group
		want  string
	}{
		"root":                        {0, false, "killed"},
		"a user that owns the group":  {65532, true, "killed"},
		"a user that does not own it": {65532, false, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("SKIPPED: only root can change the owner of a control group")
			}
			g := proctreetest.Group(t)
			if tc.owner {
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
			cmd.Env = []string{"PROC_TEST=escape", "PATH=" + os.Getenv("PATH"), "GOCOVERDIR=/tmp"}
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd()), Credential: &syscall.Credential{Uid: tc.user, Gid: tc.user}}
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != tc.want+"\n" {
				t.Errorf("the program printed %q, want %q: %v", out, tc.want, err)
			}
		})
	}
}

// escape is the program of TestKillingAGroupReachesEscapedProcesses. It prints "killed", or "none" if it may not make a
// control group.
func escape() int {
	switch err := killEscapee(); {
	case errors.Is(err, proctree.ErrNoGroup):
		fmt.Println("none")
	case err != nil:
		fmt.Println(err)
		return 1
	default:
		fmt.Println("killed")
	}
	return 0
}
