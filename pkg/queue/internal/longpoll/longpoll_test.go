package longpoll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/queue"
)

// The conformance suite tests the board through the drivers of queue.Queue. The tests of this
// file need their own function take.

func none(context.Context) (queue.Message, time.Time, error) {
	return queue.Message{}, time.Time{}, queue.ErrNoMessage
}

func one(context.Context) (queue.Message, time.Time, error) {
	return queue.Message{ID: "1"}, time.Now().Add(time.Second), nil
}

func TestBoardIsEmptyWithoutReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(time.Now)
		looks := 0
		_, err := b.Receive(t.Context(), "q", 5*time.Second, func(context.Context) (queue.Message, time.Time, error) {
			looks++
			if looks == 1 {
				b.Visible("q", time.Now()) // the second take finds no message, as if another receiver took it
			}
			return queue.Message{}, time.Now().Add(2 * time.Second), queue.ErrNoMessage
		})
		// Receive calls take at the start, for the wake-up, twice for the timer, and at the
		// end.
		if !errors.Is(err, queue.ErrNoMessage) || looks != 5 {
			t.Errorf("%v after %d calls of take, want no message after 5", err, looks)
		}
		if len(b.lines) != 0 {
			t.Errorf("the board still has a line: %+v", b.lines["q"])
		}
	})
}

func TestReceiverWithoutAMessageKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(time.Now)
		visible := false
		take := func(ctx context.Context) (queue.Message, time.Time, error) {
			if !visible {
				return none(ctx)
			}
			visible = false
			return one(ctx)
		}
		first, second := make(chan error, 1), make(chan error, 1)
		for _, got := range []chan error{first, second} {
			go func() {
				_, err := b.Receive(t.Context(), "q", queue.MaxWait, take)
				got <- err
			}()
			synctest.Wait()
		}
		b.Visible("q", time.Now()) // wakes the first receiver, which finds no message
		synctest.Wait()
		visible = true
		b.Visible("q", time.Now())
		synctest.Wait()
		select {
		case err := <-first:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the second receiver got the message before the first")
		}
		<-second // the second receiver returns when its wait ends
	})
}

func TestRedeliveryWakesAWaitingReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(time.Now)
		start := time.Now()
		got := make(chan time.Duration)
		go func() {
			looks := 0
			_, err := b.Receive(t.Context(), "q", queue.MaxWait, func(ctx context.Context) (queue.Message, time.Time, error) {
				if looks++; looks == 1 {
					return none(ctx)
				}
				return one(ctx)
			})
			if err != nil {
				t.Error(err)
			}
			got <- time.Since(start)
		}()
		synctest.Wait()
		if _, err := b.Receive(t.Context(), "q", 0, one); err != nil {
			t.Fatal(err)
		}
		if took := <-got; took != time.Second {
			t.Errorf("the receiver woke after %s, want 1s", took)
		}
	})
}
