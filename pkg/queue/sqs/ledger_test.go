package sqs

import (
	"fmt"
	"testing"
	"time"
)

func TestLedgerFindsTheLatestDelivery(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := ledger{now: func() time.Time { return now }, messages: map[string]entry{}}
	first, second, unknown := handle{"m", "1"}, handle{"m", "2"}, handle{"other", "1"}
	l.delivered(first, 1, time.Minute)
	if l.superseded(first) || l.over(first) {
		t.Error("a new delivery is not the latest")
	}
	if l.superseded(unknown) || l.over(unknown) {
		t.Error("the ledger has an entry for a delivery that it did not record")
	}
	now = now.Add(time.Minute)
	if l.superseded(first) || !l.over(first) {
		t.Error("want: a late owner may delete its message, but not extend it")
	}
	l.delivered(second, 2, time.Minute)
	if !l.superseded(first) || !l.over(first) || l.superseded(second) || l.over(second) {
		t.Error("the later delivery did not take the message from the earlier one")
	}
	// The results of calls for the earlier delivery may arrive after the later delivery.
	l.delivered(first, 1, time.Hour)
	l.extended(first, 0)
	l.gone(first)
	if !l.superseded(first) || l.over(second) {
		t.Error("the earlier delivery owns the message again")
	}
	l.gone(second)
	if l.superseded(first) {
		t.Error("a deleted message still has an owner")
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
		t.Errorf("the ledger has %d messages that are no longer hidden", n)
	}
}
