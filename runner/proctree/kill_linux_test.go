package proctree_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/fairlead/fairlead/runner/proctree"
)

// A killed process loses its environment, and so its mark, long before it has ended if it has much memory. KillAll returns
// only after its end: until then it holds its files, and another process could not use them.
func TestMarkedProcessHasEndedAfterKillAll(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	mark := "PROC_TEST_MARK=" + t.Name()
	cmd.Env = []string{"PROC_TEST=large", mark, "GOCOVERDIR=/tmp"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p, err := proctree.Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := proctree.KillAll(t.Context(), 0, mark); n != 1 || err != nil {
		t.Errorf("killed %d processes, %v; want one", n, err)
	}
	if proctree.Alive(p.PID, p.Start) {
		t.Error("the killed process has not ended")
	}
}
