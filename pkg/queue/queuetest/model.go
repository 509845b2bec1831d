package queuetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/queue"
)

// modelMessage is a message of the model. The model is the simplest implementation of the
// contract. If several messages are visible, neither the contract nor the model determines
// which message Receive returns.
type modelMessage struct {
	name     string
	visible  time.Time
	receives int
	receipt  string // receipt of the latest delivery
}

func (m *modelMessage) isVisible() bool { return !m.visible.After(time.Now()) }
func (m *modelMessage) isDead() bool    { return m.isVisible() && m.receives >= MaxReceives }

// checkModel makes random calls to a queue and compares the results with the model. It runs
// in a synctest bubble, so that the queue and the model have the same clock.
func checkModel(t *testing.T, h Harness) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		q, done := h.Open(t, dir)
		defer func() { done() }()
		run := 0
		// The struct hides the *testing.T from rapid. Otherwise rapid would read the
		// deadline of the test, which has no meaning in a bubble.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			run++ // each run has its own queues
			c := &checker{t: t, q: q, names: []string{fmt.Sprint("a", run), fmt.Sprint("b", run)}, messages: map[string]*modelMessage{}}
			actions := map[string]func(*rapid.T){
				"send": c.send, "receive": c.receive, "delete": c.delete, "extend": c.extend,
				"dead letters": c.deadLetters, "drop": c.drop,
				"time passes": func(rt *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 4).Draw(rt, "seconds")) * time.Second)
				},
			}
			if !h.Volatile {
				actions["reopen"] = func(rt *rapid.T) {
					if rapid.IntRange(0, 4).Draw(rt, "rarely") > 0 {
						rt.Skip("reopening is slow")
					}
					done()
					q, done = h.Open(t, dir)
					c.q = q
				}
			}
			rt.Repeat(actions)
		})
	})
}

type checker struct {
	t        *testing.T
	q        queue.Queue
	names    []string
	sent     int
	messages map[string]*modelMessage // the model's messages by body
	receipts []string                 // all receipts that Receive has returned
}

func (c *checker) name(rt *rapid.T) string { return rapid.SampledFrom(c.names).Draw(rt, "queue") }

func (c *checker) seconds(rt *rapid.T, what string) time.Duration {
	return time.Duration(rapid.IntRange(0, 3).Draw(rt, what)) * time.Second
}

// find returns the bodies of the queue's messages for which is returns true.
func (c *checker) find(name string, is func(*modelMessage) bool) (bodies []string) {
	for _, body := range slices.Sorted(maps.Keys(c.messages)) {
		if m := c.messages[body]; m.name == name && is(m) {
			bodies = append(bodies, body)
		}
	}
	return bodies
}

func (c *checker) send(rt *rapid.T) {
	name, delay := c.name(rt), c.seconds(rt, "delay")
	c.sent++
	body := fmt.Sprintf("message %d", c.sent)
	if err := c.q.Send(c.t.Context(), name, []byte(body), delay); err != nil {
		rt.Fatalf("send: %v", err)
	}
	c.messages[body] = &modelMessage{name: name, visible: time.Now().Add(delay)}
}

func (c *checker) receive(rt *rapid.T) {
	name, hide, wait := c.name(rt), c.seconds(rt, "hide"), c.seconds(rt, "wait")
	live := func(m *modelMessage) bool { return m.isVisible() && m.receives < MaxReceives }
	// next is the time when Receive must return. If no message is visible, Receive waits
	// until a message becomes visible.
	next := time.Now().Add(wait)
	for _, m := range c.messages {
		if m.name == name && m.receives < MaxReceives && m.visible.Before(next) {
			next = m.visible
		}
	}
	if next.Before(time.Now()) {
		next = time.Now()
	}
	got, err := c.q.Receive(c.t.Context(), name, hide, wait)
	if now := time.Now(); !now.Equal(next) {
		rt.Fatalf("receive returned %s too late", now.Sub(next))
	}
	want := c.find(name, live)
	if errors.Is(err, queue.ErrNoMessage) && len(want) == 0 {
		return
	}
	body := string(got.Body)
	if err != nil || !slices.Contains(want, body) {
		rt.Fatalf("received %q, %v; want one of %q", body, err, want)
	}
	m := c.messages[body]
	m.receives++
	m.visible = time.Now().Add(hide)
	m.receipt = got.Receipt
	if got.Receives != m.receives {
		rt.Fatalf("delivery %d of %s has Receives %d", m.receives, body, got.Receives)
	}
	if slices.Contains(c.receipts, got.Receipt) {
		rt.Fatalf("receipt %s was returned twice", got.Receipt)
	}
	c.receipts = append(c.receipts, got.Receipt)
}

// draw returns an earlier receipt. It also returns the body and the message whose latest
// delivery has this receipt, or "" and nil if there is no such message.
func (c *checker) draw(rt *rapid.T) (receipt, body string, m *modelMessage) {
	if len(c.receipts) == 0 {
		rt.Skip("no receipt yet")
	}
	receipt = rapid.SampledFrom(c.receipts).Draw(rt, "receipt")
	for body, m := range c.messages {
		if m.receipt == receipt {
			return receipt, body, m
		}
	}
	return receipt, "", nil
}

func (c *checker) delete(rt *rapid.T) {
	name := c.name(rt)
	receipt, body, m := c.draw(rt)
	err := c.q.Delete(c.t.Context(), name, receipt)
	switch {
	case m == nil: // the message was deleted or delivered again; the model does not know which of the two happened
		if err != nil && !errors.Is(err, queue.ErrReceipt) {
			rt.Fatalf("delete with old receipt %s: %v", receipt, err)
		}
	case m.name != name:
		if !errors.Is(err, queue.ErrReceipt) {
			rt.Fatalf("delete of %s in %s: %v, want ErrReceipt", body, name, err)
		}
	default:
		if err != nil {
			rt.Fatalf("delete of %s: %v", body, err)
		}
		delete(c.messages, body)
	}
}

func (c *checker) extend(rt *rapid.T) {
	name, hide := c.name(rt), c.seconds(rt, "hide")
	receipt, body, m := c.draw(rt)
	err := c.q.Extend(c.t.Context(), name, receipt, hide)
	if m == nil || m.name != name || m.isVisible() {
		if !errors.Is(err, queue.ErrReceipt) {
			rt.Fatalf("extend of %q with %s: %v, want ErrReceipt", body, receipt, err)
		}
		return
	}
	if err != nil {
		rt.Fatalf("extend of %s: %v", body, err)
	}
	m.visible = time.Now().Add(hide)
}

func (c *checker) deadLetters(rt *rapid.T) {
	name, limit := c.name(rt), rapid.IntRange(1, 3).Draw(rt, "limit")
	want := c.find(name, (*modelMessage).isDead)
	dead, err := c.q.DeadLetters(c.t.Context(), name, limit)
	if err != nil || len(dead) > limit || len(dead) == 0 && len(want) > 0 {
		rt.Fatalf("%d dead letters, %v; want some of %q, at most %d", len(dead), err, want, limit)
	}
	for _, d := range dead {
		if !slices.Contains(want, string(d.Body)) || d.Receives != MaxReceives {
			rt.Fatalf("dead letter %q after %d deliveries; want one of %q", d.Body, d.Receives, want)
		}
		delete(c.messages, string(d.Body))
	}
}

func (c *checker) drop(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "rarely") > 0 {
		rt.Skip("a rare call, so that queues are not always empty")
	}
	name := c.name(rt)
	if err := c.q.Drop(c.t.Context(), name); err != nil {
		rt.Fatalf("drop: %v", err)
	}
	maps.DeleteFunc(c.messages, func(_ string, m *modelMessage) bool { return m.name == name })
}
