// Package queuetest is the conformance suite of queue.Queue, and a queue in
// memory that passes it.
//
// A driver inside this process is tested in synctest bubbles, whose clock
// moves only when everybody waits. So the suite sleeps through a visibility
// timeout in no time, states to the nanosecond when a message is delivered,
// and fails when a receiver's goroutine outlives its call. A driver of a
// server elsewhere is tested in real time, without those exact statements.
package queuetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
)

// MaxReceives is after how many deliveries the harness's queues make a
// message a dead letter.
const MaxReceives = 3

// hide is the suite's visibility timeout: SQS counts in seconds.
const hide = 2 * time.Second

// soon is a wait that is shorter than hide.
const soon = time.Second

// Harness reaches one driver.
type Harness struct {
	// Open opens the queue that keeps its data in dir, with MaxReceives, and
	// returns what closes it. Opening the same dir again after closing must
	// find what was stored.
	Open func(t *testing.T, dir string) (q queue.Queue, close func())

	// Volatile drivers keep nothing after close: not tested for durability.
	Volatile bool

	// Remote drivers reach a server outside of this process: tested in real
	// time. Their queues must have names of their own in every test; Open can
	// arrange that.
	Remote bool
}

// suite is what a test works with.
type suite struct {
	*testing.T
	q       queue.Queue
	harness Harness
	dir     string
	close   func()
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	tests := []struct {
		name string
		test func(*suite)
	}{
		{"message is received, hidden, deleted and gone", story},
		{"message that is not deleted comes back when its hiding ends", redelivery},
		{"message hidden for no time is visible at once", hideForNoTime},
		{"receipt of an earlier delivery gives no right", oldReceipts},
		{"receipt is refused where it is not from", foreignReceipts},
		{"late owner deletes a message that nobody took since", lateDelete},
		{"extended message stays hidden from then on", extend},
		{"message given back is visible at once", giveBack},
		{"delayed message is invisible until its time", delayed},
		{"wait ends without a message", emptyWait},
		{"waiting receiver wakes when a message is sent", wakeOnSend},
		{"waiting receiver wakes when a message is given back", wakeOnGiveBack},
		{"waiting receiver wakes for the earlier of two messages", wakeForEarlier},
		{"cancelled receiver returns and takes nothing", cancelled},
		{"wake-up of a cancelled receiver reaches the next", cancelledBaton},
		{"message received too often becomes a dead letter", deadLetters},
		{"dead letters do not hold up the queue", deadLettersAside},
		{"dead letters are taken by part", deadLettersByPart},
		{"queues do not share messages", separateQueues},
		{"dropped queue is empty and usable", drop},
		{"old message is not starved by new ones", noStarvation},
		{"many receivers never share a delivery", manyReceivers},
		{"each waiting receiver gets one of as many messages", eachGetsOne},
		{"any bytes travel, up to the limit", bodies},
		{"caller's bytes are its own", ownBytes},
		{"arguments outside the limits are refused", limits},
		{"ended context does nothing", endedContext},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { h.run(t, c.test) })
	}
	t.Run("what was sent is there after reopening", func(t *testing.T) {
		if h.Volatile {
			t.Skip("the driver keeps nothing")
		}
		h.run(t, reopen)
	})
	t.Run("any sequence of calls agrees with a model", func(t *testing.T) {
		if h.Remote {
			t.Skip("the model needs the driver's clock")
		}
		checkModel(t, h)
	})
}

func (h Harness) run(t *testing.T, test func(*suite)) {
	dir := t.TempDir()
	body := func(t *testing.T) {
		s := &suite{T: t, harness: h, dir: dir}
		s.open()
		defer func() { s.close() }()
		test(s)
	}
	if h.Remote {
		body(t)
		return
	}
	synctest.Test(t, body)
}

func (s *suite) open() { s.q, s.close = s.harness.Open(s.T, s.dir) }

// settle waits until every other goroutine of the test waits for something.
// In real time it cannot be known; the tests hold without it, too.
func (s *suite) settle() {
	if !s.harness.Remote {
		synctest.Wait()
	}
}

// clock returns a function that checks how much time has passed since.
func (s *suite) clock() func(want time.Duration) {
	start := time.Now()
	return func(want time.Duration) {
		s.Helper()
		if got := time.Since(start); !s.harness.Remote && got != want {
			s.Errorf("took %s, want %s", got, want)
		}
	}
}

func (s *suite) send(name, body string, delay time.Duration) {
	s.Helper()
	if err := s.q.Send(s.Context(), name, []byte(body), delay); err != nil {
		s.Fatalf("send %q: %v", body, err)
	}
}

// receive waits for a message, which must have the body.
func (s *suite) receive(name, body string) queue.Message {
	s.Helper()
	m, err := s.q.Receive(s.Context(), name, hide, queue.MaxWait)
	if err != nil {
		s.Fatalf("receive: %v, want %q", err, body)
	}
	if string(m.Body) != body {
		s.Fatalf("received %q, want %q", m.Body, body)
	}
	if m.ID == "" || m.Receipt == "" || m.Receives < 1 {
		s.Fatalf("incomplete delivery: %+v", m)
	}
	return m
}

// nothing checks that no message becomes visible within wait.
func (s *suite) nothing(name string, wait time.Duration) {
	s.Helper()
	m, err := s.q.Receive(s.Context(), name, hide, wait)
	if !errors.Is(err, queue.ErrNoMessage) {
		s.Fatalf("received %q, %v; want no message", m.Body, err)
	}
}

func (s *suite) remove(name string, m queue.Message) {
	s.Helper()
	if err := s.q.Delete(s.Context(), name, m.Receipt); err != nil {
		s.Fatalf("delete %q: %v", m.Body, err)
	}
}

func (s *suite) extend(name string, m queue.Message, by time.Duration) {
	s.Helper()
	if err := s.q.Extend(s.Context(), name, m.Receipt, by); err != nil {
		s.Fatalf("extend %q: %v", m.Body, err)
	}
}

// refused checks that neither Delete nor Extend accepts the receipt.
func (s *suite) refused(name, receipt string) {
	s.Helper()
	if err := s.q.Delete(s.Context(), name, receipt); !errors.Is(err, queue.ErrReceipt) {
		s.Errorf("delete with receipt %q: %v, want ErrReceipt", receipt, err)
	}
	if err := s.q.Extend(s.Context(), name, receipt, hide); !errors.Is(err, queue.ErrReceipt) {
		s.Errorf("extend with receipt %q: %v, want ErrReceipt", receipt, err)
	}
}

// delivery is what a receiver in a goroutine got.
type delivery struct {
	queue.Message
	err error
}

// receiver starts a Receive in the background.
func (s *suite) receiver(ctx context.Context, name string) <-chan delivery {
	got := make(chan delivery, 1)
	go func() {
		m, err := s.q.Receive(ctx, name, hide, queue.MaxWait)
		got <- delivery{m, err}
	}()
	return got
}
