//go:build linux

package main

import (
	"net"
	"sync"
	"time"
)

// relay stands in for a wire where there are no network namespaces: what a
// runner sends to its control plane goes through it. It can hold everything
// back and delay it; it loses nothing, so a cut is a connection that is silent
// until it is mended. Artifacts, whose address the control plane names, do not
// go through it. Safe for concurrent use.
type relay struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	state   weather
	changed chan struct{} // closed at the next change
}

// newRelay makes a relay to the address, which runs as long as this process.
func newRelay(target string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, target: target, changed: make(chan struct{})}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) set(w weather) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = w
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *relay) serve(down net.Conn) {
	defer down.Close()
	r.pass(true)
	up, err := net.Dial("tcp", r.target)
	if err != nil {
		return // to the runner, a control plane that is gone is a connection that breaks
	}
	defer up.Close()
	var both sync.WaitGroup
	both.Go(func() { r.carry(up, down, true) })
	both.Go(func() { r.carry(down, up, false) })
	both.Wait()
}

// carry copies until either side has ended, and then ends both.
func (r *relay) carry(to, from net.Conn, up bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		r.pass(up)
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// pass returns when something may go on in the direction.
func (r *relay) pass(up bool) {
	for {
		r.mu.Lock()
		w, changed := r.state, r.changed
		r.mu.Unlock()
		if cut := up && w.up || !up && w.down; !cut {
			time.Sleep(w.delay)
			return
		}
		<-changed
	}
}
