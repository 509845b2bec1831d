package queuetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/queue"
)

func story(s *suite) {
	s.nothing("q", 0)
	s.send("q", "job_1", 0)
	m := s.receive("q", "job_1")
	if m.Receives != 1 {
		s.Errorf("the first delivery has Receives %d, want 1", m.Receives)
	}
	s.nothing("q", soon)
	s.remove("q", m)
	s.nothing("q", 2*hide)
	s.remove("q", m) // already deleted: no error
	if err := s.q.Extend(s.Context(), "q", m.Receipt, hide); !errors.Is(err, queue.ErrReceipt) {
		s.Errorf("extending a deleted message: %v, want ErrReceipt", err)
	}
}

func redelivery(s *suite) {
	s.send("q", "job_1", 0)
	passed := s.clock()
	first := s.receive("q", "job_1")
	second := s.receive("q", "job_1")
	passed(hide)
	if second.ID != first.ID || second.Receives != 2 || second.Receipt == first.Receipt {
		s.Errorf("first %+v, then %+v: want the same message, its second delivery, another receipt", first, second)
	}
	s.remove("q", second)
	s.nothing("q", 2*hide)
}

func hideForNoTime(s *suite) {
	s.send("q", "job_1", 0)
	if _, err := s.q.Receive(s.Context(), "q", 0, 0); err != nil {
		s.Fatal(err)
	}
	passed := s.clock()
	s.receive("q", "job_1")
	passed(0)
}

func oldReceipts(s *suite) {
	s.send("q", "job_1", 0)
	first := s.receive("q", "job_1")
	second := s.receive("q", "job_1")
	s.refused("q", first.Receipt)
	s.nothing("q", soon) // the refused calls changed nothing
	s.remove("q", second)
	if err := s.q.Delete(s.Context(), "q", first.Receipt); err != nil {
		s.Errorf("delete of a deleted message: %v, want no error", err)
	}
}

func foreignReceipts(s *suite) {
	s.send("q", "job_1", 0)
	s.send("other", "job_2", 0)
	m := s.receive("q", "job_1")
	other := s.receive("other", "job_2")
	s.refused("other", m.Receipt)
	for _, receipt := range []string{"", "x", "1", "1.", ".1", "1.x", "x.1", m.Receipt + "0", strings.Repeat("9", 99) + ".1"} {
		s.refused("q", receipt)
	}
	s.remove("q", m)
	s.remove("other", other)
	s.nothing("q", 2*hide)
	s.nothing("other", 0)
}

func lateDelete(s *suite) {
	s.send("q", "job_1", 0)
	m := s.receive("q", "job_1")
	s.nothing("q", soon)
	time.Sleep(hide)
	if err := s.q.Extend(s.Context(), "q", m.Receipt, hide); !errors.Is(err, queue.ErrReceipt) {
		s.Errorf("extending a message that is visible again: %v, want ErrReceipt", err)
	}
	s.remove("q", m)
	s.nothing("q", 2*hide)
}

func extend(s *suite) {
	s.send("q", "job_1", 0)
	m := s.receive("q", "job_1")
	s.nothing("q", soon)
	s.extend("q", m, 2*hide)
	passed := s.clock()
	s.nothing("q", hide+soon)
	second := s.receive("q", "job_1")
	passed(2 * hide)
	if second.Receives != 2 {
		s.Errorf("Extend was counted as a delivery: Receives is %d", second.Receives)
	}
	s.extend("q", second, time.Second) // a shorter time is also possible
	passed = s.clock()
	s.receive("q", "job_1")
	passed(time.Second)
}

func release(s *suite) {
	s.send("q", "job_1", 0)
	m := s.receive("q", "job_1")
	s.extend("q", m, 0)
	passed := s.clock()
	s.receive("q", "job_1")
	passed(0)
}

func delayed(s *suite) {
	s.send("q", "later", 2*hide)
	s.send("q", "now", 0)
	passed := s.clock()
	s.remove("q", s.receive("q", "now"))
	s.nothing("q", hide)
	m := s.receive("q", "later")
	passed(2 * hide)
	if m.Receives != 1 {
		s.Errorf("the first delivery of a delayed message has Receives %d, want 1", m.Receives)
	}
}

func deadLetters(s *suite) {
	s.send("q", "poison", 0)
	for i := range MaxReceives {
		if dead, err := s.q.DeadLetters(s.Context(), "q", 10); err != nil || len(dead) != 0 {
			s.Fatalf("after %d deliveries: %d dead letters, %v", i, len(dead), err)
		}
		if m := s.receive("q", "poison"); m.Receives != i+1 {
			s.Fatalf("delivery %d has Receives %d", i+1, m.Receives)
		}
	}
	s.nothing("q", soon)
	if dead, err := s.q.DeadLetters(s.Context(), "q", 10); err != nil || len(dead) != 0 {
		s.Fatalf("%d dead letters, %v; want none before the last delivery ends", len(dead), err)
	}
	s.nothing("q", hide)
	dead, err := s.q.DeadLetters(s.Context(), "q", 10)
	if err != nil || len(dead) != 1 {
		s.Fatalf("%d dead letters, %v; want one", len(dead), err)
	}
	if d := dead[0]; string(d.Body) != "poison" || d.Receives != MaxReceives || d.ID == "" || d.Receipt != "" {
		s.Errorf("dead letter is %+v", d)
	}
	s.nothing("q", 0)
	if dead, err = s.q.DeadLetters(s.Context(), "q", 10); err != nil || len(dead) != 0 {
		s.Errorf("%d dead letters, %v; want none, they were already taken", len(dead), err)
	}
}

func deadLettersAside(s *suite) {
	s.send("q", "poison", 0)
	for range MaxReceives {
		s.extend("q", s.receive("q", "poison"), 0)
	}
	s.send("q", "good", 0)
	passed := s.clock()
	s.remove("q", s.receive("q", "good"))
	passed(0)
	s.nothing("q", hide)
	if dead, err := s.q.DeadLetters(s.Context(), "q", 1); err != nil || len(dead) != 1 {
		s.Errorf("%d dead letters, %v; want one", len(dead), err)
	}
}

func deadLettersByPart(s *suite) {
	const n = 5
	for i := range n {
		s.send("q", fmt.Sprint(i), 0)
	}
	for range n * MaxReceives {
		m, err := s.q.Receive(s.Context(), "q", hide, queue.MaxWait)
		if err != nil {
			s.Fatal(err)
		}
		s.extend("q", m, 0)
	}
	s.nothing("q", soon)
	seen := map[string]bool{}
	for range n { // n calls are enough, even if each call returns only one dead letter
		dead, err := s.q.DeadLetters(s.Context(), "q", 2)
		if err != nil || len(dead) > 2 {
			s.Fatalf("%d dead letters, %v; want at most two", len(dead), err)
		}
		for _, d := range dead {
			seen[string(d.Body)] = true
		}
	}
	if len(seen) != n {
		s.Errorf("got %d of %d dead letters", len(seen), n)
	}
}

func separateQueues(s *suite) {
	s.send("a", "for a", 0)
	s.nothing("b", soon)
	s.send("b", "for b", 0)
	s.receive("a", "for a")
	s.receive("b", "for b")
}

func drop(s *suite) {
	s.send("q", "hidden", 0)
	m := s.receive("q", "hidden")
	s.send("q", "visible", 0)
	s.send("q", "delayed", hide)
	s.send("other", "stays", 0)
	for range 2 { // the second Drop finds no queue and returns no error
		if err := s.q.Drop(s.Context(), "q"); err != nil {
			s.Fatal(err)
		}
	}
	s.nothing("q", 2*hide)
	s.remove("q", m) // Drop has deleted the message; a Delete of the message returns no error
	s.receive("other", "stays")
	s.send("q", "again", 0)
	if m := s.receive("q", "again"); m.Receives != 1 {
		s.Errorf("the first delivery has Receives %d, want 1", m.Receives)
	}
}

// noStarvation keeps the queue filled with newer messages. The old message must be
// delivered although the queue always contains newer messages.
func noStarvation(s *suite) {
	s.send("q", "old", 0)
	for i := range 20 {
		s.send("q", fmt.Sprint("new ", i), 0)
	}
	for i := range 200 {
		m, err := s.q.Receive(s.Context(), "q", hide, 0)
		if err != nil {
			s.Fatal(err)
		}
		if string(m.Body) == "old" {
			return
		}
		s.remove("q", m)
		s.send("q", fmt.Sprint("newer ", i), 0)
	}
	s.Error("200 newer messages were delivered before the old one")
}

// ranks is for drivers with ranks. A rank orders what is visible; it neither shows a message earlier nor delays one.
func ranks(s *suite) {
	q, ok := s.q.(queue.Ranked)
	if !ok {
		s.Skip("the driver has no ranks")
	}
	now := time.Now()
	send := func(body string, delay, rank time.Duration) {
		if err := q.SendRanked(s.Context(), "q", []byte(body), delay, now.Add(rank)); err != nil {
			s.Fatal(err)
		}
	}
	send("third", 0, time.Hour)
	send("fourth", 0, time.Hour)
	send("hidden", 2*hide, -2*time.Hour)
	send("first", 0, -time.Hour)
	s.send("q", "second", 0) // its rank is the time of Send
	first := s.receive("q", "first")
	s.remove("q", s.receive("q", "second"))
	s.extend("q", first, 0)
	for _, body := range []string{"first", "third", "fourth"} {
		s.remove("q", s.receive("q", body))
	}
	s.nothing("q", 0)
	s.remove("q", s.receive("q", "hidden"))
}

func bodies(s *suite) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, body := range [][]byte{{0}, []byte("{}"), every, bytes.Repeat([]byte("x"), queue.MaxBody)} {
		s.send("q", string(body), 0)
		s.remove("q", s.receive("q", string(body)))
	}
}

func ownBytes(s *suite) {
	body := []byte("as sent")
	if err := s.q.Send(s.Context(), "q", body, 0); err != nil {
		s.Fatal(err)
	}
	copy(body, "changed")
	m := s.receive("q", "as sent")
	copy(m.Body, "changed")
	s.receive("q", "as sent")
}

func limits(s *suite) {
	ctx := s.Context()
	receive := func(name string, hide, wait time.Duration) error {
		_, err := s.q.Receive(ctx, name, hide, wait)
		return err
	}
	dead := func(name string, limit int) error {
		_, err := s.q.DeadLetters(ctx, name, limit)
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		want fairlead.Kind
	}{
		{"body over the limit", s.q.Send(ctx, "q", make([]byte, queue.MaxBody+1), 0), fairlead.KindTooLarge},
		{"empty body", s.q.Send(ctx, "q", nil, 0), fairlead.KindInvalid},
		{"negative delay", s.q.Send(ctx, "q", []byte("x"), -1), fairlead.KindInvalid},
		{"long delay", s.q.Send(ctx, "q", []byte("x"), queue.MaxDelay+1), fairlead.KindInvalid},
		{"send to an empty name", s.q.Send(ctx, "", []byte("x"), 0), fairlead.KindInvalid},
		{"send to a path", s.q.Send(ctx, "a/b", []byte("x"), 0), fairlead.KindInvalid},
		{"send to a long name", s.q.Send(ctx, strings.Repeat("a", 81), []byte("x"), 0), fairlead.KindInvalid},
		{"negative hide", receive("q", -1, 0), fairlead.KindInvalid},
		{"long hide", receive("q", queue.MaxHide+1, 0), fairlead.KindInvalid},
		{"negative wait", receive("q", hide, -1), fairlead.KindInvalid},
		{"long wait", receive("q", hide, queue.MaxWait+1), fairlead.KindInvalid},
		{"receive from an empty name", receive("", hide, 0), fairlead.KindInvalid},
		{"delete from an empty name", s.q.Delete(ctx, "", "1.1"), fairlead.KindInvalid},
		{"extend in an empty name", s.q.Extend(ctx, "", "1.1", hide), fairlead.KindInvalid},
		{"extend by a negative time", s.q.Extend(ctx, "q", "1.1", -1), fairlead.KindInvalid},
		{"extend for too long", s.q.Extend(ctx, "q", "1.1", queue.MaxHide+1), fairlead.KindInvalid},
		{"limit of 0 dead letters", dead("q", 0), fairlead.KindInvalid},
		{"dead letters of an empty name", dead("", 1), fairlead.KindInvalid},
		{"drop an empty name", s.q.Drop(ctx, ""), fairlead.KindInvalid},
	} {
		if got := fairlead.KindOf(c.err); got != c.want {
			s.Errorf("%s: %v, want an error of kind %q", c.what, c.err, c.want)
		}
	}
	s.nothing("q", 0)
}

func endedContext(s *suite) {
	s.send("q", "job_1", 0)
	m := s.receive("q", "job_1")
	s.send("q", "job_2", 0)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, errReceive := s.q.Receive(ctx, "q", hide, queue.MaxWait)
	_, errReceiveNow := s.q.Receive(ctx, "q", hide, 0)
	_, errDead := s.q.DeadLetters(ctx, "q", 1)
	for what, err := range map[string]error{
		"send":                    s.q.Send(ctx, "q", []byte("never"), 0),
		"receive":                 errReceive,
		"receive without waiting": errReceiveNow,
		"delete":                  s.q.Delete(ctx, "q", m.Receipt),
		"extend":                  s.q.Extend(ctx, "q", m.Receipt, 0),
		"dead letters":            errDead,
		"drop":                    s.q.Drop(ctx, "q"),
	} {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	s.remove("q", s.receive("q", "job_2"))
	s.receive("q", "job_1")
	s.nothing("q", soon)
}

func reopen(s *suite) {
	s.send("q", "poison", 0)
	for range MaxReceives {
		s.extend("q", s.receive("q", "poison"), 0)
	}
	s.send("q", "hidden", 0)
	hidden := s.receive("q", "hidden")
	s.send("q", "delayed", 2*hide)
	s.send("q", "visible", 0)

	s.close()
	s.open()
	s.remove("q", s.receive("q", "visible"))
	s.extend("q", hidden, hide) // the receipt from before the reopening is still valid
	m := s.receive("q", "hidden")
	if m.Receives != 2 {
		s.Errorf("the second delivery has Receives %d", m.Receives)
	}
	s.remove("q", m)
	s.remove("q", s.receive("q", "delayed"))
	if dead, err := s.q.DeadLetters(s.Context(), "q", 1); err != nil || len(dead) != 1 || string(dead[0].Body) != "poison" {
		s.Errorf("dead letters after reopening: %v, %v", dead, err)
	}
}
