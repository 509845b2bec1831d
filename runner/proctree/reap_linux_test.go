package proctree_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/runner/proctree"
)

// A step needs the exit status of each tool that it starts, also if it asks for the status long after the tool's end. Adopted
// processes are not asked for by anyone, so they must be reaped, whether they left the tool's session or not.
func TestReapAdoptedLeavesTheChildrenThatWereStarted(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program) // a process of its own: other tests of this package wait for children
	cmd.Env = []string{"PROC_TEST=reap", "PATH=" + os.Getenv("PATH"), "GOCOVERDIR=/tmp"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// reap starts two children and adopts two processes, reaps once after all have ended, and returns what is wrong then.
func reap() error {
	if err := proctree.BecomeSubreaper(); err != nil {
		return err
	}
	ended := func(pid int) error {
		p, err := proctree.Stat(pid)
		if err != nil {
			return err
		}
		return proctree.WaitGone(context.Background(), pid, p.Start)
	}
	inGroup, leader := exec.Command("sh", "-c", "exit 3"), exec.Command("sh", "-c", "exit 4")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := errors.Join(inGroup.Start(), leader.Start()); err != nil {
		return err
	}

	// The tool ends before its children: they wait for the end of the pipe.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	tool := exec.Command("sh", "-c", "setsid cat <&3 & echo $!; cat <&3 & echo $!")
	tool.ExtraFiles = []*os.File{r}
	tool.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := tool.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tool.Start(); err != nil {
		return err
	}
	r.Close()
	var leftSession, leftInGroup int
	if _, err := fmt.Fscan(bufio.NewReader(out), &leftSession, &leftInGroup); err != nil {
		return err
	}
	if err := tool.Wait(); err != nil {
		return err
	}
	w.Close()

	if err := errors.Join(ended(inGroup.Process.Pid), ended(leader.Process.Pid), ended(leftSession), ended(leftInGroup)); err != nil {
		return err
	}
	once, cancel := context.WithCancel(context.Background())
	cancel()
	proctree.ReapAdopted(once)

	var wrong []string
	for what, pid := range map[string]int{"left the tool's session": leftSession, "stayed in the tool's group": leftInGroup} {
		if _, err := proctree.Stat(pid); err == nil {
			wrong = append(wrong, "the adopted process that "+what+" is not reaped")
		}
	}
	for want, cmd := range map[int]*exec.Cmd{3: inGroup, 4: leader} {
		if err := cmd.Wait(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			wrong = append(wrong, fmt.Sprintf("the exit status %d of a child is lost: %v", want, err))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}
