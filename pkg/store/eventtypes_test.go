package store_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/tools/page"
)

// TestEveryEventTypeIsListed compares the list of event types with the events that
// records have, and with docs/reference/events.md.
func TestEveryEventTypeIsListed(t *testing.T) {
	published := map[string][]string{} // for each event type, the keys of the event's data
	add := func(e events.Domain, ok bool) {
		if ok {
			published[e.Type] = slices.Sorted(maps.Keys(e.Data))
		}
	}
	for _, s := range job.States() {
		add(store.Job{Job: job.Job{State: s}}.Event(1), true)
	}
	stuck := store.Job{RunnerName: "eu"}
	stuck.Stuck = &store.Stuck{At: time.Unix(1, 0), Version: 2}
	add(stuck.StuckEvent(2))
	for _, s := range deployment.States() {
		add(store.Deployment{Deployment: deployment.Deployment{State: s}}.Event(1), true)
	}
	add(store.RunnerWatch{Online: true, Turned: 2}.Event(2))
	add(store.RunnerWatch{Turned: 2}.Event(2))
	add(store.RunnerWatch{Letters: &store.DeadLetters{Version: 2}}.Event(2))
	add(store.StateHead{Pushed: &store.PushedState{Version: 2}}.Event(2))
	add(store.StateHead{Broken: &store.BrokenLock{Version: 2}}.Event(2))

	var table strings.Builder
	table.WriteString("| type | when | subject | data |\n|---|---|---|---|\n")
	for _, e := range store.EventTypes() {
		data, ok := published[e.Type]
		if !ok {
			t.Errorf("no record has an event of the listed type %s", e.Type)
		}
		if !slices.Equal(data, e.Data) {
			t.Errorf("%s has the data %q, and the list has %q", e.Type, data, e.Data)
		}
		if e.When == "" || e.Subject == "" {
			t.Errorf("%s is not described", e.Type)
		}
		delete(published, e.Type)
		keys := ""
		for _, key := range e.Data {
			keys += fmt.Sprintf(", `%s`", key)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | `version`%s |\n", e.Type, e.When, e.Subject, keys)
	}
	for kind := range published {
		t.Errorf("the type %s is not listed", kind)
	}
	page.Hold(t, "docs/reference/events.md", "types", table.String())
}
