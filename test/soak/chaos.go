//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/e2e"
)

// lease is the server's default lease time.
const lease = 45 * time.Second

// chaos causes faults until its context ends, and then repairs all of them.
type chaos struct {
	w     *world
	log   *os.File
	watch *watcher

	mu   sync.Mutex
	hits map[string]int
	busy map[string]bool // machines that have a lasting fault, by name; a machine has at most one lasting fault at a time
	errs []error         // faults that could not be repaired
}

// target is the machine of a fault: a host, or the control plane's machine if host is nil.
type target struct{ host *host }

func (t target) name() string {
	if t.host == nil {
		return "server"
	}
	return t.host.name
}

func (t target) wall(w *world) *clock {
	if t.host == nil {
		return w.wall
	}
	return t.host.wall
}

func (t target) data(w *world) string {
	if t.host == nil {
		return w.data
	}
	return t.host.data
}

// fault is a kind of fault. run causes the fault, waits, and repairs it. It reports whether the
// fault had a target.
type fault struct {
	name   string
	weight int
	server bool              // the control plane can have the fault
	host   bool              // a host can have the fault
	beside bool              // the fault can occur during a lasting fault of the same machine
	unmet  func(*world) bool // reports whether this system lacks something that the fault needs; nil: the fault needs nothing
	run    func(context.Context, *chaos, target, *rand.Rand) bool
}

// span draws a duration between from and to.
func span(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// away draws the duration of an outage: mostly short, in one of eight cases longer than a lease.
func away(r *rand.Rand) time.Duration {
	if r.IntN(8) == 0 {
		return span(r, lease+5*time.Second, lease+20*time.Second)
	}
	return span(r, 200*time.Millisecond, 8*time.Second)
}

func noDisks(w *world) bool { return !w.disks }
func noClock(w *world) bool { return !w.Clock }

func faults() []fault {
	return []fault{
		{name: "kill server", weight: 8, beside: true, server: true, run: func(_ context.Context, c *chaos, _ target, r *rand.Rand) bool {
			return c.w.server.kill(span(r, 50*time.Millisecond, 4*time.Second))
		}},
		{name: "kill agent", weight: 6, beside: true, host: true, run: func(_ context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return t.host.agent.kill(span(r, 50*time.Millisecond, 6*time.Second))
		}},
		{name: "kill step", weight: 10, beside: true, host: true, run: func(ctx context.Context, c *chaos, t target, r *rand.Rand) bool {
			return c.killPart(ctx, t.host, false, r)
		}},
		{name: "kill tool", weight: 8, beside: true, host: true, run: func(ctx context.Context, c *chaos, t target, r *rand.Rand) bool {
			return c.killPart(ctx, t.host, true, r)
		}},
		{name: "kill host", weight: 5, host: true, run: func(ctx context.Context, c *chaos, t target, r *rand.Rand) bool {
			t.host.agent.hold()
			defer t.host.agent.release()
			died := t.host.alive(false)
			t.host.killAll()
			d := away(r)
			if d > lease {
				c.watch.died("dead host", died)
			}
			sleep(ctx, d)
			return true
		}},
		{name: "drain agent", weight: 3, host: true, run: func(_ context.Context, _ *chaos, t target, _ *rand.Rand) bool {
			return t.host.agent.signal(syscall.SIGTERM)
		}},
		{name: "pause server", weight: 4, server: true, run: func(ctx context.Context, c *chaos, _ target, r *rand.Rand) bool {
			return pause(ctx, c.w.server, away(r))
		}},
		{name: "pause agent", weight: 4, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return pause(ctx, t.host.agent, away(r))
		}},
		{name: "pause step", weight: 4, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return pausePart(ctx, t.host, false, r)
		}},
		{name: "pause tool", weight: 4, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return pausePart(ctx, t.host, true, r)
		}},
		{name: "pause host", weight: 4, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			t.host.agent.signal(syscall.SIGSTOP)
			t.host.signalAll(syscall.SIGSTOP)
			sleep(ctx, away(r))
			t.host.signalAll(syscall.SIGCONT)
			t.host.agent.signal(syscall.SIGCONT)
			return true
		}},
		{name: "disk full", weight: 5, server: true, host: true, unmet: noDisks, run: func(ctx context.Context, c *chaos, t target, r *rand.Rand) bool {
			data := t.data(c.w)
			if err := e2e.FillUp(c.w.filler(data)); err != nil {
				c.err("fill the disk of "+t.name(), errors.Join(err, c.w.free(data)))
				return false
			}
			end := time.Now().Add(span(r, time.Second, 10*time.Second))
			for time.Now().Before(end) && ctx.Err() == nil {
				sleep(ctx, 100*time.Millisecond)
				_ = e2e.FillUp(c.w.filler(data)) // space that other programs freed meanwhile
			}
			c.err("free the disk of "+t.name(), c.w.free(data))
			return true
		}},
		{name: "network cut", weight: 5, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return storm(ctx, t.host, weather{up: true, down: true}, away(r))
		}},
		{name: "network: answers lost", weight: 4, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return storm(ctx, t.host, weather{down: true}, away(r))
		}},
		{name: "network: slow and lossy", weight: 5, host: true, run: func(ctx context.Context, _ *chaos, t target, r *rand.Rand) bool {
			return storm(ctx, t.host, weather{delay: span(r, 10*time.Millisecond, 400*time.Millisecond), jitter: 50 * time.Millisecond,
				loss: r.Float64() * 0.1}, span(r, 5*time.Second, 30*time.Second))
		}},
		{name: "clock jumps", weight: 6, server: true, host: true, unmet: noClock, run: func(_ context.Context, c *chaos, t target, r *rand.Rand) bool {
			// The clock stays wrong until the next jump. Runners accept a difference
			// of two minutes to the control plane's clock. If it is larger, they refuse jobs.
			d := span(r, -time.Minute, time.Minute)
			if r.IntN(6) == 0 {
				d = span(r, -5*time.Minute, 5*time.Minute)
			}
			c.err("set the clock of "+t.name(), t.wall(c.w).set(d))
			return true
		}},
	}
}

func (c *chaos) killPart(_ context.Context, h *host, tool bool, r *rand.Rand) bool {
	parts := h.alive(tool)
	if len(parts) == 0 {
		return false
	}
	p := parts[r.IntN(len(parts))]
	if syscall.Kill(p.pid, syscall.SIGKILL) != nil {
		return false
	}
	if !tool {
		c.watch.died("dead step", []part{p})
	}
	return true
}

func pause(ctx context.Context, p *program, d time.Duration) bool {
	cur := p.current()
	if cur == nil {
		return false
	}
	cur.Signal(syscall.SIGSTOP)
	sleep(ctx, d)
	cur.Signal(syscall.SIGCONT)
	return true
}

func pausePart(ctx context.Context, h *host, tool bool, r *rand.Rand) bool {
	parts := h.alive(tool)
	if len(parts) == 0 {
		return false
	}
	p := parts[r.IntN(len(parts))]
	if syscall.Kill(p.pid, syscall.SIGSTOP) != nil {
		return false
	}
	sleep(ctx, away(r))
	_ = syscall.Kill(p.pid, syscall.SIGCONT) // it may have been killed
	return true
}

func storm(ctx context.Context, h *host, w weather, d time.Duration) bool {
	h.wire.set(w)
	sleep(ctx, d)
	h.wire.set(weather{})
	return true
}

// run causes faults until ctx ends, and returns when all faults are repaired. The seed determines
// the faults, their order, their targets and their durations. It does not determine what the
// programs do when a fault occurs.
func (c *chaos) run(ctx context.Context, seed uint64, between time.Duration) {
	r := rand.New(rand.NewPCG(seed, 0))
	var possible []fault
	total := 0
	for _, f := range faults() {
		if f.unmet == nil || !f.unmet(c.w) {
			possible = append(possible, f)
			total += f.weight
		}
	}
	var running sync.WaitGroup
	for n := uint64(1); ctx.Err() == nil; n++ {
		sleep(ctx, time.Duration(r.ExpFloat64()*float64(between)))
		f, at := pick(possible, r.IntN(total)), r.IntN(len(c.w.hosts))
		t := target{c.w.hosts[at]}
		if f.server && (!f.host || r.IntN(3) == 0) {
			t.host = nil
		}
		own := rand.New(rand.NewPCG(seed, n))
		if !f.beside && !c.take(t) {
			continue
		}
		running.Go(func() {
			if !f.beside {
				defer c.give(t)
			}
			begun := time.Now()
			hit := f.run(ctx, c, t, own)
			c.note(f.name, t, begun, hit)
		})
	}
	running.Wait()
	for _, t := range append([]target{{}}, targets(c.w.hosts)...) {
		c.err("set the clock of "+t.name(), t.wall(c.w).set(0))
	}
}

func targets(hosts []*host) (all []target) {
	for _, h := range hosts {
		all = append(all, target{h})
	}
	return all
}

func pick(faults []fault, at int) fault {
	for _, f := range faults {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("the weights do not add up")
}

func (c *chaos) take(t target) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[t.name()] {
		return false
	}
	c.busy[t.name()] = true
	return true
}

func (c *chaos) give(t target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, t.name())
}

func (c *chaos) note(name string, t target, begun time.Time, hit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hit {
		c.hits[name]++
	}
	fmt.Fprintf(c.log, "%s %s on %s for %s, hit %t, clock wrong by %s\n", begun.UTC().Format(time.RFC3339Nano), name, t.name(),
		time.Since(begun).Round(time.Millisecond), hit, t.wall(c.w).wrongBy().Round(time.Millisecond))
}

func (c *chaos) err(what string, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, fmt.Errorf("%s: %w", what, err))
}
