// Package eventbustest is the conformance suite of eventbus.Bus, with a bus in memory that passes it.
package eventbustest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/eventbus"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Open creates an empty bus. It also returns a function that receives the next events from a subscriber of the bus,
// in any order. If no event arrives, the function waits as long as a delivery may take before it returns no events.
type Open func(t *testing.T) (b eventbus.Bus, next func() []events.Domain)

var at = time.Date(2026, 11, 21, 3, 4, 5, 678_000_000, time.UTC)

func event(n int) events.Domain {
	return events.Domain{V: 1, Type: "fairlead.job.running", Subject: fmt.Sprintf("job_%03d", n), Version: int64(n + 1), Time: at}
}

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Run("an event is delivered unchanged", func(t *testing.T) {
		b, next := open(t)
		e := event(0)
		e.Data = map[string]string{"text": `é "quoted" <&> ` + "\u2028", "empty": ""}
		e.Version = 1<<53 + 1 // more than a float64 represents exactly
		ok(t, b, e)
		want(t, next, e)
	})
	t.Run("more events than fit in a request are all delivered", func(t *testing.T) {
		b, next := open(t)
		var list []events.Domain
		for i := range 47 {
			list = append(list, event(i))
		}
		ok(t, b, list...)
		want(t, next, list...)
	})
	t.Run("several events of the largest size are delivered", func(t *testing.T) {
		b, next := open(t)
		var list []events.Domain
		for i := range 3 {
			e := event(i)
			e.Data = map[string]string{"x": strings.Repeat("x", eventbus.MaxEvent-200)}
			list = append(list, e)
		}
		ok(t, b, list...)
		want(t, next, list...)
	})
	t.Run("publishing no events is no error", func(t *testing.T) {
		b, _ := open(t)
		ok(t, b)
	})
	t.Run("a refused event does not affect others", func(t *testing.T) {
		b, next := open(t)
		large := event(1)
		large.Data = map[string]string{"x": strings.Repeat("x", eventbus.MaxEvent)}
		bad := event(3)
		bad.Subject = ""
		errs := b.Publish(t.Context(), []events.Domain{event(0), large, event(2), bad})
		if len(errs) != 4 || errs[0] != nil || errs[2] != nil ||
			fairlead.KindOf(errs[1]) != fairlead.KindTooLarge || fairlead.KindOf(errs[3]) != fairlead.KindInvalid {
			t.Fatalf("got %v, want errors for the second and the last", errs)
		}
		want(t, next, event(0), event(2))
	})
	t.Run("an ended context publishes nothing", func(t *testing.T) {
		b, next := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		errs := b.Publish(ctx, []events.Domain{event(0), event(1)})
		if len(errs) != 2 || !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
			t.Errorf("got %v, want two errors of the context", errs)
		}
		ok(t, b, event(2))
		want(t, next, event(2))
	})
}

func ok(t *testing.T, b eventbus.Bus, list ...events.Domain) {
	t.Helper()
	if errs := b.Publish(t.Context(), list); errs != nil {
		t.Fatalf("publish %d events: %v", len(list), errors.Join(errs...))
	}
}

// want receives events until all events of list have arrived. It fails if another event arrives. A repeated event is
// allowed.
func want(t *testing.T, next func() []events.Domain, list ...events.Domain) {
	t.Helper()
	var got []string
	for {
		more := next()
		for _, e := range more {
			if s := text(t, e); !slices.Contains(got, s) {
				got = append(got, s)
			}
		}
		if len(got) >= len(list) || len(more) == 0 {
			break
		}
	}
	var wanted []string
	for _, e := range list {
		wanted = append(wanted, text(t, e))
	}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("got %d events, want %d; got\n%.2000q\nwant\n%.2000q", len(got), len(wanted), got, wanted)
	}
}

func text(t *testing.T, e events.Domain) string {
	t.Helper()
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
