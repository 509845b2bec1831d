//go:build linux

package main

import (
	"net"
	"sync"
	"time"
)

// relay replaces a link if there are no network namespaces. A runner's connections to its
// control plane go through it. It can hold and delay bytes, but it drops nothing. So during a
// cut, a connection is silent until the cut ends. Artifacts do not go through it, because the
// control plane sets their address. Safe for concurrent use.
type relay struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	state   weather
	changed chan struct{} // closed at the next change
}

// newRelay starts a relay to the target address. It runs until this process ends.
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
		return // the control plane does not run, so the runner's connection breaks
	}
	defer up.Close()
	var both sync.WaitGroup
	both.Go(func() { r.carry(up, down, true) })
	both.Go(func() { r.carry(down, up, false) })
	both.Wait()
}

// carry copies bytes until one side ends, and then closes both.
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

// pass blocks while the direction is cut, and then sleeps for the delay.
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
