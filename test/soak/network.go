//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// network connects the machine of the control plane with the runners' hosts, each in its own
// network namespace. Every packet goes through this process, which can drop and delay the packet.
// The kernel's netem could do this too, but not every kernel has netem.
type network struct {
	server *os.File // the interface of the control plane's machine
	mu     sync.Mutex
	links  map[[4]byte]*link
}

// serverIP is the address of the control plane.
const serverIP = "10.77.0.1"

// link is the network connection of one host. Safe for concurrent use.
type link struct {
	ip [4]byte
	ns int // file of the namespace

	mu    sync.Mutex
	state weather
	rand  *rand.Rand
	up    chan packet // to the control plane
	down  chan packet
}

// weather is the condition of a link.
type weather struct {
	up, down bool          // all packets of the direction are lost
	delay    time.Duration // of each packet, in both directions
	jitter   time.Duration // maximum additional delay; packets keep their order
	loss     float64       // share of lost packets, in both directions
}

type packet struct {
	data []byte
	due  time.Time
}

// wireDepth is the number of packets that a link can hold. Packets beyond it are lost.
const wireDepth = 4096

// newNetwork creates the network. This process must be in its own network namespace, with the
// permission to create interfaces.
func newNetwork() (*network, error) {
	if err := ip("link", "set", "lo", "up"); err != nil {
		return nil, err
	}
	f, err := tun("soak0")
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"addr", "add", serverIP + "/16", "dev", "soak0"}, {"link", "set", "soak0", "up"}} {
		if err := ip(args...); err != nil {
			return nil, err
		}
	}
	n := &network{server: f, links: map[[4]byte]*link{}}
	go n.read(f, func(to [4]byte) chan packet {
		n.mu.Lock()
		defer n.mu.Unlock()
		if l := n.links[to]; l != nil {
			return l.down
		}
		return nil
	}, func(to [4]byte) *link { n.mu.Lock(); defer n.mu.Unlock(); return n.links[to] }, false)
	return n, nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// tun creates an interface in the thread's namespace. This process reads and writes the
// interface's packets.
func tun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("create the interface %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil // non-blocking, so that Close ends a Read
}

// join creates the namespace of a host, with a link to the control plane.
func (n *network) join(number byte) (*link, error) {
	l := &link{ip: [4]byte{10, 77, 1, number}, rand: rand.New(rand.NewPCG(uint64(number), 1)),
		up: make(chan packet, wireDepth), down: make(chan packet, wireDepth)}
	made := make(chan error, 1)
	var f *os.File
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in another namespace and must end with the goroutine
		made <- func() (err error) {
			if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("create a network namespace: %w", err)
			}
			if l.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				return fmt.Errorf("open the network namespace: %w", err)
			}
			if f, err = tun("soak0"); err != nil {
				return err
			}
			for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", fmt.Sprintf("10.77.1.%d/16", number), "dev", "soak0"},
				{"link", "set", "soak0", "up"}} {
				if err := ip(args...); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	if err := <-made; err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.links[l.ip] = l
	n.mu.Unlock()
	go n.read(f, func([4]byte) chan packet { return l.up }, func([4]byte) *link { return l }, true)
	go deliver(l.up, n.server)
	go deliver(l.down, f)
	return l, nil
}

// read reads packets from an interface until it is closed, and queues them for delivery.
func (n *network) read(f *os.File, where func(to [4]byte) chan packet, whose func(to [4]byte) *link, up bool) {
	buf := make([]byte, 64<<10)
	for {
		size, err := f.Read(buf)
		if err != nil {
			return
		}
		if size < 20 || buf[0]>>4 != 4 {
			continue // an IPv6 packet of the kernel
		}
		to := [4]byte(buf[16:20])
		l, out := whose(to), where(to)
		if l == nil || out == nil {
			continue
		}
		due, ok := l.fate(up)
		if !ok {
			continue
		}
		select {
		case out <- packet{append([]byte(nil), buf[:size]...), due}:
		default:
		}
	}
}

// fate returns the time at which a packet arrives, or false if the packet is lost.
func (l *link) fate(up bool) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up && l.state.up || !up && l.state.down || l.rand.Float64() < l.state.loss {
		return time.Time{}, false
	}
	d := l.state.delay
	if l.state.jitter > 0 {
		d += time.Duration(l.rand.Int64N(int64(l.state.jitter)))
	}
	return time.Now().Add(d), true
}

// deliver writes packets in order, each at its time.
func deliver(from <-chan packet, to *os.File) {
	for p := range from {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			return // the host's interface is closed
		}
	}
}

func (l *link) set(w weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = w
}

// enter moves the calling thread, which must be locked, to the namespace of the link's host.
func (l *link) enter() error { return unix.Setns(l.ns, unix.CLONE_NEWNET) }
