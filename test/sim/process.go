package sim

import (
	"context"
	"runtime"
	"time"
)

// process is a simulated process, which can be killed or paused: a server, an agent, a step, a
// tool or a person's client. Its goroutines call the models through it.
type process struct {
	w      *world
	name   string
	ctx    context.Context // ends when the process ends
	cancel context.CancelFunc
	onKill func()        // what the kernel does after a kill; may be nil
	dead   chan struct{} // closed when the process is killed
	gone   chan struct{} // closed when the process exits by itself
	slept  bool          // the process was paused at least once
	resume chan struct{} // not nil while the process is paused; closed at the end of the pause
	wakes  *time.Timer   // ends the pause
}

func (w *world) spawn(name string) *process {
	p := &process{w: w, name: name, dead: make(chan struct{}), gone: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// alive reports whether the process has neither ended nor been killed.
func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	case <-p.gone:
		return false
	default:
		return true
	}
}

// kill ends the process as SIGKILL does.
func (p *process) kill() {
	p.w.mu.Lock()
	select {
	case <-p.dead:
		p.w.mu.Unlock()
		return
	default:
	}
	close(p.dead)
	p.w.mu.Unlock()
	p.w.note("%s is killed", p.name)
	p.cancel()
	if p.onKill != nil {
		p.onKill()
	}
}

// exit marks the process as exited.
func (p *process) exit() {
	p.w.mu.Lock()
	select {
	case <-p.gone:
	default:
		close(p.gone)
	}
	p.w.mu.Unlock()
	p.cancel()
}

// ended returns a channel that is closed when the process exits or is killed, or the run ends.
func (p *process) ended() <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		select {
		case <-p.dead:
		case <-p.gone:
		case <-p.w.ended:
		}
		close(ch)
	}()
	return ch
}

// pause stops the process for the duration d, as SIGSTOP does.
func (p *process) pause(d time.Duration) {
	p.w.mu.Lock()
	if p.resume != nil || !p.alive() {
		p.w.mu.Unlock()
		return
	}
	resume := make(chan struct{})
	p.resume, p.slept = resume, true
	p.wakes = time.AfterFunc(d, func() {
		p.w.mu.Lock()
		p.resume = nil
		p.w.mu.Unlock()
		close(resume)
		p.w.note("%s continues", p.name)
	})
	p.w.mu.Unlock()
	p.w.note("%s is paused for %s", p.name, d)
}

// wake changes the pause of a paused process, so that the pause ends after the duration d.
func (p *process) wake(d time.Duration) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.resume != nil && p.wakes.Stop() {
		p.wakes.Reset(d)
	}
}

func (p *process) paused() <-chan struct{} {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.resume == nil {
		return nil
	}
	return p.resume
}

// check ends the calling goroutine if the process was killed, and blocks it while the process
// is paused.
func (p *process) check(place string) {
	for {
		select {
		case <-p.dead:
			runtime.Goexit()
		default:
		}
		resume := p.paused()
		if resume == nil {
			return
		}
		select {
		case <-resume:
			p.sleep(p.w.between("resume "+place, time.Microsecond, time.Millisecond))
		case <-p.dead:
			runtime.Goexit()
		}
	}
}

// sleep sleeps like time.Sleep, but ends the calling goroutine when the process is killed.
func (p *process) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.dead:
		runtime.Goexit()
	}
}

// cross is a crossing: it sleeps for a time between low and high that depends on the place.
func (p *process) cross(place string, low, high time.Duration) {
	p.check(place)
	p.sleep(p.w.between("time "+place, low, high))
	p.check(place)
}

// random returns a random number. The real code uses these numbers to vary its pauses.
func (p *process) random() float64 { return p.w.unit(p.w.place(p.name, "random")) }
