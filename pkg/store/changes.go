package store

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Happened is the effect of one change of the table: an event, a wake-up, or
// neither. The zero value is a change without an effect.
type Happened struct {
	Event *events.Domain // nil: the change has no event
	Job   *Job           // the job after the change; nil: the change is of another item
	Woken bool           // the change queued the job: its runner needs a wake-up
}

// Announces reports whether changes of the item at k can have an event. The table
// also has items that other packages write.
func Announces(k engine.Key) bool { return nounOf(k) != nounOther }

// IsWebhook reports whether k is the key of a webhook.
func IsWebhook(k engine.Key) bool {
	return strings.HasPrefix(k.Partition, "ORG#") && strings.HasSuffix(k.Partition, "#WEBHOOK")
}

// Happening returns the effect of a change. A change that does not change the state has no effect, for example a
// renewed lease or a new place in the Due index. If the change has no old item, Happening treats it as a change of
// state, and returns the event of the state again. An error means that another program or a later version of this
// package wrote the item.
func Happening(c engine.Change) (Happened, error) {
	if c.New == nil {
		return Happened{}, nil // deletions have no events
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
	if jobKey(r.V.ID) != c.Key { // the JSON of another record decodes to an empty job
		return Happened{}, fmt.Errorf("the item at %s is of job %q", c.Key, r.V.ID)
	}
	h.Job = &r.V
	h.Woken = h.Event != nil && r.V.State == job.Queued
	if e, ok := r.V.StuckEvent(r.Version); ok { // this version changes nothing else
		h.Event, h.Woken = &e, false
	}
	return h, nil
}

// newEvent returns the event of the new item, unless the old item had the same event type.
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

// eventOf returns the event of the new item. The method Event of the record decides which of its versions have an
// event.
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
