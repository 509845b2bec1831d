//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTheWire runs itself again in namespaces of its own.
func TestTheWire(t *testing.T) {
	if os.Getenv(insideVariable) != "" {
		insideTheWire(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTheWire$", "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	var start *exec.ExitError
	if err != nil && !errors.As(err, &start) {
		t.Skipf("THE WIRE IS NOT TESTED: this user may not make namespaces: %v", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// insideTheWire: what goes over a link comes back, later when the link is
// slow, and not at all while it is cut in either direction.
func insideTheWire(t *testing.T) {
	t.Helper()
	n, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	l, err := n.join(7)
	if err != nil {
		t.Fatal(err)
	}
	echo, err := net.Listen("tcp", serverIP+":8400")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				for s := bufio.NewScanner(c); s.Scan(); {
					fmt.Fprintln(c, s.Text())
				}
			}()
		}
	}()
	dialled := make(chan net.Conn, 1)
	go func() {
		runtime.LockOSThread()
		if err := l.enter(); err != nil {
			t.Error(err)
		}
		c, err := net.Dial("tcp", echo.Addr().String())
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	c := <-dialled
	if c == nil {
		t.FailNow()
	}
	answers := bufio.NewReader(c)
	ask := func(what string, patience time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(c, what)
		got, err := answers.ReadString('\n')
		if err == nil && got != what+"\n" {
			t.Errorf("asked %q, it says %q", what, got)
		}
		return err
	}
	if err := ask("calm", time.Minute); err != nil {
		t.Fatal(err)
	}
	const delay = 150 * time.Millisecond
	l.set(weather{delay: delay})
	begun := time.Now()
	if err := ask("slow", time.Minute); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 2*delay {
		t.Errorf("there and back took %s over a wire of %s", took, delay)
	}
	for name, w := range map[string]weather{"up": {up: true}, "down": {down: true}, "lossy": {loss: 1}} {
		l.set(w)
		if err := ask(name, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over a wire that is cut (%s) comes an answer, or %v", name, err)
		}
		l.set(weather{})
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != name+"\n" {
			t.Fatalf("mended, the wire brings %q (%v)", got, err)
		}
	}
}
