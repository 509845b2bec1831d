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
		return newEvent[Deployment](c)
	case nounState:
		return eventOf[StateHead](c)
	case nounDelivery:
		return eventOf[Delivery](c)
	case nounWatch:
		return eventOf[RunnerWatch](c)
	case nounOther:
	}
	return Happened{}, nil
}

func jobHappening(c engine.Change) (Happened, error) {
	h, err := newEvent[Job](c)
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
func newEvent[T interface {
	Event(version int64) events.Domain
}](c engine.Change) (Happened, error) {
	now, err := decode[T](*c.New)
	if err != nil {
		return Happened{}, err
	}
	e := now.V.Event(now.Version)
	if c.Old != nil {
		before, err := decode[T](*c.Old)
		if err != nil || before.V.Event(before.Version).Type == e.Type {
			return Happened{}, err
		}
	}
	return Happened{Event: &e}, nil
}

// eventOf returns the event of an item whose record says which of its versions have
// one.
func eventOf[T interface {
	Event(version int64) (events.Domain, bool)
}](c engine.Change) (Happened, error) {
	r, err := decode[T](*c.New)
	if err != nil {
		return Happened{}, err
	}
	if e, ok := r.V.Event(r.Version); ok {
		return Happened{Event: &e}, nil
	}
	return Happened{}, nil
}
