package queuebus_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/eventbus"
	"github.com/fairlead/fairlead/pkg/eventbus/eventbustest"
	"github.com/fairlead/fairlead/pkg/eventbus/queuebus"
	"github.com/fairlead/fairlead/pkg/queue"
	"github.com/fairlead/fairlead/pkg/queue/memory"
)

func TestQueueBusConforms(t *testing.T) {
	eventbustest.Run(t, func(t *testing.T) (eventbus.Bus, func() []events.Domain) {
		q := memory.New(time.Now, 5)
		return queuebus.Bus{Queue: q, Name: "events"}, func() (list []events.Domain) {
			for {
				m, err := q.Receive(t.Context(), "events", time.Minute, 0)
				if errors.Is(err, queue.ErrNoMessage) {
					return list
				}
				if err != nil {
					t.Fatal(err)
				}
				var e events.Domain
				if err := json.Unmarshal(m.Body, &e); err != nil {
					t.Fatal(err)
				}
				list = append(list, e)
			}
		}
	})
}

// An unwanted event is accepted but not queued. If Wanted returns an error, the event is not accepted.
func TestUnwantedEventsAreNotQueued(t *testing.T) {
	q := memory.New(time.Now, 5)
	unsure := errors.New("the table does not answer")
	b := queuebus.Bus{Queue: q, Name: "events", Wanted: func(_ context.Context, e events.Domain) (bool, error) {
		if e.Subject == "unsure" {
			return false, unsure
		}
		return false, nil
	}}
	e := events.Domain{V: 1, Type: "fairlead.job.queued", Subject: "job_1", Version: 1, Time: time.Now()}
	other := e
	other.Subject = "unsure"
	if errs := b.Publish(t.Context(), []events.Domain{e, other}); len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], unsure) {
		t.Errorf("Publish returns %v, want nil for the first and Wanted's error for the second", errs)
	}
	if _, err := q.Receive(t.Context(), "events", time.Minute, 0); !errors.Is(err, queue.ErrNoMessage) {
		t.Errorf("the queue is not empty: %v", err)
	}
}
