package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
)

func emptyWait(s *suite) {
	passed := s.clock()
	s.nothing("q", 0)
	passed(0)
	s.nothing("q", soon)
	passed(soon)
}

func wakeOnSend(s *suite) {
	got := s.receiver(s.Context(), "q")
	s.settle()
	passed := s.clock()
	s.send("q", "job_1", 0)
	if d := <-got; d.err != nil || string(d.Body) != "job_1" {
		s.Errorf("received %q, %v", d.Body, d.err)
	}
	passed(0)
}

func wakeOnRelease(s *suite) {
	s.send("q", "job_1", 0)
	m := s.receive("q", "job_1")
	got := s.receiver(s.Context(), "q")
	s.settle()
	passed := s.clock()
	s.extend("q", m, 0)
	if d := <-got; d.err != nil || string(d.Body) != "job_1" {
		s.Errorf("received %q, %v", d.Body, d.err)
	}
	passed(0)
}

func wakeForEarlier(s *suite) {
	s.send("q", "late", 2*hide)
	passed := s.clock()
	first := s.receiver(s.Context(), "q")
	s.settle()
	second := s.receiver(s.Context(), "q")
	s.settle()
	s.send("q", "early", hide)
	d := <-first
	passed(hide)
	if d.err != nil || !s.harness.Remote && string(d.Body) != "early" {
		s.Errorf("the receiver that waited longest received %q, %v", d.Body, d.err)
	}
	s.remove("q", d.Message)
	d = <-second
	passed(2 * hide)
	if d.err != nil {
		s.Error(d.err)
	}
	s.remove("q", d.Message)
}

func cancelled(s *suite) {
	ctx, cancel := context.WithCancel(s.Context())
	got := s.receiver(ctx, "q")
	s.settle()
	passed := s.clock()
	cancel()
	if d := <-got; !errors.Is(d.err, context.Canceled) {
		s.Errorf("received %q, %v; want context.Canceled", d.Body, d.err)
	}
	passed(0)
	s.send("q", "job_1", 0)
	if m := s.receive("q", "job_1"); m.Receives != 1 {
		s.Errorf("the cancelled receiver took the message: Receives is %d", m.Receives)
	}
}

// cancelledBaton has two receivers and cancels one of them while it sends two messages. If
// the cancelled receiver gets no message, its message must not be lost: another receiver
// gets it.
func cancelledBaton(s *suite) {
	for i := range 50 {
		name := fmt.Sprint("q", i)
		ctx, cancel := context.WithCancel(s.Context())
		leaving := s.receiver(ctx, name)
		s.settle()
		staying := s.receiver(s.Context(), name)
		s.settle()
		passed := s.clock()
		go cancel()
		s.send(name, "job_1", 0)
		s.send(name, "job_2", 0)
		d := <-staying
		passed(0)
		if d.err != nil {
			s.Fatalf("the receiver that was not cancelled: %v", d.err)
		}
		left := 1
		if d := <-leaving; d.err == nil {
			left = 0
		} else if !errors.Is(d.err, context.Canceled) {
			s.Fatalf("the cancelled receiver: %v", d.err)
		}
		if left > 0 {
			wait := time.Duration(0)
			if s.harness.Remote {
				wait = soon // the driver releases the message with a separate request, which takes time
			}
			if _, err := s.q.Receive(s.Context(), name, hide, wait); err != nil {
				s.Fatalf("receive of the message that the cancelled receiver did not take: %v", err)
			}
		}
	}
}

// manyReceivers checks the main guarantee of a queue: only one receiver has a message at
// any time. Each message is released once, so deliveries race with redeliveries.
func manyReceivers(s *suite) {
	const messages, receivers = 60, 16
	type key struct {
		body     string
		receives int
	}
	var mu sync.Mutex
	seen := map[key]int{}
	done := map[string]bool{}
	all := make(chan struct{})
	work := func(ctx context.Context) error {
		m, err := s.q.Receive(ctx, "q", time.Hour, queue.MaxWait)
		if err != nil {
			return err
		}
		mu.Lock()
		seen[key{string(m.Body), m.Receives}]++
		mu.Unlock()
		if m.Receives == 1 {
			return s.q.Extend(ctx, "q", m.Receipt, 0)
		}
		if err := s.q.Delete(ctx, "q", m.Receipt); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if done[string(m.Body)] = true; len(done) == messages {
			close(all)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range receivers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := work(ctx); err != nil && ctx.Err() == nil {
					s.Error(err)
					return
				}
			}
		})
	}
	for i := range messages {
		s.send("q", fmt.Sprint(i), 0)
	}
	<-all
	cancel()
	wg.Wait()
	for k, n := range seen {
		if n != 1 || k.receives > 2 {
			s.Errorf("delivery %d of message %s went to %d receivers", k.receives, k.body, n)
		}
	}
	s.nothing("q", 0)
}

func eachGetsOne(s *suite) {
	const n = 10
	var got []<-chan delivery
	for range n {
		got = append(got, s.receiver(s.Context(), "q"))
	}
	s.settle()
	passed := s.clock()
	for i := range n {
		s.send("q", fmt.Sprint(i), 0)
	}
	bodies := map[string]bool{}
	for _, c := range got {
		d := <-c
		if d.err != nil {
			s.Fatal(d.err)
		}
		bodies[string(d.Body)] = true
	}
	passed(0)
	if len(bodies) != n {
		s.Errorf("%d receivers got %d different messages", n, len(bodies))
	}
}
