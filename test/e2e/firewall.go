//go:build linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tools/testserver"
)

// Firewall is a network of its own, whose firewall drops each packet that arrives and does
// not belong to a connection that the inside opened. One cable leads outside, to this
// process.
type Firewall struct {
	Outside string // address of this process on the cable
	Inside  string // address of the network's host on the cable
	ns      int    // file of the namespace
	name    string
}

// RequireFirewall is the variable that makes a test fail, if it is "1", where NewFirewall
// would skip the test.
const RequireFirewall = "FAIRLEAD_REQUIRE_FIREWALL"

// NewFirewall creates the network until the test ends. It skips the test on a machine that
// cannot have one: it needs root, iproute2 and iptables.
func NewFirewall(t testing.TB) *Firewall {
	t.Helper()
	pid := os.Getpid()
	subnet := fmt.Sprintf("10.%d.%d.", 100+pid/250%100, pid%250)
	f := &Firewall{Outside: subnet + "1", Inside: subnet + "2", name: "fairlead-" + strconv.Itoa(pid)}
	outside, inside := fmt.Sprintf("fl%do", pid), fmt.Sprintf("fl%di", pid) // at most 15 characters
	t.Cleanup(func() {
		if f.ns > 0 {
			unix.Close(f.ns)
		}
		_ = command("ip", "link", "del", outside) // fails if it was not created
		_ = command("ip", "netns", "del", f.name)
	})
	within := []string{"ip", "netns", "exec", f.name}
	for _, c := range [][]string{
		{"ip", "netns", "add", f.name},
		{"ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", f.name},
		{"ip", "addr", "add", f.Outside + "/30", "dev", outside},
		{"ip", "link", "set", outside, "up"},
		{"ip", "-n", f.name, "addr", "add", f.Inside + "/30", "dev", inside},
		{"ip", "-n", f.name, "link", "set", inside, "up"},
		{"ip", "-n", f.name, "link", "set", "lo", "up"},
		append(within, "iptables", "-A", "INPUT", "-i", "lo", "-j", "ACCEPT"),
		append(within, "iptables", "-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"),
		append(within, "iptables", "-A", "INPUT", "-p", "tcp", "-j", "DROP"), // has a counter of its own
		append(within, "iptables", "-P", "INPUT", "DROP"),
	} {
		if err := command(c...); err != nil {
			testserver.Missing(t, "A RUNNER BEHIND A FIREWALL IS NOT TESTED", RequireFirewall, "Run the test as root, and install iproute2 and iptables", err)
		}
	}
	var err error
	if f.ns, err = unix.Open("/run/netns/"+f.name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func command(c ...string) error {
	if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// enter moves the calling thread into the network.
func (f *Firewall) enter() error { return unix.Setns(f.ns, unix.CLONE_NEWNET) }

// countingRule is the number of the rule that drops new TCP connections.
const countingRule = "3"

// Dropped returns how many packets of new TCP connections the firewall has dropped.
func (f *Firewall) Dropped(t testing.TB) int {
	t.Helper()
	out, err := exec.Command("ip", "netns", "exec", f.name, "iptables", "-nvxL", "INPUT", countingRule).Output()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscan(string(out), &n); err != nil {
		t.Fatalf("iptables prints %q: %v", out, err)
	}
	return n
}

// ListensInside starts a program's listener inside, and returns its port. It proves that
// only the firewall keeps a connection from the outside away.
func (f *Firewall) ListensInside(t testing.TB) string {
	t.Helper()
	var l net.Listener
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must end with this goroutine
		err := f.enter()
		if err == nil {
			l, err = net.Listen("tcp", net.JoinHostPort(f.Inside, "0"))
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// DialIn connects from the outside to a port inside.
func (f *Firewall) DialIn(port string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(f.Inside, port), timeout)
	if err == nil {
		c.Close()
	}
	return err
}
