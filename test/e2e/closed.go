//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tools/testserver"
)

// ClosedNetwork is a network of its own with no way out but doors. A door is an address on loopback: a connection to it inside
// reaches the same address outside. The kernel refuses each other packet that would leave the network, and counts it.
type ClosedNetwork struct {
	name string
	ns   int // file of the namespace
}

// NewClosedNetwork creates the network until the test ends. It skips the test on a machine that cannot have one, as NewFirewall does.
func NewClosedNetwork(t testing.TB) *ClosedNetwork {
	t.Helper()
	n := &ClosedNetwork{name: "fairlead-closed-" + strconv.Itoa(os.Getpid())}
	t.Cleanup(func() {
		if n.ns > 0 {
			unix.Close(n.ns)
		}
		_ = command("ip", "netns", "del", n.name) // fails if it was not created
	})
	within := n.Within()
	for _, c := range [][]string{
		{"ip", "netns", "add", n.name},
		{"ip", "-n", n.name, "link", "set", "lo", "up"},
		// A route makes the kernel ask the firewall about packets to the internet. The cable has no other end.
		{"ip", "-n", n.name, "link", "add", "away", "type", "veth", "peer", "name", "nowhere"},
		{"ip", "-n", n.name, "addr", "add", "10.255.255.2/24", "dev", "away"},
		{"ip", "-n", n.name, "link", "set", "away", "up"},
		{"ip", "-n", n.name, "link", "set", "nowhere", "up"},
		{"ip", "-n", n.name, "route", "add", "default", "via", "10.255.255.1"},
		append(within, "iptables", "-A", "OUTPUT", "-o", "away", "-j", "REJECT"),
		append(within, "iptables", "-A", "OUTPUT", "-p", "udp", "--dport", "53", "-j", "REJECT"), // a resolver on this machine
		append(within, "iptables", "-A", "OUTPUT", "-p", "tcp", "--dport", "53", "-j", "REJECT"),
	} {
		if err := command(c...); err != nil {
			testserver.Missing(t, "AN INSTALL IN A CLOSED NETWORK IS NOT TESTED", RequireFirewall, "Run the test as root, and install iproute2, util-linux and iptables", err)
		}
	}
	var err error
	if n.ns, err = unix.Open(n.file(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	return n
}

// Within returns the begin of a command line that runs a program inside. The program sees the files of this machine, also its control
// groups, which `ip netns exec` would hide.
func (n *ClosedNetwork) Within() []string { return []string{"nsenter", "--net=" + n.file()} }

func (n *ClosedNetwork) file() string { return filepath.Join("/run/netns", n.name) }

// Refused returns how many packets would have left the network.
func (n *ClosedNetwork) Refused(t testing.TB) int {
	t.Helper()
	line := append(n.Within(), "iptables", "-nvxL", "OUTPUT")
	out, err := exec.Command(line[0], line[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	refused, rules := 0, 0
	for _, line := range strings.Split(string(out), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2] != "REJECT" {
			continue
		}
		count, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatalf("iptables prints %q: %v", line, err)
		}
		refused, rules = refused+count, rules+1
	}
	if rules != 3 {
		t.Fatalf("iptables prints %d of 3 rules:\n%s", rules, out)
	}
	return refused
}

// Door is an address that connections inside can reach. Safe for concurrent use.
type Door struct {
	mu     sync.Mutex
	closed bool
	knocks int
}

// Shut makes the door refuse each later connection. It counts them.
func (d *Door) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// Knocks returns how many connections the door has refused.
func (d *Door) Knocks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.knocks
}

// enters reports whether a connection may pass.
func (d *Door) enters() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		d.knocks++
	}
	return !d.closed
}

// Door opens a door to an address on loopback, such as 127.0.0.1:5000, until the test ends.
func (n *ClosedNetwork) Door(t testing.TB, address string) *Door {
	t.Helper()
	var l net.Listener
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must end with this goroutine
		err := unix.Setns(n.ns, unix.CLONE_NEWNET)
		if err == nil {
			l, err = net.Listen("tcp", address)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(fmt.Errorf("open a door to %s: %w", address, err))
	}
	t.Cleanup(func() { l.Close() })
	d := &Door{}
	go func() {
		for {
			inside, err := l.Accept()
			if err != nil {
				return // the test ended
			}
			if !d.enters() {
				inside.Close()
				continue
			}
			go pass(inside, address)
		}
	}()
	return d
}

// pass connects a connection from inside with the address outside.
func pass(inside net.Conn, address string) {
	defer inside.Close()
	outside, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer outside.Close()
	go func() {
		_, _ = io.Copy(outside, inside)
		_ = outside.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(inside, outside)
}
