package store

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Happened is what one change of the table means to others than its writer.
// The zero value means nothing.
type Happened struct {
	Event *events.Domain // what happened; nil: nothing that others are told
	Job   *Job           // the job that the change is of, as it is now
	Woken bool           // the change queued the job: its runner wants a wake-up
}

// Announces reports whether changes of the item at k may mean something to
// others. The table has items that are none of this package's.
func Announces(k engine.Key) bool { return nounOf(k) != nounOther }

// IsWebhook reports whether a webhook is kept at k.
func IsWebhook(k engine.Key) bool {
	return strings.HasPrefix(k.Partition, "ORG#") && strings.HasSuffix(k.Partition, "#WEBHOOK")
}

// Happening reads a change. Renewals of a lease, moves in the order of due
// things and progress within a state mean nothing to others; without the old
// item they cannot be told from the change of state, and repeat its event. An
// error means that the change was not written by this package, or by a later
// version of it.
func Happening(c engine.Change) (Happened, error) {
	if c.New == nil {
		return Happened{}, nil // nothing that others are told of is ever deleted
	}
	switch nounOf(c.Key) {
	case nounJob:
		return jobHappening(c)
	case nounDeployment:
		return newEvent(c, func(it engine.Item) (events.Domain, error) {
			r, err := decode[Deployment](it)
			return r.V.Event(r.Version), err
		})
	case nounState:
		r, err := decode[StateHead](*c.New)
		if e, ok := r.V.Event(r.Version); ok && err == nil {
			return Happened{Event: &e}, nil
		}
		return Happened{}, err
	case nounDelivery:
		r, err := decode[Delivery](*c.New)
		if e, ok := r.V.Event(r.Version); ok && err == nil {
			return Happened{Event: &e}, nil
		}
		return Happened{}, err
	case nounWatch:
		r, err := decode[RunnerWatch](*c.New)
		if e, ok := r.V.Event(r.Version); ok && err == nil {
			return Happened{Event: &e}, nil
		}
		return Happened{}, err
	case nounOther:
	}
	return Happened{}, nil
}

func jobHappening(c engine.Change) (Happened, error) {
	h, err := newEvent(c, func(it engine.Item) (events.Domain, error) {
		r, err := decode[Job](it)
		return r.V.Event(r.Version), err
	})
	if err != nil {
		return Happened{}, err
	}
	r, err := decode[Job](*c.New)
	if err != nil {
		return Happened{}, err
	}
	if jobKey(r.V.ID) != c.Key { // JSON of something else decodes to an empty job
		return Happened{}, fmt.Errorf("the item at %s is of job %q", c.Key, r.V.ID)
	}
	h.Job = &r.V
	h.Woken = h.Event != nil && r.V.State == job.Queued
	if e, ok := r.V.StuckEvent(r.Version); ok { // of a version that changes nothing else
		h.Event, h.Woken = &e, false
	}
	return h, nil
}

// newEvent returns the event of the new item, unless the old one had the same.
func newEvent(c engine.Change, event func(engine.Item) (events.Domain, error)) (Happened, error) {
	now, err := event(*c.New)
	if err != nil {
		return Happened{}, err
	}
	if c.Old != nil {
		before, err := event(*c.Old)
		if err != nil {
			return Happened{}, err
		}
		if before.Type == now.Type {
			return Happened{}, nil
		}
	}
	return Happened{Event: &now}, nil
}
