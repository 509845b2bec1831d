package eventbustest

import (
	"context"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/eventbus"
)

// MemoryBus is a bus in memory that keeps the accepted events. Safe for concurrent use.
type MemoryBus struct {
	mu    sync.Mutex
	taken []events.Domain
	read  int
	fail  func(events.Domain) error
}

var _ eventbus.Bus = (*MemoryBus)(nil)

// Memory returns an empty bus.
func Memory() *MemoryBus { return &MemoryBus{} }

// FailWith sets a function whose error refuses an event; nil: none.
func (m *MemoryBus) FailWith(fail func(events.Domain) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

// Publish implements eventbus.Bus.
func (m *MemoryBus) Publish(ctx context.Context, list []events.Domain) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(list))
	for i, e := range list {
		if _, errs[i] = eventbus.Check(e); errs[i] == nil {
			errs[i] = ctx.Err()
		}
		if errs[i] == nil && m.fail != nil {
			errs[i] = m.fail(e)
		}
		if errs[i] == nil {
			m.taken = append(m.taken, e)
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

// Taken returns all accepted events, in order.
func (m *MemoryBus) Taken() []events.Domain {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.taken)
}

// next returns the events that were accepted since its last call.
func (m *MemoryBus) next() []events.Domain {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.read = len(m.taken) }()
	return slices.Clone(m.taken[m.read:])
}
