package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// An idle agent uses less than 30 MiB of memory, also after it has run jobs.
func TestIdleAgentIsSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes more than the agent")
	}
	s := plane.New(t, plane.Options{})
	// The shipped program: the test binary also has the tests' imports.
	a := startProgram(t, s, program.Build(t, "runner", "-ldflags=-s -w"), "", file("{type: local, concurrency: 4}"), "FAIRLEAD_STATUS_ADDRESS=127.0.0.1:0")
	url := statusURL(s, a)
	var jobs []string
	for range 50 {
		jobs = append(jobs, s.Queue(checkSpec()))
	}
	for _, job := range jobs {
		s.UntilFinished(job)
	}
	for range 50 {
		scrape(t, url) // monitoring does the same
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		t.Skipf("SKIPPED: this system does not show a process's memory: %v", err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var kib int
		if _, err := fmt.Sscanf(sc.Text(), "VmRSS: %d kB", &kib); err == nil {
			t.Logf("%.1f MiB", float64(kib)/1024)
			if kib > 30<<10 {
				t.Errorf("an idle agent uses %d KiB", kib)
			}
		}
	}
	if strings.Contains(a.out.String(), "level=ERROR") {
		t.Error(a.out)
	}
}
