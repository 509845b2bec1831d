//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// TestRelayHoldsBytesDuringACut cuts each direction: the relay delivers nothing until the cut
// ends, and then delivers the held bytes.
func TestRelayHoldsBytesDuringACut(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for s := bufio.NewScanner(c); s.Scan(); {
					fmt.Fprintln(c, s.Text())
				}
			}()
		}
	}()
	r, err := newRelay(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.listener.Close() })
	c, err := net.Dial("tcp", r.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	read := func(patience time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return answers.ReadString('\n')
	}
	for name, w := range map[string]weather{"up": {up: true}, "down": {down: true}} {
		r.set(w)
		fmt.Fprintln(c, name)
		if got, err := read(200 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("during the cut (%s), the relay delivers %q (%v)", name, got, err)
		}
		r.set(weather{})
		if got, err := read(time.Minute); err != nil || got != name+"\n" {
			t.Fatalf("after the cut, the relay delivers %q (%v)", got, err)
		}
	}
	const delay = 50 * time.Millisecond
	r.set(weather{delay: delay})
	begun := time.Now()
	fmt.Fprintln(c, "slow")
	if got, err := read(time.Minute); err != nil || got != "slow\n" || time.Since(begun) < 2*delay {
		t.Errorf("after %s, the relay delivers %q (%v)", time.Since(begun), got, err)
	}
}
