package sqs

import (
	"fmt"
	"testing"
	"time"
)

func TestLedgerKnowsTheLatestDelivery(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := ledger{now: func() time.Time { return now }, messages: map[string]entry{}}
	first, second, stranger := handle{"m", "1"}, handle{"m", "2"}, handle{"other", "1"}
	l.delivered(first, 1, time.Minute)
	if l.superseded(first) || l.over(first) {
		t.Error("a delivery was not the latest as soon as it was made")
	}
	if l.superseded(stranger) || l.over(stranger) {
		t.Error("the ledger judged a delivery that it does not know")
	}
	now = now.Add(time.Minute)
	if l.superseded(first) || !l.over(first) {
		t.Error("a late owner may delete its message, and not extend it")
	}
	l.delivered(second, 2, time.Minute)
	if !l.superseded(first) || !l.over(first) || l.superseded(second) || l.over(second) {
		t.Error("the later delivery did not take the message from the earlier one")
	}
	// Word of what the earlier one did may come later.
	l.delivered(first, 1, time.Hour)
	l.extended(first, 0)
	l.gone(first)
	if !l.superseded(first) || l.over(second) {
		t.Error("the earlier delivery took the message back")
	}
	l.gone(second)
	if l.superseded(first) {
		t.Error("a message that is gone belongs to nobody")
	}
}

func TestLedgerIsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := ledger{now: func() time.Time { return now }, messages: map[string]entry{}}
	for i := range 10 * maxLedger {
		l.delivered(handle{fmt.Sprint(i), "1"}, 1, time.Second)
		now = now.Add(time.Second)
	}
	if n := len(l.messages); n > maxLedger {
		t.Errorf("the ledger holds %d messages that are hidden no longer", n)
	}
}
