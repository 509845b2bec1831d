// Package queuetest is the conformance suite of queue.Queue. It also has a queue in memory
// that passes the suite.
//
// The suite tests a driver inside this process in synctest bubbles. A bubble's clock
// advances only when all goroutines of the bubble wait. So a visibility timeout takes no
// real time, and the suite checks the time of a delivery to the nanosecond. If a goroutine
// still runs after its Receive has returned, the test fails. The suite tests a driver of an
// external server in real time, without these exact checks.
package queuetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
)

// MaxReceives is the number of deliveries after which a message becomes a dead letter. The
// queues of the Harness must have this setting.
const MaxReceives = 3

// hide is the visibility timeout of the suite. It has whole seconds, because SQS counts in
// seconds.
const hide = 2 * time.Second

// soon is a wait shorter than hide.
const soon = time.Second

// Harness connects the suite to one driver.
type Harness struct {
	// Open opens the queue that stores its data in dir, with MaxReceives. It returns the
	// queue and a function that closes it. After close, opening the same dir again must
	// find the stored messages.
	Open func(t *testing.T, dir string) (q queue.Queue, close func())

	// Volatile is true for a driver that loses its messages on close. The suite does not
	// test its durability.
	Volatile bool

	// Remote is true for a driver that uses a server outside this process. The suite tests
	// it in real time. Each test must have queues with other names on the server; Open can
	// ensure this.
	Remote bool
}

// suite is the environment of one test.
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
		{"message is received, hidden and deleted", story},
		{"undeleted message becomes visible after its timeout", redelivery},
		{"message hidden for 0 s is visible at once", hideForNoTime},
		{"receipt of an earlier delivery is refused", oldReceipts},
		{"receipt of another queue is refused", foreignReceipts},
		{"late owner deletes a message that was not received again", lateDelete},
		{"extended message is hidden from the time of the call", extend},
		{"released message is visible at once", release},
		{"delayed message is invisible until its time", delayed},
		{"wait ends without a message", emptyWait},
		{"waiting receiver wakes when a message is sent", wakeOnSend},
		{"waiting receiver wakes when a message is released", wakeOnRelease},
		{"waiting receiver wakes for the earlier of two messages", wakeForEarlier},
		{"cancelled receiver returns and takes no message", cancelled},
		{"wake-up of a cancelled receiver reaches the next one", cancelledBaton},
		{"message received too often becomes a dead letter", deadLetters},
		{"dead letters do not block the queue", deadLettersAside},
		{"dead letters can be taken in parts", deadLettersByPart},
		{"queues do not share messages", separateQueues},
		{"dropped queue is empty and usable", drop},
		{"old message is delivered despite new ones", noStarvation},
		{"visible messages are delivered by their rank", ranks},
		{"many receivers never get the same delivery", manyReceivers},
		{"each waiting receiver gets one message", eachGetsOne},
		{"body of any bytes is unchanged, up to the limit", bodies},
		{"queue and caller share no memory", ownBytes},
		{"arguments outside the limits are refused", limits},
		{"call with an ended context does nothing", endedContext},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { h.run(t, c.test) })
	}
	t.Run("messages survive reopening", func(t *testing.T) {
		if h.Volatile {
			t.Skip("the driver is volatile")
		}
		h.run(t, reopen)
	})
	t.Run("random calls give the same results as a model", func(t *testing.T) {
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

// settle waits until every other goroutine of the test waits. In real time the suite cannot
// find this out, so settle does nothing. The tests also pass without settle.
func (s *suite) settle() {
	if !s.harness.Remote {
		synctest.Wait()
	}
}

// clock returns a function that checks the time since the call of clock, unless the driver
// is remote.
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

// receive waits for a message and checks its body.
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

// nothing checks that no message is visible or becomes visible within the duration wait.
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

// delivery is the result of a receiver in a goroutine.
type delivery struct {
	queue.Message
	err error
}

// receiver starts Receive in the background.
func (s *suite) receiver(ctx context.Context, name string) <-chan delivery {
	got := make(chan delivery, 1)
	go func() {
		m, err := s.q.Receive(ctx, name, hide, queue.MaxWait)
		got <- delivery{m, err}
	}()
	return got
}
