package supervise_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/supervise"
)

// agent is a program that writes "started", then "term" for each SIGTERM, and ends at
// the second.
const agent = `
n=0
trap 'n=$((n+1)); echo term; if [ $n -eq 2 ]; then exit 0; fi' TERM
echo started
while :; do sleep 0.01; done
`

type harness struct {
	*testing.T
	lines  chan string // output of the agents
	notes  chan string // messages of Run
	pids   chan *exec.Cmd
	again  chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}
}

func start(t *testing.T, script string) *harness {
	h := &harness{T: t, lines: make(chan string, 100), notes: make(chan string, 100), pids: make(chan *exec.Cmd, 100),
		again: make(chan struct{}), ended: make(chan struct{})}
	r, w := io.Pipe()
	go func() {
		s := bufio.NewScanner(r)
		for s.Scan() {
			h.lines <- s.Text()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	h.cancel = cancel
	tell := func(text string) { h.notes <- text }
	go func() {
		defer close(h.ended)
		defer w.Close()
		supervise.Run(ctx, supervise.Agent{
			Command: func(context.Context) (*exec.Cmd, error) {
				if script == "" {
					return nil, errors.New("no token")
				}
				cmd := exec.Command("sh", "-c", script)
				cmd.Stdout = w
				h.pids <- cmd
				return cmd, nil
			},
			Tell: tell, Note: tell, Now: time.Now, Again: h.again,
		})
	}()
	return h
}

func (h *harness) await(from chan string, want string) {
	h.Helper()
	for {
		select {
		case got := <-from:
			if strings.Contains(got, want) {
				return
			}
		case <-time.After(30 * time.Second):
			h.Fatalf("%q did not appear", want)
		}
	}
}

func (h *harness) end() {
	h.Helper()
	select {
	case <-h.ended:
	case <-time.After(30 * time.Second):
		h.Fatal("still running")
	}
}

func TestAgentThatDiesIsStartedAgain(t *testing.T) {
	h := start(t, agent)
	h.await(h.lines, "started")
	if err := (<-h.pids).Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h.await(h.notes, "the runner ended (signal: killed)")
	h.await(h.lines, "started")
	h.cancel()
	h.await(h.lines, "term")
	h.again <- struct{}{}
	h.end()
}

func TestFirstStopDrainsSecondStops(t *testing.T) {
	h := start(t, agent)
	h.await(h.lines, "started")
	h.cancel()
	h.await(h.notes, "finish its jobs")
	h.await(h.lines, "term")
	select {
	case <-h.ended:
		t.Fatal("the runner was stopped at the first signal")
	default:
	}
	h.again <- struct{}{}
	h.await(h.notes, "stopping the runner")
	h.end()
	if state := (<-h.pids).ProcessState; !state.Success() {
		t.Errorf("the runner ended with %v", state)
	}
}

func TestTerminalsInterruptDoesNotReachTheAgent(t *testing.T) {
	h := start(t, agent)
	h.await(h.lines, "started")
	cmd := <-h.pids
	group, err := syscall.Getpgid(cmd.Process.Pid)
	if err != nil || group == syscall.Getpgrp() {
		t.Errorf("the agent is in the process group of the test, %d (%v)", group, err)
	}
	h.cancel()
	h.await(h.lines, "term")
	h.again <- struct{}{}
	h.end()
}

func TestAgentThatCannotStartIsReported(t *testing.T) {
	h := start(t, "")
	h.await(h.notes, "no token")
	h.await(h.notes, "no token") // after a restart
	h.cancel()
	h.end()
}
